//! [`Distribution`]: one latency over a run, in bounded memory.
//!
//! An HDR histogram of three significant digits (nanoseconds, no upper limit) beside exact count, sum, minimum, maximum and
//! sample deviation. Invariant: no percentile lies outside [minimum, maximum], and each is within 0.05 % of the value at
//! its nearest rank; the first and the last rank are exact.

use hdrhistogram::Histogram;

use super::Percentile;

/// Significant digits of the histogram.
const DIGITS: u8 = 3;

/// Values in nanoseconds.
#[derive(Debug)]
pub struct Distribution {
    buckets: Histogram<u64>,
    sum: u128,
    min: u64,
    max: u64,
    running_mean: f64,
    squares: f64,
}

impl Default for Distribution {
    fn default() -> Self {
        Distribution::new()
    }
}

impl Distribution {
    /// Empty.
    pub fn new() -> Self {
        let buckets = Histogram::new(DIGITS).expect("three digits are allowed");
        Distribution { buckets, sum: 0, min: u64::MAX, max: 0, running_mean: 0.0, squares: 0.0 }
    }

    /// Adds a value.
    pub fn add(&mut self, ns: u64) {
        self.add_n(ns, 1);
    }

    /// Adds a value `count` times.
    pub fn add_n(&mut self, ns: u64, count: u64) {
        if count == 0 {
            return;
        }
        let before = self.n() as f64;
        self.buckets.record_n(ns, count).expect("the histogram grows to any u64");
        self.sum += u128::from(ns) * u128::from(count);
        self.min = self.min.min(ns);
        self.max = self.max.max(ns);
        // Welford's update for a batch of equal values: stable, and exactly zero while all values are equal.
        let (added, total) = (count as f64, before + count as f64);
        let step = ns as f64 - self.running_mean;
        self.running_mean += step * added / total;
        self.squares += step * step * before * added / total;
    }

    /// Number of values.
    pub fn n(&self) -> u64 {
        self.buckets.len()
    }

    /// Smallest value, ms.
    pub fn min_ms(&self) -> Option<f64> {
        (self.n() > 0).then(|| ms(self.min))
    }

    /// Largest value, ms.
    pub fn max_ms(&self) -> Option<f64> {
        (self.n() > 0).then(|| ms(self.max))
    }

    /// Arithmetic mean, ms.
    pub fn mean_ms(&self) -> Option<f64> {
        (self.n() > 0).then(|| self.sum as f64 / self.n() as f64 / 1e6)
    }

    /// Sample standard deviation (n − 1), ms; `None` below two values.
    pub fn std_ms(&self) -> Option<f64> {
        (self.n() > 1).then(|| (self.squares / (self.n() - 1) as f64).sqrt() / 1e6)
    }

    /// A percentile, ms.
    pub fn percentile_ms(&self, percentile: Percentile) -> Option<f64> {
        self.percentiles_ms(&[percentile], 0)[0]
    }

    /// The cumulative distribution as points: value, ms, and the share of values up to it, 0 to 1. About `steps` of them, and
    /// in the tail as many more as it takes for each to leave at most an eighth less above it than the one before; the first
    /// is the minimum, the last the maximum at 1.
    pub fn cumulative(&self, steps: u64) -> Vec<(f64, f64)> {
        let n = self.n();
        let (mut points, mut seen, mut next) = (Vec::new(), 0, 0);
        for bucket in self.buckets.iter_recorded() {
            seen += bucket.count_since_last_iteration();
            if seen >= next {
                // The ends are exact, as those of the percentiles are.
                let value = match seen {
                    _ if seen == n => self.max,
                    _ if points.is_empty() => self.min,
                    _ => self.buckets.median_equivalent(bucket.value_iterated_to()).clamp(self.min, self.max),
                };
                points.push((ms(value), seen as f64 / n as f64));
                next = seen + n.div_ceil(steps).min((n - seen) / 8).max(1);
            }
        }
        points
    }

    /// Ascending percentiles, ms, of the values and `endless` more that are larger than any; `None` is "not reached".
    pub fn percentiles_ms(&self, percentiles: &[Percentile], endless: u64) -> Vec<Option<f64>> {
        let n = self.n();
        let mut filled = self.buckets.iter_recorded();
        let (mut seen, mut bucket) = (0, 0);
        let mut value_at = |rank: u64| match rank {
            0 => None,
            _ if rank > n => None,
            1 => Some(self.min),
            _ if rank == n => Some(self.max),
            _ => {
                while seen < rank {
                    let next = filled.next()?;
                    seen += next.count_since_last_iteration();
                    bucket = next.value_iterated_to();
                }
                Some(self.buckets.median_equivalent(bucket).clamp(self.min, self.max))
            }
        };
        percentiles.iter().map(|p| value_at(p.rank(n + endless)).map(ms)).collect()
    }
}

