//! [`Spare`]: memory of batches that are done with, for those to come.
//!
//! Batches of a stream are much alike, so most find room of just their size. Invariant: a vector handed out has room for at
//! most twice what was asked for, so that a batch that is kept weighs what it seems to; and little is kept here.

use crate::kv::{BlockRemoved, BlockStored, EngineHash, EventBatch, KvEvent};

/// Most vectors kept of a kind.
const MOST_VECTORS: usize = 256;
/// Largest vector kept, elements: 256 of tokens of that size are 4 MiB.
const MOST_ELEMENTS: usize = 4096;

/// See the module.
#[derive(Debug, Clone, Default)]
pub(super) struct Spare {
    events: Vec<Vec<KvEvent>>,
    hashes: Vec<Vec<EngineHash>>,
    tokens: Vec<Vec<u32>>,
}

impl Spare {
    /// Empty, with room for `count`.
    pub fn events(&mut self, count: usize) -> Vec<KvEvent> {
        hand_out(&mut self.events, count)
    }

    /// Empty, with room for `count`.
    pub fn hashes(&mut self, count: usize) -> Vec<EngineHash> {
        hand_out(&mut self.hashes, count)
    }

    /// Empty, with room for `count`.
    pub fn tokens(&mut self, count: usize) -> Vec<u32> {
        hand_out(&mut self.tokens, count)
    }

    /// Keeps the memory of a batch.
    pub fn take_back(&mut self, batch: EventBatch) {
        let mut events = batch.events;
        for event in events.drain(..) {
            match event {
                KvEvent::Stored(BlockStored { hashes, tokens, .. }) => {
                    keep(&mut self.hashes, hashes);
                    keep(&mut self.tokens, tokens);
                }
                KvEvent::Removed(BlockRemoved { hashes, .. }) | KvEvent::Foreign { hashes } => {
                    keep(&mut self.hashes, hashes);
                }
                KvEvent::Cleared => {}
            }
        }
        keep(&mut self.events, events);
    }
}

fn hand_out<T>(kept: &mut Vec<Vec<T>>, count: usize) -> Vec<T> {
    // One of another size goes: the stream has changed, and the next ones are of the new size.
    let fits = |spare: &Vec<T>| (count..=2 * count).contains(&spare.capacity());
    kept.pop().filter(fits).unwrap_or_else(|| Vec::with_capacity(count))
}

fn keep<T>(kept: &mut Vec<Vec<T>>, mut spare: Vec<T>) {
    if (1..=MOST_ELEMENTS).contains(&spare.capacity()) && kept.len() < MOST_VECTORS {
        spare.clear();
        kept.push(spare);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::Tier;

    fn batch(tokens: usize) -> EventBatch {
        let hashes = vec![EngineHash(1)];
        let stored = BlockStored {
            hashes,
            parent: None,
            tokens: vec![7; tokens],
            block_size: 4,
            tier: Tier::Device,
            bigram: false,
        };
        EventBatch { timestamp: 0.0, events: vec![KvEvent::Stored(stored)], dp_rank: None, ignored: 0 }
    }

    #[test]
    fn memory_comes_back_empty_and_of_about_the_size_asked_for() {
        let mut spare = Spare::default();
        let sent = batch(8);
        let KvEvent::Stored(BlockStored { tokens, .. }) = &sent.events[0] else { unreachable!() };
        let place = tokens.as_ptr();
        spare.take_back(sent);
        let again = spare.tokens(8);
        assert_eq!((again.as_ptr(), again.len(), again.capacity()), (place, 0, 8));
        spare.take_back(batch(8));
        assert!(spare.tokens(3).capacity() < 8, "more than twice what was asked for");
        spare.take_back(batch(MOST_ELEMENTS + 1));
        assert!(spare.tokens.is_empty(), "too large to keep");
        for _ in 0..2 * MOST_VECTORS {
            spare.take_back(batch(8));
        }
        assert_eq!(spare.tokens.len(), MOST_VECTORS);
    }
}
