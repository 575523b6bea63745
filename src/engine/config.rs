//! Constants of an emulated worker. Every one is a scenario value.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An emulated worker: KV pool, batching, timing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EngineConfig {
    /// KV pool of one worker, tokens.
    pub kv_pool_tokens: u64,
    /// Tokens per KV page; allocations are rounded up to it.
    pub page_size: u32,
    /// Most new tokens prefilled in one iteration (chunked prefill).
    pub chunk_tokens: u32,
    /// Most requests in one decode batch.
    pub max_running: u32,
    /// Tokens kept free for the growth of each request that decodes or is about to, at most what it still needs
    /// (SGLang's `num_reserved_decode_tokens`).
    pub reserved_decode_tokens: u32,
    /// Largest prompt + answer a worker accepts, tokens; the pool is always a limit too. 0: the pool alone.
    pub context_limit_tokens: u64,
    /// Decode workers keep finished and transferred prompts in a radix cache. Off in SGLang 0.5.10.
    pub decode_radix_cache: bool,
    /// Time an admission call takes on the scheduler loop, microseconds.
    pub admission_cost_us: u64,
    /// Fixed cost of taking in a request (HTTP, JSON, tokens), milliseconds.
    pub ingest_base_ms: f64,
    /// The same per token shipped in the body, microseconds.
    pub ingest_per_token_us: f64,
    /// Bytes of KV per token.
    pub kv_bytes_per_token: u64,
    /// Copies of cached KV kept in host memory, tokens; 0: none (no offload). Not on decode workers.
    pub host_pool_tokens: u64,
    /// Time from a block's entry into the cache to the confirmation of its copy in host memory, milliseconds.
    pub host_store_ms: f64,
    /// Bandwidth at which KV returns from host memory, GB/s: that of a retracted request, and copies behind a cached prefix.
    pub retract_reload_gbytes_per_s: f64,
    /// Idle time after which a worker drops a session, seconds; 0: never.
    pub session_idle_timeout_s: f64,
    /// When idle sessions may be trimmed: `admission` (only by an admission call) or `pressure` (also when a
    /// reservation finds no room).
    pub session_trim: SessionTrim,
    /// Cost model.
    pub timing: Timing,
}

/// When a decode worker trims idle sessions, least recently used first. It trims as it goes, like an engine's eviction
/// loop: also when all of them together will not make enough room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SessionTrim {
    /// Only inside an admission call.
    Admission,
    /// Also when a reservation finds no room.
    Pressure,
}

/// `prefill_ms(a, c) = p0 + p1·a + p2·a·(c + a/2)`, `decode_ms(B, S) = d0 + d1·E(B) + d2·B + d3·S`,
/// `E(B) = experts·(1 − (1 − top_k/experts)^B)`, for `a` new tokens on `c` cached ones and `B` requests with `S`
/// tokens of context in all. Milliseconds and tokens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Timing {
    /// Preset the constants came from; keys beside it override it.
    pub preset: String,
    /// Fixed part of a prefill, ms.
    pub p0: f64,
    /// Per new token, ms.
    pub p1: f64,
    /// Per new token and context token, ms.
    pub p2: f64,
    /// Fixed part of a decode step, ms.
    pub d0: f64,
    /// Per expert touched, ms.
    pub d1: f64,
    /// Per request of the batch, ms.
    pub d2: f64,
    /// Per context token of the batch, ms.
    pub d3: f64,
    /// Experts of the model; 0 for a dense model.
    pub experts: u32,
    /// Experts per token.
    pub top_k: u32,
    /// Measured cost of small prefills that the formula overstates: `[new tokens, ms]`, ascending; linear in between,
    /// the formula from the last entry on.
    pub small_prefill: Vec<(u32, f64)>,
}

impl Default for EngineConfig {
    fn default() -> Self {
        EngineConfig {
            kv_pool_tokens: 83_000,
            page_size: 64,
            chunk_tokens: 8192,
            max_running: 64,
            reserved_decode_tokens: 512,
            context_limit_tokens: 0,
            decode_radix_cache: false,
            admission_cost_us: 200,
            ingest_base_ms: 6.0,
            ingest_per_token_us: 2.0,
            kv_bytes_per_token: 98_304,
            host_pool_tokens: 0,
            host_store_ms: 5.0,
            retract_reload_gbytes_per_s: 25.0,
            session_idle_timeout_s: 0.0,
            session_trim: SessionTrim::Pressure,
            timing: Timing::default(),
        }
    }
}

impl Default for Timing {
    /// `h100-qwen3-30b-a3b-tp1`: fitted to NVIDIA's published H100-SXM SGLang operator tables (in-sample mean error
    /// 2.0 % for prefill, 3.6 % for decode). A test holds it equal to the preset file.
    fn default() -> Self {
        Timing {
            preset: "h100-qwen3-30b-a3b-tp1".into(),
            p0: 22.558,
            p1: 9.855e-3,
            p2: 1.2787e-6,
            d0: 3.843,
            d1: 0.1029,
            d2: 0.0684,
            d3: 32.51e-6,
            experts: 128,
            top_k: 8,
            small_prefill: Vec::new(),
        }
    }
}