/// Nanoseconds of a length given in milliseconds; `None` for what is no length (negative, NaN, infinite).
pub(super) fn ns_of_ms(ms: f64) -> Option<u64> {
    let ns = (ms * 1e6).round();
    (ns >= 0.0 && ns < u64::MAX as f64).then_some(ns as u64)
}

pub(super) fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nothing_is_nothing_and_never_a_zero() {
        let empty = Distribution::new();
        assert_eq!((empty.n(), empty.min_ms(), empty.max_ms()), (0, None, None));
        assert_eq!((empty.mean_ms(), empty.std_ms(), empty.percentile_ms(Percentile::P50)), (None, None, None));
    }

    #[test]
    fn zero_and_a_day_are_both_kept() {
        let mut d = Distribution::new();
        [0, 1_000, 500_000, 2_000_000_000, 10_800_000_000_000, 100_000_000_000_000]
            .into_iter()
            .for_each(|ns| d.add(ns));
        assert_eq!((d.n(), d.min_ms(), d.max_ms()), (6, Some(0.0), Some(1e8)));
    }

    #[test]
    fn equal_values_have_no_deviation() {
        let mut d = Distribution::new();
        d.add_n(333_333_333, 7);
        d.add(333_333_333);
        assert_eq!(d.std_ms(), Some(0.0));
    }

    #[test]
    fn endless_values_move_the_rank_and_are_never_shown() {
        let mut d = Distribution::new();
        [1_000_000, 2_000_000, 3_000_000, 4_000_000].into_iter().for_each(|ns| d.add(ns));
        assert_eq!(d.percentiles_ms(&[Percentile::P50], 6), [None]);
        assert_eq!(d.percentiles_ms(&[Percentile::P50], 4), [Some(4.0)]);
    }

    #[test]
    fn the_cumulative_distribution_ends_at_the_maximum() {
        let mut d = Distribution::new();
        assert_eq!(d.cumulative(100), []);
        (1..=1000).for_each(|ms| d.add(ms * 1_000_000));
        let points = d.cumulative(100);
        assert!((100..=140).contains(&points.len()), "{}", points.len());
        let above = |point: &(f64, f64)| ((1.0 - point.1) * 1000.0).round();
        // Down to the last eight values the tail is cut into eighths of what is left.
        let mut tail = points.windows(2).filter(|two| above(&two[1]) >= 8.0);
        assert!(tail.all(|two| above(&two[0]) - above(&two[1]) <= (above(&two[0]) / 8.0).max(1.0)));
        assert_eq!((points[0].0, *points.last().unwrap()), (1.0, (1000.0, 1.0)));
        assert!(points.iter().all(|(ms, share)| (ms - share * 1000.0).abs() <= 1.0));
    }

    proptest! {
        #[test]
        fn agrees_with_sorting(
            mut values in prop::collection::vec(prop_oneof![0u64..5_000, 0u64..200_000_000_000_000], 1..200),
            endless in 0u64..50,
        ) {
            let mut d = Distribution::new();
            values.iter().for_each(|&ns| d.add(ns));
            values.sort_unstable();
            let (n, total) = (values.len(), values.len() as u64 + endless);
            let list = [Percentile::P50, Percentile::P90, Percentile::P95, Percentile::P99, Percentile::P999];
            for (p, got) in list.iter().zip(d.percentiles_ms(&list, endless)) {
                let rank = p.rank(total) as usize;
                let exact = values.get(rank - 1).copied();
                prop_assert_eq!(got.is_some(), exact.is_some());
                if let (Some(got), Some(exact)) = (got, exact) {
                    prop_assert!((got - ms(exact)).abs() <= 0.0005 * ms(exact) + 1e-6, "{} {}", got, ms(exact));
                    prop_assert!(got <= ms(values[n - 1]) && got >= ms(values[0]));
                }
            }
            let mean = values.iter().map(|&v| v as f64).sum::<f64>() / n as f64;
            prop_assert!((d.mean_ms().unwrap() * 1e6 - mean).abs() <= 1e-9 * mean + 1e-3);
            if n > 1 {
                let var = values.iter().map(|&v| (v as f64 - mean).powi(2)).sum::<f64>() / (n - 1) as f64;
                prop_assert!((d.std_ms().unwrap() * 1e6 - var.sqrt()).abs() <= 1e-6 * var.sqrt() + 1e-3);
            }
        }
    }
}
