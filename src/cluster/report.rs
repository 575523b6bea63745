//! What the cluster leaves at the end of a run: one record per worker and per P→D pair.

use crate::base::Time;
use crate::cluster::flight::role_label;
use crate::cluster::machine::Cluster;
use crate::cluster::site::Site;
use crate::engine::WorkerStats;
use crate::record::{TransferRecord, WorkerRecord};

impl Cluster {
    /// Every configured worker, up to `now`.
    pub fn workers(&self, now: Time) -> Vec<WorkerRecord> {
        self.sites.iter().map(|site| worker_record(site, self.engine.kv_pool_tokens, now)).collect()
    }

    /// Every pair that saw a transfer.
    pub fn transfers(&self) -> Vec<TransferRecord> {
        self.pairs.values().cloned().collect()
    }
}

fn worker_record(site: &Site, capacity_tokens: u64, now: Time) -> WorkerRecord {
    let mut record = WorkerRecord {
        worker: site.id.to_string(),
        role: role_label(site.id.role).to_owned(),
        capacity_tokens,
        transfer_errors: site.transfer_errors,
        restarts: site.restarts,
        ..WorkerRecord::default()
    };
    let live =
        site.worker.iter().map(|worker| (worker.stats().clone(), worker.evicted_tokens(), worker.sessions_peak()));
    for (stats, evicted, sessions) in site.past.iter().cloned().chain(live) {
        add(&mut record, &stats, now);
        record.evicted_tokens += evicted;
        record.sessions_peak = record.sessions_peak.max(sessions);
    }
    if now > Time::ZERO {
        record.busy_share /= now.ns() as f64;
    }
    record.usage_mean /= capacity_tokens as f64;
    record.usage_peak /= capacity_tokens as f64;
    record
}

/// Adds one process's counters; usage in tokens and busy time in nanoseconds, scaled by the caller.
fn add(record: &mut WorkerRecord, stats: &WorkerStats, now: Time) {
    record.requests += stats.requests;
    record.prefilled_tokens += stats.prefilled_tokens;
    record.cached_tokens += stats.cached_tokens;
    record.output_tokens += stats.output_tokens;
    record.usage_mean += stats.usage.mean(now);
    record.usage_peak = record.usage_peak.max(stats.usage.peak() as f64);
    record.busy_share += stats.busy.ns() as f64;
    record.session_trims += stats.session_trims;
    record.session_timeouts += stats.session_timeouts;
    record.retractions += stats.retractions;
    record.admission_calls += stats.admission_calls;
    record.queue_peak = record.queue_peak.max(stats.queue_peak);
}
