//! [`PrefixIndex`]: which streams hold which prefix of a prompt, on the accelerator or in memory of the host.
//!
//! Fed by one [`StreamWriter`] per stream, read by anybody; rules in docs/kv-events.md. Owns no sequence rules: whether a
//! batch is the next one is its writer's caller's business. Metadata only.
//! The shared half is `plane`s: every block once, with a bit per stream and tier, so that one lookup a block answers for
//! 64 streams. The writer's half maps engine hashes to blocks (`mappings`) and shows a batch when all of it is good
//! (`journal`). A query waits for 64 changes of blocks, or the growth of one shard of 1024, at most.

mod journal;
mod mappings;
mod plane;
mod prompt;
mod query;
mod shard;
mod side;
mod slab;
mod stream;
mod words;
mod writer;

#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use prompt::PromptHashes;
pub use words::{
    AddStreamError, Applied, ApplyError, DEFAULT_MAX_BLOCKS, HashSpace, Match, Mode, StreamId, StreamSpec, StreamStatus,
};
pub use writer::{Shadow, StreamWriter};

/// See the module. Clones are the same index.
#[derive(Debug, Clone, Default)]
pub struct PrefixIndex {
    streams: Arc<stream::Streams>,
}

impl PrefixIndex {
    /// Without streams.
    pub fn new() -> PrefixIndex {
        PrefixIndex::default()
    }

    /// Adds a stream, not synchronised yet. It is in the index as long as its writer lives.
    pub fn add_stream(&self, spec: StreamSpec) -> Result<StreamWriter, AddStreamError> {
        let stream = self.streams.add(spec)?;
        Ok(StreamWriter::new(Arc::clone(&self.streams), stream))
    }

    /// State of all streams, by name and rank.
    pub fn statuses(&self) -> Vec<StreamStatus> {
        self.streams.all().iter().map(|stream| stream.look().0).collect()
    }

    /// Distinct blocks that take memory: of all streams, states being built included.
    pub fn blocks(&self) -> u64 {
        self.streams.planes.blocks()
    }

    /// What each stream holds of the prompt, by name and rank. Whole blocks count, from the first one on without a hole.
    pub fn query(&self, tokens: &[u32]) -> Vec<Match> {
        query::query(&self.streams.all(), prompt::Prompt::Tokens(tokens, Vec::new()))
    }

    /// As [`PrefixIndex::query`], for a caller that has the hashes. Streams of a space that is not in `prompt` answer 0.
    pub fn query_hashes(&self, prompt: &[PromptHashes<'_>]) -> Vec<Match> {
        query::query(&self.streams.all(), prompt::Prompt::Hashes(prompt))
    }
}
