//! [`GivenBack`]: the slots as they would be held if every session gave its own back at its end.
//!
//! Kept beside the true slots, to tell which refusals are the doing of sessions that have ended. One slot given back is of use
//! once: it goes to the first session that is refused, which holds it until its own end and would not have asked again; whoever
//! comes after it finds it taken. Asks come when they came, for the worker they came for: what a session would have done
//! sooner, or elsewhere, with the slot is not known here.

use crate::base::SessionIx;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct GivenBack {
    /// Worker whose slot each session would hold.
    held: Vec<Option<u16>>,
    /// By worker.
    taken: Vec<u32>,
}

impl GivenBack {
    pub fn new(sessions: usize) -> GivenBack {
        GivenBack { held: vec![None; sessions], taken: Vec::new() }
    }

    /// The session takes a slot on `worker`, if it would not hold one already.
    pub fn take(&mut self, session: SessionIx, worker: u16) {
        if self.held[session.ix()].is_none() {
            self.held[session.ix()] = Some(worker);
            *self.taken_on(worker) += 1;
        }
    }

    /// It gives the one on `worker` back.
    pub fn release(&mut self, session: SessionIx, worker: u16) {
        if self.held[session.ix()] == Some(worker) {
            self.end(session);
        }
    }

    /// It gives back what it holds.
    pub fn end(&mut self, session: SessionIx) {
        if let Some(worker) = self.held[session.ix()].take() {
            *self.taken_on(worker) -= 1;
        }
    }

    /// Whether a session that was refused on `worker`, with room for `cap`, would hold a slot: one that it would have had
    /// before, or one that is free, which it takes.
    pub fn admits(&mut self, session: SessionIx, worker: u16, cap: u32) -> bool {
        if self.held[session.ix()].is_none() && *self.taken_on(worker) < cap {
            self.take(session, worker);
        }
        self.held[session.ix()].is_some()
    }

    /// `worker` is gone, and with it what it would hold.
    pub fn gone(&mut self, worker: u16) {
        self.held.iter_mut().filter(|held| **held == Some(worker)).for_each(|held| *held = None);
        *self.taken_on(worker) = 0;
    }

    fn taken_on(&mut self, worker: u16) -> &mut u32 {
        let index = usize::from(worker);
        if self.taken.len() <= index {
            self.taken.resize(index + 1, 0);
        }
        &mut self.taken[index]
    }
}
