//! Due turns, wakes, and the caps on sessions and requests.
//!
//! `open`: due at the planned time, not before the previous turn ended. `think`: the think time after it ended.
//! `open-strict`: at the planned time whatever the previous turn does. Both caps are first come, first served.

use std::collections::BTreeMap;

use crate::admission::SlotRelease;
use crate::base::{Dur, RequestIx, SessionIx, Time};
use crate::protocol::{Action, ErrorClass};
use crate::record::LedgerKind;
use crate::replay::machine::Note;
use crate::replay::plan::{self, think_time};
use crate::replay::turn::{Queued, TimerKey};
use crate::replay::{Replayer, Schedule, WakeReason};
use crate::sessions::Loss;

/// Something to do at a time.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wake {
    /// A turn is due. The wait for a slot began at `since`, or begins when it is noticed.
    Due {
        request: RequestIx,
        scheduled: Time,
        released: Time,
        since: Option<Time>,
    },
    Stall(RequestIx),
    Total(RequestIx),
    PollLoads,
    LastWord(RequestIx),
    IndexCheck,
}

impl Wake {
    pub fn reason(self) -> WakeReason {
        match self {
            Wake::Due { .. } => WakeReason::TurnDue,
            Wake::Stall(_) => WakeReason::Stall,
            Wake::Total(_) => WakeReason::TotalTimeout,
            Wake::PollLoads => WakeReason::LoadPoll,
            Wake::LastWord(_) => WakeReason::LastWord,
            Wake::IndexCheck => WakeReason::IndexCheck,
        }
    }
}

/// Wakes by time, equal times in order of creation.
#[derive(Debug, Default)]
pub(super) struct Timers {
    armed: BTreeMap<TimerKey, Wake>,
    created: u64,
}

impl Timers {
    pub fn arm(&mut self, at: Time, wake: Wake) -> TimerKey {
        let key = (at, self.created);
        self.created += 1;
        self.armed.insert(key, wake);
        key
    }

    pub fn disarm(&mut self, key: Option<TimerKey>) {
        if let Some(key) = key {
            self.armed.remove(&key);
        }
    }

    pub fn first(&self) -> Option<(Time, Wake)> {
        self.armed.first_key_value().map(|((at, _), wake)| (*at, *wake))
    }

    pub fn only_polls(&self) -> bool {
        self.armed.values().all(|wake| wake.reason() == WakeReason::LoadPoll)
    }

    fn pop_until(&mut self, now: Time) -> Option<Wake> {
        let entry = self.armed.first_entry()?;
        (entry.key().0 <= now).then(|| entry.remove())
    }
}

