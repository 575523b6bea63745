//! [`Prompt`]: the sequence hashes of what is looked for, made once per [`Naming`] and only as far as needed.

use crate::kv::index::plane::GROUP;
use crate::kv::index::words::{HashSpace, Naming};
use crate::kv::{HashChain, SequenceHash};

/// Sequence hashes of a prompt's whole blocks in one space, for a caller that remembers them.
#[derive(Debug, Clone, Copy)]
pub struct PromptHashes<'a> {
    /// What they were made with.
    pub space: HashSpace,
    /// From the first block on.
    pub hashes: &'a [SequenceHash],
}

/// See the module.
#[derive(Debug)]
pub(super) enum Prompt<'a> {
    /// Tokens, and what has been hashed of them.
    Tokens(&'a [u32], Vec<Hashed>),
    /// All hashes at once.
    Hashes(&'a [PromptHashes<'a>]),
}

/// The beginning of a prompt, named in one way.
#[derive(Debug)]
pub(super) struct Hashed {
    naming: Naming,
    chain: HashChain,
    hashes: Vec<SequenceHash>,
}

impl Prompt<'_> {
    /// Hashes of the next blocks from block `start` on, [`GROUP`] of them or what is left. `start` is a multiple of it.
    pub fn group(&mut self, naming: Naming, start: usize) -> &[SequenceHash] {
        let hashes = match self {
            Prompt::Hashes(_) => self.known(naming),
            Prompt::Tokens(tokens, all) => {
                let at = all.iter().position(|hashed| hashed.naming == naming).unwrap_or_else(|| {
                    all.push(Hashed { naming, chain: HashChain::new(naming.space.hash_seed), hashes: Vec::new() });
                    all.len() - 1
                });
                all[at].extend(tokens, start + GROUP);
                &all[at].hashes
            }
        };
        let rest = hashes.get(start..).unwrap_or_default();
        &rest[..rest.len().min(GROUP)]
    }

    /// Hashes made so far. Those of a caller are of single tokens.
    pub fn known(&self, naming: Naming) -> &[SequenceHash] {
        match self {
            Prompt::Tokens(_, all) => {
                all.iter().find(|hashed| hashed.naming == naming).map_or(&[], |hashed| &hashed.hashes)
            }
            Prompt::Hashes(_) if naming.bigram => &[],
            Prompt::Hashes(all) => {
                all.iter().find(|known| known.space == naming.space).map_or(&[], |known| known.hashes)
            }
        }
    }
}

impl Hashed {
    fn extend(&mut self, tokens: &[u32], blocks: usize) {
        let size = self.naming.space.block_size as usize;
        let rest = tokens.get(self.hashes.len() * size..).unwrap_or_default();
        let missing = blocks.saturating_sub(self.hashes.len());
        for block in self.naming.blocks(rest).take(missing) {
            let hash = self.chain.push(block);
            self.hashes.push(hash);
        }
    }
}
