//! [`DiffReport`]: two runs, or two groups of repeats, against each other, as `pdreplay diff --format json` writes it.
//!
//! Invariant: every difference is B − A; what one side lacks, or what `--force` made meaningless, is null or left out and
//! named in [`DiffReport::forced`]; nothing is NaN or infinite.

use schemars::{JsonSchema, Schema, generate::SchemaSettings};
use serde::Serialize;

use crate::record::{ExecutionMode, ModeReason, Outcome};
use crate::results::{Better, CauseLine, ErrorGroup, Outcomes, RunState, Slos, Verdict};

/// Version of the report; grows when a key changes its meaning or goes away.
pub const DIFF_VERSION: u32 = 1;

/// A against B. Tables, Markdown, JSON and HTML draw from this alone.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct DiffReport {
    /// [`DIFF_VERSION`].
    pub schema_version: u32,
    /// The base.
    pub a: SideFacts,
    /// What is held against it.
    pub b: SideFacts,
    /// Can the two be compared at all, and are they the same.
    pub comparison: ComparisonKind,
    /// What to know before the numbers, one sentence each: unfinished, withheld and invalid runs first.
    pub notes: Vec<String>,
    /// Why the comparison would have been refused without `--force`, and what is left out for it.
    pub forced: Vec<Forced>,
    /// Keys of the scenario that differ, in the order of their names; those of seed and name aside.
    pub scenario_changes: Vec<ScenarioChange>,
    /// Requests that were compared.
    pub paired: Paired,
    /// How the intervals were made; null without resamples.
    pub bootstrap: Option<BootstrapFacts>,
    /// What repeats say of chance; null without repeats.
    pub noise: Option<NoiseFacts>,
    /// Objectives of `request_goodput` and `slo_attainment`; null where there are none, or not the same on both sides.
    pub objectives: Option<Slos>,
    /// Latencies by statistic, then figures of whole runs.
    pub metrics: Vec<MetricDelta>,
    /// Percentile curves of TTFT and E2E, for drawing.
    pub curves: Vec<Curve>,
    /// Where the difference of mean E2E, and of mean TTFT, comes from; empty where there is none to split.
    pub splits: Vec<Split>,
    /// Paired requests by the mode they took in A and in B, the most frequent first.
    pub transitions: Vec<Transition>,
    /// Over sessions.
    pub sessions: SessionChanges,
    /// Over workers.
    pub workers: WorkerChanges,
    /// How requests ended.
    pub outcomes: OutcomeChanges,
    /// The conditions of `--fail-on`, in the order given.
    pub thresholds: Vec<ThresholdResult>,
}

/// Whether A and B can be compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ComparisonKind {
    /// Every paired request has the same latencies, mode, workers and outcome on both sides, and none is unpaired.
    Identical,
    /// They differ.
    Different,
    /// One side has nothing to compare.
    NotComparable {
        /// Why: `B has no completed request`.
        reason: String,
    },
}

/// One side of the comparison.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SideFacts {
    /// As it was named on the command line.
    pub label: String,
    /// Its runs: one, or repeats.
    pub runs: Vec<RunLine>,
    /// Short name of the trace.
    pub trace: String,
    /// SHA-256 of the trace; null for a file of records.
    pub trace_sha256: Option<String>,
    /// Requests of a run.
    pub requests: u64,
    /// Sessions of a run.
    pub sessions: u64,
    /// Topology, such as `1P7D`.
    pub topology: String,
    /// Mechanism label.
    pub mechanism: String,
    /// Policy label.
    pub policy: String,
    /// Limits worth a headline.
    pub limits: String,
    /// The time scale as a sentence.
    pub time_scale_text: String,
    /// Driver: `virtual time`, `real time` or `records alone`.
    pub driver: String,
    /// Cause lines of the first run.
    pub causes: Vec<CauseLine>,
    /// Failures by class of the first run.
    pub errors: Vec<ErrorGroup>,
}

/// One run of a side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RunLine {
    /// Where it lies.
    pub path: String,
    /// Id in its records.
    pub run_id: String,
    /// Seed.
    pub seed: u64,
    /// How it ended.
    pub state: RunState,
    /// May its headline be read?
    pub verdict: Verdict,
    /// Why not.
    pub reason: Option<String>,
    /// Requests that ended ok.
    pub completed: u64,
    /// Requests with a record.
    pub recorded: u64,
}

