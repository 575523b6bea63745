//! Answers to control calls: admission and open. An answer whose turn has ended by itself is still believed.

use crate::admission::SeedRejection;
use crate::base::{RequestIx, SessionIx, Time, WorkerId};
use crate::protocol::{Action, AdmitAnswer, AdmitKind, AdmitReason, CallError, CallId};
use crate::record::{ExecutionMode, LedgerKind, ModeReason};
use crate::replay::Replayer;
use crate::replay::machine::Note;
use crate::replay::turn::Stage;
use crate::sessions::Loss;

impl Replayer<'_> {
    /// The turn that waits for this call, if it still does.
    fn waiting_for(&mut self, call: CallId) -> Option<(RequestIx, SessionIx, bool)> {
        let (request, session) = self.calls.remove(&call)?;
        let waits = self.active.get(&request).is_some_and(|turn| turn.call == Some(call));
        Some((request, session, waits))
    }

    pub(super) fn take_opened(&mut self, now: Time, call: CallId, worker: WorkerId, result: Result<u32, CallError>) {
        let Some((request, session, waits)) = self.waiting_for(call) else { return };
        let note = Note::session(session, worker).of(request);
        match result {
            Ok(incarnation) => {
                self.hear(now, worker, incarnation);
                self.note(now, LedgerKind::SessionOpened, note);
                if !waits {
                    self.actions.push_back(Action::CloseSession { worker, session });
                    return self.note(now, LedgerKind::SessionClosed, Note::session(session, worker));
                }
                self.table.opened(session, worker.index);
                if self.fleet.is_up(worker.index) {
                    self.seed(now, request);
                } else {
                    self.unplace(now, session);
                    self.plain(now, request, ExecutionMode::FallbackWorkerUnhealthy, ModeReason::WorkerDown);
                }
            }
            Err(error) => {
                self.note(now, LedgerKind::SessionOpenFailed, note.because(error.message));
                if waits {
                    self.open_failed(now, request);
                }
            }
        }
    }

    pub(super) fn take_admission(
        &mut self,
        now: Time,
        call: CallId,
        worker: WorkerId,
        result: Result<AdmitAnswer, CallError>,
    ) {
        let Some((request, session, waits)) = self.waiting_for(call) else { return };
        let note = Note::session(session, worker).of(request);
        match result {
            Ok(answer) => {
                self.hear(now, worker, answer.incarnation);
                for evicted in &answer.evicted {
                    self.trimmed(now, *evicted, worker);
                }
                if let Some(index) = self.fleet.index(worker) {
                    self.fleet.heard_capacity(index, answer.capacity_tokens);
                }
                let kind = if answer.can_admit { LedgerKind::AdmissionGranted } else { LedgerKind::AdmissionRejected };
                self.note(now, kind, note.because(answer.reason.as_str()));
                if waits {
                    self.admitted(now, request, worker, &answer);
                }
            }
            Err(error) => {
                self.note(now, LedgerKind::AdmissionFailed, note.because(error.message));
                if waits {
                    let (mode, reason) = if self.fleet.is_up(worker.index) {
                        (ExecutionMode::FallbackAdmissionRejected, ModeReason::AdmissionFailed)
                    } else {
                        (ExecutionMode::FallbackWorkerUnhealthy, ModeReason::WorkerDown)
                    };
                    self.plain(now, request, mode, reason);
                }
            }
        }
    }

    fn admitted(&mut self, now: Time, request: RequestIx, worker: WorkerId, answer: &AdmitAnswer) {
        let session = self.trace.turn(request).session;
        let kind = match self.turn(request).stage {
            Stage::Admitting(kind) => kind,
            Stage::Choosing | Stage::Opening | Stage::Generating | Stage::GivenUp => return,
        };
        match kind {
            AdmitKind::Seed if answer.can_admit => self.place(now, request),
            AdmitKind::Seed => self.seed_refused(now, request, SeedRejection::NoCapacity),
            AdmitKind::Append if answer.can_admit => {
                // Lost while the question was under way: the word of the restarted or departed worker is void.
                if self.table.residence(session).is_none_or(|held| held.worker != worker.index) {
                    return self.session_path(now, request);
                }
                let reason = match answer.reason {
                    AdmitReason::FitsAfterTrim => ModeReason::AdmittedAfterTrim,
                    AdmitReason::Fits
                    | AdmitReason::NoCapacity
                    | AdmitReason::SessionNotFound
                    | AdmitReason::SessionBusy => ModeReason::Admitted,
                };
                self.direct(now, request, reason);
            }
            AdmitKind::Append => match answer.reason {
                AdmitReason::SessionNotFound => {
                    self.not_found(now, request, worker);
                    self.session_path(now, request);
                }
                AdmitReason::SessionBusy => {
                    self.plain(now, request, ExecutionMode::FallbackAdmissionRejected, ModeReason::SessionBusy);
                }
                AdmitReason::NoCapacity | AdmitReason::Fits | AdmitReason::FitsAfterTrim => {
                    self.append_refused(now, request);
                }
            },
        }
    }

    /// The worker does not know a session that ran there. It is the same process, or [`Replayer::hear`] had noticed:
    /// the session outlived its idle time-out, or was trimmed for room.
    fn not_found(&mut self, now: Time, request: RequestIx, worker: WorkerId) {
        let session = self.trace.turn(request).session;
        let Some(held) = self.table.residence(session).filter(|held| held.worker == worker.index) else { return };
        let timeout = self.config.session_idle_timeout;
        let loss = match timeout.filter(|timeout| now.since(held.since) >= *timeout) {
            Some(_) => Loss::Idle,
            None => Loss::Trimmed,
        };
        self.corrected(now, session, worker, loss);
    }

    /// A worker's word against a belief: the session is not there.
    pub(super) fn corrected(&mut self, now: Time, session: SessionIx, worker: WorkerId, loss: Loss) {
        self.table.lose(session, loss);
        self.table.closed(session);
        self.beliefs_corrected += 1;
        let note = Note::session(session, worker).because(loss.mode_reason().as_str());
        self.note(now, LedgerKind::BeliefCorrected, note);
    }

    fn trimmed(&mut self, now: Time, session: SessionIx, worker: WorkerId) {
        if self.table.residence(session).is_some_and(|held| held.worker == worker.index) {
            self.table.lose(session, Loss::Trimmed);
        }
        if self.table.open_on(session) == Some(worker.index) {
            self.table.closed(session);
        }
        self.note(now, LedgerKind::SessionTrimmed, Note::session(session, worker));
    }

    /// `worker` spoke as process `incarnation`: if it is a new one, all it held is lost.
    pub(super) fn hear(&mut self, now: Time, worker: WorkerId, incarnation: u32) {
        let Some(index) = self.fleet.index(worker) else { return };
        self.fleet.heard_process(index, incarnation);
        for session in self.table.heard(index, incarnation, now) {
            self.beliefs_corrected += 1;
            let note = Note::session(session, worker).because(Loss::WorkerRestarted.mode_reason().as_str());
            self.note(now, LedgerKind::BeliefCorrected, note);
        }
    }
}
