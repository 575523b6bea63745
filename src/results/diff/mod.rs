//! Two runs, or two groups of repeats, against each other.
//!
//! Owns pairing, refusals, deltas with their intervals, the split by mode, transitions, sessions starved and freed, noise
//! and thresholds. Touches no file, clock or thread: it takes records and summaries and ends in a [`DiffReport`].

mod assemble;
mod bootstrap;
mod changes;
mod compare;
mod metrics;
mod noise;
mod pairing;
mod refuse;
mod report;
mod requests;
mod sample;
mod sessions;
mod split;
#[cfg(test)]
mod tests;
mod threshold;
mod workers;

pub use bootstrap::Draws;
pub use compare::{Comparison, Made, Options, Resampler, RunInput, SideInput, figure_names};
pub use refuse::{Origin, Refused};
pub use report::*;
pub use requests::{COLUMNS, Requests};
pub use threshold::{GRAMMAR, Threshold, ThresholdError};
