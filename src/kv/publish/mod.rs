//! [`Publisher`]: what an emulated worker says of its cache to whoever subscribes.
//!
//! Told what enters and leaves the cache; gives the frames of batches and of replies to replay requests. Owns sequence
//! numbers, names of blocks, and what is said in which form; knows no socket, clock or engine. Rules: docs/kv-events.md.

mod events;
mod names;
mod publisher;
#[cfg(test)]
mod tests;

pub use publisher::{BUFFER_STEPS, Message, Publisher, PublisherOptions};

use crate::kv::BlockTokens;

/// Where a publisher finds the tokens of the blocks it tells of.
pub trait TokenSource {
    /// Appends the `len` tokens of block `id`.
    fn tokens(&self, id: u64, len: u32, into: &mut Vec<u32>);
}

impl TokenSource for BlockTokens {
    fn tokens(&self, id: u64, len: u32, into: &mut Vec<u32>) {
        into.extend(self.of_block(id, len));
    }
}
