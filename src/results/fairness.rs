//! How evenly the fast path is spread over sessions, and what sets the starved ones apart.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::SessionRow;
use super::stats::{bimodality, gini, jain, mean, separation, share};
use crate::record::ModeReason;

/// A session is starved when its direct share is below this while the run's is above it.
const STARVED_BELOW: f64 = 0.2;

/// Spread of the direct-to-D share and of the mean E2E over sessions.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Fairness {
    /// Direct-to-D share of the run: direct and ok over all turns sent after each session's first; null without such turns.
    pub direct_share: Option<f64>,
    /// Sessions by direct share: below 20 %, 40 %, 60 %, 80 %, and the rest.
    pub histogram: [u64; 5],
    /// Sessions without a second turn sent: they have no direct share.
    pub sessions_without_share: u64,
    /// Sarle's bimodality coefficient of the direct shares: above 5/9 hints at two peaks; null without spread.
    pub bimodality: Option<f64>,
    /// Two peaks: both outer bins hold more sessions than any bin between them.
    pub two_peaked: bool,
    /// Gini coefficient of the sessions' mean E2E: 0 equal.
    pub gini_mean_e2e: Option<f64>,
    /// Jain's index of the sessions' mean E2E: 1 equal.
    pub jain_mean_e2e: Option<f64>,
    /// The starved sessions; null when there are none.
    pub starved: Option<Starved>,
}

/// What sets the starved sessions apart.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Starved {
    /// How many.
    pub count: u64,
    /// Their ids, by arrival.
    pub sessions: Vec<String>,
    /// Most frequent of their main reasons.
    pub main_reason: Option<ModeReason>,
    /// Peak input, mean, tokens.
    pub peak_input_tokens: Contrast,
    /// Arrival rank, mean.
    pub arrival_rank: Contrast,
    /// Lowest arrival rank among the starved.
    pub first_rank: u32,
    /// Highest arrival rank among the others.
    pub last_rank_of_others: Option<u32>,
    /// Believed usage of the chosen D when they asked, mean: tokens of resident sessions and of requests in flight over
    /// capacity, above 1 when more is under way than fits; nulls when nobody asked.
    pub usage_when_asked: Contrast,
    /// Starved sessions that never held a slot; null when unknown.
    pub slot_never_held: Option<u64>,
    /// Where they were pinned, per worker with a starved session.
    pub pinned: Vec<Pinned>,
}

/// A quantity among the starved and among the others.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Contrast {
    /// Mean over the starved.
    pub starved: Option<f64>,
    /// Mean over the others.
    pub others: Option<f64>,
    /// Chance that a starved session's value exceeds another's, ties half: 0.5 is no difference.
    pub separation: Option<f64>,
}

/// Sessions pinned to one worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Pinned {
    /// The worker.
    pub worker: String,
    /// Starved sessions pinned to it.
    pub starved: u64,
    /// All sessions pinned to it.
    pub sessions: u64,
}

/// Computes the fairness of a run and marks the starved rows.
pub(super) fn assess(rows: &mut [SessionRow]) -> Fairness {
    let later: u64 = rows.iter().map(|row| row.later_turns).sum();
    let direct: u64 = rows.iter().map(|row| row.direct_turns).sum();
    let direct_share = share(direct, later);
    let uses_sessions = direct_share.is_some_and(|share| share > STARVED_BELOW);
    for row in rows.iter_mut() {
        row.starved = uses_sessions && row.direct_share.is_some_and(|share| share < STARVED_BELOW);
    }
    let shares: Vec<f64> = rows.iter().filter_map(|row| row.direct_share).collect();
    let means: Vec<f64> = rows.iter().filter_map(|row| row.mean_e2e_ms).collect();
    let mut histogram = [0; 5];
    for share in &shares {
        histogram[((share * 5.0) as usize).min(4)] += 1;
    }
    let middle = histogram[1..4].iter().copied().max().unwrap_or(0);
    Fairness {
        direct_share,
        histogram,
        sessions_without_share: (rows.len() - shares.len()) as u64,
        bimodality: bimodality(&shares),
        two_peaked: histogram[0].min(histogram[4]) > middle,
        gini_mean_e2e: gini(&means),
        jain_mean_e2e: jain(&means),
        starved: starved(rows),
    }
}

fn starved(rows: &[SessionRow]) -> Option<Starved> {
    let (starved, others): (Vec<&SessionRow>, Vec<&SessionRow>) =
        rows.iter().filter(|row| row.direct_share.is_some()).partition(|row| row.starved);
    let first_rank = starved.iter().map(|row| row.arrival_rank).min()?;
    let contrast = |of: fn(&SessionRow) -> Option<f64>| {
        let a: Vec<f64> = starved.iter().filter_map(|row| of(row)).collect();
        let b: Vec<f64> = others.iter().filter_map(|row| of(row)).collect();
        Contrast { starved: mean(&a), others: mean(&b), separation: separation(&a, &b) }
    };
    let mut reasons: BTreeMap<ModeReason, u64> = BTreeMap::new();
    starved.iter().filter_map(|row| row.main_reason).for_each(|reason| *reasons.entry(reason).or_insert(0) += 1);
    let holds: Option<Vec<f64>> = starved.iter().map(|row| row.slot_hold_s).collect();
    Some(Starved {
        count: starved.len() as u64,
        sessions: starved.iter().map(|row| row.session_id.clone()).collect(),
        main_reason: reasons.iter().rev().max_by_key(|(_, count)| **count).map(|(reason, _)| *reason),
        peak_input_tokens: contrast(|row| Some(row.peak_input_tokens.into())),
        arrival_rank: contrast(|row| Some(row.arrival_rank.into())),
        first_rank,
        last_rank_of_others: others.iter().map(|row| row.arrival_rank).max(),
        usage_when_asked: contrast(|row| row.usage_when_asked),
        slot_never_held: holds.map(|holds| holds.iter().filter(|hold| **hold == 0.0).count() as u64),
        pinned: pinned(rows),
    })
}

fn pinned(rows: &[SessionRow]) -> Vec<Pinned> {
    let mut by_worker: BTreeMap<&str, Pinned> = BTreeMap::new();
    for row in rows {
        if let Some(worker) = row.pinned_worker.as_deref() {
            let empty = || Pinned { worker: worker.into(), starved: 0, sessions: 0 };
            let entry = by_worker.entry(worker).or_insert_with(empty);
            entry.sessions += 1;
            entry.starved += u64::from(row.starved);
        }
    }
    by_worker.into_values().filter(|entry| entry.starved > 0).collect()
}
