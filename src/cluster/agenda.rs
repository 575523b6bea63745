//! [`Agenda`]: what happens later, in order of (time, order of creation).

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use crate::base::Time;

/// See the module.
#[derive(Debug)]
pub struct Agenda<M> {
    heap: BinaryHeap<Reverse<Scheduled<M>>>,
    created: u64,
}

#[derive(Debug)]
struct Scheduled<M> {
    at: Time,
    order: u64,
    message: M,
}

impl<M> PartialEq for Scheduled<M> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<M> Eq for Scheduled<M> {}

impl<M> PartialOrd for Scheduled<M> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<M> Ord for Scheduled<M> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

impl<M> Default for Agenda<M> {
    fn default() -> Self {
        Agenda { heap: BinaryHeap::new(), created: 0 }
    }
}

impl<M> Agenda<M> {
    /// `message` is due at `at`, behind what is due then already.
    pub fn schedule(&mut self, at: Time, message: M) {
        let order = self.created;
        self.created += 1;
        self.heap.push(Reverse(Scheduled { at, order, message }));
    }

    /// When the next message is due.
    pub fn next(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse(next)| next.at)
    }

    /// The next message, if it is due by `now`.
    pub fn due(&mut self, now: Time) -> Option<M> {
        self.next().filter(|at| *at <= now)?;
        self.heap.pop().map(|Reverse(next)| next.message)
    }

    /// How much is still to come.
    pub fn left(&self) -> usize {
        self.heap.len()
    }

    /// Everything that is still to come, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &M> {
        self.heap.iter().map(|Reverse(next)| &next.message)
    }
}
