//! [`Figure`]: the headline figures of a run, by which runs are compared: name, unit, which way is better, where it is.
//!
//! One table for replicas and sweeps. A figure is read from the JSON of a summary, so a run that has just ended and one
//! found on disk give the same number. What a summary does not have is `None`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::summary::KEEPS_SESSIONS;

/// Which way a figure gets better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// Less is better, as of a latency.
    Lower,
    /// More is better, as of a throughput.
    Higher,
    /// Neither: it only describes.
    Neither,
}

/// `Variant "key" field: unit, better, place in summary.json, meaning`, in the order of tables and columns.
macro_rules! figures {
    ($($variant:ident $key:literal $field:ident: $unit:literal, $better:ident, $place:literal, $meaning:literal;)+) => {
        /// A headline figure, by its key.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
        pub enum Figure {
            $(#[doc = $meaning] #[serde(rename = $key)] $variant,)+
        }

        impl Figure {
            /// Every figure, in the order of tables and columns.
            pub const ALL: &[Figure] = &[$(Figure::$variant,)+];

            /// Its key in `sweep.json`, and in `summary.json` where that has it.
            pub fn as_str(self) -> &'static str {
                match self { $(Figure::$variant => $key,)+ }
            }

            /// Its unit; empty for a plain number.
            pub fn unit(self) -> &'static str {
                match self { $(Figure::$variant => $unit,)+ }
            }

            /// Which way it gets better.
            pub fn better(self) -> Better {
                match self { $(Figure::$variant => Better::$better,)+ }
            }

            /// JSON pointer into `summary.json`.
            fn place(self) -> &'static str {
                match self { $(Figure::$variant => $place,)+ }
            }
        }

        /// The headline figures of one run; null where the run does not have one.
        #[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
        pub struct Figures {
            $(#[doc = $meaning] #[serde(default)] pub $field: Option<f64>,)+
        }

        impl Figures {
            /// One of them.
            pub fn get(&self, figure: Figure) -> Option<f64> {
                match figure { $(Figure::$variant => self.$field,)+ }
            }

            fn put(&mut self, figure: Figure, value: Option<f64>) {
                match figure { $(Figure::$variant => self.$field = value,)+ }
            }
        }
    };
}

figures! {
    Completed "completed" completed: "requests", Higher, "/completed",
        "Requests that ended ok.";
    BadShare "bad_share" bad_share: "share", Lower, "/integrity/bad_share",
        "Requests truncated, aborted, failed or timed out over those that ran to an end, 0 to 1.";
    MeanTtft "mean_ttft_ms" mean_ttft_ms: "ms", Lower, "/mean_ttft_ms",
        "Time to the first token, mean over ok requests, milliseconds.";
    P50Ttft "p50_ttft_ms" p50_ttft_ms: "ms", Lower, "/median_ttft_ms",
        "Its median.";
    P90Ttft "p90_ttft_ms" p90_ttft_ms: "ms", Lower, "/p90_ttft_ms",
        "Its 90th percentile.";
    P99Ttft "p99_ttft_ms" p99_ttft_ms: "ms", Lower, "/p99_ttft_ms",
        "Its 99th percentile.";
    P99TtftWithFailures "p99_ttft_ms_with_failures" p99_ttft_ms_with_failures: "ms", Lower, "/p99_ttft_ms_with_failures",
        "The same with failed requests as endless; missing when not reached.";
    MeanE2e "mean_e2e_ms" mean_e2e_ms: "ms", Lower, "/mean_e2e_ms",
        "Send to end, mean over ok requests, milliseconds.";
    P50E2e "p50_e2e_ms" p50_e2e_ms: "ms", Lower, "/median_e2e_ms",
        "Its median.";
    P90E2e "p90_e2e_ms" p90_e2e_ms: "ms", Lower, "/p90_e2e_ms",
        "Its 90th percentile.";
    P99E2e "p99_e2e_ms" p99_e2e_ms: "ms", Lower, "/p99_e2e_ms",
        "Its 99th percentile.";
    P50E2eWithFailures "p50_e2e_ms_with_failures" p50_e2e_ms_with_failures: "ms", Lower, "/p50_e2e_ms_with_failures",
        "Median of send to end with failed requests as endless; missing when not reached.";
    P90E2eWithFailures "p90_e2e_ms_with_failures" p90_e2e_ms_with_failures: "ms", Lower, "/p90_e2e_ms_with_failures",
        "Its 90th percentile.";
    P99E2eWithFailures "p99_e2e_ms_with_failures" p99_e2e_ms_with_failures: "ms", Lower, "/p99_e2e_ms_with_failures",
        "Its 99th percentile.";
    RequestThroughput "request_throughput" request_throughput: "requests/s", Higher, "/request_throughput",
        "Completed requests per second, first send to last end.";
    OutputThroughput "output_throughput" output_throughput: "tokens/s", Higher, "/output_throughput",
        "Answer tokens of completed requests per second.";
    Duration "duration" duration: "s", Lower, "/duration",
        "First send to last end, seconds.";
    DirectShare "direct_share" direct_share: "share", Higher, "/fairness/direct_share",
        "Turns after each session's first that went direct to D and ended ok, 0 to 1; missing without sessions on D.";
    StarvedSessions "starved_sessions" starved_sessions: "sessions", Lower, "/fairness/histogram/0",
        "Sessions with a direct share below 20 %, whatever the run's own; missing without sessions on D.";
    GiniMeanE2e "gini_mean_e2e" gini_mean_e2e: "", Lower, "/fairness/gini_mean_e2e",
        "Gini coefficient of the sessions' mean E2E: 0 equal.";
    JainMeanE2e "jain_mean_e2e" jain_mean_e2e: "", Higher, "/fairness/jain_mean_e2e",
        "Jain's index of the sessions' mean E2E: 1 equal.";
    Bimodality "bimodality" bimodality: "", Neither, "/fairness/bimodality",
        "Sarle's bimodality coefficient of the sessions' direct shares: above 5/9 hints at two peaks.";
}

impl Figures {
    /// Of the JSON of a summary, as `summary.json` has it.
    pub fn of(summary: &Value) -> Figures {
        let mut figures = Figures::default();
        for figure in Figure::ALL {
            figures.put(*figure, summary.pointer(figure.place()).and_then(Value::as_f64));
        }
        // Without sessions on D nothing can go direct, and nobody starves for it.
        if summary.pointer("/run/mechanism").and_then(Value::as_str) != Some(KEEPS_SESSIONS) {
            (figures.direct_share, figures.starved_sessions) = (None, None);
        }
        figures
    }
}
