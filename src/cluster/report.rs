//! What the cluster leaves at the end of a run: one record per worker and per P→D pair.

use crate::base::{Dur, Role, Time, WorkerId};
use crate::cluster::flight::role_label;
use crate::cluster::machine::Cluster;
use crate::cluster::site::Site;
use crate::engine::{TimeMeter, Worker, WorkerStats};
use crate::record::{TransferRecord, WorkerRecord};

impl Cluster {
    /// Every configured worker, up to `now`.
    pub fn workers(&self, now: Time) -> Vec<WorkerRecord> {
        let record = |site: &Site| {
            let processes = site.past.iter().cloned().chain(site.worker.iter().map(Process::of));
            WorkerRecord {
                transfer_errors: site.transfer_errors,
                restarts: site.restarts,
                ..worker_record(site.id, self.engine.kv_pool_tokens, processes, now)
            }
        };
        self.sites.iter().map(record).collect()
    }

    /// Every pair that saw a transfer.
    pub fn transfers(&self) -> Vec<TransferRecord> {
        self.pairs.values().cloned().collect()
    }
}

/// What one process of a worker leaves.
#[derive(Debug, Clone)]
pub struct Process {
    /// Its counters.
    pub stats: WorkerStats,
    /// Tokens it evicted from the prefix cache.
    pub evicted_tokens: u64,
    /// Most sessions it held at once.
    pub sessions_peak: u64,
}

impl Process {
    /// Of a worker that lives.
    pub fn of(worker: &Worker) -> Process {
        Process {
            stats: worker.stats().clone(),
            evicted_tokens: worker.evicted_tokens(),
            sessions_peak: worker.sessions_peak(),
        }
    }
}

/// One worker up to `now`, over all its `processes`; restarts and transfer errors are the caller's to add.
pub fn worker_record(
    id: WorkerId,
    capacity_tokens: u64,
    processes: impl IntoIterator<Item = Process>,
    now: Time,
) -> WorkerRecord {
    let (worker, role) = (id.to_string(), role_label(id.role).to_owned());
    let mut record = WorkerRecord { worker, role, capacity_tokens, ..WorkerRecord::default() };
    let mut shares = Shares::default();
    for process in processes {
        shares.add(&process.stats, now);
        add(&mut record, &process.stats, now);
        record.evicted_tokens += process.evicted_tokens;
        record.sessions_peak = record.sessions_peak.max(process.sessions_peak);
    }
    let share = |of: Dur| if now > Time::ZERO { of.ns() as f64 / now.ns() as f64 } else { 0.0 };
    record.busy_share = share(shares.busy);
    record.link_busy_share = (id.role != Role::Colocated).then(|| share(shares.link));
    record.stalled_by_link_share = (id.role == Role::Prefill).then(|| share(shares.stalled_by_link));
    record.stalled_by_room_share = (id.role == Role::Prefill).then(|| share(shares.stalled_by_room));
    record.usage_mean /= capacity_tokens as f64;
    record.usage_peak /= capacity_tokens as f64;
    record
}

/// Times of which a record has shares, over all processes.
#[derive(Debug, Default)]
struct Shares {
    busy: Dur,
    link: Dur,
    stalled_by_link: Dur,
    stalled_by_room: Dur,
}

impl Shares {
    fn add(&mut self, stats: &WorkerStats, now: Time) {
        let total = |meter: &TimeMeter| meter.total(now);
        self.busy += stats.busy;
        self.link += total(&stats.link);
        self.stalled_by_link += total(&stats.stalled_by_link);
        self.stalled_by_room += total(&stats.stalled_by_room);
    }
}

/// Adds one process's counters; usage in tokens, scaled by the caller.
fn add(record: &mut WorkerRecord, stats: &WorkerStats, now: Time) {
    record.requests += stats.requests;
    record.prefilled_tokens += stats.prefilled_tokens;
    record.cached_tokens += stats.cached_tokens;
    record.output_tokens += stats.output_tokens;
    record.usage_mean += stats.usage.mean(now);
    record.usage_peak = record.usage_peak.max(stats.usage.peak() as f64);
    record.session_trims += stats.session_trims;
    record.session_timeouts += stats.session_timeouts;
    record.retractions += stats.retractions;
    record.admission_calls += stats.admission_calls;
    record.queue_peak = record.queue_peak.max(stats.queue_peak);
}
