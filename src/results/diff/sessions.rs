//! Which sessions became starved, which were freed, and what every session got on either side.

use std::collections::BTreeMap;

use super::compare::Side;
use super::report::{SessionChanges, SessionDelta, SessionSide, StarvationChange};
use crate::results::SessionRow;
use crate::results::stats::mean;

/// Over the repeats of both sides.
pub(super) fn changes(a: &Side, b: &Side) -> SessionChanges {
    // Where one side keeps no sessions on D, nobody was freed by it, nor starved.
    let judged = [a, b].map(Side::keeps_sessions);
    let (of_a, of_b) = (by_id(a), by_id(b));
    let row =
        |id: &str, a: &[&SessionRow], b: &[&SessionRow]| delta(id, side(a, judged[0]), side(b, judged[1]), [a, b]);
    let mut rows: Vec<SessionDelta> =
        of_a.iter().map(|(id, rows)| row(id, rows, of_b.get(id).map_or(&[][..], Vec::as_slice))).collect();
    rows.extend(of_b.iter().filter(|(id, _)| !of_a.contains_key(*id)).map(|(id, rows)| row(id, &[], rows)));
    rows.sort_by(|x, y| (x.arrival_rank, &x.session_id).cmp(&(y.arrival_rank, &y.session_id)));
    if judged != [true, true] {
        rows.iter_mut().for_each(|row| row.change = None);
    }
    let of_change = |change: StarvationChange| -> Option<Vec<String>> {
        let of = rows.iter().filter(|row| row.change == Some(change)).map(|row| row.session_id.clone());
        (judged == [true, true]).then(|| of.collect())
    };
    let starved = |is_judged: bool, side: fn(&SessionDelta) -> &Option<SessionSide>| {
        is_judged.then(|| rows.iter().filter(|row| is_starved(side(row))).count() as u64)
    };
    SessionChanges {
        starved_a: starved(judged[0], |row| &row.a),
        starved_b: starved(judged[1], |row| &row.b),
        became_starved: of_change(StarvationChange::BecameStarved),
        freed: of_change(StarvationChange::Freed),
        still_starved: of_change(StarvationChange::StillStarved),
        rows,
    }
}

/// In more than half of its repeats.
fn is_starved(side: &Option<SessionSide>) -> bool {
    side.as_ref().is_some_and(|side| side.starved_in.is_some_and(|starved| starved * 2 > side.repeats))
}

fn by_id(side: &Side) -> BTreeMap<&str, Vec<&SessionRow>> {
    let mut by_id: BTreeMap<&str, Vec<&SessionRow>> = BTreeMap::new();
    for row in side.summaries.iter().flat_map(|run| &run.sessions) {
        by_id.entry(&row.session_id).or_default().push(row);
    }
    by_id
}

fn delta(
    id: &str,
    side_a: Option<SessionSide>,
    side_b: Option<SessionSide>,
    rows: [&[&SessionRow]; 2],
) -> SessionDelta {
    let all = || rows.into_iter().flatten();
    SessionDelta {
        session_id: id.into(),
        arrival_rank: all().next().map_or(0, |row| row.arrival_rank),
        turns: all().map(|row| row.turns).max().unwrap_or(0),
        peak_input_tokens: all().map(|row| row.peak_input_tokens).max().unwrap_or(0),
        change: Some(match (is_starved(&side_a), is_starved(&side_b)) {
            (false, false) => StarvationChange::None,
            (false, true) => StarvationChange::BecameStarved,
            (true, false) => StarvationChange::Freed,
            (true, true) => StarvationChange::StillStarved,
        }),
        mean_e2e_delta_ms: side_a
            .as_ref()
            .and_then(|side| side.mean_e2e_ms)
            .zip(side_b.as_ref().and_then(|side| side.mean_e2e_ms))
            .map(|(a, b)| b - a),
        a: side_a,
        b: side_b,
    }
}

fn side(rows: &[&SessionRow], keeps_sessions: bool) -> Option<SessionSide> {
    let first = rows.first()?;
    let over = |of: fn(&SessionRow) -> Option<f64>| mean(&rows.iter().filter_map(|row| of(row)).collect::<Vec<f64>>());
    Some(SessionSide {
        starved_in: keeps_sessions.then(|| rows.iter().filter(|row| row.starves()).count() as u32),
        repeats: rows.len() as u32,
        direct_share: over(|row| row.direct_share),
        mean_e2e_ms: over(|row| row.mean_e2e_ms),
        main_reason: first.main_reason,
        pinned_worker: first.pinned_worker.as_deref().map(String::from),
        pattern: first.pattern.clone(),
    })
}
