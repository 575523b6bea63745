//! [`Cache`]: what a cache holds, as its changes told; and the events that tell of it.
//!
//! Invariant: parents are told of before their children, and a block without its tokens only while it is known to lie on
//! the device.

use std::collections::BTreeMap;

use crate::kv::publish::TokenSource;
use crate::kv::publish::names::Names;
use crate::kv::{BlockRemoved, BlockStored, BlockTree, CacheChange, Dialect, KvEvent, Moved, NodeId, Tier};

/// See the module.
#[derive(Debug)]
pub(super) struct Cache {
    names: Names,
    dialect: Dialect,
    /// Depth up to which blocks of a node are held, for nodes with any.
    device: BTreeMap<NodeId, u32>,
    host: BTreeMap<NodeId, u32>,
}

/// What events are made from.
#[derive(Clone, Copy)]
pub(super) struct Blocks<'a> {
    pub tree: &'a BlockTree,
    pub tokens: &'a dyn TokenSource,
}

impl Cache {
    /// An empty one, of published blocks of `block_size` tokens.
    pub fn new(block_size: u32, dialect: Dialect) -> Cache {
        Cache { names: Names::new(block_size), dialect, device: BTreeMap::new(), host: BTreeMap::new() }
    }

    /// Takes changes of a tier, in order, and adds what is to be said of them.
    pub fn change(&mut self, blocks: Blocks<'_>, tier: Tier, changes: &[CacheChange], events: &mut Vec<KvEvent>) {
        for change in changes {
            self.book(blocks.tree, tier, *change);
            if change.stored {
                self.stored(blocks, tier, *change, events);
            } else {
                self.removed(blocks, tier, *change, events);
            }
        }
    }

    /// All it holds.
    pub fn all(&mut self, blocks: Blocks<'_>) -> Vec<KvEvent> {
        let mut events = Vec::new();
        for tier in Tier::ALL {
            // A node is younger than its parent.
            let held: Vec<(NodeId, u32)> = self.held(tier).iter().map(|(node, depth)| (*node, *depth)).collect();
            for (node, to) in held {
                let run = CacheChange { node, from: blocks.tree.start(node), to, stored: true };
                self.stored(blocks, tier, run, &mut events);
            }
        }
        events
    }

    /// The tree was compacted: the nodes it kept, all that are held among them, have moved.
    pub fn follow(&mut self, moved: &Moved) {
        self.names.forget();
        for held in [&mut self.device, &mut self.host] {
            *held = std::mem::take(held).into_iter().map(|(node, depth)| (moved.node(node), depth)).collect();
        }
    }

    /// Depths up to which blocks are held, by node.
    pub fn held(&self, tier: Tier) -> &BTreeMap<NodeId, u32> {
        match tier {
            Tier::Device => &self.device,
            Tier::Host => &self.host,
        }
    }

    fn book(&mut self, tree: &BlockTree, tier: Tier, change: CacheChange) {
        let held = match tier {
            Tier::Device => &mut self.device,
            Tier::Host => &mut self.host,
        };
        let depth = if change.stored { change.to } else { change.from };
        if depth > tree.start(change.node) {
            held.insert(change.node, depth);
        } else {
            held.remove(&change.node);
        }
    }

    fn stored(&mut self, blocks: Blocks<'_>, tier: Tier, run: CacheChange, events: &mut Vec<KvEvent>) {
        let known = match tier {
            Tier::Device => run.from,
            Tier::Host => self.device.get(&run.node).map_or(run.from, |depth| (*depth).clamp(run.from, run.to)),
        };
        self.replica(blocks, tier, CacheChange { to: known, ..run }, events);
        self.stored_whole(blocks, tier, CacheChange { from: known, ..run }, events);
    }

    /// Tells of blocks with their tokens.
    fn stored_whole(&mut self, blocks: Blocks<'_>, tier: Tier, run: CacheChange, events: &mut Vec<KvEvent>) {
        let Blocks { tree, tokens } = blocks;
        let numbers = self.names.blocks(tree, run);
        if numbers.is_empty() {
            return;
        }
        let parent = numbers.start.checked_sub(1).map(|before| self.names.name(tree, run.node, before));
        let hashes = numbers.clone().map(|number| self.names.name(tree, run.node, number)).collect();
        let tokens = self.names.tokens(tree, run.node, numbers, tokens);
        let block_size = self.names.block_size();
        events.push(KvEvent::Stored(BlockStored { hashes, parent, tokens, block_size, tier, bigram: false }));
    }

    /// Tells of copies of blocks that are known.
    fn replica(&mut self, blocks: Blocks<'_>, tier: Tier, run: CacheChange, events: &mut Vec<KvEvent>) {
        let numbers = self.names.blocks(blocks.tree, run);
        if numbers.is_empty() {
            return;
        }
        // vLLM's connectors say no size either.
        let block_size = if self.dialect == Dialect::Xllm { self.names.block_size() } else { 0 };
        let hashes = numbers.map(|number| self.names.name(blocks.tree, run.node, number)).collect();
        let replica = BlockStored { hashes, parent: None, tokens: Vec::new(), block_size, tier, bigram: false };
        events.push(KvEvent::Stored(replica));
    }

    fn removed(&mut self, blocks: Blocks<'_>, tier: Tier, run: CacheChange, events: &mut Vec<KvEvent>) {
        // Children first, as they are evicted.
        let numbers = self.names.blocks(blocks.tree, run).rev();
        let hashes: Vec<_> = numbers.map(|number| self.names.name(blocks.tree, run.node, number)).collect();
        match events.last_mut() {
            _ if hashes.is_empty() => {}
            Some(KvEvent::Removed(last)) if last.tier == tier => last.hashes.extend(hashes),
            _ => events.push(KvEvent::Removed(BlockRemoved { hashes, tier })),
        }
    }
}
