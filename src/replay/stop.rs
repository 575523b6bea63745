//! Ends before the end: a stopped session, a stopped, drained or interrupted run; and closing sessions when all is done.

use std::collections::BTreeSet;

use crate::base::{RequestIx, SessionIx, Time};
use crate::protocol::{Action, Generate};
use crate::record::{ExecutionMode, ModeReason, Outcome};
use crate::replay::Replayer;
use crate::replay::record::{Ending, Sent};
use crate::replay::turn::{Stage, Turn};

impl Replayer<'_> {
    /// Cancels what is in flight, skips the rest, closes the sessions.
    pub(super) fn stop(&mut self, now: Time) {
        self.break_off(now, |_| true);
    }

    /// Cancels these turns in flight and skips whatever was not sent; sessions are closed once nothing is left in flight.
    pub(super) fn break_off(&mut self, now: Time, cancels: impl Fn(&Turn) -> bool) {
        if self.is_done() {
            return self.close_when_done(now);
        }
        let is_first = !std::mem::replace(&mut self.stopped, true);
        let ends = |(request, turn): (&RequestIx, &Turn)| (turn.sent.is_none() || cancels(turn)).then_some(*request);
        let ending: Vec<RequestIx> = self.active.iter().filter_map(ends).collect();
        for request in ending {
            let turn = self.turn_mut(request);
            let outcome = if turn.sent.is_some() { Outcome::Cancelled } else { Outcome::Skipped };
            if turn.stage != Stage::Generating || !turn.gone {
                (turn.mode, turn.reason) = (ExecutionMode::NotSent, ModeReason::RunStopped);
                turn.departed = None;
            }
            self.abandon(now, request, Ending::given_up(outcome, None));
        }
        self.take_back_unsent(now);
        if is_first {
            for session in 0..self.trace.sessions.len() as u32 {
                self.skip(now, SessionIx(session), ModeReason::RunStopped);
            }
        }
        self.close_when_done(now);
    }

    /// Requests that have ended before the driver took them are not sent, and so not aborted.
    fn take_back_unsent(&mut self, now: Time) {
        if !self.sends_are_told {
            return;
        }
        let active = &self.active;
        let unsent = |action: &Action| match action {
            Action::Generate(generate) if !active.contains_key(&generate.request) => Some(generate.request),
            _ => None,
        };
        let taken: BTreeSet<RequestIx> = self.actions.iter().filter_map(unsent).collect();
        self.actions.retain(|action| match action {
            Action::Generate(Generate { request, .. }) | Action::Abort { request } => !taken.contains(request),
            Action::OpenSession { .. } | Action::CloseSession { .. } | Action::Admit { .. } | Action::PollLoads => true,
        });
        taken.into_iter().for_each(|request| self.write_given_up(now, request));
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
