//! [`EmbeddedCluster`]: all nodes of a scenario on loopback, each a thread and a runtime of its own.
//!
//! Owns ports, threads, and the faults that start, stop or replace whole processes. Dropping a node's runtime is its
//! `kill -9`: connections break at once, and while it is down its address refuses. What a node does is its server's.
//! Invariants: a port once given to a node stays its own, up or down; every thread has ended when the cluster has.

mod node;
mod plan;
mod port;
mod supervisor;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread::JoinHandle;

use thiserror::Error;

use crate::base::WorkerId;
use crate::live::Addresses;
use crate::live::clock::Clock;

pub use plan::{ClusterPlan, KvAddress, Notify, routed};
use supervisor::{Command, Supervisor};

/// Why a cluster could not be started, or what went wrong in it.
#[derive(Debug, Error)]
pub enum ClusterError {
    /// A port cannot be had.
    #[error("no port for {name} at {address}: {source}")]
    Port {
        /// Node.
        name: String,
        /// Where it was to listen.
        address: SocketAddr,
        /// The system's words.
        source: io::Error,
    },
    /// A thread or a runtime cannot be had.
    #[error("{name} cannot start: {source}")]
    Start {
        /// Node, or the supervisor.
        name: String,
        /// The system's words.
        source: io::Error,
    },
    /// A fault that names what is not there.
    #[error("fault: {0}")]
    Fault(String),
    /// Nodes that ended by themselves or did not come back.
    #[error("{}", .0.join("; "))]
    Nodes(Vec<String>),
}

/// See the module. Dropping it kills every node and waits for its threads.
#[derive(Debug)]
pub struct EmbeddedCluster {
    addresses: Addresses,
    kv: BTreeMap<WorkerId, KvAddress>,
    clock: Clock,
    supervisor: Option<(mpsc::Sender<Command>, JoinHandle<Vec<String>>)>,
}

impl EmbeddedCluster {
    /// Starts every worker that is there from the beginning, then the router. When it returns all of them listen, and
    /// the clock, from which fault times count, has just begun.
    /// Errors: a port or a thread cannot be had, a fault names no worker.
    pub fn start(plan: ClusterPlan) -> Result<EmbeddedCluster, ClusterError> {
        let clock = Clock::start(plan.speed);
        let (mut supervisor, addresses) = Supervisor::new(plan, clock)?;
        supervisor.start_all()?;
        let kv = supervisor.kv_addresses();
        let (commands, inbox) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("supervisor".into())
            .spawn(move || supervisor.run(&inbox))
            .map_err(|source| ClusterError::Start { name: "the supervisor".into(), source })?;
        Ok(EmbeddedCluster { addresses, kv, clock, supervisor: Some((commands, thread)) })
    }

    /// Where everything is.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Where KV events are published, of every worker that publishes.
    pub fn kv_addresses(&self) -> &BTreeMap<WorkerId, KvAddress> {
        &self.kv
    }

    /// The time all nodes share.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Lets answers that are under way end within the grace of the plan, then ends every node. Error: a node that had
    /// failed before.
    pub fn stop(mut self) -> Result<(), ClusterError> {
        let failed = self.end(Command::Stop);
        if failed.is_empty() { Ok(()) } else { Err(ClusterError::Nodes(failed)) }
    }

    fn end(&mut self, command: Command) -> Vec<String> {
        let Some((commands, thread)) = self.supervisor.take() else { return Vec::new() };
        // A supervisor that has gone has panicked, which its join tells.
        let _ = commands.send(command);
        thread.join().unwrap_or_else(|_| vec!["the supervisor panicked".into()])
    }
}

impl Drop for EmbeddedCluster {
    fn drop(&mut self) {
        self.end(Command::Kill);
    }
}
