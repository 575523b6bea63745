//! Soft cap and admission, every number visible in the scenario: no cap hides in code.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who lets a session live on a D, and for how long.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AdmissionConfig {
    /// Who admits an append to a resident session: `worker` asks the D, which may trim idle sessions.
    pub append: AdmissionBy,
    /// Who admits a seed or reseed: `router` is the replayer's own soft cap.
    pub seed: AdmissionBy,
    /// Most sessions per D: `soft cap = max(1, min(cap_max, usable_capacity_tokens / target_tokens))`.
    pub cap_max: u32,
    /// Whether the replayer knows the D's capacity; if not, the soft cap is `cap_max`.
    pub capacity_known: bool,
    /// Share of a D's pool the replayer counts as usable, 0 to 1.
    pub usable_share: f64,
    /// `target_tokens` of the soft cap.
    pub footprint: Footprint,
    /// When a session's slot is free again.
    pub slot_release: SlotRelease,
    /// Close a session on its D when its last turn has ended, so that its KV is free; its slot follows `slot_release`.
    pub close_at_end: bool,
    /// Largest append that may go direct, tokens.
    pub direct_append_max_tokens: u32,
    /// Placements tried when `open_session` fails, before the plain path.
    pub open_attempts: u32,
}

/// Who decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AdmissionBy {
    /// The replayer's own estimate and soft cap.
    Router,
    /// The decode worker.
    Worker,
}

/// How large a session is taken to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Footprint {
    /// Prompt + answer, also when most of it is resident already.
    Full,
    /// After the first turn, only what is new: max(0, prompt − cached) + answer.
    Incremental,
}

/// When a slot is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SlotRelease {
    /// Never: the first sessions to come keep their slots for the whole run.
    Never,
    /// When the session's last turn has ended.
    SessionEnd,
    /// At the session's end, or earlier: when a slot is wanted, the longest idle session gives its own.
    IdleLru,
}

impl Default for AdmissionConfig {
    fn default() -> Self {
        AdmissionConfig {
            append: AdmissionBy::Worker,
            seed: AdmissionBy::Router,
            cap_max: 4,
            capacity_known: false,
            usable_share: 0.9,
            footprint: Footprint::Full,
            slot_release: SlotRelease::Never,
            close_at_end: true,
            direct_append_max_tokens: 8192,
            open_attempts: 2,
        }
    }
}
