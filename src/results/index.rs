//! What the KV index promised, how often choices were made blind, and what the servers then found cached.

use schemars::JsonSchema;
use serde::Serialize;

use super::seen::Seen;
use super::stats::share;
use crate::record::StreamFacts;

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
    /// Promised and found, of the ok requests whose server tells what it found.
    #[serde(flatten)]
    pub kept: PromisesKept,
    /// Every stream, by name.
    pub streams: Vec<StreamFacts>,
}

/// Promised tokens against those the servers reported as cached. Over and under are summed apart, so that they do not
/// cancel out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct PromisesKept {
    /// Requests compared.
    pub compared: u64,
    /// Prompt tokens promised on the device.
    pub promised_device_tokens: u64,
    /// Prompt tokens promised on the host only.
    pub promised_host_only_tokens: u64,
    /// Prompt tokens the servers found cached.
    pub found_tokens: u64,
    /// Promised and not found, over the requests where less was found.
    pub over_promised_tokens: u64,
    /// Found and not promised, over the requests where more was found.
    pub under_promised_tokens: u64,
}

impl IndexUse {
    /// Adds a request; one placed without the index changes nothing.
    pub(super) fn add(&mut self, request: &Seen) {
        let Some(device) = request.index_hit_tokens_device else { return };
        let (device, host) = (u64::from(device), u64::from(request.index_hit_tokens_host_only.unwrap_or(0)));
        let promised = device + host;
        self.decisions += 1;
        self.with_hits += u64::from(promised > 0);
        self.blind += u64::from(request.index_blind == Some(true));
        let Some(found) = request.cached_tokens.filter(|_| request.outcome.is_ok()).map(u64::from) else { return };
        let kept = &mut self.kept;
        kept.compared += 1;
        kept.promised_device_tokens += device;
        kept.promised_host_only_tokens += host;
        kept.found_tokens += found;
        kept.over_promised_tokens += promised.saturating_sub(found);
        kept.under_promised_tokens += found.saturating_sub(promised);
    }

    /// The section of the summary; `None` where there was no index.
    pub(super) fn finish(self, streams: &[StreamFacts]) -> Option<IndexUse> {
        (self.decisions > 0 || !streams.is_empty()).then(|| IndexUse {
            blind_share: share(self.blind, self.decisions),
            streams: streams.to_vec(),
            ..self
        })
    }

    /// Streams in step at the end.
    pub fn in_step(&self) -> u64 {
        self.streams.iter().filter(|stream| stream.synchronized).count() as u64
    }

    /// Events of all streams.
    pub fn events(&self) -> u64 {
        self.streams.iter().map(|stream| stream.events).sum()
    }
}
