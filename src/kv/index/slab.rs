//! [`Slab`]: values that keep their number until they are removed.
//!
//! Grows by whole chunks and never moves a full one: a vector that doubles would hold up to twice what is needed, and
//! many that grow in steps leave holes between them. Invariant: a number on the free list is not in use; an empty slab
//! holds no memory.

/// Values of a chunk.
const CHUNK: usize = 128;

/// See the module.
#[derive(Debug)]
pub(super) struct Slab<T> {
    chunks: Vec<Vec<T>>,
    used: usize,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { chunks: Vec::new(), used: 0, free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Values in it.
    pub fn len(&self) -> usize {
        self.used - self.free.len()
    }

    /// The number that the value has from now on.
    pub fn insert(&mut self, item: T) -> u32 {
        if let Some(id) = self.free.pop() {
            *self.at_mut(id) = item;
            return id;
        }
        if self.used.is_multiple_of(CHUNK) {
            // The first one grows as it needs: many slabs stay small.
            self.chunks.push(if self.used == 0 { Vec::new() } else { Vec::with_capacity(CHUNK) });
        }
        self.chunks[self.used / CHUNK].push(item);
        self.used += 1;
        u32::try_from(self.used - 1).expect("fewer than 2^32 values")
    }

    /// Forgets a value that is in use.
    pub fn remove(&mut self, id: u32) {
        self.free.push(id);
        if self.free.len() == self.used {
            *self = Slab::default();
        }
    }

    /// The value of a number in use.
    pub fn at(&self, id: u32) -> &T {
        &self.chunks[id as usize / CHUNK][id as usize % CHUNK]
    }

    /// The value of a number in use, to change.
    pub fn at_mut(&mut self, id: u32) -> &mut T {
        &mut self.chunks[id as usize / CHUNK][id as usize % CHUNK]
    }

    /// The value of a number that was in use once, or is.
    pub fn get(&self, id: u32) -> Option<&T> {
        self.chunks.get(id as usize / CHUNK)?.get(id as usize % CHUNK)
    }

    /// All values by number, those removed among them.
    pub fn ever_used(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flatten()
    }
}
