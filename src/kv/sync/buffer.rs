//! [`Buffer`]: live batches that wait for the state they change, bounded in memory.
//!
//! Invariant: sequence numbers in it follow each other without a hole.

use std::collections::VecDeque;

use crate::kv::EventBatch;

/// A batch as it arrived.
#[derive(Debug, Clone)]
pub(super) struct Arrived {
    pub sequence: u64,
    pub batch: EventBatch,
    /// Bytes of its payload.
    pub wire_bytes: usize,
    /// Fingerprint of its payload; 0 where nobody asks for it.
    pub proof: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    batches: VecDeque<Arrived>,
    bytes: usize,
}

impl Arrived {
    /// What it costs to keep.
    pub fn cost(&self) -> usize {
        self.wire_bytes + size_of::<Arrived>() + self.batch.memory_bytes()
    }
}

impl Buffer {
    /// Keeps a batch. One that does not follow those before it begins anew: no state reaches it through them.
    pub fn push(&mut self, arrived: Arrived) {
        if self.batches.back().is_some_and(|last| last.sequence + 1 != arrived.sequence) {
            self.clear();
        }
        self.bytes += arrived.cost();
        self.batches.push_back(arrived);
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        *self = Buffer::default();
    }

    /// What is kept costs so much.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes out all, without those up to `sequence`.
    pub fn take_after(&mut self, sequence: u64) -> impl Iterator<Item = Arrived> {
        let all = std::mem::take(self);
        all.batches.into_iter().skip_while(move |arrived| arrived.sequence <= sequence)
    }

    /// The lowest sequence number kept above `sequence`.
    pub fn first_after(&self, sequence: u64) -> Option<u64> {
        self.batches.iter().map(|arrived| arrived.sequence).find(|kept| *kept > sequence)
    }
}
