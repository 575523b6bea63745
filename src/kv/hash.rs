//! [`SequenceHash`]: what a block is, by its tokens and everything before them.
//!
//! Formula of the public xLLM service: the first block is XXH3-128 of its tokens (i32, little-endian) with a seed, each
//! later one XXH3-128 of the 16 bytes before it and its tokens, with the same seed. The 16 bytes are the hash as it lies in
//! memory on a little-endian machine: low word, then high word.

use std::fmt;

use xxhash_rust::xxh3::xxh3_128_with_seed;

/// Seed of a stream that names none.
pub const DEFAULT_HASH_SEED: u64 = 1024;

/// Identity of a block by its whole prefix. Equal hashes: equal tokens from the start of the prompt.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SequenceHash(pub u128);

/// Walks along a prompt, block by block.
#[derive(Debug, Clone)]
pub struct HashChain {
    seed: u64,
    last: Option<SequenceHash>,
    buffer: Vec<u8>,
}

impl SequenceHash {
    /// The 16 bytes as they lie in memory.
    pub fn bytes(self) -> [u8; 16] {
        self.0.to_le_bytes()
    }
}

impl HashChain {
    /// At the start of a prompt.
    pub fn new(seed: u64) -> HashChain {
        HashChain { seed, last: None, buffer: Vec::new() }
    }

    /// Behind the block `last`; at the start of a prompt without one.
    pub fn resume(&mut self, last: Option<SequenceHash>) {
        self.last = last;
    }

    /// The next block.
    pub fn push(&mut self, tokens: &[u32]) -> SequenceHash {
        let before = if self.last.is_some() { 16 } else { 0 };
        // Filled in place: one copy, where pushing token by token would cost more than the hash.
        self.buffer.resize(before + tokens.len() * 4, 0);
        if let Some(last) = self.last {
            self.buffer[..before].copy_from_slice(&last.bytes());
        }
        for (bytes, token) in self.buffer[before..].chunks_exact_mut(4).zip(tokens) {
            bytes.copy_from_slice(&token.to_le_bytes());
        }
        let hash = SequenceHash(xxh3_128_with_seed(&self.buffer, self.seed));
        self.last = Some(hash);
        hash
    }
}

impl fmt::Debug for SequenceHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(hash: SequenceHash) -> String {
        hash.bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn chains_like_the_public_service() {
        let mut chain = HashChain::new(DEFAULT_HASH_SEED);
        let tokens: Vec<u32> = (1..=12).collect();
        let hashes: Vec<_> = tokens.chunks(4).map(|block| memory(chain.push(block))).collect();
        assert_eq!(
            hashes,
            [
                "b0c6037e37a15e2de8d8689c759e965f",
                "94600a4a64fa896e3c6f4572bb0437f0",
                "239ebea0ffba406bf9dbf7f692e8d2b9"
            ]
        );
        assert_eq!(memory(HashChain::new(0).push(&[1, 2, 3, 4])), "f019dd941742e52debc359c39ae73c90");
        let long: Vec<u32> = (0..128).collect();
        assert_eq!(memory(HashChain::new(DEFAULT_HASH_SEED).push(&long)), "a6c0e2fc92c32b1c1ccff29b710ca0d2");
    }

    #[test]
    fn resumes_where_another_chain_stood() {
        let mut whole = HashChain::new(7);
        let first = whole.push(&[1, 2]);
        let second = whole.push(&[3, 4]);
        let mut rest = HashChain::new(7);
        rest.resume(Some(first));
        assert_eq!(rest.push(&[3, 4]), second);
        rest.resume(None);
        assert_eq!(rest.push(&[1, 2]), first);
    }
}
