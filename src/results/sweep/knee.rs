//! [`Knee`]: the point of a numeric axis beyond which a figure gains less than its mean along the axis.
//!
//! Kneedle (Satopää, Albrecht, Irwin, Raghavan: *Finding a "Kneedle" in a Haystack*, ICDCS workshops 2011) with sensitivity 1,
//! on the best value so far. The curve is walked from the end with the worse value; axis and improvement are scaled to 0…1; the
//! knee is where the improvement is furthest ahead of the axis, if by more than the mean distance of two points. No knee is
//! found in fewer than four points, and none where the figure moves by less than 1 % or less than its own noise: then
//! `reason` says so.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{SweepAxis, SweepGroup};
use crate::base::words::{percent, plural};
use crate::results::{Better, Figure};

/// Figures that are looked at.
pub const KNEE_FIGURES: [Figure; 4] = [Figure::P50_E2E, Figure::P99_E2E, Figure::P99_TTFT, Figure::DIRECT_SHARE];

/// Fewest points of a curve.
const LEAST_POINTS: usize = 4;

/// Kneedle's sensitivity: mean distances of two points by which the improvement must be ahead.
const SENSITIVITY: f64 = 1.0;

/// Smallest move of a figure, as a share of its worst value.
const LEAST_MOVE: f64 = 0.01;

/// Beyond where a figure gains less than its mean along an axis, all other axes held.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Knee {
    /// Key of the axis.
    pub axis: String,
    /// The figure.
    pub figure: Figure,
    /// Position held on each axis; that of the axis itself is null.
    pub held: Vec<Option<u32>>,
    /// Values held on the other axes, as text: `policy kv-aware`; empty without other axes.
    pub held_words: String,
    /// The knee; null when there is none.
    pub knee: Option<KneePoint>,
    /// Why there is none, or how much of the improvement along the axis is reached at the knee, and where it gets worse again.
    pub reason: String,
    /// Points of the curve: those with the figure and a headline that may be read.
    pub points: u32,
    /// Points left out because they have none.
    pub left_out: u32,
}

/// A point of a curve.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KneePoint {
    /// Value of the axis.
    pub at: f64,
    /// Mean of the figure there, in its unit.
    pub value: f64,
}

/// A point with what is needed to judge it.
#[derive(Debug, Clone, Copy)]
struct Sample {
    x: f64,
    value: f64,
    /// Half width of its 95 % interval; 0 when unknown.
    noise: f64,
}

/// Knees along every numeric axis, for each combination of values of the others, by their positions.
pub(super) fn knees(axes: &[SweepAxis], groups: &[SweepGroup]) -> Vec<Knee> {
    let numeric = axes.iter().enumerate().filter(|(_, axis)| axis.is_numeric() && axis.values.len() > 1);
    numeric.flat_map(|(ix, axis)| along(ix, axis, axes, groups)).collect()
}

fn along(ix: usize, axis: &SweepAxis, axes: &[SweepAxis], groups: &[SweepGroup]) -> Vec<Knee> {
    let held = |group: &SweepGroup| -> Vec<Option<u32>> {
        group.at.iter().enumerate().map(|(other, at)| (other != ix).then_some(*at)).collect()
    };
    let mut lines: BTreeMap<Vec<Option<u32>>, Vec<&SweepGroup>> = BTreeMap::new();
    groups.iter().for_each(|group| lines.entry(held(group)).or_default().push(group));
    let knee = |held: &Vec<Option<u32>>, line: &[&SweepGroup], figure: Figure| {
        let sample = |group: &&SweepGroup| {
            let band = group.band(figure).filter(|_| group.shows_headline())?;
            let x = axis.values[group.at[ix] as usize].number?;
            Some(Sample { x, value: band.mean, noise: band.ci95.unwrap_or(0.0) })
        };
        let samples: Vec<Sample> = line.iter().filter_map(sample).collect();
        if samples.is_empty() {
            return None;
        }
        let (points, left_out) = (samples.len() as u32, (line.len() - samples.len()) as u32);
        let (knee, reason) = match find(samples, figure.better()) {
            Ok((knee, reached)) => (Some(knee), reached),
            Err(reason) => (None, reason),
        };
        let held_words = words(held, axes);
        Some(Knee { axis: axis.key.clone(), figure, held: held.clone(), held_words, knee, reason, points, left_out })
    };
    let curves = lines.iter().flat_map(|(held, line)| KNEE_FIGURES.into_iter().map(move |figure| (held, line, figure)));
    curves.filter_map(|(held, line, figure)| knee(held, line, figure)).collect()
}

fn words(held: &[Option<u32>], axes: &[SweepAxis]) -> String {
    let word =
        |(axis, at): (&SweepAxis, &Option<u32>)| Some(format!("{} {}", axis.key, axis.values[(*at)? as usize].label));
    axes.iter().zip(held).filter_map(word).collect::<Vec<_>>().join(", ")
}

