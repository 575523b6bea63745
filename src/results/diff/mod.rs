//! Two runs, or two groups of repeats, against each other.
//!
//! Owns pairing, refusals, deltas with their intervals, the split by mode, transitions, sessions starved and freed, noise
//! and thresholds. Touches no file, clock or thread: it takes records and summaries and ends in a [`DiffReport`].

mod report;

pub use report::*;