/// Something that makes a comparison meaningless in part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Forced {
    /// What differs.
    pub difference: Difference,
    /// The difference in words: `the traces differ: 3f… against 91…`.
    pub text: String,
    /// What is meaningless for it, in words.
    pub meaningless: String,
}

/// Why two runs are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Difference {
    /// Other traces: nothing is paired.
    Trace,
    /// The same trace, but other requests or sessions of it.
    Population,
    /// The runs of one side are of other scenarios, or one run is given twice.
    Repeats,
    /// Other time scales: loads differ by themselves.
    TimeScale,
}

/// A scenario key whose value differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ScenarioChange {
    /// Dotted key, such as `admission.cap_max`.
    pub key: String,
    /// Value in A as JSON; null when it has none.
    pub a: Option<String>,
    /// Value in B as JSON; null when it has none.
    pub b: Option<String>,
}

/// Requests by whether both sides have them, found by (session, turn).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct Paired {
    /// Requests of both.
    pub both: u64,
    /// Of these, ok on both sides (in the first repeat of each).
    pub both_ok: u64,
    /// Of A alone: left out of every figure.
    pub only_a: u64,
    /// Of B alone: left out of every figure.
    pub only_b: u64,
    /// Sessions of both.
    pub sessions: u64,
}

/// How intervals were made.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct BootstrapFacts {
    /// Resamples drawn.
    pub resamples: u32,
    /// Seed of the draws.
    pub seed: u64,
    /// Confidence of each interval, 0 to 1.
    pub confidence: f64,
    /// What is drawn with replacement: sessions, each with its requests of both sides and all repeats.
    pub sessions: u64,
    /// Name of the method: `paired by session, percentile interval expanded by Student's t`.
    pub method: String,
}

/// What repeats say of chance.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct NoiseFacts {
    /// Where the repeats are from.
    pub source: NoiseSource,
    /// Repeats of A that were used.
    pub repeats_a: u32,
    /// Repeats of B that were used.
    pub repeats_b: u32,
    /// Jitter of arrivals among them, milliseconds; null when unknown.
    pub jitter_ms: Option<f64>,
    /// In words: `3 repeats of either side, made for this comparison with 1 ms of jitter`.
    pub text: String,
}

/// Where repeats are from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NoiseSource {
    /// The runs given.
    Given,
    /// Made in virtual time for this comparison.
    Made,
}

/// One figure of both sides.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct MetricDelta {
    /// Name as in `--fail-on` and `summary.json`: `p99_e2e_ms`, `direct_share`.
    pub key: String,
    /// What is measured: `e2e`, `ttft`, `direct_share`.
    pub metric: String,
    /// Statistic: `mean`, `p50`, `p99.9`; `value` for a figure of the whole run.
    pub stat: String,
    /// `ms`, `share`, `requests/s`, `tokens/s`, `requests`, `sessions`, `index` or `tokens`.
    pub unit: String,
    /// Which way is better.
    pub better: Better,
    /// Value in A; null when there is none, or (with failures) not reached.
    pub a: Option<f64>,
    /// Value in B.
    pub b: Option<f64>,
    /// Values behind `a`, all repeats together.
    pub n_a: u64,
    /// Values behind `b`.
    pub n_b: u64,
    /// `b − a`.
    pub delta: Option<f64>,
    /// `(b − a) / a`; null where `a` is 0.
    pub relative: Option<f64>,
    /// Bootstrap interval of `delta`; null without resamples, or for a figure that has none.
    pub interval: Option<Interval>,
    /// Half width of what chance makes of `delta`, from repeats: t · s · √(1/n_A + 1/n_B); null without repeats.
    pub noise: Option<f64>,
    /// What to make of it.
    pub verdict: DeltaVerdict,
    /// Why a side has no value, where that is not plain; left out elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

/// Both ends of an interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Interval {
    /// Lower end.
    pub lo: f64,
    /// Upper end.
    pub hi: f64,
}

