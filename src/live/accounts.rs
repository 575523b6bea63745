//! What emulated workers count of themselves over one run.
//!
//! Their counters go from the start of the process and know of no run, so they are read before the first request and after
//! the last one, and the difference is the run's. What others send meanwhile is in it. Invariant: nothing of a process
//! that has ended is subtracted from its successor's.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;

use crate::base::WorkerId;
use crate::live::Addresses;
use crate::live::api::{INCARNATION_HEADER, STATS_PATH, StatsReply};
use crate::live::client::{Http, Reply};
use crate::record::{TransferRecord, WorkerRecord};

/// Every worker that told its counters at one moment.
#[derive(Debug, Clone, Default)]
pub struct Accounts(BTreeMap<WorkerId, Account>);

#[derive(Debug, Clone)]
struct Account {
    /// Identity of the process, where it names itself.
    process: Option<String>,
    stats: StatsReply,
}

/// What workers did between two readings.
#[derive(Debug, Default)]
pub(in crate::live) struct Done {
    pub workers: Vec<WorkerRecord>,
    pub transfers: Vec<TransferRecord>,
    /// Workers whose peaks were reached before.
    pub older_peaks: Vec<String>,
}

impl Accounts {
    /// Asks every worker at once, each for at most so long.
    pub(in crate::live) async fn read(addresses: &Addresses, http: &Http, bound: Duration) -> Accounts {
        let ask = async |worker: WorkerId, url: String| {
            let reply = timeout(bound, http.get(&url)).await.ok()?.ok().filter(Reply::is_ok)?;
            let process = reply.header(INCARNATION_HEADER).map(str::to_owned);
            Some((worker, Account { process, stats: serde_json::from_slice(&reply.body).ok()? }))
        };
        let url = |base: &str| format!("{}{STATS_PATH}", base.trim_end_matches('/'));
        let asked = addresses.workers().map(|(worker, at)| ask(worker, url(&at.url)));
        Accounts(join_all(asked).await.into_iter().flatten().collect())
    }

    /// Whether a worker told.
    pub(in crate::live) fn has(&self, worker: WorkerId) -> bool {
        self.0.contains_key(&worker)
    }

    /// What was done since `before`. A process that was not there then did all it counts.
    pub(in crate::live) fn since(self, before: &Accounts) -> Done {
        let mut done = Done::default();
        for (worker, after) in self.0 {
            let earlier = before.0.get(&worker);
            let restarted = earlier.is_some_and(|earlier| earlier.process != after.process);
            let base = earlier.filter(|_| !restarted).map(|earlier| &earlier.stats);
            let counted_before = earlier.map_or(0, |earlier| earlier.stats.worker.restarts);
            let restarts = after.stats.worker.restarts.saturating_sub(counted_before).max(u32::from(restarted));
            if base.is_some_and(|base| has_older_peak(&after.stats.worker, &base.worker)) {
                done.older_peaks.push(worker.to_string());
            }
            let record = base.map_or_else(|| after.stats.worker.clone(), |base| worker_since(&after.stats, base));
            done.workers.push(WorkerRecord { worker: worker.to_string(), restarts, ..record });
            let nothing = Vec::new();
            let pairs = base.map_or(&nothing, |base| &base.transfers);
            done.transfers.extend(after.stats.transfers.iter().map(|pair| pair_since(pair, pairs)));
        }
        done.transfers.retain(|pair| pair.transfers > 0);
        done
    }
}

/// A peak that did not grow is one of before, or one that was only reached again: nobody knows.
fn has_older_peak(after: &WorkerRecord, before: &WorkerRecord) -> bool {
    (before.usage_peak > 0.0 && after.usage_peak <= before.usage_peak)
        || (before.sessions_peak > 0 && after.sessions_peak <= before.sessions_peak)
        || (before.queue_peak > 0 && after.queue_peak <= before.queue_peak)
}

