//! What the sessions add up to on one worker.

use std::collections::BTreeSet;

use crate::base::{SessionIx, Time};

/// Sets and sums of one worker. Idle sets are ordered by the end of the last turn: the least recently used first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct WorkerSessions {
    /// Slots taken.
    pub slots: u32,
    /// Slot holders without a turn in flight.
    pub idle_slots: BTreeSet<(Time, SessionIx)>,
    /// Sessions resident here.
    pub resident: BTreeSet<SessionIx>,
    /// Those without a turn in flight.
    pub idle_resident: BTreeSet<(Time, SessionIx)>,
    /// Tokens they hold.
    pub tokens: u64,
    /// Newest process identity heard of.
    pub incarnation: Option<u32>,
    /// Sessions lost when it went down, in case it comes back as another process.
    pub lost_when_down: Vec<SessionIx>,
}