/// What to make of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DeltaVerdict {
    /// No difference at all; without repeats also one below 0.05 %, but for counts.
    Same,
    /// Chance among repeats explains it.
    InsideNoise,
    /// The bootstrap interval holds 0: other sessions of the kind may show the opposite.
    Unclear,
    /// Better in B.
    Better,
    /// Worse in B.
    Worse,
    /// Different, where no way is better.
    Changed,
    /// One sample against one: neither interval nor repeats judge it.
    Unjudged,
    /// One side has no value.
    NotComparable,
}

/// Percentiles of one latency of both sides, of ok requests.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Curve {
    /// `ttft` or `e2e`.
    pub metric: String,
    /// Points by rising percentile, up to 200 and closer towards the tail; of percentiles with the same values the first of
    /// all and the highest.
    pub points: Vec<CurvePoint>,
}

/// One point of a [`Curve`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct CurvePoint {
    /// Percentile, 0 to 100.
    pub percentile: f64,
    /// Value in A, ms.
    pub a_ms: Option<f64>,
    /// Value in B, ms.
    pub b_ms: Option<f64>,
}

/// Kitagawa's split of a difference of means (Kitagawa 1955, two components): what other shares of the modes make, and
/// what other latencies within the modes make. `mix + within = delta`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Split {
    /// `e2e` or `ttft`.
    pub metric: String,
    /// Mean of A, ms.
    pub mean_a_ms: f64,
    /// Mean of B, ms.
    pub mean_b_ms: f64,
    /// `mean_b − mean_a`, ms.
    pub delta_ms: f64,
    /// Of it, from other shares of the modes, ms.
    pub mix_ms: f64,
    /// Of it, from other latencies within the modes, ms.
    pub within_ms: f64,
    /// By mode, the largest part first.
    pub by_mode: Vec<ModeShift>,
}

/// One mode of a [`Split`]: ok requests that have the latency.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ModeShift {
    /// The mode.
    pub mode: ExecutionMode,
    /// Requests in A.
    pub n_a: u64,
    /// Requests in B.
    pub n_b: u64,
    /// Share of A's, 0 to 1.
    pub share_a: f64,
    /// Share of B's.
    pub share_b: f64,
    /// Mean in A, ms; null when it has none.
    pub mean_a_ms: Option<f64>,
    /// Mean in B, ms.
    pub mean_b_ms: Option<f64>,
    /// Its part of the mix: (share_b − share_a) · (its mean over both sides − the mean of all over both sides), ms.
    pub mix_ms: f64,
    /// Its part within: (mean_b − mean_a) · (share_a + share_b) / 2; 0 for a mode of one side only.
    pub within_ms: f64,
}

/// Paired requests that went from one mode to another, or stayed.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Transition {
    /// Mode in A.
    pub from: ExecutionMode,
    /// Mode in B.
    pub to: ExecutionMode,
    /// Requests, over all pairs of repeats.
    pub count: u64,
    /// Share of all paired, 0 to 1.
    pub share: f64,
    /// Mean of E2E in B − E2E in A over those ok on both sides, ms.
    pub mean_e2e_delta_ms: Option<f64>,
}

/// What became of sessions.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SessionChanges {
    /// Starved in A; null where A keeps no sessions on D, or sessions of other traces cannot be held against each other.
    pub starved_a: Option<u64>,
    /// Starved in B; null as in A.
    pub starved_b: Option<u64>,
    /// Ids of those starved in B and not in A, by arrival; null unless both sides are judged.
    pub became_starved: Option<Vec<String>>,
    /// Ids of those starved in A and not in B; null unless both sides are judged.
    pub freed: Option<Vec<String>>,
    /// Starved in both; null unless both sides are judged.
    pub still_starved: Option<Vec<String>>,
    /// Every session of either side, by arrival.
    pub rows: Vec<SessionDelta>,
}

/// One session of both sides. A session counts as starved on a side when it starves in more than half of its repeats.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SessionDelta {
    /// Id of the trace.
    pub session_id: String,
    /// Rank of its arrival; that of A where both have it.
    pub arrival_rank: u32,
    /// Turns in the trace.
    pub turns: u64,
    /// Largest prompt, tokens.
    pub peak_input_tokens: u32,
    /// What changed; null unless both sides are judged.
    pub change: Option<StarvationChange>,
    /// In A.
    pub a: Option<SessionSide>,
    /// In B.
    pub b: Option<SessionSide>,
    /// Mean E2E in B − mean E2E in A, ms.
    pub mean_e2e_delta_ms: Option<f64>,
}

