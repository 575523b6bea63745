//! What live tests share: a scripted server, its scripts, runs against it.

pub mod fake;
pub mod run;
pub mod script;
