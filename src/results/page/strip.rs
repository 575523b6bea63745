//! Sessions over time, each cell coloured by the path that took most of it: who starves, from when on.

use std::collections::HashMap;

use super::RunPage;
use super::chart::{Chart, Class, FAILED, Figure, Order, Row, mode_color};
use super::html::Html;
use super::tally::{CLASSES, FAILED_CLASS, Lane};
use crate::base::words::{count, plural, seconds};
use crate::record::ExecutionMode;
use crate::results::SessionRow;

/// Most sessions with a row each; more are drawn in bands.
const MOST_LANES: usize = 200;
/// Bands of a run with more sessions.
const BANDS: usize = 100;

/// The strip of a run.
pub(super) fn sessions_over_time(run: &RunPage) -> Figure {
    let lanes: HashMap<&str, &Lane> = run.tally.sessions.iter().map(|lane| (lane.id.as_str(), lane)).collect();
    let mut sessions: Vec<&SessionRow> =
        run.summary.sessions.iter().filter(|row| lanes.contains_key(row.session_id.as_str())).collect();
    let columns = run.tally.width();
    let width_s = run.tally.modes.width_ns() as f64 / 1e9;
    let per_band = if sessions.len() > MOST_LANES { sessions.len().div_ceil(BANDS) } else { 1 };
    let mut used = [false; CLASSES];
    let mut order = |name: &'static str, sessions: &[&SessionRow]| Order {
        name,
        rows: sessions.chunks(per_band).map(|band| row(band, &lanes, columns, &mut used)).collect(),
    };
    sessions.sort_by_key(|row| row.arrival_rank);
    let by_arrival = order("by arrival", &sessions);
    let share = |row: &&SessionRow| row.direct_share.unwrap_or(f64::MAX);
    sessions.sort_by(|a, b| share(a).total_cmp(&share(b)).then(a.arrival_rank.cmp(&b.arrival_rank)));
    let by_share = order("by direct share", &sessions);
    let classes: Vec<Class> = (0..CLASSES).filter(|class| used[*class]).map(class).collect();
    let drawn = columns > 0 && !sessions.is_empty();
    Figure {
        id: "chart-sessions",
        title: "Sessions over time".into(),
        says: if drawn { words(run, &sessions) } else { "no session sent a request.".into() },
        note: note(per_band, width_s),
        legend: classes.iter().map(|class| (class.name.clone(), class.color.clone())).collect(),
        chart: drawn.then_some(Chart::Strip { width_s, columns, classes, orders: vec![by_arrival, by_share] }),
        table: Html::new(),
    }
}

fn class(class: usize) -> Class {
    let mode = ExecutionMode::ALL.get(class).copied();
    Class {
        letter: letter(class),
        name: mode.map_or_else(|| "failed, whatever its path".into(), |mode| mode.to_string()),
        color: mode.map_or(FAILED, mode_color).into(),
    }
}

fn letter(class: usize) -> char {
    char::from(b'a' + class as u8)
}

/// One row of a session, or of a band of them: in each column the kind that lasted longest in it.
fn row(band: &[&SessionRow], lanes: &HashMap<&str, &Lane>, columns: usize, used: &mut [bool; CLASSES]) -> Row {
    let cells = (0..columns).map(|column| {
        let mut sums = [0; CLASSES];
        for session in band {
            let lane = lanes.get(session.session_id.as_str());
            lane.and_then(|lane| lane.cells.cells().get(column)).into_iter().for_each(|kinds| kinds.add_to(&mut sums));
        }
        // A failure is rare and matters: it shows wherever there is one, except in a band.
        let longest = (0..CLASSES).max_by_key(|class| sums[*class]).filter(|class| sums[*class] > 0);
        let class = if band.len() == 1 && sums[FAILED_CLASS] > 0 { Some(FAILED_CLASS) } else { longest };
        class.into_iter().for_each(|class| used[class] = true);
        class.map_or(' ', letter)
    });
    let cells = cells.collect();
    let label = match band {
        [one] => format!("{} (rank {})", shortened(&one.session_id), one.arrival_rank),
        _ => {
            let ranks = || band.iter().map(|session| session.arrival_rank);
            format!("{} sessions, ranks {}–{}", band.len(), ranks().min().unwrap_or(0), ranks().max().unwrap_or(0))
        }
    };
    Row { label, cells }
}

fn shortened(id: &str) -> String {
    const MOST: usize = 24;
    if id.chars().count() <= MOST { id.into() } else { id.chars().take(MOST).chain(['…']).collect() }
}

fn words(run: &RunPage, sessions: &[&SessionRow]) -> String {
    let all = plural(sessions.len() as u64, "session");
    match &run.summary.fairness.starved {
        Some(starved) => format!(
            "{} of {all} starve: below 20 % of their later turns go direct; the earliest of them arrived as number {}.",
            count(starved.count),
            starved.first_rank
        ),
        None => format!("{all}; none is starved by others."),
    }
}

fn note(per_band: usize, width_s: f64) -> String {
    let column = seconds(width_s * 1e3);
    if per_band == 1 {
        return format!(
            "A row a session, {column} a column: from send to end of each request, the colour of its path, or of the one that \
             took most of the column; failures always show. Empty: thinking, waiting for its turn, or not begun."
        );
    }
    format!(
        "Too many sessions for a row each: a band stands for {per_band} neighbours, {column} a column, and has the colour of the \
         path that took most of their time in it. Rarer paths do not show; the table has the sessions one by one."
    )
}
