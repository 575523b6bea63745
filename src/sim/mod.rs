//! Driver in virtual time: an event heap between the replayer and the emulated cluster. Never sleeps, decides nothing.
//!
//! Invariant: the earliest event first, ties in order of creation; a run that stops making progress fails loudly.

mod guard;
mod observer;
mod run;

pub use observer::{Observer, Progress, RunEnd, RunStatus};
pub use run::{SimError, drive, run};
