//! The tables of a sweep: a row a point, a row a cell, the knees.
//!
//! On a terminal and in Markdown an axis of one value has no column, and latencies that may not be read are `–`; CSV and JSON have
//! all. Where a terminal is narrow, the columns that answer (`bad`, `predicted`, `direct`, `starved`) stay and others go.

use std::borrow::Cow;

use super::table::{Cell, Column, Table};
use crate::base::words::{percent, percent_range, rate, seconds};
use crate::results::sweep::{CellState, Knee, SweepAxis, SweepCell, SweepGroup, SweepReport};
use crate::results::{Band, Figure};

/// Figures of a row, with their titles; the rest are in CSV alone.
const SHOWN: [(Figure, &str); 9] = [
    (Figure::P50_TTFT, "TTFT p50"),
    (Figure::P99_TTFT, "TTFT p99"),
    (Figure::P50_E2E, "E2E p50"),
    (Figure::P99_E2E, "E2E p99"),
    (Figure::REQUEST_THROUGHPUT, "req/s"),
    (Figure::SLO_ATTAINMENT, "in SLO"),
    (Figure::BAD_SHARE, "bad"),
    (Figure::DIRECT_SHARE, "direct"),
    (Figure::STARVED_SESSIONS, "starved"),
];

/// Figures that go where a terminal is too narrow for all, the first ones first; then [`RUNS`] and the verdict.
const LEAST: [Figure; 6] = [
    Figure::REQUEST_THROUGHPUT,
    Figure::P50_TTFT,
    Figure::P50_E2E,
    Figure::P99_TTFT,
    Figure::P99_E2E,
    Figure::SLO_ATTAINMENT,
];

const RUNS: &str = "runs";
const VERDICT: &str = "verdict";
const PREDICTED: &str = "predicted_direct_share";
const PREDICTED_LEAST: &str = "predicted_direct_share_at_least";

/// What the two ends of a predicted share are, in words.
pub const PREDICTED_RANGE: &str = "predicted: the lower end is a run in which no turn goes direct while its D is over its pool, the higher one has room for \
     all; where slots are short, both rest on an estimate of who gets one, and more may go direct where the link or room on D \
     hold up P";

/// What goodput of a sweep is, with its objectives; `None` where there are none.
pub fn in_slo(report: &SweepReport) -> Option<String> {
    let objectives = report.objectives()?;
    Some(format!("in SLO, goodput: requests that ended ok within {objectives}"))
}

/// What a knee is, in words.
pub const KNEE: &str =
    "Knees: beyond this value of an axis a figure gains less than its mean along the axis, all others held (Kneedle)";

/// One row a point, in order of the cells; points of which no cell was to be run are left out.
pub fn sweep_groups(report: &SweepReport) -> Table {
    let groups: Vec<&SweepGroup> =
        report.groups.iter().filter(|group| group.counts.missing < group.counts.planned).collect();
    let mut columns = axis_columns(report);
    columns.extend([number(RUNS, "runs"), text(VERDICT, "verdict")]);
    let rest = || Figure::HEADLINE.iter().filter(|figure| SHOWN.iter().all(|(shown, _)| shown != *figure));
    let has_slos = groups.iter().any(|group| group.band(Figure::SLO_ATTAINMENT).is_some());
    for (figure, title) in SHOWN {
        let on_terminal = has_slos || figure != Figure::SLO_ATTAINMENT;
        columns.push(Column { on_terminal, ..number(figure.to_string(), title) });
        columns.push(half_width(figure));
        if figure == Figure::BAD_SHARE {
            let least = Column { title: "predicted, lower end".into(), ..wide(PREDICTED_LEAST) };
            columns.extend([number(PREDICTED, "predicted"), least]);
        }
    }
    for figure in rest().copied() {
        columns.extend([Column { title: figure.name().into(), ..wide(figure.to_string()) }, half_width(figure)]);
    }
    columns.extend([wide("objectives"), wide("reason"), wide("cause")]);
    let row = |group: &&SweepGroup| {
        let mut row: Vec<Cell> = group.values.iter().map(Cell::text).collect();
        row.extend([runs(group), Cell::text(verdict(group))]);
        for (figure, _) in SHOWN {
            row.extend(with_interval(group, figure));
            if figure == Figure::BAD_SHARE {
                row.extend([predicted(group), Cell::number(group.predicted_direct_share_at_least, percent)]);
            }
        }
        rest().for_each(|figure| row.extend(with_interval(group, *figure)));
        row.extend(
            [&group.objectives, &group.reason, &group.cause].map(|text| Cell::text(text.clone().unwrap_or_default())),
        );
        row
    };
    let rows = groups.iter().map(row).collect();
    Table::new(columns, rows, &groups)
}

