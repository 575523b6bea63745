//! The emulated P/D cluster: workers, PD router, hand-off, links and faults, as one machine told the time.

mod config;

pub use config::{ClusterConfig, FaultConfig, FaultKind, LinkConfig, RouterConfig, RouterPolicy};
