//! Vocabulary every module shares: time, ids, seeded randomness.
//!
//! Owns nothing that behaves: newtypes and their arithmetic only.
//! Invariant: no clock, no global state; a [`Time`] always comes from the caller.

mod ids;
mod rng;
mod time;

pub use ids::{RequestIx, Role, SessionIx, WorkerId};
pub use rng::Rng;
pub use time::{Dur, Time};
