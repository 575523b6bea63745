//! How large a difference chance makes, from repeats of the same run.
//!
//! A figure of repeats scatters with a pooled deviation s; a difference of means of n_A and n_B such runs then lies within
//! t · s · √(1/n_A + 1/n_B) of 0, where t is Student's at as many degrees of freedom as s has (Welch's refinement would need
//! more repeats than people make). Percentiles of a summary have three digits: no noise is taken for less than those, but for
//! counts, and without repeats a difference below them is none.

use crate::results::stats::t_quantile;
use crate::results::{Figure, RunSummary};

/// Relative precision of a percentile of a summary; a smaller difference of anything but a count is none.
const RESOLUTION: f64 = 0.0005;

/// Repeats of both sides, and how many runs of each are compared.
#[derive(Debug)]
pub(super) struct Noise<'a> {
    pub a: Vec<&'a RunSummary>,
    pub b: Vec<&'a RunSummary>,
    pub compared: (usize, usize),
    pub confidence: f64,
}

impl Noise<'_> {
    /// There are repeats to learn from.
    pub fn is_known(&self) -> bool {
        self.a.len() > 1 || self.b.len() > 1
    }

    /// Half width of what chance makes of a difference in this figure.
    pub fn of(&self, figure: Figure) -> Option<f64> {
        let values =
            |runs: &[&RunSummary]| -> Vec<f64> { runs.iter().filter_map(|run| figure.in_summary(run)).collect() };
        let (a, b) = (values(&self.a), values(&self.b));
        let (n_a, n_b) = (self.compared.0 as f64, self.compared.1 as f64);
        let (deviation, freedom) = pooled(&[&a, &b])?;
        let finest = finest(figure, a.iter().chain(&b).copied());
        let half = t_quantile(self.confidence, freedom)? * deviation * (1.0 / n_a + 1.0 / n_b).sqrt();
        Some(half.max(finest))
    }
}

/// The smallest difference in this figure that is one, among such values.
pub(super) fn finest(figure: Figure, values: impl Iterator<Item = f64>) -> f64 {
    let largest = values.fold(0.0, |max: f64, value| max.max(value.abs()));
    if figure.is_count() { 0.0 } else { RESOLUTION * largest }
}

/// Pooled sample deviation of groups, and its degrees of freedom; `None` without one.
fn pooled(groups: &[&[f64]]) -> Option<(f64, u64)> {
    let freedom: u64 = groups.iter().map(|group| (group.len() as u64).saturating_sub(1)).sum();
    let squares = |group: &&[f64]| {
        let mean = group.iter().sum::<f64>() / group.len() as f64;
        group.iter().map(|value| (value - mean).powi(2)).sum::<f64>()
    };
    let squares: f64 = groups.iter().filter(|group| !group.is_empty()).map(squares).sum();
    (freedom > 0).then(|| ((squares / freedom as f64).sqrt(), freedom))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deviations_are_pooled_about_their_own_means() {
        let (deviation, freedom) = pooled(&[&[1.0, 3.0], &[10.0, 12.0, 14.0]]).unwrap();
        // (2 + 8) / 3.
        assert!((deviation - (10.0f64 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!(freedom, 3);
        assert_eq!(pooled(&[&[1.0], &[]]), None);
    }
}
