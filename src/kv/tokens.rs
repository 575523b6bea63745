//! [`BlockTokens`]: the token ids that stand for a block of a trace.
//!
//! A trace names blocks by ids; whoever needs tokens (a request body, a KV event, a query of the index) makes them here,
//! so that all of them mean the same prompt.

use crate::base::Rng;

/// Stream of the generator of blocks.
const BLOCKS: u64 = 1;

/// Token ids `first .. first + count`, from which blocks are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockTokens {
    first: u32,
    count: u32,
}

impl BlockTokens {
    /// Ids are `first` and the `count - 1` after it.
    pub fn new(first: u32, count: u32) -> BlockTokens {
        BlockTokens { first, count: count.max(1) }
    }

    /// The first `len` tokens of block `id`: a function of the id alone.
    pub fn of_block(self, id: u64, len: u32) -> impl Iterator<Item = u32> {
        self.drawn(Rng::new(id, BLOCKS), len)
    }

    /// `len` ids drawn from `rng`.
    pub fn drawn(self, mut rng: Rng, len: u32) -> impl Iterator<Item = u32> {
        (0..len).map(move |_| self.first + rng.below(u64::from(self.count)) as u32)
    }

    /// The largest id.
    pub fn last(self) -> u32 {
        self.first.saturating_add(self.count - 1)
    }
}
