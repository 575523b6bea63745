//! KV events before a run: whether each publisher answers, by subscription and replay, as rows of the table.

use std::time::Duration;

use super::checks::{Check, Verdict};
use crate::base::Role;
use crate::kv::directory::{Exclusion, Source};
use crate::kv::sync::{SyncReason, SyncState, trouble_at};
use crate::live::Addresses;
use crate::live::kv::service::{FeedError, FeedOptions, Looked, StreamView, look};
use crate::live::kv::{Covered, IndexFault, followed_faults, no_file_fault, source_faults, unseen};
use crate::scenario::IndexNeeds;

/// Name of the rows.
const CHECK: &str = "KV streams";
/// Name of the rows on what a run's policy will see of them.
const INDEX: &str = "KV index";
/// Beside one replay: for connections, and one more try.
const MARGIN: Duration = Duration::from_secs(3);

/// Follows the publishers of `options` for some seconds at most, and says what was found of each, and what a run on the workers
/// of `addresses` would lack, where its policy `needs` them. Blocks.
///
/// # Errors
/// They cannot be followed at all: no registry, one this build cannot read, no thread.
pub fn event_checks(
    options: FeedOptions,
    addresses: &Addresses,
    needs: Option<&IndexNeeds>,
) -> Result<Vec<Check>, FeedError> {
    let replay = Duration::from_millis(options.config.limits.replay_timeout_ms);
    let are_listed = matches!(options.config.source, Source::Streams(_));
    let looked = look(options, replay.min(Duration::from_secs(10)) + MARGIN)?;
    let of_index = needs.map(|needs| index_rows(&looked, are_listed, addresses, needs)).unwrap_or_default();
    Ok(rows(&looked, needs.map(|needs| needs.role)).into_iter().chain(of_index).collect())
}

/// The row of a run that needs streams and is told of none.
pub fn no_file_check(needs: &IndexNeeds) -> Check {
    check(INDEX, Verdict::Warn, no_file_fault(needs))
}

/// The same words as at the start of a run, and a failure where it would be refused.
fn index_rows(looked: &Looked, are_listed: bool, addresses: &Addresses, needs: &IndexNeeds) -> Vec<Check> {
    let Covered { faults, covers } = followed_faults(&looked.followed, are_listed, addresses, needs);
    let result = if needs.require && !covers { Verdict::Fail } else { Verdict::Warn };
    if faults.is_empty() {
        let role = needs.role.letter();
        return vec![Check::ok(INDEX, format!("every {role} has its stream; policy {} reads them", needs.policy))];
    }
    faults.into_iter().map(|fault| check(INDEX, result, fault)).collect()
}

fn check(check: &'static str, result: Verdict, fault: IndexFault) -> Check {
    Check { check, result, detail: fault.what, will_be_off: fault.effect, remedy: fault.remedy }
}

fn rows(looked: &Looked, reads: Option<Role>) -> Vec<Check> {
    let of_source = source_faults(looked.unready.as_deref(), &looked.excluded, reads).into_iter();
    let of_source = of_source.map(|fault| check(CHECK, Verdict::Warn, fault));
    let mut rows: Vec<Check> = of_source.chain(looked.streams.iter().map(row)).collect();
    let decoding = looked.excluded.iter().filter(|(_, why)| **why == Exclusion::Decodes);
    let decoding = decoding.map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
    let is_by_rule = looked.excluded.values().all(Exclusion::is_by_rule);
    if looked.streams.is_empty() && looked.unready.is_none() && is_by_rule {
        let (is_bare, off) = (looked.excluded.is_empty(), "all hits: policies that read the index go by load alone");
        let (none, remedy) = if is_bare {
            ("the registry has no instance", "start engines, or list streams")
        } else {
            ("the registry has no instance to follow", "register one that prefills, in the dialect of `discovery`")
        };
        rows.push(warn(none.into(), off, remedy));
    }
    if !decoding.is_empty() && reads != Some(Role::Decode) {
        rows.push(Check::ok(CHECK, format!("not followed, because they decode: {decoding}")));
    }
    rows
}

fn row(stream: &StreamView) -> Check {
    let (key, status) = (&stream.key, &stream.report.status);
    let name = format!("{}/{}", key.instance, key.dp_rank);
    if status.synchronized {
        let sequence = status.sequence.map(|sequence| sequence.to_string()).unwrap_or_default();
        let detail = format!(
            "{name} at {}: in step at batch {sequence} ({}), blocks: {} device, {} host{}",
            stream.report.endpoint,
            stream.report.reason,
            status.device_blocks,
            status.host_blocks,
            notice(stream)
        );
        let none = String::new();
        return Check { check: CHECK, result: Verdict::Ok, detail, will_be_off: none.clone(), remedy: none };
    }
    let error = status.error.as_deref().unwrap_or_default();
    let detail = format!("{name} at {}{}", trouble_at(&stream.report.endpoint, error), notice(stream));
    warn(detail, &unseen(&key.instance), remedy(stream))
}

/// That batches of another publisher arrive.
fn notice(stream: &StreamView) -> String {
    stream.report.notice.as_ref().map(|notice| format!("; {notice}")).unwrap_or_default()
}

/// By what was found: no subscription, or one without a replay.
fn remedy(stream: &StreamView) -> &'static str {
    match (stream.report.state, stream.report.reason) {
        (SyncState::Disconnected, _) => {
            "start the engine with KV events over zmq, and compare `endpoint` (or the port offset) with its own"
        }
        (_, SyncReason::HistoryTruncated) => "raise the engine's buffer_steps, or flush its cache once",
        (_, SyncReason::EmptyReplay) => "send it one request: its first batch brings it in step",
        (_, SyncReason::Connected) => "flush the engine's cache once, or set `recovery` and `replay_endpoint`",
        (_, SyncReason::ReplayFailed | SyncReason::ReplayTimeout) => {
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
