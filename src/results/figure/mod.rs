//! [`Figure`]: what runs are compared by: name, unit, which way is better, meaning, and where a summary has it.
//!
//! One table for replicas, sweeps, comparisons and thresholds. A latency by a statistic is named after both, a figure of the
//! whole run is a row of [`RunFigure`]. Invariant: a figure's name is its key in `summary.json` where that has the figure.

mod headline;
mod run;

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

pub use headline::Figures;
pub use run::RunFigure;

use super::{Metric, Percentile, RunSummary};

/// Which way a figure gets better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// Less is better: a latency.
    Lower,
    /// More is better: throughput.
    Higher,
    /// It describes.
    Neither,
}

/// One figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Figure {
    /// `mean_e2e_ms`: of a latency.
    Mean(Metric),
    /// `p99_e2e_ms`, and with failures as endless `p99_e2e_ms_with_failures`.
    Percentile {
        /// Of which latency.
        metric: Metric,
        /// Which percentile.
        percentile: Percentile,
        /// Failures count as endless.
        with_failures: bool,
    },
    /// A figure of the whole run.
    Run(RunFigure),
}

impl Figure {
    /// A percentile of ok requests.
    pub const fn percentile(metric: Metric, percentile: Percentile) -> Figure {
        Figure::Percentile { metric, percentile, with_failures: false }
    }

    /// The same with failures as endless.
    pub const fn with_failures(metric: Metric, percentile: Percentile) -> Figure {
        Figure::Percentile { metric, percentile, with_failures: true }
    }

    /// What is measured: `e2e`, `direct_share`.
    pub fn measured(self) -> &'static str {
        match self {
            Figure::Mean(metric) | Figure::Percentile { metric, .. } => metric.as_str(),
            Figure::Run(figure) => figure.as_str(),
        }
    }

    /// Statistic: `mean`, `p99`, `value`.
    pub fn stat(self) -> String {
        match self {
            Figure::Mean(_) => "mean".into(),
            Figure::Percentile { percentile, .. } => percentile.to_string(),
            Figure::Run(_) => "value".into(),
        }
    }

    /// Its name for people: `TTFT p99`, `schedule lag mean`, `request goodput`.
    pub fn name(self) -> String {
        let of = |metric: Metric| match metric {
            Metric::Ttft | Metric::Tpot | Metric::Itl | Metric::E2e => metric.as_str().to_uppercase(),
            Metric::SchedTtft | Metric::SchedE2e => metric.title().to_owned(),
            other => other.as_str().replace('_', " "),
        };
        match self {
            Figure::Mean(metric) => format!("{} mean", of(metric)),
            Figure::Percentile { metric, percentile, with_failures } => {
                format!("{} {percentile}{}", of(metric), if with_failures { ", with failures" } else { "" })
            }
            Figure::Run(figure) => figure.as_str().replace('_', " "),
        }
    }

    /// Unit.
    pub fn unit(self) -> &'static str {
        match self {
            Figure::Mean(_) | Figure::Percentile { .. } => "ms",
            Figure::Run(figure) => figure.unit(),
        }
    }

    /// Which way is better. A wait for the previous turn is what the schedule makes of the answers before.
    pub fn better(self) -> Better {
        match self {
            Figure::Mean(_) | Figure::Percentile { .. } => Better::Lower,
            Figure::Run(figure) => figure.better(),
        }
    }

    /// What it is, in a sentence.
    pub fn meaning(self) -> String {
        match self {
            Figure::Mean(metric) => format!("{}, mean over ok requests, milliseconds.", metric.title()),
            Figure::Percentile { metric, percentile, with_failures: false } => {
                format!("{}, {percentile} over ok requests, milliseconds.", metric.title())
            }
            Figure::Percentile { metric, percentile, with_failures: true } => {
                format!(
                    "{}, {percentile} with failures as endless, milliseconds; null when not reached.",
                    metric.title()
                )
            }
            Figure::Run(figure) => figure.meaning().into(),
        }
    }

    /// Counts something, so that a difference of one is a difference.
    pub fn is_count(self) -> bool {
        matches!(self.unit(), "requests" | "sessions")
    }

    /// Its value in a run; none where the run has none, or where only a comparison has it.
    pub fn in_summary(self, summary: &RunSummary) -> Option<f64> {
        match self {
            Figure::Mean(metric) => summary.latencies.of(metric).mean_ms,
            Figure::Percentile { metric, percentile, with_failures } => {
                let latency = summary.latencies.of(metric);
                let rung = latency.rungs.iter().find(|rung| rung.percentile == percentile);
                match (rung, percentile) {
                    (Some(rung), _) if with_failures => rung.with_failures_ms,
                    (Some(rung), _) => rung.ms,
                    (None, Percentile::P50) if !with_failures => latency.median_ms,
                    (None, _) => None,
                }
            }
            Figure::Run(figure) => figure.in_summary(summary),
        }
    }

    /// The same of a `summary.json`, so that a run just ended and one found on disk give the same number.
    pub fn in_json(self, summary: &Value) -> Option<f64> {
        match self {
            Figure::Percentile { metric, percentile: Percentile::P50, with_failures: false } => {
                summary.get(format!("median_{}_ms", metric.as_str()))?.as_f64()
            }
            Figure::Mean(_) | Figure::Percentile { .. } => summary.get(self.to_string())?.as_f64(),
            Figure::Run(figure) => figure.in_json(summary),
        }
    }
}

