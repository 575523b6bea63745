//! KV events of a node: its publisher, and the tokens of the blocks it tells of.
//!
//! A block here is named by a hash of its tokens; they are kept for as long as the block tree has the block.

use std::collections::{HashMap, HashSet};

use crate::base::Time;
use crate::cluster::{Outlet, Telling};
use crate::kv::publish::{Calendar, Message, PublisherOptions, TokenSource};
use crate::kv::{BlockTree, Moved, NodeId};
use crate::node::NodeOutput;
use crate::node::worker::WorkerNode;

/// A publisher and what it speaks of.
#[derive(Debug)]
pub(super) struct Published {
    outlet: Outlet,
    tokens: KeptTokens,
}

/// Tokens of blocks.
#[derive(Debug, Default)]
struct KeptTokens(HashMap<u64, Box<[u32]>>);

impl TokenSource for KeptTokens {
    fn tokens(&self, id: u64, _: u32, into: &mut Vec<u32>) {
        into.extend_from_slice(self.0.get(&id).expect("a block's tokens are kept before it is cached"));
    }
}

impl WorkerNode {
    /// Publishes what enters and leaves its cache, from now on, when the cache is still empty; time stamps are of
    /// `calendar`. A worker that keeps no cache has nothing to say.
    pub fn publish_events(&mut self, options: &PublisherOptions, calendar: Calendar) {
        let tokens = KeptTokens::default();
        let telling = Telling { now: self.now, tree: &self.tree, tokens: &tokens };
        let outlet = Outlet::new(options, calendar, &mut self.worker, telling);
        self.published = outlet.map(|outlet| Published { outlet, tokens });
        self.send_events();
    }

    /// Whether it publishes.
    pub fn publishes(&self) -> bool {
        self.published.is_some()
    }

    /// Replies to a request for what happened from sequence number `from` on, as a DEALER receives them.
    pub fn replay_events(&mut self, now: Time, from: u64) -> Vec<Message> {
        self.advance(now);
        let Some(Published { outlet, tokens }) = &mut self.published else { return Vec::new() };
        outlet.answer(from, Telling { now: self.now, tree: &self.tree, tokens })
    }

    /// Blocks whose tokens are kept.
    #[cfg(test)]
    pub(super) fn kept_tokens(&self) -> usize {
        self.published.as_ref().map_or(0, |published| published.tokens.0.len())
    }

    /// Tells of what the worker has just done.
    pub(super) fn publish(&mut self) {
        let Some(Published { outlet, tokens }) = &mut self.published else { return };
        let telling = Telling { now: self.now, tree: &self.tree, tokens };
        outlet.step(&mut self.worker, &mut self.faults.faults, telling);
        self.send_events();
    }

    /// The publisher begins anew.
    pub(super) fn restart_publisher(&mut self) {
        let Some(Published { outlet, tokens }) = &mut self.published else { return };
        outlet.begin(Telling { now: self.now, tree: &self.tree, tokens });
        self.send_events();
    }

    /// Keeps tokens of blocks that may be cached.
    pub(super) fn keep_tokens(&mut self, blocks: Vec<(u64, Box<[u32]>)>) {
        if let Some(Published { tokens, .. }) = &mut self.published {
            tokens.0.extend(blocks);
        }
    }

    /// The tree was compacted: what it has no block for is forgotten.
    pub(super) fn follow_events(&mut self, moved: &Moved) {
        let Some(Published { outlet, tokens }) = &mut self.published else { return };
        outlet.follow(moved);
        let blocks = all_blocks(&self.tree);
        tokens.0.retain(|id, _| blocks.contains(id));
    }

    fn send_events(&mut self) {
        let sent = self.published.as_mut().map(|published| published.outlet.take_sent()).unwrap_or_default();
        self.outputs.extend(sent.into_iter().map(NodeOutput::KvEvents));
    }
}

fn all_blocks(tree: &BlockTree) -> HashSet<u64> {
    (0..tree.node_count()).flat_map(|node| tree.node_ids(NodeId(node as u32))).copied().collect()
}
