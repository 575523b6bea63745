//! KV events over real sockets.
//!
//! Owns what of KV events needs a socket or a clock. Decides nothing about streams or the index: the machines of
//! `crate::kv` do.

pub mod ask;
mod coverage;
mod io_words;
pub mod registry;
mod run;
pub mod service;
mod whose;
pub mod zmq;

pub use coverage::{Covered, IndexFault, Uncovered, followed_faults, no_file_fault, source_faults, unseen};
pub use run::{RunIndex, embedded_feed};
