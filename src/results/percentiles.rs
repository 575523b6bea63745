//! [`Percentiles`]: which percentiles a summary gives, and how one is found.
//!
//! The method is nearest rank: percentile p of n values is the ⌈p·n/100⌉-th smallest (the smallest for 0). A percentile is
//! kept as a whole number of millionths of a per cent, so that ranks are exact: 99.9 of 1,000 values is rank 999.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Millionths of a per cent in 100 %.
const WHOLE: u64 = 100_000_000;

/// One percentile, 0 to 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percentile(u64);

/// An ascending list without repeats, never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Percentiles(Vec<Percentile>);

/// A list of percentiles that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PercentileError {
    /// Not a number, or outside 0 to 100.
    #[error("`{0}` is not a percentile; write numbers from 0 to 100 separated by commas, such as 50,90,99.9")]
    NotAPercentile(String),
    /// Nothing given.
    #[error("no percentile given; write numbers from 0 to 100 separated by commas, such as 50,90,99.9")]
    Empty,
}

impl Percentile {
    /// The minimum.
    pub const MIN: Percentile = Percentile(0);
    /// The maximum.
    pub const MAX: Percentile = Percentile(WHOLE);
    /// The median.
    pub const P50: Percentile = Percentile(50_000_000);
    /// 90 %.
    pub const P90: Percentile = Percentile(90_000_000);
    /// 95 %.
    pub const P95: Percentile = Percentile(95_000_000);
    /// 99 %.
    pub const P99: Percentile = Percentile(99_000_000);
    /// 99.9 %.
    pub const P999: Percentile = Percentile(99_900_000);

    /// Rank (from 1) of this percentile among `n` values; 0 when there are none.
    pub fn rank(self, n: u64) -> u64 {
        let rank = (u128::from(self.0) * u128::from(n)).div_ceil(u128::from(WHOLE));
        (rank as u64).clamp(n.min(1), n)
    }

    /// This percentile of values in ascending order.
    pub fn of_sorted(self, sorted: &[u64]) -> Option<u64> {
        let rank = self.rank(sorted.len() as u64) as usize;
        rank.checked_sub(1).map(|ix| sorted[ix])
    }
}

impl FromIterator<Percentile> for Percentiles {
    /// Of at least one.
    fn from_iter<T: IntoIterator<Item = Percentile>>(percentiles: T) -> Percentiles {
        let mut list: Vec<Percentile> = percentiles.into_iter().collect();
        assert!(!list.is_empty(), "a list of percentiles is never empty");
        list.sort_unstable();
        list.dedup();
        Percentiles(list)
    }
}

impl Percentiles {
    /// The percentiles, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Percentile> + '_ {
        self.0.iter().copied()
    }

    /// One alone.
    pub fn only(percentile: Percentile) -> Percentiles {
        Percentiles(vec![percentile])
    }

    /// These and one more.
    pub fn with(mut self, percentile: Percentile) -> Percentiles {
        self.0.push(percentile);
        self.0.sort_unstable();
        self.0.dedup();
        self
    }

    /// What a person should be told about an odd choice: a percentile between 0 and 1 is most likely a fraction.
    pub fn notes(&self) -> Vec<String> {
        let fraction = |p: &&Percentile| p.0 > 0 && p.0 < WHOLE / 100;
        let meant = |p: &Percentile| Percentile((p.0 * 100).min(WHOLE));
        let note =
            |p: &Percentile| format!("{p} is the {}th percentile; did you mean {}?", p.number(), meant(p).number());
        self.0.iter().filter(fraction).map(note).collect()
    }
}

impl Percentile {
    fn number(self) -> String {
        (self.0 as f64 / 1e6).to_string()
    }
}

impl Default for Percentiles {
    fn default() -> Self {
        Percentiles(vec![Percentile::P50, Percentile::P90, Percentile::P95, Percentile::P99, Percentile::P999])
    }
}

impl fmt::Display for Percentile {
    /// `p50`, `p99.9`, `p0.5`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("p{}", self.number()))
    }
}

impl FromStr for Percentile {
    type Err = PercentileError;

    fn from_str(text: &str) -> Result<Self, PercentileError> {
        let value: f64 = text.parse().map_err(|_| PercentileError::NotAPercentile(text.into()))?;
        if (0.0..=100.0).contains(&value) {
            Ok(Percentile((value * 1e6).round() as u64))
        } else {
            Err(PercentileError::NotAPercentile(text.into()))
        }
    }
}

impl FromStr for Percentiles {
    type Err = PercentileError;

    fn from_str(text: &str) -> Result<Self, PercentileError> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let mut list = parts.map(str::parse).collect::<Result<Vec<Percentile>, _>>()?;
        list.sort_unstable();
        list.dedup();
        if list.is_empty() { Err(PercentileError::Empty) } else { Ok(Percentiles(list)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(text: &str) -> Vec<String> {
        let list: Percentiles = text.parse().unwrap();
        list.iter().map(|p| p.to_string()).collect()
    }

    #[test]
    fn a_list_is_sorted_and_without_repeats() {
        assert_eq!(labels("50,90,99.9"), ["p50", "p90", "p99.9"]);
        assert_eq!(labels(" 50 , 50 ,0,100"), ["p0", "p50", "p100"]);
    }

    #[test]
    fn what_is_no_percentile_is_refused_with_the_allowed_range() {
        for text in ["101", "-1", "abc", "", " , ", "nan", "inf", "50,1e9"] {
            let error = text.parse::<Percentiles>().unwrap_err().to_string();
            assert!(error.contains("from 0 to 100"), "{text}: {error}");
        }
    }

    #[test]
    fn a_fraction_is_taken_literally_and_said_so() {
        let list: Percentiles = "0.5".parse().unwrap();
        assert_eq!(labels("0.5"), ["p0.5"]);
        assert_eq!(list.notes(), ["p0.5 is the 0.5th percentile; did you mean 50?"]);
        assert!("50,1,0".parse::<Percentiles>().unwrap().notes().is_empty());
    }

    #[test]
    fn ranks_are_exact() {
        assert_eq!(Percentile::P999.rank(1000), 999);
        assert_eq!(Percentile::P50.rank(4), 2);
        assert_eq!(Percentile::P50.rank(5), 3);
        assert_eq!("0".parse::<Percentile>().unwrap().rank(7), 1);
        assert_eq!("100".parse::<Percentile>().unwrap().rank(7), 7);
        assert_eq!(Percentile::P50.rank(0), 0);
        assert_eq!(Percentile::P50.of_sorted(&[]), None);
    }
}
