//! [`TargetFacts`]: what a live run was sent to. Names where secrets are used, never a secret.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The target of a run in real time. Records of runs behind routers of different kinds are not comparable: one holds the
/// head of an answer until P has ended, another does not.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct TargetFacts {
    /// `embedded`, `sglang` or `openai`.
    pub kind: String,
    /// The workers are emulated.
    pub emulated: bool,
    /// The clock of the run went so many times faster than the wall's.
    pub emulation_speed: f64,
    /// `generate`, `completions` or `chat`.
    pub api: String,
    /// Model in requests; empty: none was sent.
    pub model: String,
    /// Who joined the legs of a P/D request: `router` or `direct`; null where a request has one leg.
    pub legs: Option<String>,
    /// The PD router, where one was used.
    pub router: Option<RouterFact>,
    /// Every worker, in the order of the names.
    pub workers: Vec<TargetWorker>,
    /// What session ids end with on the wire, such as `~4be2a0`: servers' logs name `<session id><mark>`. Empty where they
    /// are sent as they are.
    #[serde(default)]
    pub session_mark: String,
    /// What the router was told, such as `x-smg-target-worker: index`; `none` for nothing.
    pub header: String,
    /// Requests to hosts that are not on loopback went through a proxy.
    pub proxy: bool,
    /// Names of the headers whose values are secret.
    pub secret_headers: Vec<String>,
    /// Certificate authorities beside the system's were trusted.
    pub own_authorities: bool,
}

/// The PD router of a live run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct RouterFact {
    /// Base URL.
    pub url: String,
    /// `pdreplay`, `smg` or `sglang-router`.
    pub kind: String,
    /// Its version; empty when it does not say.
    pub version: String,
}

/// A worker of a live run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct TargetWorker {
    /// Name in the records, such as `D3`.
    pub worker: String,
    /// Base URL.
    pub url: String,
    /// Port of its bootstrap server.
    pub bootstrap_port: Option<u16>,
    /// Kind of server: `emulated`, `SGLang`, `vLLM` or `unknown server`; empty when it did not answer before the run.
    pub engine: String,
    /// Its version; empty when it does not say.
    pub version: String,
}
