//! [`Mappings`]: the engine hashes of a stream, what each stands for, and which may be forgotten.
//!
//! A mapping outlives its block (retained): a later event may name it as a parent, or bring a replica back. When there is
//! no room, those that nothing depends on are forgotten, roughly the longest unused first: whoever was let go twice gets a
//! second chance. Invariant: a mapping that is resident somewhere, or has children, is never forgotten.

use std::collections::VecDeque;

use hashbrown::HashTable;

use crate::kv::index::slab::Slab;
use crate::kv::{EngineHash, Tier};

/// Where a block stands in the plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub shard: u16,
    pub block: u32,
}

/// What an engine hash stands for.
#[derive(Debug)]
pub(super) struct Mapping {
    engine: EngineHash,
    block: u32,
    parent: u32,
    children: u32,
    shard: u16,
    step: u8,
    flags: u8,
}

const HOST: u8 = 2;
const DEVICE: u8 = 1;
const RESIDENT: u8 = DEVICE | HOST;
/// Its content is not known: it has no place.
const OUTSIDE: u8 = 4;
/// Stands in `idle`.
const QUEUED: u8 = 8;
/// Was let go again while it stood in `idle`.
const RENEWED: u8 = 16;
const NO_PARENT: u32 = u32::MAX;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Mappings {
    table: HashTable<u32>,
    slab: Slab<Mapping>,
    idle: VecDeque<u32>,
}

impl Mapping {
    fn new(engine: EngineHash) -> Mapping {
        Mapping { engine, block: 0, parent: NO_PARENT, children: 0, shard: 0, step: 0, flags: OUTSIDE }
    }

    /// Where its block is, unless it is outside.
    pub fn place(&self) -> Option<Place> {
        (self.flags & OUTSIDE == 0).then_some(Place { shard: self.shard, block: self.block })
    }

    /// Position of its block in its group.
    pub fn step(&self) -> usize {
        usize::from(self.step)
    }

    /// Whether it is in any tier.
    pub fn is_resident(&self) -> bool {
        self.flags & RESIDENT != 0
    }

    fn is_idle(&self) -> bool {
        !self.is_resident() && self.children == 0
    }
}

impl Mappings {
    /// Number of mappings.
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// The number of an engine hash.
    pub fn find(&self, engine: EngineHash) -> Option<u32> {
        self.table.find(spread(engine), |&id| self.slab.at(id).engine == engine).copied()
    }

    /// A mapping by its number.
    pub fn at(&self, id: u32) -> &Mapping {
        self.slab.at(id)
    }

    /// Places of all mappings, some that are forgotten among them.
    pub fn places(&self) -> impl Iterator<Item = Place> {
        self.slab.ever_used().filter_map(Mapping::place)
    }

    /// Adds an engine hash, outside and in no tier yet.
    pub fn add(&mut self, engine: EngineHash, parent: Option<u32>) -> u32 {
        let id = self.slab.insert(Mapping::new(engine));
        let slab = &self.slab;
        self.table.insert_unique(spread(engine), id, |&other| spread(slab.at(other).engine));
        self.link(id, parent);
        id
    }

    /// Says what a mapping stands for now; the place it had before, if any.
    #[must_use = "its marks are to be taken from it"]
    pub fn settle(&mut self, id: u32, place: Place, step: usize) -> Option<Place> {
        let before = self.unsettle(id);
        let mapping = self.slab.at_mut(id);
        mapping.flags &= !OUTSIDE;
        (mapping.shard, mapping.block, mapping.step) = (place.shard, place.block, step as u8);
        before
    }

    /// Says that nobody knows what a mapping stands for now; the place it had before, if any.
    #[must_use = "its marks are to be taken from it"]
    pub fn unsettle(&mut self, id: u32) -> Option<Place> {
        let mapping = self.slab.at_mut(id);
        let before = mapping.place();
        mapping.flags |= OUTSIDE;
        before
    }

    /// Puts a mapping behind another.
    pub fn link(&mut self, id: u32, parent: Option<u32>) {
        if let Some(parent) = parent {
            self.slab.at_mut(parent).children += 1;
        }
        let before = std::mem::replace(&mut self.slab.at_mut(id).parent, parent.unwrap_or(NO_PARENT));
        self.leave(before);
    }

    /// Puts a mapping into a tier; false when it was there.
    pub fn hold(&mut self, id: u32, tier: Tier) -> bool {
        let flags = &mut self.slab.at_mut(id).flags;
        let new = *flags & flag(tier) == 0;
        *flags |= flag(tier);
        new
    }

    /// Takes a mapping out of a tier; false when it was not there. One outside is taken out of both, since nobody said
    /// which of them it came to.
    pub fn let_go(&mut self, id: u32, tier: Tier) -> bool {
        let mapping = self.slab.at_mut(id);
        let tiers = if mapping.flags & OUTSIDE == 0 { flag(tier) } else { RESIDENT };
        let held = mapping.flags & tiers != 0;
        mapping.flags &= !tiers;
        if held {
            self.queue_if_idle(id);
        }
        held
    }

    /// Forgets the idle mapping whose turn it is. `None` when none is idle, else its place, if it had one.
    #[must_use = "its marks are to be taken from it"]
    pub fn forget_one(&mut self) -> Option<Option<Place>> {
        while let Some(id) = self.idle.pop_front() {
            let mapping = self.slab.at_mut(id);
            if !mapping.is_idle() {
                mapping.flags &= !(QUEUED | RENEWED);
            } else if mapping.flags & RENEWED != 0 {
                mapping.flags &= !RENEWED;
                self.idle.push_back(id);
            } else {
                return Some(self.forget(id));
            }
        }
        None
    }

    fn forget(&mut self, id: u32) -> Option<Place> {
        let (engine, parent, place) = {
            let mapping = self.slab.at(id);
            (mapping.engine, mapping.parent, mapping.place())
        };
        if let Ok(entry) = self.table.find_entry(spread(engine), |&other| other == id) {
            entry.remove();
        }
        self.slab.remove(id);
        self.leave(parent);
        place
    }

    fn leave(&mut self, parent: u32) {
        if parent != NO_PARENT {
            self.slab.at_mut(parent).children -= 1;
            self.queue_if_idle(parent);
        }
    }

    fn queue_if_idle(&mut self, id: u32) {
        let mapping = self.slab.at_mut(id);
        if !mapping.is_idle() {
            return;
        }
        if mapping.flags & QUEUED != 0 {
            mapping.flags |= RENEWED;
        } else {
            mapping.flags |= QUEUED;
            self.idle.push_back(id);
        }
    }
}

fn flag(tier: Tier) -> u8 {
    match tier {
        Tier::Device => DEVICE,
        Tier::Host => HOST,
    }
}

/// Engine hashes may be small numbers in a row; the table wants its bits anywhere (folded multiplication).
fn spread(engine: EngineHash) -> u64 {
    let product = u128::from(engine.0 ^ 0x243f_6a88_85a3_08d3) * u128::from(0x9e37_79b9_7f4a_7c15_u64);
    product as u64 ^ (product >> 64) as u64
}