/// Starvation of a session, A to B.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StarvationChange {
    /// In neither.
    None,
    /// In B only.
    BecameStarved,
    /// In A only.
    Freed,
    /// In both.
    StillStarved,
}

/// A session on one side, over its repeats.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SessionSide {
    /// Repeats in which it is starved; null where the side keeps no sessions on D.
    pub starved_in: Option<u32>,
    /// Repeats that have it.
    pub repeats: u32,
    /// Direct share, mean over the repeats.
    pub direct_share: Option<f64>,
    /// Mean E2E of its ok turns, mean over the repeats, ms.
    pub mean_e2e_ms: Option<f64>,
    /// Main reason of its turns that did not go direct, first repeat.
    pub main_reason: Option<ModeReason>,
    /// Worker most of its turns were meant for, first repeat.
    pub pinned_worker: Option<String>,
    /// Turn pattern of the first repeat.
    pub pattern: String,
}

/// Skew over workers.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct WorkerChanges {
    /// Per role.
    pub roles: Vec<RoleDelta>,
    /// Per worker.
    pub rows: Vec<WorkerDelta>,
}

/// Spread over the workers of a role; first repeat of each side.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct RoleDelta {
    /// The role.
    pub role: String,
    /// Workers in A and in B.
    pub workers: Sides<u64>,
    /// Workers that got no request.
    pub idle: Sides<u64>,
    /// Most requests over the mean.
    pub max_over_mean: Sides<Option<f64>>,
    /// Largest distance from the mean, as a share of it.
    pub spread: Sides<Option<f64>>,
    /// Names of those above 1.5 times the mean.
    pub hot: Sides<Vec<String>>,
}

/// One worker; first repeat of each side.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct WorkerDelta {
    /// Name.
    pub worker: String,
    /// Role.
    pub role: String,
    /// Requests served; null where the side has no such worker.
    pub requests: Sides<Option<u64>>,
    /// Requests over the mean of the role.
    pub over_mean: Sides<Option<f64>>,
    /// E2E p99 of its ok requests in A, ms.
    pub p99_e2e_a_ms: Option<f64>,
    /// The same in B.
    pub p99_e2e_b_ms: Option<f64>,
    /// Mean KV usage; null without its account.
    pub usage_mean: Sides<Option<f64>>,
}

/// A value of either side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct Sides<T> {
    /// In A.
    pub a: T,
    /// In B.
    pub b: T,
}

/// How requests ended.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct OutcomeChanges {
    /// Outcomes of all requests of A, repeats together.
    pub a: Outcomes,
    /// Outcomes of all requests of B.
    pub b: Outcomes,
    /// Paired requests that ended otherwise, the most frequent first.
    pub changes: Vec<OutcomeChange>,
}

/// Paired requests that ended otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct OutcomeChange {
    /// Outcome in A.
    pub from: Outcome,
    /// Outcome in B.
    pub to: Outcome,
    /// Requests, over all pairs of repeats.
    pub count: u64,
    /// The first of them, `session/turn`.
    pub first: String,
}

/// A condition of `--fail-on` and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ThresholdResult {
    /// The condition as given.
    pub expr: String,
    /// What was held against it: a relative change for a limit in per cent, else an absolute one or a count; null when one
    /// side lacks the figure.
    pub value: Option<f64>,
    /// It is met, or cannot be judged: exit 1.
    pub crossed: bool,
    /// In words: `p99_e2e_ms changed by +7.20 %: crosses p99_e2e_ms>+5%`.
    pub text: String,
}

impl ThresholdResult {
    /// `FAIL` or `ok`, in every form of the report.
    pub fn label(&self) -> &'static str {
        if self.crossed { "FAIL" } else { "ok" }
    }
}

impl DiffReport {
    /// JSON Schema of the report.
    pub fn schema() -> Schema {
        SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<DiffReport>()
    }

    /// The figure named `key`.
    pub fn metric(&self, key: &str) -> Option<&MetricDelta> {
        self.metrics.iter().find(|metric| metric.key == key)
    }

    /// A condition of `--fail-on` is met.
    pub fn is_crossed(&self) -> bool {
        self.thresholds.iter().any(|threshold| threshold.crossed)
    }
}
