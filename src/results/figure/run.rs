//! [`RunFigure`]: the figures of whole runs, a row each.

use serde_json::Value;

use super::Better;
use crate::results::RunSummary;
use crate::results::summary::KEEPS_SESSIONS;

/// `Variant "key": unit, better, pointer into summary.json (empty: only a comparison has it), value, meaning`, in the order of
/// tables.
macro_rules! run_figures {
    ($($variant:ident $key:literal: $unit:literal, $better:ident, $place:literal, $value:expr, $meaning:literal;)+) => {
        /// A figure of a whole run.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum RunFigure {
            $(#[doc = $meaning] $variant,)+
        }

        impl RunFigure {
            /// Every one, in the order of tables.
            pub const ALL: &'static [RunFigure] = &[$(RunFigure::$variant,)+];

            /// Name.
            pub fn as_str(self) -> &'static str {
                match self { $(RunFigure::$variant => $key,)+ }
            }

            /// Unit: `share`, `index` or what is counted.
            pub fn unit(self) -> &'static str {
                match self { $(RunFigure::$variant => $unit,)+ }
            }

            /// Which way it gets better.
            pub fn better(self) -> Better {
                match self { $(RunFigure::$variant => Better::$better,)+ }
            }

            /// What it is, in a sentence.
            pub fn meaning(self) -> &'static str {
                match self { $(RunFigure::$variant => $meaning,)+ }
            }

            /// Its value in a run.
            pub(super) fn in_summary(self, summary: &RunSummary) -> Option<f64> {
                let value: fn(&RunSummary) -> Option<f64> = match self { $(RunFigure::$variant => $value,)+ };
                value(summary)
            }

            fn place(self) -> &'static str {
                match self { $(RunFigure::$variant => $place,)+ }
            }
        }
    };
}

run_figures! {
    DirectShare "direct_share": "share", Higher, "/fairness/direct_share", RunSummary::direct_share,
        "Turns after each session's first that went direct to D and ended ok, 0 to 1; missing without sessions on D.";
    BadShare "bad_share": "share", Lower, "/integrity/bad_share", |run| run.integrity.bad_share,
        "Requests truncated, aborted, failed or timed out over those that ran to an end, 0 to 1.";
    SloAttainment "slo_attainment": "share", Higher, "/goodput/slo_attainment", |run| run.goodput.as_ref()?.slo_attainment,
        "Requests that ended ok within every objective of `[slo]` over those that ran to an end, 0 to 1; missing without objectives.";
    Completed "completed": "requests", Higher, "/completed", |run| Some(run.completed as f64),
        "Requests that ended ok.";
    Failed "failed": "requests", Lower, "/failed", |run| Some(run.failed as f64),
        "Requests truncated, aborted, failed or timed out.";
    Duration "duration": "s", Lower, "/duration", |run| run.duration,
        "First send to last end, seconds.";
    RequestThroughput "request_throughput": "requests/s", Higher, "/request_throughput", |run| run.request_throughput,
        "Completed requests per second, first send to last end.";
    RequestGoodput "request_goodput": "requests/s", Higher, "/request_goodput", |run| run.request_goodput,
        "Requests that ended ok within every objective of `[slo]` per second, first send to last end; missing without objectives.";
    OutputThroughput "output_throughput": "tokens/s", Higher, "/output_throughput", |run| run.output_throughput,
        "Answer tokens of completed requests per second.";
    TotalTokenThroughput "total_token_throughput": "tokens/s", Higher, "/total_token_throughput", |run| run.total_token_throughput,
        "Prompt and answer tokens of completed requests per second.";
    CachedTokenShare "cached_token_share": "share", Higher, "/cached_token_share", |run| run.reuse.cached_token_share,
        "Prompt tokens found cached over all prompt tokens computed, 0 to 1.";
    MeanRecomputedTokens "mean_recomputed_tokens": "tokens", Lower, "/mean_recomputed_tokens", |run| run.reuse.mean_recomputed_tokens,
        "Mean prompt tokens computed although an infinite shared cache would hold them.";
    IndexBlindShare "index_blind_share": "share", Lower, "/index/blind_share", |run| run.index.as_ref()?.blind_share,
        "Choices by the KV index without a view of the chosen worker, 0 to 1; missing without an index.";
    IndexOverPromised "index_over_promised_tokens": "tokens", Lower, "/index/over_promised_tokens", over_promised,
        "Prompt tokens that the KV index promised and nobody found; missing without an index.";
    IndexUnderPromised "index_under_promised_tokens": "tokens", Lower, "/index/under_promised_tokens", under_promised,
        "Prompt tokens found that the KV index did not promise; missing without an index.";
    GiniMeanE2e "gini_mean_e2e": "index", Lower, "/fairness/gini_mean_e2e", |run| run.fairness.gini_mean_e2e,
        "Gini coefficient of the sessions' mean E2E: 0 equal.";
    JainMeanE2e "jain_mean_e2e": "index", Higher, "/fairness/jain_mean_e2e", |run| run.fairness.jain_mean_e2e,
        "Jain's index of the sessions' mean E2E: 1 equal.";
    Bimodality "bimodality": "index", Neither, "/fairness/bimodality", |run| run.fairness.bimodality,
        "Sarle's bimodality coefficient of the sessions' direct shares: above 5/9 hints at two peaks.";
    StarvedSessions "starved_sessions": "sessions", Lower, "/fairness/starved_sessions", |run| run.starved_sessions().map(|n| n as f64),
        "Sessions with a direct share below 20 % for another reason than a first placement, whatever the run's own share; missing without sessions on D.";
    BecameStarved "became_starved": "sessions", Lower, "", |_| None,
        "Sessions starved in B and not in A, where both keep sessions on D; 0 in A by definition.";
    FreedSessions "freed_sessions": "sessions", Higher, "", |_| None,
        "Sessions starved in A and not in B, where both keep sessions on D; 0 in A by definition.";
}

fn over_promised(run: &RunSummary) -> Option<f64> {
    Some(run.index.as_ref()?.kept.over_promised_tokens as f64)
}

fn under_promised(run: &RunSummary) -> Option<f64> {
    Some(run.index.as_ref()?.kept.under_promised_tokens as f64)
}

impl RunFigure {
    /// Its value in a `summary.json`.
    pub(super) fn in_json(self, summary: &Value) -> Option<f64> {
        // Without sessions on D nothing can go direct, and nobody starves for it.
        let of_sessions = matches!(self, RunFigure::DirectShare | RunFigure::StarvedSessions);
        let keeps = summary.pointer("/run/mechanism").and_then(Value::as_str) == Some(KEEPS_SESSIONS);
        summary.pointer(self.place()).filter(|_| keeps || !of_sessions)?.as_f64()
    }
}
