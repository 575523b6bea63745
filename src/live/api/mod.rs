//! Bodies on the wire, as one set of types for client, servers and tests.
//!
//! `kv` has those of the KV directory. Formats of the others are those of SGLang 0.5.10 to 0.5.23 and of the OpenAI API; what only emulated workers say stands in fields
//! named `emulated` and in headers named `x-pdreplay-…`, which real servers lack. Unknown fields are ignored everywhere
//! except in `sampling_params`, as SGLang does.

mod generate;
mod info;
mod kv;
mod load;
mod openai;
mod pd;
mod session;

pub use generate::{
    CustomParams, Emulated, FinishReason, GenerateBody, GenerateEvent, InBandError, MetaInfo, SamplingParams,
    SessionParams,
};
pub use info::{EmulatedInfo, ModelCard, ModelList, ServerInfo, StatsReply};
pub use kv::{
    INTERNAL_TOKEN_HEADER, KV_QUERY_PATH, KV_STREAMS_PATH, KvMatch, KvQueryBody, KvQueryReply, KvStream,
    KvStreamsReply, MOST_KV_QUERY_BYTES, MOST_TOKEN_ID,
};
pub use load::{DisaggregationLoad, LoadEntry, LoadsReply, MemoryLoad, QueueLoad};
pub use openai::{
    ChatMessage, ChunkChoice, ChunkDelta, OpenAiBody, OpenAiChunk, OpenAiError, OpenAiErrorBody, Prompt, StreamOptions,
    Usage,
};
pub use pd::{IngressBody, PullBody, PullReply};
pub use session::{AbortBody, AdmitBody, AdmitReply, CloseBody, OpenBody};

/// End mark of an event stream.
pub const DONE: &str = "[DONE]";
/// Response header of an emulated worker: its name, such as `D3`.
pub const WORKER_HEADER: &str = "x-pdreplay-worker";
/// Response header of an emulated worker: its process identity, which grows with each restart.
pub const INCARNATION_HEADER: &str = "x-pdreplay-incarnation";
/// Response header of a router: the base URL of the decode worker (also `smg`'s name for it).
pub const SERVED_BY_HEADER: &str = "x-smg-routed-worker-id";
/// Response header of the emulated router: the base URL of the prefill worker.
pub const PREFILL_HEADER: &str = "x-pdreplay-prefill-worker";

/// Response header of a pull whose KV has begun to move: the head leaves then, the [`PullReply`] once it has arrived.
pub const MOVING_HEADER: &str = "x-pdreplay-moving";

/// `/session_cache/admit_direct_append`: admission on a decode worker (patched SGLang and emulated workers).
pub const ADMIT_PATH: &str = "/session_cache/admit_direct_append";
/// Counters of an emulated worker: [`StatsReply`].
pub const STATS_PATH: &str = "/pdreplay/v1/stats";
/// A decode worker fetches a request's KV from a prefill worker: [`PullBody`]. Served on the bootstrap port.
pub const PULL_PATH: &str = "/pdreplay/v1/pull";
/// A decode worker says how many transfers share its ingress: [`IngressBody`]. Served on the bootstrap port.
pub const INGRESS_PATH: &str = "/pdreplay/v1/ingress";

/// Reads `null` as the default: routers write the fields that a client left out as `null`.
fn null_is_default<'de, D: serde::Deserializer<'de>, T: Default + serde::Deserialize<'de>>(
    from: D,
) -> Result<T, D::Error> {
    <Option<T> as serde::Deserialize>::deserialize(from).map(Option::unwrap_or_default)
}
