//! [`Plane`]: what up to 64 streams of one [`Naming`] hold, in shards; [`Slot`]: a stream's place in it.
//!
//! [`GROUP`] blocks in a row of a prompt share a shard, chosen by the first of them: a query takes one lock for them all.
//! A slot tells readers which blocks changed in a way that could make two looks at different moments look like one:
//! the [`Slot::changes`]. Invariant: a change is noted before it is made, and a slot is free for another stream only
//! when nobody, reader or writer, names it any more, and no block has its bit.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::kv::SequenceHash;
use crate::kv::index::shard::Shard;
use crate::kv::index::words::Naming;

/// Blocks in a row that share a shard, and most that are read or changed under one lock.
pub(super) const GROUP: usize = 64;
/// Slots of a plane: bits of a word.
const SLOTS: u32 = u64::BITS;
/// Shards of a plane. Many, so that a growing one is small and seldom the one a query needs.
const SHARDS: usize = 1024;
/// Changes a slot remembers: several times what a writer at full speed makes during a long query.
const NOTED: usize = 8192;

/// See the module.
#[derive(Debug)]
pub(super) struct Plane {
    naming: Naming,
    shards: Box<[RwLock<Shard>]>,
    taken: Mutex<u64>,
}

/// A stream's place in a plane.
#[derive(Debug)]
pub(super) struct Slot {
    plane: Arc<Plane>,
    number: u32,
    retired: AtomicBool,
    changes: AtomicU64,
    noted: Box<[AtomicU32]>,
    turn: Mutex<()>,
}

/// All planes.
#[derive(Debug, Default)]
pub(super) struct Planes {
    planes: Mutex<Vec<Arc<Plane>>>,
}

impl Planes {
    /// A free place for blocks named so.
    pub fn take_slot(&self, naming: Naming) -> Arc<Slot> {
        let mut planes = lock(&self.planes);
        planes.retain(|plane| *lock(&plane.taken) != 0 || plane.naming == naming);
        if let Some(slot) = planes.iter().filter(|plane| plane.naming == naming).find_map(Plane::take_slot) {
            return Arc::new(slot);
        }
        let plane = Arc::new(Plane::new(naming));
        planes.push(Arc::clone(&plane));
        Arc::new(plane.take_slot().expect("a new plane has room"))
    }

    /// Distinct blocks of all planes.
    pub fn blocks(&self) -> u64 {
        let planes = lock(&self.planes).clone();
        planes.iter().flat_map(|plane| (0..SHARDS).map(|shard| plane.read(shard as u16).len() as u64)).sum()
    }
}

impl Plane {
    fn new(naming: Naming) -> Plane {
        Plane { naming, shards: (0..SHARDS).map(|_| RwLock::default()).collect(), taken: Mutex::new(0) }
    }

    fn take_slot(self: &Arc<Plane>) -> Option<Slot> {
        let mut taken = lock(&self.taken);
        let number = taken.trailing_ones();
        if number == SLOTS {
            return None;
        }
        *taken |= 1 << number;
        Some(Slot {
            plane: Arc::clone(self),
            number,
            retired: AtomicBool::new(false),
            changes: AtomicU64::new(0),
            noted: (0..NOTED).map(|_| AtomicU32::new(0)).collect(),
            turn: Mutex::new(()),
        })
    }

    /// How its blocks are named.
    pub fn naming(&self) -> Naming {
        self.naming
    }

    /// Whether a block has a mark of the slots in `bit`. Looks at all of them.
    fn has_marks(&self, bit: u64) -> bool {
        (0..SHARDS).any(|shard| self.read(shard as u16).has_marks(bit))
    }

    /// The shard of the group that begins with this block.
    pub fn shard_of(&self, first: SequenceHash) -> u16 {
        ((first.0 >> 64) as usize % SHARDS) as u16
    }

    /// For a few blocks only: a query may wait behind it.
    pub fn write(&self, shard: u16) -> RwLockWriteGuard<'_, Shard> {
        self.shards[usize::from(shard)].write().unwrap_or_else(PoisonError::into_inner)
    }

    /// For a few blocks only: the writer may wait behind it.
    pub fn read(&self, shard: u16) -> RwLockReadGuard<'_, Shard> {
        self.shards[usize::from(shard)].read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    /// Where it is.
    pub fn plane(&self) -> &Arc<Plane> {
        &self.plane
    }

    /// Its number in the plane.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Its bit in the plane's marks.
    pub fn bit(&self) -> u64 {
        1 << self.number
    }

    /// Tells readers that its blocks go away now, all at once.
    pub fn retire(&self) {
        self.retired.store(true, Ordering::Release);
    }

    /// Whether [`Slot::retire`] was called.
    pub fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    /// Held by its writer for a few changes at a time, and by a reader that could get no consistent look otherwise.
    pub fn turn(&self) -> MutexGuard<'_, ()> {
        lock(&self.turn)
    }

    /// Notes a block about to leave a tier, or to come to one while it is in the other. Only its one writer calls this.
    pub fn note(&self, hash: SequenceHash) {
        let changes = self.changes.load(Ordering::Relaxed);
        self.noted[changes as usize % NOTED].store(fingerprint(hash), Ordering::Release);
        self.changes.store(changes + 1, Ordering::Release);
    }

    /// Number of changes noted so far.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Fingerprints of what changed since there were `since` changes; `None` when they are no longer known.
    pub fn changed(&self, since: u64) -> Option<Vec<u32>> {
        let known = |changes: u64| changes - since < NOTED as u64;
        let until = self.changes();
        if !known(until) {
            return None;
        }
        let changed = (since..until).map(|at| self.noted[at as usize % NOTED].load(Ordering::Acquire)).collect();
        // The writer may have come round while we read.
        known(self.changes()).then_some(changed)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        debug_assert!(
            !self.plane.has_marks(self.bit()),
            "slot {} was left with blocks, which its next stream would serve",
            self.number
        );
        *lock(&self.plane.taken) &= !self.bit();
    }
}

/// What is noted of a block. Two may share one: then a query looks again for nothing.
pub(super) fn fingerprint(hash: SequenceHash) -> u32 {
    hash.0 as u32
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
