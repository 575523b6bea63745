//! [`Pace`]: how soon a stream asks again, and whether its trouble is news.

use std::collections::BTreeSet;

use crate::base::{Dur, Time};
use crate::kv::sync::{SyncOptions, SyncReason};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Pace {
    setbacks: u32,
    /// The trouble will be there again after a recovery, though batches are taken in between.
    lasts: bool,
    told: BTreeSet<SyncReason>,
    again: bool,
    in_step_since: Option<Time>,
}

impl Pace {
    /// The stream is in step.
    pub fn gained(&mut self, now: Time) {
        self.in_step_since.get_or_insert(now);
    }

    /// A batch was taken in.
    pub fn applied(&mut self) {
        if !self.lasts {
            self.setbacks = 0;
        }
    }

    /// The stream lost its place. Returns the pause before it asks.
    pub fn lost(&mut self, now: Time, reason: SyncReason, options: &SyncOptions) -> Dur {
        if self.in_step_since.take().is_some_and(|since| now.since(since) >= options.retry_most) {
            *self = Pace::default();
        }
        self.lasts |= reason.lasts();
        self.told(reason);
        let pause = self.pause(options);
        self.setbacks += 1;
        pause
    }

    /// A request failed. Returns the pause before the next.
    pub fn failed(&mut self, reason: SyncReason, options: &SyncOptions) -> Dur {
        self.setbacks += 1;
        self.told(reason);
        self.pause(options)
    }

    /// There is a new connection. Returns the pause before its first request.
    pub fn connected(&mut self, options: &SyncOptions) -> Dur {
        if !self.lasts {
            self.setbacks = 0;
        }
        self.pause(options)
    }

    /// Whether the trouble told last had been told before.
    pub fn is_again(&self) -> bool {
        self.again
    }

    /// Notes a trouble.
    pub fn told(&mut self, reason: SyncReason) {
        self.again = !self.told.insert(reason);
    }

    fn pause(&self, options: &SyncOptions) -> Dur {
        let doublings = self.setbacks.saturating_sub(1).min(20);
        let pause = if self.setbacks == 0 { 0 } else { options.retry_first.ns().saturating_mul(1 << doublings) };
        Dur(pause.min(options.retry_most.ns()))
    }
}
