//! What a client did on the wire, counted.

use std::sync::atomic::{AtomicU64, Ordering};

/// What the client did on the wire so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClientCounters {
    /// Connections opened, or tried.
    pub connections: u64,
    /// Requests sent: generate legs and control calls, repeats included.
    pub requests: u64,
    /// Bytes of their bodies.
    pub bytes_sent: u64,
    /// Generate requests that were sent again.
    pub retries: u64,
    /// Answers with status 429 or 503, those that a repeat made good included.
    pub throttled: u64,
}

/// Atomic [`ClientCounters`].
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub connections: AtomicU64,
    pub requests: AtomicU64,
    pub bytes_sent: AtomicU64,
    pub retries: AtomicU64,
    pub throttled: AtomicU64,
}

impl Counts {
    pub fn add(counter: &AtomicU64, by: u64) {
        counter.fetch_add(by, Ordering::Relaxed);
    }

    pub fn now(&self) -> ClientCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ClientCounters {
            connections: read(&self.connections),
            requests: read(&self.requests),
            bytes_sent: read(&self.bytes_sent),
            retries: read(&self.retries),
            throttled: read(&self.throttled),
        }
    }
}
