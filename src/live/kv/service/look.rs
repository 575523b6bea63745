//! [`look`]: whether the publishers of a configuration answer, found out by following them for some seconds.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use super::board::StreamView;
use super::feed::{Feed, FeedError, FeedOptions};
use crate::kv::directory::{Endpoint, Exclusion, StreamKey};
use crate::kv::sync::SyncState;

/// Between two looks at the board.
const LOOK: Duration = Duration::from_millis(20);

/// What was there in the end.
#[derive(Debug, Clone, PartialEq)]
pub struct Looked {
    /// Why the registry could not be read.
    pub unready: Option<String>,
    /// Streams that were followed, with their instances' HTTP servers where a registry says them.
    pub followed: BTreeMap<StreamKey, Option<Endpoint>>,
    /// Streams, by name and rank.
    pub streams: Vec<StreamView>,
    /// Instances that are not followed, and why.
    pub excluded: BTreeMap<String, Exclusion>,
}

/// Follows the streams until all of them are in step, for `limit` at most, then lets go of them. Blocks.
///
/// # Errors
/// As of [`Feed::start`]. A publisher that is away is no error.
#[expect(clippy::disallowed_methods, reason = "the streams' threads work while the caller waits")]
pub fn look(options: FeedOptions, limit: Duration) -> Result<Looked, FeedError> {
    let feed = Feed::start(options)?;
    let board = feed.board();
    let mut left = limit;
    loop {
        let (unready, streams) = (board.unready(), board.streams());
        let looked = Looked { unready, followed: board.followed(), streams, excluded: board.excluded() };
        let is_done =
            looked.unready.is_none() && looked.streams.iter().all(|stream| stream.report.state == SyncState::Synced);
        if is_done || left.is_zero() {
            return Ok(looked);
        }
        thread::sleep(LOOK);
        left = left.saturating_sub(LOOK);
    }
}
