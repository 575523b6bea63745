//! What a publisher of KV events says about its cache, whatever its dialect.
//!
//! Formats: spec of the wire in docs/kv-events.md. The wire codec turns bytes into these and back.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whose encoding and rules a stream follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    /// xLLM: events as maps, media `gpu` and `cpu`, recovery by snapshot.
    Xllm,
    /// vLLM 0.9 to 0.33: events as arrays, later as maps; recovery by a ring of past batches.
    Vllm,
    /// SGLang 0.4.7 to 0.5.23: signed hashes; recovery by a ring of past batches.
    Sglang,
}

/// How a stream that lost its place gets it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Recovery {
    /// The publisher answers with all it holds, as of a sequence number.
    Snapshot,
    /// The publisher answers with the last batches it kept.
    History,
    /// The publisher answers nothing: only a batch that states the whole cache helps.
    None,
}

/// A block as the engine names it on the wire: opaque, 64 bits, never equal to a [`super::SequenceHash`] by right.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EngineHash(pub u64);

/// Where a replica of a block lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Memory of the accelerator.
    Device,
    /// Memory of the host.
    Host,
}

/// One change of a publisher's cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KvEvent {
    /// Blocks are resident now.
    Stored(BlockStored),
    /// Blocks are resident no longer, in one tier.
    Removed(BlockRemoved),
    /// Nothing is resident any more, in any tier.
    Cleared,
    /// Blocks under a context that the index does not cover (LoRA, multimodal): neither they nor their descendants are
    /// ever counted, nor is a later word about them an error.
    Foreign {
        /// The blocks.
        hashes: Vec<EngineHash>,
    },
}

/// A run of chained blocks, the first of them a child of `parent`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockStored {
    /// Blocks in chain order.
    pub hashes: Vec<EngineHash>,
    /// Block before the first; `None` at the start of a prompt.
    pub parent: Option<EngineHash>,
    /// Token ids of all blocks, `block_size` each; empty for a replica of blocks already known ("tokenless"). One more when
    /// `bigram`.
    pub tokens: Vec<u32>,
    /// Tokens in a block; 0 only when tokenless.
    pub block_size: u32,
    /// Where.
    pub tier: Tier,
    /// Blocks are of overlapping pairs of tokens (SGLang under EAGLE): each reaches one token into the next, and the last
    /// one token beyond itself. A prompt hits such a block only when it has that token too.
    pub bigram: bool,
}

/// Blocks that left one tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockRemoved {
    /// Blocks, in any order.
    pub hashes: Vec<EngineHash>,
    /// Where from.
    pub tier: Tier,
}

/// One message of a publisher: what a step of its scheduler changed, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct EventBatch {
    /// Publisher's clock, Unix seconds.
    pub timestamp: f64,
    /// Changes in order.
    pub events: Vec<KvEvent>,
    /// Data-parallel rank, when it says one.
    pub dp_rank: Option<u32>,
    /// Events the dialect allows and the index has no use for (other tiers, other attention groups, other localities).
    pub ignored: u32,
}

impl BlockStored {
    /// Repeats known blocks for another tier, without their tokens.
    pub fn is_tokenless(&self) -> bool {
        self.tokens.is_empty()
    }
}

impl EventBatch {
    /// Memory that its events hold, bytes: room that is not used counts.
    pub fn memory_bytes(&self) -> usize {
        let held = |event: &KvEvent| match event {
            KvEvent::Stored(BlockStored { hashes, tokens, .. }) => {
                hashes.capacity() * size_of::<EngineHash>() + tokens.capacity() * size_of::<u32>()
            }
            KvEvent::Removed(BlockRemoved { hashes, .. }) | KvEvent::Foreign { hashes } => {
                hashes.capacity() * size_of::<EngineHash>()
            }
            KvEvent::Cleared => 0,
        };
        self.events.capacity() * size_of::<KvEvent>() + self.events.iter().map(held).sum::<usize>()
    }
}

impl EngineHash {
    /// Folds a hash of bytes: its last 8 bytes, big-endian; a shorter one is padded on the left.
    pub fn from_bytes(bytes: &[u8]) -> EngineHash {
        let tail = &bytes[bytes.len().saturating_sub(8)..];
        EngineHash(tail.iter().fold(0, |folded, &byte| folded << 8 | u64::from(byte)))
    }
}

impl fmt::Debug for EngineHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl Dialect {
    /// As in configurations.
    pub const fn as_str(self) -> &'static str {
        match self {
            Dialect::Xllm => "xllm",
            Dialect::Vllm => "vllm",
            Dialect::Sglang => "sglang",
        }
    }

    /// How its publishers help a subscriber that lost its place.
    pub const fn recovery(self) -> Recovery {
        match self {
            Dialect::Xllm => Recovery::Snapshot,
            Dialect::Vllm | Dialect::Sglang => Recovery::History,
        }
    }
}

impl Recovery {
    /// As in configurations.
    pub const fn as_str(self) -> &'static str {
        match self {
            Recovery::Snapshot => "snapshot",
            Recovery::History => "history",
            Recovery::None => "none",
        }
    }
}

impl Tier {
    /// Both.
    pub const ALL: [Tier; 2] = [Tier::Device, Tier::Host];

    /// As in answers of the query endpoint.
    pub const fn as_str(self) -> &'static str {
        match self {
            Tier::Device => "device",
            Tier::Host => "host",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_hashes_fold_to_their_last_eight_bytes() {
        let long: Vec<u8> = (0..32).collect();
        assert_eq!(EngineHash::from_bytes(&long).0, 1_736_447_835_066_146_335);
        assert_eq!(EngineHash::from_bytes(&[1, 2, 3, 4]).0, 16_909_060);
        assert_eq!(EngineHash::from_bytes(&[]).0, 0);
    }
}
