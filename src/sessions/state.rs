//! States of a session: cold → seeding → resident → evicted → seeding → …

use crate::base::Time;
use crate::kv::BlockPath;
use crate::record::ModeReason;

/// Where a session's KV is believed to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionState {
    /// Never placed.
    Cold,
    /// Being placed on this worker.
    Seeding {
        /// Index of the worker.
        worker: u16,
        /// Why it had to be placed again; `None` the first time.
        after: Option<Loss>,
    },
    /// Held by a worker.
    Resident(Residence),
    /// Was placed once, and lost.
    Evicted(Loss),
}

/// A session's KV on a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Residence {
    /// Index of the worker.
    pub worker: u16,
    /// Tokens held: prompt and answer of the last turn that ran in the session.
    pub tokens: u32,
    /// Full blocks held, as far as the trace names them.
    pub blocks: BlockPath,
    /// End of that turn.
    pub since: Time,
}

/// Why a session has no KV any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Loss {
    /// The worker trimmed it to make room.
    Trimmed,
    /// The worker dropped it while idle.
    Idle,
    /// The worker restarted.
    WorkerRestarted,
    /// The worker is down or left.
    WorkerGone,
    /// A turn failed.
    TurnFailed,
    /// The worker did not know it.
    NotFound,
    /// The policy chose another worker, or its worker refused it too often.
    Moved,
    /// The prompt did not continue what was held.
    Compacted,
    /// The append was too large to go direct.
    AppendTooLarge,
    /// The replayer dropped it while idle, for room or for its slot, or at its end.
    Released,
}

impl Loss {
    /// The reason of the reseed that follows.
    pub fn mode_reason(self) -> ModeReason {
        match self {
            Loss::Trimmed => ModeReason::EvictedTrim,
            Loss::Idle | Loss::Released => ModeReason::EvictedIdle,
            Loss::WorkerRestarted => ModeReason::WorkerRestarted,
            Loss::WorkerGone => ModeReason::WorkerGone,
            Loss::TurnFailed => ModeReason::PreviousTurnFailed,
            Loss::NotFound => ModeReason::SessionNotFound,
            Loss::Moved => ModeReason::OtherWorkerChosen,
            Loss::Compacted => ModeReason::ContextCompacted,
            Loss::AppendTooLarge => ModeReason::AppendTooLarge,
        }
    }
}

/// How a turn relates to what its session holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Append {
    /// Nothing is held.
    NothingHeld,
    /// The prompt begins with what is held; so many tokens come on top (at least 1).
    Tokens(u32),
    /// The prompt does not continue what is held.
    Broken,
}
