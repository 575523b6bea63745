//! Integration tests, one binary: a file per topic.

mod scenario;
