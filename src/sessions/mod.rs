//! Sessions as the replayer believes them: what is resident where, who holds a slot, since when.
//!
//! Beliefs, not facts: a worker's word corrects them. Does not decide who may live where (admission) and sends nothing.
//! Invariant: a session has at most one residence and at most one slot; the per-worker sets and sums are exactly what
//! the sessions say.

mod given_back;
mod state;
mod table;
mod worker;

#[cfg(test)]
mod tests;

pub use state::{Append, Loss, Residence, SessionState};
pub use table::SessionTable;
