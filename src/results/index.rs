//! What the KV index promised, how often choices were made blind, and what the servers then found cached.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::seen::Seen;
use super::stats::share;
use super::vocabulary::Vocabulary;
use crate::base::words::plural;
use crate::record::{IndexSight, StreamFacts};

/// Workers and streams named in a sentence; the rest are counted.
const NAMED: usize = 4;
/// Streams named with their addresses and errors.
const TOLD: usize = 2;

/// The KV index over the whole run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct IndexUse {
    /// Requests placed with an answer of the index.
    pub decisions: u64,
    /// Of these, those for which the index promised at least one token.
    pub with_hits: u64,
    /// Of these, those without a trustworthy view of the chosen worker.
    pub blind: u64,
    /// `blind / decisions`, 0 to 1.
    pub blind_share: Option<f64>,
    /// Decisions by the cache of a worker that did not compute the prompt: of a D, where P computed it, or where another
    /// worker served. What was promised there saves no prefill, and is not compared.
    pub computed_elsewhere: u64,
    /// Promised and found, of the ok requests whose server tells what it found.
    #[serde(flatten)]
    pub kept: PromisesKept,
    /// Who was not seen, and why.
    #[serde(flatten)]
    pub blindness: Blindness,
    /// Every stream, by name.
    pub streams: Vec<StreamFacts>,
}

/// Blind decisions, by worker and reason.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct Blindness {
    /// Workers that were chosen without a trustworthy view of their cache, by name.
    pub blind_workers: Vec<BlindWorker>,
    /// Streams that are of no worker of the run, by name.
    pub unknown_streams: Vec<String>,
}

/// A worker that was chosen without a trustworthy view of its cache.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct BlindWorker {
    /// Its name.
    pub worker: String,
    /// Why.
    pub sight: IndexSight,
    /// How often.
    pub decisions: u64,
    /// Address of its stream; null without one.
    pub endpoint: Option<String>,
    /// What was wrong with the stream last.
    pub error: Option<String>,
}

/// [`IndexUse`] in the making.
#[derive(Debug, Default)]
pub(super) struct IndexTally {
    found: IndexUse,
    blind: BTreeMap<(u32, IndexSight), u64>,
}

/// Promised tokens against those the servers reported as cached. Over and under are summed apart, so that they do not
/// cancel out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct PromisesKept {
    /// Requests compared.
    pub compared: u64,
    /// Prompt tokens promised on the device: hits that the worker can reuse, without the block of the last prompt token.
    pub promised_device_tokens: u64,
    /// The same on the host only.
    pub promised_host_only_tokens: u64,
    /// Prompt tokens the servers found cached.
    pub found_tokens: u64,
    /// Promised and not found, over the requests where less was found.
    pub over_promised_tokens: u64,
    /// Found and not promised, over the requests where more was found.
    pub under_promised_tokens: u64,
}

impl IndexTally {
    /// Adds a request; one placed without the index changes nothing.
    pub fn add(&mut self, request: &Seen) {
        let Some(device) = request.index_hit_tokens_device else { return };
        let (device, host) = (u64::from(device), u64::from(request.index_hit_tokens_host_only.unwrap_or(0)));
        let promised = device + host;
        let found = &mut self.found;
        found.decisions += 1;
        found.with_hits += u64::from(promised > 0);
        if request.index_blind == Some(true) {
            found.blind += 1;
            let whose = request.index_worker.zip(request.index_sight);
            whose.into_iter().for_each(|(worker, sight)| *self.blind.entry((worker.ix, sight)).or_default() += 1);
        }
        let computed = request.prefill_worker.or(request.decode_worker_actual);
        // Runs of earlier versions do not name the worker.
        if let Some((worker, computed)) = request.index_worker.zip(computed)
            && worker.ix != computed.ix
        {
            found.computed_elsewhere += 1;
            return;
        }
        let cached = request.cached_tokens.filter(|_| request.outcome.is_ok()).map(u64::from);
        let Some(cached) = cached else { return };
        let kept = &mut found.kept;
        kept.compared += 1;
        kept.promised_device_tokens += device;
        kept.promised_host_only_tokens += host;
        kept.found_tokens += cached;
        kept.over_promised_tokens += promised.saturating_sub(cached);
        kept.under_promised_tokens += cached.saturating_sub(promised);
    }

