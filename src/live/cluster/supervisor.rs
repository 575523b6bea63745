//! The supervisor: starts all nodes, and plays the faults that strike whole processes.
//!
//! Faults inside a worker are the worker's own; here they are only announced. All nodes share one count of requests, by
//! which faults of both kinds begin, and one count of strikes, which a restart does not renew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use super::ClusterError;
use super::node::{End, Node};
use super::plan::{ClusterPlan, KvAddress, routed};
use super::port::Port;
use crate::base::{Role, Time, WorkerId};
use crate::cluster::{Fault, FaultKind, Faults, Notice, Outage, Strikes};
use crate::live::clock::Clock;
use crate::live::kv::zmq;
use crate::live::server::{KvPublishing, Triggers, WorkerServerOptions, serve_router, serve_worker};
use crate::live::{Addresses, Endpoint, url_at};
use crate::node::NodeConfig;

/// Time between two looks at the count of requests, while a fault waits for it.
const LOOK: Duration = Duration::from_millis(1);

/// What the supervisor is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    /// End every node; answers that are under way may end.
    Stop,
    /// End every node at once.
    Kill,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Supervisor {
    plan: ClusterPlan,
    clock: Clock,
    workers: Vec<(WorkerId, Node)>,
    /// Held for the ports of KV events.
    kv: BTreeMap<WorkerId, [Port; 2]>,
    router: Option<(Node, Addresses)>,
    faults: Faults,
    // By time, then by number: what begins (false) or ends (true).
    agenda: BTreeSet<(Time, usize, bool)>,
    triggers: Arc<Triggers>,
    // Faults by count that have begun here.
    begun: usize,
    strikes: Strikes,
    failed: Vec<String>,
}

impl Supervisor {
    /// Reserves every port. The addresses hold all workers, also those that join later.
    pub fn new(plan: ClusterPlan, clock: Clock) -> Result<(Supervisor, Addresses), ClusterError> {
        let port = |name: String, nth: usize| {
            let address = plan.address(nth);
            Node::new(name.clone(), address).map_err(|source| ClusterError::Port { name, address, source })
        };
        let counts = [
            (Role::Prefill, plan.cluster.prefill),
            (Role::Decode, plan.cluster.decode),
            (Role::Colocated, plan.cluster.colocated),
        ];
        let ids = counts.into_iter().flat_map(|(role, count)| (0..count).map(move |index| WorkerId::new(role, index)));
        let router = port("router".into(), 0)?;
        let mut addresses = Addresses::default();
        let mut workers = Vec::new();
        let mut kv = BTreeMap::new();
        for (nth, id) in ids.enumerate() {
            let node = port(id.to_string(), nth + 1)?;
            let list = match id.role {
                Role::Prefill => &mut addresses.prefill,
                Role::Decode => &mut addresses.decode,
                Role::Colocated => &mut addresses.colocated,
            };
            let bootstrap_port = (id.role == Role::Prefill).then(|| node.address().port());
            list.push(Endpoint { url: url_at(node.address()), bootstrap_port });
            if plan.publishes(id.role) {
                let reserve = |what, address| {
                    let name = format!("{what} of {id}");
                    Port::reserve(address).map_err(|source| ClusterError::Port { name, address, source })
                };
                let [events, replay] = plan.kv_addresses(node.address());
                kv.insert(id, [reserve("KV events", events)?, reserve("replays of KV events", replay)?]);
            }
            workers.push((id, node));
        }
        let router = routed(&addresses).map(|behind| (router, behind));
        addresses.router = router.as_ref().map(|(node, _)| url_at(node.address()));
        let all = plan.faults.iter().map(|config| Fault::new(config, None, None));
        let faults = Faults::new(all.collect::<Result<_, _>>().map_err(ClusterError::Fault)?);
        let agenda = faults.timed().into_iter().map(|(number, at)| (at, number, false)).collect();
        let triggers = Arc::new(Triggers::of(&plan.faults));
        let strikes = Strikes::of(&plan.faults);
        let supervisor = Supervisor {
            plan,
            clock,
            workers,
            kv,
            router,
            faults,
            agenda,
            triggers,
            begun: 0,
            strikes,
            failed: Vec::new(),
        };
        Ok((supervisor, addresses))
    }

    /// Where KV events are published.
    pub fn kv_addresses(&self) -> BTreeMap<WorkerId, KvAddress> {
        let address = |[events, replay]: &[Port; 2]| KvAddress { events: events.address(), replay: replay.address() };
        self.kv.iter().map(|(id, ports)| (*id, address(ports))).collect()
    }

    /// Starts the workers that are there from the beginning, then the router.
    pub fn start_all(&mut self) -> Result<(), ClusterError> {
        let later = self.faults.joiners();
        for at in 0..self.workers.len() {
            if !later.contains(&self.workers[at].0) {
                let name = self.workers[at].1.name.clone();
                self.start_worker(at).map_err(|source| ClusterError::Start { name, source })?;
            }
        }
        self.start_router().map_err(|source| ClusterError::Start { name: "router".into(), source })
    }

