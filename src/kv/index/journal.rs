//! [`Journal`]: what a batch is going to change in the plane, in order; nothing of it is seen before the whole batch is
//! known to be good.
//!
//! Two engine hashes of a stream may stand for one block. The plane has one bit for both, so each holder beyond the first
//! is counted in `extra`. Invariant: a bit is set as long as anybody of the stream holds it; a place that no mapping has
//! any more is here until its marks are gone.

use std::collections::BTreeMap;

use crate::kv::index::mappings::Place;
use crate::kv::index::plane::{GROUP, Slot};
use crate::kv::index::shard::{Mark, Shard};

#[derive(Debug, Clone, Copy)]
struct Op {
    place: Place,
    mark: Mark,
    raise: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Journal {
    ops: Vec<Op>,
    extra: BTreeMap<(Place, Mark), u32>,
    resident: [u64; 2],
}

impl Journal {
    /// Somebody will hold this mark.
    pub fn raise(&mut self, place: Place, mark: Mark) {
        self.ops.push(Op { place, mark, raise: true });
    }

    /// Somebody will hold this mark no longer.
    pub fn lower(&mut self, place: Place, mark: Mark) {
        self.ops.push(Op { place, mark, raise: false });
    }

    /// A mapping has left this place.
    pub fn vacate(&mut self, place: Option<Place>) {
        if let Some(place) = place {
            self.lower(place, Mark::Known);
        }
    }

    /// Places that were left since the last commit: their marks still stand.
    pub fn vacated(&self) -> impl Iterator<Item = Place> {
        self.ops.iter().filter(|op| op.mark == Mark::Known).map(|op| op.place)
    }

    /// Somebody else holds this mark, too.
    pub fn share(&mut self, place: Place, mark: Mark) {
        *self.extra.entry((place, mark)).or_default() += 1;
    }

    /// Distinct blocks with this mark, as of the last commit.
    pub fn resident(&self, mark: Mark) -> u64 {
        self.resident[mark as usize]
    }

    /// Makes the changes.
    pub fn commit(&mut self, slot: &Slot) {
        let ops = std::mem::take(&mut self.ops);
        for run in ops.chunk_by(|a, b| a.place.shard == b.place.shard).flat_map(|run| run.chunks(GROUP)) {
            let _turn = slot.turn();
            let mut shard = slot.plane().write(run[0].place.shard);
            for &op in run {
                self.make(&mut shard, slot, op);
            }
        }
        self.ops = ops;
        self.ops.clear();
    }

    fn make(&mut self, shard: &mut Shard, slot: &Slot, op: Op) {
        let key = (op.place, op.mark);
        let block = shard.block(op.place.block);
        let held = block.slots(op.mark) & slot.bit() != 0;
        let resident = (block.slots(Mark::Device) | block.slots(Mark::Host)) & slot.bit() != 0;
        if op.raise && held {
            return self.share(op.place, op.mark);
        }
        if !op.raise && self.drop_share(key) {
            return;
        }
        if op.mark != Mark::Known {
            if resident {
                slot.note(block.hash());
            }
            let count = &mut self.resident[op.mark as usize];
            *count = if op.raise { *count + 1 } else { *count - 1 };
        }
        if op.raise {
            shard.raise(op.place.block, op.mark, slot.bit());
        } else {
            shard.lower(op.place.block, op.mark, slot.bit());
        }
    }

    fn drop_share(&mut self, key: (Place, Mark)) -> bool {
        let Some(extra) = self.extra.get_mut(&key) else { return false };
        *extra -= 1;
        if *extra == 0 {
            self.extra.remove(&key);
        }
        true
    }
}
