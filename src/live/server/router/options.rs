//! What a router's server is built from.

use std::time::Duration;

use crate::base::Dur;
use crate::cluster::RouterConfig;
use crate::live::Addresses;
use crate::live::clock::Clock;
use crate::live::server::RequestLog;
use crate::node::{RetryRule, RouterNodeConfig};

/// See the module.
#[derive(Debug, Clone)]
pub struct RouterServerOptions {
    /// Time of the emulation.
    pub clock: Clock,
    /// Where the workers are: P and D, or, with no P, colocated ones. Never empty.
    pub workers: Addresses,
    /// Policies, resolved (no `auto`).
    pub policies: RouterConfig,
    /// Failed requests are sent again; `None`: never.
    pub retry: Option<RetryRule>,
    /// Seed of the rendezvous numbers.
    pub seed: u64,
    /// Process identity; grows with each restart.
    pub incarnation: u32,
    /// Time of the emulation between two looks at a worker's health.
    pub health_every: Dur,
    /// A worker that does not answer a look within this wall time is not healthy.
    pub health_timeout: Duration,
    /// Longest wall time to connect to a worker.
    pub connect: Duration,
    /// Largest request body, bytes.
    pub body_limit: usize,
    /// Longest wall time an answer that is under way may go on after a stop.
    pub grace: Duration,
    /// Log of requests.
    pub log: Option<RequestLog>,
}

impl RouterServerOptions {
    /// In front of `workers`: round robin, no retries, a look at each worker every second.
    pub fn new(clock: Clock, workers: Addresses, policies: RouterConfig) -> RouterServerOptions {
        RouterServerOptions {
            clock,
            workers,
            policies,
            retry: None,
            seed: 0,
            incarnation: 0,
            health_every: Dur::from_millis(1000),
            health_timeout: Duration::from_secs(5),
            connect: Duration::from_secs(5),
            body_limit: 64 << 20,
            grace: Duration::from_secs(2),
            log: None,
        }
    }

    /// What the machine is built from.
    pub(super) fn node(&self) -> RouterNodeConfig {
        RouterNodeConfig {
            policies: self.policies.clone(),
            prefill: self.workers.prefill.len() as u16,
            decode: self.workers.decode.len() as u16,
            colocated: self.workers.colocated.len() as u16,
            retry: self.retry,
            // A restarted router must not repeat the numbers of the one before: P would take them for its own.
            seed: self.seed.wrapping_add(u64::from(self.incarnation)),
        }
    }
}
