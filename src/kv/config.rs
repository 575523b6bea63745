//! [`EventsConfig`]: `[kv_events]` of a scenario, who publishes KV events and how a run follows them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kv::Dialect;

/// KV events and the index made of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EventsConfig {
    /// Whether there is an index: emulated workers publish, and the run follows.
    pub enabled: EventsSwitch,
    /// Encoding and rules of the emulated publishers.
    pub dialect: Dialect,
    /// Tokens in a published block; 0: those of a block of the trace.
    pub block_size: u32,
    /// Topic of the emulated publishers, and the prefix subscribed to.
    pub topic: String,
    /// Most blocks of one stream, those included that are kept for their descendants alone; more invalidate it.
    pub max_blocks_per_stream: u64,
    /// Time between two snapshots that check a stream in step, milliseconds of the run; 0: none.
    pub resync_interval_ms: u64,
    /// Longest wait for the answer to a replay request, milliseconds.
    pub replay_timeout_ms: u64,
    /// With `--target live`: file of the streams or of their discovery (`kv_events.json`); empty: those of the emulated
    /// cluster.
    pub config: String,
    /// A run whose policy reads the index fails when no stream is in step within `warn_after_s`.
    pub require: bool,
    /// Streams not in step after this time are named in a warning, seconds of the run.
    pub warn_after_s: f64,
}

/// Whether there is an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EventsSwitch {
    /// When the policy reads it.
    Auto,
    /// Always: records then say what it would have promised.
    On,
    /// Never: a policy that reads it sees no hits.
    Off,
}

impl EventsSwitch {
    /// As in scenarios.
    pub const fn as_str(self) -> &'static str {
        match self {
            EventsSwitch::Auto => "auto",
            EventsSwitch::On => "on",
            EventsSwitch::Off => "off",
        }
    }
}

impl EventsConfig {
    /// There is an index, in a run whose policy reads one or does not.
    pub fn is_on(&self, policy_reads: bool) -> bool {
        match self.enabled {
            EventsSwitch::Auto => policy_reads,
            EventsSwitch::On => true,
            EventsSwitch::Off => false,
        }
    }
}

impl Default for EventsConfig {
    fn default() -> Self {
        EventsConfig {
            enabled: EventsSwitch::Auto,
            dialect: Dialect::Xllm,
            block_size: 0,
            topic: "xllm-kv".into(),
            max_blocks_per_stream: 262_144,
            resync_interval_ms: 30_000,
            replay_timeout_ms: 2_000,
            config: String::new(),
            require: false,
            warn_after_s: 5.0,
        }
    }
}
