//! A worker's address in the cluster, whoever runs there.

use crate::base::{Time, WorkerId};
use crate::cluster::outlet::Outlet;
use crate::cluster::publish::Connection;
use crate::cluster::report::Process;
use crate::engine::{EngineConfig, Worker};

/// A worker's address, whoever runs there.
#[derive(Debug)]
pub(super) struct Site {
    pub id: WorkerId,
    pub worker: Option<Worker>,
    pub incarnation: u32,
    /// The router takes it for alive.
    pub eligible: bool,
    /// Requests routed there and not ended.
    pub in_flight: u32,
    pub restarts: u32,
    pub transfer_errors: u64,
    /// Counters of the processes that died here.
    pub past: Vec<Process>,
    /// When the worker's next wake is scheduled.
    pub wake: Option<Time>,
    /// Publisher of KV events, where there is one.
    pub outlet: Option<Outlet>,
    /// The subscriber's connection to it.
    pub connection: Connection,
}

impl Site {
    pub fn new(id: WorkerId, engine: &EngineConfig, block_size: u32, present: bool) -> Site {
        Site {
            id,
            worker: present.then(|| Worker::new(id, 0, engine, block_size)),
            incarnation: 0,
            eligible: present,
            in_flight: 0,
            restarts: 0,
            transfer_errors: 0,
            past: Vec::new(),
            wake: None,
            outlet: None,
            connection: Connection::default(),
        }
    }
}
