//! [`IndexLookup`]: a [`PrefixIndex`] as policies read it.

use std::collections::BTreeMap;
use std::fmt;

use crate::base::WorkerId;
use crate::kv::index::{HashSpace, PrefixIndex, PromptHashes as Hashed, StreamSpec, StreamStatus};
use crate::kv::{
    BlockPath, BlockTokens, BlockTree, PrefixLookup, PromptHashes, SequenceHash, StreamHealth, StreamOrigin, WorkerHit,
};

/// Whose stream it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Followed {
    /// Worker that publishes it.
    pub worker: WorkerId,
    /// How it was found.
    pub origin: StreamOrigin,
    /// Address it is read from; empty in virtual time.
    pub endpoint: String,
}

/// Tells whose a stream is; `None` for one that is of no worker of the run.
pub type Whose = Box<dyn Fn(&StreamSpec) -> Option<Followed> + Send>;

/// See the module.
pub struct IndexLookup {
    index: PrefixIndex,
    whose: Whose,
    tokens: BlockTokens,
    spaces: BTreeMap<HashSpace, (PromptHashes, Vec<SequenceHash>)>,
}

impl IndexLookup {
    /// Of prompts whose blocks have the tokens that `tokens` makes.
    pub fn new(index: PrefixIndex, whose: Whose, tokens: BlockTokens) -> IndexLookup {
        IndexLookup { index, whose, tokens, spaces: BTreeMap::new() }
    }
}

impl PrefixLookup for IndexLookup {
    fn lookup(&mut self, tree: &BlockTree, prompt: BlockPath, hits: &mut Vec<WorkerHit>) {
        let streams = self.index.statuses();
        let plain = streams.iter().filter(|status| !status.bigram);
        for space in plain.map(|status| status.spec.space) {
            let made = || (PromptHashes::new(self.tokens, space.block_size, space.hash_seed), Vec::new());
            self.spaces.entry(space).or_insert_with(made);
        }
        for (prompts, hashes) in self.spaces.values_mut() {
            prompts.of_path(tree, prompt, hashes);
        }
        let hashed: Vec<Hashed<'_>> =
            self.spaces.iter().map(|(space, (_, hashes))| Hashed { space: *space, hashes }).collect();
        let found = if streams.iter().any(|status| status.bigram) {
            // The names of blocks of pairs of tokens are not kept: such publishers are few.
            let size = tree.block_size();
            let prompt = tree.ids(prompt);
            let prompt: Vec<u32> = prompt.iter().flat_map(|id| self.tokens.of_block(*id, size)).collect();
            self.index.query(&prompt)
        } else {
            self.index.query_hashes(&hashed)
        };
        let tokens = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        for found in found {
            let Some(Followed { worker, origin, .. }) = (self.whose)(&found.stream.spec) else { continue };
            hits.push(WorkerHit {
                worker,
                dp_rank: found.stream.spec.dp_rank,
                dp_size: ranks(&streams, &found.stream.spec),
                device_tokens: tokens(found.device_hit_tokens),
                host_only_tokens: tokens(found.host_only_hit_tokens),
                block_size: found.stream.spec.space.block_size,
                synchronized: found.stream.synchronized,
                origin,
            });
        }
    }

    fn streams(&self) -> Vec<StreamHealth> {
        let streams = self.index.statuses();
        let health = |status: &StreamStatus| {
            let Followed { worker, endpoint, .. } = (self.whose)(&status.spec)?;
            let name = stream_name(worker, status.spec.dp_rank, ranks(&streams, &status.spec));
            let error = status.error.as_deref().map(str::to_owned);
            Some(StreamHealth { name, endpoint, synchronized: status.synchronized, error })
        };
        streams.iter().filter_map(health).collect()
    }
}

impl fmt::Debug for IndexLookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IndexLookup").field("index", &self.index).finish_non_exhaustive()
    }
}

/// A stream as records name it: its worker, with the rank behind where there are several.
pub fn stream_name(worker: WorkerId, dp_rank: u32, ranks: u32) -> String {
    if ranks > 1 { format!("{worker}/{dp_rank}") } else { worker.to_string() }
}

fn ranks(streams: &[StreamStatus], of: &StreamSpec) -> u32 {
    streams.iter().filter(|status| status.spec.instance == of.instance).count() as u32
}