impl Replayer<'_> {
    /// Arms the first turn of every session, and the load polls.
    pub(super) fn plan_first_turns(&mut self) {
        for session in &self.trace.sessions {
            if !session.turns.is_empty() {
                let request = RequestIx(session.turns.start);
                let at = self.planned[request.ix()];
                self.timers.arm(at, Wake::Due { request, scheduled: at, released: at, since: None });
            }
        }
        if self.config.policy.reads_loads() && self.config.replay.load_poll_ms > 0 {
            self.timers.arm(Time::ZERO, Wake::PollLoads);
        }
    }

    /// Does everything due until `now`, then starts what may start.
    pub(super) fn run_timers(&mut self, now: Time) {
        self.start_waiting(now);
        while !self.is_done() {
            let Some(wake) = self.timers.pop_until(now) else { break };
            match wake {
                Wake::Due { request, scheduled, released, since } => {
                    self.due(now, Queued { request, scheduled, released, since: since.unwrap_or(now) });
                }
                Wake::Stall(request) => {
                    let limit = self.config.replay.stall_timeout_s;
                    self.give_up(now, request, ErrorClass::Stalled, format!("no data for {limit} s"));
                }
                Wake::Total(request) => {
                    let limit = self.config.replay.request_timeout_s;
                    self.give_up(now, request, ErrorClass::TotalTimeout, format!("no end after {limit} s"));
                }
                Wake::LastWord(request) => self.write_given_up(now, request),
                Wake::PollLoads => {
                    self.actions.push_back(Action::PollLoads);
                    self.fleet.asked_loads();
                    self.prefill.asked_loads();
                    self.arm(now + Dur::from_millis(self.config.replay.load_poll_ms), Wake::PollLoads);
                }
                Wake::IndexCheck => self.check_index(now),
            }
            self.start_waiting(now);
        }
    }

    fn due(&mut self, now: Time, queued: Queued) {
        if self.settled[queued.request.ix()] {
            return;
        }
        let session = self.trace.turn(queued.request).session;
        let is_first = self.trace.sessions[session.ix()].turns.start == queued.request.0;
        let cap = self.config.replay.max_sessions;
        if is_first && cap > 0 && self.live_sessions >= cap {
            self.waiting_sessions.push_back(queued);
            return;
        }
        if is_first {
            self.live_sessions += 1;
        }
        self.enqueue(now, queued);
    }

    fn enqueue(&mut self, now: Time, queued: Queued) {
        self.waiting.push_back(queued);
        let next = RequestIx(queued.request.0 + 1);
        let session = self.trace.turn(queued.request).session;
        if self.strict() && self.trace.sessions[session.ix()].turns.end > next.0 {
            let at = self.planned[next.ix()];
            // Late only when the whole session had to wait for its place: that wait began when the turn was due.
            let since = (at < now).then_some(at);
            self.arm(at.max(now), Wake::Due { request: next, scheduled: at, released: at, since });
        }
    }

    fn start_waiting(&mut self, now: Time) {
        let cap = self.config.replay.concurrency;
        while let Some(queued) = self.waiting.front().copied() {
            let settled = self.settled[queued.request.ix()];
            if !settled && cap > 0 && self.active.len() >= cap as usize {
                break;
            }
            self.waiting.pop_front();
            if !settled {
                self.begin(now, queued);
            }
        }
        self.note_backpressure(now);
    }

    /// Writes down when turns begin to wait for a slot of the replayer's, and when none waits any more.
    fn note_backpressure(&mut self, now: Time) {
        let waits = !(self.waiting.is_empty() && self.waiting_sessions.is_empty());
        if waits == self.backpressure {
            return;
        }
        self.backpressure = waits;
        let kind = if waits { LedgerKind::BackpressureBegan } else { LedgerKind::BackpressureEnded };
        let detail = format!("{} requests in flight, {} sessions live", self.active.len(), self.live_sessions);
        self.note(now, kind, Note::default().because(detail));
    }

    /// A turn ended: the next one of its session may become due, or the session is over.
    pub(super) fn advance(&mut self, now: Time, request: RequestIx) {
        let session = self.trace.turn(request).session;
        let turns = &self.trace.sessions[session.ix()].turns;
        if self.stats[session.ix()].settled as usize == turns.len() {
            return self.session_over(now, session);
        }
        let next = RequestIx(request.0 + 1);
        if self.strict() || next.0 >= turns.end || self.settled[next.ix()] {
            return;
        }
        let (scheduled, released) = match self.config.replay.schedule {
            Schedule::Open => (self.planned[next.ix()], self.planned[next.ix()].max(now)),
            Schedule::Think => {
                let at = now + think_time(self.trace, &self.config.replay, next);
                (at, at)
            }
            Schedule::OpenStrict => return,
        };
        self.arm(released, Wake::Due { request: next, scheduled, released, since: None });
    }

    fn session_over(&mut self, now: Time, session: SessionIx) {
        self.table.end_session(session, now);
        if self.config.admission.close_at_end {
            if self.table.residence(session).is_some() {
                self.table.lose(session, Loss::Released);
            }
            self.close(now, session);
        }
        match self.config.admission.slot_release {
            SlotRelease::Never => {}
            SlotRelease::SessionEnd | SlotRelease::IdleLru => self.table.release_slot(session, now),
        }
        self.live_sessions = self.live_sessions.saturating_sub(1);
        while let Some(queued) = self.waiting_sessions.pop_front() {
            if !self.settled[queued.request.ix()] {
                self.live_sessions += 1;
                return self.enqueue(now, queued);
            }
        }
    }

    /// Arms the total limit of a turn that begins.
    pub(super) fn arm_total(&mut self, now: Time, request: RequestIx) {
        if let Some(limit) = plan::positive(self.config.replay.request_timeout_s) {
            let key = self.arm(now + limit, Wake::Total(request));
            self.turn_mut(request).total_timer = Some(key);
        }
    }
}
