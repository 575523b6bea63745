//! The scenario's faults as far as they are one worker's: triggers, and whom they strike here.
//!
//! Numbers are those of the configuration, so that all who play its faults mean the same one. Requests are not counted
//! here: the server says when a count is reached. Faults that start, stop or replace whole processes are the supervisor's.

use crate::base::{RequestIx, Role, SessionIx, Time, WorkerId};
use crate::cluster::{Fault, FaultKind, Faults};
use crate::node::worker::{Due, WorkerNode};
use crate::node::{NodeConfig, NodeOutput};

/// No fault is limited to this one.
const NOBODY: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct NodeFaults {
    pub faults: Faults,
    /// Sessions that faults are limited to, by their index there.
    sessions: Vec<String>,
    /// Turns likewise.
    turns: Vec<(String, u32)>,
}

/// What a request calls itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct Named<'a> {
    pub rid: Option<&'a str>,
    pub session: Option<&'a str>,
}

impl NodeFaults {
    /// Panics for a bad worker name: the scenario was checked.
    pub fn new(config: &NodeConfig) -> NodeFaults {
        let (mut sessions, mut turns) = (Vec::new(), Vec::new());
        let mut faults = Vec::new();
        for fault in &config.faults {
            let session = fault.session.clone().map(|name| SessionIx(index_of(&mut sessions, name)));
            let turn = fault.session.clone().zip(fault.turn).map(|turn| RequestIx(index_of(&mut turns, turn)));
            faults.push(Fault::new(fault, session, turn).expect("the scenario's worker names were checked"));
        }
        let faults = match &config.strikes {
            Some(shared) => Faults::sharing(faults, shared.clone()),
            None => Faults::new(faults),
        };
        NodeFaults { faults, sessions, turns }
    }

    /// A fault of `kind` that strikes a request at `worker`, by its id `<session>/<turn>` or its session.
    pub fn strike_request(&mut self, kind: FaultKind, worker: WorkerId, request: Named<'_>) -> Option<Fault> {
        let (session, request) = self.concerned(request);
        Some(self.faults.strike_request(kind, &[worker], session, request)?.0)
    }

    /// The same, by faults that name `worker` only.
    pub fn strike_named(&mut self, kind: FaultKind, worker: WorkerId, request: Named<'_>) -> Option<Fault> {
        let (session, request) = self.concerned(request);
        self.faults.strike_named(kind, worker, session, request)
    }

    /// Session and turn as faults know them.
    fn concerned(&self, Named { rid, session }: Named<'_>) -> (SessionIx, RequestIx) {
        let named = rid.and_then(|rid| rid.rsplit_once('/')).and_then(|(id, turn)| Some((id, turn.parse().ok()?)));
        let (session, turn) = named.map_or((session, None), |(id, turn): (&str, u32)| (Some(id), Some(turn)));
        let at = |found: Option<usize>| found.map_or(NOBODY, |at| at as u32);
        let request = at(self.turns.iter().position(|(id, nth)| (Some(id.as_str()), Some(*nth)) == (session, turn)));
        let session = at(self.sessions.iter().position(|id| Some(id.as_str()) == session));
        (SessionIx(session), RequestIx(request))
    }
}

impl WorkerNode {
    /// Schedules the faults that come at a time.
    pub(super) fn plan_faults(&mut self) {
        for (fault, at) in self.faults.faults.timed() {
            if self.faults.faults.get(fault).kind.outage().is_none() {
                self.agenda.schedule(at, Due::FaultBegins(fault, at));
            }
        }
    }

    /// A node that starts late takes up what began before it.
    pub(super) fn begin_fault(&mut self, number: usize, began: Time) {
        let fault = self.faults.faults.get(number).clone();
        if fault.kind.outage().is_some() {
            return;
        }
        self.faults.faults.begin(number);
        if let Some(duration) = fault.duration {
            self.agenda.schedule(began + duration, Due::FaultEnds(number));
        }
        self.set_speeds(&fault);
        let own = fault.worker.is_none_or(|worker| worker == self.config.id);
        match fault.kind {
            FaultKind::PublisherRestart if own => self.restart_publisher(),
            FaultKind::KvEndpointWrong if own => self.emit(NodeOutput::KvReachable(false)),
            _ => {}
        }
    }

    pub(super) fn end_fault(&mut self, number: usize) {
        self.faults.faults.end(number);
        let fault = self.faults.faults.get(number).clone();
        self.set_speeds(&fault);
        let own = fault.worker.is_none_or(|worker| worker == self.config.id);
        if fault.kind == FaultKind::KvEndpointWrong && own {
            self.emit(NodeOutput::KvReachable(true));
        }
    }

    /// The other kinds are looked up when something comes along.
    fn set_speeds(&mut self, fault: &Fault) {
        let Some(worker) = fault.worker else { return };
        let own = worker == self.config.id;
        if fault.kind == FaultKind::SlowWorker && own {
            let factor = self.faults.faults.slowdown(fault.kind, worker);
            self.worker.set_slow_factor(self.now, factor);
            self.drain();
        }
        // P moves the KV, so P slows it down, also for the D at the other end.
        let moves = self.config.id.role == Role::Prefill && (own || worker.role == Role::Decode);
        if fault.kind == FaultKind::SlowLink && moves {
            self.links.slow(self.now, &self.faults.faults, worker, fault.to);
        }
    }
}

fn index_of<T: PartialEq>(all: &mut Vec<T>, one: T) -> u32 {
    let at = all.iter().position(|known| *known == one).unwrap_or(all.len());
    if at == all.len() {
        all.push(one);
    }
    at as u32
}
