//! The one integration test binary: a file a feature, run against the real `pdreplay` binary or the library.
//!
//! One binary because each further one would link everything again. Tests that need the shared inputs beside the
//! repository say so in a plain line when they are missing, and pass.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops at the first surprise and watches the clock"
)]

mod cli;
mod docs;
mod run;
mod scenario;
mod tidy;
