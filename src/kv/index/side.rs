//! [`Side`]: the writer's own half of a stream's state, and its slot in the plane.
//!
//! Reads events, keeps the mappings, hashes tokens. What readers see changes in [`Side::commit`] alone; until then blocks
//! are only marked as known, which no query looks at. Dropping a side takes everything of it out of the plane.

use std::sync::Arc;

use crate::kv::index::journal::Journal;
use crate::kv::index::mappings::{Mappings, Place};
use crate::kv::index::plane::{GROUP, Planes, Slot};
use crate::kv::index::shard::Mark;
use crate::kv::index::words::{Applied, ApplyError, Mode, Naming, StreamSpec};
use crate::kv::{BlockRemoved, BlockStored, EngineHash, HashChain, SequenceHash, Tier};

/// See the module.
#[derive(Debug)]
pub(super) struct Side {
    slot: Arc<Slot>,
    block_size: u32,
    max_blocks: usize,
    mappings: Mappings,
    journal: Journal,
    chain: HashChain,
    hashes: Vec<SequenceHash>,
    // Blocks marked as known for which no mapping stands yet, the next one last: a group at most.
    interned: Vec<Interned>,
    // Whether a block was ever placed: from then on the slot stays.
    is_placed: bool,
}

#[derive(Debug, Clone, Copy)]
struct Interned {
    place: Place,
    step: usize,
    known: bool,
}

/// What a run of blocks stands behind.
#[derive(Debug, Clone, Copy)]
enum Behind {
    Nothing,
    Mapping(u32),
    /// A mapping outside, or one that is gone.
    Outside(Option<u32>),
}

/// Of a batch: which event, how to read it, what came of it.
#[derive(Debug)]
pub(super) struct Reading<'a> {
    pub planes: &'a Planes,
    pub event: usize,
    pub mode: Mode,
    pub applied: Applied,
}

impl Side {
    /// Empty, in a slot of its own.
    pub fn new(planes: &Planes, spec: &StreamSpec) -> Side {
        Side {
            slot: planes.take_slot(Naming { space: spec.space, bigram: false }),
            block_size: spec.space.block_size,
            max_blocks: spec.max_blocks,
            mappings: Mappings::default(),
            journal: Journal::default(),
            chain: HashChain::new(spec.space.hash_seed),
            hashes: Vec::new(),
            interned: Vec::new(),
            is_placed: false,
        }
    }

    /// What readers look at.
    pub fn slot(&self) -> &Arc<Slot> {
        &self.slot
    }

    /// Number of mappings.
    pub fn mappings(&self) -> usize {
        self.mappings.len()
    }

    /// Distinct blocks in a tier, as of the last commit.
    pub fn resident(&self, tier: Tier) -> u64 {
        self.journal.resident(mark(tier))
    }

    /// Shows readers what the events since the last commit did.
    pub fn commit(&mut self) {
        self.journal.commit(&self.slot);
    }

    /// Blocks are resident now.
    pub fn store(&mut self, stored: &BlockStored, reading: &mut Reading<'_>) -> Result<(), ApplyError> {
        reading.applied.blocks += stored.hashes.len() as u64;
        if stored.is_tokenless() {
            return self.replicate(stored, reading);
        }
        self.check_shape(stored, reading.event)?;
        match self.behind(stored, reading)? {
            Behind::Nothing => self.place(stored, None, reading),
            Behind::Mapping(parent) => self.place(stored, Some(parent), reading),
            Behind::Outside(parent) => self.put_outside(&stored.hashes, parent, stored.tier, reading),
        }
    }

    /// Blocks left a tier.
    pub fn remove(&mut self, removed: &BlockRemoved, reading: &mut Reading<'_>) {
        reading.applied.blocks += removed.hashes.len() as u64;
        for &engine in &removed.hashes {
            let found = self.mappings.find(engine);
            match found.filter(|&id| self.mappings.let_go(id, removed.tier)) {
                None => reading.applied.unknown_removals += 1,
                Some(id) => {
                    if let Some(place) = self.mappings.at(id).place() {
                        self.journal.lower(place, mark(removed.tier));
                    }
                }
            }
        }
    }