impl fmt::Display for Figure {
    /// The key: `p99_e2e_ms_with_failures`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Figure::Mean(metric) => write!(f, "mean_{}_ms", metric.as_str()),
            Figure::Percentile { metric, percentile, with_failures } => {
                let end = if *with_failures { "_with_failures" } else { "" };
                write!(f, "{percentile}_{}_ms{end}", metric.as_str())
            }
            Figure::Run(figure) => f.write_str(figure.as_str()),
        }
    }
}

/// No figure has this name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownFigure;

impl FromStr for Figure {
    type Err = UnknownFigure;

    /// A key as [`Figure`] shows it; `median_e2e_ms` is `p50_e2e_ms`.
    fn from_str(text: &str) -> Result<Figure, UnknownFigure> {
        if let Some(figure) = RunFigure::ALL.iter().find(|figure| figure.as_str() == text) {
            return Ok(Figure::Run(*figure));
        }
        let (body, with_failures) = text.strip_suffix("_with_failures").map_or((text, false), |body| (body, true));
        let (stat, name) = body.strip_suffix("_ms").and_then(|body| body.split_once('_')).ok_or(UnknownFigure)?;
        let metric = Metric::ALL.into_iter().find(|metric| metric.as_str() == name).ok_or(UnknownFigure)?;
        match (stat, with_failures) {
            ("mean", false) => Ok(Figure::Mean(metric)),
            ("median", false) => Ok(Figure::percentile(metric, Percentile::P50)),
            (_, true) if !metric.has_failures_form() => Err(UnknownFigure),
            (stat, with_failures) => {
                let percentile = stat.strip_prefix('p').and_then(|p| p.parse().ok()).ok_or(UnknownFigure)?;
                Ok(Figure::Percentile { metric, percentile, with_failures })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_names_its_figure_and_back() {
        let runs = RunFigure::ALL.iter().map(|figure| Figure::Run(*figure));
        for figure in Metric::ALL.into_iter().map(Figure::Mean).chain(runs).chain(Figure::HEADLINE) {
            assert_eq!(figure.to_string().parse(), Ok(figure));
        }
        assert_eq!("p97.5_ttft_ms".parse::<Figure>().unwrap().to_string(), "p97.5_ttft_ms");
        assert_eq!("median_e2e_ms".parse::<Figure>().unwrap().to_string(), "p50_e2e_ms");
    }

    #[test]
    fn other_words_are_no_figures() {
        let words = [
            "",
            "p99_e2e",
            "p101_e2e_ms",
            "mean_e2e_ms_with_failures",
            "p99_prefill_ms_with_failures",
            "p99_itl_ms_with_failures",
            "std_e2e_ms",
            "direct",
        ];
        for word in words {
            assert_eq!(word.parse::<Figure>(), Err(UnknownFigure), "{word}");
        }
    }
}
