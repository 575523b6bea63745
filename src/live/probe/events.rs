//! KV events before a run: whether each publisher answers, by subscription and replay, as rows of the table.

use std::time::Duration;

use super::checks::{Check, Verdict};
use crate::kv::sync::{SyncReason, SyncState, trouble_at};
use crate::live::kv::service::{FeedError, FeedOptions, Looked, StreamView, look};

/// Name of the rows.
const CHECK: &str = "KV streams";
/// Beside one replay: for connections, and one more try.
const MARGIN: Duration = Duration::from_secs(3);

/// Follows the publishers of `options` for some seconds at most, and says what was found of each. Blocks.
///
/// # Errors
/// They cannot be followed at all: no registry, one this build cannot read, no thread.
pub fn event_checks(options: FeedOptions) -> Result<Vec<Check>, FeedError> {
    let replay = Duration::from_millis(options.config.limits.replay_timeout_ms);
    look(options, replay.min(Duration::from_secs(10)) + MARGIN).map(|looked| rows(&looked))
}

fn rows(looked: &Looked) -> Vec<Check> {
    let unready = looked.unready.iter().map(|why| {
        warn(
            why.clone(),
            "all hits: policies that read the index go by load alone",
            "correct the registry, or start it",
        )
    });
    let excluded = looked.excluded.iter().map(|(instance, why)| {
        warn(format!("{instance} is not followed: {why}"), &off(instance), "correct its registration or the rules")
    });
    let mut rows: Vec<Check> = unready.chain(excluded).chain(looked.streams.iter().map(row)).collect();
    if rows.is_empty() {
        let none = "the registry has no instance to follow";
        rows.push(warn(
            none.into(),
            "all hits: policies that read the index go by load alone",
            "start engines, or list streams",
        ));
    }
    rows
}

fn row(stream: &StreamView) -> Check {
    let (key, status) = (&stream.key, &stream.report.status);
    let name = format!("{}/{}", key.instance, key.dp_rank);
    if status.synchronized {
        let sequence = status.sequence.map(|sequence| sequence.to_string()).unwrap_or_default();
        let detail = format!(
            "{name} at {}: in step at batch {sequence} ({}), {} device and {} host blocks",
            stream.report.endpoint, stream.report.reason, status.device_blocks, status.host_blocks
        );
        let none = String::new();
        return Check { check: CHECK, result: Verdict::Ok, detail, will_be_off: none.clone(), remedy: none };
    }
    let error = status.error.as_deref().unwrap_or_default();
    warn(format!("{name} at {}", trouble_at(&stream.report.endpoint, error)), &off(&name), remedy(stream))
}

fn off(name: &str) -> String {
    format!("hits of {name} count as 0; requests may go there by load alone")
}

/// By what was found: no subscription, or one without a replay.
fn remedy(stream: &StreamView) -> &'static str {
    match (stream.report.state, stream.report.reason) {
        (SyncState::Disconnected, _) => {
            "start the engine with KV events over zmq, and compare `endpoint` (or the port offset) with its own"
        }
        (_, SyncReason::HistoryTruncated) => "raise the engine's buffer_steps, or flush its cache once",
        (_, SyncReason::ReplayFailed | SyncReason::ReplayTimeout | SyncReason::EmptyReplay) => {
            "the subscription is there, the replay is not: compare `replay_endpoint` (or its port offset) with the engine's own"
        }
        (_, SyncReason::OtherRank) => "compare `dp_rank` with the engine's: each rank has its own port",
        (_, SyncReason::BlockShape) => "give the engine's own `block_size`",
        _ => "compare `dialect`, `topic` and the limits with the engine's",
    }
}

fn warn(detail: String, will_be_off: &str, remedy: &str) -> Check {
    Check {
        check: CHECK,
        result: Verdict::Warn,
        detail,
        will_be_off: will_be_off.to_owned(),
        remedy: remedy.to_owned(),
    }
}
