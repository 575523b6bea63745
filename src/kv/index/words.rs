//! What the index is told of a stream and what it answers.

use std::fmt;
use std::sync::Arc;

use crate::kv::EngineHash;

/// A stream while it is in an index; never used again after it left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

/// What names blocks: streams of one space share their hashes, and a query hashes its prompt once for them all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HashSpace {
    /// Tokens in a block.
    pub block_size: u32,
    /// Seed of the sequence hashes.
    pub hash_seed: u64,
}

/// What names the blocks of a plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Naming {
    /// As the stream was added.
    pub space: HashSpace,
    /// Blocks are of overlapping pairs of tokens: each is named with the token behind it, and there only before one.
    pub bigram: bool,
}

/// A publisher: one data-parallel rank of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamSpec {
    /// Name of the instance.
    pub instance: String,
    /// Data-parallel rank in it.
    pub dp_rank: u32,
    /// Tokens in a block, and seed of the sequence hashes.
    pub space: HashSpace,
    /// Most engine hashes known at once, resident, retained or outside.
    pub max_blocks: usize,
    /// Which process of the instance, when the registry says so.
    pub incarnation: Option<String>,
    /// When the process registered, Unix milliseconds, when the registry says so.
    pub register_ts_ms: Option<u64>,
}

/// Most engine hashes of a stream that names no limit.
pub const DEFAULT_MAX_BLOCKS: usize = 262_144;

/// State of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamStatus {
    /// Which.
    pub id: StreamId,
    /// As it was added.
    pub spec: Arc<StreamSpec>,
    /// Whether its hits count.
    pub synchronized: bool,
    /// Of the last batch in the state; kept after the stream lost its place.
    pub sequence: Option<u64>,
    /// Distinct blocks on the accelerator, those included that no prompt can reach.
    pub device_blocks: u64,
    /// Distinct blocks in memory of the host.
    pub host_blocks: u64,
    /// Engine hashes known.
    pub mappings: u64,
    /// Its blocks are of overlapping pairs of tokens (SGLang under EAGLE).
    pub bigram: bool,
    /// Why it is not synchronised.
    pub error: Option<Arc<str>>,
}

/// What a stream holds of a prompt, from its first block on without a hole. 0 when it is not synchronised, and when
/// its whole state was replaced at every look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Match {
    /// The stream as the answer was made.
    pub stream: StreamStatus,
    /// Tokens of blocks on the accelerator.
    pub device_hit_tokens: u64,
    /// Tokens of blocks only in memory of the host.
    pub host_only_hit_tokens: u64,
}

/// How a batch is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A change of a known state: what it refers to must be known.
    Delta,
    /// (Part of) a whole state: what refers to a block that is gone is kept outside, reachable by no prompt.
    Snapshot,
}

/// What a batch did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Applied {
    /// Blocks named by events, repetitions included.
    pub blocks: u64,
    /// Blocks removed that were not known, or not in that tier.
    pub unknown_removals: u64,
    /// Blocks stored outside: under a context the index does not cover, or behind a block that is gone.
    pub outside: u64,
}

/// Why a stream cannot be added.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddStreamError {
    /// Same instance and rank.
    #[error("instance `{instance}`, dp_rank {dp_rank} is in the index already; remove the one or the other")]
    Duplicate {
        /// Of the stream.
        instance: String,
        /// Of the stream.
        dp_rank: u32,
    },
    /// No tokens in a block.
    #[error("block_size of instance `{instance}` is 0; give the engine's block size in tokens")]
    NoBlockSize {
        /// Of the stream.
        instance: String,
    },
}

/// Why a batch was refused. Nothing of it is served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The stream has no state that a change could apply to.
    #[error("the stream is not synchronised; a change needs a state before it")]
    NotSynchronized,
    /// A change behind a block that was never stored, or was forgotten.
    #[error(
        "event {event}: unknown parent {parent:?} of block {block:?}; the stream has a hole, until a snapshot, a batch that clears everything, or a new process"
    )]
    UnknownParent {
        /// Position in the batch, from 0.
        event: usize,
        /// First block of the event.
        block: EngineHash,
        /// What it is behind.
        parent: EngineHash,
    },
    /// A replica without tokens of a block that was never stored, or was forgotten.
    #[error(
        "event {event}: replica of the unknown block {block:?} without its tokens; the stream has a hole, until a snapshot, a batch that clears everything, or a new process"
    )]
    UnknownReplica {
        /// Position in the batch, from 0.
        event: usize,
        /// The block.
        block: EngineHash,
    },
    /// Not the stream's block size.
    #[error("event {event}: block_size {found}, but the stream has {expected}; give the engine's own as block_size")]
    BlockSize {
        /// Position in the batch, from 0.
        event: usize,
        /// The event's.
        found: u32,
        /// The stream's.
        expected: u32,
    },
    /// Tokens do not fill the blocks.
    #[error("event {event}: tokens: {tokens}, for blocks of {block_size}: {blocks}")]
    TokenCount {
        /// Position in the batch, from 0.
        event: usize,
        /// Token ids in the event.
        tokens: usize,
        /// Hashes in the event.
        blocks: usize,
        /// Tokens in a block.
        block_size: u32,
    },
    /// Blocks of pairs of tokens and of single tokens in one state.
    #[error("event {event}: blocks of pairs of tokens beside blocks of single tokens; a publisher has one kind")]
    MixedTokens {
        /// Position in the batch, from 0.
        event: usize,
    },
    /// A resident block got other tokens, or another prefix.
    #[error("event {event}: block {block:?} is resident with other tokens or another prefix")]
    Conflict {
        /// Position in the batch, from 0.
        event: usize,
        /// The block.
        block: EngineHash,
    },
    /// No room for another engine hash.
    #[error("event {event}: index limit of {max_blocks} blocks reached; raise max_blocks_per_stream")]
    IndexLimit {
        /// Position in the batch, from 0.
        event: usize,
        /// The stream's limit.
        max_blocks: usize,
    },
}

impl Naming {
    /// What each whole block of a run is named by.
    pub fn blocks(self, tokens: &[u32]) -> impl Iterator<Item = &[u32]> {
        let size = self.space.block_size as usize;
        tokens.windows(size + usize::from(self.bigram)).step_by(size)
    }
}

impl fmt::Display for StreamSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.instance, self.dp_rank)
    }
}

impl Match {
    /// Tokens that need not be computed again.
    pub fn reusable_tokens(&self) -> u64 {
        self.device_hit_tokens + self.host_only_hit_tokens
    }
}
