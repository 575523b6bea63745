//! What a stream's machine is told, what it says, and its limits.

use std::fmt;

use crate::base::{Dur, Time};
use crate::kv::sync::SyncReason;
use crate::kv::wire::DEFAULT_MAX_MESSAGE_BYTES;
use crate::kv::{Dialect, Recovery};

/// How a stream is followed. Block size, rank and the limit of blocks are in its [`crate::kv::index::StreamSpec`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyncOptions {
    /// Address it is read from, for reports.
    pub endpoint: String,
    /// The publisher's topic; where it is empty or ends in neither letter nor digit, how it begins.
    pub topic: String,
    /// Whose encoding.
    pub dialect: Dialect,
    /// How a lost place is found again.
    pub recovery: Recovery,
    /// Longest batch, live or replayed, bytes.
    pub max_message_bytes: usize,
    /// Most memory of batches that wait for a snapshot: their bytes on the wire and their decoded form, bytes.
    pub max_buffered_bytes: usize,
    /// From a request to the end of its replay.
    pub replay_timeout: Dur,
    /// From one state to the next calibration; [`Dur::ZERO`]: never.
    pub resync_interval: Dur,
    /// Pause before the second request of a kind; it doubles with each one after.
    pub retry_first: Dur,
    /// Longest pause, and how long a stream has to be in step for its past to be forgotten.
    pub retry_most: Dur,
}

/// What a stream is told.
#[derive(Debug, Clone, Copy)]
pub enum SyncInput<'a> {
    /// The subscription is made: batches arrive from now on.
    Connected,
    /// It is gone, or an attempt to make it failed, and why.
    Disconnected(&'a str),
    /// The subscription was closed for another, as [`SyncOutput::Reconnect`] said.
    Closed,
    /// A live message arrived.
    Live(&'a [Vec<u8>]),
    /// A live message was longer than the receiver takes, and was not read.
    TooLarge {
        /// Announced length.
        bytes: u64,
    },
    /// A reply to a request arrived.
    Replay {
        /// The request's number.
        attempt: u32,
        /// The reply.
        frames: &'a [Vec<u8>],
    },
    /// A request got no further reply, and why.
    ReplayFailed {
        /// The request's number.
        attempt: u32,
        /// In words.
        why: &'a str,
    },
    /// The time [`super::StreamSync::wake_at`] said has come.
    Wake,
}

/// What a stream wants done, or says.
#[derive(Debug, Clone, PartialEq)]
pub enum SyncOutput {
    /// Ask for a replay, in place of one under way. Replies to it carry `attempt`.
    AskReplay {
        /// First sequence number wanted.
        from: u64,
        /// The request's number.
        attempt: u32,
    },
    /// No reply is wanted any more: the last one came, or it is too late.
    DropReplay,
    /// Close the subscription and make another.
    Reconnect,
    /// Something changed.
    Changed(Change),
}

/// Where a stream stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SyncState {
    /// Without a subscription. Nothing is served.
    Disconnected,
    /// Batches arrive, but what they change is not known. Nothing is served.
    Unsynced,
    /// In step: the view is served.
    Synced,
}

/// A change of state, or of the reason why a stream is not in step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// When.
    pub at: Time,
    /// Before.
    pub from: SyncState,
    /// After. The same as before when only the reason is another, or when one whole view took another's place.
    pub to: SyncState,
    /// Why.
    pub reason: SyncReason,
    /// Of the view that is served now, or was last.
    pub sequence: Option<u64>,
    /// What exactly was wrong; empty when there is nothing more to say.
    pub detail: String,
    /// The stream had this trouble before, was not in step for long since, and is out of step before and after: of no
    /// news to a reader of a log.
    pub again: bool,
}

impl SyncOptions {
    /// Of a dialect, with the limits of the public service.
    pub fn new(dialect: Dialect) -> SyncOptions {
        SyncOptions {
            endpoint: String::new(),
            topic: String::new(),
            dialect,
            recovery: dialect.recovery(),
            max_message_bytes: DEFAULT_MAX_MESSAGE_BYTES,
            max_buffered_bytes: 16 << 20,
            replay_timeout: Dur::from_millis(2_000),
            resync_interval: Dur::from_millis(30_000),
            retry_first: Dur::from_millis(100),
            retry_most: Dur::from_millis(5_000),
        }
    }
}

/// A stream's address and why it is not in step; failures of its connection name the address themselves.
pub fn trouble_at(endpoint: &str, why: &str) -> String {
    if why.starts_with(&format!("{endpoint}: ")) { why.to_owned() } else { format!("{endpoint}: {why}") }
}

impl SyncState {
    /// Stable label.
    pub const fn as_str(self) -> &'static str {
        match self {
            SyncState::Disconnected => "disconnected",
            SyncState::Unsynced => "unsynced",
            SyncState::Synced => "synced",
        }
    }
}

impl fmt::Display for SyncState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Change { from, to, reason, sequence, detail, .. } = self;
        if from == to {
            write!(f, "{to}")?
        } else {
            write!(f, "{from} -> {to}")?
        }
        if reason.as_str() != to.as_str() {
            write!(f, " ({reason})")?;
        }
        if let Some(sequence) = sequence {
            write!(f, " at sequence {sequence}")?;
        }
        write!(f, ": {}", if detail.is_empty() { reason.words() } else { detail })
    }
}
