//! One turn under way: from the moment a concurrency slot is free to its end.

use crate::admission::SeedRejection;
use crate::base::{Dur, RequestIx, SessionIx, Time, WorkerId};
use crate::policies::{IndexPromise, Selection};
use crate::protocol::{AdmitKind, CallId, Route};
use crate::record::{ExecutionMode, ModeReason};
use crate::replay::fleet::Booking;
use crate::sessions::Loss;

/// Place of a timer in the order of wakes.
pub(super) type TimerKey = (Time, u64);

/// A turn that is due and waits for a slot of the replayer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Queued {
    pub request: RequestIx,
    pub scheduled: Time,
    pub released: Time,
    /// Begin of the wait for a slot.
    pub since: Time,
}

/// What the turn waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Choosing,
    Admitting(AdmitKind),
    Opening,
    Generating,
    /// Nothing: its stream is being closed.
    GivenUp,
}

#[derive(Debug)]
pub(super) struct Turn {
    pub session: SessionIx,
    pub scheduled: Time,
    pub released: Time,
    pub cap_wait: Dur,
    /// When it left the queue.
    pub begun: Time,
    /// First send; `None` until one is told of, where sends are told.
    pub sent: Option<Time>,
    /// The generate request, if there is one, has gone out.
    pub gone: bool,
    /// What the send of the generate request came late after its calls.
    pub late: Dur,
    pub stage: Stage,
    pub call: Option<CallId>,
    pub selection: Option<Selection>,
    pub booking: Option<Booking>,
    /// The same on the prefill worker, where the policy chose one.
    pub prefill_booking: Option<Booking>,
    pub mode: ExecutionMode,
    pub reason: ModeReason,
    /// Why the session is placed again; `None` when it is the first time or not at all.
    pub after: Option<Loss>,
    pub placements: u32,
    /// Prompt tokens on top of what the session held.
    pub append_tokens: u32,
    /// Departure of the generate request, and where to.
    pub departed: Option<(Time, Route)>,
    /// Worker the request was meant for, when anything but chance could take it there.
    pub intended: Option<WorkerId>,
    /// Number of this send to the router, from 1.
    pub router_send: Option<u64>,
    pub stall_timer: Option<TimerKey>,
    pub total_timer: Option<TimerKey>,
}

impl Turn {
    pub fn new(session: SessionIx, queued: Queued, now: Time, input_tokens: u32, sends_are_told: bool) -> Turn {
        Turn {
            session,
            scheduled: queued.scheduled,
            released: queued.released,
            cap_wait: now.since(queued.since),
            begun: now,
            sent: (!sends_are_told).then_some(now),
            gone: !sends_are_told,
            late: Dur::ZERO,
            stage: Stage::Choosing,
            call: None,
            selection: None,
            booking: None,
            prefill_booking: None,
            mode: ExecutionMode::NotSent,
            reason: ModeReason::RunStopped,
            after: None,
            placements: 0,
            append_tokens: input_tokens,
            departed: None,
            intended: None,
            router_send: None,
            stall_timer: None,
            total_timer: None,
        }
    }

    /// What the index promised of the cache that the policy weighed; nothing once the session's own D takes the turn: what a
    /// session holds is in no prefix cache.
    pub fn promise(&self) -> Option<IndexPromise> {
        self.selection.filter(|_| self.mode != ExecutionMode::KvcacheDirectToDSession)?.index
    }

    /// Its mode as a turn that puts its session on a D, for the first time or again.
    pub fn seed_mode(&self) -> ExecutionMode {
        if self.after.is_some() { ExecutionMode::KvcacheReseed } else { ExecutionMode::KvcacheSeed }
    }

    /// It runs inside the session on a D, or is meant to.
    pub fn in_session(&self) -> bool {
        match self.mode {
            ExecutionMode::KvcacheSeed | ExecutionMode::KvcacheDirectToDSession | ExecutionMode::KvcacheReseed => true,
            ExecutionMode::DpColocated
            | ExecutionMode::PdRouter
            | ExecutionMode::PdRouterTurn1
            | ExecutionMode::FallbackSessionCap
            | ExecutionMode::FallbackNoCapacity
            | ExecutionMode::FallbackAdmissionRejected
            | ExecutionMode::FallbackWorkerUnhealthy
            | ExecutionMode::FallbackOpenFailed
            | ExecutionMode::NotSent => false,
        }
    }
}

/// Fallback after a refused seed.
pub(super) fn seed_fallback(rejection: SeedRejection) -> (ExecutionMode, ModeReason) {
    match rejection {
        SeedRejection::SessionCap => (ExecutionMode::FallbackSessionCap, ModeReason::SessionCap),
        SeedRejection::NoCapacity => (ExecutionMode::FallbackNoCapacity, ModeReason::NoCapacity),
    }
}
