//! From JSON to [`KvEventsConfig`]: shape, defaults, ranges, and what excludes what.
//!
//! Two stages: a text that is no such object is refused at its first flaw, with line and column; then every value that
//! cannot be is named, all at once.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde::Deserialize;

use super::config::{Discovery, KvEventsConfig, Registry, Source, StaticStream, StreamForm, StreamLimits};
use super::endpoint::Endpoint;
use super::error::{ConfigCause, ConfigError, ConfigErrors};
use crate::base::{JsonFault, JsonFaultKind, from_json, nearest};
use crate::kv::{DEFAULT_HASH_SEED, Dialect, Recovery};

/// Most streams there can be.
pub const MOST_STREAMS: u32 = 128;

/// What is to be read as one JSON object: without the mark that some editors begin a file in UTF-8 with. Errors: it is an
/// array, which a struct would be read from, too.
pub(super) fn object(text: &[u8]) -> Result<&[u8], &'static str> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let is_array = text.trim_ascii_start().starts_with(b"[");
    if is_array { Err("invalid type: array, expected an object") } else { Ok(text) }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawConfig {
    discovery: Option<RawDiscovery>,
    #[serde(default)]
    streams: Vec<RawStream>,
    max_streams: Option<u64>,
    max_blocks_per_stream: Option<u64>,
    max_message_bytes: Option<u64>,
    max_buffered_bytes: Option<u64>,
    replay_timeout_ms: Option<u64>,
    resync_interval_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDiscovery {
    enabled: Option<bool>,
    block_size: Option<u64>,
    topic: Option<String>,
    event_port_offset: Option<u64>,
    replay_port_offset: Option<u64>,
    refresh_interval_ms: Option<u64>,
    hash_seed: Option<u64>,
    dialect: Option<Dialect>,
    recovery: Option<Recovery>,
    registry: Option<RawRegistry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRegistry {
    file: Option<String>,
    etcd: Option<RawEtcd>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEtcd {
    #[serde(default)]
    endpoints: Vec<String>,
    #[serde(default)]
    namespace: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawStream {
    instance_name: Option<String>,
    dp_rank: Option<u64>,
    block_size: Option<u64>,
    endpoint: Option<String>,
    replay_endpoint: Option<String>,
    topic: Option<String>,
    hash_seed: Option<u64>,
    dialect: Option<Dialect>,
    recovery: Option<Recovery>,
}

/// Collects what is wrong; a wrong value is stood in for by one that is never used.
#[derive(Default)]
struct Checks {
    problems: Vec<ConfigError>,
}

impl Checks {
    fn refuse(&mut self, field: impl Into<String>, cause: ConfigCause) {
        self.problems.push(ConfigError::new(field, cause));
    }

    fn number(
        &mut self,
        field: impl Into<String>,
        given: Option<u64>,
        default: u64,
        range: RangeInclusive<u64>,
    ) -> u64 {
        let found = given.unwrap_or(default);
        if !range.contains(&found) {
            let (least, most) = (*range.start(), *range.end());
            self.refuse(field, ConfigCause::OutOfRange { found, least, most });
            return default;
        }
        found
    }

    fn endpoint(&mut self, field: String, given: Option<&str>) -> Option<Endpoint> {
        let Some(text) = given else {
            self.refuse(field, ConfigCause::Missing("write tcp://HOST:PORT of the publisher"));
            return None;
        };
        let parsed = Endpoint::parse(text);
        parsed.map_err(|why| self.refuse(field, ConfigCause::Endpoint { found: text.to_owned(), why })).ok()
    }
}

impl KvEventsConfig {
    /// Reads the text of `file`. Errors: not JSON, a field that is unknown, missing, of another type, out of its range, or
    /// at odds with another.
    pub fn parse(text: &[u8], file: &str) -> Result<KvEventsConfig, ConfigErrors> {
        let wrong = |problems| ConfigErrors { file: file.to_owned(), problems };
        let raw = raw(text).map_err(|problem| wrong(vec![problem]))?;
        let mut checks = Checks::default();
        let config = checked(&raw, &mut checks);
        match config {
            Some(config) if checks.problems.is_empty() => Ok(config),
            _ => Err(wrong(checks.problems)),
        }
    }
}

fn raw(text: &[u8]) -> Result<RawConfig, ConfigError> {
    let text = object(text).map_err(|why| ConfigError::new("", ConfigCause::WrongType(why.into())))?;
    from_json(text).map_err(unreadable)
}

fn unreadable(fault: JsonFault) -> ConfigError {
    let words = fault.words.as_str();
    let cause = match (words.strip_prefix("unknown field "), words.strip_prefix("unknown word ")) {
        (Some(rest), _) => {
            let (_, near, known) = quoted(rest);
            ConfigCause::UnknownKey { near, known }
        }
        (None, Some(rest)) => {
            let (found, near, known) = quoted(rest);
            ConfigCause::UnknownWord { found, near, known }
        }
        (None, None) if fault.kind == JsonFaultKind::Data => ConfigCause::WrongType(words.to_owned()),
        (None, None) => ConfigCause::Syntax(words.to_owned()),
    };
    ConfigError { at: Some(fault.at), field: fault.path, cause }
}

/// A word, the known one it may mean, and all that are known. In serde's words they stand in backticks, the word first.
fn quoted(words: &str) -> (String, Option<String>, Vec<String>) {
    let mut quoted = words.split('`').skip(1).step_by(2).map(str::to_owned);
    let word = quoted.next().unwrap_or_default();
    let known: Vec<String> = quoted.collect();
    (word.clone(), nearest(&word, &known), known)
}

/// `None`, or a stand-in, where `checks` says what is wrong.
fn checked(raw: &RawConfig, checks: &mut Checks) -> Option<KvEventsConfig> {
    let max_streams =
        checks.number("max_streams", raw.max_streams, MOST_STREAMS.into(), 1..=MOST_STREAMS.into()) as u32;
    let limits = limits(raw, checks);
    let enabled = raw.discovery.as_ref().filter(|discovery| discovery.enabled.unwrap_or(true));
    let source = match (enabled, raw.streams.is_empty()) {
        (Some(_), false) => {
            checks.refuse("discovery", ConfigCause::BothSources);
            return None;
        }
        (None, true) => {
            checks.refuse("", ConfigCause::NoSource);
            return None;
        }
        (Some(rules), true) => Source::Discovery(discovery(rules, checks)?),
        (None, false) => Source::Streams(streams(&raw.streams, max_streams, checks)),
    };
    Some(KvEventsConfig { source, max_streams, limits })
}

fn limits(raw: &RawConfig, checks: &mut Checks) -> StreamLimits {
    let default = StreamLimits::default();
    let day = 86_400_000;
    let blocks = u64::from(default.max_blocks_per_stream);
    StreamLimits {
        max_blocks_per_stream: checks.number(
            "max_blocks_per_stream",
            raw.max_blocks_per_stream,
            blocks,
            1..=1_000_000_000,
        ) as u32,
        max_message_bytes: checks.number(
            "max_message_bytes",
            raw.max_message_bytes,
            default.max_message_bytes,
            1..=1 << 30,
        ),
        max_buffered_bytes: checks.number(
            "max_buffered_bytes",
            raw.max_buffered_bytes,
            default.max_buffered_bytes,
            1..=1 << 36,
        ),
        replay_timeout_ms: checks.number(
            "replay_timeout_ms",
            raw.replay_timeout_ms,
            default.replay_timeout_ms,
            1..=day,
        ),
        resync_interval_ms: checks.number(
            "resync_interval_ms",
            raw.resync_interval_ms,
            default.resync_interval_ms,
            1..=day,
        ),
    }
}

fn discovery(raw: &RawDiscovery, checks: &mut Checks) -> Option<Discovery> {
    let block_size = checks.number("discovery.block_size", raw.block_size, 128, 1..=65_536) as u32;
    let mut offset = |name: &str, given, default| checks.number(name, given, default, 0..=65_535) as u16;
    let event_port_offset = offset("discovery.event_port_offset", raw.event_port_offset, 10_000);
    let replay_port_offset = offset("discovery.replay_port_offset", raw.replay_port_offset, 30_000);
    if event_port_offset == replay_port_offset {
        checks.refuse("discovery.replay_port_offset", ConfigCause::SameOffset(event_port_offset));
    }
    let refresh = checks.number("discovery.refresh_interval_ms", raw.refresh_interval_ms, 1_000, 50..=60_000);
    let registry = match &raw.registry {
        None => None,
        Some(RawRegistry { file: Some(file), etcd: None }) => Some(Registry::File(file.clone())),
        Some(RawRegistry { file: None, etcd: Some(etcd) }) if !etcd.endpoints.is_empty() => {
            Some(Registry::Etcd { endpoints: etcd.endpoints.clone(), namespace: etcd.namespace.clone() })
        }
        Some(RawRegistry { file: None, etcd: Some(_) }) => {
            checks.refuse("discovery.registry.etcd.endpoints", ConfigCause::Missing("write HOST:PORT of a member"));
            return None;
        }
        Some(_) => {
            checks.refuse("discovery.registry", ConfigCause::Registry);
            return None;
        }
    };
    let form = form(block_size, raw.hash_seed, raw.topic.as_deref(), (raw.dialect, raw.recovery));
    Some(Discovery { form, event_port_offset, replay_port_offset, refresh_interval_ms: refresh, registry })
}

fn form(
    block_size: u32,
    seed: Option<u64>,
    topic: Option<&str>,
    how: (Option<Dialect>, Option<Recovery>),
) -> StreamForm {
    let dialect = how.0.unwrap_or(Dialect::Xllm);
    StreamForm {
        block_size,
        hash_seed: seed.unwrap_or(DEFAULT_HASH_SEED),
        topic: topic.unwrap_or_default().to_owned(),
        dialect,
        recovery: how.1.unwrap_or(dialect.recovery()),
    }
}

fn streams(raw: &[RawStream], max_streams: u32, checks: &mut Checks) -> Vec<StaticStream> {
    if raw.len() > max_streams as usize {
        checks.refuse("streams", ConfigCause::TooManyStreams { found: raw.len(), most: max_streams });
    }
    let (mut ranks, mut addresses) = (BTreeMap::new(), BTreeMap::new());
    let mut found = Vec::new();
    for (ix, raw) in raw.iter().enumerate() {
        let at = format!("streams[{ix}]");
        let Some(stream) = stream(raw, &at, checks) else { continue };
        if let Some(other) = ranks.insert((stream.instance.clone(), stream.dp_rank), at.clone()) {
            let (instance, dp_rank) = (stream.instance.clone(), stream.dp_rank);
            checks.refuse(&at, ConfigCause::DuplicateStream { instance, dp_rank, other });
        }
        for (name, endpoint) in [("endpoint", Some(&stream.events)), ("replay_endpoint", stream.replay.as_ref())] {
            let Some(endpoint) = endpoint.cloned() else { continue };
            let field = format!("{at}.{name}");
            match addresses.get(&endpoint.place()).cloned() {
                Some(other) => checks.refuse(field, ConfigCause::DuplicateEndpoint { endpoint, other }),
                None => drop(addresses.insert(endpoint.place(), field)),
            }
        }
        found.push(stream);
    }
    found
}

fn stream(raw: &RawStream, at: &str, checks: &mut Checks) -> Option<StaticStream> {
    let before = checks.problems.len();
    let instance = raw.instance_name.clone().filter(|name| !name.is_empty());
    if instance.is_none() {
        checks.refuse(format!("{at}.instance_name"), ConfigCause::Missing("write the name of the instance"));
    }
    let dp_rank = checks.number(format!("{at}.dp_rank"), raw.dp_rank, 0, 0..=65_535) as u32;
    let block_size = checks.number(format!("{at}.block_size"), raw.block_size, 128, 1..=65_536) as u32;
    let form = form(block_size, raw.hash_seed, raw.topic.as_deref(), (raw.dialect, raw.recovery));
    let events = checks.endpoint(format!("{at}.endpoint"), raw.endpoint.as_deref());
    let replay = match (raw.replay_endpoint.as_deref(), form.recovery) {
        (None, Recovery::None) => None,
        (given, _) => checks.endpoint(format!("{at}.replay_endpoint"), given),
    };
    let stream = StaticStream { instance: instance?, dp_rank, form, events: events?, replay };
    (checks.problems.len() == before).then_some(stream)
}
