//! `[live]`: the real target of `--target live`, and how it is spoken to.
//!
//! Owns addresses, the shape of headers, limits of the client and where secrets are found; secrets themselves are never
//! part of a scenario. What may be asked of a cluster is `protocol`'s.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The target of a run in real time. Limits of the transport are wall time; a length "of the run" goes
/// `emulation_speed` times faster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LiveConfig {
    /// What is at the other end.
    pub target: TargetKind,
    /// Who joins the prefill and the decode leg of a request.
    pub legs: Legs,
    /// Base URL of the PD router (`legs = "router"`), such as `http://127.0.0.1:9000`.
    pub router: String,
    /// What the router is; `auto` asks it.
    pub router_kind: RouterKind,
    /// Base URLs of P0, P1, …; `URL PORT` where the bootstrap port is not the URL's own (SGLang: 8998).
    pub prefill: Vec<String>,
    /// Base URLs of D0, D1, ….
    pub decode: Vec<String>,
    /// Base URLs of W0, W1, …: colocated workers or any OpenAI-compatible servers.
    pub colocated: Vec<String>,
    /// Endpoint of an OpenAI-compatible target.
    pub api: OpenAiApi,
    /// Model name in requests; empty: the first one `/v1/models` lists.
    pub model: String,
    /// Routing headers.
    pub header: HeaderConfig,
    /// Where an answer says which worker served it.
    pub served_by: ServedByConfig,
    /// Longest time to connect, seconds.
    pub connect_timeout_s: f64,
    /// Longest time from send to the first token, seconds of the run; 0: silence within `replay.stall_timeout_s`.
    pub first_token_timeout_s: f64,
    /// Longest time of a control call (open, close, admission, loads, health), seconds.
    pub control_timeout_s: f64,
    /// An idle connection is closed after this time, seconds; keep it below the server's keep-alive (uvicorn: 5 s).
    pub pool_idle_s: f64,
    /// Times a request is sent again after 429, 503, or a kept-alive connection that closed before any byte of answer.
    /// Each is counted in the record.
    pub retries: u32,
    /// Wait before the first of them where the server names none (`Retry-After`), milliseconds; doubled each time.
    pub retry_backoff_ms: u64,
    /// Longest wait before one of them, seconds: a server that asks for more (`Retry-After`) is not asked again, and the
    /// doubled waits stop growing there.
    pub retry_wait_max_s: f64,
    /// After Ctrl-C: longest wait for requests in flight, seconds.
    pub drain_s: f64,
    /// Time between two looks at each worker's `/health`, milliseconds of the run; 0: none.
    pub health_poll_ms: u64,
    /// The emulated workers and the clock of the run go this many times faster than real time. Only with emulated targets.
    pub emulation_speed: f64,
    /// Memory for the texts of prompt blocks, MiB.
    pub body_cache_mib: u32,
    /// First token id that prompts are made of.
    pub token_id_min: u32,
    /// Token ids they are made of, from `token_id_min`.
    pub token_id_count: u32,
    /// Environment variable that holds the API key (`Authorization: Bearer …`); empty: none.
    pub api_key_env: String,
    /// File that holds the API key; empty: none.
    pub api_key_file: String,
    /// File of further headers, `Name: value` a line; empty: none. Names are recorded, values are not.
    pub headers_file: String,
    /// PEM file of certificate authorities to trust beside the system's; empty: none.
    pub ca_file: String,
    /// Proxy for targets that are not on loopback, such as `http://proxy:3128`; empty: none, whatever the environment says.
    pub proxy: String,
}

/// What is at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TargetKind {
    /// The scenario's own emulated cluster, started on loopback ports for the run.
    Embedded,
    /// SGLang workers (or emulated ones), native `/generate`.
    Sglang,
    /// An OpenAI-compatible server, `/v1/completions` or `/v1/chat/completions`.
    Openai,
}

/// Who joins the two legs of a P/D request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Legs {
    /// The PD router.
    Router,
    /// The client: it posts both legs, without `session_params` for P, by the router policies of `[cluster.router]`.
    Direct,
}

