//! What a run writes down of the streams of its KV index: a ledger line for each change, facts at the end.

use crate::kv::sync::{Change, StreamReport, SyncState};
use crate::record::{LedgerEvent, LedgerKind, StreamFacts};

/// A line of the ledger for a change of the stream `name` of a worker; `None` for one that is no news.
pub fn stream_line(name: &str, change: &Change) -> Option<LedgerEvent> {
    told_change(change).map(|detail| LedgerEvent {
        at_ns: change.at.ns(),
        kind: LedgerKind::KvStream,
        session_id: None,
        turn_id: None,
        worker: Some(name.to_owned()),
        detail: Some(detail),
        candidates: Vec::new(),
    })
}

/// A change in words; `None` for one that is no news.
pub fn told_change(change: &Change) -> Option<String> {
    (!change.again).then(|| change.to_string())
}

/// What is to be said of the stream `name` at the end, on top of what `before` says of the earlier processes of its worker.
pub fn stream_facts(name: &str, report: &StreamReport, before: Option<StreamFacts>) -> StreamFacts {
    let before = before.unwrap_or_default();
    let stats = &report.stats;
    StreamFacts {
        name: name.to_owned(),
        endpoint: report.endpoint.clone(),
        synchronized: report.state == SyncState::Synced,
        sequence: report.status.sequence.or(before.sequence),
        events: before.events + stats.events,
        blocks: before.blocks + stats.blocks,
        gaps: before.gaps + stats.gaps,
        resyncs: before.resyncs + stats.resyncs,
        unsynced_ns: before.unsynced_ns + stats.unsynced.ns(),
        last_error: stats.last_error.clone().or(before.last_error),
    }
}
