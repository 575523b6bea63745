//! [`RunSummary`]: everything the tables print, as written to `summary.json`.
//!
//! Top-level keys follow vLLM's benchmark. Invariant: no value of a run in virtual time depends on the wall clock or the
//! host, so equal runs give equal bytes; nothing is NaN or infinite, what is unknown or not reached is null.

use schemars::{JsonSchema, Schema, generate::SchemaSettings};
use serde::Serialize;

use super::outcomes::{ErrorGroup, Outcomes};
use super::{
    CauseLine, Fairness, Goodput, IndexUse, Integrity, Latencies, ModeRow, Reuse, RoleSpread, RunInfo, SessionRow,
    Transfers, WorkerRow,
};
use crate::record::{HarnessFacts, RequestRecord};

/// Version of the summary; grows when a key changes its meaning or goes away.
pub const SUMMARY_VERSION: u32 = 1;

/// The whole run.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct RunSummary {
    /// [`SUMMARY_VERSION`].
    pub schema_version: u32,
    /// The run in words.
    pub run: RunInfo,
    /// May the headline be read, and what to know before.
    pub integrity: Integrity,
    /// Requests that ended ok.
    pub completed: u64,
    /// Requests truncated, aborted, failed or timed out.
    pub failed: u64,
    /// First send to last end, seconds; the window of every rate. Null when nothing was sent.
    pub duration: Option<f64>,
    /// Prompt tokens of completed requests.
    pub total_input_tokens: u64,
    /// Answer tokens of completed requests, as the rates count them. Those of failed requests are in `lengths.got_tokens` only.
    pub total_output_tokens: u64,
    /// Completed requests per second; null without a window.
    pub request_throughput: Option<f64>,
    /// Requests within every objective of `goodput` per second; null without objectives or without a window.
    pub request_goodput: Option<f64>,
    /// Answer tokens of completed requests per second.
    pub output_throughput: Option<f64>,
    /// Prompt and answer tokens of completed requests per second.
    pub total_token_throughput: Option<f64>,
    /// How percentiles were computed: `hdr-3-digits, nearest rank`.
    pub percentiles: String,
    /// Oddities of the percentiles asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub percentile_notes: Vec<String>,
    /// All latencies, flat.
    #[serde(flatten)]
    pub latencies: Latencies,
    /// How requests ended; they add up to the planned ones.
    pub outcomes: Outcomes,
    /// What kept the objectives; null where none are set.
    pub goodput: Option<Goodput>,
    /// Answer lengths wanted and got.
    pub lengths: Lengths,
    /// Failures by class.
    pub errors: Vec<ErrorGroup>,
    /// Why, as far as the data says it.
    pub causes: Vec<CauseLine>,
    /// What caches spared.
    #[serde(flatten)]
    pub reuse: Reuse,
    /// Per execution mode.
    pub modes: Vec<ModeRow>,
    /// Over sessions.
    pub fairness: Fairness,
    /// Per session, by arrival.
    pub sessions: Vec<SessionRow>,
    /// Spread over the workers of each role.
    pub spread: Vec<RoleSpread>,
    /// Per worker.
    pub workers: Vec<WorkerRow>,
    /// Per P→D pair.
    pub transfers: Transfers,
    /// What the KV index promised and what was found; null without an index.
    pub index: Option<IndexUse>,
    /// What the harness cost and whether it kept up; null in virtual time.
    pub harness: Option<HarnessFacts>,
}

/// Answer tokens of the requests that were sent, however they ended: not the base of the rates.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, JsonSchema)]
pub struct Lengths {
    /// Requests sent.
    pub requests: u64,
    /// Answer tokens asked for.
    pub wanted_tokens: u64,
    /// Answer tokens received, those of failed requests included.
    pub got_tokens: u64,
    /// `got / wanted`, 0 to 1.
    pub got_share: Option<f64>,
    /// Requests with fewer tokens than asked for.
    pub shorter: u64,
    /// Of these, counted as ok.
    pub shorter_but_ok: u64,
}

/// Label of the mechanism that keeps sessions on D.
pub(super) const KEEPS_SESSIONS: &str = "kvc";

impl RunSummary {
    /// Sessions that starve, their direct share below a fifth for another reason than a first placement, also where the whole
    /// run's is; `None` for a run that keeps no sessions on D, in which nothing can go direct.
    pub fn starved_sessions(&self) -> Option<u64> {
        (self.run.mechanism == KEEPS_SESSIONS).then_some(self.fairness.starved_sessions)
    }

    /// Share of later turns that went direct; `None` for a run that keeps no sessions on D.
    pub fn direct_share(&self) -> Option<f64> {
        self.fairness.direct_share.filter(|_| self.run.mechanism == KEEPS_SESSIONS)
    }

    /// JSON Schema of `summary.json`.
    pub fn schema() -> Schema {
        SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<RunSummary>()
    }
}

/// JSON Schema of a line of `requests.jsonl`.
pub fn request_schema() -> Schema {
    SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<RequestRecord>()
}
