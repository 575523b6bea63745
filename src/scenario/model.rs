//! [`Scenario`]: everything a run depends on, except the trace's bytes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::admission::AdmissionConfig;
use crate::cluster::{ClusterConfig, FaultConfig};
use crate::engine::EngineConfig;
use crate::kv::EventsConfig;
use crate::policies::PolicyConfig;
use crate::replay::ReplayConfig;
use crate::scenario::LiveConfig;

/// One scenario file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    /// Short name, used for the run folder.
    pub name: String,
    /// One sentence for people.
    pub description: String,
    /// Seed of everything random.
    pub seed: u64,
    /// Trace, when none is given on the command line.
    pub trace: TraceConfig,
    /// Topology, router, network.
    pub cluster: ClusterConfig,
    /// Every worker.
    pub engine: EngineConfig,
    /// How the trace is sent.
    pub replay: ReplayConfig,
    /// Who chooses workers.
    pub policy: PolicyConfig,
    /// Who publishes KV events, and the index made of them.
    pub kv_events: EventsConfig,
    /// Who lets sessions live on a D.
    pub admission: AdmissionConfig,
    /// The real target, with `--target live`.
    pub live: LiveConfig,
    /// When a run's headline is withheld.
    pub integrity: IntegrityConfig,
    /// What each request should keep to count as good.
    pub slo: SloConfig,
    /// What goes wrong.
    pub fault: Vec<FaultConfig>,
}

/// The trace a scenario brings along.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TraceConfig {
    /// Generator preset used when no trace file is given.
    pub preset: String,
    /// Arrival of the generated sessions: `uniform`, `pool` or `burst`.
    #[schemars(extend("enum" = ["uniform", "pool", "burst"]))]
    pub arrival: String,
    /// Seed of the generated trace; the scenario's seed moves the run, not the trace.
    pub seed: u64,
}

/// Budgets a run must keep for its headline to be printed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct IntegrityConfig {
    /// Largest share of truncated, aborted, failed and timed out requests, 0 to 1.
    pub max_bad_share: f64,
    /// Largest p99 of the schedule lag, milliseconds.
    pub max_schedule_lag_p99_ms: f64,
    /// Longest time that the harness of a live run may stand still in one piece, milliseconds of wall time.
    pub max_harness_pause_ms: f64,
}

/// Objectives for each request (goodput); 0: none. They judge, and change nothing of the run.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SloConfig {
    /// Longest time to the first token, milliseconds.
    pub ttft_ms: f64,
    /// Longest mean time per output token after the first, milliseconds.
    pub tpot_ms: f64,
    /// Longest time from send to end, milliseconds.
    pub e2e_ms: f64,
}

impl Scenario {
    /// The scenario as a file that loads to it again.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(self)
    }
}

impl Default for Scenario {
    fn default() -> Self {
        Scenario {
            name: "default".into(),
            description: "the built-in defaults: what holds where a scenario says nothing else".into(),
            seed: 42,
            trace: TraceConfig::default(),
            cluster: ClusterConfig::default(),
            engine: EngineConfig::default(),
            replay: ReplayConfig::default(),
            policy: PolicyConfig::default(),
            kv_events: EventsConfig::default(),
            admission: AdmissionConfig::default(),
            live: LiveConfig::default(),
            integrity: IntegrityConfig::default(),
            slo: SloConfig::default(),
            fault: Vec::new(),
        }
    }
}

impl Default for TraceConfig {
    fn default() -> Self {
        TraceConfig { preset: "swe-bench-52".into(), arrival: "uniform".into(), seed: 42 }
    }
}

impl Default for IntegrityConfig {
    fn default() -> Self {
        IntegrityConfig { max_bad_share: 0.01, max_schedule_lag_p99_ms: 5.0, max_harness_pause_ms: 250.0 }
    }
}
