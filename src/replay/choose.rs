//! The policy's choice: what it is shown, and what follows in the books.
//!
//! A choice counts as load from the moment it is made, on both legs where the policy chose both. The index is asked once
//! for each choice, and only when the policy reads it.

use crate::base::{RequestIx, Time};
use crate::policies::{ClusterView, PolicyRequest};
use crate::record::LedgerKind;
use crate::replay::Replayer;
use crate::replay::machine::Note;
use crate::replay::turn::Turn;

impl Replayer<'_> {
    /// Lets the policy choose.
    pub(super) fn choose(&mut self, now: Time, request: RequestIx, failed: Option<u16>) {
        if let Some(mut turn) = self.active.remove(&request) {
            self.unbook(&mut turn);
            self.active.insert(request, turn);
        }
        if self.config.policy.reads_loads() {
            for index in 0..self.fleet.len() as u16 {
                let usage = self.fleet.believed_usage(index, self.table.resident_tokens(index));
                self.fleet.set_believed_usage(index, usage);
            }
        }
        let turn = self.trace.turn(request);
        let excluded = failed.or_else(|| self.stats[turn.session.ix()].excluded.take());
        let sees_index = self.look_up(request);
        let view = ClusterView {
            role: self.fleet.role(),
            workers: self.fleet.views(),
            prefill: self.prefill.views(),
            hits: sees_index.then_some(&self.hits),
            header_mode: self.config.header_mode,
            tree: &self.trace.tree,
        };
        let asked =
            PolicyRequest { session: turn.session, prompt: turn.prompt, input_tokens: turn.input_length, excluded };
        let selection = self.policy.select(&view, &asked);
        let booking = selection.map(|selection| self.fleet.book(selection.worker.index));
        let prefill = selection.and_then(|selection| selection.prefill);
        let prefill_booking = prefill.map(|prefill| self.prefill.book(prefill.index));
        let turn = self.turn_mut(request);
        (turn.selection, turn.booking, turn.prefill_booking) = (selection, booking, prefill_booking);
        self.explain(now, request);
    }

    /// Asks the index about the prompt; false without one, or for a policy that reads none.
    fn look_up(&mut self, request: RequestIx) -> bool {
        self.hits.clear();
        let Some(index) = self.index.as_mut().filter(|_| self.config.policy.reads_index()) else { return false };
        index.lookup(&self.trace.tree, self.trace.turn(request).prompt, &mut self.hits);
        true
    }

    /// Writes down what the policy weighed, where it tells.
    fn explain(&mut self, now: Time, request: RequestIx) {
        let candidates = self.policy.explanation().to_vec();
        if candidates.is_empty() {
            return;
        }
        let turn = self.turn(request);
        let chosen = turn.selection;
        let detail = match chosen.map(|chosen| chosen.prefill) {
            None => "nobody".to_owned(),
            Some(None) => chosen.map_or_else(String::new, |chosen| chosen.reason.as_str().to_owned()),
            Some(Some(prefill)) => format!("through {prefill}"),
        };
        let note = Note {
            session: Some(turn.session),
            request: Some(request),
            worker: chosen.map(|chosen| chosen.worker),
            detail: Some(detail),
            candidates,
        };
        self.note(now, LedgerKind::CarChoice, note);
    }

    /// Why the policy found nobody.
    pub(super) fn nobody(&self) -> String {
        let excluded = self.policy.explanation().iter().filter_map(|candidate| {
            let why = candidate.excluded.as_deref()?;
            Some(format!("{} {why}", candidate.worker))
        });
        let excluded: Vec<String> = excluded.collect();
        let which = if excluded.is_empty() { "there is none".to_owned() } else { excluded.join(", ") };
        format!("a leg has no worker to choose: {which}")
    }

    /// Takes a turn out of the books of both legs.
    pub(super) fn unbook(&mut self, turn: &mut Turn) {
        if let Some(booking) = turn.booking.take() {
            self.fleet.take_back(booking);
        }
        if let Some(booking) = turn.prefill_booking.take() {
            self.prefill.take_back(booking);
        }
    }

    /// The request goes past P after all.
    pub(super) fn unbook_prefill(&mut self, request: RequestIx) {
        if let Some(booking) = self.turn_mut(request).prefill_booking.take() {
            self.prefill.take_back(booking);
        }
    }
}
