//! Intervals by the bootstrap: sessions are drawn with replacement, each with its requests of both sides and all repeats,
//! and every figure is computed anew, exactly, on both sides.
//!
//! Paired, since a session is drawn for both sides at once; by session, since turns of one session are not independent. Each
//! resample has a stream of its own of the seeded generator, so that neither the order nor the number of threads shows.
//! The interval is that of percentiles of the resampled differences, expanded by Student's t against the narrowness of
//! small samples (Hesterberg 2015, "What teachers should know about the bootstrap", section 5.3).

use std::ops::Range;

use super::report::Interval;
use super::sample::{Rank, Sample, dot, dot_f64};
use crate::base::Rng;
use crate::results::stats::{normal_below, t_quantile};

/// Share of the resamples that must have a value on both sides.
const ENOUGH: f64 = 0.9;

/// A figure as resamples need it, on one side.
#[derive(Debug)]
pub(super) enum Target<'a> {
    /// Σ of sums over Σ of counts, scaled.
    Ratio { sums: &'a [f64], counts: &'a [u32], scale: f64 },
    /// A percentile of values, and of failures where they count.
    Rank { rank: Rank<'a>, counts: &'a [u32], failures: Option<&'a [u32]> },
}

/// The differences of each figure in some resamples; NaN where a side has no value.
pub type Draws = Vec<Vec<f64>>;

/// Draws resamples.
#[derive(Debug)]
pub(super) struct Bootstrap<'a> {
    /// A and B of each figure.
    pub targets: Vec<[Target<'a>; 2]>,
    pub sessions: usize,
    pub seed: u64,
}

impl<'a> Target<'a> {
    pub fn mean(sample: &'a Sample) -> Target<'a> {
        Target::Ratio { sums: &sample.sums, counts: &sample.counts, scale: 1e-6 }
    }

    fn value(&self, weights: &[u32]) -> Option<f64> {
        match self {
            Target::Ratio { sums, counts, scale } => {
                let n = dot(weights, counts);
                (n > 0).then(|| dot_f64(weights, sums) / n as f64 * scale)
            }
            Target::Rank { rank, counts, failures } => {
                let total = dot(weights, counts) + failures.map_or(0, |failures| dot(weights, failures));
                rank.value_ms(weights, total)
            }
        }
    }
}

impl Bootstrap<'_> {
    /// The resamples with these numbers.
    pub fn draw(&self, resamples: Range<u32>) -> Draws {
        let mut weights = vec![0u32; self.sessions];
        let mut draws: Draws = self.targets.iter().map(|_| Vec::with_capacity(resamples.len())).collect();
        for resample in resamples {
            resample_into(&mut weights, self.seed, resample);
            for (target, draws) in self.targets.iter().zip(&mut draws) {
                let [a, b] = target.each_ref().map(|side| side.value(&weights));
                draws.push(a.zip(b).map_or(f64::NAN, |(a, b)| b - a));
            }
        }
        draws
    }
}

/// How often each session is drawn, when as many are drawn as there are.
fn resample_into(weights: &mut [u32], seed: u64, resample: u32) {
    weights.fill(0);
    let mut rng = Rng::new(seed, u64::from(resample));
    let n = weights.len() as u64;
    for _ in 0..n {
        weights[rng.below(n) as usize] += 1;
    }
}

/// The interval of `confidence` of these differences, from so many sessions; `None` below two sessions, or where more
/// than a tenth of the resamples had no value.
pub(super) fn interval(draws: &[f64], confidence: f64, sessions: u64) -> Option<Interval> {
    let mut known: Vec<f64> = draws.iter().copied().filter(|draw| !draw.is_nan()).collect();
    if sessions < 2 || known.is_empty() || (known.len() as f64) < ENOUGH * draws.len() as f64 {
        return None;
    }
    known.sort_by(f64::total_cmp);
    let tail = expanded_tail(confidence, sessions)?;
    Some(Interval { lo: quantile(&known, tail), hi: quantile(&known, 1.0 - tail) })
}

/// Share of the resamples below the lower end: Φ(−√(n/(n−1)) · t(n−1)), a little less than (1 − confidence) / 2.
fn expanded_tail(confidence: f64, sessions: u64) -> Option<f64> {
    let n = sessions as f64;
    Some(normal_below(-(n / (n - 1.0)).sqrt() * t_quantile(confidence, sessions - 1)?))
}

/// Quantile of rising values, linear between them.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let at = q.clamp(0.0, 1.0) * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    below + (above - below) * at.fract()
}
