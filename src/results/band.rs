//! [`Band`]: how far a headline figure spreads over runs that differ by their seed alone.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::render::Table;
use super::stats::t_quantile;
use super::{Figure, Figures};

/// A figure over replicas.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Band {
    /// Which figure.
    pub figure: Figure,
    /// Runs that have it.
    pub n: usize,
    /// Smallest.
    pub min: f64,
    /// Median; the mean of the two in the middle for an even number.
    pub median: f64,
    /// Largest.
    pub max: f64,
    /// Mean.
    pub mean: f64,
    /// Half width of the 95 % interval of the mean, by Student's t; null below two runs.
    pub ci95: Option<f64>,
}

/// Widest narrow band, as a share of its median.
const NARROW: f64 = 0.005;

/// Half width, as a share of the largest value, below which it is what rounding leaves of equal values.
const ROUNDING: f64 = 1e-12;

/// Bands of `figures` over runs; one that no run has is left out.
pub fn bands<'a>(figures: &[Figure], runs: impl Iterator<Item = &'a Figures> + Clone) -> Vec<Band> {
    let band = |figure: &Figure| Band::of(*figure, runs.clone().filter_map(|run| run.get(*figure)).collect());
    figures.iter().filter_map(band).collect()
}

impl Band {
    /// Over values in any order; `None` when there are none.
    pub fn of(figure: Figure, mut values: Vec<f64>) -> Option<Band> {
        values.sort_by(f64::total_cmp);
        let n = values.len();
        let (min, max) = (*values.first()?, *values.last()?);
        let mean = values.iter().sum::<f64>() / n as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let median = (values[(n - 1) / 2] + values[n / 2]) / 2.0;
        let ci95 = t_quantile(0.95, n as u64 - 1).map(|t| t * (squares / (n - 1) as f64 / n as f64).sqrt());
        let ci95 = ci95.map(|half| if half <= ROUNDING * max.abs().max(min.abs()) { 0.0 } else { half });
        Some(Band { figure, n, min, median, max, mean, ci95 })
    }

    /// Whether the replicas all but agree: at most 0.5 % of the median between the smallest and the largest.
    pub fn is_narrow(&self) -> bool {
        self.max - self.min <= NARROW * self.median.abs()
    }

    /// The bands as a table.
    pub fn table(bands: &[Band]) -> Table {
        let row = |band: &Band| {
            let ci95 = band.ci95.map_or_else(|| "–".to_owned(), number);
            let values = [band.min, band.median, band.max, band.mean].map(number);
            [band.figure.to_string(), band.figure.unit().into(), band.n.to_string()]
                .into_iter()
                .chain(values)
                .chain([ci95])
                .collect()
        };
        let titles = ["figure", "unit", "n", "min", "median", "max", "mean", "ci95"];
        Table::plain(&titles, bands.iter().map(row).collect())
    }
}

/// Four significant digits or so.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 || value.fract() == 0.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_band_knows_its_mean_and_interval() {
        let band = Band::of(Figure::P50_E2E, vec![3.0, 1.0, 2.0]).unwrap();
        assert_eq!((band.n, band.min, band.median, band.max, band.mean), (3, 1.0, 2.0, 3.0, 2.0));
        // s = 1, t(2) = 4.303: 4.303 / √3.
        assert!((band.ci95.unwrap() - 2.4843).abs() < 1e-3);
    }

    #[test]
    fn equal_values_have_no_interval_made_of_rounding() {
        for value in [0.1, 1234.567, 7e-9] {
            assert_eq!(Band::of(Figure::P50_E2E, vec![value; 3]).unwrap().ci95, Some(0.0), "{value}");
        }
        assert!(Band::of(Figure::P50_E2E, vec![0.1, 0.1 + 1e-9]).unwrap().ci95.unwrap() > 0.0);
    }

    #[test]
    fn one_replica_has_no_interval_and_none_has_no_band() {
        assert_eq!(Band::of(Figure::P50_E2E, vec![5.0]).unwrap().ci95, None);
        assert_eq!(Band::of(Figure::P50_E2E, Vec::new()), None);
    }

    #[test]
    fn a_band_is_narrow_up_to_half_a_per_cent() {
        assert!(
            Band::of(Figure::P50_E2E, vec![1000.0, 1005.0]).unwrap().is_narrow()
                && Band::of(Figure::P50_E2E, vec![0.0; 2]).unwrap().is_narrow()
        );
        assert!(!Band::of(Figure::P50_E2E, vec![1000.0, 1006.0]).unwrap().is_narrow());
    }
}
