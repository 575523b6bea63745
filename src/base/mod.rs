//! Vocabulary every module shares: time, ids, seeded randomness, numbers in words.
//!
//! Owns nothing that behaves: newtypes, their arithmetic and their spelling, and how words, addresses and JSON of others are read.
//! Invariant: no clock, no global state; a [`Time`] always comes from the caller.

mod brief;
mod host;
mod ids;
mod json;
mod names;
mod nearest;
mod rng;
mod time;
pub mod words;

pub use brief::shortened;
pub use host::host_and_port;
pub use ids::{RequestIx, Role, SessionIx, WorkerId};
pub use json::{JsonFault, JsonFaultKind, from_json};
pub use names::Names;
pub use nearest::nearest;
pub use rng::Rng;
pub use time::{Dur, Time};
