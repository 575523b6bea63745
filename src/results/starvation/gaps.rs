//! [`Gaps`]: the gaps from turn to turn, against what the turn before took in this run.

use crate::results::Metric;
use crate::results::seen::Seen;
use crate::results::stats::share;

/// Gaps after turns that ended ok; those after others say nothing of what a turn takes.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    /// The last turn that came, by the number of its session.
    last: Vec<Option<Last>>,
    /// E2E of a turn over the gap that its successor is scheduled after it.
    ratios: Vec<f32>,
}

#[derive(Debug, Clone, Copy)]
struct Last {
    turn_id: u32,
    scheduled_ns: u64,
    e2e_ns: u64,
}

impl Gaps {
    /// The turns of a session come in their order.
    pub(super) fn add(&mut self, request: &Seen) {
        let ix = request.session.ix as usize;
        if self.last.len() <= ix {
            self.last.resize(ix + 1, None);
        }
        let e2e_ns = request.ns(Metric::E2e).filter(|_| request.outcome.is_ok());
        let (turn_id, scheduled_ns) = (request.turn_id, request.scheduled_ns);
        let here = e2e_ns.map(|e2e_ns| Last { turn_id, scheduled_ns, e2e_ns });
        let before = std::mem::replace(&mut self.last[ix], here);
        if let Some(before) = before.filter(|before| before.turn_id.checked_add(1) == Some(turn_id)) {
            let gap_ns = scheduled_ns.saturating_sub(before.scheduled_ns);
            self.ratios.push((before.e2e_ns as f64 / gap_ns as f64) as f32);
        }
    }

    /// Share of gaps that would be shorter than the E2E before them, were they `stretch` times as long; `None` without gaps.
    pub(super) fn short_share(&self, stretch: f64) -> Option<f64> {
        let short = self.ratios.iter().filter(|ratio| f64::from(**ratio) > stretch).count();
        share(short as u64, self.ratios.len() as u64)
    }
}