    /// Plays the faults until told to end; what failed on the way.
    pub fn run(mut self, inbox: &Receiver<Command>) -> Vec<String> {
        let command = loop {
            match inbox.recv_timeout(self.rest()) {
                Ok(command) => break command,
                // The cluster's owner is gone.
                Err(RecvTimeoutError::Disconnected) => break Command::Kill,
                Err(RecvTimeoutError::Timeout) => self.play(),
            }
        };
        let how = if command == Command::Stop { End::Stop } else { End::Kill };
        // The router first: it must not see its workers go.
        if let Some((router, _)) = &mut self.router {
            router.tell(how);
            self.failed.extend(router.join().err());
        }
        self.workers.iter().for_each(|(_, node)| node.tell(how));
        for (_, node) in &mut self.workers {
            self.failed.extend(node.join().err());
        }
        self.failed
    }

    /// Wall time until something is due.
    fn rest(&self) -> Duration {
        let timed = self.agenda.first().map(|(at, ..)| self.clock.until(*at));
        let counted = (self.begun < self.triggers.all()).then_some(LOOK);
        // With nothing due, only a command ends the wait.
        timed.into_iter().chain(counted).min().unwrap_or(Duration::from_secs(3600))
    }

    fn play(&mut self) {
        let now = self.clock.now();
        for (fault, at) in self.triggers.begun(self.begun) {
            self.begun += 1;
            self.begin(at, fault);
        }
        while let Some((_, fault, ends)) = self.agenda.first().copied().filter(|(at, ..)| *at <= now) {
            self.agenda.pop_first();
            if ends { self.end(fault) } else { self.begin(now, fault) }
        }
    }

    fn begin(&mut self, now: Time, number: usize) {
        self.faults.begin(number);
        let fault = self.faults.get(number).clone();
        if let Some(notify) = &self.plan.notify {
            notify.tell(Notice::Fault { kind: fault.kind, worker: fault.worker });
        }
        if let Some(duration) = fault.duration {
            self.agenda.insert((now + duration, number, true));
        }
        let at = fault.worker.and_then(|worker| self.workers.iter().position(|(id, _)| *id == worker));
        match (fault.kind.outage(), at) {
            (Some(Outage::Kill | Outage::Leave), Some(at)) => self.kill(at),
            (Some(Outage::Restart), Some(at)) => {
                self.faults.lift(self.workers[at].0);
                self.kill(at);
                self.bring_up(at);
            }
            (Some(Outage::Join), Some(at)) => {
                self.faults.lift(self.workers[at].0);
                self.bring_up(at);
            }
            (Some(Outage::Router), _) => self.restart_router(),
            // A worker's own, or of a worker that is not here.
            (None | Some(Outage::Kill | Outage::Leave | Outage::Restart | Outage::Join), _) => {}
        }
    }

    fn end(&mut self, number: usize) {
        self.faults.end(number);
        let fault = self.faults.get(number);
        let (kind, worker) = (fault.kind, fault.worker);
        let at = worker.and_then(|worker| self.workers.iter().position(|(id, _)| *id == worker));
        if let Some(at) = at.filter(|at| kind == FaultKind::Kill && !self.faults.keeps_down(self.workers[*at].0)) {
            self.bring_up(at);
        }
    }

    fn kill(&mut self, at: usize) {
        let node = &mut self.workers[at].1;
        node.tell(End::Kill);
        self.failed.extend(node.join().err());
    }

    fn bring_up(&mut self, at: usize) {
        if self.workers[at].1.is_up() {
            return;
        }
        if let Err(error) = self.start_worker(at) {
            self.failed.push(format!("{} did not come back: {error}", self.workers[at].1.name));
        }
    }

    fn restart_router(&mut self) {
        let Some((node, _)) = &mut self.router else { return };
        node.tell(End::Kill);
        self.failed.extend(node.join().err());
        if let Err(error) = self.start_router() {
            self.failed.push(format!("the router did not come back: {error}"));
        }
    }

    fn start_worker(&mut self, at: usize) -> std::io::Result<()> {
        let (id, node) = &mut self.workers[at];
        let config = NodeConfig {
            id: *id,
            incarnation: node.starts,
            engine: self.plan.engine.clone(),
            cluster: self.plan.cluster.clone(),
            block_size: self.plan.block_size,
            faults: self.plan.faults.clone(),
            strikes: Some(self.strikes.clone()),
        };
        let triggers = Some(Arc::clone(&self.triggers));
        let at = |port: &Port| zmq::Endpoint::from(port.address());
        let kv = self.kv.get(id).zip(self.plan.kv.clone());
        let kv =
            kv.map(|([events, replay], publisher)| KvPublishing { publisher, events: at(events), replay: at(replay) });
        let options = WorkerServerOptions { clock: self.clock, triggers, kv, ..self.plan.worker.clone() };
        node.start(move |listener, stop| serve_worker(listener, config, options, stop.wait()))
    }

    fn start_router(&mut self) -> std::io::Result<()> {
        let Some((node, behind)) = &mut self.router else { return Ok(()) };
        let options = self.plan.router(behind.clone(), self.clock, node.starts);
        node.start(move |listener, stop| serve_router(listener, options, stop.wait()))
    }
}
