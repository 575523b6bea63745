//! The replayer against a fake cluster that answers after fixed delays and keeps real session sets.

mod fake;
mod index;
mod paths;
mod property;
mod sends;
mod sessions;
mod times;
