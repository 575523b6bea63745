//! Integration tests, one binary: a file per topic.

mod results;
mod scenario;
mod trace_cases;
mod trace_sample;
