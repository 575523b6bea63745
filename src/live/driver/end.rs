//! The end of a live run: sessions closed, workers' own counters read, facts put together. Everything here is bounded.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;

use crate::base::WorkerId;
use crate::live::Target;
use crate::live::client::Client;
use crate::live::driver::DriveOptions;
use crate::live::driver::harness::Sampler;
use crate::live::driver::turn::Turning;
use crate::record::{HarnessFacts, RunFacts, TransferRecord, WorkerRecord};
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
    let (workers, transfers) = accounts(&turning.wire, target, &mut harness).await;
    let facts = RunFacts {
        workers,
        transfers,
        sessions: facts.sessions,
        duration_ns: turning.ended.ns(),
        planned: facts.planned,
        counters_diverged_after: facts.counters_diverged_after,
        beliefs_corrected: facts.beliefs_corrected,
        harness: Some(harness),
    };
    RunEnd { status, facts }
}

/// What the workers count themselves. Only emulated ones tell; one that is gone takes its counters with it.
async fn accounts(
    client: &Client,
    target: &Target,
    harness: &mut HarnessFacts,
) -> (Vec<WorkerRecord>, Vec<TransferRecord>) {
    let looker = client.looker();
    let names: Vec<WorkerId> = target.addresses.workers().map(|(worker, _)| worker).collect();
    let ask = async |worker| {
        let stats = if target.emulated { timeout(CLOSE, looker.stats(worker)).await.ok().flatten() } else { None };
        (worker, stats)
    };
    let (mut workers, mut transfers) = (Vec::new(), Vec::new());
    for (worker, stats) in join_all(names.into_iter().map(ask)).await {
        match stats {
            Some(stats) => {
                workers.push(WorkerRecord { worker: worker.to_string(), ..stats.worker });
                transfers.extend(stats.transfers);
            }
            None => harness.without_account.push(worker.to_string()),
        }
    }
    (workers, transfers)
}
