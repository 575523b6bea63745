//! [`Embedded`]: the emulated cluster of a scenario, started for one run, and what it says of its faults.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::mpsc::{Receiver, channel};

use crate::base::{Dur, WorkerId};
use crate::cluster::{FaultConfig, Notice};
use crate::live::clock::Clock;
use crate::live::cluster::{ClusterError, ClusterPlan, EmbeddedCluster, KvAddress, Notify};
use crate::live::{Addresses, Heard};
use crate::record::LedgerKind;
use crate::scenario::{Scenario, Setup, fault_label};

/// Word of faults, for the ledger of the run.
pub type Notices = Receiver<Heard>;

/// Words of faults that may wait; a run takes them in at once, and none is lost before it begins.
const NOTICES: usize = 4096;

/// Wall time between the start of a cluster with timed faults and that of the run, whose clock the faults go by.
const LEAD: Duration = Duration::from_millis(400);

/// See the module. Dropping it ends every node.
#[derive(Debug)]
pub struct Embedded {
    cluster: EmbeddedCluster,
    lead: Dur,
    notices: Option<Notices>,
}

impl Embedded {
    /// Starts the cluster that `setup` was made of, on free loopback ports.
    pub fn start(scenario: &Scenario, setup: &Setup, block_size: u32) -> Result<Embedded, ClusterError> {
        let (told, notices) = channel(NOTICES);
        let tell = move |notice| {
            if let Notice::Fault { kind, worker } = notice {
                // A run that has ended hears no more, and one so far behind has lines enough.
                let _ = told.try_send(Heard::Notice {
                    kind: LedgerKind::Fault,
                    worker,
                    detail: fault_label(kind).to_owned(),
                });
            }
        };
        let timed = scenario.fault.iter().any(is_timed);
        let lead = if timed { LEAD.mul_f64(scenario.live.emulation_speed) } else { Duration::ZERO };
        let cluster = EmbeddedCluster::start(ClusterPlan {
            faults: scenario.fault.iter().map(|fault| later(fault, lead)).collect(),
            seed: scenario.seed,
            speed: scenario.live.emulation_speed,
            notify: Some(Notify::new(tell)),
            kv: setup.kv.as_ref().map(|kv| kv.publishing.options.clone()),
            ..ClusterPlan::new(setup.cluster.clone(), setup.engine.clone(), block_size)
        })?;
        Ok(Embedded { cluster, lead: Dur(lead.as_nanos() as u64), notices: Some(notices) })
    }

    /// Where everything is.
    pub fn addresses(&self) -> &Addresses {
        self.cluster.addresses()
    }

    /// Where KV events are published, of every worker that publishes.
    pub fn kv_addresses(&self) -> &BTreeMap<WorkerId, KvAddress> {
        self.cluster.kv_addresses()
    }

    /// The clock of the run, by which the faults go: ahead of now unless looking at the cluster took long.
    pub fn clock(&self) -> Option<Clock> {
        (self.lead > Dur::ZERO).then(|| self.cluster.clock().later(self.lead))
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

fn is_timed(fault: &FaultConfig) -> bool {
    fault.after_requests.is_none()
}

/// The fault by the clock of a cluster that starts `lead` before the run.
fn later(fault: &FaultConfig, lead: Duration) -> FaultConfig {
    let at_s = is_timed(fault).then(|| fault.at_s.unwrap_or(0.0) + lead.as_secs_f64());
    FaultConfig { at_s: at_s.or(fault.at_s), ..fault.clone() }
}
