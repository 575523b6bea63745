//! Who starves in a run, and why.
//!
//! A session starves when less than a fifth of its later turns go direct, and not only because its first placement was among the
//! few; beside the others, when more than a fifth of the run's do.
//! [`assess`] takes the session table and gives [`Fairness`]: the spread of the direct share (histogram, bimodality, two
//! peaks), how unequal the sessions' mean E2E is (Gini, Jain), the list of the starved with the covariates that may set them
//! apart ([`Contrast`]: peak input, arrival, believed usage) and where they were pinned. `diagnose` turns what the run left
//! into [`Cause`]s, each with its evidence, and the sentence of a [`CauseLine`]. The statistics themselves are in
//! [`crate::results::stats`]. Invariant: a cause is computed, never assumed, and has its numbers beside it.

mod cause;
mod contrast;
mod diagnose;
mod fairness;
mod gaps;
mod pace;
mod prefill;
mod sentence;
mod starved;
#[cfg(test)]
mod tests;

pub use cause::{
    BusiestLink, Cause, CauseLine, CounterDrift, EndedSlots, HandOff, HotDecoder, NoHits, PaceOf, PartlyBlind, Room,
    SlotShortage, SlowWorker,
};
pub use contrast::{Contrast, tells_apart};
pub(in crate::results) use diagnose::{Diagnosis, Signals, diagnose};
pub use fairness::{Fairness, STARVED_BELOW, assess};
pub use starved::{Pinned, Starved};
