//! What is waited for and for how long: KV that is pulled, a pull that is to come, words kept for one that comes late.
//!
//! Nearly all of it ends long before its time, so unlike what is on the agenda it is called off with what waits.
//! Invariant: no request that has ended and no room that is gone is waited for.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::{RequestIx, Role, Time};
use crate::node::worker::WorkerNode;

/// Who waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wait {
    /// Prefill: a leg, for its KV to have left. Decode: for KV it has asked for.
    Kv(RequestIx),
    /// Prefill: a room whose leg is lost, for a pull.
    LostRoom(u64),
}

#[derive(Debug, Default)]
pub(super) struct Patience {
    until: BTreeMap<Wait, Time>,
    order: BTreeSet<(Time, Wait)>,
}

impl Patience {
    /// `wait` is given up at `at`, whatever was said of it before.
    pub fn set(&mut self, wait: Wait, at: Time) {
        self.call_off(wait);
        self.until.insert(wait, at);
        self.order.insert((at, wait));
    }

    /// It is not waited for any more.
    pub fn call_off(&mut self, wait: Wait) {
        if let Some(at) = self.until.remove(&wait) {
            self.order.remove(&(at, wait));
        }
    }

    /// When the next one is given up.
    pub fn next(&self) -> Option<Time> {
        self.order.first().map(|(at, _)| *at)
    }

    /// One that has waited long enough by `now`; it is called off.
    pub fn over(&mut self, now: Time) -> Option<Wait> {
        let (_, wait) = self.order.first().copied().filter(|(at, _)| *at <= now)?;
        self.call_off(wait);
        Some(wait)
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        assert_eq!(self.until.len(), self.order.len());
        self.until.len()
    }
}

impl WorkerNode {
    pub(super) fn give_up(&mut self, wait: Wait) {
        match wait {
            Wait::Kv(request) if self.config.id.role == Role::Prefill => self.time_out_transfer(request),
            Wait::Kv(request) => self.time_out_pull(request),
            Wait::LostRoom(room) => self.forget_room(room),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_called_off_or_put_off_is_not_given_up() {
        let mut patience = Patience::default();
        let [a, b, c] = [Wait::Kv(RequestIx(1)), Wait::Kv(RequestIx(2)), Wait::LostRoom(1)];
        [(a, 10), (b, 20), (c, 30), (b, 40)].into_iter().for_each(|(wait, at)| patience.set(wait, Time(at)));
        assert_eq!((patience.next(), patience.len()), (Some(Time(10)), 3));
        patience.call_off(a);
        patience.call_off(a);
        assert_eq!((patience.next(), patience.over(Time(29))), (Some(Time(30)), None));
        assert_eq!(
            (patience.over(Time(99)), patience.over(Time(99)), patience.over(Time(99))),
            (Some(c), Some(b), None)
        );
        assert_eq!((patience.next(), patience.len()), (None, 0));
    }
}
