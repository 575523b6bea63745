//! `default`: round robin by the replayer's own counter, without a header.
//!
//! The PD router counts for itself: that the two counters drift apart is the point of the v2 runs.
//! Invariant: the choice is the first candidate behind the last chosen one, so a change of members moves nobody twice.

use crate::policies::{ClusterView, PolicyRequest, Selection, SelectionReason, WorkerView};

/// The counter.
#[derive(Debug, Default)]
pub struct RoundRobin {
    // Index behind the last chosen one.
    next: u16,
}

impl RoundRobin {
    /// The next worker in the rotation of those up.
    pub fn select(&mut self, view: &ClusterView, request: &PolicyRequest) -> Option<Selection> {
        let index = self.next(view, request.excluded)?;
        Some(view.selection(request.session, index, SelectionReason::Rotation, 0))
    }

    pub(super) fn next(&mut self, view: &ClusterView, excluded: Option<u16>) -> Option<u16> {
        self.take(view, excluded, |_| 0)
    }

    /// Of those with the fewest requests in flight, the next in the rotation.
    pub(super) fn next_idle(&mut self, view: &ClusterView, excluded: Option<u16>) -> Option<u16> {
        self.take(view, excluded, |worker| worker.inflight)
    }

    fn take(&mut self, view: &ClusterView, excluded: Option<u16>, load: impl Fn(&WorkerView) -> u32) -> Option<u16> {
        let in_turn = |(index, worker): &(u16, &WorkerView)| (load(worker), *index < self.next, *index);
        let (chosen, _) = view.candidates(excluded).min_by_key(in_turn)?;
        self.next = chosen + 1;
        Some(chosen)
    }
}
