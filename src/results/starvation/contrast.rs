//! [`Contrast`]: a covariate among the starved and among the others, and whether it tells them apart.

use schemars::JsonSchema;
use serde::Serialize;

use crate::results::stats::{mean, separation};

/// A trait sets the starved apart when it orders them against the others at least this well …
const TELLS_APART: f64 = 0.75;
/// … and by this many standard deviations of what chance does with as few sessions (one-sided 5 %).
const BEYOND_CHANCE: f64 = 1.645;

/// A quantity among the starved and among the others.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Contrast {
    /// Mean over the starved.
    pub starved: Option<f64>,
    /// Mean over the others.
    pub others: Option<f64>,
    /// Chance that a starved session's value exceeds another's, ties half: 0.5 is no difference.
    pub separation: Option<f64>,
}

impl Contrast {
    /// Of the values of the starved and of the others.
    pub fn of(starved: &[f64], others: &[f64]) -> Contrast {
        Contrast { starved: mean(starved), others: mean(others), separation: separation(starved, others) }
    }
}

/// Whether the starved have clearly larger values than the others: the separation of so many starved and others is large,
/// and larger than chance makes it (Mann–Whitney, normal approximation without ties: deviation √((n + m + 1) / (12·n·m))).
pub fn tells_apart(separation: f64, starved: usize, others: usize) -> bool {
    let (n, m) = (starved as f64, others as f64);
    let deviation = ((n + m + 1.0) / (12.0 * n * m)).sqrt();
    separation >= TELLS_APART && separation - 0.5 >= BEYOND_CHANCE * deviation
}
