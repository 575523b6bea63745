//! Replays recorded agentic LLM traces against prefill/decode disaggregated clusters.
//!
//! Modules in reading order; `docs/architecture.md` has the map, and a test holds the edges.

pub mod admission;
pub mod base;
pub mod cli;
pub mod cluster;
pub mod engine;
pub mod kv;
pub mod live;
pub mod node;
pub mod policies;
pub mod protocol;
pub mod record;
pub mod replay;
pub mod results;
pub mod scenario;
pub mod sessions;
pub mod sim;
pub mod trace;
