//! KV links: one egress per prefill worker, one ingress per decode worker, each shared evenly by its transfers.
//!
//! A transfer moves at the smaller of its two shares; shares change whenever a transfer starts or ends.
//! Invariant: the next end is always known while a transfer moves.

use crate::base::{RequestIx, Role, Time, WorkerId};
use crate::cluster::{FaultKind, Faults};

/// See the module.
#[derive(Debug, Default)]
pub struct Links {
    flows: Vec<Flow>,
    egress: Vec<Port>,
    ingress: Vec<Port>,
    moved_at: Time,
}

#[derive(Debug)]
struct Flow {
    request: RequestIx,
    from: usize,
    to: usize,
    bytes_left: f64,
    // Slow-down of this pair.
    factor: f64,
    bytes_per_ns: f64,
}

#[derive(Debug, Clone)]
struct Port {
    bytes_per_ns: f64,
    factor: f64,
    flows: u32,
    // What the port's owner says of its flows, for who does not see all of them.
    told: u32,
}

impl Links {
    /// Idle links of so many workers, `gbytes_per_s` (10⁹ bytes) each way.
    pub fn new(prefill: usize, decode: usize, gbytes_per_s: f64) -> Links {
        let port = Port { bytes_per_ns: gbytes_per_s, factor: 1.0, flows: 0, told: 0 };
        Links {
            flows: Vec::new(),
            egress: vec![port.clone(); prefill],
            ingress: vec![port; decode],
            moved_at: Time::ZERO,
        }
    }

    /// Starts moving `bytes` from prefill worker `from` to decode worker `to`, `factor` times slower than normal.
    pub fn start(&mut self, now: Time, request: RequestIx, (from, to): (usize, usize), bytes: u64, factor: f64) {
        self.advance(now);
        self.egress[from].flows += 1;
        self.ingress[to].flows += 1;
        self.flows.push(Flow { request, from, to, bytes_left: bytes as f64, factor, bytes_per_ns: 0.0 });
        self.share();
    }

    /// Takes a transfer off the link, wherever it is. No effect when it does not move.
    pub fn cancel(&mut self, now: Time, request: RequestIx) {
        self.advance(now);
        if let Some(at) = self.flows.iter().position(|flow| flow.request == request) {
            self.remove(at);
            self.share();
        }
    }

    /// Takes over how slow `faults` make the links of `worker`, or those to `to` alone.
    pub fn slow(&mut self, now: Time, faults: &Faults, worker: WorkerId, to: Option<WorkerId>) {
        match to {
            None => self.set_worker_factor(now, worker, faults.slowdown(FaultKind::SlowLink, worker)),
            Some(to) => {
                let pair = (worker.index.into(), to.index.into());
                self.set_pair_factor(now, pair, faults.pair_factor(worker, to));
            }
        }
    }

    /// Slows all links of a worker down (1 is normal). A colocated worker has none.
    fn set_worker_factor(&mut self, now: Time, worker: WorkerId, factor: f64) {
        self.advance(now);
        match worker.role {
            Role::Prefill => self.egress[usize::from(worker.index)].factor = factor,
            Role::Decode => self.ingress[usize::from(worker.index)].factor = factor,
            Role::Colocated => {}
        }
        self.share();
    }

    /// Slows the transfers that move between two workers down.
    fn set_pair_factor(&mut self, now: Time, (from, to): (usize, usize), factor: f64) {
        self.advance(now);
        for flow in self.flows.iter_mut().filter(|flow| (flow.from, flow.to) == (from, to)) {
            flow.factor = factor;
        }
        self.share();
    }

    /// Decode worker `to` says that `flows` transfers share its ingress, seen and unseen ones.
    pub fn tell_ingress(&mut self, now: Time, to: usize, flows: u32) {
        self.advance(now);
        self.ingress[to].told = flows;
        self.share();
    }

