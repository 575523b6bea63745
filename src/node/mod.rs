//! One emulated node behind a socket: a worker, or the PD router, as a machine of its own that is told the time.
//!
//! Where `cluster` holds all nodes and the network between them in one machine for virtual time, a node here knows only
//! itself and what arrives; servers in `live` carry its messages. The engine, links, faults and router policies are the
//! same. Names (request ids, session ids, token ids) become indices and block paths here.
//! Invariant: every exchange that was opened gets exactly one end, unless its client has gone.

mod message;
mod router;
mod worker;

pub use message::{Bootstrap, Exchange, GenerateAsk, HandedOver, NodeConfig, NodeInput, NodeOutput, Progress, Refusal};
pub use router::{Chosen, Place, RetryRule, RouterNode, RouterNodeConfig, Routing, text_keys, token_keys};
pub use worker::{NodeCounters, PULL_TIMEOUT, WorkerNode};
