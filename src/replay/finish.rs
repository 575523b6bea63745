//! The end of a turn: outcome, what it means for the session, what comes next.
//!
//! After a failed session turn its KV is taken as lost on that D: the session is closed there and its slot is free.

use crate::base::{RequestIx, Time, WorkerId};
use crate::policies::PolicyName;
use crate::protocol::{Action, Answer, ErrorClass, Finish};
use crate::record::{ExecutionMode, LedgerKind, ModeReason, Outcome};
use crate::replay::machine::Note;
use crate::replay::record::{Ending, Sent};
use crate::replay::turn::{Stage, Turn};
use crate::replay::{OnTurnFailure, Replayer};
use crate::sessions::{Loss, Residence, SessionState};

impl Replayer<'_> {
    pub(super) fn take_finished(&mut self, now: Time, answer: Answer) {
        let request = answer.request;
        let served = answer.decode_worker;
        if let (Some(worker), Some(incarnation)) = (served, answer.incarnation) {
            self.hear(now, worker, incarnation);
        }
        if let Some(index) = served.and_then(|worker| self.fleet.index(worker))
            && answer.output_tokens > 0
        {
            let turn = self.trace.turn(request);
            self.policy.served(&self.trace.tree, turn.session, index, turn.prompt);
        }
        let turn = self.turn(request);
        self.note_mismatch(now, &answer, turn.intended, turn.router_send);
        let planned = self.trace.turn(request);
        let ending = Ending::answered(answer, planned.input_length, planned.output_length);
        self.settle(now, request, ending);
    }

    /// Another worker served it than was intended.
    pub(super) fn note_mismatch(
        &mut self,
        now: Time,
        answer: &Answer,
        intended: Option<WorkerId>,
        router_send: Option<u64>,
    ) {
        let (Some(intended), Some(actual)) = (intended, answer.decode_worker) else { return };
        if intended == actual {
            return;
        }
        let session = self.trace.turn(answer.request).session;
        let note = Note::session(session, actual).of(answer.request).because(format!("{intended} was intended"));
        self.note(now, LedgerKind::RouteMismatch, note);
        if self.config.router_round_robin && self.config.policy.name == PolicyName::Default {
            self.diverged_at = self.diverged_at.into_iter().chain(router_send).min();
        }
    }

    /// A limit of the client ran out.
    pub(super) fn give_up(&mut self, now: Time, request: RequestIx, class: ErrorClass, message: String) {
        if let Some(turn) = self.active.get_mut(&request) {
            match turn.stage {
                Stage::Choosing | Stage::Generating | Stage::GivenUp => {}
                Stage::Admitting(_) => {
                    (turn.mode, turn.reason) = (ExecutionMode::FallbackAdmissionRejected, ModeReason::AdmissionFailed);
                }
                Stage::Opening => {
                    // It was on its way into a session, and no other path was taken.
                    turn.mode = turn.seed_mode();
                    turn.reason = ModeReason::OpenTimedOut;
                }
            }
            self.abandon(now, request, Ending::given_up(Outcome::Timeout, Some((class, message))));
        }
    }

    /// Closes the stream of a turn and ends it.
    pub(super) fn abandon(&mut self, now: Time, request: RequestIx, ending: Ending) {
        if self.turn(request).stage == Stage::Generating {
            self.actions.push_back(Action::Abort { request });
            self.turn_mut(request).stage = Stage::GivenUp;
        }
        self.settle(now, request, ending);
    }

    /// Ends a turn under way: books, session, record, and what follows.
    pub(super) fn settle(&mut self, now: Time, request: RequestIx, ending: Ending) {
        let Some(mut turn) = self.active.remove(&request) else { return };
        self.timers.disarm(turn.stall_timer.take());
        self.timers.disarm(turn.total_timer.take());
        self.unbook(&mut turn);
        self.end_in_session(now, request, &turn, &ending);
        self.table.end_turn(turn.session, now);
        self.free_lost_slot(now, &turn);
        let (outcome, session) = (ending.outcome, turn.session);
        if outcome == Outcome::Skipped {
            // Though it had begun: it waited for its send when the run was stopped.
            self.record(now, request, Sent::No(turn.reason), ending);
        } else if turn.stage == Stage::GivenUp {
            self.await_last_word(now, request, turn, ending);
        } else {
            self.record(now, request, Sent::Yes(&turn), ending);
        }
        if outcome != Outcome::Ok && !self.stopped {
            match self.config.replay.on_turn_failure {
                OnTurnFailure::Continue => {}
                OnTurnFailure::StopSession => self.skip_rest(now, session),
                OnTurnFailure::StopRun => return self.stop(now),
            }
        }
        if !self.stopped {
            self.advance(now, request);
        }
        self.close_when_done(now);
    }

    fn end_in_session(&mut self, now: Time, request: RequestIx, turn: &Turn, ending: &Ending) {
        if turn.stage == Stage::Opening {
            return self.unplace(now, turn.session);
        }
        if !turn.in_session() {
            return;
        }
        if ending.outcome == Outcome::Ok {
            self.held(now, request, turn, ending);
        } else {
            self.failed(now, turn, ending);
        }
    }

    fn held(&mut self, now: Time, request: RequestIx, turn: &Turn, ending: &Ending) {
        let worker = ending.decode_worker.and_then(|actual| self.fleet.index(actual));
        let Some(worker) = worker.or(turn.selection.map(|chosen| chosen.worker.index)) else { return };
        let planned = self.trace.turn(request);
        let residence = Residence {
            worker,
            tokens: planned.input_length + planned.output_length,
            blocks: planned.context,
            since: now,
        };
        self.table.hold(turn.session, residence);
        if !self.fleet.is_up(worker) {
            self.table.gone_with(turn.session, worker);
        }
        let stats = &mut self.stats[turn.session.ix()];
        stats.refusals_in_row = 0;
        if let Some(before) = stats.home.replace(worker).filter(|before| *before != worker) {
            stats.migrations += 1;
            let note = Note::session(turn.session, self.fleet.id(worker)).of(request);
            let detail = format!("from {}", self.fleet.id(before));
            self.note(now, LedgerKind::SessionMigrated, note.because(detail));
        }
    }

    fn failed(&mut self, now: Time, turn: &Turn, ending: &Ending) {
        let session = turn.session;
        let not_found = ending.error_class == Some(ErrorClass::SessionNotFound);
        let loss = if not_found { Loss::NotFound } else { Loss::TurnFailed };
        let actual = ending.decode_worker.and_then(|worker| self.fleet.index(worker));
        match self.table.state(session) {
            // Already lost for a better-known reason, such as a restart.
            SessionState::Evicted(_) => {}
            SessionState::Resident(held) if not_found && actual == Some(held.worker) => {
                self.corrected(now, session, self.fleet.id(held.worker), loss);
            }
            SessionState::Cold | SessionState::Seeding { .. } | SessionState::Resident(_) => {
                self.table.lose(session, loss);
            }
        }
        if not_found && actual.is_some() && self.table.open_on(session) == actual {
            self.table.closed(session);
        }
        self.close(now, session);
        self.table.release_slot(session, now);
    }

    /// A worker that went down or restarted meanwhile has no slots taken; the busy session kept its own until now.
    fn free_lost_slot(&mut self, now: Time, turn: &Turn) {
        let lost = match self.table.state(turn.session) {
            SessionState::Evicted(Loss::WorkerRestarted | Loss::WorkerGone) => true,
            SessionState::Evicted(_)
            | SessionState::Cold
            | SessionState::Seeding { .. }
            | SessionState::Resident(_) => false,
        };
        if lost && self.table.busy(turn.session) == 0 {
            self.table.release_slot(turn.session, now);
        }
    }
}

