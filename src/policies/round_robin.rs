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
        let up = view.candidates(excluded).count() as u64;
        if up == 0 {
            return None;
        }
        let at = (self.taken % up) as usize;
        self.taken += 1;
        view.candidates(excluded).nth(at).map(|(index, _)| index)
    }
}
