//! Which sessions became starved, which were freed, and what every session got on either side.

use std::collections::BTreeMap;

use super::report::{SessionChanges, SessionDelta, SessionSide, StarvationChange};
use crate::results::stats::mean;
use crate::results::{RunSummary, SessionRow};

/// Over the repeats of both sides.
pub(super) fn changes(a: &[&RunSummary], b: &[&RunSummary]) -> SessionChanges {
    // Where one side keeps no sessions on D, nobody was freed by it, nor starved.
    let is_judged = a.iter().chain(b).all(|run| run.starved_sessions().is_some());
    let (of_a, of_b) = (by_id(a), by_id(b));
    let mut rows: Vec<SessionDelta> =
        of_a.iter().map(|(id, rows)| delta(id, rows, of_b.get(id).map_or(&[][..], Vec::as_slice), is_judged)).collect();
    rows.extend(
        of_b.iter().filter(|(id, _)| !of_a.contains_key(*id)).map(|(id, rows)| delta(id, &[], rows, is_judged)),
    );
    rows.sort_by(|x, y| (x.arrival_rank, &x.session_id).cmp(&(y.arrival_rank, &y.session_id)));
    let of_change = |change: StarvationChange| -> Vec<String> {
        rows.iter().filter(|row| row.change == change).map(|row| row.session_id.clone()).collect()
    };
    let became_starved = of_change(StarvationChange::BecameStarved);
    let freed = of_change(StarvationChange::Freed);
    let still_starved = of_change(StarvationChange::StillStarved);
    SessionChanges {
        starved_a: (freed.len() + still_starved.len()) as u64,
        starved_b: (became_starved.len() + still_starved.len()) as u64,
        became_starved,
        freed,
        still_starved,
        rows,
    }
}

fn by_id<'a>(runs: &[&'a RunSummary]) -> BTreeMap<&'a str, Vec<&'a SessionRow>> {
    let mut by_id: BTreeMap<&str, Vec<&SessionRow>> = BTreeMap::new();
    for row in runs.iter().flat_map(|run| &run.sessions) {
        by_id.entry(&row.session_id).or_default().push(row);
    }
    by_id
}

fn delta(id: &str, a: &[&SessionRow], b: &[&SessionRow], is_judged: bool) -> SessionDelta {
    let all = || a.iter().chain(b);
    let (side_a, side_b) = (side(a), side(b));
    let starved =
        |side: &Option<SessionSide>| is_judged && side.as_ref().is_some_and(|side| side.starved_in * 2 > side.repeats);
    SessionDelta {
        session_id: id.into(),
        arrival_rank: all().next().map_or(0, |row| row.arrival_rank),
        turns: all().map(|row| row.turns).max().unwrap_or(0),
        peak_input_tokens: all().map(|row| row.peak_input_tokens).max().unwrap_or(0),
        change: match (starved(&side_a), starved(&side_b)) {
            (false, false) => StarvationChange::None,
            (false, true) => StarvationChange::BecameStarved,
            (true, false) => StarvationChange::Freed,
            (true, true) => StarvationChange::StillStarved,
        },
        mean_e2e_delta_ms: side_a
            .as_ref()
            .and_then(|side| side.mean_e2e_ms)
            .zip(side_b.as_ref().and_then(|side| side.mean_e2e_ms))
            .map(|(a, b)| b - a),
        a: side_a,
        b: side_b,
    }
}

fn side(rows: &[&SessionRow]) -> Option<SessionSide> {
    let first = rows.first()?;
    let over = |of: fn(&SessionRow) -> Option<f64>| mean(&rows.iter().filter_map(|row| of(row)).collect::<Vec<f64>>());
    Some(SessionSide {
        starved_in: rows.iter().filter(|row| row.starves()).count() as u32,
        repeats: rows.len() as u32,
        direct_share: over(|row| row.direct_share),
        mean_e2e_ms: over(|row| row.mean_e2e_ms),
        main_reason: first.main_reason,
        pinned_worker: first.pinned_worker.as_deref().map(String::from),
        pattern: first.pattern.clone(),
    })
}
