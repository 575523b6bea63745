//! One emulated worker: queues, batches, KV pool, sessions. Told the time; says what it did and when it next wakes.

mod config;

pub use config::{EngineConfig, SessionTrim, Timing};
