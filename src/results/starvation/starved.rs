//! [`Starved`]: the starved sessions of a run, and what sets them apart from the others.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::contrast::Contrast;
use crate::record::ModeReason;
use crate::results::SessionRow;

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

/// The starved among these rows, which are marked.
pub(super) fn starved(rows: &[SessionRow]) -> Option<Starved> {
    let (starved, others): (Vec<&SessionRow>, Vec<&SessionRow>) =
        rows.iter().filter(|row| row.direct_share.is_some()).partition(|row| row.starved);
    let first_rank = starved.iter().map(|row| row.arrival_rank).min()?;
    let contrast = |of: fn(&SessionRow) -> Option<f64>| {
        let a: Vec<f64> = starved.iter().filter_map(|row| of(row)).collect();
        let b: Vec<f64> = others.iter().filter_map(|row| of(row)).collect();
        Contrast::of(&a, &b)
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
