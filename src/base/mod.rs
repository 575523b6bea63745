//! Vocabulary every module shares: time, ids, seeded randomness, numbers in words.
//!
//! Owns nothing that behaves: newtypes, their arithmetic and their spelling only.
//! Invariant: no clock, no global state; a [`Time`] always comes from the caller.

mod ids;
mod names;
mod rng;
mod time;
pub mod words;

pub use ids::{RequestIx, Role, SessionIx, WorkerId};
pub use names::Names;
pub use rng::Rng;
pub use time::{Dur, Time};
