//! [`Slab`]: values that keep their number until they are removed.
//!
//! Grows by an eighth instead of doubling, because an index at its limit would otherwise hold up to twice what it needs.
//! Invariant: a number on the free list is not in use; an empty slab holds no memory.

/// See the module.
#[derive(Debug)]
pub(super) struct Slab<T> {
    items: Vec<T>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { items: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Values in it.
    pub fn len(&self) -> usize {
        self.items.len() - self.free.len()
    }

    /// The number that the value has from now on.
    pub fn insert(&mut self, item: T) -> u32 {
        if let Some(id) = self.free.pop() {
            self.items[id as usize] = item;
            return id;
        }
        if self.items.len() == self.items.capacity() {
            self.items.reserve_exact((self.items.len() / 8).max(4));
        }
        self.items.push(item);
        u32::try_from(self.items.len() - 1).expect("fewer than 2^32 values")
    }

    /// Forgets a value that is in use.
    pub fn remove(&mut self, id: u32) {
        self.free.push(id);
        if self.free.len() == self.items.len() {
            *self = Slab::default();
        }
    }

    /// The value of a number in use.
    pub fn at(&self, id: u32) -> &T {
        &self.items[id as usize]
    }

    /// The value of a number in use, to change.
    pub fn at_mut(&mut self, id: u32) -> &mut T {
        &mut self.items[id as usize]
    }

    /// The value of a number that was in use once, or is.
    pub fn get(&self, id: u32) -> Option<&T> {
        self.items.get(id as usize)
    }

    /// All values by number, those removed among them.
    pub fn ever_used(&self) -> &[T] {
        &self.items
    }
}
