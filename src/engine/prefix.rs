//! Prefix cache of one worker: which blocks of the tree it holds, which of them are locked, what to evict next.
//!
//! Blocks are held per tree node as a depth (an extent), so a whole session is one entry and a match costs the branches
//! on the way, not the blocks. Eviction takes blocks from the end of the least recently used extent that has any to
//! give: recency is kept per extent, not per block.
//! Invariants: what is held is prefix-closed; a locked path is never evicted; `locked ≤ held`.

use std::collections::BTreeSet;

use crate::kv::{BlockPath, BlockTree, CacheChange, Moved, NodeId};

const ABSENT: u32 = u32::MAX;

/// See the module. Counts are blocks.
#[derive(Debug, Default)]
pub struct PrefixCache {
    slot_of: Vec<u32>,
    extents: Vec<Extent>,
    free_slots: Vec<u32>,
    // (last use, node) of every extent with evictable blocks.
    lru: BTreeSet<(u64, NodeId)>,
    held: u64,
    locked: u64,
    clock: u64,
    // What changed since it was last asked for, in order; absent when nobody asks.
    changes: Option<Vec<CacheChange>>,
}

#[derive(Debug)]
struct Extent {
    node: NodeId,
    start: u32,
    // Held up to this depth; above `start`.
    depth: u32,
    last_use: u64,
    locks: Pins,
    children: Pins,
    in_lru: bool,
}

/// A multiset of depths, few distinct.
#[derive(Debug, Default)]
struct Pins(Vec<(u32, u32)>);

impl Pins {
    fn add(&mut self, depth: u32) {
        match self.0.iter_mut().find(|(at, _)| *at == depth) {
            Some((_, count)) => *count += 1,
            None => self.0.push((depth, 1)),
        }
    }

    fn remove(&mut self, depth: u32) {
        let at = self.0.iter().position(|&(at, _)| at == depth).expect("a pin is removed once");
        self.0[at].1 -= 1;
        if self.0[at].1 == 0 {
            self.0.swap_remove(at);
        }
    }

    fn max(&self) -> Option<u32> {
        self.0.iter().map(|&(depth, _)| depth).max()
    }
}

impl Extent {
    fn locked_depth(&self) -> u32 {
        self.locks.max().unwrap_or(self.start)
    }

    fn evictable(&self) -> u32 {
        self.depth - self.locked_depth().max(self.children.max().unwrap_or(self.start))
    }
}

impl PrefixCache {
    /// Blocks held, locked ones included.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Blocks that a lock protects.
    pub fn locked(&self) -> u64 {
        self.locked
    }

    /// How many blocks from the root of `path` are held; marks them as used.
    pub fn lookup(&mut self, tree: &BlockTree, path: BlockPath) -> BlockPath {
        let mut at = path;
        while at.depth > 0 {
            if let Some(slot) = self.slot(at.node) {
                at.depth = at.depth.min(self.extents[slot].depth);
                self.touch(slot);
                return at;
            }
            at = BlockPath { node: tree.parent(at.node), depth: tree.start(at.node) };
        }
        BlockPath::EMPTY
    }

    /// Keeps a list of what changes, for [`PrefixCache::take_changes`].
    pub fn record_changes(&mut self) {
        self.changes.get_or_insert_default();
    }

