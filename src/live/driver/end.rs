//! The end of a live run: sessions closed, workers' own counters read, facts put together. Everything here is bounded.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;

use crate::live::accounts::Done;
use crate::live::client::Client;
use crate::live::driver::DriveOptions;
use crate::live::driver::harness::Sampler;
use crate::live::driver::turn::Turning;
use crate::live::{Accounts, Target};
use crate::protocol::WorkerState;
use crate::record::{HarnessFacts, RunFacts};
use crate::replay::{RunEnd, RunStatus};

/// Longest wait for the answers of calls and closes that were under way at the end.
const CLOSE: Duration = Duration::from_secs(2);

/// Closes what is open and puts the facts together.
pub(super) async fn settle(
    mut turning: Turning<'_, Client>,
    target: &Target,
    options: &DriveOptions,
    sampler: Sampler,
) -> RunEnd {
    let now = turning.clock.now();
    let facts = turning.replayer.facts(now);
    let status = match (turning.broken_off && turning.replayer.is_stopped(), turning.replayer.is_stopped()) {
        (true, _) => RunStatus::Interrupted,
        (false, true) => RunStatus::Stopped,
        (false, false) => RunStatus::Completed,
    };
    // Measured before the closes, which belong to no request.
    let mut harness = sampler.facts(options.descriptors);
    turning.linger(CLOSE).await;
    turning.wire.close(CLOSE).await;
    let counters = turning.wire.counters();
    harness.connections = counters.connections;
    harness.http_requests = counters.requests;
    harness.bytes_sent = counters.bytes_sent;
    harness.retries = counters.retries;
    harness.throttled = counters.throttled;
    let seen = turning.wire.seen();
    (harness.prompts, harness.caches, harness.unlisted_workers) = (seen.prompts, seen.caches, seen.unlisted_workers);
    harness.answers = seen.answers;
    harness.never_answered = never_answered(&turning).await;
    harness.warm_caches = target.warm.iter().map(|(worker, held)| (worker.to_string(), *held)).collect();
    let Done { workers, transfers, .. } = accounts(&turning.wire, target, &mut harness).await;
    let facts = RunFacts {
        workers,
        transfers,
        sessions: facts.sessions,
        duration_ns: turning.ended.ns(),
        planned: facts.planned,
        counters_diverged_after: facts.counters_diverged_after,
        beliefs_corrected: facts.beliefs_corrected,
        streams: Vec::new(),
        harness: Some(harness),
    };
    RunEnd { status, facts }
}

/// Those that were not there before the run, did not come up in it, and are not there now.
async fn never_answered(turning: &Turning<'_, Client>) -> Vec<String> {
    let looker = turning.wire.looker();
    let looks = turning.absent.iter().map(async |worker| (worker, timeout(CLOSE, looker.look(*worker)).await));
    let looks = join_all(looks).await.into_iter();
    looks
        .filter(|(_, seen)| !matches!(seen, Ok(WorkerState::Up { .. })))
        .map(|(worker, _)| worker.to_string())
        .collect()
}

/// What the workers count themselves. Only emulated ones tell; one that is gone takes its counters with it.
async fn accounts(client: &Client, target: &Target, harness: &mut HarnessFacts) -> Done {
    let after = match target.emulated {
        true => Accounts::read(&target.addresses, client.looker().http(), CLOSE).await,
        false => Accounts::default(),
    };
    let silent = target.addresses.workers().filter(|(worker, _)| !after.has(*worker));
    harness.without_account = silent.map(|(worker, _)| worker.to_string()).collect();
    let mut done = after.since(&target.baseline);
    harness.older_peaks = std::mem::take(&mut done.older_peaks);
    done
}
