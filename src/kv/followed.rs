//! [`Roster`]: which stream of an index is whose; [`IndexLookup`]: a [`PrefixIndex`] as policies read it.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use crate::base::WorkerId;
use crate::kv::index::{HashSpace, Match, PrefixIndex, PromptHashes as Hashed, StreamId};
use crate::kv::{
    BlockPath, BlockTokens, BlockTree, PrefixLookup, PromptHashes, SequenceHash, StreamHealth, StreamOrigin, WorkerHit,
};

/// Whose stream it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Followed {
    /// Worker that publishes it.
    pub worker: WorkerId,
    /// Data-parallel ranks of the worker.
    pub dp_size: u32,
    /// How it was found.
    pub origin: StreamOrigin,
    /// Address it is read from.
    pub endpoint: String,
}

/// See the module. Clones are the same roster.
#[derive(Debug, Clone, Default)]
pub struct Roster(Arc<RwLock<BTreeMap<StreamId, Followed>>>);

/// See the module.
#[derive(Debug)]
pub struct IndexLookup {
    index: PrefixIndex,
    roster: Roster,
    tokens: BlockTokens,
    spaces: BTreeMap<HashSpace, (PromptHashes, Vec<SequenceHash>)>,
}

impl Roster {
    /// Nobody is followed.
    pub fn new() -> Roster {
        Roster::default()
    }

    /// A stream is followed, or it is known better whose it is.
    pub fn put(&self, stream: StreamId, whose: Followed) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(stream, whose);
    }

    /// A stream is followed no longer.
    pub fn remove(&self, stream: StreamId) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&stream);
    }

    /// Whose stream it is, if it is followed.
    pub fn get(&self, stream: StreamId) -> Option<Followed> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&stream).cloned()
    }
}

impl IndexLookup {
    /// Of prompts whose blocks have the tokens that `tokens` makes.
    pub fn new(index: PrefixIndex, roster: Roster, tokens: BlockTokens) -> IndexLookup {
        IndexLookup { index, roster, tokens, spaces: BTreeMap::new() }
    }

    fn hit(&self, found: &Match) -> Option<WorkerHit> {
        let Followed { worker, dp_size, origin, .. } = self.roster.get(found.stream.id)?;
        let tokens = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        Some(WorkerHit {
            worker,
            dp_rank: found.stream.spec.dp_rank,
            dp_size,
            device_tokens: tokens(found.device_hit_tokens),
            host_only_tokens: tokens(found.host_only_hit_tokens),
            synchronized: found.stream.synchronized,
            origin,
        })
    }
}

impl PrefixLookup for IndexLookup {
    fn lookup(&mut self, tree: &BlockTree, prompt: BlockPath, hits: &mut Vec<WorkerHit>) {
        for status in self.index.statuses() {
            let space = status.spec.space;
            let made = || (PromptHashes::new(self.tokens, space.block_size, space.hash_seed), Vec::new());
            self.spaces.entry(space).or_insert_with(made);
        }
        for (prompts, hashes) in self.spaces.values_mut() {
            prompts.of_path(tree, prompt, hashes);
        }
        let hashed: Vec<Hashed<'_>> =
            self.spaces.iter().map(|(space, (_, hashes))| Hashed { space: *space, hashes }).collect();
        hits.extend(self.index.query_hashes(&hashed).iter().filter_map(|found| self.hit(found)));
    }

    fn streams(&self) -> Vec<StreamHealth> {
        let health = |status: &crate::kv::index::StreamStatus| {
            let Followed { worker, dp_size, endpoint, .. } = self.roster.get(status.id)?;
            let name = stream_name(worker, status.spec.dp_rank, dp_size);
            let error = status.error.as_deref().map(str::to_owned);
            Some(StreamHealth { name, endpoint, synchronized: status.synchronized, error })
        };
        self.index.statuses().iter().filter_map(health).collect()
    }
}

/// A stream as records name it: its worker, with the rank behind where there are several.
pub fn stream_name(worker: WorkerId, dp_rank: u32, dp_size: u32) -> String {
    if dp_size > 1 { format!("{worker}/{dp_rank}") } else { worker.to_string() }
}
