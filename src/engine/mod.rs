//! One emulated worker: queues, batches, KV pool, sessions. Told the time; says what it did and when it next wakes.
//!
//! Owns the cost model, the KV pool with its prefix cache, the scheduler loop and the sessions of a decode worker.
//! Knows nothing of other workers, routes or the network. Right about capacity, residency, eviction and queueing;
//! it computes no tokens.

mod config;
mod control;
mod cost;
mod finish;
mod host;
mod job;
mod memory;
mod message;
mod pool;
mod prefix;
mod schedule;
mod serve;
mod sessions;
mod stats;
#[cfg(test)]
mod tests;
mod worker;

pub use config::{EngineConfig, SessionTrim, Timing};
pub use cost::{Batch, Cost, CostModel, PrefillPart};
pub use job::{Done, Job};
pub use message::{Cx, DropReason, Input, Output, Tokens};
pub use serve::Queues;
pub use stats::{TimeMeter, UsageMeter, WorkerStats};
pub use worker::{Crash, Worker};
