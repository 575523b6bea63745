//! The soft cap: how many sessions may live on a D at once.
//!
//! `soft cap = max(1, min(cap_max, usable_capacity_tokens / target_tokens))`, and `cap_max` while the capacity is
//! unknown (reference/001, v3 and v4).

use crate::admission::{AdmissionConfig, Footprint};

/// Size of the turn that asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnSize {
    /// It is the first turn of its session in the trace.
    pub first: bool,
    /// Prompt tokens.
    pub input_tokens: u32,
    /// Of those, present after the previous turn.
    pub cached_tokens: u32,
    /// Answer tokens asked for.
    pub output_tokens: u32,
}

impl TurnSize {
    /// How large the session is taken to be (reference/003 §6), at least 1.
    pub fn target_tokens(self, footprint: Footprint) -> u64 {
        let full = u64::from(self.input_tokens) + u64::from(self.output_tokens);
        let incremental =
            || u64::from(self.input_tokens.saturating_sub(self.cached_tokens)) + u64::from(self.output_tokens);
        let tokens = match footprint {
            Footprint::Full => full,
            Footprint::Incremental if self.first => full,
            Footprint::Incremental => incremental(),
        };
        tokens.max(1)
    }
}

/// Most sessions on a D for a turn of this size. `usable_tokens` is `None` while the capacity is unknown.
pub fn soft_cap(config: &AdmissionConfig, usable_tokens: Option<u64>, size: TurnSize) -> u32 {
    let by_capacity = usable_tokens.map(|usable| usable / size.target_tokens(config.footprint));
    let cap = by_capacity.map_or(u64::from(config.cap_max), |fits| fits.min(u64::from(config.cap_max)));
    u32::try_from(cap).unwrap_or(u32::MAX).max(1)
}
