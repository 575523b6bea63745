//! KV events over real sockets.
//!
//! Owns what of KV events needs a socket or a clock. Decides nothing about streams or the index: the machines of
//! `crate::kv` do.

pub mod ask;
mod io_words;
mod listed;
pub mod registry;
mod run;
pub mod service;
pub mod zmq;

pub use listed::{ListedRules, NobodysStreams, listed_hints};
pub use run::{RunIndex, embedded_feed};
