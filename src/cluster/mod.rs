//! The emulated P/D cluster: workers, PD router, hand-off, links and faults, as one machine told the time.
//!
//! Takes a client's [`crate::protocol::Action`]s, gives back [`crate::protocol::Event`]s. Knows nothing of traces,
//! policies or the replayer; the PD router's choices are its own.

mod affinity;
mod agenda;
mod config;
mod faults;
mod flight;
mod links;
mod machine;
mod outage;
mod outlet;
mod publish;
mod report;
mod route;
mod router;
mod site;
#[cfg(test)]
mod tests;
mod transfer;

pub use agenda::Agenda;
pub use config::{ClusterConfig, FaultConfig, FaultKind, LinkConfig, Outage, RouterConfig, RouterPolicy};
pub use faults::{Fault, Faults, Strikes};
pub use links::Links;
pub use machine::{Cluster, Notice};
pub use outlet::{Outlet, Telling};
pub use publish::{KvWord, Publishing};
pub use report::{Process, worker_record};
pub use router::{Eligible, PdRouter, RouteAsk, Wish, prefix_keys};
