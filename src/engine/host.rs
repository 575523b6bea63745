//! [`HostTier`]: copies of cached blocks in host memory, as an engine with KV offload keeps them.
//!
//! Every block that enters the device cache is copied (write-through); the copy counts from its confirmation, `delay` later.
//! Least recently used copies make room for new ones. A copy outlives its block on the device; a prompt that
//! finds copies behind its cached prefix loads them back instead of computing them (`schedule.rs`).
//! Invariant: never more than `capacity` blocks are held once a step is over.

use std::collections::VecDeque;

use crate::base::{Dur, Time};
use crate::engine::prefix::PrefixCache;
use crate::kv::{BlockPath, BlockTree, CacheChange, Moved, NodeId};

/// See the module. Counts are blocks.
#[derive(Debug)]
pub(super) struct HostTier {
    capacity: u64,
    delay: Dur,
    cache: PrefixCache,
    copying: VecDeque<(Time, BlockPath)>,
}

impl HostTier {
    /// Room for `capacity` blocks; a copy takes `delay`.
    pub fn new(capacity: u64, delay: Dur) -> HostTier {
        HostTier { capacity, delay, cache: PrefixCache::default(), copying: VecDeque::new() }
    }

    /// `path` is in the device cache.
    pub fn store(&mut self, now: Time, path: BlockPath) {
        if path.depth > 0 {
            self.copying.push_back((now + self.delay, path));
        }
    }

    /// Copies that are done by `now` count.
    pub fn confirm(&mut self, tree: &BlockTree, now: Time) {
        while let Some((_, path)) = self.copying.pop_front_if(|(done, _)| *done <= now) {
            self.cache.insert(tree, path);
            let over = self.cache.held().saturating_sub(self.capacity);
            self.cache.evict(tree, over);
        }
    }

    /// When [`HostTier::confirm`] has something to do.
    pub fn next(&self) -> Option<Time> {
        self.copying.front().map(|(done, _)| *done)
    }

    /// How much of `path` is held; marks it as used.
    pub fn lookup(&mut self, tree: &BlockTree, path: BlockPath) -> BlockPath {
        self.cache.lookup(tree, path)
    }

    /// Forgets everything, copies under way too.
    pub fn clear(&mut self, tree: &BlockTree) {
        self.copying.clear();
        self.cache.evict(tree, u64::MAX);
    }

    pub fn cache(&self) -> &PrefixCache {
        &self.cache
    }

    /// Keeps a list of what enters and leaves.
    pub fn record_changes(&mut self) {
        self.cache.record_changes();
    }

    pub fn take_changes(&mut self) -> Vec<CacheChange> {
        self.cache.take_changes()
    }

    /// Nodes that it refers to.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.cache.nodes().into_iter().chain(self.copying.iter().map(|(_, path)| path.node))
    }

    /// The tree was compacted: the nodes it kept have moved.
    pub fn follow(&mut self, moved: &Moved) {
        self.cache.follow(moved);
        for (_, path) in &mut self.copying {
            *path = moved.path(*path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_counts_once_it_is_confirmed_and_the_oldest_make_room() {
        let mut tree = BlockTree::new(64);
        let (a, b) = (tree.insert(&[1, 2, 3], BlockPath::EMPTY), tree.insert(&[4, 5], BlockPath::EMPTY));
        let mut host = HostTier::new(4, Dur::from_micros(10));
        host.record_changes();
        host.store(Time(0), a);
        host.store(Time(5_000), b);
        host.confirm(&tree, Time(9_999));
        assert_eq!((host.lookup(&tree, a).depth, host.next()), (0, Some(Time(10_000))));
        host.confirm(&tree, Time(10_000));
        assert_eq!((host.lookup(&tree, a).depth, host.next()), (3, Some(Time(15_000))));
        host.confirm(&tree, Time(20_000));
        assert_eq!((host.lookup(&tree, a).depth, host.lookup(&tree, b).depth), (2, 2));
        let stored: Vec<bool> = host.take_changes().iter().map(|change| change.stored).collect();
        assert_eq!(stored, [true, true, false]);
        host.clear(&tree);
        assert_eq!((host.cache().held(), host.next()), (0, None));
    }
}
