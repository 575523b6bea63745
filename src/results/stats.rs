//! Statistics over sessions and pairs: how unequal, how two-peaked, how concentrated.
//!
//! Pure functions of slices. What has no answer (no values, no spread) is `None`, never NaN.

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};
use statrs::function::factorial::ln_binomial;

/// Gini coefficient of non-negative values: 0 all equal, towards 1 one has all.
pub fn gini(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len() as f64;
    let sum: f64 = sorted.iter().sum();
    let weighted: f64 = sorted.iter().enumerate().map(|(ix, value)| (ix as f64 + 1.0) * value).sum();
    finite((2.0 * weighted / (n * sum)) - (n + 1.0) / n).map(|gini| gini.max(0.0))
}

/// Jain's index (Σx)² / (n·Σx²): 1 all equal, 1/n one has all.
pub fn jain(values: &[f64]) -> Option<f64> {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|value| value * value).sum();
    finite(sum * sum / (values.len() as f64 * squares))
}

/// Sarle's bimodality coefficient of the population, (skewness² + 1) / kurtosis: 1 two points, 5/9 uniform, 1/3 normal.
pub fn bimodality(values: &[f64]) -> Option<f64> {
    let mean = mean(values)?;
    let moment = |power: i32| values.iter().map(|value| (value - mean).powi(power)).sum::<f64>() / values.len() as f64;
    let variance = moment(2);
    if variance < 1e-18 * (1.0 + mean * mean) {
        return None;
    }
    let skewness_squared = moment(3).powi(2) / variance.powi(3);
    finite((skewness_squared + 1.0) / (moment(4) / variance.powi(2)))
}

/// Arithmetic mean.
pub fn mean(values: &[f64]) -> Option<f64> {
    finite(values.iter().sum::<f64>() / values.len() as f64)
}

/// Middle value, mean of the two middle ones; sorts them.
pub fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let (below, above) = (values.get(values.len().checked_sub(1)? / 2)?, values.get(values.len() / 2)?);
    finite(f64::midpoint(*below, *above))
}

/// Chance that a value of `a` exceeds one of `b`, ties half (Mann–Whitney): 0.5 no difference, 1 all above, 0 all below.
pub fn separation(a: &[f64], b: &[f64]) -> Option<f64> {
    let mut b_sorted = b.to_vec();
    b_sorted.sort_by(f64::total_cmp);
    let wins = |value: &f64| {
        let below = b_sorted.partition_point(|other| other < value);
        let not_above = b_sorted.partition_point(|other| other <= value);
        (below + not_above) as f64 / 2.0
    };
    finite(a.iter().map(wins).sum::<f64>() / (a.len() as f64 * b.len() as f64))
}

/// P(X ≥ `hits`) for X binomial over `trials` with chance `q`: exact tail, summed from its largest term on.
pub fn binomial_tail(hits: u64, trials: u64, q: f64) -> f64 {
    if hits == 0 || q >= 1.0 {
        return 1.0;
    }
    if q <= 0.0 || hits > trials {
        return 0.0;
    }
    let ways: f64 = (1..=hits).map(|k| ((trials - hits + k) as f64 / k as f64).ln()).sum();
    let mut term = (ways + hits as f64 * q.ln() + (trials - hits) as f64 * (-q).ln_1p()).exp();
    let mut tail = term;
    for k in hits..trials {
        term *= (trials - k) as f64 / (k + 1) as f64 * q / (1.0 - q);
        tail += term;
    }
    tail.min(1.0)
}

/// P(X ≥ `hits`) for X hypergeometric: how many of `marked` among `population` are in a sample of `draws` (Fisher's exact
/// test, one-sided). Exact tail, summed from `hits` away from the mean.
pub fn hypergeometric_tail(hits: u64, draws: u64, marked: u64, population: u64) -> f64 {
    let (least, most) = ((draws + marked).saturating_sub(population), draws.min(marked));
    if hits <= least || hits > most || marked > population || draws > population {
        return if hits > most { 0.0 } else { 1.0 };
    }
    let all = ln_binomial(population, draws);
    let term = |k: u64| (ln_binomial(marked, k) + ln_binomial(population - marked, draws - k) - all).exp();
    // Terms fall from here on, so that what is left is soon too small to matter.
    let sum = |terms: &mut dyn Iterator<Item = u64>| {
        let mut sum = 0.0;
        for one in terms.map(term) {
            sum += one;
            if one <= sum * f64::EPSILON {
                break;
            }
        }
        sum
    };
    let is_above_mean = u128::from(hits) * u128::from(population) > u128::from(draws) * u128::from(marked);
    let tail = if is_above_mean { sum(&mut (hits..=most)) } else { 1.0 - sum(&mut (least..hits).rev()) };
    tail.clamp(0.0, 1.0)
}

/// Quantile of Student's t within which, on both sides of 0, a share `confidence` lies; `None` without a degree of freedom.
pub fn t_quantile(confidence: f64, freedom: u64) -> Option<f64> {
    let t = StudentsT::new(0.0, 1.0, freedom as f64).ok()?;
    finite(t.inverse_cdf((1.0 + confidence) / 2.0))
}

