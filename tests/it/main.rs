//! Integration tests, one binary: a file per topic.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "tests say why they skip, and may panic"
)]

mod results;
mod scenario;
mod trace_cases;
mod trace_sample;