/// [`sweep_groups`] on a terminal of so many columns, and the titles of the columns that are left out for that.
pub fn fitted_groups(report: &SweepReport, width: usize) -> (Table, Vec<String>) {
    let figures = LEAST.iter().map(|figure| Cow::Owned(figure.to_string()));
    let least: Vec<_> = figures.chain([RUNS, VERDICT].map(Cow::Borrowed)).collect();
    sweep_groups(report).fitted(width, &least)
}

/// [`sweep_groups`] for a page: the columns that answer right behind the axes, and none that is empty.
pub fn page_groups(report: &SweepReport) -> Table {
    let mut first: Vec<String> = report.sweep.axes.iter().map(|axis| axis.key.clone()).collect();
    first.extend([VERDICT.into(), Figure::DIRECT_SHARE.to_string(), PREDICTED.into()]);
    first.extend([Figure::STARVED_SESSIONS, Figure::BAD_SHARE].map(|figure| figure.to_string()));
    sweep_groups(report).ranked(|key| first.iter().position(|known| known == key).unwrap_or(first.len()))
}

/// One row a cell of those that `wanted` takes; those that have not run are called `missing`.
pub fn sweep_cells(report: &SweepReport, missing: &str, wanted: impl Fn(&SweepCell) -> bool) -> Table {
    let cells: Vec<&SweepCell> = report.cells.iter().filter(|cell| wanted(cell)).collect();
    let mut columns = vec![number("cell", "cell")];
    columns.extend(axis_columns(report));
    columns.extend([number("seed", "seed"), text("state", "state")]);
    let has_errors = cells.iter().any(|cell| cell.error.is_some());
    columns.push(Column { on_terminal: has_errors, ..text("error", "error") });
    let row = |cell: &&SweepCell| {
        let mut row = vec![Cell::count(cell.number.into())];
        row.extend(cell.values.iter().map(Cell::text));
        let state = if cell.state == CellState::Missing { missing } else { cell.state.as_str() };
        row.extend([Cell::text(cell.seed.to_string()), Cell::text(state)]);
        row.push(Cell::text(cell.error.clone().unwrap_or_default()));
        row
    };
    let rows = cells.iter().map(row).collect();
    Table::new(columns, rows, &cells)
}

/// One row a cell for a page: what became of it, and why it is as it is.
pub fn page_cells(report: &SweepReport) -> Table {
    let columns = vec![
        number("cell", "cell"),
        text("point", "point"),
        number("seed", "seed"),
        text("state", "state"),
        text("verdict", "verdict"),
        number(Figure::P99_E2E.to_string(), "E2E p99"),
        number(Figure::DIRECT_SHARE.to_string(), "direct"),
        text("why", "why"),
        text("folder", "folder"),
    ];
    let row = |cell: &SweepCell| {
        let result = cell.result.as_ref();
        let figure = |figure: Figure| result.and_then(|result| result.figures.get(figure));
        let why = result.and_then(|result| result.reason.clone().or(result.cause.clone()));
        vec![
            Cell::count(cell.number.into()),
            Cell::text(cell.words()),
            Cell::text(cell.seed.to_string()),
            Cell::text(cell.state.as_str()),
            Cell::text(result.map_or("", |result| result.verdict.as_str())),
            Cell::number(figure(Figure::P99_E2E).filter(|_| cell.shows_headline()), show(Figure::P99_E2E)),
            Cell::number(figure(Figure::DIRECT_SHARE), percent),
            Cell::text(cell.error.clone().or(why).unwrap_or_default()),
            Cell::text(&cell.folder),
        ]
    };
    Table::new(columns, report.cells.iter().map(row).collect(), &report.cells)
}