/// Kind of a PD router.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RouterKind {
    /// Found out before the run.
    Auto,
    /// `pdreplay router`.
    Pdreplay,
    /// `smg` of the SGLang model gateway.
    Smg,
    /// `sglang-router`.
    SglangRouter,
}

/// Endpoint of an OpenAI-compatible server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OpenAiApi {
    /// `/v1/completions` with a token array as prompt.
    Completions,
    /// `/v1/chat/completions` with one user message of as many words.
    Chat,
}

/// Names and values of routing headers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HeaderConfig {
    /// Header that names the decode worker.
    pub target_name: String,
    /// Header that names the prefill worker (`car`). Our own: no other router knows it.
    pub prefill_name: String,
    /// What stands in both; an index of P counts all prefill workers.
    pub target_value: TargetValue,
    /// Header with the session's key.
    pub key_name: String,
    /// Response header that is sent back with the session's next turn (such as `x-session-token`); empty: none.
    pub echo_name: String,
}

/// Value of the target header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TargetValue {
    /// Index in the router's own list, found by probes (`smg`).
    Index,
    /// Base URL of the worker.
    Url,
    /// Its name here, such as `D3`.
    Id,
}

/// Where an answer says which worker served it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ServedByConfig {
    /// Response header; its value is the worker's base URL or name.
    pub header: String,
    /// JSON pointer into the last event, such as `/meta_info/served_by`; empty: none.
    pub pointer: String,
}

impl TargetKind {
    /// As the scenario writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            TargetKind::Embedded => "embedded",
            TargetKind::Sglang => "sglang",
            TargetKind::Openai => "openai",
        }
    }
}

impl Legs {
    /// As the scenario writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Legs::Router => "router",
            Legs::Direct => "direct",
        }
    }
}

impl RouterKind {
    /// As the scenario writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            RouterKind::Auto => "auto",
            RouterKind::Pdreplay => "pdreplay",
            RouterKind::Smg => "smg",
            RouterKind::SglangRouter => "sglang-router",
        }
    }
}

impl OpenAiApi {
    /// As the scenario writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            OpenAiApi::Completions => "completions",
            OpenAiApi::Chat => "chat",
        }
    }
}

impl TargetValue {
    /// As the scenario writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            TargetValue::Index => "index",
            TargetValue::Url => "url",
            TargetValue::Id => "id",
        }
    }
}

impl LiveConfig {
    /// The workers and the router are emulated ones, started for the run.
    pub fn is_embedded(&self) -> bool {
        self.target == TargetKind::Embedded
    }
}

impl Default for LiveConfig {
    fn default() -> Self {
        LiveConfig {
            target: TargetKind::Embedded,
            legs: Legs::Router,
            router: String::new(),
            router_kind: RouterKind::Auto,
            prefill: Vec::new(),
            decode: Vec::new(),
            colocated: Vec::new(),
            api: OpenAiApi::Completions,
            model: String::new(),
            header: HeaderConfig::default(),
            served_by: ServedByConfig::default(),
            connect_timeout_s: 5.0,
            first_token_timeout_s: 0.0,
            control_timeout_s: 10.0,
            pool_idle_s: 3.0,
            retries: 0,
            retry_backoff_ms: 500,
            retry_wait_max_s: 60.0,
            drain_s: 2.0,
            health_poll_ms: 1000,
            emulation_speed: 1.0,
            body_cache_mib: 256,
            token_id_min: 1000,
            token_id_count: 30_000,
            api_key_env: String::new(),
            api_key_file: String::new(),
            headers_file: String::new(),
            ca_file: String::new(),
            proxy: String::new(),
        }
    }
}

impl Default for HeaderConfig {
    fn default() -> Self {
        HeaderConfig {
            target_name: "x-smg-target-worker".into(),
            prefill_name: "x-pdreplay-target-prefill".into(),
            target_value: TargetValue::Index,
            key_name: "x-smg-routing-key".into(),
            echo_name: String::new(),
        }
    }
}

impl Default for ServedByConfig {
    fn default() -> Self {
        ServedByConfig { header: "x-smg-routed-worker-id".into(), pointer: String::new() }
    }
}
