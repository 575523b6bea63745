//! [`KvEventsConfig`]: the JSON file that says which publishers of KV events to follow, and within which limits.
//!
//! Format of the xLLM service's `kv_events_config_file`; `dialect`, `recovery`, `discovery.hash_seed` and
//! `discovery.registry` are ours. Defaults and ranges are stated in docs/kv-events.md. A value of these types has passed
//! every check of `read`.

use super::endpoint::Endpoint;
use crate::kv::{Dialect, Recovery};

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvEventsConfig {
    /// Where streams come from.
    pub source: Source,
    /// Most streams at a time, 1 to 128.
    pub max_streams: u32,
    /// Limits of each stream.
    pub limits: StreamLimits,
}

/// Where streams come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// From a registry of instances, by rule.
    Discovery(Discovery),
    /// From the file, as listed: each with an instance, a rank and an address of its own.
    Streams(Vec<StaticStream>),
}

/// Limits of one stream. None is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamLimits {
    /// Blocks known at a time, retained mappings included.
    pub max_blocks_per_stream: u32,
    /// Bytes of a live message or of a replay reply.
    pub max_message_bytes: u64,
    /// Bytes of live messages held back while a snapshot is awaited, with what their records take.
    pub max_buffered_bytes: u64,
    /// For one whole replay, milliseconds.
    pub replay_timeout_ms: u64,
    /// Between two checks against a snapshot, milliseconds.
    pub resync_interval_ms: u64,
}

/// What publishers of one kind have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamForm {
    /// Tokens in a block.
    pub block_size: u32,
    /// Seed of the index's own content keys.
    pub hash_seed: u64,
    /// Topic, whole.
    pub topic: String,
    /// Encoding.
    pub dialect: Dialect,
    /// How a lost place is found again.
    pub recovery: Recovery,
}

/// Rules by which instances of a registry become streams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Discovery {
    /// Form of every stream.
    pub form: StreamForm,
    /// Port of the events of rank 0, above the HTTP port.
    pub event_port_offset: u16,
    /// Port of the replay of rank 0, above the HTTP port.
    pub replay_port_offset: u16,
    /// Between two looks at the registry's state, milliseconds.
    pub refresh_interval_ms: u64,
    /// Which registry; `None`: whoever starts the directory says it.
    pub registry: Option<Registry>,
}

/// Where instances register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Registry {
    /// A JSON file, looked at again and again.
    File(String),
    /// An etcd cluster.
    Etcd {
        /// `http://HOST:PORT` of its members, or `HOST:PORT`.
        endpoints: Vec<String>,
        /// Prefix of all keys, as the service's `etcd_namespace`; slashes at its ends do not matter.
        namespace: String,
    },
}

/// A stream as listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaticStream {
    /// Instance it is of.
    pub instance: String,
    /// Data-parallel rank.
    pub dp_rank: u32,
    /// Form.
    pub form: StreamForm,
    /// Live events.
    pub events: Endpoint,
    /// Recovery; `None` only where there is none.
    pub replay: Option<Endpoint>,
}

impl Default for StreamLimits {
    fn default() -> StreamLimits {
        StreamLimits {
            max_blocks_per_stream: 262_144,
            max_message_bytes: 8 << 20,
            max_buffered_bytes: 16 << 20,
            replay_timeout_ms: 2_000,
            resync_interval_ms: 30_000,
        }
    }
}
