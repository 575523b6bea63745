//! Ends before the end: a stopped session, a stopped, drained or interrupted run; and closing sessions when all is done.

use crate::base::{RequestIx, SessionIx, Time};
use crate::record::{ExecutionMode, ModeReason, Outcome};
use crate::replay::Replayer;
use crate::replay::record::{Ending, Sent};
use crate::replay::turn::Stage;

impl Replayer<'_> {
    /// Cancels what is in flight, skips the rest, closes the sessions.
    pub(super) fn stop(&mut self, now: Time) {
        self.break_off(now, |_| true);
    }

    /// Cancels the turns in flight at these stages and skips whatever has not begun; sessions are closed once nothing
    /// is left in flight.
    pub(super) fn break_off(&mut self, now: Time, cancels: impl Fn(Stage) -> bool) {
        if self.is_done() {
            return self.close_when_done(now);
        }
        let is_first = !std::mem::replace(&mut self.stopped, true);
        let cancelled: Vec<RequestIx> =
            self.active.iter().filter(|(_, turn)| cancels(turn.stage)).map(|(request, _)| *request).collect();
        for request in cancelled {
            let turn = self.turn_mut(request);
            if turn.stage != Stage::Generating {
                (turn.mode, turn.reason) = (ExecutionMode::NotSent, ModeReason::RunStopped);
            }
            self.abandon(now, request, Ending::given_up(Outcome::Cancelled, None));
        }
        if is_first {
            for session in 0..self.trace.sessions.len() as u32 {
                self.skip(now, SessionIx(session), ModeReason::RunStopped);
            }
        }
        self.close_when_done(now);
    }

    /// Skips what a session has not begun, after a failed turn.
    pub(super) fn skip_rest(&mut self, now: Time, session: SessionIx) {
        self.skip(now, session, ModeReason::SessionStopped);
    }

    fn skip(&mut self, now: Time, session: SessionIx, reason: ModeReason) {
        for request in self.trace.sessions[session.ix()].turns.clone().map(RequestIx) {
            if !self.settled[request.ix()] && !self.active.contains_key(&request) {
                self.record(now, request, Sent::No(reason), Ending::given_up(Outcome::Skipped, None));
            }
        }
    }

    /// When every request has its record, no session stays open on the cluster.
    pub(super) fn close_when_done(&mut self, now: Time) {
        if self.is_done() {
            for session in 0..self.trace.sessions.len() as u32 {
                self.close(now, SessionIx(session));
            }
        }
    }
}
