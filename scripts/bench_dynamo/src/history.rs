//! What both indexes are told: 64 workers, each with a part of one prompt of 100,000 tokens and sessions of its own.

use pdreplay::kv::{BlockRemoved, BlockStored, EngineHash, Tier};

pub const WORKERS: u32 = 64;
pub const PROMPT_TOKENS: usize = 100_000;
/// Blocks in an event.
const RUN: usize = 16;
/// Blocks in a session before a new one begins.
const CHAIN: usize = 512;
/// In place of a worker: the content that all share.
const SHARED: u32 = 1000;

/// Events in the order of their coming, the workers in turn.
pub struct History {
    pub block_size: u32,
    pub stores: Vec<(u32, BlockStored)>,
    /// The same blocks, the last stored first, as engines evict a leaf before its parent.
    pub removals: Vec<(u32, BlockRemoved)>,
    pub prompt: Vec<u32>,
}

impl History {
    pub fn new(block_size: u32) -> History {
        let whole = PROMPT_TOKENS / block_size as usize;
        let of_worker = |worker: u32| {
            let held = whole * (worker as usize + 1) / WORKERS as usize;
            let shared = chain(SHARED, 0..held, usize::MAX, block_size);
            shared.chain(chain(worker, 0..2 * whole, CHAIN, block_size))
        };
        let mut workers: Vec<_> = (0..WORKERS).map(of_worker).collect();
        let mut stores = Vec::new();
        loop {
            let before = stores.len();
            for (worker, events) in (0..).zip(&mut workers) {
                stores.extend(events.next().map(|event| (worker, event)));
            }
            if stores.len() == before {
                break;
            }
        }
        let removed = |(worker, stored): &(u32, BlockStored)| {
            let hashes = stored.hashes.iter().rev().copied().collect();
            (*worker, BlockRemoved { hashes, tier: Tier::Device })
        };
        let removals = stores.iter().rev().map(removed).collect();
        let prompt = (0..whole).flat_map(|block| tokens(SHARED, block, block_size)).collect();
        History { block_size, stores, removals, prompt }
    }

    pub fn blocks(&self) -> usize {
        self.stores.iter().map(|(_, stored)| stored.hashes.len()).sum()
    }
}

fn chain(
    owner: u32,
    blocks: std::ops::Range<usize>,
    length: usize,
    block_size: u32,
) -> impl Iterator<Item = BlockStored> {
    blocks.clone().step_by(RUN).map(move |start| {
        let run = start..(start + RUN).min(blocks.end);
        BlockStored {
            hashes: run.clone().map(|block| engine_hash(owner, block)).collect(),
            parent: (start % length != 0).then(|| engine_hash(owner, start - 1)),
            tokens: run.flat_map(|block| tokens(owner, block, block_size)).collect(),
            block_size,
            tier: Tier::Device,
            bigram: false,
        }
    })
}

fn tokens(owner: u32, block: usize, block_size: u32) -> impl Iterator<Item = u32> {
    let first = (block as u32).wrapping_mul(977).wrapping_add(owner << 20);
    (0..block_size).map(move |at| first.wrapping_add(at))
}

/// Anywhere in 64 bits, as engines make them.
fn engine_hash(owner: u32, block: usize) -> EngineHash {
    let seed = (u64::from(owner) << 40 | block as u64).wrapping_add(1);
    let mixed = (seed ^ seed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(31);
    EngineHash(mixed.wrapping_mul(0x94d0_49bb_1331_11eb))
}
