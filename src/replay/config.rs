//! How a trace is sent: mechanism, time, limits.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Time, limits and what follows a failure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ReplayConfig {
    /// What may be done on the cluster.
    pub mechanism: Mechanism,
    /// When a turn is due.
    pub schedule: Schedule,
    /// Divides the gaps between sessions' arrivals; 10 is ten times faster, `inf` all at once.
    #[serde(with = "scale")]
    #[schemars(schema_with = "scale::schema")]
    pub arrival_scale: f64,
    /// Divides the gaps inside a session.
    #[serde(with = "scale")]
    #[schemars(schema_with = "scale::schema")]
    pub think_scale: f64,
    /// Longest gap inside a session after scaling, seconds of the run; 0: no limit.
    pub max_gap_s: f64,
    /// Most requests on the wire; 0: no limit.
    pub concurrency: u32,
    /// Most sessions begun and not ended; 0: no limit.
    pub max_sessions: u32,
    /// Seeded jitter added to each session's arrival, uniform in 0 to this, milliseconds of the run.
    pub arrival_jitter_ms: f64,
    /// Longest time without data on a stream that a fault made quiet, seconds of the run; 0: no limit. Queueing and slow
    /// decoding are no stalls: `request_timeout_s` bounds those.
    pub stall_timeout_s: f64,
    /// Longest time from send to end, seconds of the run; 0: no limit.
    pub request_timeout_s: f64,
    /// Path of a session's first turn (`kvc`).
    pub first_turn: FirstTurn,
    /// What follows a failed turn.
    pub on_turn_failure: OnTurnFailure,
    /// Service time assumed for `think` where the trace has none: base, seconds.
    pub service_base_s: f64,
    /// The same, answer tokens per second.
    pub service_tokens_per_s: f64,
    /// Time between load polls, milliseconds, when the policy uses loads.
    pub load_poll_ms: u64,
}

/// What may be done on the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Mechanism {
    /// Colocated workers, no sessions.
    Dp,
    /// Plain P/D: every turn P → transfer → D.
    Pd,
    /// P/D with decode-resident sessions.
    Kvc,
}

/// When a turn is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Schedule {
    /// At its scaled timestamp, but not before the previous turn ended.
    Open,
    /// The recorded think time after the previous turn ended.
    Think,
    /// At its scaled timestamp, whatever the previous turn does.
    OpenStrict,
}

/// Path of a session's first turn (`kvc`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FirstTurn {
    /// The plain path, without a target header: the router's own policy places it. The session is seeded by its second
    /// turn, as in the source documents.
    Plain,
    /// Already a seed.
    Seed,
}

/// What follows a failed turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnTurnFailure {
    /// The session goes on; its KV on that D is taken as lost.
    Continue,
    /// The rest of the session is skipped.
    StopSession,
    /// The run stops.
    StopRun,
}

impl Mechanism {
    /// Stable label.
    pub fn as_str(self) -> &'static str {
        match self {
            Mechanism::Dp => "dp",
            Mechanism::Pd => "pd",
            Mechanism::Kvc => "kvc",
        }
    }
}

impl Schedule {
    /// Stable label.
    pub fn as_str(self) -> &'static str {
        match self {
            Schedule::Open => "open",
            Schedule::Think => "think",
            Schedule::OpenStrict => "open-strict",
        }
    }
}

impl Default for ReplayConfig {
    fn default() -> Self {
        ReplayConfig {
            mechanism: Mechanism::Kvc,
            schedule: Schedule::Open,
            arrival_scale: 1.0,
            think_scale: 1.0,
            max_gap_s: 0.0,
            concurrency: 0,
            max_sessions: 0,
            arrival_jitter_ms: 0.0,
            stall_timeout_s: 120.0,
            request_timeout_s: 0.0,
            first_turn: FirstTurn::Plain,
            on_turn_failure: OnTurnFailure::Continue,
            service_base_s: 0.8,
            service_tokens_per_s: 85.0,
            load_poll_ms: 1000,
        }
    }
}

/// A time scale may be infinite, which JSON has no number for: it is written as the word `inf`.
mod scale {
    use schemars::{Schema, SchemaGenerator, json_schema};
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Scale {
        Number(f64),
        Word(String),
    }

    pub(super) fn serialize<S: Serializer>(scale: &f64, to: S) -> Result<S::Ok, S::Error> {
        let written = if *scale == f64::INFINITY { Scale::Word("inf".into()) } else { Scale::Number(*scale) };
        written.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
        match Scale::deserialize(from)? {
            Scale::Number(number) => Ok(number),
            Scale::Word(word) if word == "inf" => Ok(f64::INFINITY),
            Scale::Word(word) => Err(D::Error::custom(format!("`{word}` is not a time scale; write a number or inf"))),
        }
    }

    pub(super) fn schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "type": "number" }, { "type": "string", "const": "inf" }] })
    }
}
