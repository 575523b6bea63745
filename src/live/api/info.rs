//! What a server says of itself.

use serde::{Deserialize, Serialize};

use crate::record::{TransferRecord, WorkerRecord};

/// `GET /server_info`, the fields that matter; SGLang gives all its arguments beside them.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerInfo {
    /// Version of the engine.
    pub version: String,
    /// Name in requests.
    pub served_model_name: String,
    /// Path or name of the model.
    pub model_path: String,
    /// `null`, `prefill` or `decode`.
    pub disaggregation_mode: String,
    /// Port of the prefill worker's bootstrap server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disaggregation_bootstrap_port: Option<u16>,
    /// KV pool, tokens.
    pub max_total_num_tokens: u64,
    /// Longest prompt, tokens.
    pub max_req_input_len: u64,
    /// Tokens a page.
    pub page_size: u32,
    /// Data-parallel ranks.
    pub dp_size: u32,
    /// Streaming sessions are on.
    pub enable_streaming_session: bool,
    /// Only from emulated workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub emulated: Option<EmulatedInfo>,
}

/// Who an emulated worker is.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct EmulatedInfo {
    /// Name, such as `D3`.
    pub worker: String,
    /// Process identity; grows with each restart.
    pub incarnation: u32,
    /// Version of pdreplay.
    pub version: String,
    /// How many times faster than real time it goes.
    pub speed: f64,
    /// Tokens a block of its prefix cache; a router has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_size: Option<u32>,
}

/// `GET /v1/models`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelList {
    /// `list`.
    pub object: String,
    /// The models.
    pub data: Vec<ModelCard>,
}

/// One model.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelCard {
    /// Name in requests.
    pub id: String,
    /// `model`.
    pub object: String,
    /// `sglang` for SGLang and emulated workers.
    pub owned_by: String,
    /// Longest context, tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_model_len: Option<u64>,
}

/// `GET /pdreplay/v1/stats` of an emulated worker: its counters since the start of the process.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StatsReply {
    /// The worker.
    pub worker: WorkerRecord,
    /// Transfers it sent (prefill workers).
    pub transfers: Vec<TransferRecord>,
    /// Age of the process by its own clock, which its means are over, nanoseconds.
    #[serde(default)]
    pub up_ns: u64,
}