    /// The section of the summary; `None` where there was no index. `names` are those of workers by number, `workers` those
    /// of the run.
    pub fn finish(self, names: &Vocabulary, workers: &[String], streams: &[StreamFacts]) -> Option<IndexUse> {
        let IndexTally { found, blind } = self;
        let blind_worker = |((number, sight), decisions): ((u32, IndexSight), u64)| {
            let worker = names.list().get(number).to_owned();
            let stream = streams.iter().filter(|stream| worker_of(stream) == worker);
            let stream = stream.min_by_key(|stream| stream.synchronized);
            let endpoint = stream.map(|stream| stream.endpoint.clone());
            let error = stream.and_then(|stream| stream.last_error.clone());
            BlindWorker { worker, sight, decisions, endpoint, error }
        };
        let mut blind_workers: Vec<BlindWorker> = blind.into_iter().map(blind_worker).collect();
        blind_workers.sort_by(|a, b| (&a.worker, a.sight).cmp(&(&b.worker, b.sight)));
        let is_unknown =
            |stream: &&StreamFacts| !workers.is_empty() && !workers.iter().any(|it| it == worker_of(stream));
        let unknown_streams = streams.iter().filter(is_unknown).map(|stream| stream.name.clone()).collect();
        (found.decisions > 0 || !streams.is_empty()).then(|| IndexUse {
            blind_share: share(found.blind, found.decisions),
            blindness: Blindness { blind_workers, unknown_streams },
            streams: streams.to_vec(),
            ..found
        })
    }
}

/// Worker that a stream is of: its name without the rank.
fn worker_of(stream: &StreamFacts) -> &str {
    stream.name.rsplit_once('/').map_or(&stream.name, |(worker, _)| worker)
}

impl IndexUse {
    /// Streams of workers of the run.
    pub fn known_streams(&self) -> impl Iterator<Item = &StreamFacts> {
        self.streams.iter().filter(|stream| !self.blindness.unknown_streams.contains(&stream.name))
    }

    /// Of these, in step at the end.
    pub fn in_step(&self) -> u64 {
        self.known_streams().filter(|stream| stream.synchronized).count() as u64
    }

    /// Events of all streams.
    pub fn events(&self) -> u64 {
        self.streams.iter().map(|stream| stream.events).sum()
    }
}

impl Blindness {
    /// Why decisions were blind, and of whom; empty where none was, or nothing is known of it.
    pub(super) fn sentence(&self) -> String {
        let whys = IndexSight::ALL.iter().filter_map(|sight| self.of(*sight)).collect::<Vec<_>>().join("; ");
        match self.unknown_streams.as_slice() {
            [] => whys,
            [one] => joined(whys, format!("stream {one} is of no worker of the run")),
            all => {
                joined(whys, format!("streams {} are of no worker of the run", some_of(all.iter().map(String::as_str))))
            }
        }
    }

    fn of(&self, sight: IndexSight) -> Option<String> {
        let blind: Vec<&BlindWorker> = self.blind_workers.iter().filter(|blind| blind.sight == sight).collect();
        if blind.is_empty() {
            return None;
        }
        let names = some_of(blind.iter().map(|blind| blind.worker.as_str()));
        Some(match sight {
            // It is not blind then.
            IndexSight::Synchronized => return None,
            IndexSight::NoStream if blind.iter().all(|blind| blind.worker.starts_with('D')) => {
                format!("no stream is of {names}: a D publishes with engine.decode_radix_cache = true only")
            }
            IndexSight::NoStream => format!("no stream is of {names}"),
            IndexSight::NotSynchronized => {
                let rest = blind.len().saturating_sub(TOLD);
                let more = (rest > 0).then(|| plural(rest as u64, "more worker"));
                blind.iter().take(TOLD).map(|blind| blind.told()).chain(more).collect::<Vec<_>>().join("; ")
            }
            IndexSight::OtherProcess => {
                format!("the stream of {names} was of another process than the one that served")
            }
            IndexSight::StaticStream => format!(
                "streams listed by hand count only with policy.car.static_streams = true, and those of {names} are"
            ),
        })
    }
}

impl BlindWorker {
    fn told(&self) -> String {
        let at =
            self.endpoint.as_deref().filter(|at| !at.is_empty()).map_or_else(String::new, |at| format!(" at {at}"));
        format!("{}{at} was not in step: {}", self.worker, self.error.as_deref().unwrap_or("nothing was heard"))
    }
}

/// Some names, and how many there are beside them.
fn some_of<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut names: Vec<&str> = names.collect();
    let rest = names.len().saturating_sub(NAMED);
    names.truncate(NAMED);
    let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
    names.join(", ") + &more
}

fn joined(first: String, second: String) -> String {
    if first.is_empty() { second } else { format!("{first}; {second}") }
}