    /// Keeps blocks whose content is not known, so that later words about them are no error. In a run each is behind the
    /// one before it.
    pub fn put_outside(
        &mut self,
        hashes: &[EngineHash],
        parent: Option<u32>,
        tier: Tier,
        reading: &mut Reading<'_>,
    ) -> Result<(), ApplyError> {
        reading.applied.outside += hashes.len() as u64;
        let mut parent = parent;
        for &engine in hashes {
            let id = match self.mappings.find(engine) {
                Some(id) => id,
                None => self.add(engine, parent, reading.event)?,
            };
            let mapping = self.mappings.at(id);
            if mapping.place().is_some() && mapping.is_resident() {
                return Err(ApplyError::Conflict { event: reading.event, block: engine });
            }
            self.journal.vacate(self.mappings.unsettle(id));
            self.mappings.hold(id, tier);
            parent = Some(id);
        }
        Ok(())
    }

    fn check_shape(&self, stored: &BlockStored, event: usize) -> Result<(), ApplyError> {
        let BlockStored { hashes, tokens, block_size, bigram, .. } = stored;
        if *block_size != self.block_size {
            return Err(ApplyError::BlockSize { event, found: *block_size, expected: self.block_size });
        }
        if tokens.len() as u64 != hashes.len() as u64 * u64::from(*block_size) + u64::from(*bigram) {
            let (tokens, blocks) = (tokens.len(), hashes.len());
            return Err(ApplyError::TokenCount { event, tokens, blocks, block_size: *block_size });
        }
        Ok(())
    }

    fn behind(&self, stored: &BlockStored, reading: &Reading<'_>) -> Result<Behind, ApplyError> {
        let Some(parent) = stored.parent else { return Ok(Behind::Nothing) };
        match (self.mappings.find(parent), reading.mode) {
            (Some(id), _) if self.mappings.at(id).place().is_none() => Ok(Behind::Outside(Some(id))),
            (Some(id), _) => Ok(Behind::Mapping(id)),
            (None, Mode::Snapshot) => Ok(Behind::Outside(None)),
            (None, Mode::Delta) => {
                Err(ApplyError::UnknownParent { event: reading.event, block: stored.hashes[0], parent })
            }
        }
    }

    /// A replica without tokens of blocks that are known.
    fn replicate(&mut self, stored: &BlockStored, reading: &mut Reading<'_>) -> Result<(), ApplyError> {
        if stored.block_size != 0 && stored.block_size != self.block_size {
            let (found, expected) = (stored.block_size, self.block_size);
            return Err(ApplyError::BlockSize { event: reading.event, found, expected });
        }
        for &engine in &stored.hashes {
            match (self.mappings.find(engine), reading.mode) {
                (Some(id), _) => self.hold(id, stored.tier),
                (None, Mode::Snapshot) => self.put_outside(&[engine], None, stored.tier, reading)?,
                (None, Mode::Delta) => {
                    return Err(ApplyError::UnknownReplica { event: reading.event, block: engine });
                }
            }
        }
        Ok(())
    }

    /// A group at a time, so that a run far over the limit costs nothing beyond it.
    fn place(&mut self, stored: &BlockStored, parent: Option<u32>, reading: &Reading<'_>) -> Result<(), ApplyError> {
        self.name_by(stored.bigram, reading)?;
        let start = parent.and_then(|parent| self.mappings.at(parent).place());
        let plane = self.slot.plane();
        self.chain.resume(start.map(|place| plane.read(place.shard).block(place.block).hash()));
        let (mut parent, mut tokens) = (parent, stored.tokens.as_slice());
        let mut rest = stored.hashes.as_slice();
        while !rest.is_empty() {
            let count = self.intern(tokens, parent);
            let (group, later) = rest.split_at(count);
            for &engine in group {
                let known = self.mappings.find(engine);
                let id = match known {
                    Some(id) => id,
                    None => self.add(engine, parent, reading.event)?,
                };
                let conflict = ApplyError::Conflict { event: reading.event, block: engine };
                self.settle(id, known.is_some().then_some(parent), conflict)?;
                self.hold(id, stored.tier);
                parent = Some(id);
            }
            (rest, tokens) = (later, &tokens[count * self.block_size as usize..]);
        }
        Ok(())
    }

