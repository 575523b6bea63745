//! What a cluster is built from, and the addresses that follow.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use crate::base::{Dur, Role};
use crate::cluster::{ClusterConfig, FaultConfig, Notice};
use crate::engine::EngineConfig;
use crate::kv::publish::PublisherOptions;
use crate::live::Addresses;
use crate::live::clock::Clock;
use crate::live::server::{RouterServerOptions, WorkerServerOptions};
use crate::node::RetryRule;

/// Is told what an operator would see: faults as they begin.
#[derive(Clone)]
pub struct Notify(Arc<dyn Fn(Notice) + Send + Sync>);

impl Notify {
    /// `tell` is called on the supervisor's thread and must not wait long.
    pub fn new(tell: impl Fn(Notice) + Send + Sync + 'static) -> Notify {
        Notify(Arc::new(tell))
    }

    pub(super) fn tell(&self, notice: Notice) {
        (self.0)(notice);
    }
}

impl fmt::Debug for Notify {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Notify")
    }
}

/// See the module.
#[derive(Debug, Clone)]
pub struct ClusterPlan {
    /// Shape, router policies resolved (no `auto`).
    pub cluster: ClusterConfig,
    /// Every worker.
    pub engine: EngineConfig,
    /// What goes wrong. Times count from the start of the cluster.
    pub faults: Vec<FaultConfig>,
    /// Tokens a block of the prefix caches.
    pub block_size: u32,
    /// Seed of the router's rendezvous numbers.
    pub seed: u64,
    /// How many times faster than real time it goes, above 0.
    pub speed: f64,
    /// Address to listen at.
    pub host: IpAddr,
    /// Port of the router; P0, P1, …, D0, …, W0, … have the ones after it. `None`: any that are free.
    pub base_port: Option<u16>,
    /// Options of every worker; the clock in it is replaced by the cluster's own.
    pub worker: WorkerServerOptions,
    /// The router sends failed requests again.
    pub retry: Option<RetryRule>,
    /// Is told of faults.
    pub notify: Option<Notify>,
    /// What every worker with a cache publishes; `None`: nothing.
    pub kv: Option<PublisherOptions>,
}

/// Ports above a worker's own where it publishes KV events, and where it answers requests for past ones, when ports are not
/// any that are free: those of the xLLM service, which discovery takes unless it is told others.
const KV_PORTS: [u16; 2] = [10_000, 30_000];

/// Where a worker publishes KV events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvAddress {
    /// What happens.
    pub events: SocketAddr,
    /// What happened.
    pub replay: SocketAddr,
}

impl ClusterPlan {
    /// On any free ports of loopback, in real time, without retries.
    pub fn new(cluster: ClusterConfig, engine: EngineConfig, block_size: u32) -> ClusterPlan {
        ClusterPlan {
            cluster,
            engine,
            faults: Vec::new(),
            block_size,
            seed: 0,
            speed: 1.0,
            host: Ipv4Addr::LOCALHOST.into(),
            base_port: None,
            worker: WorkerServerOptions::new(Clock::start(1.0)),
            retry: None,
            notify: None,
            kv: None,
        }
    }

    /// Where the node that comes `nth` in the order of the ports is to listen.
    pub(super) fn address(&self, nth: usize) -> SocketAddr {
        let port = self.base_port.map_or(0, |base| base.saturating_add(nth as u16));
        SocketAddr::new(self.host, port)
    }

    /// Where the worker at `http` is to publish.
    pub(super) fn kv_addresses(&self, http: SocketAddr) -> [SocketAddr; 2] {
        let port = |above: u16| self.base_port.and_then(|_| http.port().checked_add(above)).unwrap_or(0);
        KV_PORTS.map(|above| SocketAddr::new(self.host, port(above)))
    }

    /// Whether a worker has a cache to tell of.
    pub(super) fn publishes(&self, role: Role) -> bool {
        self.kv.is_some() && (role != Role::Decode || self.engine.decode_radix_cache)
    }

    /// Options of the router in front of these workers.
    pub(super) fn router(&self, workers: Addresses, clock: Clock, incarnation: u32) -> RouterServerOptions {
        RouterServerOptions {
            retry: self.retry,
            seed: self.seed,
            incarnation,
            // Discovery is late by up to this; a scenario without delay looks as often as is sensible.
            health_every: Dur::from_millis(self.cluster.discovery_delay_ms.max(1)),
            grace: self.worker.grace,
            body_limit: self.worker.body_limit,
            log: self.worker.log.clone(),
            ..RouterServerOptions::new(clock, workers, self.cluster.router.clone())
        }
    }
}

/// The workers a router can stand in front of: P and D, or without one of them the colocated ones. `None`: neither.
pub fn routed(all: &Addresses) -> Option<Addresses> {
    let pairs = !all.prefill.is_empty() && !all.decode.is_empty();
    if pairs {
        return Some(Addresses { router: None, colocated: Vec::new(), ..all.clone() });
    }
    let alone = Addresses { colocated: all.colocated.clone(), ..Addresses::default() };
    (!alone.colocated.is_empty()).then_some(alone)
}
