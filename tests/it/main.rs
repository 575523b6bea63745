//! The one integration test binary: a file a feature, run against the real `pdreplay` binary or the library.
//!
//! One binary because each further one would link everything again. Tests that need the shared inputs beside the
//! repository say so in a plain line when they are missing, and pass.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test stops at the first surprise, watches the clock and says why it skips"
)]

mod bounds;
mod cli;
mod docs;
mod results;
mod run;
mod scenario;
mod sim;
mod tidy;
mod tools;
mod trace_cases;
mod trace_sample;
