//! [`Names`]: how a publisher calls its blocks, and where they lie in the block tree.
//!
//! A block's name is an XXH3-64 chain over the ids of the tree's blocks up to its end, kept per node, so that a block is
//! hashed once however often it is named. A published block belongs to the node in which it ends; its size need not be
//! that of the tree's blocks.

use std::ops::Range;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::kv::publish::TokenSource;
use crate::kv::{BlockPath, BlockTree, CacheChange, EngineHash, NodeId};

/// See the module.
#[derive(Debug)]
pub(super) struct Names {
    /// Tokens in a published block.
    size: u32,
    /// Chains of each node's blocks, from its start, as far as they were needed.
    nodes: Vec<Vec<u64>>,
}

impl Names {
    /// Of blocks of `size` tokens. Panics for a block without tokens.
    pub fn new(size: u32) -> Names {
        assert!(size > 0, "a block holds at least one token");
        Names { size, nodes: Vec::new() }
    }

    /// Tokens in a published block.
    pub fn block_size(&self) -> u32 {
        self.size
    }

    /// The tree was compacted: names are made anew, and come out the same.
    pub fn forget(&mut self) {
        self.nodes.clear();
    }

    /// Published blocks that end in a run of the tree's blocks, counted from the root.
    pub fn blocks(&self, tree: &BlockTree, run: CacheChange) -> Range<u64> {
        self.whole(tree, run.from)..self.whole(tree, run.to)
    }

    /// Published blocks in the first `depth` blocks of the tree.
    fn whole(&self, tree: &BlockTree, depth: u32) -> u64 {
        u64::from(depth) * u64::from(tree.block_size()) / u64::from(self.size)
    }

    /// Name of block `number` on the way to `node`.
    pub fn name(&mut self, tree: &BlockTree, node: NodeId, number: u64) -> EngineHash {
        let (size, of_tree) = (u64::from(self.size), u64::from(tree.block_size()));
        let depth = ((number + 1) * size).div_ceil(of_tree) as u32;
        let chain = self.chain(tree, node, depth);
        EngineHash(if size == of_tree { chain } else { xxh3_64_with_seed(&number.to_le_bytes(), chain) })
    }

    /// Tokens of `blocks` on the way to `node`.
    pub fn tokens(&self, tree: &BlockTree, node: NodeId, blocks: Range<u64>, source: &dyn TokenSource) -> Vec<u32> {
        let (size, of_tree) = (u64::from(self.size), u64::from(tree.block_size()));
        let (first, last) = (blocks.start * size / of_tree, (blocks.end * size).div_ceil(of_tree));
        let (first, last) = (first as u32, last as u32);
        let start = tree.start(node);
        let mut tokens = Vec::with_capacity(((last - first) * tree.block_size()) as usize);
        let mut add = |ids: &[u64]| ids.iter().for_each(|id| source.tokens(*id, tree.block_size(), &mut tokens));
        if first >= start {
            add(&tree.node_ids(node)[(first - start) as usize..(last - start) as usize]);
        } else {
            add(&tree.ids(BlockPath { node, depth: last })[first as usize..]);
        }
        tokens.drain(..(blocks.start * size - u64::from(first) * of_tree) as usize);
        tokens.truncate(((blocks.end - blocks.start) * size) as usize);
        tokens
    }

    /// Chain of the tree's block that ends at `depth` on the way to `node`.
    fn chain(&mut self, tree: &BlockTree, mut node: NodeId, depth: u32) -> u64 {
        while depth <= tree.start(node) {
            node = tree.parent(node);
        }
        let nth = (depth - tree.start(node)) as usize;
        if self.nodes.len() < tree.node_count() {
            self.nodes.resize_with(tree.node_count(), Vec::new);
        }
        // From the node up to the first one whose blocks are known far enough; then down again.
        let mut lacking = vec![(node, nth)];
        while let Some(&(node, nth)) = lacking.last() {
            let start = tree.start(node);
            if self.nodes[node.ix()].len() >= nth {
                lacking.pop();
                continue;
            }
            let before = match self.nodes[node.ix()].last() {
                Some(last) => Some(*last),
                None if start == 0 => Some(0),
                None => {
                    let mut parent = tree.parent(node);
                    while start <= tree.start(parent) {
                        parent = tree.parent(parent);
                    }
                    let wanted = (start - tree.start(parent)) as usize;
                    let known = self.nodes[parent.ix()].get(wanted - 1).copied();
                    if known.is_none() {
                        lacking.push((parent, wanted));
                    }
                    known
                }
            };
            if let Some(mut chain) = before {
                let known = &mut self.nodes[node.ix()];
                let done = known.len();
                for id in &tree.node_ids(node)[done..nth] {
                    chain = xxh3_64_with_seed(&id.to_le_bytes(), chain);
                    known.push(chain);
                }
                lacking.pop();
            }
        }
        self.nodes[node.ix()][nth - 1]
    }
}
