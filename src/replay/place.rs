//! Placing a session on a D: seed and reseed, slots, open and close.
//!
//! A slot is taken when the seed is admitted and given back when the session could not be opened or its turn failed,
//! so a session that is not there never keeps one.

use crate::admission::{AdmissionBy, SeedAsk, SeedRejection, SeedVerdict, admit_seed, soft_cap};
use crate::base::{RequestIx, SessionIx, Time};
use crate::policies::HeaderMode;
use crate::protocol::{Action, AdmitKind, Route};
use crate::record::{ExecutionMode, LedgerKind, ModeReason};
use crate::replay::Replayer;
use crate::replay::machine::Note;
use crate::replay::turn::{Stage, seed_fallback};
use crate::sessions::Loss;

impl Replayer<'_> {
    /// May the session live on the worker chosen?
    pub(super) fn ask_seed(&mut self, now: Time, request: RequestIx) {
        let Some(selection) = self.turn(request).selection else { return self.open_exhausted(now, request) };
        let session = self.trace.turn(request).session;
        let worker = selection.worker.index;
        self.stats[session.ix()].seed_asks += 1;
        self.note_usage(request, worker);
        match self.config.admission.seed {
            AdmissionBy::Worker => {
                let tokens = self.trace.turn(request).input_length;
                self.ask_worker(request, selection.worker, AdmitKind::Seed, tokens);
            }
            AdmissionBy::Router => {
                let ask = SeedAsk { session, worker, size: self.size(request) };
                match admit_seed(&self.config.admission, &self.table, ask, self.room(worker)) {
                    SeedVerdict::Admitted { slot_from, drop } => {
                        if let Some(other) = slot_from {
                            self.give_slot(now, other);
                        }
                        self.drop_idle(now, drop);
                        self.place(now, request);
                    }
                    SeedVerdict::Rejected(why) => self.seed_refused(now, request, why),
                }
            }
        }
    }

    /// The plain path instead of a seed.
    pub(super) fn seed_refused(&mut self, now: Time, request: RequestIx, why: SeedRejection) {
        let session = self.trace.turn(request).session;
        self.stats[session.ix()].seed_rejections += 1;
        if why == SeedRejection::SessionCap && self.is_refused_by_ended(request) {
            self.stats[session.ix()].refused_by_ended += 1;
        }
        if let Some(selection) = self.turn(request).selection {
            let note = Note::session(session, selection.worker).of(request).because(why.as_str());
            self.note(now, LedgerKind::AdmissionRejected, note);
        }
        if self.turn(request).placements > 0 {
            return self.open_exhausted(now, request);
        }
        let (mode, reason) = seed_fallback(why);
        self.plain(now, request, mode, reason);
        self.refused(now, request);
    }

    /// The session would hold a slot, had those that are over given theirs back.
    fn is_refused_by_ended(&mut self, request: RequestIx) -> bool {
        let Some(worker) = self.turn(request).selection.map(|chosen| chosen.worker.index) else { return false };
        let cap = soft_cap(&self.config.admission, self.room(worker).usable_tokens, self.size(request));
        self.table.is_refused_by_ended(self.trace.turn(request).session, worker, cap)
    }

    /// Admitted: takes the slot, closes what is left of the session elsewhere, opens it here.
    pub(super) fn place(&mut self, now: Time, request: RequestIx) {
        let session = self.trace.turn(request).session;
        let Some(worker) = self.turn(request).selection.map(|chosen| chosen.worker) else {
            return self.open_exhausted(now, request);
        };
        self.close(now, session);
        self.table.take_slot(session, worker.index, now);
        let after = self.turn(request).after;
        self.table.seed(session, worker.index, after);
        if let Some(loss) = after.filter(|_| self.turn(request).placements == 0) {
            let note = Note::session(session, worker).of(request).because(loss.mode_reason().as_str());
            self.note(now, LedgerKind::Reseed, note);
        }
        let call = self.new_call(request);
        let turn = self.turn_mut(request);
        turn.placements += 1;
        turn.stage = Stage::Opening;
        self.actions.push_back(Action::OpenSession { call, worker, session });
    }

    /// The session is open on its worker: the full prompt goes through P.
    pub(super) fn seed(&mut self, now: Time, request: RequestIx) {
        let turn = self.turn(request);
        let mode = turn.seed_mode();
        let reason = match turn.after {
            Some(loss) => loss.mode_reason(),
            None if self.is_first(request) => ModeReason::FirstTurn,
            None => ModeReason::NeverSeeded,
        };
        match turn.selection {
            Some(selection) => self.generate(now, request, mode, reason, Route::Router(selection.header)),
            None => self.open_exhausted(now, request),
        }
    }

    /// The open failed: no binding and no slot stay behind, and another placement is tried if one is left.
    pub(super) fn open_failed(&mut self, now: Time, request: RequestIx) {
        let session = self.trace.turn(request).session;
        self.unplace(now, session);
        let turn = self.turn(request);
        let failed = turn.selection.map(|chosen| chosen.worker.index);
        if turn.placements >= self.config.admission.open_attempts {
            return self.open_exhausted(now, request);
        }
        match self.config.header_mode {
            // The router would send the request where the key leads: only that worker is of use.
            HeaderMode::RoutingKey if failed.is_some_and(|worker| self.fleet.is_up(worker)) => {}
            HeaderMode::RoutingKey | HeaderMode::None | HeaderMode::TargetWorker | HeaderMode::TargetLegs => {
                self.choose(now, request, failed);
            }
        }
        self.ask_seed(now, request);
    }

    fn open_exhausted(&mut self, now: Time, request: RequestIx) {
        self.plain(now, request, ExecutionMode::FallbackOpenFailed, ModeReason::OpenFailed);
    }

    /// Takes back a placement that came to nothing.
    pub(super) fn unplace(&mut self, now: Time, session: SessionIx) {
        self.table.unseed(session);
        self.table.release_slot(session, now);
    }

    /// Closes the session where it may still be open.
    pub(super) fn close(&mut self, now: Time, session: SessionIx) {
        let Some(worker) = self.table.open_on(session) else { return };
        self.table.closed(session);
        if self.fleet.is_up(worker) {
            let worker = self.fleet.id(worker);
            self.actions.push_back(Action::CloseSession { worker, session });
            self.note(now, LedgerKind::SessionClosed, Note::session(session, worker));
        }
    }

    /// Drops idle sessions for room; they keep their slots.
    pub(super) fn drop_idle(&mut self, now: Time, sessions: Vec<SessionIx>) {
        for session in sessions {
            self.release(now, session, "room");
        }
    }

    fn give_slot(&mut self, now: Time, session: SessionIx) {
        self.release(now, session, "slot");
        self.table.release_slot(session, now);
    }

    fn release(&mut self, now: Time, session: SessionIx, detail: &str) {
        let held = self.table.residence(session).map(|held| held.worker).or(self.table.slot(session));
        if self.table.residence(session).is_some() {
            self.table.lose(session, Loss::Released);
        }
        self.close(now, session);
        if let Some(worker) = held {
            let note = Note::session(session, self.fleet.id(worker)).because(detail);
            self.note(now, LedgerKind::SessionReleased, note);
        }
    }
}
