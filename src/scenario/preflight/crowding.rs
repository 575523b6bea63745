//! Sessions do not pack perfectly over the D: what each one's live contexts need over time, against its pool.
//!
//! Sessions that hold a slot in the sketch go round robin over the D in order of arrival, and stay from their seed to
//! the end of their last turn. Plain turns, which need room for a while only, are left out: a lower estimate of need.

use super::context;
use super::service::limit;
use super::sketch::{Sketch, seeded_by};
use crate::replay::Mechanism;
use crate::scenario::model::Scenario;
use crate::trace::Trace;

/// D whose live contexts exceed their pool.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Crowding {
    /// D that are over their pool at some time.
    pub(super) workers: u16,
    /// Share of the time in which at least one is, 0 to 1.
    pub(super) share: f64,
    /// Largest sum of live contexts on one D, tokens.
    pub(super) peak_tokens: u64,
    /// Direct turns that begin on a D over its pool.
    pub(super) turns_at_risk: u32,
}

/// The contexts of one D change.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Step {
    at_ns: u64,
    /// Tokens that come; negative: that go. What goes makes room for what comes at the same time.
    tokens: i64,
    worker: usize,
    goes_direct: bool,
}

/// Follows the live contexts of each D; nothing without sessions on D.
pub(super) fn crowding(scenario: &Scenario, trace: &Trace, sketch: &Sketch) -> Crowding {
    let workers = usize::from(scenario.cluster.decode);
    if scenario.replay.mechanism != Mechanism::Kvc || workers == 0 {
        return Crowding::default();
    }
    let pool = i64::try_from(scenario.engine.kv_pool_tokens).unwrap_or(i64::MAX);
    let steps = steps(scenario, trace, sketch, workers);
    let mut need = vec![0i64; workers];
    let mut was_over = vec![false; workers];
    let mut found = Crowding::default();
    let (mut over_ns, mut last_ns) = (0, 0);
    for step in &steps {
        if need.iter().any(|tokens| *tokens > pool) {
            over_ns += step.at_ns - last_ns;
        }
        last_ns = step.at_ns;
        need[step.worker] += step.tokens;
        let is_over = need[step.worker] > pool;
        was_over[step.worker] |= is_over;
        found.peak_tokens = found.peak_tokens.max(u64::try_from(need[step.worker]).unwrap_or(0));
        found.turns_at_risk += u32::from(is_over && step.goes_direct);
    }
    found.workers = was_over.iter().filter(|over| **over).count() as u16;
    let end_ns = sketch.ends.iter().copied().max().unwrap_or(0);
    found.share = over_ns as f64 / end_ns.max(1) as f64;
    found
}

fn steps(scenario: &Scenario, trace: &Trace, sketch: &Sketch, workers: usize) -> Vec<Step> {
    let largest = limit(&scenario.engine).0;
    let mut steps = Vec::new();
    let holders = (0..trace.sessions.len()).filter(|ix| sketch.held_once[*ix]);
    for (rank, ix) in holders.enumerate() {
        let worker = rank % workers;
        let mut held = 0;
        let range = trace.sessions[ix].turns.clone();
        for turn_ix in range.map(|turn| turn as usize).skip(seeded_by(&scenario.replay)) {
            // A refused turn leaves what the session has.
            let needs = Some(context(&trace.turns[turn_ix])).filter(|needs| *needs <= largest);
            let needs = needs.map_or(held, |needs| i64::try_from(needs).unwrap_or(i64::MAX));
            let at_ns = sketch.begins[turn_ix];
            steps.push(Step { at_ns, tokens: needs - held, worker, goes_direct: sketch.direct[turn_ix] });
            held = needs;
        }
        steps.push(Step { at_ns: sketch.ends[ix], tokens: -held, worker, goes_direct: false });
    }
    steps.sort_unstable();
    steps
}
