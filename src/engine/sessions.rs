//! Streaming sessions of one decode worker: KV held outside the prefix cache between turns.
//!
//! Owns who holds what and who is idle; the tokens themselves are reserved in the pool by the worker.
//! Invariant: a session with a request in flight (`busy`) is never dropped by trim or time-out.

use std::collections::BTreeMap;

use crate::base::{Dur, RequestIx, SessionIx, Time};

/// One open session.
#[derive(Debug, Clone)]
pub(super) struct SessionSlot {
    /// Tokens of its context.
    pub held: u64,
    /// Tokens reserved for them while no request is in flight.
    pub reserved: u64,
    /// Request in flight.
    pub busy: Option<RequestIx>,
    /// Open, or end of the last request.
    pub last_used: Time,
    /// Close when the request in flight ends.
    pub close_on_finish: bool,
    /// Idle time after which it is dropped.
    pub idle_timeout: Option<Dur>,
}

#[derive(Debug, Default)]
pub(super) struct SessionStore {
    slots: BTreeMap<SessionIx, SessionSlot>,
    peak: u64,
    /// Those with an idle time-out.
    timed: usize,
}

impl SessionSlot {
    fn expires(&self) -> Option<Time> {
        self.idle_timeout.filter(|_| self.busy.is_none()).map(|timeout| self.last_used + timeout)
    }
}

impl SessionStore {
    /// False when it is open already.
    pub fn open(&mut self, session: SessionIx, now: Time, idle_timeout: Option<Dur>) -> bool {
        if self.slots.contains_key(&session) {
            return false;
        }
        let slot =
            SessionSlot { held: 0, reserved: 0, busy: None, last_used: now, close_on_finish: false, idle_timeout };
        self.timed += usize::from(idle_timeout.is_some());
        self.slots.insert(session, slot);
        self.peak = self.peak.max(self.slots.len() as u64);
        true
    }

    pub fn get(&mut self, session: SessionIx) -> Option<&mut SessionSlot> {
        self.slots.get_mut(&session)
    }

    /// Forgets a session; the tokens it had reserved.
    pub fn remove(&mut self, session: SessionIx) -> Option<u64> {
        let slot = self.slots.remove(&session)?;
        self.timed -= usize::from(slot.idle_timeout.is_some());
        Some(slot.reserved)
    }

    /// The idle session that was used longest ago and holds tokens, other than `but`.
    pub fn least_recent_idle(&self, but: Option<SessionIx>) -> Option<SessionIx> {
        self.slots
            .iter()
            .filter(|(session, slot)| slot.busy.is_none() && slot.reserved > 0 && Some(**session) != but)
            .min_by_key(|(session, slot)| (slot.last_used, **session))
            .map(|(session, _)| *session)
    }

    /// An idle session whose time-out has run.
    pub fn expired(&self, now: Time) -> Option<SessionIx> {
        if self.timed == 0 {
            return None;
        }
        let ran_out = |slot: &SessionSlot| slot.expires().is_some_and(|at| at <= now);
        self.slots.iter().find(|(_, slot)| ran_out(slot)).map(|(session, _)| *session)
    }

    /// When the next idle session times out.
    pub fn next_expiry(&self) -> Option<Time> {
        if self.timed == 0 { None } else { self.slots.values().filter_map(SessionSlot::expires).min() }
    }

    /// Open sessions.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// It is open.
    pub fn contains(&self, session: SessionIx) -> bool {
        self.slots.contains_key(&session)
    }

    /// Tokens that idle sessions have reserved.
    pub fn held_tokens(&self) -> u64 {
        self.slots.values().map(|slot| slot.reserved).sum()
    }

    /// Most sessions open at once so far.
    pub fn peak(&self) -> u64 {
        self.peak
    }
}
