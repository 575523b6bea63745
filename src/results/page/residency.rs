//! [`Residency`]: what each decode (or colocated) worker held over time, as far as records and events tell.
//!
//! Sessions are counted by the events: opened, closed, trimmed, dropped, and lost with their worker. Tokens are an estimate:
//! a resident session counts with prompt and answer of its last turn that went well there, a request of another path from its
//! send to its end, since a D reserves room before the prefill. What a worker's own pool says at each instant is in no file.

use std::collections::{BTreeMap, HashMap};

use super::columns::{Columns, Merge};
use crate::record::{ExecutionMode, LedgerEvent, LedgerKind};
use crate::results::seen::Seen;

/// All workers.
#[derive(Debug, Default)]
pub(super) struct Residency {
    /// By name.
    pub workers: BTreeMap<String, Columns<Held>>,
    /// Tokens of each session on each worker that holds it.
    resident: HashMap<String, Vec<(String, u64)>>,
}

/// What changed on a worker in a column, or how long it lasted.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Held {
    /// Sessions come less those gone.
    pub sessions: i64,
    /// Tokens of resident sessions, come less gone.
    pub resident_tokens: i64,
    /// Requests in flight × nanoseconds.
    pub flight_ns: u128,
    /// Tokens of requests beside the sessions × nanoseconds.
    pub passing_token_ns: u128,
}

impl Merge for Held {
    fn merge(&mut self, later: Held) {
        self.sessions += later.sessions;
        self.resident_tokens += later.resident_tokens;
        self.flight_ns += later.flight_ns;
        self.passing_token_ns += later.passing_token_ns;
    }
}

/// What an event makes of the sessions of its worker.
enum Move {
    /// Its session is there.
    Comes,
    /// Its session is not there any more.
    Goes,
    /// None is there: the worker left, or is another process.
    AllGo,
    /// Nothing.
    None,
}

impl Move {
    fn of(kind: LedgerKind) -> Move {
        match kind {
            LedgerKind::SessionOpened => Move::Comes,
            LedgerKind::SessionClosed
            | LedgerKind::SessionTrimmed
            | LedgerKind::SessionReleased
            | LedgerKind::WorkerDroppedSession
            | LedgerKind::BeliefCorrected => Move::Goes,
            LedgerKind::WorkerUp | LedgerKind::WorkerDown | LedgerKind::WorkerGone => Move::AllGo,
            LedgerKind::SessionOpenFailed
            | LedgerKind::SessionMigrated
            | LedgerKind::AdmissionGranted
            | LedgerKind::AdmissionRejected
            | LedgerKind::AdmissionFailed
            | LedgerKind::Reseed
            | LedgerKind::RouteMismatch
            | LedgerKind::RouteMapChanged
            | LedgerKind::UnlistedWorker
            | LedgerKind::BackpressureBegan
            | LedgerKind::BackpressureEnded
            | LedgerKind::Fault
            | LedgerKind::CarChoice
            | LedgerKind::IndexNotInStep
            | LedgerKind::KvStream => Move::None,
        }
    }
}

impl Residency {
    /// A request that was sent.
    pub(super) fn request(&mut self, request: &Seen, sent_ns: u64) {
        let Some(worker) = request.decode_worker_actual.map(|name| name.word) else { return };
        let tokens = u64::from(request.input_tokens) + u64::from(request.output_tokens);
        let columns = self.columns(worker);
        columns.spread(sent_ns, request.ended_ns, |held, ns| held.flight_ns += u128::from(ns));
        let is_direct = request.mode == ExecutionMode::KvcacheDirectToDSession;
        if !is_direct {
            let tokens = u128::from(tokens);
            columns.spread(sent_ns, request.ended_ns, |held, ns| held.passing_token_ns += tokens * u128::from(ns));
        }
        let keeps = match request.mode {
            ExecutionMode::KvcacheSeed | ExecutionMode::KvcacheReseed | ExecutionMode::KvcacheDirectToDSession => true,
            ExecutionMode::DpColocated
            | ExecutionMode::PdRouter
            | ExecutionMode::PdRouterTurn1
            | ExecutionMode::FallbackSessionCap
            | ExecutionMode::FallbackNoCapacity
            | ExecutionMode::FallbackAdmissionRejected
            | ExecutionMode::FallbackWorkerUnhealthy
            | ExecutionMode::FallbackOpenFailed
            | ExecutionMode::NotSent => false,
        };
        if keeps && request.outcome.is_ok() {
            self.hold(request.session.word, worker, tokens, request.ended_ns);
        }
    }

