//! [`Embedded`]: the emulated cluster of a scenario, started for one run, and what it says of its faults.

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::cluster::Notice;
use crate::live::cluster::{ClusterError, ClusterPlan, EmbeddedCluster, Notify};
use crate::live::{Addresses, Heard};
use crate::record::LedgerKind;
use crate::scenario::{Scenario, Setup, fault_label};

/// Word of faults, for the ledger of the run.
pub type Notices = UnboundedReceiver<Heard>;

/// See the module. Dropping it ends every node.
#[derive(Debug)]
pub struct Embedded {
    cluster: EmbeddedCluster,
    notices: Option<Notices>,
}

impl Embedded {
    /// Starts the cluster that `setup` was made of, on free loopback ports.
    pub fn start(scenario: &Scenario, setup: &Setup, block_size: u32) -> Result<Embedded, ClusterError> {
        let (told, notices) = unbounded_channel();
        let tell = move |notice| {
            if let Notice::Fault { kind, worker } = notice {
                // A run that has ended hears no more.
                let _ =
                    told.send(Heard::Notice { kind: LedgerKind::Fault, worker, detail: fault_label(kind).to_owned() });
            }
        };
        let cluster = EmbeddedCluster::start(ClusterPlan {
            faults: scenario.fault.clone(),
            seed: scenario.seed,
            speed: scenario.live.emulation_speed,
            notify: Some(Notify::new(tell)),
            ..ClusterPlan::new(setup.cluster.clone(), setup.engine.clone(), block_size)
        })?;
        Ok(Embedded { cluster, notices: Some(notices) })
    }

    /// Where everything is.
    pub fn addresses(&self) -> &Addresses {
        self.cluster.addresses()
    }

    /// Word of faults; once.
    pub fn notices(&mut self) -> Option<Notices> {
        self.notices.take()
    }

    /// Ends every node. Error: one that failed by itself during the run.
    pub fn stop(self) -> Result<(), ClusterError> {
        self.cluster.stop()
    }
}
