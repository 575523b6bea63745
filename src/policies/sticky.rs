//! `sticky`: the first turn by rotation, afterwards the worker that served the session, as long as it is up.
//!
//! The PD router's manual map has the last word on where a session's first request lands, so a session is bound to the
//! worker that answered, not to the one asked for. A session whose worker is gone moves once: the manual map gives a
//! key without a worker to the one with the fewest requests in flight, equals in turn. The same rule is used here, so
//! that both agree as far as their counts do; where they do not, the next answer binds the session anew.
//! Invariant: no session moves while its worker is up.

use crate::base::SessionIx;
use crate::policies::{ClusterView, PolicyRequest, RoundRobin, Selection, SelectionReason};

/// Bindings, and the rotation for sessions without one.
#[derive(Debug)]
pub struct Sticky {
    rotation: RoundRobin,
    bound: Vec<Option<u16>>,
}

impl Sticky {
    /// No session is bound.
    pub fn new(sessions: usize) -> Sticky {
        Sticky { rotation: RoundRobin::default(), bound: vec![None; sessions] }
    }

    /// The session's worker, else the next of the rotation.
    pub fn select(&mut self, view: &ClusterView, request: &PolicyRequest) -> Option<Selection> {
        let (index, reason) = match self.bound[request.session.ix()] {
            None => (self.rotation.next(view, request.excluded)?, SelectionReason::Rotation),
            Some(bound) => match view.candidates(request.excluded).find(|(index, _)| *index == bound) {
                Some((index, _)) => (index, SelectionReason::Bound),
                None => (self.rotation.next_idle(view, request.excluded)?, SelectionReason::BoundWorkerGone),
            },
        };
        Some(view.selection(request.session, index, reason, 0))
    }

    /// Binds the session to the worker that answered.
    pub fn served(&mut self, session: SessionIx, worker: u16) {
        self.bound[session.ix()] = Some(worker);
    }

    /// Dissolves the binding.
    pub fn forget(&mut self, session: SessionIx) {
        self.bound[session.ix()] = None;
    }
}
