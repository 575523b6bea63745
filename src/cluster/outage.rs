//! What faults do to workers, links and the router, and how discovery tells.

use crate::base::Dur;
use crate::cluster::machine::{Cluster, Message, Notice};
use crate::cluster::report::Process;
use crate::cluster::router::PdRouter;
use crate::cluster::{Fault, FaultKind, Outage};
use crate::engine::{Cx, Worker};
use crate::protocol::{Event, WorkerState};

impl Cluster {
    pub(super) fn begin_fault(&mut self, cx: Cx<'_>, number: usize) {
        self.faults.begin(number);
        let fault = self.faults.get(number).clone();
        self.notices.push_back(Notice::Fault { kind: fault.kind, worker: fault.worker });
        if let Some(duration) = fault.duration {
            self.schedule(cx.now + duration, Message::FaultEnds(number));
        }
        let site = fault.worker.map(|worker| self.site(worker));
        match (fault.kind.outage(), site) {
            (Some(Outage::Kill), Some(site)) => self.kill(cx, site, WorkerState::Down),
            (Some(Outage::Leave), Some(site)) => self.kill(cx, site, WorkerState::Gone),
            (Some(Outage::Restart), Some(site)) => self.restart(cx, site),
            (Some(Outage::Join), Some(site)) => {
                self.faults.lift(self.sites[site].id);
                self.bring_up(cx, site);
            }
            (Some(Outage::Router), _) => self.router = PdRouter::new(&self.config.router),
            (None, Some(site)) if fault.kind == FaultKind::PublisherRestart => self.restart_publisher(cx, site),
            (None, site) if fault.kind == FaultKind::KvEndpointWrong => self.lose_address(cx, site),
            (None, _) => self.set_speeds(cx, &fault),
            (Some(Outage::Kill | Outage::Leave | Outage::Restart | Outage::Join), None) => {
                panic!("the scenario was checked: {:?} names its worker", fault.kind)
            }
        }
    }

    pub(super) fn end_fault(&mut self, cx: Cx<'_>, number: usize) {
        self.faults.end(number);
        let fault = self.faults.get(number).clone();
        let site = fault.worker.map(|worker| self.site(worker));
        match (fault.kind.outage(), site) {
            (Some(Outage::Kill), Some(site)) if !self.faults.keeps_down(self.sites[site].id) => self.bring_up(cx, site),
            (None, site) if fault.kind == FaultKind::KvEndpointWrong => self.find_address(cx, site),
            (None, _) => self.set_speeds(cx, &fault),
            (Some(Outage::Kill | Outage::Leave | Outage::Restart | Outage::Join | Outage::Router), _) => {}
        }
    }

    /// Discovery has noticed: the router and the client know from now on. News of a process that is gone is void.
    pub(super) fn discovered(&mut self, site: usize, state: WorkerState) {
        let place = &mut self.sites[site];
        let current = match state {
            WorkerState::Up { incarnation } => place.worker.is_some() && place.incarnation == incarnation,
            WorkerState::Down | WorkerState::Gone => place.worker.is_none(),
        };
        if current {
            place.eligible = place.worker.is_some();
            self.events.push_back(Event::WorkerChanged { worker: place.id, state });
        }
    }

    fn kill(&mut self, cx: Cx<'_>, site: usize, state: WorkerState) {
        let Some(worker) = self.sites[site].worker.take() else { return };
        self.close_outlet(cx, site);
        let past = Process::of(&worker);
        let crash = worker.crash(cx.now);
        self.sites[site].wake = None;
        self.sites[site].past.push(Process { stats: crash.stats, ..past });
        for done in crash.requests {
            self.leg_done(cx, cx.now, site, done);
        }
        for call in crash.calls {
            self.refuse_connection(cx, self.sites[site].id, call);
        }
        let delay = Dur::from_millis(self.config.discovery_delay_ms);
        self.schedule(cx.now + delay, Message::Discovered { site, state });
    }

    fn restart(&mut self, cx: Cx<'_>, site: usize) {
        self.faults.lift(self.sites[site].id);
        self.kill(cx, site, WorkerState::Down);
        self.bring_up(cx, site);
    }

    fn bring_up(&mut self, cx: Cx<'_>, site: usize) {
        let place = &mut self.sites[site];
        if place.worker.is_some() {
            return;
        }
        if !place.past.is_empty() {
            place.incarnation += 1;
            place.restarts += 1;
        }
        let mut worker = Worker::new(place.id, place.incarnation, &self.engine, self.block_size);
        worker.set_slow_factor(cx.now, self.faults.slowdown(FaultKind::SlowWorker, place.id));
        place.worker = Some(worker);
        self.open_outlet(cx, site);
        let place = &self.sites[site];
        let state = WorkerState::Up { incarnation: place.incarnation };
        let delay = Dur::from_millis(self.config.discovery_delay_ms);
        self.schedule(cx.now + delay, Message::Discovered { site, state });
    }

    /// The other kinds are looked up when a message or transfer comes along.
    fn set_speeds(&mut self, cx: Cx<'_>, fault: &Fault) {
        let Some(worker) = fault.worker else { return };
        if fault.kind == FaultKind::SlowWorker {
            self.set_speed(cx, self.site(worker));
        }
        if fault.kind == FaultKind::SlowLink {
            self.links.slow(cx.now, &self.faults, worker, fault.to);
            self.replan_links();
        }
    }

    /// Slow-downs of one worker multiply, so that the end of one leaves the others.
    fn set_speed(&mut self, cx: Cx<'_>, site: usize) {
        let factor = self.faults.slowdown(FaultKind::SlowWorker, self.sites[site].id);
        if let Some(worker) = &mut self.sites[site].worker {
            worker.set_slow_factor(cx.now, factor);
            self.drain(cx, site);
        }
    }
}
