//! Policies: pure choice of a worker from a view and a request, with the reason.

mod config;

pub use config::{CacheAwareConfig, KvAwareConfig, OverlapSource, PolicyConfig, PolicyName};