    /// What changed since the last call, in order, parents stored before their children.
    pub fn take_changes(&mut self) -> Vec<CacheChange> {
        self.changes.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Runs of blocks that are held: node, depth before the first, depth of the last; parents before their children.
    pub fn extents(&self) -> Vec<CacheChange> {
        let extent = |slot: usize| {
            let Extent { node, start, depth, .. } = self.extents[slot];
            CacheChange { node, from: start, to: depth, stored: true }
        };
        // A node is younger than its parent, and its slot is found by its number.
        self.live_slots().map(extent).collect()
    }

    /// Holds all of `path`; returns how many blocks are new.
    pub fn insert(&mut self, tree: &BlockTree, path: BlockPath) -> u64 {
        let before = self.held;
        let news = self.changes.as_ref().map_or(0, Vec::len);
        let mut at = path;
        let mut below_is_new = false;
        while at.depth > 0 {
            let found = self.slot(at.node);
            let slot = found.unwrap_or_else(|| self.create(at, tree.start(at.node)));
            self.grow(slot, at.depth);
            if below_is_new {
                self.extents[slot].children.add(at.depth);
            } else {
                self.touch(slot);
            }
            self.relist(slot);
            if found.is_some() {
                break;
            }
            below_is_new = true;
            at = BlockPath { node: tree.parent(at.node), depth: tree.start(at.node) };
        }
        // The walk went from the end of the path to its root.
        if let Some(changes) = &mut self.changes {
            changes[news..].reverse();
        }
        self.held - before
    }

    /// Protects `path`, which must be held.
    pub fn lock(&mut self, tree: &BlockTree, path: BlockPath) {
        let mut at = path;
        while at.depth > 0 {
            let slot = self.slot(at.node).expect("only held blocks are locked");
            let extent = &mut self.extents[slot];
            assert!(at.depth <= extent.depth, "locks {} of {} held blocks", at.depth, extent.depth);
            let (was, first) = (extent.locked_depth(), extent.locks.0.is_empty());
            extent.locks.add(at.depth);
            self.locked += u64::from(extent.locked_depth() - was);
            self.relist(slot);
            if !first {
                return;
            }
            at = BlockPath { node: tree.parent(at.node), depth: tree.start(at.node) };
        }
    }

    /// Ends the protection that [`PrefixCache::lock`] gave to the same path.
    pub fn unlock(&mut self, tree: &BlockTree, path: BlockPath) {
        let mut at = path;
        while at.depth > 0 {
            let slot = self.slot(at.node).expect("a locked block is held");
            let extent = &mut self.extents[slot];
            let was = extent.locked_depth();
            extent.locks.remove(at.depth);
            self.locked -= u64::from(was - extent.locked_depth());
            let last = extent.locks.0.is_empty();
            self.relist(slot);
            if !last {
                return;
            }
            at = BlockPath { node: tree.parent(at.node), depth: tree.start(at.node) };
        }
    }

    /// Evicts up to `blocks` unlocked blocks, least recently used extents first; returns how many.
    pub fn evict(&mut self, tree: &BlockTree, blocks: u64) -> u64 {
        let mut evicted = 0;
        while evicted < blocks {
            let Some(&(_, node)) = self.lru.first() else { break };
            let slot = self.slot(node).expect("listed extents exist");
            let extent = &mut self.extents[slot];
            let taken = u64::from(extent.evictable()).min(blocks - evicted);
            let to = extent.depth;
            extent.depth -= taken as u32;
            if let Some(changes) = &mut self.changes {
                changes.push(CacheChange { node, from: extent.depth, to, stored: false });
            }
            evicted += taken;
            self.held -= taken;
            if extent.depth == extent.start {
                self.drop_extent(tree, slot);
            } else {
                self.relist(slot);
            }
        }
        evicted
    }

    /// Nodes that blocks are held of.
    pub fn nodes(&self) -> Vec<NodeId> {
        self.live_slots().map(|slot| self.extents[slot].node).collect()
    }

    /// The tree was compacted: the nodes it kept, all that are held among them, have moved.
    pub fn follow(&mut self, moved: &Moved) {
        let slots: Vec<usize> = self.live_slots().collect();
        self.slot_of.clear();
        for slot in slots {
            let node = moved.node(self.extents[slot].node);
            self.extents[slot].node = node;
            self.name_slot(node, slot as u32);
        }
        debug_assert!(self.changes.as_ref().is_none_or(Vec::is_empty), "changes are taken before the tree moves");
        self.lru = std::mem::take(&mut self.lru).into_iter().map(|(used, node)| (used, moved.node(node))).collect();
    }

    fn live_slots(&self) -> impl Iterator<Item = usize> {
        self.slot_of.iter().filter(|&&slot| slot != ABSENT).map(|&slot| slot as usize)
    }

    fn name_slot(&mut self, node: NodeId, slot: u32) {
        if self.slot_of.len() <= node.ix() {
            self.slot_of.resize(node.ix() + 1, ABSENT);
        }
        self.slot_of[node.ix()] = slot;
    }

    fn slot(&self, node: NodeId) -> Option<usize> {
        self.slot_of.get(node.ix()).filter(|&&slot| slot != ABSENT).map(|&slot| slot as usize)
    }

    fn touch(&mut self, slot: usize) {
        self.clock += 1;
        let now = self.clock;
        self.set_last_use(slot, now);
    }

    fn set_last_use(&mut self, slot: usize, last_use: u64) {
        let extent = &mut self.extents[slot];
        if extent.in_lru {
            self.lru.remove(&(extent.last_use, extent.node));
            self.lru.insert((last_use, extent.node));
        }
        extent.last_use = last_use;
    }

    /// Puts an extent on the eviction list or takes it off, as its evictable blocks say.
    fn relist(&mut self, slot: usize) {
        let extent = &mut self.extents[slot];
        let wanted = extent.evictable() > 0;
        if wanted != extent.in_lru {
            extent.in_lru = wanted;
            let key = (extent.last_use, extent.node);
            if wanted {
                self.lru.insert(key);
            } else {
                self.lru.remove(&key);
            }
        }
    }

    /// An empty extent for `path.node`; [`PrefixCache::grow`] fills it.
    fn create(&mut self, path: BlockPath, start: u32) -> usize {
        let extent = Extent {
            node: path.node,
            start,
            depth: start,
            last_use: self.clock,
            locks: Pins::default(),
            children: Pins::default(),
            in_lru: false,
        };
        let slot = self
            .free_slots
            .pop()
            .unwrap_or_else(|| u32::try_from(self.extents.len()).expect("fewer extents than tree nodes"));
        match self.extents.get_mut(slot as usize) {
            Some(free) => *free = extent,
            None => self.extents.push(extent),
        }
        self.name_slot(path.node, slot);
        slot as usize
    }

    fn grow(&mut self, slot: usize, depth: u32) {
        let extent = &mut self.extents[slot];
        if depth > extent.depth {
            self.held += u64::from(depth - extent.depth);
            if let Some(changes) = &mut self.changes {
                changes.push(CacheChange { node: extent.node, from: extent.depth, to: depth, stored: true });
            }
            extent.depth = depth;
        }
    }

    fn drop_extent(&mut self, tree: &BlockTree, slot: usize) {
        let extent = &mut self.extents[slot];
        debug_assert!(extent.locks.0.is_empty() && extent.children.0.is_empty());
        let (node, start, last_use) = (extent.node, extent.start, extent.last_use);
        if extent.in_lru {
            extent.in_lru = false;
            self.lru.remove(&(last_use, node));
        }
        self.slot_of[node.ix()] = ABSENT;
        self.free_slots.push(slot as u32);
        if start == 0 {
            return;
        }
        let parent = self.slot(tree.parent(node)).expect("a held extent's parent is held");
        self.extents[parent].children.remove(start);
        // Whoever used the child used the parent's blocks too.
        if last_use > self.extents[parent].last_use {
            self.set_last_use(parent, last_use);
        }
        self.relist(parent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn chain(tree: &mut BlockTree, ids: &[u64]) -> BlockPath {
        tree.insert(ids, BlockPath::EMPTY)
    }

    #[test]
    fn the_least_recently_used_session_loses_its_end_first() {
        let mut tree = BlockTree::new(64);
        let (a, b) = (chain(&mut tree, &[1, 2, 3, 4]), chain(&mut tree, &[1, 2, 8, 9]));
        let mut cache = PrefixCache::default();
        assert_eq!((cache.insert(&tree, a), cache.insert(&tree, b)), (4, 2));
        assert_eq!(cache.evict(&tree, 1), 1);
        assert_eq!(cache.lookup(&tree, a).depth, 3, "the older session lost its last block");
        cache.lock(&tree, b);
        assert_eq!(cache.evict(&tree, 100), 1, "what is locked, and the prefix under it, stays");
        assert_eq!(cache.lookup(&tree, b).depth, 4);
        cache.unlock(&tree, b);
        assert_eq!((cache.evict(&tree, 100), cache.held(), cache.locked()), (4, 0, 0));
    }

    /// The same cache as sets of block positions: position = the list of ids up to it.
    #[derive(Default)]
    struct Naive {
        held: BTreeMap<Vec<u64>, u32>,
    }

    impl Naive {
        fn insert(&mut self, ids: &[u64]) -> u64 {
            (1..=ids.len()).filter(|&n| self.held.insert(ids[..n].to_vec(), 0).is_none()).count() as u64
        }
        fn lookup(&self, ids: &[u64]) -> u32 {
            (1..=ids.len()).take_while(|&n| self.held.contains_key(&ids[..n])).count() as u32
        }
    }

    proptest! {
        #[test]
        fn holds_locks_and_evicts_like_a_set_of_prefixes(
            lists in prop::collection::vec(prop::collection::vec(0u64..3, 1..7), 1..12),
            steps in prop::collection::vec((0usize..12, 0u8..4, 1u64..6), 1..60),
        ) {
            let mut tree = BlockTree::new(64);
            let paths: Vec<_> = lists.iter().map(|list| chain(&mut tree, list)).collect();
            let (mut cache, mut naive) = (PrefixCache::default(), Naive::default());
            let mut told = std::collections::BTreeSet::new();
            cache.record_changes();
            let mut locks: Vec<usize> = Vec::new();
            for (pick, action, blocks) in steps {
                let pick = pick % lists.len();
                match action {
                    0 => prop_assert_eq!(cache.insert(&tree, paths[pick]), naive.insert(&lists[pick])),
                    1 if cache.lookup(&tree, paths[pick]).depth as usize == lists[pick].len() => {
                        cache.lock(&tree, paths[pick]);
                        locks.push(pick);
                    }
                    2 if !locks.is_empty() => {
                        let unlocked = locks.swap_remove(pick % locks.len());
                        cache.unlock(&tree, paths[unlocked]);
                    }
                    _ => {
                        let evictable = cache.held() - cache.locked();
                        prop_assert_eq!(cache.evict(&tree, blocks), blocks.min(evictable));
                        naive.held.retain(|prefix, _| {
                            let path = chain(&mut tree, prefix);
                            cache.lookup(&tree, path).depth as usize == prefix.len()
                        });
                    }
                }
                let prefixes = |list: &Vec<u64>| (1..=list.len()).map(|n| list[..n].to_vec()).collect::<Vec<_>>();
                let protected: std::collections::BTreeSet<_> =
                    locks.iter().flat_map(|&at| prefixes(&lists[at])).collect();
                prop_assert_eq!(cache.locked(), protected.len() as u64);
                prop_assert_eq!(cache.held(), naive.held.len() as u64);
                for change in cache.take_changes() {
                    for depth in change.from + 1..=change.to {
                        let at = BlockPath { node: change.node, depth };
                        let prefix: Vec<u64> = tree.ids(at);
                        let fresh = if change.stored {
                            let parent = prefix[..prefix.len() - 1].to_vec();
                            prop_assert!(parent.is_empty() || told.contains(&parent), "parents come first");
                            told.insert(prefix)
                        } else {
                            told.remove(&prefix)
                        };
                        prop_assert!(fresh, "a block enters and leaves in turn");
                    }
                }
                prop_assert!(told.iter().eq(naive.held.keys()), "the changes add up to what is held");
                let held = |extent: &CacheChange| u64::from(extent.to - extent.from);
                prop_assert_eq!(cache.extents().iter().map(held).sum::<u64>(), cache.held());
                for prefix in &protected {
                    prop_assert!(naive.held.contains_key(prefix));
                }
                for (list, path) in lists.iter().zip(&paths) {
                    prop_assert_eq!(cache.lookup(&tree, *path).depth, naive.lookup(list));
                }
            }
        }
    }
}
