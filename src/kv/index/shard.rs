//! [`Shard`]: a part of what all streams hold, behind one lock; what a query reads.
//!
//! A block is there once, however many streams hold it: its sequence hash, and a bit per stream for each [`Mark`].
//! Invariant: a block stays while any slot marks it as known; the other marks only stand beside that one.

use hashbrown::HashTable;

use crate::kv::SequenceHash;
use crate::kv::index::slab::Slab;

/// What a slot says of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mark {
    /// In memory of the accelerator.
    Device,
    /// In memory of the host.
    Host,
    /// Has a mapping, though it may be resident nowhere.
    Known,
}

/// A block and who holds it.
#[derive(Debug)]
pub(super) struct Block {
    // Two words, since a `u128` would be aligned to 16 bytes and cost 8 more.
    hash: [u64; 2],
    marks: [u64; 3],
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Shard {
    table: HashTable<u32>,
    blocks: Slab<Block>,
}

impl Block {
    /// Slots that say so, a bit each.
    pub fn slots(&self, mark: Mark) -> u64 {
        self.marks[mark as usize]
    }

    /// Its name.
    pub fn hash(&self) -> SequenceHash {
        SequenceHash(u128::from(self.hash[0]) | u128::from(self.hash[1]) << 64)
    }
}

impl Shard {
    /// The block of that name.
    pub fn find(&self, hash: SequenceHash) -> Option<&Block> {
        let words = words(hash);
        let id = self.table.find(words[0], |&id| self.blocks.at(id).hash == words)?;
        Some(self.blocks.at(*id))
    }

    /// Blocks in it.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether any block has a mark of the slots in `bit`.
    pub fn has_marks(&self, bit: u64) -> bool {
        self.blocks.ever_used().any(|block| block.marks.iter().any(|marks| marks & bit != 0))
    }

    /// A block by its number.
    pub fn block(&self, id: u32) -> &Block {
        self.blocks.at(id)
    }

    /// Marks a block as known to the slots in `bit`; says its number, and whether it was known to them before.
    pub fn intern(&mut self, hash: SequenceHash, bit: u64) -> (u32, bool) {
        let words = words(hash);
        let Shard { table, blocks } = self;
        let entry = table.entry(words[0], |&id| blocks.at(id).hash == words, |&id| blocks.at(id).hash[0]);
        let id = match entry {
            hashbrown::hash_table::Entry::Occupied(entry) => *entry.get(),
            hashbrown::hash_table::Entry::Vacant(entry) => {
                let id = blocks.insert(Block { hash: words, marks: [0; 3] });
                entry.insert(id);
                id
            }
        };
        (id, !self.raise(id, Mark::Known, bit))
    }

    /// Sets a mark; false when it was set.
    pub fn raise(&mut self, id: u32, mark: Mark, bit: u64) -> bool {
        let marks = &mut self.blocks.at_mut(id).marks[mark as usize];
        let new = *marks & bit == 0;
        *marks |= bit;
        new
    }

    /// Takes a mark away; the last one of [`Mark::Known`] takes the block with it.
    pub fn lower(&mut self, id: u32, mark: Mark, bit: u64) {
        self.blocks.at_mut(id).marks[mark as usize] &= !bit;
        if self.blocks.at(id).slots(Mark::Known) == 0 {
            self.remove(id);
        }
    }

    /// Takes all marks of `bit` away, from a block that may have been forgotten already.
    pub fn forget(&mut self, id: u32, bit: u64) {
        if self.blocks.get(id).is_some_and(|block| block.slots(Mark::Known) & bit != 0) {
            self.blocks.at_mut(id).marks.iter_mut().for_each(|marks| *marks &= !bit);
            self.lower(id, Mark::Known, bit);
        }
    }

    fn remove(&mut self, id: u32) {
        let first = self.blocks.at(id).hash[0];
        if let Ok(entry) = self.table.find_entry(first, |&other| other == id) {
            entry.remove();
        }
        self.blocks.remove(id);
        if self.table.is_empty() {
            self.table = HashTable::new();
        }
    }
}

/// The low word tells blocks of a shard apart; the high word chooses the shard.
fn words(hash: SequenceHash) -> [u64; 2] {
    [hash.0 as u64, (hash.0 >> 64) as u64]
}
