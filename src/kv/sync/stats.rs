//! [`SyncStats`]: what a stream has counted; [`StreamReport`]: a stream at one moment, for records and screens.

use crate::base::{Dur, Time};
use crate::kv::EventBatch;
use crate::kv::index::StreamStatus;
use crate::kv::sync::snapshot::Work;
use crate::kv::sync::{SyncReason, SyncState};

/// Counts since the stream was added.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SyncStats {
    /// Live batches of the stream that could be read.
    pub batches: u64,
    /// Events applied, of live and of replayed batches.
    pub events: u64,
    /// Blocks that applied events named.
    pub blocks: u64,
    /// Events of live batches that the index has no use for.
    pub ignored: u64,
    /// Blocks removed that were not known, or not in that tier.
    pub unknown_removals: u64,
    /// Blocks kept outside: under a context that is not covered, or behind one that is gone.
    pub outside: u64,
    /// Live batches that a replay already held.
    pub covered: u64,
    /// Live batches that could not be read or applied, each once.
    pub refused: u64,
    /// Live messages of other topics, or without a connection.
    pub foreign: u64,
    /// Times sequence numbers were missing.
    pub gaps: u64,
    /// Times another process was proved to publish: numbers went back, over a new connection too, or its history is another.
    pub restarts: u64,
    /// Times the stream came in step again.
    pub resyncs: u64,
    /// Times a view in step was calibrated.
    pub refreshes: u64,
    /// Replays asked for.
    pub replays: u64,
    /// Of those, without success.
    pub failed_replays: u64,
    /// Replies to a request that was given up.
    pub late_replies: u64,
    /// Memory of batches that wait for a replay, now, bytes.
    pub buffered_bytes: usize,
    /// The most it has been, bytes.
    pub most_buffered_bytes: usize,
    /// Time not in step since the stream was added, until now.
    pub unsynced: Dur,
    /// When the last live message arrived.
    pub last_live: Option<Time>,
    /// Time stamp of the last live batch, the publisher's Unix seconds: how far the stream lags behind.
    pub last_timestamp: Option<f64>,
    /// What went wrong last.
    pub last_error: Option<String>,
}

/// A stream at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamReport {
    /// Instance and rank, view, blocks; its error says why the stream is not in step.
    pub status: StreamStatus,
    /// Address it is read from.
    pub endpoint: String,
    /// Where it stands.
    pub state: SyncState,
    /// Why.
    pub reason: SyncReason,
    /// That batches of another publisher arrive, whether the stream is in step or not; unless its error says so.
    pub notice: Option<String>,
    /// Counts.
    pub stats: SyncStats,
}

impl SyncStats {
    pub(super) fn arrived(&mut self, now: Time, batch: &EventBatch) {
        self.batches += 1;
        self.ignored += u64::from(batch.ignored);
        (self.last_live, self.last_timestamp) = (Some(now), Some(batch.timestamp));
    }

    pub(super) fn applied(&mut self, work: Work) {
        self.events += work.events;
        self.blocks += work.applied.blocks;
        self.unknown_removals += work.applied.unknown_removals;
        self.outside += work.applied.outside;
    }
}
