//! Counters of one worker, the time-weighted usage of its pool, and how long a state lasted.

use crate::base::{Dur, Time};

/// What a worker has done so far.
#[derive(Debug, Clone, Default)]
pub struct WorkerStats {
    /// Generate requests taken in.
    pub requests: u64,
    /// Prompt tokens computed.
    pub prefilled_tokens: u64,
    /// Prompt tokens found in cache or session.
    pub cached_tokens: u64,
    /// Prompt tokens loaded back from host memory.
    pub host_loaded_tokens: u64,
    /// Answer tokens produced.
    pub output_tokens: u64,
    /// Idle sessions trimmed.
    pub session_trims: u64,
    /// Idle sessions timed out.
    pub session_timeouts: u64,
    /// Requests retracted.
    pub retractions: u64,
    /// Admission calls answered.
    pub admission_calls: u64,
    /// Longest queue of requests waiting for memory, KV or their turn.
    pub queue_peak: u64,
    /// Time iterations took.
    pub busy: Dur,
    /// Pool usage.
    pub usage: UsageMeter,
    /// KV moves over its link: into a decode worker, out of a prefill worker.
    pub link: TimeMeter,
    /// Prefill: it computes nothing though prompts wait, because KV that is on its way to D fills the pool.
    pub stalled_by_link: TimeMeter,
    /// The same, but for KV that is not on its way: it waits for room on D.
    pub stalled_by_room: TimeMeter,
}

/// Integral and peak of used tokens over time.
#[derive(Debug, Clone, Default)]
pub struct UsageMeter {
    since: Time,
    used: u64,
    peak: u64,
    token_ns: u128,
}

impl UsageMeter {
    /// From `now` on, `used` tokens are in use.
    pub fn set(&mut self, now: Time, used: u64) {
        self.token_ns += u128::from(self.used) * u128::from((now - self.since).ns());
        self.since = now;
        self.used = used;
        self.peak = self.peak.max(used);
    }

    /// Mean used tokens from the start to `now`, which is not before the last change.
    pub fn mean(&self, now: Time) -> f64 {
        let total = self.token_ns + u128::from(self.used) * u128::from((now - self.since).ns());
        if now.ns() == 0 { 0.0 } else { total as f64 / now.ns() as f64 }
    }

    /// Most tokens in use at once.
    pub fn peak(&self) -> u64 {
        self.peak
    }
}

/// How long something was so.
#[derive(Debug, Clone, Default)]
pub struct TimeMeter {
    since: Option<Time>,
    total: Dur,
}

impl TimeMeter {
    /// From `now` on it is so, or not.
    pub fn set(&mut self, now: Time, is_so: bool) {
        self.total = self.total(now);
        self.since = is_so.then_some(now);
    }

    /// Time it was so until `now`, which is not before the last change.
    pub fn total(&self, now: Time) -> Dur {
        self.total + self.since.map_or(Dur::ZERO, |since| now - since)
    }
}
