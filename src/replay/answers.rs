//! Events of the cluster: calls, ends, quiet streams, loads, workers that come and go.

use crate::base::{RequestIx, Time, WorkerId};
use crate::protocol::{Event, LoadReport, Outgoing, WorkerState};
use crate::record::LedgerKind;
use crate::replay::machine::Note;
use crate::replay::schedule::Wake;
use crate::replay::turn::Stage;
use crate::replay::{Replayer, plan};

impl Replayer<'_> {
    pub(super) fn take_event(&mut self, now: Time, event: Event) {
        match event {
            Event::Sent { what, at } => self.take_sent(what, at),
            Event::Opened { call, worker, result } => self.take_opened(now, call, worker, result),
            Event::Admission { call, worker, result } => self.take_admission(now, call, worker, result),
            Event::Finished(answer) if self.active.contains_key(&answer.request) => self.take_finished(now, *answer),
            Event::Finished(answer) => self.take_last_word(now, *answer),
            Event::Silent { request, since } => self.take_silent(request, since),
            Event::Loads(reports) => self.hear_loads(reports),
            Event::WorkerChanged { worker, state } => self.take_change(now, worker, state),
        }
    }

    /// Something of a turn has gone out: its first send, or its generate request after the calls.
    fn take_sent(&mut self, what: Outgoing, at: Time) {
        let request = match what {
            Outgoing::Request(request) => Some(request),
            Outgoing::Call(call) => self.calls.get(&call).map(|(request, _)| *request),
        };
        let Some((request, turn)) = request.and_then(|request| Some((request, self.active.get_mut(&request)?))) else {
            return;
        };
        let is_first = turn.sent.is_none();
        turn.sent = turn.sent.or(Some(at));
        if let (Outgoing::Request(_), Some((departed, _))) = (what, &mut turn.departed) {
            if !is_first {
                turn.late = at.since(*departed);
            }
            *departed = at;
            turn.gone = true;
        }
        if is_first {
            self.arm_total(at, request);
        }
    }

    fn take_silent(&mut self, request: RequestIx, since: Time) {
        let generating = self.active.get(&request).is_some_and(|turn| turn.stage == Stage::Generating);
        if !generating {
            return;
        }
        let limit = plan::positive(self.config.replay.stall_timeout_s);
        let key = limit.map(|limit| self.arm(since + limit, Wake::Stall(request)));
        let replaced = std::mem::replace(&mut self.turn_mut(request).stall_timer, key);
        self.timers.disarm(replaced);
    }

    fn take_change(&mut self, now: Time, worker: WorkerId, state: WorkerState) {
        let kind = match state {
            WorkerState::Up { .. } => LedgerKind::WorkerUp,
            WorkerState::Down => LedgerKind::WorkerDown,
            WorkerState::Gone => LedgerKind::WorkerGone,
        };
        self.note(now, kind, Note { worker: Some(worker), ..Note::default() });
        if worker.role == self.prefill.role() {
            return self.prefill_changed(worker.index, state);
        }
        if worker.role != self.fleet.role() {
            return;
        }
        match state {
            WorkerState::Up { incarnation } => {
                self.fleet.up(worker.index);
                self.table.add_worker(worker.index);
                self.hear(now, worker, incarnation);
            }
            WorkerState::Down | WorkerState::Gone => {
                self.fleet.down(worker.index);
                if let Some(index) = self.fleet.index(worker) {
                    self.table.gone(index, now);
                }
            }
        }
    }

    fn prefill_changed(&mut self, index: u16, state: WorkerState) {
        match state {
            WorkerState::Up { incarnation } => {
                self.prefill.up(index);
                self.prefill.heard_process(index, incarnation);
            }
            WorkerState::Down | WorkerState::Gone => self.prefill.down(index),
        }
    }

    pub(super) fn hear_loads(&mut self, reports: Vec<LoadReport>) {
        for report in reports {
            self.fleet.heard_load(report);
            self.prefill.heard_load(report);
        }
    }
}
