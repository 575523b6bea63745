//! Token ids as block ids, and the ids of an answer nobody computed.

use crate::base::WorkerId;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Ids made up for answers are below this, so that they are ids of any tokenizer in use.
const MADE_UP_BELOW: u64 = 100_000;

/// Chained hashes of full blocks: two prompts share a block id only where they share everything before it.
#[derive(Debug)]
pub(super) struct BlockIds {
    block_bytes: usize,
    chain: u64,
    tail: Vec<u8>,
    /// Ids of the full blocks so far.
    pub ids: Vec<u64>,
    /// Their tokens, where they are wanted.
    pub tokens: Option<Vec<(u64, Box<[u32]>)>>,
}

impl BlockIds {
    /// `keeps`: their tokens are wanted.
    pub fn new(block_size: u32, keeps: bool) -> BlockIds {
        let block_bytes = block_size as usize * 4;
        let (tail, tokens) = (Vec::with_capacity(block_bytes), keeps.then(Vec::new));
        BlockIds { block_bytes, chain: 0, tail, ids: Vec::new(), tokens }
    }

    pub fn extend(&mut self, tokens: impl Iterator<Item = u32>) {
        for token in tokens {
            self.tail.extend_from_slice(&token.to_le_bytes());
            if self.tail.len() == self.block_bytes {
                self.chain = xxh3_64_with_seed(&self.tail, self.chain);
                self.ids.push(self.chain);
                if let Some(tokens) = &mut self.tokens {
                    let block = self.tail.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
                    tokens.push((self.chain, block));
                }
                self.tail.clear();
            }
        }
    }

    /// Hash of everything so far.
    pub fn hash(&self) -> u64 {
        xxh3_64_with_seed(&self.tail, self.chain)
    }
}

/// The ids of an answer: those asked for, then made-up ones that depend on the prompt alone.
#[derive(Debug, Default)]
pub(super) struct AnswerIds {
    given: Vec<u32>,
    seed: u64,
}

impl AnswerIds {
    pub fn new(given: Vec<u32>, seed: u64) -> AnswerIds {
        AnswerIds { given, seed }
    }

    /// Ids from answer token `from` up to, but without, `to`.
    pub fn range(&self, from: u32, to: u32) -> impl Iterator<Item = u32> {
        (from..to).map(|at| {
            let made_up = || (xxh3_64_with_seed(&at.to_le_bytes(), self.seed) % MADE_UP_BELOW) as u32;
            self.given.get(at as usize).copied().unwrap_or_else(made_up)
        })
    }
}

/// A session id for a client that gave none: 32 hex digits, as SGLang's.
pub(super) fn made_up_name(worker: WorkerId, incarnation: u32, nth: u64) -> String {
    let text = format!("{worker}/{incarnation}/{nth}");
    format!("{:016x}{:016x}", xxh3_64_with_seed(text.as_bytes(), 0), xxh3_64_with_seed(text.as_bytes(), 1))
}
