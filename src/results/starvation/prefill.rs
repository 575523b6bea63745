//! What turns through P wait for: its computing, or KV that cannot leave it.
//!
//! A prefill worker keeps the KV it has computed until D has it. While that KV is on the link, or waits for room on D, it fills
//! the pool; a prompt that finds no room there waits in P's queue though P computes nothing. The worker counts these times
//! ([`WorkerRecord::stalled_by_link_share`], [`WorkerRecord::stalled_by_room_share`]); here the mean wait in the queue is split
//! by them, and what a turn itself spent on the link, or waiting for room, is added.

use super::cause::{BusiestLink, Cause, HandOff};
use super::diagnose::{Diagnosis, hot_decoder};
use crate::record::WorkerRecord;
use crate::results::Metric;
use crate::results::distribution::ms;
use crate::results::seen::Seen;

/// A mean wait below this is no bottleneck, whatever its part of the TTFT.
const WAIT_FROM_MS: f64 = 1000.0;
/// A link that is in use for less than this share of the time is seldom shared: a transfer takes longer than its data only
/// for its set-up.
const SELDOM_SHARED: f64 = 0.10;
/// The hand-off binds when it holds turns for this share of the time that all ok requests took.
const BINDS_FROM: f64 = 0.10;
/// Scenario keys that make room on D.
pub(super) const ROOM_KEYS: &str = "cluster.decode, engine.kv_pool_tokens";

/// Sums over ok turns through P, nanoseconds, beside the E2E of every ok request.
#[derive(Debug, Default)]
pub(super) struct ThroughPrefill {
    turns: u64,
    queue_ns: u64,
    ttft_ns: u64,
    link_ns: u64,
    room_ns: u64,
    all_e2e_ns: u64,
}

impl ThroughPrefill {
    pub(super) fn add(&mut self, request: &Seen) {
        if !request.outcome.is_ok() {
            return;
        }
        self.all_e2e_ns += request.ns(Metric::E2e).unwrap_or(0);
        let times = (request.ns(Metric::PrefillQueue), request.ns(Metric::Ttft));
        if let (Some(_), (Some(queue_ns), Some(ttft_ns))) = (request.prefill_worker, times) {
            self.turns += 1;
            self.queue_ns += queue_ns;
            self.ttft_ns += ttft_ns;
            self.link_ns += request.ns(Metric::KvTransfer).unwrap_or(0);
            self.room_ns += request.ns(Metric::DecodeQueue).unwrap_or(0);
        }
    }

    /// Mean over its turns of a sum, ms; there are some.
    fn mean_ms(&self, sum_ns: u64) -> f64 {
        ms(sum_ns / self.turns)
    }
}

/// Said when the queue is most of what turns through P wait for.
pub(super) fn prefill_queue(run: &Diagnosis) -> Option<Cause> {
    let sums = &run.signals.through_p;
    if sums.turns == 0 {
        return None;
    }
    let mean_queue_ms = sums.mean_ms(sums.queue_ns);
    let accounts = accounts(run);
    (mean_queue_ms > WAIT_FROM_MS && sums.queue_ns * 2 > sums.ttft_ns).then(|| Cause::PrefillQueue {
        turns: sums.turns,
        mean_queue_ms,
        mean_ttft_ms: sums.mean_ms(sums.ttft_ns),
        workers: run.workers.iter().filter(|row| row.role == "prefill").count() as u64,
        busy_share: mean(&accounts, |account| Some(account.busy_share)),
        queue_peak: accounts.iter().map(|account| account.queue_peak).max(),
    })
}

/// KV on the link holds turns up.
pub(super) fn link(run: &Diagnosis) -> Option<Cause> {
    let busiest = run.workers.iter().filter_map(|row| row.account.as_ref()).filter_map(|account| {
        Some(BusiestLink { worker: account.worker.clone(), busy_share: account.link_busy_share? })
    });
    // The first of equals.
    let busiest = busiest.reduce(|most, other| if other.busy_share > most.busy_share { other } else { most });
    let held = held(run, run.signals.through_p.link_ns, |account| account.stalled_by_link_share)?;
    let is_setup = busiest.as_ref().is_some_and(|link| link.busy_share < SELDOM_SHARED) && is_mostly_setup(run);
    let remedy = if is_setup { "cluster.link.setup_us" } else { "cluster.link.gbytes_per_s" };
    Some(Cause::LinkBinds(HandOff { busiest, remedy: remedy.into(), ..held }))
}

/// Whether the links moved data for less than half of the time that turns spent on them.
fn is_mostly_setup(run: &Diagnosis) -> bool {
    let shares = accounts(run).iter().filter_map(|account| account.link_busy_share).sum::<f64>();
    run.signals.through_p.link_ns as f64 > 2.0 * shares * run.facts.duration_ns as f64
}

/// KV that waits for room on D holds turns up.
pub(super) fn decode_room(run: &Diagnosis) -> Option<Cause> {
    let held = held(run, run.signals.through_p.room_ns, |account| account.stalled_by_room_share)?;
    // Where sessions are trimmed, capacity has a line that says where.
    let hot = hot_decoder(run).filter(|hot| hot.all_trims == 0);
    // More D are of no use to KV that goes to one of them.
    let spread = "engine.kv_pool_tokens, a policy that spreads over D";
    let remedy = if hot.is_some() { spread } else { ROOM_KEYS };
    Some(Cause::DecodeRoomBinds(HandOff { hot, remedy: remedy.into(), ..held }))
}

/// What is held up for `own_ns` in all by itself, and in the queue of prefill workers that `stalled` for it.
fn held(run: &Diagnosis, own_ns: u64, stalled: fn(&WorkerRecord) -> Option<f64>) -> Option<HandOff> {
    let sums = &run.signals.through_p;
    if sums.turns == 0 || sums.all_e2e_ns == 0 {
        return None;
    }
    let accounts = accounts(run);
    let stalled_share = mean(&accounts, stalled);
    // Prompts wait while P computes others, or stands still: the wait is split as the time is.
    let under_way = mean(&accounts, |account| {
        Some(account.busy_share + account.stalled_by_link_share? + account.stalled_by_room_share?)
    });
    let of_queue = stalled_share.zip(under_way).map_or(0.0, |(part, all)| if all > 0.0 { part / all } else { 0.0 });
    let mean_queue_ms = sums.mean_ms(sums.queue_ns) * of_queue;
    let mean_held_ms = sums.mean_ms(own_ns) + mean_queue_ms;
    let e2e_share = mean_held_ms * sums.turns as f64 / ms(sums.all_e2e_ns);
    (mean_held_ms > WAIT_FROM_MS && e2e_share >= BINDS_FROM).then(|| HandOff {
        turns: sums.turns,
        mean_ttft_ms: sums.mean_ms(sums.ttft_ns),
        mean_held_ms,
        mean_queue_ms,
        e2e_share,
        stalled_share,
        busiest: None,
        hot: None,
        remedy: String::new(),
    })
}

fn accounts<'a>(run: &Diagnosis<'a>) -> Vec<&'a WorkerRecord> {
    run.workers.iter().filter(|row| row.role == "prefill").filter_map(|row| row.account.as_ref()).collect()
}

/// Mean over the accounts, if there are any and each of them tells.
fn mean(accounts: &[&WorkerRecord], of: impl Fn(&WorkerRecord) -> Option<f64>) -> Option<f64> {
    let sum = accounts.iter().map(|account| of(account)).sum::<Option<f64>>()?;
    (!accounts.is_empty()).then(|| sum / accounts.len() as f64)
}
