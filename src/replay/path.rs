//! Path of a turn: plain, direct to the D that holds the session, seed or reseed, or a fallback.
//!
//! The order of the questions is that of the source documents: resident on the chosen D and a small append → ask for
//! the append; otherwise a (re)seed, if the session may live there; otherwise the plain path.

use crate::admission::{AdmissionBy, AppendVerdict, Room, TurnSize, admit_append};
use crate::base::{RequestIx, Time, WorkerId};
use crate::policies::{HeaderMode, PolicyName, Selection, SelectionReason};
use crate::protocol::{Action, AdmitAsk, AdmitKind, CallId, ErrorClass, Generate, Route, RoutingHeader};
use crate::record::{ExecutionMode, LedgerKind, ModeReason};
use crate::replay::machine::Note;
use crate::replay::record::Ending;
use crate::replay::turn::{Queued, Stage, Turn};
use crate::replay::{FirstTurn, Mechanism, Replayer};
use crate::sessions::{Append, Loss, SessionState};

impl Replayer<'_> {
    /// A turn leaves the queue: from here on it is on the wire.
    pub(super) fn begin(&mut self, now: Time, queued: Queued) {
        let request = queued.request;
        let turn = self.trace.turn(request);
        self.table.begin_turn(turn.session, turn.extends_previous);
        self.active.insert(request, Turn::new(turn.session, queued, now, turn.input_length, self.sends_are_told));
        if !self.sends_are_told {
            self.arm_total(now, request);
        }
        let plain_start = self.is_first(request) && self.config.replay.first_turn == FirstTurn::Plain;
        match self.config.replay.mechanism {
            // Any D will do for it: the router places it by its own policy, and the policy learns where it went.
            Mechanism::Kvc if plain_start && self.config.header_mode == HeaderMode::TargetWorker => {}
            Mechanism::Dp | Mechanism::Pd | Mechanism::Kvc => self.choose(now, request, None),
        }
        match self.config.replay.mechanism {
            Mechanism::Dp => self.colocated(now, request),
            Mechanism::Pd => self.plain(now, request, ExecutionMode::PdRouter, ModeReason::Mechanism),
            Mechanism::Kvc if plain_start => {
                self.plain(now, request, ExecutionMode::PdRouterTurn1, ModeReason::FirstTurn);
            }
            Mechanism::Kvc => self.session_path(now, request),
        }
    }

    pub(super) fn is_first(&self, request: RequestIx) -> bool {
        let session = self.trace.turn(request).session;
        self.trace.sessions[session.ix()].turns.start == request.0
    }

    fn colocated(&mut self, now: Time, request: RequestIx) {
        let (mode, reason) = (ExecutionMode::DpColocated, ModeReason::Mechanism);
        match self.turn(request).selection {
            Some(selection) => self.generate(now, request, mode, reason, Route::Worker(selection.worker)),
            None => {
                let message = match self.config.policy.name {
                    PolicyName::Car => self.nobody(),
                    PolicyName::Default | PolicyName::Sticky | PolicyName::KvAware | PolicyName::CacheAware => {
                        "no colocated worker is up".to_owned()
                    }
                };
                self.no_worker(now, request, mode, message);
            }
        }
    }

    /// The PD router's plain path, without session parameters.
    pub(super) fn plain(&mut self, now: Time, request: RequestIx, mode: ExecutionMode, reason: ModeReason) {
        if mode == ExecutionMode::FallbackWorkerUnhealthy {
            // A header that names the lost worker would be refused: choose among those left.
            self.choose(now, request, None);
        }
        if self.config.policy.name == PolicyName::Car && self.turn(request).selection.is_none() {
            // The router has no choice to make where the policy makes both and found nobody.
            let message = self.nobody();
            return self.no_worker(now, request, mode, message);
        }
        let header = self.router_header(request);
        self.generate(now, request, mode, reason, Route::Router(header));
    }

    fn no_worker(&mut self, now: Time, request: RequestIx, mode: ExecutionMode, message: String) {
        let turn = self.turn_mut(request);
        (turn.mode, turn.reason) = (mode, ModeReason::WorkerDown);
        self.settle(now, request, Ending::unanswered(ErrorClass::NoWorker, message));
    }

    fn router_header(&self, request: RequestIx) -> RoutingHeader {
        let turn = self.turn(request);
        match (turn.selection, self.config.header_mode) {
            (Some(selection), _) => selection.header,
            (None, HeaderMode::RoutingKey) => RoutingHeader::RoutingKey(turn.session),
            (None, HeaderMode::None | HeaderMode::TargetWorker | HeaderMode::TargetLegs) => RoutingHeader::None,
        }
    }

    /// The session path on the worker chosen.
    pub(super) fn session_path(&mut self, now: Time, request: RequestIx) {
        let Some(selection) = self.turn(request).selection.filter(|chosen| self.fleet.is_up(chosen.worker.index))
        else {
            return self.plain(now, request, ExecutionMode::FallbackWorkerUnhealthy, ModeReason::WorkerDown);
        };
        let worker = selection.worker.index;
        let turn = self.trace.turn(request);
        let append = self.table.append(&self.trace.tree, turn);
        if let Append::Tokens(tokens) = append {
            self.turn_mut(request).append_tokens = tokens;
        }
        let overlapping = self.table.busy(turn.session) > 1;
        let after = match self.table.state(turn.session) {
            SessionState::Seeding { .. } | SessionState::Resident(_) if overlapping => {
                let mode = ExecutionMode::FallbackAdmissionRejected;
                return self.plain(now, request, mode, ModeReason::SessionBusy);
            }
            SessionState::Cold => None,
            SessionState::Seeding { after, .. } => after,
            SessionState::Evicted(loss) => Some(loss),
            SessionState::Resident(held) if held.worker != worker => Some(Loss::Moved),
            SessionState::Resident(_) => match append {
                Append::Tokens(tokens) if tokens <= self.config.admission.direct_append_max_tokens => {
                    return self.ask_append(now, request, selection.worker, tokens);
                }
                Append::Tokens(_) => Some(Loss::AppendTooLarge),
                Append::Broken | Append::NothingHeld => Some(Loss::Compacted),
            },
        };
        self.turn_mut(request).after = after;
        self.ask_seed(now, request);
    }

    fn ask_append(&mut self, now: Time, request: RequestIx, worker: WorkerId, append_tokens: u32) {
        self.note_usage(request, worker.index);
        let turn = self.trace.turn(request);
        match self.config.admission.append {
            AdmissionBy::Worker => self.ask_worker(request, worker, AdmitKind::Append, append_tokens),
            AdmissionBy::Router => {
                let tokens = u64::from(append_tokens) + u64::from(turn.output_length);
                let room = self.room(worker.index);
                match admit_append(&self.table, turn.session, worker.index, tokens, room) {
                    AppendVerdict::Admitted { drop } => {
                        let trimmed = !drop.is_empty();
                        self.drop_idle(now, drop);
                        let reason = if trimmed { ModeReason::AdmittedAfterTrim } else { ModeReason::Admitted };
                        self.direct(now, request, reason);
                    }
                    AppendVerdict::NoCapacity => self.append_refused(now, request),
                }
            }
        }
    }

    pub(super) fn ask_worker(&mut self, request: RequestIx, worker: WorkerId, kind: AdmitKind, append_tokens: u32) {
        let turn = self.trace.turn(request);
        let call = self.new_call(request);
        let ask = AdmitAsk { session: turn.session, kind, append_tokens, output_tokens: turn.output_length };
        self.actions.push_back(Action::Admit { call, worker, ask });
        self.turn_mut(request).stage = Stage::Admitting(kind);
    }

    pub(super) fn new_call(&mut self, request: RequestIx) -> CallId {
        let call = CallId(self.next_call);
        self.next_call += 1;
        self.calls.insert(call, (request, self.trace.turn(request).session));
        self.turn_mut(request).call = Some(call);
        call
    }

    /// Straight to the D that holds the session: only the append travels.
    pub(super) fn direct(&mut self, now: Time, request: RequestIx, reason: ModeReason) {
        let Some(selection) = self.turn(request).selection else {
            return self.plain(now, request, ExecutionMode::FallbackWorkerUnhealthy, ModeReason::WorkerDown);
        };
        let mode = ExecutionMode::KvcacheDirectToDSession;
        self.generate(now, request, mode, reason, Route::Worker(selection.worker));
    }

    /// The D that holds the session has no room for the append.
    pub(super) fn append_refused(&mut self, now: Time, request: RequestIx) {
        let session = self.trace.turn(request).session;
        self.stats[session.ix()].append_rejections += 1;
        self.plain(now, request, ExecutionMode::FallbackAdmissionRejected, ModeReason::NoCapacity);
        self.refused(now, request);
    }

    /// Sends the generate request.
    pub(super) fn generate(
        &mut self,
        now: Time,
        request: RequestIx,
        mode: ExecutionMode,
        reason: ModeReason,
        route: Route,
    ) {
        let turn = self.trace.turn(request);
        let routed = match route {
            Route::Router(_) => true,
            Route::Worker(_) => false,
        };
        self.router_sends += u64::from(routed);
        if !routed {
            self.unbook_prefill(request);
        }
        let router_send = routed.then_some(self.router_sends);
        let active = self.active.get_mut(&request).expect("the turn is under way");
        (active.mode, active.reason, active.stage, active.call) = (mode, reason, Stage::Generating, None);
        active.departed = Some((now, route));
        active.router_send = router_send;
        active.intended = active
            .selection
            .filter(|chosen| active.in_session() || !left_to_router(chosen, route))
            .map(|chosen| chosen.worker);
        let direct = mode == ExecutionMode::KvcacheDirectToDSession;
        let shipped_tokens = if direct { active.append_tokens } else { turn.input_length };
        let own_tokens = u64::from(shipped_tokens) + u64::from(turn.output_length);
        if let Some(booking) = &mut active.booking {
            self.fleet.depart(booking, own_tokens);
            self.policy.sent(&self.trace.tree, turn.session, booking.worker, turn.prompt);
        }
        self.actions.push_back(Action::Generate(Generate {
            request,
            session: turn.session,
            route,
            session_params: active.in_session(),
            prompt: turn.prompt,
            context: turn.context,
            input_tokens: turn.input_length,
            shipped_tokens,
            output_tokens: turn.output_length,
        }));
    }

    pub(super) fn size(&self, request: RequestIx) -> TurnSize {
        let turn = self.trace.turn(request);
        TurnSize {
            first: self.is_first(request),
            input_tokens: turn.input_length,
            cached_tokens: turn.cached_tokens,
            output_tokens: turn.output_length,
        }
    }

    /// What the replayer believes to be free on a worker.
    pub(super) fn room(&self, worker: u16) -> Room {
        let admission = &self.config.admission;
        let usable = || (self.config.kv_pool_tokens as f64 * admission.usable_share) as u64;
        Room {
            usable_tokens: admission.capacity_known.then(usable),
            used_tokens: self.table.resident_tokens(worker) + self.fleet.inflight_tokens(worker),
        }
    }

    pub(super) fn note_usage(&mut self, request: RequestIx, worker: u16) {
        if let Some(usage) = self.fleet.believed_usage(worker, self.table.resident_tokens(worker)) {
            let stats = &mut self.stats[self.trace.turn(request).session.ix()];
            stats.usage_sum += usage;
            stats.usage_count += 1;
        }
    }

    /// Counts a refusal; after enough in a row the session lets go of that worker and avoids it once.
    pub(super) fn refused(&mut self, now: Time, request: RequestIx) {
        let session = self.trace.turn(request).session;
        let limit = self.migration_limit();
        let Some(worker) = self.turn(request).selection.map(|chosen| chosen.worker) else { return };
        let stats = &mut self.stats[session.ix()];
        stats.refusals_in_row += 1;
        if limit == 0 || stats.refusals_in_row < limit {
            return;
        }
        stats.refusals_in_row = 0;
        stats.excluded = Some(worker.index);
        if self.table.residence(session).is_some_and(|held| held.worker == worker.index) {
            self.table.lose(session, Loss::Moved);
            self.close(now, session);
        }
        if self.table.slot(session) == Some(worker.index) {
            self.table.release_slot(session, now);
        }
        self.policy.forget(session);
        self.note(now, LedgerKind::SessionReleased, Note::session(session, worker).because("refused-in-a-row"));
    }

    fn migration_limit(&self) -> u32 {
        match self.config.policy.name {
            PolicyName::KvAware => self.config.policy.kv_aware.migrate_after_rejections,
            PolicyName::Default | PolicyName::Sticky | PolicyName::CacheAware | PolicyName::Car => 0,
        }
    }
}

/// A session's first routing key: the router's own map decides, so no worker is intended.
fn left_to_router(chosen: &Selection, route: Route) -> bool {
    match route {
        Route::Router(RoutingHeader::RoutingKey(_)) => chosen.reason == SelectionReason::Rotation,
        Route::Router(RoutingHeader::None | RoutingHeader::TargetWorker(_) | RoutingHeader::TargetLegs { .. })
        | Route::Worker(_) => false,
    }
}
