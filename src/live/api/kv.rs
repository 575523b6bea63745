//! Bodies of the KV directory's internal endpoints.
//!
//! The query is that of the xLLM service; names of instance and rank in it, and the list of streams, are ours.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Path of the query.
pub const KV_QUERY_PATH: &str = "/v1/internal/kv-cache/query";
/// Path of the list of streams.
pub const KV_STREAMS_PATH: &str = "/v1/internal/kv-cache/streams";
/// Request header with the token.
pub const INTERNAL_TOKEN_HEADER: &str = "x-internal-token";
/// Largest token id.
pub const MOST_TOKEN_ID: u32 = i32::MAX as u32;

/// Largest body of a query, bytes: some 600,000 tokens.
pub const MOST_KV_QUERY_BYTES: usize = 4 << 20;

/// Body of a query, for who asks; the server reads it more strictly.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KvQueryBody<'a> {
    /// Prompt, after the chat template; empty: only the state of the streams is wanted.
    pub token_ids: &'a [u32],
}

/// Answer to a query.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KvQueryReply {
    /// By instance, then rank.
    pub matches: Vec<KvMatch>,
}

/// What one stream holds of the prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KvMatch {
    /// Instance.
    pub instance_name: String,
    /// Data-parallel rank.
    pub dp_rank: u32,
    /// Whether a whole state and every batch since then are in the index; without it hits are 0.
    pub synchronized: bool,
    /// Last batch in the index.
    pub sequence: Option<u64>,
    /// Tokens of the reusable prefix that are on the device.
    pub device_hit_tokens: u64,
    /// Tokens of it that are on the host alone.
    pub host_only_hit_tokens: u64,
    /// Both.
    pub reusable_prefix_tokens: u64,
    /// Blocks of the stream on the device.
    pub device_blocks: u64,
    /// Blocks of the stream on the host; a block may be on both.
    pub host_blocks: u64,
    /// Why it is not synchronised.
    pub error: Option<String>,
}

/// State of the directory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KvStreamsReply {
    /// Why it does not answer queries yet.
    pub unready: Option<String>,
    /// By instance, then rank.
    pub streams: Vec<KvStream>,
    /// Instances that are not followed, and why.
    pub excluded: BTreeMap<String, String>,
    /// What is wrong with the registry.
    pub notice: Option<String>,
}

/// State of one stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KvStream {
    /// Instance.
    pub instance_name: String,
    /// Data-parallel rank.
    pub dp_rank: u32,
    /// Where its events come from.
    pub endpoint: String,
    /// Where its replays come from.
    pub replay_endpoint: Option<String>,
    /// `disconnected`, `unsynced` or `synced`.
    pub state: String,
    /// Label of why.
    pub reason: String,
    /// See [`KvMatch::synchronized`].
    pub synchronized: bool,
    /// See [`KvMatch::sequence`].
    pub sequence: Option<u64>,
    /// From the publisher's time stamp of the last batch to its arrival, milliseconds; below 0 when the clocks differ. Null before
    /// the first, and when its stamp is no Unix time in seconds within a day of now.
    pub lag_ms: Option<f64>,
    /// Live batches with such a stamp.
    #[serde(default)]
    pub odd_timestamps: u64,
    /// Since the last batch, milliseconds.
    pub quiet_ms: Option<u64>,
    /// See [`KvMatch::device_blocks`].
    pub device_blocks: u64,
    /// See [`KvMatch::host_blocks`].
    pub host_blocks: u64,
    /// Engine hashes known.
    pub mappings: u64,
    /// Live batches read.
    pub batches: u64,
    /// Live batches that could not be read or applied: of another form, rank, block size or parent, or over a limit.
    pub refused: u64,
    /// Live messages of other topics, which are another publisher's, or without a connection.
    #[serde(default)]
    pub foreign: u64,
    /// That batches of another publisher arrive, of which topic, and what to do; unless `error` says so.
    #[serde(default)]
    pub notice: Option<String>,
    /// Events applied.
    pub events: u64,
    /// Events without use for the index.
    pub ignored: u64,
    /// Times batches were missing.
    pub gaps: u64,
    /// Times the publisher began anew.
    pub restarts: u64,
    /// Times it came in step again.
    pub resyncs: u64,
    /// Times the view was checked against a snapshot.
    pub refreshes: u64,
    /// Replays that failed.
    pub failed_replays: u64,
    /// Memory of batches that wait for a replay, bytes.
    pub buffered_bytes: u64,
    /// Time out of step, milliseconds.
    pub unsynced_ms: u64,
    /// Why it is not synchronised.
    pub error: Option<String>,
}