    /// The first blocks that are placed say whether they are named by pairs of tokens.
    fn name_by(&mut self, bigram: bool, reading: &Reading<'_>) -> Result<(), ApplyError> {
        let naming = self.slot.plane().naming();
        if naming.bigram != bigram {
            if self.is_placed {
                return Err(ApplyError::MixedTokens { event: reading.event });
            }
            self.slot = reading.planes.take_slot(Naming { bigram, ..naming });
        }
        self.is_placed = true;
        Ok(())
    }

    /// Hashes what fits into the group that follows `parent`, and marks it as known; says how many blocks. The chain
    /// stands behind `parent`.
    fn intern(&mut self, tokens: &[u32], parent: Option<u32>) -> usize {
        let mut hashes = std::mem::take(&mut self.hashes);
        let plane = self.slot.plane();
        let before = parent.map(|parent| self.mappings.at(parent));
        let first = before.map_or(0, |before| (before.step() + 1) % GROUP);
        let blocks = plane.naming().blocks(tokens).take(GROUP - first);
        hashes.extend(blocks.map(|block| self.chain.push(block)));
        let goes_on = before.filter(|_| first > 0).and_then(|before| before.place());
        let shard = goes_on.map_or_else(|| plane.shard_of(hashes[0]), |place| place.shard);
        let mut writing = plane.write(shard);
        for (step, &hash) in (first..).zip(&hashes) {
            let (block, known) = writing.intern(hash, self.slot.bit());
            self.interned.push(Interned { place: Place { shard, block }, step, known });
        }
        drop(writing);
        self.interned.reverse();
        let count = hashes.len();
        hashes.clear();
        self.hashes = hashes;
        count
    }

    /// Gives a mapping the next interned block. `moved` has the parent when the mapping is not new.
    fn settle(&mut self, id: u32, moved: Option<Option<u32>>, conflict: ApplyError) -> Result<(), ApplyError> {
        let Some(&Interned { place, step, known }) = self.interned.last() else { return Ok(()) };
        let before = self.mappings.at(id).place();
        if before == Some(place) {
            self.interned.pop();
            return Ok(());
        }
        if before.is_some() && self.mappings.at(id).is_resident() {
            return Err(conflict);
        }
        self.interned.pop();
        if known {
            self.journal.share(place, Mark::Known);
        }
        if let Some(parent) = moved {
            self.mappings.link(id, parent);
            // From outside it brings no tier that the plane knows of.
            self.mappings.let_go(id, Tier::Device);
        }
        self.journal.vacate(self.mappings.settle(id, place, step));
        Ok(())
    }

    fn hold(&mut self, id: u32, tier: Tier) {
        if self.mappings.hold(id, tier)
            && let Some(place) = self.mappings.at(id).place()
        {
            self.journal.raise(place, mark(tier));
        }
    }

    fn add(&mut self, engine: EngineHash, parent: Option<u32>, event: usize) -> Result<u32, ApplyError> {
        // First the child, then the room, so that its parent is not what has to go.
        let id = self.mappings.add(engine, parent);
        while self.mappings.len() > self.max_blocks {
            let Some(place) = self.mappings.forget_one() else {
                return Err(ApplyError::IndexLimit { event, max_blocks: self.max_blocks });
            };
            self.journal.vacate(place);
        }
        Ok(id)
    }
}

/// Wherever a mark may stand: where a mapping is, will be, or was in a batch that came to nothing.
impl Drop for Side {
    fn drop(&mut self) {
        self.slot.retire();
        let interned = self.interned.iter().map(|interned| interned.place);
        let places: Vec<Place> = self.mappings.places().chain(interned).chain(self.journal.vacated()).collect();
        for run in places.chunk_by(|a, b| a.shard == b.shard).flat_map(|run| run.chunks(GROUP)) {
            let mut shard = self.slot.plane().write(run[0].shard);
            run.iter().for_each(|place| shard.forget(place.block, self.slot.bit()));
        }
    }
}

fn mark(tier: Tier) -> Mark {
    match tier {
        Tier::Device => Mark::Device,
        Tier::Host => Mark::Host,
    }
}
