//! The one integration binary; a file per topic.

mod trace_cases;
mod trace_sample;
