//! `default`: round robin by the replayer's own counter, without a header.
//!
//! The PD router counts for itself: that the two counters drift apart is the point of the v2 runs.

use crate::policies::{ClusterView, PolicyRequest, Selection, SelectionReason};

/// The counter.
#[derive(Debug, Default)]
pub struct RoundRobin {
    taken: u64,
}

impl RoundRobin {
    /// The next worker in the rotation of those up.
    pub fn select(&mut self, view: &ClusterView, request: &PolicyRequest) -> Option<Selection> {
        let index = self.next(view, request.excluded)?;
        Some(view.selection(request.session, index, SelectionReason::Rotation, 0))
    }

    pub(super) fn next(&mut self, view: &ClusterView, excluded: Option<u16>) -> Option<u16> {
        self.take(|| view.candidates(excluded).map(|(index, _)| index))
    }

    /// The next in turn of those with the fewest requests in flight.
    pub(super) fn next_idle(&mut self, view: &ClusterView, excluded: Option<u16>) -> Option<u16> {
        let least = view.candidates(excluded).map(|(_, worker)| worker.inflight).min()?;
        self.take(|| view.candidates(excluded).filter(|(_, worker)| worker.inflight == least).map(|(index, _)| index))
    }

    fn take<I: Iterator<Item = u16>>(&mut self, among: impl Fn() -> I) -> Option<u16> {
        let count = among().count() as u64;
        if count == 0 {
            return None;
        }
        let at = (self.taken % count) as usize;
        self.taken += 1;
        among().nth(at)
    }
}
