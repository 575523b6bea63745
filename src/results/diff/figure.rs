//! [`Figure`]: what is compared, by the name it has in `summary.json` and `--fail-on`.

use std::fmt;
use std::str::FromStr;

use super::report::Better;
use super::requests::LATENCIES;
use crate::results::{Metric, Percentile, Percentiles, RunSummary};

/// Phases of a request whose means are compared.
pub(super) const PHASES: [Metric; 6] = [
    Metric::WaitPreviousTurn,
    Metric::Admission,
    Metric::PrefillQueue,
    Metric::Prefill,
    Metric::KvTransfer,
    Metric::DecodeQueue,
];

/// One figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    /// `mean_e2e_ms`: of one of the latencies of a request, or of a phase.
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

macro_rules! run_figures {
    ($($(#[$doc:meta])* $variant:ident = $key:literal, $unit:literal, $better:ident;)+) => {
        /// Figures of whole runs.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum RunFigure {
            $($(#[$doc])* $variant,)+
        }

        impl RunFigure {
            /// Every one, in the order of the tables.
            pub const ALL: &'static [RunFigure] = &[$(RunFigure::$variant,)+];

            /// Name.
            pub fn as_str(self) -> &'static str {
                match self { $(RunFigure::$variant => $key,)+ }
            }

            fn unit(self) -> &'static str {
                match self { $(RunFigure::$variant => $unit,)+ }
            }

            fn better(self) -> Better {
                match self { $(RunFigure::$variant => Better::$better,)+ }
            }
        }
    };
}

run_figures! {
    /// Direct and ok over all turns sent after each session's first.
    DirectShare = "direct_share", "share", Higher;
    /// Truncated, aborted, failed and timed out over served.
    BadShare = "bad_share", "share", Lower;
    /// Requests that ended ok.
    Completed = "completed", "requests", Higher;
    /// Requests that failed.
    Failed = "failed", "requests", Lower;
    /// First send to last end.
    Duration = "duration", "s", Lower;
    /// Completed requests a second.
    RequestThroughput = "request_throughput", "requests/s", Higher;
    /// Answer tokens of completed requests a second.
    OutputThroughput = "output_throughput", "tokens/s", Higher;
    /// Prompt and answer tokens of completed requests a second.
    TotalTokenThroughput = "total_token_throughput", "tokens/s", Higher;
    /// Prompt tokens found cached over all prompt tokens.
    CachedTokenShare = "cached_token_share", "share", Higher;
    /// Mean prompt tokens computed although an infinite shared cache would hold them.
    MeanRecomputedTokens = "mean_recomputed_tokens", "tokens", Lower;
    /// Choices by the KV index without a view of the chosen worker.
    IndexBlindShare = "index_blind_share", "share", Lower;
    /// Prompt tokens that the KV index promised and nobody found.
    IndexOverPromised = "index_over_promised_tokens", "tokens", Lower;
    /// Prompt tokens found that the KV index did not promise.
    IndexUnderPromised = "index_under_promised_tokens", "tokens", Lower;
    /// Gini coefficient of the sessions' mean E2E.
    Gini = "gini_mean_e2e", "index", Lower;
    /// Jain's index of the sessions' mean E2E.
    Jain = "jain_mean_e2e", "index", Higher;
    /// Starved sessions.
    StarvedSessions = "starved_sessions", "sessions", Lower;
    /// Starved in B and not in A; 0 in A by definition.
    BecameStarved = "became_starved", "sessions", Lower;
    /// Starved in A and not in B; 0 in A by definition.
    FreedSessions = "freed_sessions", "sessions", Higher;
}

impl Figure {
    /// Those a comparison gives, in the order of its tables; forms with failures only where there are `failures`.
    pub(super) fn all(percentiles: &Percentiles, failures: bool) -> Vec<Figure> {
        let mut all = Vec::new();
        for metric in LATENCIES {
            all.push(Figure::Mean(metric));
            all.extend(percentiles.iter().map(|percentile| Figure::percentile(metric, percentile, false)));
            if failures && matches!(metric, Metric::Ttft | Metric::E2e) {
                all.extend(percentiles.iter().map(|percentile| Figure::percentile(metric, percentile, true)));
            }
        }
        all.extend(PHASES.map(Figure::Mean));
        all.extend(RunFigure::ALL.iter().map(|figure| Figure::Run(*figure)));
        all
    }

    fn percentile(metric: Metric, percentile: Percentile, with_failures: bool) -> Figure {
        Figure::Percentile { metric, percentile, with_failures }
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

    /// Its value in one run by itself; none for what only a comparison has.
    pub(super) fn in_summary(self, summary: &RunSummary) -> Option<f64> {
        match self {
            Figure::Mean(metric) => summary.latencies.of(metric).mean_ms,
            Figure::Percentile { metric, percentile, with_failures } => {
                let rung = summary.latencies.of(metric).rungs.iter().find(|rung| rung.percentile == percentile)?;
                if with_failures { rung.with_failures_ms } else { rung.ms }
            }
            Figure::Run(figure) => figure.in_summary(summary),
        }
    }

    /// Counts something, so that a difference of one is a difference.
    pub(super) fn is_count(self) -> bool {
        matches!(self.unit(), "requests" | "sessions")
    }

    /// Known names, for a near miss.
    pub fn names() -> Vec<String> {
        let ladder: Percentiles = Percentiles::default();
        Figure::all(&ladder, true).into_iter().map(|figure| figure.to_string()).collect()
    }
}

impl RunFigure {
    fn in_summary(self, summary: &RunSummary) -> Option<f64> {
        match self {
            RunFigure::DirectShare => summary.direct_share(),
            RunFigure::BadShare => summary.outcomes.bad_share(),
            RunFigure::Completed => Some(summary.completed as f64),
            RunFigure::Failed => Some(summary.failed as f64),
            RunFigure::Duration => summary.duration,
            RunFigure::RequestThroughput => summary.request_throughput,
            RunFigure::OutputThroughput => summary.output_throughput,
            RunFigure::TotalTokenThroughput => summary.total_token_throughput,
            RunFigure::CachedTokenShare => summary.reuse.cached_token_share,
            RunFigure::MeanRecomputedTokens => summary.reuse.mean_recomputed_tokens,
            RunFigure::IndexBlindShare => summary.index.as_ref()?.blind_share,
            RunFigure::IndexOverPromised => Some(summary.index.as_ref()?.kept.over_promised_tokens as f64),
            RunFigure::IndexUnderPromised => Some(summary.index.as_ref()?.kept.under_promised_tokens as f64),
            RunFigure::Gini => summary.fairness.gini_mean_e2e,
            RunFigure::Jain => summary.fairness.jain_mean_e2e,
            RunFigure::StarvedSessions => summary.starved_sessions().map(|count| count as f64),
            RunFigure::BecameStarved | RunFigure::FreedSessions => None,
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
        let (stat, metric) = body.strip_suffix("_ms").and_then(|body| body.split_once('_')).ok_or(UnknownFigure)?;
        let named = |known: &[Metric]| known.iter().copied().find(|known| known.as_str() == metric);
        match (stat, with_failures) {
            ("mean", false) => named(&LATENCIES).or(named(&PHASES)).map(Figure::Mean).ok_or(UnknownFigure),
            ("median", false) => {
                named(&LATENCIES).map(|metric| Figure::percentile(metric, Percentile::P50, false)).ok_or(UnknownFigure)
            }
            (stat, _) => {
                let known: &[Metric] = if with_failures { &[Metric::Ttft, Metric::E2e] } else { &LATENCIES };
                let percentile = stat.strip_prefix('p').and_then(|p| p.parse().ok()).ok_or(UnknownFigure)?;
                named(known).map(|metric| Figure::percentile(metric, percentile, with_failures)).ok_or(UnknownFigure)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_names_its_figure_and_back() {
        for name in Figure::names() {
            assert_eq!(name.parse::<Figure>().unwrap().to_string(), name);
        }
        assert_eq!("p97.5_ttft_ms".parse::<Figure>().unwrap().to_string(), "p97.5_ttft_ms");
        assert_eq!("median_e2e_ms".parse::<Figure>().unwrap().to_string(), "p50_e2e_ms");
    }

    #[test]
    fn other_words_are_no_figures() {
        let words =
            ["", "p99_e2e", "p101_e2e_ms", "mean_itl_ms", "mean_e2e_ms_with_failures", "p99_prefill_ms", "direct"];
        for word in words {
            assert_eq!(word.parse::<Figure>(), Err(UnknownFigure), "{word}");
        }
    }
}