    /// Transfers that have ended by now, in order of their start.
    pub fn ended(&mut self, now: Time) -> Vec<RequestIx> {
        self.advance(now);
        let mut ended = Vec::new();
        let mut at = 0;
        while at < self.flows.len() {
            if self.flows[at].bytes_left <= 0.0 {
                ended.push(self.flows[at].request);
                self.remove(at);
            } else {
                at += 1;
            }
        }
        if !ended.is_empty() {
            self.share();
        }
        ended
    }

    /// When the next transfer ends if nothing changes.
    pub fn next_end(&self) -> Option<Time> {
        let left = |flow: &Flow| (flow.bytes_left / flow.bytes_per_ns).ceil().max(0.0) as u64;
        self.flows.iter().map(|flow| Time(self.moved_at.ns().saturating_add(left(flow)))).min()
    }

    fn advance(&mut self, now: Time) {
        let elapsed = now.since(self.moved_at).ns() as f64;
        if elapsed > 0.0 {
            for flow in &mut self.flows {
                flow.bytes_left -= flow.bytes_per_ns * elapsed;
                // Less than a byte is rounding.
                if flow.bytes_left < 0.5 {
                    flow.bytes_left = 0.0;
                }
            }
        }
        self.moved_at = self.moved_at.max(now);
    }

    fn share(&mut self) {
        let share = |port: &Port| port.bytes_per_ns / port.factor / f64::from(port.flows.max(port.told).max(1));
        for flow in &mut self.flows {
            flow.bytes_per_ns = share(&self.egress[flow.from]).min(share(&self.ingress[flow.to])) / flow.factor;
        }
    }

    fn remove(&mut self, at: usize) {
        let flow = self.flows.remove(at);
        self.egress[flow.from].flows -= 1;
        self.ingress[flow.to].flows -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concurrent_transfers_share_the_narrower_end() {
        let mut links = Links::new(2, 2, 2.5);
        links.start(Time(0), RequestIx(0), (0, 0), 2_500_000_000, 1.0);
        assert_eq!(links.next_end(), Some(Time(1_000_000_000)));
        links.start(Time(500_000_000), RequestIx(1), (0, 1), 2_500_000_000, 1.0);
        assert_eq!(links.next_end(), Some(Time(1_500_000_000)), "half the egress each");
        assert_eq!(links.ended(Time(1_500_000_000)), vec![RequestIx(0)]);
        assert_eq!(links.next_end(), Some(Time(2_000_000_000)));
        links.cancel(Time(1_600_000_000), RequestIx(1));
        assert_eq!(links.next_end(), None);
    }

    #[test]
    fn an_ingress_that_others_use_is_shared_with_them() {
        let mut links = Links::new(1, 2, 2.5);
        links.start(Time(0), RequestIx(0), (0, 1), 2_500_000_000, 1.0);
        links.tell_ingress(Time(500_000_000), 1, 2);
        assert_eq!(links.next_end(), Some(Time(1_500_000_000)), "this one and an unseen one");
        links.tell_ingress(Time(1_000_000_000), 1, 0);
        assert_eq!(links.next_end(), Some(Time(1_250_000_000)), "this one counts anyway");
    }

    #[test]
    fn a_slow_end_or_pair_slows_its_transfers() {
        let mut links = Links::new(1, 2, 2.5);
        links.start(Time(0), RequestIx(0), (0, 1), 2_500_000_000, 2.0);
        links.set_worker_factor(Time(0), WorkerId::new(Role::Prefill, 0), 5.0);
        assert_eq!(links.next_end(), Some(Time(10_000_000_000)));
        links.set_worker_factor(Time(0), WorkerId::new(Role::Decode, 1), 50.0);
        links.set_worker_factor(Time(0), WorkerId::new(Role::Decode, 0), 500.0);
        assert_eq!(links.next_end(), Some(Time(100_000_000_000)));
        links.set_pair_factor(Time(50_000_000_000), (0, 1), 1.0);
        assert_eq!(links.next_end(), Some(Time(75_000_000_000)));
    }
}
