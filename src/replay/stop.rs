//! Ends before the end: a stopped session, a stopped or interrupted run; and closing sessions when all is done.

use crate::base::{RequestIx, SessionIx, Time};
use crate::record::{ExecutionMode, ModeReason, Outcome};
use crate::replay::Replayer;
use crate::replay::record::{Ending, Sent};
use crate::replay::turn::Stage;

impl Replayer<'_> {
    /// Cancels what is in flight, skips the rest, closes the sessions.
    pub(super) fn stop(&mut self, now: Time) {
        if self.stopped || self.is_done() {
            return self.close_when_done(now);
        }
        self.stopped = true;
        let in_flight: Vec<RequestIx> = self.active.keys().copied().collect();
        for request in in_flight {
            let turn = self.turn_mut(request);
            if turn.stage != Stage::Generating {
                (turn.mode, turn.reason) = (ExecutionMode::NotSent, ModeReason::RunStopped);
            }
            self.abandon(now, request, Ending::given_up(Outcome::Cancelled, None));
        }
        for session in 0..self.trace.sessions.len() as u32 {
            self.skip(now, SessionIx(session), ModeReason::RunStopped);
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
