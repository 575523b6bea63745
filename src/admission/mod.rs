//! Admission: may a session live on a D? Pure decisions over the replayer's own beliefs.
//!
//! Owns the soft cap and the router's own verdicts on appends and seeds. Asking the D is the replayer's business.
//! Invariant: a verdict changes nothing; what must be dropped for it is listed in it.

mod cap;
mod config;
mod router;

#[cfg(test)]
mod tests;

pub use cap::{TurnSize, soft_cap};
pub use config::{AdmissionBy, AdmissionConfig, Footprint, SlotRelease};
pub use router::{AppendVerdict, Room, SeedAsk, SeedRejection, SeedVerdict, admit_append, admit_seed};
