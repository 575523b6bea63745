//! `GET /v1/loads`.

use serde::{Deserialize, Serialize};

/// The answer.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadsReply {
    /// ISO 8601.
    pub timestamp: String,
    /// Version of the engine.
    pub version: String,
    /// One entry a DP rank.
    pub loads: Vec<LoadEntry>,
}

/// Load of one DP rank. Tokens and requests.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "names of SGLang's")]
pub struct LoadEntry {
    pub timestamp: f64,
    pub dp_rank: u32,
    pub num_running_reqs: u32,
    /// On D: waiting, prealloc, transfer and retracted.
    pub num_waiting_reqs: u32,
    pub num_waiting_uncached_tokens: u64,
    pub num_used_tokens: u64,
    pub num_total_tokens: u64,
    pub max_total_num_tokens: u64,
    pub max_running_requests: u32,
    /// 0 to 1.
    pub token_usage: f64,
    pub gen_throughput: f64,
    pub cache_hit_rate: f64,
    pub utilization: f64,
    pub memory: MemoryLoad,
    pub queues: QueueLoad,
    pub disaggregation: DisaggregationLoad,
}

/// Memory of a rank.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "names of SGLang's")]
pub struct MemoryLoad {
    pub weight_gb: f64,
    pub kv_cache_gb: f64,
    pub graph_gb: f64,
    pub token_capacity: u64,
}

/// Queues of a rank.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "names of SGLang's")]
pub struct QueueLoad {
    pub waiting: u32,
    pub grammar: u32,
    pub paused: u32,
    pub retracted: u32,
    pub prealloc_ready: u32,
}

/// P/D queues of a rank.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "names of SGLang's")]
pub struct DisaggregationLoad {
    /// `null`, `prefill` or `decode`.
    pub mode: String,
    pub prefill_bootstrap_queue_reqs: u32,
    pub prefill_inflight_queue_reqs: u32,
    pub decode_prealloc_queue_reqs: u32,
    pub decode_transfer_queue_reqs: u32,
    pub decode_retracted_queue_reqs: u32,
    pub kv_transfer_speed_gb_s: f64,
    pub kv_transfer_latency_ms: f64,
}