impl Ending {
    /// The end as the engine tells it: its words first, then HTTP, then the transport. What cannot be true is not taken
    /// for a success: more tokens than were asked for; nor can more of the prompt be cached than there is.
    pub(super) fn answered(answer: Answer, input_tokens: u32, expected_tokens: u32) -> Ending {
        let tokens = answer.output_tokens;
        let (outcome, finish_reason, error) = match answer.finish {
            Finish::Length | Finish::Stop if tokens == 0 => {
                let error = (ErrorClass::NoOutput, "the answer ended without a token".to_owned());
                (Outcome::Error, None, Some(error))
            }
            Finish::Length | Finish::Stop if tokens > expected_tokens => {
                let message = format!("{tokens} tokens for {expected_tokens} asked for");
                (Outcome::Error, None, Some((ErrorClass::ExcessOutput, message)))
            }
            Finish::Length if tokens >= expected_tokens => (Outcome::Ok, Some("length"), None),
            Finish::Stop if tokens >= expected_tokens => (Outcome::Ok, Some("stop"), None),
            Finish::Length | Finish::Stop => {
                let reason = if answer.finish == Finish::Length { "length" } else { "stop" };
                let message = format!("{tokens} of {expected_tokens} tokens");
                (Outcome::Truncated, Some(reason), Some((ErrorClass::ShortOutput, message)))
            }
            Finish::Abort { class, message } => {
                let outcome = if tokens > 0 { Outcome::Truncated } else { Outcome::Aborted };
                (outcome, Some("abort"), Some((class, message)))
            }
            Finish::Error { class, message } => {
                let outcome = if class.is_timeout() { Outcome::Timeout } else { Outcome::Error };
                (outcome, None, Some((class, message)))
            }
        };
        let (error_class, error_message) = error.unzip();
        Ending {
            outcome,
            finish_reason,
            error_class,
            error_message,
            http_status: answer.http_status,
            prefill_worker: answer.prefill_worker,
            decode_worker: answer.decode_worker,
            cached_tokens: answer.cached_tokens.map(|cached| cached.min(input_tokens)),
            output_tokens: tokens,
            first_token_at: answer.first_token_at,
            last_token_at: answer.last_token_at,
            phases: answer.phases,
            retractions: u32::from(answer.retractions),
            token_runs: answer.token_runs,
            attempts: answer.attempts,
            retry_wait: answer.retry_wait,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Dur;
    use crate::protocol::Phases;

    fn answer(finish: Finish, output_tokens: u32, cached_tokens: Option<u32>) -> Answer {
        Answer {
            request: RequestIx(0),
            finish,
            http_status: Some(200),
            prefill_worker: None,
            decode_worker: None,
            incarnation: None,
            cached_tokens,
            output_tokens,
            first_token_at: None,
            last_token_at: None,
            phases: Phases::default(),
            retractions: 0,
            token_runs: Vec::new(),
            attempts: 1,
            retry_wait: Dur::ZERO,
        }
    }

    #[test]
    fn what_cannot_be_true_is_no_success() {
        for finish in [Finish::Length, Finish::Stop] {
            let ending = Ending::answered(answer(finish.clone(), 10, None), 100, 4);
            assert_eq!((ending.outcome, ending.error_class), (Outcome::Error, Some(ErrorClass::ExcessOutput)));
            assert_eq!(ending.error_message.as_deref(), Some("10 tokens for 4 asked for"));
            assert_eq!(ending.output_tokens, 10, "told as they came");
            assert_eq!(Ending::answered(answer(finish, 4, None), 100, 4).outcome, Outcome::Ok);
        }
        let ending = Ending::answered(answer(Finish::Length, 4, Some(99_999)), 100, 4);
        assert_eq!((ending.outcome, ending.cached_tokens), (Outcome::Ok, Some(100)));
        let ending = Ending::answered(answer(Finish::Length, 4, None), 100, 4);
        assert_eq!(ending.cached_tokens, None, "what the server did not tell is not known");
    }
}
