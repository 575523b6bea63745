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

use crate::base::Time;
use crate::kv::BlockTokens;

/// A publisher's calendar: its own clock, which may go faster than real time, in Unix time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Calendar {
    /// Unix time at the clock's time 0, seconds.
    pub epoch_s: f64,
    /// How many times faster than real time the clock is.
    pub speed: f64,
}

impl Calendar {
    /// Of virtual time: it begins with the run.
    pub const VIRTUAL: Calendar = Calendar { epoch_s: 0.0, speed: 1.0 };

    /// Unix time, seconds.
    pub fn unix_s(self, at: Time) -> f64 {
        self.epoch_s + at.as_secs_f64() / self.speed
    }
}

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
