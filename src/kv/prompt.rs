//! [`PromptHashes`]: the sequence hashes of a trace's prompts, for one block size and seed of the index.
//!
//! Kept per node of the tree, so that a prompt is hashed once however often it is looked up. A block of the index belongs
//! to the node in which it ends; its tokens may begin in an ancestor, and its size need not divide the trace's.
//! Invariant: node `n` keeps the blocks that end behind its start, in order, without a gap.

use crate::kv::{BlockPath, BlockTokens, BlockTree, HashChain, NodeId, SequenceHash};

/// See the module.
#[derive(Debug)]
pub struct PromptHashes {
    tokens: BlockTokens,
    block_size: u32,
    chain: HashChain,
    nodes: Vec<Vec<SequenceHash>>,
}

impl PromptHashes {
    /// Of blocks of `block_size` tokens, which are made by `tokens`. Panics for a block without tokens.
    pub fn new(tokens: BlockTokens, block_size: u32, seed: u64) -> PromptHashes {
        assert!(block_size > 0, "a block holds at least one token");
        PromptHashes { tokens, block_size, chain: HashChain::new(seed), nodes: Vec::new() }
    }

    /// Tokens in a block of the index.
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    /// Replaces `hashes` by those of the prompt's full blocks, from its start.
    pub fn of_path(&mut self, tree: &BlockTree, path: BlockPath, hashes: &mut Vec<SequenceHash>) {
        hashes.clear();
        if self.nodes.len() < tree.node_count() {
            self.nodes.resize_with(tree.node_count(), Vec::new);
        }
        for part in parts(tree, path) {
            let wanted = self.blocks(tree, part.depth) - hashes.len();
            if self.nodes[part.node.ix()].len() < wanted {
                self.hash(tree, part, hashes, wanted);
            }
            hashes.extend_from_slice(&self.nodes[part.node.ix()][..wanted]);
        }
    }

    /// Blocks of the index in the first `depth` blocks of the trace.
    fn blocks(&self, tree: &BlockTree, depth: u32) -> usize {
        (u64::from(depth) * u64::from(tree.block_size()) / u64::from(self.block_size)) as usize
    }

    /// Hashes what `part.node` lacks of its first `wanted` blocks; `before` are those of its ancestors.
    fn hash(&mut self, tree: &BlockTree, part: BlockPath, before: &[SequenceHash], wanted: usize) {
        let known = &mut self.nodes[part.node.ix()];
        let done = before.len() + known.len();
        self.chain.resume(known.last().or(before.last()).copied());
        let (size, trace_size) = (self.block_size as usize, tree.block_size() as usize);
        // The trace's block in which the next block of the index begins.
        let first = done * size / trace_size;
        let ids = tree.ids(part);
        let mut ids = ids[first..].iter();
        let mut pending: Vec<u32> = Vec::with_capacity(size + trace_size);
        let mut skip = done * size - first * trace_size;
        while known.len() < wanted {
            while pending.len() < size + skip {
                let Some(id) = ids.next() else { return };
                pending.extend(self.tokens.of_block(*id, tree.block_size()));
            }
            pending.drain(..std::mem::take(&mut skip));
            let mut taken = 0;
            while pending.len() - taken >= size && known.len() < wanted {
                known.push(self.chain.push(&pending[taken..taken + size]));
                taken += size;
            }
            pending.drain(..taken);
        }
    }
}

/// The path cut at the nodes it runs through, from the root; each with the depth it has reached there.
fn parts(tree: &BlockTree, path: BlockPath) -> Vec<BlockPath> {
    let mut parts = Vec::new();
    let mut at = path;
    while at.depth > 0 && at.node != NodeId::ROOT {
        parts.push(at);
        at = BlockPath { node: tree.parent(at.node), depth: tree.start(at.node).min(at.depth) };
    }
    parts.reverse();
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TOKENS: fn() -> BlockTokens = || BlockTokens::new(1000, 30_000);

    fn plain(ids: &[u64], trace_size: u32, size: u32, seed: u64) -> Vec<SequenceHash> {
        let tokens: Vec<u32> = ids.iter().flat_map(|id| TOKENS().of_block(*id, trace_size)).collect();
        let mut chain = HashChain::new(seed);
        tokens.chunks_exact(size as usize).map(|block| chain.push(block)).collect()
    }

    proptest! {
        /// Also when the sizes share no divisor, nodes grow, and prompts come in any order.
        #[test]
        fn hashes_are_those_of_the_tokens(
            lists in prop::collection::vec((prop::collection::vec(0u64..3, 0..9), 0u32..10), 1..12),
            trace_size in 1u32..9,
            size in 1u32..20,
        ) {
            let mut tree = BlockTree::new(trace_size);
            let mut prompts = PromptHashes::new(TOKENS(), size, 7);
            let mut hashes = Vec::new();
            for (ids, cut) in &lists {
                let whole = tree.insert(ids, BlockPath::EMPTY);
                for path in [tree.truncate(whole, *cut), whole] {
                    prompts.of_path(&tree, path, &mut hashes);
                    prop_assert_eq!(&hashes, &plain(&tree.ids(path), trace_size, size, 7));
                }
            }
        }
    }
}
