//! KV pool of one worker: tokens that are free, cached, or reserved.
//!
//! Owns the accounting and the prefix cache in it. Reserved tokens belong to requests and open sessions and are whole
//! pages; cached ones are whole blocks.
//! Invariant (asserted): capacity = free + cached + reserved, locked ≤ cached, nothing negative.

use crate::engine::prefix::PrefixCache;
use crate::kv::{BlockPath, BlockTree, CacheChange, Moved, NodeId};

/// See the module. Counts are tokens.
#[derive(Debug)]
pub struct KvPool {
    capacity: u64,
    page: u64,
    block: u64,
    reserved: u64,
    evicted: u64,
    cache: PrefixCache,
}

impl KvPool {
    /// An empty pool of `capacity` tokens. Pages are cut to the largest size that also divides a block, so that
    /// moving blocks between a reservation and the cache never needs room.
    pub fn new(capacity: u64, page_size: u32, block_size: u32) -> KvPool {
        let page = u64::from(gcd(page_size, block_size));
        KvPool { capacity, page, block: u64::from(block_size), reserved: 0, evicted: 0, cache: PrefixCache::default() }
    }

    /// Tokens of the pool.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Most tokens one request can hold: whole pages.
    pub fn largest(&self) -> u64 {
        self.capacity / self.page * self.page
    }

    /// Tokens a new reservation could get, evictable ones included.
    pub fn available(&self) -> u64 {
        self.capacity - self.used()
    }

    /// Tokens that eviction cannot give: reserved and locked.
    pub fn used(&self) -> u64 {
        self.reserved + self.cache.locked() * self.block
    }

    /// Tokens evicted so far.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// `tokens` in whole pages.
    pub fn paged(&self, tokens: u64) -> u64 {
        tokens.div_ceil(self.page) * self.page
    }

    /// Takes `tokens` (whole pages), evicting as needed. False, and nothing changes, when there is not enough.
    #[must_use]
    pub fn reserve(&mut self, tree: &BlockTree, tokens: u64) -> bool {
        if tokens > self.available() {
            return false;
        }
        self.make_room(tree, tokens);
        self.reserved += tokens;
        self.check();
        true
    }

    /// Gives `tokens` back.
    pub fn release(&mut self, tokens: u64) {
        self.reserved = self.reserved.checked_sub(tokens).expect("released tokens were reserved");
        self.check();
    }

    /// Prefix of `path` that is cached, in tokens, locked for the caller; end it with [`KvPool::unlock`].
    pub fn lock_prefix(&mut self, tree: &BlockTree, path: BlockPath) -> BlockPath {
        let held = self.cache.lookup(tree, path);
        self.cache.lock(tree, held);
        held
    }

    /// Ends a lock.
    pub fn unlock(&mut self, tree: &BlockTree, path: BlockPath) {
        self.cache.unlock(tree, path);
    }

    /// Turns a reservation of `reserved` tokens, whose first tokens lie behind the locked path `from`, into cached blocks
    /// up to `to` plus a reservation for the `rest` tokens behind them. `to` is locked instead of `from`. Returns the
    /// new reservation.
    pub fn cache_reserved(
        &mut self,
        tree: &BlockTree,
        (from, to): (BlockPath, BlockPath),
        reserved: u64,
        rest: u64,
    ) -> u64 {
        let kept = self.paged(rest);
        self.reserved = self.reserved.checked_sub(reserved).expect("a reservation is turned over once");
        // What is turned over makes its own room; eviction can only be needed if another request cached nothing of it.
        let grown = u64::from(to.depth.saturating_sub(from.depth)) * self.block;
        debug_assert!(grown + kept <= reserved, "{grown} + {kept} tokens from {reserved} reserved");
        self.cache.insert(tree, to);
        self.cache.lock(tree, to);
        self.cache.unlock(tree, from);
        self.reserved += kept;
        self.check();
        kept
    }

    /// Cached tokens that no lock protects.
    pub fn evictable(&self) -> u64 {
        (self.cache.held() - self.cache.locked()) * self.block
    }

    /// Forgets everything cached that no lock protects; this is no eviction.
    pub fn clear_cache(&mut self, tree: &BlockTree) {
        self.cache.evict(tree, u64::MAX);
    }

    /// Keeps a list of what enters and leaves the cache.
    pub fn record_changes(&mut self) {
        self.cache.record_changes();
    }

    /// See [`PrefixCache::take_changes`].
    pub fn take_changes(&mut self) -> Vec<CacheChange> {
        self.cache.take_changes()
    }

    /// See [`PrefixCache::extents`].
    pub fn extents(&self) -> Vec<CacheChange> {
        self.cache.extents()
    }

    /// Nodes of the tree that the cache holds blocks of.
    pub fn cached_nodes(&self) -> Vec<NodeId> {
        self.cache.nodes()
    }

    /// The tree was compacted: the nodes it kept have moved.
    pub fn follow(&mut self, moved: &Moved) {
        self.cache.follow(moved);
    }

    fn make_room(&mut self, tree: &BlockTree, tokens: u64) {
        let free = self.capacity - self.reserved - self.cache.held() * self.block;
        if tokens > free {
            self.evicted += self.cache.evict(tree, (tokens - free).div_ceil(self.block)) * self.block;
        }
    }

    /// The conservation law.
    fn check(&self) {
        debug_assert!(self.cache.locked() <= self.cache.held());
        debug_assert!(
            self.reserved + self.cache.held() * self.block <= self.capacity,
            "reserved {} and cached {} exceed {}",
            self.reserved,
            self.cache.held() * self.block,
            self.capacity
        );
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}
