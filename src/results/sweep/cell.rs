//! [`SweepCell`]: one run of a sweep as a row, made from its `summary.json`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::results::{CacheReset, Figures, Slos, Verdict};

/// One run of a sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SweepCell {
    /// Its number, from 1, in the order of the file.
    pub number: u32,
    /// Position of its value on each axis, from 0.
    pub at: Vec<u32>,
    /// Its value on each axis, as text.
    pub values: Vec<String>,
    /// Seed of the run.
    pub seed: u64,
    /// Its run folder, relative to the folder of the sweep, such as `cells/007-kv-aware-4`.
    pub folder: String,
    /// Id of the run: its scenario's name and a digest of all it depends on; null when the scenario is refused.
    pub run_id: Option<String>,
    /// What became of it.
    pub state: CellState,
    /// Why it failed or was refused; null otherwise.
    pub error: Option<String>,
    /// What the run gave; null unless it is done.
    #[serde(flatten)]
    pub result: Option<CellResult>,
}

/// What a run that ended gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CellResult {
    /// May its headline be read?
    pub verdict: Verdict,
    /// Why not; null for a valid run.
    pub reason: Option<String>,
    /// First cause line: why the run is as it is; null when nothing stands out.
    pub cause: Option<String>,
    /// What was done to the caches of servers before it; null in virtual time, and where the cell had a cluster of its own.
    #[serde(default)]
    pub caches: Option<String>,
    /// Direct-to-D share that the preflight predicted, 0 to 1; null without sessions on D.
    pub predicted_direct_share: Option<f64>,
    /// Lower end of the same, which crowded D may bring it down to; null where the other is.
    #[serde(default)]
    pub predicted_direct_share_at_least: Option<f64>,
    /// Objectives of its goodput, as `ttft:2000 e2el:60000` in ms; null without any.
    #[serde(default)]
    pub objectives: Option<String>,
    /// Its headline figures. Those of a run without a headline are here all the same, and in no table.
    pub figures: Figures,
}

/// What became of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CellState {
    /// It ran to its end; its verdict says whether its headline may be read.
    Done,
    /// It broke while running.
    Failed,
    /// Its scenario is refused: nothing was run.
    Refused,
    /// It has not run yet, or not to its end.
    Missing,
}

impl CellState {
    /// Stable label.
    pub fn as_str(self) -> &'static str {
        match self {
            CellState::Done => "done",
            CellState::Failed => "failed",
            CellState::Refused => "refused",
            CellState::Missing => "missing",
        }
    }
}

impl CellResult {
    /// Of the JSON of a `summary.json`; `None` when it is none.
    pub fn of(summary: &Value) -> Option<CellResult> {
        let text = |place: &str| summary.pointer(place).and_then(Value::as_str).map(String::from);
        let number = |place: &str| summary.pointer(place).and_then(Value::as_f64);
        Some(CellResult {
            verdict: Verdict::deserialize(summary.pointer("/integrity/verdict")?).ok()?,
            reason: text("/integrity/reason"),
            cause: text("/causes/0/text"),
            caches: summary
                .pointer("/run/caches")
                .and_then(|caches| Option::<CacheReset>::deserialize(caches).ok()?)
                .map(|caches| caches.words()),
            predicted_direct_share: number("/run/predicted_direct_share"),
            predicted_direct_share_at_least: number("/run/predicted_direct_share_at_least"),
            objectives: objectives(summary),
            figures: Figures::of(summary),
        })
    }
}

/// What the goodput of a `summary.json` is judged by.
fn objectives(summary: &Value) -> Option<String> {
    let slos = Slos::deserialize(summary.pointer("/goodput")?).ok()?;
    (!slos.is_none()).then(|| slos.to_string())
}

impl SweepCell {
    /// The cell ended and its latencies may be read.
    pub fn shows_headline(&self) -> bool {
        self.result.as_ref().is_some_and(|result| result.verdict.shows_headline())
    }

    /// Its values in words: `kv-aware, 4`; without axes nothing.
    pub fn words(&self) -> String {
        self.values.join(", ")
    }
}