    /// An event of the ledger.
    pub(super) fn event(&mut self, event: &LedgerEvent) {
        let Some(worker) = &event.worker else { return };
        match (Move::of(event.kind), &event.session_id) {
            (Move::Comes, Some(session)) => self.hold(session, worker, 0, event.at_ns),
            (Move::Goes, Some(session)) => self.drop_one(session, worker, event.at_ns),
            (Move::AllGo, _) => self.drop_all(worker, event.at_ns),
            (Move::Comes | Move::Goes, None) | (Move::None, _) => {}
        }
    }

    /// Time of the widest column, nanoseconds.
    pub(super) fn width_ns(&self) -> u64 {
        self.workers.values().map(Columns::width_ns).max().unwrap_or(0)
    }

    /// Brings all to one width.
    pub(super) fn widen(&mut self, width_ns: u64) {
        self.workers.values_mut().for_each(|columns| columns.widen(width_ns));
    }

    fn columns(&mut self, worker: &str) -> &mut Columns<Held> {
        if !self.workers.contains_key(worker) {
            self.workers.insert(worker.to_owned(), Columns::default());
        }
        self.workers.get_mut(worker).expect("just inserted")
    }

    /// `session` holds `tokens` on `worker` from now on.
    fn hold(&mut self, session: &str, worker: &str, tokens: u64, at_ns: u64) {
        if !self.resident.contains_key(session) {
            self.resident.insert(session.to_owned(), Vec::new());
        }
        let places = self.resident.get_mut(session).expect("just inserted");
        let (come, more) = match places.iter_mut().find(|(held_by, _)| held_by == worker) {
            Some((_, held)) => (0, tokens as i64 - std::mem::replace(held, tokens) as i64),
            None => {
                places.push((worker.to_owned(), tokens));
                (1, tokens as i64)
            }
        };
        let held = self.columns(worker).at(at_ns);
        held.sessions += come;
        held.resident_tokens += more;
    }

    fn drop_one(&mut self, session: &str, worker: &str, at_ns: u64) {
        let Some(places) = self.resident.get_mut(session) else { return };
        let Some(ix) = places.iter().position(|(held_by, _)| held_by == worker) else { return };
        let (_, tokens) = places.swap_remove(ix);
        let held = self.columns(worker).at(at_ns);
        held.sessions -= 1;
        held.resident_tokens -= tokens as i64;
    }

    fn drop_all(&mut self, worker: &str, at_ns: u64) {
        let (mut sessions, mut tokens) = (0, 0);
        for places in self.resident.values_mut() {
            places.retain(|(held_by, held)| {
                let stays = held_by != worker;
                (sessions, tokens) = if stays { (sessions, tokens) } else { (sessions + 1, tokens + *held as i64) };
                stays
            });
        }
        if sessions > 0 {
            let held = self.columns(worker).at(at_ns);
            held.sessions -= sessions;
            held.resident_tokens -= tokens;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(at_ms: u64, kind: LedgerKind, session: Option<&str>, worker: &str) -> LedgerEvent {
        let (session_id, worker) = (session.map(String::from), Some(worker.to_owned()));
        let at_ns = at_ms * 1_000_000;
        LedgerEvent { at_ns, kind, session_id, turn_id: None, worker, detail: None, candidates: Vec::new() }
    }

    #[test]
    fn sessions_come_once_and_go_once_however_often_it_is_told() {
        let mut residency = Residency::default();
        for (at, kind) in [
            (0, LedgerKind::SessionOpened),
            (1, LedgerKind::SessionOpened),
            (2, LedgerKind::WorkerDroppedSession),
            (3, LedgerKind::BeliefCorrected),
            (4, LedgerKind::SessionOpened),
        ] {
            residency.event(&event(at, kind, Some("a"), "D0"));
        }
        residency.event(&event(5, LedgerKind::SessionOpened, Some("b"), "D0"));
        residency.event(&event(6, LedgerKind::WorkerDown, None, "D0"));
        let changes: Vec<i64> = residency.workers["D0"].cells().iter().map(|held| held.sessions).collect();
        assert_eq!(changes, [1, 0, -1, 0, 1, 1, -2]);
    }
}
