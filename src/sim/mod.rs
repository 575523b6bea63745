//! Driver in virtual time: an event heap between the replayer and the emulated cluster. Never sleeps, decides nothing.
//!
//! Invariant: the earliest event first, ties in order of creation; a run that stops making progress fails loudly.

mod follow;
mod guard;
mod run;

pub use run::{SimError, drive, run};
