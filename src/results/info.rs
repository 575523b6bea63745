//! [`RunInfo`]: what a summary must know of a run beside its records and facts.
//!
//! The caller fills it from the resolved scenario, the trace and the preflight; it is written into `run.json` and read back
//! by a report. Nothing in it depends on the host or the wall clock.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Slos;

/// A run in words and in the numbers that explain it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunInfo {
    /// Name of the run.
    pub name: String,
    /// Short name of the trace.
    pub trace: String,
    /// Requests planned.
    pub requests: u64,
    /// Sessions of the trace.
    pub sessions: u64,
    /// Topology, such as `1P7D` or `8W`.
    pub topology: String,
    /// Mechanism label: `dp`, `pd` or `kvc`.
    pub mechanism: String,
    /// Policy label.
    pub policy: String,
    /// Policy of the PD router's decode leg, such as `round_robin`; empty when there is no router.
    pub router_policy: String,
    /// Limits worth a headline, such as `cap 4`; empty when there are none.
    pub limits: String,
    /// Time scale; null for "as fast as causality allows".
    pub time_scale: Option<f64>,
    /// The time scale as a sentence: `time-scale 10: 6,000 s → 600 s`.
    pub time_scale_text: String,
    /// First to last planned send, seconds; null when nobody computed it or all is sent at once.
    #[serde(default)]
    pub planned_s: Option<f64>,
    /// Seed of the run.
    pub seed: u64,
    /// Driver: `virtual time` or `real time`.
    pub driver: String,
    /// Clock of the run against the wall's: 10 is ten times faster; 1 in virtual time.
    #[serde(default = "same_clock")]
    pub speed: f64,
    /// How the run ended.
    pub state: RunState,
    /// Rebuilt from `requests.jsonl` alone: token arrivals and, for an unfinished run, worker facts are missing.
    pub rebuilt: bool,
    /// Budgets of the integrity gate.
    pub budgets: Budgets,
    /// Objectives for each request; left out where there are none.
    #[serde(default, skip_serializing_if = "Slos::is_none")]
    pub slos: Slos,
    /// Names of all configured workers, also of those that got nothing.
    pub workers: Vec<String>,
    /// Slots and capacity of the decode workers; null when the mechanism keeps no sessions.
    pub slots: Option<SlotFacts>,
    /// Gaps against service times; null when nobody computed it.
    pub gaps: Option<GapFacts>,
    /// Direct-to-D share that the preflight predicts, of the turns after each session's first, 0 to 1; null without sessions on D, and when nobody computed it.
    #[serde(default)]
    pub predicted_direct_share: Option<f64>,
    /// Lower end of the same: no turn that begins while the sessions on its D need more than its pool goes direct. Null where
    /// the other is.
    #[serde(default)]
    pub predicted_direct_share_at_least: Option<f64>,
    /// What was done to the caches of servers before this cell of a live sweep; null for any other run, and where each cell has
    /// a cluster of its own.
    #[serde(default)]
    pub caches: Option<CacheReset>,
}

/// Caches of servers before a run that must not find what the one before left there.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct CacheReset {
    /// Workers whose cache was emptied.
    pub flushed: u32,
    /// Why others were not, one sentence each: these are as warm as they were.
    pub left: Vec<String>,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RunState {
    /// Every planned request was served or failed by itself.
    Completed,
    /// Interrupted by the user; requests in flight are cancelled, the rest skipped.
    Interrupted,
    /// Stopped by a failed turn.
    Stopped,
    /// Wrote no summary: under way, failed, killed or crashed; requests without a record are unaccounted for.
    #[serde(alias = "killed")]
    Unfinished,
}

/// Budgets a run must keep for its headline to be printed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Budgets {
    /// Largest share of truncated, aborted, failed and timed out requests, 0 to 1.
    pub max_bad_share: f64,
    /// Largest p99 of the schedule lag, milliseconds of wall time.
    pub max_schedule_lag_p99_ms: f64,
    /// Longest time the harness may stand still in one piece, milliseconds of wall time; null in runs before it was judged.
    #[serde(default)]
    pub max_harness_pause_ms: Option<f64>,
}

/// Who may keep a session where.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SlotFacts {
    /// Decode workers.
    pub decode_workers: u32,
    /// Most sessions a decode worker may hold by the replayer's soft cap; null where the workers themselves admit.
    pub cap_max: Option<u32>,
    /// Tokens of a pool the soft cap divides by the size of the turn that asks; null while it is `cap_max` for all.
    pub usable_tokens: Option<u64>,
    /// Size of a turn for the soft cap: `full` or `incremental`.
    pub footprint: String,
    /// `never`, `session-end` or `idle-lru`.
    pub slot_release: String,
    /// KV pool of one decode worker, tokens.
    pub kv_pool_tokens: u64,
}

/// How a time scale distorts think times, as expected before the run: service times are the scenario's cost model's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GapFacts {
    /// Share of gaps between turns shorter than the expected service time at time-scale 1, 0 to 1.
    pub short_share_at_1x: f64,
    /// The same at this run's time scale.
    pub short_share_at_scale: f64,
}

/// A run whose `run.json` names no speed kept its lag and its budget on one clock.
fn same_clock() -> f64 {
    1.0
}

impl RunState {
    /// Stable label.
    pub fn as_str(self) -> &'static str {
        match self {
            RunState::Completed => "completed",
            RunState::Interrupted => "interrupted",
            RunState::Stopped => "stopped",
            RunState::Unfinished => "unfinished",
        }
    }
}

impl CacheReset {
    /// In words: `2 flushed; left as they were: W0: has no /flush_cache`.
    pub fn words(&self) -> String {
        let flushed = (self.flushed > 0 || self.left.is_empty()).then(|| format!("{} flushed", self.flushed));
        let left = (!self.left.is_empty()).then(|| format!("left as they were: {}", self.left.join(", ")));
        flushed.into_iter().chain(left).collect::<Vec<_>>().join("; ")
    }
}

impl SlotFacts {
    /// Sessions that can be kept at once, by the largest cap; `None` where no cap applies.
    pub fn slots(&self) -> Option<u64> {
        self.cap_max.map(|cap| u64::from(self.decode_workers) * u64::from(cap))
    }
}
