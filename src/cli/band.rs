//! How far a headline figure spreads over replicas.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::results::render::Table;
use crate::results::{Latency, Metric, Percentile, RunSummary};

/// A figure over replicas.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Band {
    /// Which figure: a key of `summary.json`, or `direct_share`, `bad_share`, `starved_sessions`.
    pub figure: String,
    /// Replicas that have it.
    pub n: usize,
    /// Smallest.
    pub min: f64,
    /// Median; the mean of the two in the middle for an even number.
    pub median: f64,
    /// Largest.
    pub max: f64,
    /// Mean.
    pub mean: f64,
    /// Half width of the 95 % interval of the mean, by Student's t; null below two replicas.
    pub ci95: Option<f64>,
}

/// The figure of starved sessions.
pub const STARVED: &str = "starved_sessions";

/// Widest narrow band, as a share of its median.
const NARROW: f64 = 0.005;

/// Name of a figure, and where it is in a summary.
type Figure = (&'static str, fn(&RunSummary) -> Option<f64>);

/// Bands of the headline figures; one that no replica has is left out.
pub fn bands(summaries: &[&RunSummary]) -> Vec<Band> {
    let figures: [Figure; 11] = [
        ("completed", |summary| Some(summary.completed as f64)),
        ("bad_share", |summary| summary.integrity.bad_share),
        ("p50_ttft_ms", |summary| at(summary.latencies.of(Metric::Ttft), Percentile::P50)),
        ("p99_ttft_ms", |summary| at(summary.latencies.of(Metric::Ttft), Percentile::P99)),
        ("mean_e2e_ms", |summary| summary.latencies.of(Metric::E2e).mean_ms),
        ("p50_e2e_ms", |summary| summary.latencies.of(Metric::E2e).median_ms),
        ("p99_e2e_ms", |summary| at(summary.latencies.of(Metric::E2e), Percentile::P99)),
        ("request_throughput", |summary| summary.request_throughput),
        ("output_throughput", |summary| summary.output_throughput),
        ("direct_share", |summary| summary.fairness.direct_share),
        (STARVED, |summary| Some(summary.fairness.starved_sessions() as f64)),
    ];
    let band = |(name, of): Figure| Band::of(name, summaries.iter().filter_map(|summary| of(summary)).collect());
    figures.into_iter().filter_map(band).collect()
}

fn at(latency: &Latency, percentile: Percentile) -> Option<f64> {
    latency.rungs.iter().find(|rung| rung.percentile == percentile)?.ms
}

impl Band {
    fn of(figure: &str, mut values: Vec<f64>) -> Option<Band> {
        values.sort_by(f64::total_cmp);
        let n = values.len();
        let (min, max) = (*values.first()?, *values.last()?);
        let mean = values.iter().sum::<f64>() / n as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let median = (values[(n - 1) / 2] + values[n / 2]) / 2.0;
        let ci95 = (n > 1).then(|| t_975(n - 1) * (squares / (n - 1) as f64 / n as f64).sqrt());
        Some(Band { figure: figure.into(), n, min, median, max, mean, ci95 })
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
            [band.figure.clone(), unit(&band.figure).into(), band.n.to_string()]
                .into_iter()
                .chain(values)
                .chain([ci95])
                .collect()
        };
        let titles = ["figure", "unit", "n", "min", "median", "max", "mean", "ci95"];
        Table::plain(&titles, bands.iter().map(row).collect())
    }
}

/// Unit of a figure, by its name.
fn unit(figure: &str) -> &'static str {
    match figure {
        "request_throughput" => "requests/s",
        "output_throughput" => "tokens/s",
        "completed" => "requests",
        STARVED => "sessions",
        share if share.ends_with("_share") => "share",
        time if time.ends_with("_ms") => "ms",
        _ => "",
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

/// 97.5 % quantile of Student's t; beyond 30 degrees of freedom by its expansion at the normal quantile.
fn t_975(freedom: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
        2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
    ];
    let (z, n): (f64, f64) = (1.959_964, freedom as f64);
    let expanded =
        z + (z.powi(3) + z) / (4.0 * n) + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * n.powi(2));
    freedom.checked_sub(1).and_then(|ix| TABLE.get(ix).copied()).unwrap_or(expanded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_band_knows_its_mean_and_interval() {
        let band = Band::of("x", vec![3.0, 1.0, 2.0]).unwrap();
        assert_eq!((band.n, band.min, band.median, band.max, band.mean), (3, 1.0, 2.0, 3.0, 2.0));
        // s = 1, t(2) = 4.303: 4.303 / √3.
        assert!((band.ci95.unwrap() - 2.4843).abs() < 1e-3);
    }

    #[test]
    fn one_replica_has_no_interval_and_none_has_no_band() {
        assert_eq!(Band::of("x", vec![5.0]).unwrap().ci95, None);
        assert_eq!(Band::of("x", Vec::new()), None);
    }

    #[test]
    fn a_band_is_narrow_up_to_half_a_per_cent() {
        assert!(
            Band::of("x", vec![1000.0, 1005.0]).unwrap().is_narrow()
                && Band::of("x", vec![0.0; 2]).unwrap().is_narrow()
        );
        assert!(!Band::of("x", vec![1000.0, 1006.0]).unwrap().is_narrow());
    }

    #[test]
    fn every_figure_but_none_has_a_unit() {
        let units = ["p50_ttft_ms", "request_throughput", "bad_share", "starved_sessions"].map(unit);
        assert_eq!(units, ["ms", "requests/s", "share", "sessions"]);
    }

    #[test]
    fn the_expansion_meets_the_table() {
        assert!((t_975(31) - 2.0395).abs() < 2e-4 && (t_975(1000) - 1.9623).abs() < 2e-4);
    }
}
