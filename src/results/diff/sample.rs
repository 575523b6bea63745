//! [`Sample`]: the values of one latency on one side, in order, each with its session.
//!
//! Percentiles of it, and of a resample of its sessions, are exact: nearest rank, as everywhere.

use super::pairing::Run;
use super::requests::NONE;
use crate::results::Percentile;

/// Values of ok, paired requests of all repeats.
#[derive(Debug, Default)]
pub(super) struct Sample {
    /// Nanoseconds, rising.
    values: Vec<u64>,
    /// Session of each value.
    sessions: Vec<u32>,
    /// Values of each session.
    pub counts: Vec<u32>,
    /// Their sum, ns.
    pub sums: Vec<f64>,
}

/// A percentile of a [`Sample`] that is to be found in many resamples.
#[derive(Debug)]
pub(super) struct Rank<'a> {
    sample: &'a Sample,
    percentile: Percentile,
    /// Where the percentile is without a resample: there a search begins.
    from: usize,
    /// Values of each session before it.
    before: Vec<u32>,
}

impl Sample {
    /// Of latency number `latency` of these runs, in which there are so many sessions.
    pub fn of(runs: &[Run], latency: usize, sessions: usize) -> Sample {
        let mut pairs: Vec<(u64, u32)> = Vec::new();
        for run in runs {
            let values = run.requests.latencies[latency].iter().enumerate();
            let counted = values.filter(|(row, value)| run.paired[*row] && **value != NONE);
            pairs.extend(counted.map(|(row, value)| (*value, run.requests.session[row])));
        }
        Sample::of_pairs(pairs, sessions)
    }

    /// Of values, each with its session.
    pub fn of_pairs(mut pairs: Vec<(u64, u32)>, sessions: usize) -> Sample {
        let (mut counts, mut sums) = (vec![0; sessions], vec![0.0; sessions]);
        pairs.sort_unstable();
        for (value, session) in &pairs {
            counts[*session as usize] += 1;
            sums[*session as usize] += *value as f64;
        }
        let (values, sessions) = pairs.into_iter().unzip();
        Sample { values, sessions, counts, sums }
    }

    /// Number of values.
    pub fn n(&self) -> u64 {
        self.values.len() as u64
    }

    /// Mean, ms.
    pub fn mean_ms(&self) -> Option<f64> {
        let sum: u128 = self.values.iter().map(|ns| u128::from(*ns)).sum();
        (self.n() > 0).then(|| sum as f64 / self.n() as f64 / 1e6)
    }

    /// A percentile of the values and of so many failures above all of them, ms; `None`: none, or a failure.
    pub fn percentile_ms(&self, percentile: Percentile, failures: u64) -> Option<f64> {
        let rank = percentile.rank(self.n() + failures) as usize;
        rank.checked_sub(1).and_then(|at| self.values.get(at)).map(|ns| *ns as f64 / 1e6)
    }

    /// To find a percentile in resamples.
    pub fn rank(&self, percentile: Percentile, failures: u64) -> Rank<'_> {
        let from = (percentile.rank(self.n() + failures) as usize).min(self.values.len());
        let mut before = vec![0; self.counts.len()];
        self.sessions[..from].iter().for_each(|session| before[*session as usize] += 1);
        Rank { sample: self, percentile, from, before }
    }
}

impl Rank<'_> {
    /// The percentile where each session counts `weights` times and there are `total` values and failures in all, ms.
    pub fn value_ms(&self, weights: &[u32], total: u64) -> Option<f64> {
        let rank = self.percentile.rank(total);
        let weight = |at: usize| u64::from(weights[self.sample.sessions[at] as usize]);
        let (mut at, mut before) = (self.from, dot(weights, &self.before));
        while before >= rank && at > 0 {
            at -= 1;
            before -= weight(at);
        }
        while at < self.sample.values.len() {
            before += weight(at);
            if before >= rank && rank > 0 {
                return Some(self.sample.values[at] as f64 / 1e6);
            }
            at += 1;
        }
        None
    }
}

/// Σ weight · count.
pub(super) fn dot(weights: &[u32], counts: &[u32]) -> u64 {
    weights.iter().zip(counts).map(|(weight, count)| u64::from(*weight) * u64::from(*count)).sum()
}

/// Σ weight · value, in four sums side by side: an order of additions that a processor can take four at a time.
pub(super) fn dot_f64(weights: &[u32], values: &[f64]) -> f64 {
    const LANES: usize = 4;
    let mut sums = [0.0; LANES];
    for (weights, values) in weights.chunks(LANES).zip(values.chunks(LANES)) {
        for ((sum, weight), value) in sums.iter_mut().zip(weights).zip(values) {
            *sum += f64::from(*weight) * value;
        }
    }
    sums.iter().sum()
}
