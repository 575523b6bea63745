//! [`SyncReason`]: why a stream is in step, or not. A closed set.

use std::fmt;

use crate::kv::index::ApplyError;
use crate::kv::wire::{DecodeError, DecodeProblem};

/// Declares the reasons with their labels and their words.
macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident = $label:literal, $words:literal;)+) => {
        /// Why a stream is in step, or not.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum SyncReason {
            $($(#[$doc])* $variant,)+
        }

        impl SyncReason {
            /// Every reason.
            pub const ALL: &'static [SyncReason] = &[$(SyncReason::$variant,)+];

            /// Stable label.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(SyncReason::$variant => $label,)+
                }
            }

            /// What it means.
            pub const fn words(self) -> &'static str {
                match self {
                    $(SyncReason::$variant => $words,)+
                }
            }
        }
    };
}

reasons! {
    /// No connection was made yet.
    Starting = "starting", "no subscription yet";
    /// The subscription was made.
    Connected = "connected", "subscribed; the publisher's state is asked for";
    /// The subscription is gone.
    Disconnected = "disconnected", "no connection to the publisher";
    /// The subscription was closed here, for another.
    Reconnecting = "reconnecting", "no batch arrived: the subscription is made anew";
    /// A sequence number was left out.
    Gap = "gap", "a batch is missing";
    /// A sequence number came again, or from before.
    Restarted = "restarted", "sequence numbers went back: the publisher was restarted";
    /// A change of a block that no batch told of.
    UnknownParent = "unknown-parent", "a change refers to a block that no batch told of";
    /// A block that is resident got another content.
    Conflict = "conflict", "a resident block got other tokens";
    /// Blocks of another size than configured.
    BlockShape = "block-shape", "blocks are not of the configured size";
    /// A batch is not what the dialect says.
    DecodeFailed = "decode-failed", "a batch could not be read";
    /// A batch of another data-parallel rank.
    OtherRank = "other-rank", "the batches are of another data-parallel rank";
    /// A message is not of three frames with a number.
    BadFrames = "bad-frames", "a message does not follow the protocol";
    /// A message was over its limit.
    MessageLimit = "message-limit", "a message was over max_message_bytes";
    /// What waited for a snapshot was over its limit.
    BufferLimit = "buffer-limit", "batches that wait for a snapshot were over max_buffered_bytes";
    /// More blocks than the stream may have.
    IndexLimit = "index-limit", "the index limit of max_blocks_per_stream was reached";
    /// No end of a replay in time.
    ReplayTimeout = "replay-timeout", "the replay did not end in time";
    /// No replay.
    ReplayFailed = "replay-failed", "the replay could not be had";
    /// A replay of nothing.
    EmptyReplay = "empty-replay", "it answers, and has published nothing yet: one request brings it in step";
    /// A replay that is not one.
    BadReplay = "bad-replay", "the replay does not follow the protocol";
    /// A replay that does not reach the batches that arrived.
    StaleReplay = "stale-replay", "the replay does not reach up to the batches that arrived";
    /// The publisher keeps too few past batches.
    HistoryTruncated = "history-truncated", "partial: history truncated";
    /// Snapshots go on, batches do not arrive.
    SilentSubscription = "silent-subscription", "the publisher goes on, but no batch arrives: is `topic` the publisher's?";
    /// A snapshot was taken over.
    Snapshot = "snapshot", "a snapshot and the batches behind it were taken over";
    /// Past batches were taken over.
    History = "history", "past batches and those behind them were taken over";
    /// A batch stated all the publisher holds.
    FullBatch = "full-batch", "a batch stated all the publisher holds";
    /// The first batch of a publisher that begins with nothing.
    FirstBatch = "first-batch", "the publisher's first batch was taken in";
}

impl SyncReason {
    /// Something of the publisher's or of the configuration that will be there again after a recovery.
    pub(super) const fn lasts(self) -> bool {
        matches!(
            self,
            SyncReason::UnknownParent
                | SyncReason::Conflict
                | SyncReason::BlockShape
                | SyncReason::DecodeFailed
                | SyncReason::OtherRank
                | SyncReason::BadFrames
                | SyncReason::MessageLimit
                | SyncReason::BufferLimit
                | SyncReason::IndexLimit
                | SyncReason::SilentSubscription
        )
    }

    pub(super) fn of_apply(error: &ApplyError) -> SyncReason {
        match error {
            ApplyError::NotSynchronized => SyncReason::Gap,
            ApplyError::UnknownParent { .. } | ApplyError::UnknownReplica { .. } => SyncReason::UnknownParent,
            ApplyError::BlockSize { .. } | ApplyError::TokenCount { .. } | ApplyError::MixedTokens { .. } => {
                SyncReason::BlockShape
            }
            ApplyError::Conflict { .. } => SyncReason::Conflict,
            ApplyError::IndexLimit { .. } => SyncReason::IndexLimit,
        }
    }

    pub(super) fn of_decode(error: &DecodeError) -> SyncReason {
        match error.problem {
            DecodeProblem::TooLarge { .. } => SyncReason::MessageLimit,
            DecodeProblem::OtherRank { .. } => SyncReason::OtherRank,
            DecodeProblem::CutShort
            | DecodeProblem::Unexpected { .. }
            | DecodeProblem::OutOfRange { .. }
            | DecodeProblem::TextHash
            | DecodeProblem::TooMany { .. }
            | DecodeProblem::TooDeep { .. }
            | DecodeProblem::Missing
            | DecodeProblem::UnknownType { .. }
            | DecodeProblem::UnknownMedium { .. }
            | DecodeProblem::BrokenPairs
            | DecodeProblem::TooManyGroups { .. }
            | DecodeProblem::Trailing { .. } => SyncReason::DecodeFailed,
        }
    }
}

impl fmt::Display for SyncReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
