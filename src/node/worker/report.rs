//! What a node says of itself: load, counters, records of a run.

use crate::base::Time;
use crate::cluster::{Process, worker_record};
use crate::engine::{Queues, WorkerStats};
use crate::node::worker::WorkerNode;
use crate::protocol::LoadReport;
use crate::record::{TransferRecord, WorkerRecord};

/// What `/metrics` counts beside the load. Totals since the start of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeCounters {
    /// Requests and tokens by where they are now.
    pub queues: Queues,
    /// Sessions open now.
    pub sessions_open: usize,
    /// Generate requests that came, refused ones included.
    pub requests: u64,
    /// Those that ended with an abort.
    pub aborted: u64,
    /// Transfers to or from this worker that failed.
    pub transfer_failures: u64,
    /// Prompt tokens computed.
    pub prefilled_tokens: u64,
    /// Prompt tokens found in cache or session.
    pub cached_tokens: u64,
    /// Answer tokens.
    pub output_tokens: u64,
    /// Tokens evicted from the prefix cache.
    pub evicted_tokens: u64,
    /// Times a request was thrown out for lack of room.
    pub retractions: u64,
    /// Idle sessions trimmed or timed out.
    pub sessions_dropped: u64,
}

impl WorkerNode {
    /// What `/v1/loads` says.
    pub fn load(&self) -> LoadReport {
        self.worker.load()
    }

    /// What `/metrics` says.
    pub fn counters(&self) -> NodeCounters {
        let stats = self.worker.stats();
        NodeCounters {
            queues: self.worker.queues(),
            sessions_open: self.worker.sessions_open(),
            requests: self.requests,
            aborted: self.aborted,
            transfer_failures: self.transfer_errors,
            prefilled_tokens: stats.prefilled_tokens,
            cached_tokens: stats.cached_tokens,
            output_tokens: stats.output_tokens,
            evicted_tokens: self.worker.evicted_tokens(),
            retractions: stats.retractions,
            sessions_dropped: stats.session_trims + stats.session_timeouts,
        }
    }

    /// The engine's own counters.
    pub fn stats(&self) -> &WorkerStats {
        self.worker.stats()
    }

    /// This worker up to `now`, as in `workers.jsonl`; `restarts` are those before this process.
    pub fn record(&self, now: Time) -> WorkerRecord {
        let process = [Process::of(&self.worker)];
        WorkerRecord {
            transfer_errors: self.transfer_errors,
            restarts: self.config.incarnation,
            ..worker_record(self.config.id, self.config.engine.kv_pool_tokens, process, now.max(self.now))
        }
    }

    /// Prefill: transfers by the decode worker they went to. Empty on others: the prefill side counts.
    pub fn transfers(&self) -> Vec<TransferRecord> {
        self.pairs.values().cloned().collect()
    }

    /// Generate requests that have neither ended nor been given up, those included that hang.
    #[cfg(test)]
    pub fn in_flight(&self) -> usize {
        self.works.len()
    }
}
