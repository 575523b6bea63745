//! What live tests share: a scripted server and its scripts, processes, a lossy network, runs
//! against them.

pub mod fake;
pub mod process;
pub mod proxy;
pub mod run;
pub mod script;
