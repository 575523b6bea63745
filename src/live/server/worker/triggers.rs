//! [`Triggers`]: faults that begin by a count of requests: those of one worker, or of a whole cluster that shares this.
//!
//! Whether a count is reached is [`Faults`]'s rule. Invariant: a request counts once, by the first of its legs that comes,
//! and what it triggers has begun before that leg is looked at.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::base::Time;
use crate::cluster::{Fault, FaultConfig, Faults};

/// See the module.
#[derive(Debug)]
pub struct Triggers {
    /// Faults that wait for a count.
    count: usize,
    state: Mutex<State>,
    /// How many have begun.
    changed: watch::Sender<usize>,
}

#[derive(Debug)]
struct State {
    faults: Faults,
    requests: u64,
    /// Rooms of which one leg has come.
    met: BTreeSet<u64>,
    /// In order.
    begun: Vec<(usize, Time)>,
}

impl Triggers {
    /// Of these faults, by their numbers. Panics for a bad worker name: the scenario was checked.
    pub fn of(faults: &[FaultConfig]) -> Triggers {
        let count = faults.iter().filter(|fault| fault.after_requests.is_some()).count();
        let all = faults.iter().map(|fault| Fault::new(fault, None, None).expect("the worker names were checked"));
        let faults = Faults::new(all.collect());
        let state = State { faults, requests: 0, met: BTreeSet::new(), begun: Vec::new() };
        Triggers { count, state: Mutex::new(state), changed: watch::Sender::new(0) }
    }

    /// A generate request has come to a worker, or one of its two legs, which meet in `room`.
    pub(super) fn count(&self, now: Time, room: Option<u64>) {
        if self.count == 0 {
            return;
        }
        let mut state = self.state();
        let is_second = room.is_some_and(|room| state.met.remove(&room));
        if state.begun.len() == self.count || is_second {
            return;
        }
        state.met.extend(room);
        state.requests += 1;
        for fault in state.faults.counted(state.requests) {
            state.faults.begin(fault);
            state.begun.push((fault, now));
        }
        if state.begun.len() == self.count {
            state.met.clear();
        }
        // Nothing changes for those who watch unless one has begun.
        let begun = state.begun.len();
        self.changed.send_if_modified(|known| std::mem::replace(known, begun) != begun);
    }

    /// Faults that have begun by count, with their times, but for the first so many.
    pub fn begun(&self, but: usize) -> Vec<(usize, Time)> {
        if but >= self.count { Vec::new() } else { self.state().begun[but..].to_vec() }
    }

    /// Faults that begin by count, now or later.
    pub fn all(&self) -> usize {
        self.count
    }

    /// Hears when one begins.
    pub(super) fn watch(&self) -> watch::Receiver<usize> {
        self.changed.subscribe()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn triggers(counts: &[u64]) -> Triggers {
        let fault = |count: &u64| format!(r#"{{"kind":"restart","worker":"D0","after_requests":{count}}}"#);
        Triggers::of(&counts.iter().map(|count| serde_json::from_str(&fault(count)).unwrap()).collect::<Vec<_>>())
    }

    #[test]
    fn a_request_counts_once_by_its_first_leg() {
        let triggers = triggers(&[2, 0]);
        let mut watch = triggers.watch();
        for (at, room) in [(1, Some(7)), (2, Some(7)), (3, None), (4, Some(7))] {
            assert!(triggers.begun(0).len() < triggers.all());
            triggers.count(Time(at), room);
        }
        assert_eq!((triggers.begun(0), triggers.begun(1)), (vec![(1, Time(1)), (0, Time(4))], vec![(0, Time(4))]));
        assert!(watch.has_changed().unwrap());
        watch.mark_unchanged();
        triggers.count(Time(5), Some(9));
        assert!(!watch.has_changed().unwrap() && triggers.state().met.is_empty(), "all is over");
    }

    #[test]
    fn without_such_faults_nothing_is_kept() {
        let triggers = triggers(&[]);
        triggers.count(Time(1), Some(1));
        assert!(triggers.state().met.is_empty() && triggers.begun(0).is_empty() && triggers.all() == 0);
    }
}
