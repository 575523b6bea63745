//! The one integration test binary: a file a feature, run against the real `pdreplay` binary or the library.
//!
//! One binary because each further one would link everything again. Small inputs are in tests/data. The few tests on
//! large recorded traces, which stand beside the repository, say so in a plain line when those are missing, and pass.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test stops at the first surprise, watches the clock and says why it skips"
)]

mod bounds;
mod car;
mod cli;
mod cluster;
mod damage;
mod diff;
mod docs;
mod exports;
mod figures;
mod flips;
mod foreign;
mod full_disk;
mod gates;
mod installed;
mod interrupts;
mod json_words;
mod kv;
mod live;
mod notebooks;
mod odd_files;
mod outfiles;
mod page;
mod readers;
mod replicas;
mod results;
mod run;
mod scenario;
mod sim;
mod sweep;
mod tidy;
mod tools;
mod trace_cases;
mod trace_sample;
mod turn;
mod worker;
