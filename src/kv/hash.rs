//! [`SequenceHash`]: what a block is, by its tokens and everything before them.
//!
//! Formula of the public xLLM service: the first block is XXH3-128 of its tokens (i32, little-endian) with a seed, each
//! later one XXH3-128 of the 16 bytes before it and its tokens, with the same seed. The 16 bytes are the hash as it lies in
//! memory on a little-endian machine: low word, then high word.

use std::fmt;

use xxhash_rust::xxh3::xxh3_128_with_seed;

/// Seed of a stream that names none.
pub const DEFAULT_HASH_SEED: u64 = 1024;

/// Bytes of the hash before, at the head of what is hashed.
const HEAD: usize = 16;

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
        let hash = match (self.last, tokens.try_into()) {
            (Some(last), Ok(tokens)) => usual(last, tokens, self.seed),
            (last, _) => self.any(last, tokens),
        };
        self.last = Some(SequenceHash(hash));
        SequenceHash(hash)
    }

    fn any(&mut self, last: Option<SequenceHash>, tokens: &[u32]) -> u128 {
        let head = if last.is_some() { HEAD } else { 0 };
        self.buffer.resize(head + tokens.len() * 4, 0);
        if let Some(last) = last {
            self.buffer[..head].copy_from_slice(&last.bytes());
        }
        fill(&mut self.buffer[head..], tokens);
        xxh3_128_with_seed(&self.buffer, self.seed)
    }
}

/// A block of the size that most engines use. Its length being known, all stays in registers: half the time of [`HashChain::any`].
fn usual(last: SequenceHash, tokens: &[u32; 16], seed: u64) -> u128 {
    let mut bytes = [0; HEAD + 16 * 4];
    bytes[..HEAD].copy_from_slice(&last.bytes());
    fill(&mut bytes[HEAD..], tokens);
    xxh3_128_with_seed(&bytes, seed)
}

#[inline]
fn fill(bytes: &mut [u8], tokens: &[u32]) {
    for (bytes, token) in bytes.as_chunks_mut().0.iter_mut().zip(tokens) {
        *bytes = token.to_le_bytes();
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
    fn blocks_of_the_usual_size_are_hashed_like_all_others() {
        let tokens: Vec<u32> = (0..48).map(|token| token * 77_777).collect();
        let (mut usual, mut any) = (HashChain::new(5), HashChain::new(5));
        for block in tokens.chunks(16) {
            let expected = any.any(any.last, block);
            any.last = Some(SequenceHash(expected));
            assert_eq!(usual.push(block).0, expected);
        }
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