fn worker_since(after: &StatsReply, before: &StatsReply) -> WorkerRecord {
    let (now, then) = (&after.worker, &before.worker);
    let count = |of: fn(&WorkerRecord) -> u64| of(now).saturating_sub(of(then));
    // Means are of the whole life of a process: back to sums, and a mean again.
    let (up, up_before) = (after.up_ns as f64, before.up_ns as f64);
    let between = |now: f64, then: f64| {
        if up > up_before { ((now * up - then * up_before) / (up - up_before)).max(0.0) } else { now }
    };
    let mean = |of: fn(&WorkerRecord) -> f64| between(of(now), of(then));
    let share = |of: fn(&WorkerRecord) -> Option<f64>| Some(between(of(now)?, of(then)?));
    WorkerRecord {
        requests: count(|of| of.requests),
        prefilled_tokens: count(|of| of.prefilled_tokens),
        cached_tokens: count(|of| of.cached_tokens),
        output_tokens: count(|of| of.output_tokens),
        usage_mean: mean(|of| of.usage_mean),
        busy_share: mean(|of| of.busy_share),
        link_busy_share: share(|of| of.link_busy_share),
        stalled_by_link_share: share(|of| of.stalled_by_link_share),
        stalled_by_room_share: share(|of| of.stalled_by_room_share),
        evicted_tokens: count(|of| of.evicted_tokens),
        session_trims: count(|of| of.session_trims),
        session_timeouts: count(|of| of.session_timeouts),
        transfer_errors: count(|of| of.transfer_errors),
        retractions: count(|of| of.retractions),
        admission_calls: count(|of| of.admission_calls),
        ..now.clone()
    }
}

fn pair_since(after: &TransferRecord, before: &[TransferRecord]) -> TransferRecord {
    let is_same = |pair: &&TransferRecord| {
        pair.prefill_worker == after.prefill_worker && pair.decode_worker == after.decode_worker
    };
    let Some(before) = before.iter().find(is_same) else { return after.clone() };
    TransferRecord {
        transfers: after.transfers.saturating_sub(before.transfers),
        errors: after.errors.saturating_sub(before.errors),
        bytes: after.bytes.saturating_sub(before.bytes),
        ..after.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(process: &str, up_ns: u64, worker: WorkerRecord, transfers: u64) -> Accounts {
        let pair = TransferRecord { prefill_worker: "P0".into(), decode_worker: "D0".into(), ..Default::default() };
        let transfers = vec![TransferRecord { transfers, bytes: transfers * 10, ..pair }];
        let stats = StatsReply { worker, transfers, up_ns };
        let account = Account { process: Some(process.into()), stats };
        Accounts([("P0".parse().unwrap(), account)].into())
    }

    fn counted(requests: u64, busy_share: f64, queue_peak: u64) -> WorkerRecord {
        let link_busy_share = Some(busy_share / 2.0);
        WorkerRecord { requests, busy_share, link_busy_share, queue_peak, restarts: 2, ..WorkerRecord::default() }
    }

    #[test]
    fn a_run_gets_what_was_counted_between_its_ends() {
        let before = account("a", 4_000, counted(10, 0.5, 3), 10);
        let done = account("a", 10_000, counted(25, 0.5, 7), 25).since(&before);
        let [worker] = &done.workers[..] else { panic!("{done:?}") };
        assert_eq!((worker.requests, worker.restarts, worker.queue_peak), (15, 0, 7));
        assert!((worker.busy_share - 0.5).abs() < 1e-9, "{worker:?}");
        assert!(worker.link_busy_share.is_some_and(|share| (share - 0.25).abs() < 1e-9), "{worker:?}");
        assert_eq!(worker.stalled_by_link_share, None, "what nobody counts is not 0");
        assert_eq!((done.transfers[0].transfers, done.transfers[0].bytes), (15, 150));
        assert!(done.older_peaks.is_empty(), "the peak grew in the run");
        let idle = account("a", 8_000, counted(10, 0.25, 3), 10).since(&before);
        assert_eq!((idle.workers[0].requests, idle.workers[0].busy_share), (0, 0.0));
        assert!(idle.transfers.is_empty() && idle.older_peaks == ["P0"], "{idle:?}");
    }

    #[test]
    fn nothing_is_subtracted_from_another_process() {
        let before = account("a", 4_000, counted(10, 0.5, 3), 10);
        let done = account("b", 1_000, counted(4, 0.1, 1), 4).since(&before);
        assert_eq!((done.workers[0].requests, done.workers[0].restarts), (4, 1));
        assert_eq!((done.transfers[0].transfers, done.older_peaks.len()), (4, 0));
        let new = account("b", 1_000, counted(4, 0.1, 1), 4).since(&Accounts::default());
        assert_eq!((new.workers[0].requests, new.workers[0].restarts), (4, 2));
    }
}
