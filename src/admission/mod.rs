//! Admission: may a session live on a D? Pure decisions over the replayer's own beliefs.

mod config;

pub use config::{AdmissionBy, AdmissionConfig, Footprint, SlotRelease};