/// The knee of a curve and how much of the improvement is reached there, in words; or why there is none.
fn find(mut samples: Vec<Sample>, better: Better) -> Result<(KneePoint, String), String> {
    if samples.len() < LEAST_POINTS {
        return Err(format!("{}, and a knee wants {LEAST_POINTS}", plural(samples.len() as u64, "point")));
    }
    let goodness = |sample: &Sample| match better {
        Better::Lower => -sample.value,
        Better::Higher | Better::Neither => sample.value,
    };
    samples.sort_by(|a, b| a.x.total_cmp(&b.x));
    let last = samples.len() - 1;
    if goodness(&samples[last]) < goodness(&samples[0]) {
        samples.reverse();
    }
    let (start, end) = (samples[0], samples[last]);
    let best = samples.iter().copied().max_by(|a, b| goodness(a).total_cmp(&goodness(b))).unwrap_or(start);
    let gain = goodness(&best) - goodness(&start);
    if gain <= LEAST_MOVE * start.value.abs() {
        return Err("it moves by less than 1 %".into());
    }
    if gain <= start.noise + best.noise {
        return Err("it moves by less than its 95 % interval".into());
    }
    // Fractions of the axis walked and of the improvement done by then.
    let mut done: f64 = 0.0;
    let walked = samples.iter().map(|sample| {
        done = done.max((goodness(sample) - goodness(&start)) / gain);
        (*sample, (sample.x - start.x) / (end.x - start.x), done)
    });
    let ahead = |(_, x, done): &(Sample, f64, f64)| done - x;
    let mut furthest = (start, 0.0, 0.0);
    for point in walked {
        if ahead(&point) > ahead(&furthest) {
            furthest = point;
        }
    }
    if ahead(&furthest) <= SENSITIVITY / last as f64 {
        return Err("it does not level off: no point is far enough ahead of a straight line".into());
    }
    let (sample, _, done) = furthest;
    let mut reached = format!("{} of its improvement", percent(done));
    let loss = goodness(&best) - goodness(&end);
    if loss > LEAST_MOVE * best.value.abs() && loss > best.noise + end.noise {
        reached += &format!("; best at {}, worse again towards {}", best.x, end.x);
    }
    Ok((KneePoint { at: sample.x, value: sample.value }, reached))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(points: &[(f64, f64)], noise: f64, better: Better) -> Result<f64, String> {
        let samples = points.iter().map(|&(x, value)| Sample { x, value, noise }).collect();
        find(samples, better).map(|(knee, _)| knee.at)
    }

    fn of(f: impl Fn(f64) -> f64, xs: &[f64]) -> Vec<(f64, f64)> {
        xs.iter().map(|x| (*x, f(*x))).collect()
    }

    #[test]
    fn the_knee_of_the_papers_curve_is_at_two_tenths() {
        // Figure 2 of the paper: y = −1/(x + 0.1) + 5, noiseless knee at about x = 0.22.
        let tenths: Vec<f64> = (0..10).map(|n| f64::from(n) / 10.0).collect();
        assert_eq!(curve(&of(|x| 5.0 - 1.0 / (x + 0.1), &tenths), 0.0, Better::Higher), Ok(0.2));
    }

    #[test]
    fn a_share_that_saturates_has_its_knee_where_it_does() {
        let caps = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0];
        assert_eq!(curve(&of(|cap| (cap / 10.0).min(0.8), &caps), 0.0, Better::Higher), Ok(8.0));
        // A latency that falls alike.
        assert_eq!(curve(&of(|cap| 10.0 - cap.min(8.0), &caps), 0.0, Better::Lower), Ok(8.0));
    }

    #[test]
    fn a_latency_that_takes_off_has_its_knee_before_it_does() {
        let loads = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
        let latency = |load: f64| if load <= 6.0 { 100.0 + load } else { 100.0 + (load - 6.0) * 1000.0 };
        assert_eq!(curve(&of(latency, &loads), 0.0, Better::Lower), Ok(6.0));
    }

    #[test]
    fn past_an_optimum_nothing_improves() {
        let points = [(1.0, 9.0), (2.0, 5.0), (3.0, 1.0), (4.0, 4.0), (5.0, 6.0)];
        assert_eq!(curve(&points, 0.0, Better::Lower), Ok(3.0));
        let reached = |noise| {
            let samples = points.iter().map(|&(x, value)| Sample { x, value, noise }).collect();
            find(samples, Better::Lower).unwrap().1
        };
        assert_eq!(reached(0.0), "100.0 % of its improvement; best at 3, worse again towards 5");
        assert_eq!(reached(2.6), "100.0 % of its improvement", "what its intervals cover is not said");
    }

    #[test]
    fn what_has_no_knee_says_why() {
        let xs = [1.0, 2.0, 3.0, 4.0, 5.0];
        let reason = |points: &[(f64, f64)], noise| curve(points, noise, Better::Higher).unwrap_err();
        assert!(reason(&of(|x| x, &xs), 0.0).contains("does not level off"));
        assert!(reason(&of(|x| x * x, &xs), 0.0).contains("does not level off"));
        assert!(reason(&of(|x| 100.0 + x * 0.1, &xs), 0.0).contains("less than 1 %"));
        assert!(reason(&of(|x| 100.0 + x.min(2.0) * 10.0, &xs), 6.0).contains("95 % interval"));
        assert!(reason(&of(|x| x, &xs[..3]), 0.0).contains("3 points"));
    }

    #[test]
    fn the_order_of_the_values_and_their_units_change_nothing() {
        let caps = [8.0, 1.0, 32.0, 4.0, 2.0, 16.0];
        let curves =
            [1.0, 1e3].map(|scale| curve(&of(|cap| scale * (cap / 10.0).min(0.8), &caps), 0.0, Better::Higher));
        assert_eq!(curves, [Ok(8.0), Ok(8.0)]);
    }
}