/// The knees that were found, one a row.
pub fn knees(report: &SweepReport) -> Table {
    let found: Vec<&Knee> = report.knees.iter().filter(|knee| knee.knee.is_some()).collect();
    let columns = vec![
        text("figure", "figure"),
        text("knee", "gains less beyond"),
        text("held", "with"),
        number("value", "value there"),
        text("reason", "reached there"),
    ];
    let row = |knee: &&Knee| {
        let point = knee.knee.as_ref();
        vec![
            Cell::text(title(knee.figure)),
            Cell::text(point.map_or_else(String::new, |point| format!("{} {}", knee.axis, point.at))),
            Cell::text(if knee.held_words.is_empty() { "–" } else { &knee.held_words }),
            Cell::number(point.map(|point| point.value), show(knee.figure)),
            Cell::text(&knee.reason),
        ]
    };
    let rows = found.iter().map(row).collect();
    Table::new(columns, rows, &found)
}

fn axis_columns(report: &SweepReport) -> Vec<Column> {
    let column = |axis: &SweepAxis| Column {
        title: Cow::Owned(axis.label.clone()),
        key: Cow::Owned(axis.key.clone()),
        left: !axis.is_numeric(),
        on_terminal: axis.values.len() > 1,
    };
    report.sweep.axes.iter().map(column).collect()
}

fn number(key: impl Into<Cow<'static, str>>, title: &'static str) -> Column {
    Column { title: Cow::Borrowed(title), key: key.into(), left: false, on_terminal: true }
}

fn text(key: &'static str, title: &'static str) -> Column {
    Column { left: true, ..number(key, title) }
}

fn wide(key: impl Into<Cow<'static, str>>) -> Column {
    let key = key.into();
    Column { title: key.clone(), key, left: false, on_terminal: false }
}

/// Half the interval of a figure.
fn half_width(figure: Figure) -> Column {
    Column { title: format!("{}, ±", title(figure)).into(), ..wide(format!("{figure}_ci95")) }
}

/// `3`, or `2/3` where some did not end.
fn runs(group: &SweepGroup) -> Cell {
    let counts = &group.counts;
    let shown = match counts.done == counts.planned {
        true => counts.done.to_string(),
        false => format!("{}/{}", counts.done, counts.planned),
    };
    Cell { shown, raw: counts.done.to_string() }
}

/// The range of the prediction; for programs its upper end.
fn predicted(group: &SweepGroup) -> Cell {
    let words = group.predicted().map(|(low, high)| percent_range(low, high));
    Cell { shown: words.unwrap_or_else(|| "–".into()), ..Cell::number(group.predicted_direct_share, percent) }
}

/// The verdict in a word; of a point without a run, what became of it.
fn verdict(group: &SweepGroup) -> &'static str {
    let counts = &group.counts;
    match group.verdict {
        Some(verdict) => verdict.as_str(),
        None if counts.refused > 0 => "refused",
        None if counts.failed > 0 => "failed",
        None => "missing",
    }
}

/// Mean and half width of the 95 % interval: together for people, apart for programs.
fn with_interval(group: &SweepGroup, figure: Figure) -> [Cell; 2] {
    let band = group.shown(figure);
    let ci95 = band.and_then(|band| band.ci95);
    let shown = band.map_or_else(|| "–".into(), |band| words(figure, band));
    let raw = band.map_or_else(String::new, |band| band.mean.to_string());
    [Cell { shown, raw }, Cell::number(ci95, show(figure))]
}

/// `1.75 s ±0.02`: the mean, and the half width in its unit and decimals, left out where those are all 0.
fn words(figure: Figure, band: &Band) -> String {
    let shown = show(figure)(band.mean);
    let number = shown.split(' ').next().unwrap_or_default();
    let decimals = number.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let scale = match figure.unit() {
        "ms" => 1e-3,
        "share" => 100.0,
        _ => 1.0,
    };
    let half = band.ci95.map(|half| format!("{:.decimals$}", half * scale));
    match half.filter(|half| half.contains(|c: char| matches!(c, '1'..='9'))) {
        Some(half) => format!("{shown} ±{half}"),
        None => shown,
    }
}

/// How a value of a figure is written.
fn show(figure: Figure) -> fn(f64) -> String {
    match figure.unit() {
        "ms" => seconds,
        "share" => percent,
        "requests/s" | "tokens/s" => rate,
        "sessions" | "requests" => whole,
        _ => |value| format!("{value:.3}"),
    }
}

/// A count; a mean of counts with one decimal.
fn whole(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

/// How a figure is called in tables of a sweep.
pub(in crate::results) fn title(figure: Figure) -> String {
    let shown = SHOWN.iter().find(|(shown, _)| *shown == figure);
    shown.map_or_else(|| figure.name(), |(_, title)| (*title).to_owned())
}
