//! Distributions as tables of quantiles, and the two fits that make a sample hit its target.
//!
//! A table lists (probability, value), log-linear between its points. A stratified sample takes one value from
//! each of `n` equal slices of probability, so its empirical quantiles are the table's for any seed.

/// Quantiles in rising order, from probability 0 to 1; values above 0.
pub(super) type Table = [(f64, f64)];

/// Seconds from one call of a session to its next. Published: p10 1.6, p50 2.5, p90 7.8, max 261; the points
/// between give the shape of a recorded SWE-bench run and the mean of about 4.8 s the published numbers imply.
pub(super) const GAP_S: &Table = &[
    (0.0, 0.8),
    (0.02, 1.1),
    (0.10, 1.6),
    (0.50, 2.5),
    (0.75, 4.2),
    (0.90, 7.8),
    (0.95, 12.5),
    (0.98, 24.0),
    (0.99, 38.0),
    (0.997, 80.0),
    (1.0, 261.0),
];

/// Answer tokens, before scaling to the asked mean: shape of a recorded SWE-bench run.
pub(super) const OUTPUT: &Table = &[
    (0.0, 8.0),
    (0.10, 25.0),
    (0.25, 39.0),
    (0.50, 74.0),
    (0.75, 245.0),
    (0.90, 590.0),
    (0.95, 900.0),
    (0.99, 2_000.0),
    (0.999, 4_200.0),
    (1.0, 6_000.0),
];

/// Tokens a tool's answer adds to the next prompt, before scaling to the session's peak: same run.
pub(super) const OBSERVATION: &Table = &[
    (0.0, 24.0),
    (0.10, 25.0),
    (0.25, 29.0),
    (0.50, 88.0),
    (0.75, 250.0),
    (0.90, 660.0),
    (0.95, 1_200.0),
    (0.99, 2_900.0),
    (0.999, 7_500.0),
    (1.0, 12_300.0),
];

/// Task text of a first prompt, tokens.
pub(super) const TASK: &Table = &[(0.0, 180.0), (0.10, 330.0), (0.50, 750.0), (0.90, 1_900.0), (1.0, 4_200.0)];

/// Value of `table` at probability `p`, 0 to 1.
pub(super) fn quantile(table: &Table, p: f64) -> f64 {
    let above = table.partition_point(|point| point.0 < p).clamp(1, table.len() - 1);
    let ((p0, v0), (p1, v1)) = (table[above - 1], table[above]);
    let share = (p - p0) / (p1 - p0);
    (v0.ln() + share * (v1.ln() - v0.ln())).exp()
}

/// `n` values in rising order whose quantiles are the table's, both ends included.
pub(super) fn stratified(table: &Table, n: usize) -> Vec<f64> {
    let probability = |i: usize| match i {
        0 => 0.0,
        _ if i + 1 == n => 1.0,
        _ => (i as f64 + 0.5) / n as f64,
    };
    (0..n).map(|i| quantile(table, probability(i))).collect()
}

/// Scales all values by one factor and holds each between its floor and `ceiling`, so that the mean is `mean`.
/// A floor above the ceiling wins. When the bounds leave no such factor, the nearest mean they allow.
pub(super) fn scale_to_mean(values: &[f64], floors: &[f64], ceiling: f64, mean: f64) -> Vec<f64> {
    let held = |value: f64, floor: f64, factor: f64| (value * factor).min(ceiling).max(floor);
    let sum = |factor: f64| values.iter().zip(floors).map(|(&value, &floor)| held(value, floor, factor)).sum::<f64>();
    let target = mean * values.len() as f64;
    // The sum grows with the factor: halve the range of its logarithm. e^±14 spans six decades each way.
    let (mut low, mut high) = (-14.0_f64, 14.0_f64);
    for _ in 0..48 {
        let middle = f64::midpoint(low, high);
        if sum(middle.exp()) < target {
            low = middle;
        } else {
            high = middle;
        }
    }
    let factor = f64::midpoint(low, high).exp();
    values.iter().zip(floors).map(|(&value, &floor)| held(value, floor, factor)).collect()
}

/// Percentile `p` (0 to 100) of values in rising order, linear between ranks; 0 for none.
pub(super) fn percentile(sorted: &[f64], p: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let rank = p / 100.0 * last as f64;
    let below = rank.floor() as usize;
    let above = (below + 1).min(last);
    sorted[below] + (sorted[above] - sorted[below]) * (rank - below as f64)
}