/// Share of the standard normal distribution below `z`.
pub fn normal_below(z: f64) -> f64 {
    Normal::standard().cdf(z)
}

/// `None` for NaN and infinities.
pub fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

/// `part / whole`, `None` when there is no whole.
pub fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-9 * (1.0 + b.abs())
    }

    #[test]
    fn no_values_have_no_statistics() {
        assert_eq!((gini(&[]), jain(&[]), bimodality(&[]), mean(&[])), (None, None, None, None));
        assert_eq!((gini(&[0.0, 0.0]), jain(&[0.0]), bimodality(&[2.0, 2.0])), (None, None, None));
        assert_eq!((separation(&[], &[1.0]), share(1, 0)), (None, None));
    }

    #[test]
    fn known_values() {
        assert!(close(gini(&[0.0, 0.0, 0.0, 1.0]).unwrap(), 0.75));
        assert!(close(jain(&[1.0, 0.0, 0.0, 0.0]).unwrap(), 0.25));
        assert!(close(bimodality(&[0.0, 0.0, 1.0, 1.0]).unwrap(), 1.0));
        assert!(close(separation(&[3.0, 4.0], &[1.0, 2.0]).unwrap(), 1.0));
        assert!(close(separation(&[1.0], &[1.0]).unwrap(), 0.5));
        assert_eq!([&mut [3.0, 1.0, 2.0][..], &mut [4.0, 1.0], &mut []].map(median), [Some(2.0), Some(2.5), None]);
        assert!(close(binomial_tail(2, 3, 0.5), 0.5));
        assert!(close(binomial_tail(3, 3, 0.1), 0.001));
    }

    #[test]
    fn student_is_the_tabulated_one() {
        for (freedom, t) in [(1, 12.706), (2, 4.303), (4, 2.776), (30, 2.042), (1000, 1.962)] {
            assert!((t_quantile(0.95, freedom).unwrap() - t).abs() < 1e-3, "{freedom}");
        }
        assert_eq!(t_quantile(0.95, 0), None);
    }

    #[test]
    fn the_normal_is_the_tabulated_one() {
        for (z, share) in [(0.0, 0.5), (-1.959964, 0.025), (1.644854, 0.95), (-40.0, 0.0)] {
            assert!((normal_below(z) - share).abs() < 1e-6, "{z}");
        }
    }

    proptest! {
        #[test]
        fn gini_is_the_mean_difference(values in prop::collection::vec(0.01f64..1e4, 1..40)) {
            let n = values.len() as f64;
            let differences: f64 = values.iter().flat_map(|a| values.iter().map(move |b| (a - b).abs())).sum();
            let naive = differences / (2.0 * n * values.iter().sum::<f64>());
            prop_assert!((gini(&values).unwrap() - naive).abs() < 1e-9);
        }

        #[test]
        fn jain_and_bimodality_keep_their_bounds(values in prop::collection::vec(0.0f64..1.0, 2..60)) {
            let n = values.len() as f64;
            if let Some(index) = jain(&values) {
                prop_assert!(index <= 1.0 + 1e-9 && index >= 1.0 / n - 1e-9);
            }
            if let Some(b) = bimodality(&values) {
                prop_assert!(b > 0.0 && b <= 1.0 + 1e-6, "{}", b);
            }
        }

        #[test]
        fn separation_counts_pairs(a in prop::collection::vec(0u8..9, 1..20), b in prop::collection::vec(0u8..9, 1..20)) {
            let (a, b): (Vec<f64>, Vec<f64>) = (a.iter().map(|&v| v.into()).collect(), b.iter().map(|&v| v.into()).collect());
            let pair = |x: &f64, y: &f64| if x > y { 1.0 } else if x == y { 0.5 } else { 0.0 };
            let naive: f64 = a.iter().flat_map(|x| b.iter().map(move |y| pair(x, y))).sum();
            prop_assert!(close(separation(&a, &b).unwrap(), naive / (a.len() * b.len()) as f64));
        }

        #[test]
        fn hypergeometric_tails_add_up(population in 1u64..60, draws in 0u64..60, marked in 0u64..60, hits in 0u64..60) {
            let (draws, marked) = (draws.min(population), marked.min(population));
            let choose = |n: u64, k: u64| if k > n { 0.0 } else { (1..=k).map(|i| (n - k + i) as f64 / i as f64).product() };
            let terms = (hits..=draws).map(|k| choose(marked, k) * choose(population - marked, draws - k));
            let naive = terms.sum::<f64>() / choose(population, draws);
            let tail = hypergeometric_tail(hits, draws, marked, population);
            prop_assert!((tail - naive).abs() < 1e-9 * (1.0 + naive), "{} {}", tail, naive);
        }

        #[test]
        fn binomial_tails_add_up(trials in 1u64..60, q in 0.01f64..0.99, hits in 1u64..60) {
            let hits = hits.min(trials);
            let choose = |k: u64| (1..=k).map(|i| (trials - k + i) as f64 / i as f64).product::<f64>();
            let naive: f64 = (hits..=trials).map(|k| choose(k) * q.powi(k as i32) * (1.0 - q).powi((trials - k) as i32)).sum();
            prop_assert!((binomial_tail(hits, trials, q) - naive).abs() < 1e-9);
        }
    }
}
