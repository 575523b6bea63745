//! What a registry says of an instance, and the load it reports.

use serde::Deserialize;

use super::endpoint::Endpoint;
use crate::base::{Role, Time};

/// What an instance can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InstanceType {
    /// Prefill and decode, alone.
    Default,
    /// Prefill.
    Prefill,
    /// Decode.
    Decode,
    /// Prefill or decode, one at a time.
    Mix,
}

/// Which process an instance is: equal identities, equal caches.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Identity {
    /// Its incarnation id.
    Incarnation(String),
    /// Of an older engine without one: when it registered, Unix milliseconds.
    RegisteredAt(u64),
    /// It says neither: only a connection that breaks tells a new process.
    Unknown,
}

/// One registration.
#[derive(Debug, Clone, PartialEq)]
pub struct InstanceRecord {
    /// Unique name.
    pub name: String,
    /// Its HTTP server.
    pub address: Endpoint,
    /// Type.
    pub kind: InstanceType,
    /// What a [`InstanceType::Mix`] does now, where the registration says it.
    pub current: Option<Role>,
    /// Engine, in lower case; `None`: unsaid.
    pub backend: Option<String>,
    /// Data-parallel ranks, at least 1.
    pub dp_size: u32,
    /// Process.
    pub identity: Identity,
}

/// What an instance last said of its load. Values are as reported; whoever uses them checks them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InstanceLoad {
    /// Requests that wait.
    pub waiting_requests_num: u64,
    /// Share of the device's KV blocks in use, 0 to 1.
    pub gpu_cache_usage_perc: f64,
    /// When it was heard.
    pub received: Time,
}

/// A load as it is written, without the time of hearing it.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct LoadReport {
    /// See [`InstanceLoad::waiting_requests_num`].
    pub waiting_requests_num: u64,
    /// See [`InstanceLoad::gpu_cache_usage_perc`].
    pub gpu_cache_usage_perc: f64,
}

/// Longest name of an instance and longest address, bytes.
const MOST_NAME: usize = 255;
/// Most that is told of what is wrong with a registration, characters.
pub(super) const MOST_SHOWN: usize = 400;

/// Keys of a registration of the xLLM engine that have no use here.
pub(super) const ENGINE_KEYS: [&str; 10] = [
    "rpc_address",
    "cluster_ids",
    "addrs",
    "k_cache_ids",
    "v_cache_ids",
    "device_ips",
    "ports",
    "ttft_profiling_data",
    "tpot_profiling_data",
    "instance_index",
];

/// A registration as it is written. Keys of the engine that are of no use here stay in `rest`.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct RawRecord {
    #[serde(default)]
    pub name: String,
    http_address: Option<String>,
    #[serde(rename = "type")]
    kind: Option<RawType>,
    current_type: Option<RawType>,
    backend: Option<String>,
    dp_size: Option<i64>,
    incarnation_id: Option<String>,
    register_ts_ms: Option<u64>,
    pub load: Option<LoadReport>,
    #[serde(flatten)]
    pub rest: std::collections::BTreeMap<String, serde::de::IgnoredAny>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "expected DEFAULT (0), PREFILL (1), DECODE (2) or MIX (3)")]
enum RawType {
    Number(i64),
    Word(String),
}

/// Keys of [`RawRecord`], for suggestions.
pub(super) const RECORD_KEYS: [&str; 9] =
    ["name", "http_address", "type", "current_type", "backend", "dp_size", "incarnation_id", "register_ts_ms", "load"];

impl RawRecord {
    /// The record, `name` being what the registry calls it and `kind` what it says where the record itself does not.
    /// Errors: a field and what is wrong with it.
    pub fn record(&self, name: &str, kind: Option<InstanceType>) -> Result<InstanceRecord, String> {
        if name.is_empty() {
            return Err("`name` is missing or empty; write the instance's name".into());
        }
        let address = self.http_address.as_deref().unwrap_or(name);
        for (field, text) in [("name", name), ("http_address", address)] {
            if text.len() > MOST_NAME {
                return Err(format!("`{field}` has {} bytes; write {MOST_NAME} at most", text.len()));
            }
        }
        let (field, remedy) = match self.http_address {
            Some(_) => ("http_address", "write HOST:PORT"),
            None => ("name", "write HOST:PORT, or give `http_address` beside it"),
        };
        let address = Endpoint::parse_http(address)
            .map_err(|why| format!("`{field}` \"{address}\" is no HTTP address: {why}; {remedy}"))?;
        let stated = self.kind.as_ref().map(|kind| kind.read("type")).transpose()?;
        let kind = stated.or(kind).ok_or("`type` is missing; write DEFAULT, PREFILL, DECODE or MIX")?;
        let dp_size = match self.dp_size.unwrap_or(0) {
            0 => 1,
            ranks => u32::try_from(ranks).map_err(|_| format!("`dp_size` is {ranks}; write the number of ranks"))?,
        };
        let identity = match (&self.incarnation_id, self.register_ts_ms) {
            (Some(id), _) if !id.is_empty() => Identity::Incarnation(id.clone()),
            (_, Some(at)) if at > 0 => Identity::RegisteredAt(at),
            _ => Identity::Unknown,
        };
        let backend = self.backend.as_ref().map(|backend| backend.to_lowercase());
        Ok(InstanceRecord {
            name: name.to_owned(),
            address,
            kind,
            current: self.current()?,
            backend,
            dp_size,
            identity,
        })
    }

    fn current(&self) -> Result<Option<Role>, String> {
        match self.current_type.as_ref().map(|kind| kind.read("current_type")).transpose()? {
            None => Ok(None),
            Some(InstanceType::Prefill) => Ok(Some(Role::Prefill)),
            Some(InstanceType::Decode) => Ok(Some(Role::Decode)),
            Some(InstanceType::Default | InstanceType::Mix) => {
                Err("`current_type` says what a MIX does now; write PREFILL or DECODE".into())
            }
        }
    }
}

impl RawType {
    fn read(&self, field: &str) -> Result<InstanceType, String> {
        let found = match self {
            RawType::Number(number) => usize::try_from(*number).ok().and_then(|ix| InstanceType::ALL.get(ix).copied()),
            RawType::Word(word) => InstanceType::ALL.into_iter().find(|kind| kind.as_str().eq_ignore_ascii_case(word)),
        };
        let shown = match self {
            RawType::Number(number) => number.to_string(),
            RawType::Word(word) => format!("\"{word}\""),
        };
        found.ok_or_else(|| format!("`{field}` is {shown}; write DEFAULT (0), PREFILL (1), DECODE (2) or MIX (3)"))
    }
}

impl InstanceType {
    /// In the order of their numbers in a registry.
    pub const ALL: [InstanceType; 4] =
        [InstanceType::Default, InstanceType::Prefill, InstanceType::Decode, InstanceType::Mix];

    /// As in a registry.
    pub const fn as_str(self) -> &'static str {
        match self {
            InstanceType::Default => "DEFAULT",
            InstanceType::Prefill => "PREFILL",
            InstanceType::Decode => "DECODE",
            InstanceType::Mix => "MIX",
        }
    }
}

impl Identity {
    /// The incarnation id, where there is one.
    pub fn incarnation(&self) -> Option<&str> {
        match self {
            Identity::Incarnation(id) => Some(id),
            Identity::RegisteredAt(_) | Identity::Unknown => None,
        }
    }

    /// When it registered, where that is all there is.
    pub fn register_ts_ms(&self) -> Option<u64> {
        match self {
            Identity::RegisteredAt(at) => Some(*at),
            Identity::Incarnation(_) | Identity::Unknown => None,
        }
    }
}
