//! The page of a sweep: heat maps over two axes, knees, what the preflight predicted, and every cell.

use super::chart::{Axis, Chart, Curve, Figure as Drawing, Grid, Mark, short};
use super::html::Html;
use super::overview::list;
use super::replicas::in_unit;
use super::shell::{Page, Section};
use super::tables::{Setting, plain, sortable, words};
use crate::base::words::{count, percent, plural, signed};
use crate::results::sweep::{CellState, SweepAxis, SweepGroup, SweepReport};
use crate::results::{Figure, render};

/// Figures that can be chosen, the most wanted first, with their names.
const SHOWN: [(Figure, &str); 12] = [
    (Figure::P99_E2E, "E2E p99"),
    (Figure::P50_E2E, "E2E p50"),
    (Figure::P99_TTFT, "TTFT p99"),
    (Figure::P50_TTFT, "TTFT p50"),
    (Figure::DIRECT_SHARE, "direct share"),
    (Figure::STARVED_SESSIONS, "starved sessions"),
    (Figure::BAD_SHARE, "bad share"),
    (Figure::REQUEST_THROUGHPUT, "completed requests"),
    (Figure::REQUEST_GOODPUT, "goodput"),
    (Figure::SLO_ATTAINMENT, "share within the objectives"),
    (Figure::OUTPUT_THROUGHPUT, "answer tokens"),
    (Figure::JAIN_MEAN_E2E, "Jain's index of mean E2E"),
];

/// Units of the axes of a sweep that have one, by the end of their key.
const AXIS_UNITS: [(&str, &str); 10] = [
    ("cap", "sessions per D"),
    ("cap_max", "sessions per D"),
    ("concurrency", "requests"),
    ("max_sessions", "sessions"),
    ("_scale", "times faster"),
    ("_tokens", "tokens"),
    ("gbytes_per_s", "GB/s"),
    ("tokens_per_s", "tokens/s"),
    ("_ms", "ms"),
    ("_s", "s"),
];

/// Most heat maps; a sweep over more combinations of its further axes has the rest in its table.
const MOST_MAPS: usize = 12;
/// Most labels of points in a chart's table.
const MOST_POINTS: usize = 400;

/// The page of a sweep as one HTML file.
pub fn sweep_page(report: &SweepReport) -> String {
    let sweep = &report.sweep;
    let maps = Section::new("maps", "Figures over the axes", maps_hint(report)).with(maps(report));
    let is_broken = |state: CellState| state != CellState::Done;
    let broken = render::sweep_cells(report, CellState::Missing.as_str(), |cell| is_broken(cell.state));
    let broken_setting =
        Setting { id: "table-broken", caption: "Cells that gave nothing, and why", ..Setting::default() };
    let broken = sortable(&broken, broken_setting);
    let by_point = "By point: means over its seeds, ± half the 95 % interval; – where no headline may be read";
    let by_point = [by_point.to_owned()].into_iter().chain(render::in_slo(report)).collect::<Vec<_>>().join("; ");
    let points = Setting {
        id: "table-points",
        caption: &by_point,
        filter: "Show rows with",
        all: "pdreplay report SWEEP --format csv has them all.",
    };
    let cells = Setting {
        id: "table-cells",
        caption: "By cell: a cell is a run folder, pdreplay report FOLDER --html gives its page",
        filter: "Show rows with",
        all: "sweep.json has them all.",
    };
    let sections = vec![
        Section::new("verdict", "How far it came", verdict(report)),
        maps,
        Section::new("knees", "Knees", knees(report)),
        Section::new("predicted", "Predicted and observed direct share", Html::new()).with(predicted(report)),
        Section::new("points", "Points", sortable(&render::page_groups(report), points)),
        Section::new("broken", "Failed, refused and missing cells", or_none(broken, "Every cell ran to its end.")),
        Section::new("cells", "Cells", sortable(&render::page_cells(report), cells)),
        Section::new("facts", "What was swept", facts(report)),
    ];
    let subtitle = [
        plural(report.counts.planned.into(), "cell"),
        plural(report.groups.len() as u64, "point"),
        plural(sweep.seeds.len() as u64, "seed"),
        sweep.scenario.clone(),
        sweep.trace.clone(),
        sweep.target.clone(),
    ];
    Page { kind: "sweep", title: sweep.name.clone(), subtitle: subtitle.join(" · "), sections }.render()
}

fn verdict(report: &SweepReport) -> Html {
    let counts = &report.counts;
    let mut html = Html::new();
    let whole = counts.done == counts.planned && counts.without_headline == 0;
    let class = if whole { "verdict good" } else { "verdict part" };
    html.element("p", &[("class", class)], |html| {
        let all = plural(counts.planned.into(), "cell");
        html.line("strong", &format!("{} of {all} ran to their end", count(counts.done.into())));
    });
    let counted = [
        (counts.without_headline, "without a headline that may be read: their points show no latencies"),
        (counts.failed, "failed while running"),
        (counts.refused, "refused: their scenario contradicts itself, nothing was run"),
        (counts.missing, "missing: not run yet, or not to their end"),
    ];
    let notes: Vec<String> =
        counted.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{} {what}", count((*n).into()))).collect();
    list(&mut html, notes.iter().chain(&report.notes));
    if !report.sweep.description.is_empty() {
        html.line("p", &report.sweep.description);
    }
    html
}

fn or_none(html: Html, none: &str) -> Html {
    if html.is_empty() { Html::of("p", none) } else { html }
}

/// The axes of the maps: those with the most values, so that few maps are needed; columns numeric where one is.
fn plane(report: &SweepReport) -> Option<(usize, Option<usize>)> {
    let axes = &report.sweep.axes;
    let wide: Vec<usize> = (0..axes.len()).filter(|ix| axes[*ix].values.len() > 1).collect();
    let longest = |among: &mut dyn Iterator<Item = usize>| among.max_by_key(|ix| axes[*ix].values.len());
    let x = longest(&mut wide.iter().copied().filter(|ix| axes[*ix].is_numeric()))
        .or_else(|| longest(&mut wide.iter().copied()))
        .or((!axes.is_empty()).then_some(0))?;
    let y = longest(&mut wide.iter().rev().copied().filter(|ix| *ix != x));
    Some((x, y))
}

fn maps_hint(report: &SweepReport) -> Html {
    let hint = match plane(report) {
        Some(_) => "Means over the seeds. Empty cells gave nothing, or have no headline that may be read.",
        None => "This sweep has one point: there is nothing to draw over.",
    };
    let mut html = Html::new();
    let said = [hint.to_owned()].into_iter().chain(render::in_slo(report).map(|words| format!("{words}.")));
    said.for_each(|words| {
        html.line_with("p", &[("class", "hint")], &words);
    });
    html
}

/// One map for each combination of values of the axes that are not drawn.
fn maps(report: &SweepReport) -> Vec<Drawing> {
    let Some((x, y)) = plane(report) else { return Vec::new() };
    let held_of = |group: &SweepGroup| -> Vec<u32> {
        group.at.iter().enumerate().map(|(ix, at)| if ix == x || Some(ix) == y { 0 } else { *at }).collect()
    };
    let mut planes: Vec<Vec<u32>> = Vec::new();
    for group in &report.groups {
        let held = held_of(group);
        if !planes.contains(&held) {
            planes.push(held);
        }
    }
    const IDS: [&str; MOST_MAPS] =
        ["map-1", "map-2", "map-3", "map-4", "map-5", "map-6", "map-7", "map-8", "map-9", "map-10", "map-11", "map-12"];
    let of_plane = |held: &Vec<u32>| report.groups.iter().filter(|group| held_of(group) == *held).collect::<Vec<_>>();
    // A combination of which nothing has run has nothing to draw; its cells are in the table of those that gave nothing.
    let has_run = |held: &&Vec<u32>| {
        of_plane(held).iter().any(|group| SHOWN.iter().any(|(figure, _)| group.shown(*figure).is_some()))
    };
    planes.iter().filter(has_run).zip(IDS).map(|(held, id)| map(report, (x, y), id, held, &of_plane(held))).collect()
}

fn map(
    report: &SweepReport,
    (x, y): (usize, Option<usize>),
    id: &'static str,
    held: &[u32],
    groups: &[&SweepGroup],
) -> Drawing {
    let axes = &report.sweep.axes;
    let labels = |axis: &SweepAxis| axis.values.iter().map(|value| value.label.clone()).collect::<Vec<_>>();
    let rows = y.map_or_else(|| vec![String::new()], |y| labels(&axes[y]));
    let at = |row: usize, column: usize| {
        groups
            .iter()
            .copied()
            .find(|group| group.at[x] as usize == column && y.is_none_or(|y| group.at[y] as usize == row))
    };
    let columns = axes[x].values.len();
    let of = |shown: &(Figure, &str)| {
        let grid = grid(*shown, rows.len(), columns, &at)?;
        Some(Grid { says: best_words(groups, report, *shown), ..grid })
    };
    let grids = SHOWN.iter().filter_map(of).collect::<Vec<_>>();
    let none = || "no point has a headline that may be read.".to_owned();
    let held_words: Vec<String> = axes
        .iter()
        .enumerate()
        .filter(|(ix, axis)| *ix != x && Some(*ix) != y && axis.values.len() > 1)
        .map(|(ix, axis)| format!("{} {}", axis.label, axis.values[held[ix] as usize].label))
        .collect();
    let over = y.map_or_else(|| axes[x].label.clone(), |y| format!("{} × {}", axes[x].label, axes[y].label));
    let with = if held_words.is_empty() { String::new() } else { format!(", {}", held_words.join(", ")) };
    Drawing {
        id,
        title: format!("{over}{with}"),
        says: grids.first().map_or_else(none, |grid| grid.says.clone()),
        note: String::new(),
        legend: Vec::new(),
        table: Html::new(),
        chart: (!grids.is_empty()).then(|| Chart::Heat {
            x_name: axis_name(&axes[x]),
            x: labels(&axes[x]),
            width_s: None,
            y_name: y.map_or_else(String::new, |y| axis_name(&axes[y])),
            y: rows,
            grids,
        }),
    }
}

fn grid<'a>(
    (figure, name): (Figure, &str),
    rows: usize,
    columns: usize,
    at: &dyn Fn(usize, usize) -> Option<&'a SweepGroup>,
) -> Option<Grid> {
    let (unit, factor) = drawn_unit(figure);
    let band = |row, column| at(row, column).and_then(|group| group.shown(figure));
    let value = |row, column| band(row, column).map(|band| short(band.mean * factor));
    let note = |row, column| {
        let ci95 = band(row, column).and_then(|band| Some((band.ci95?, band.n)));
        let interval = ci95.map(|(half, n)| format!("± {} {unit} over {n} runs", short(half * factor)));
        let cause = at(row, column).and_then(|group| group.cause.clone());
        interval.into_iter().chain(cause).collect::<Vec<_>>().join("; ")
    };
    let values: Vec<Vec<Option<f64>>> =
        (0..rows).map(|row| (0..columns).map(|column| value(row, column)).collect()).collect();
    let notes = (0..rows).map(|row| (0..columns).map(|column| note(row, column)).collect()).collect();
    let some = values.iter().flatten().any(Option::is_some);
    some.then(|| Grid { name: name.into(), unit, says: String::new(), values, notes })
}

/// Title and unit: `cap, sessions per D`.
fn axis_name(axis: &SweepAxis) -> String {
    let of = |(end, _): &&(&str, &str)| axis.key.ends_with(end);
    AXIS_UNITS.iter().find(of).map_or_else(|| axis.label.clone(), |(_, unit)| format!("{}, {unit}", axis.label))
}

/// Unit on a page, and the factor to it.
fn drawn_unit(figure: Figure) -> (&'static str, f64) {
    match figure.unit() {
        "ms" => ("s", 1e-3),
        "share" => ("%", 100.0),
        "index" => ("", 1.0),
        unit => (unit, 1.0),
    }
}

/// Where a figure is least and most.
fn best_words(groups: &[&SweepGroup], report: &SweepReport, (figure, name): (Figure, &str)) -> String {
    let of = |group: &&SweepGroup| Some((group.shown(figure)?.mean, point_name(group, report)));
    let mut read: Vec<(f64, String)> = groups.iter().filter_map(of).collect();
    read.sort_by(|a, b| a.0.total_cmp(&b.0));
    let show = |value: f64| in_unit(value, figure.unit());
    match (read.first(), read.last()) {
        (Some((least, at)), Some((most, most_at))) if show(*least) != show(*most) => {
            format!("{name} is least at {at} ({}) and most at {most_at} ({}).", show(*least), show(*most))
        }
        (Some((only, _)), _) => format!("{name} is {} wherever it may be read.", show(*only)),
        (None, _) => format!("{name} may be read nowhere."),
    }
}

/// `kv-aware, 8`: the values on axes that have more than one.
fn point_name(group: &SweepGroup, report: &SweepReport) -> String {
    let axes = report.sweep.axes.iter().zip(&group.values).filter(|(axis, _)| axis.values.len() > 1);
    let names: Vec<String> = axes.map(|(axis, value)| format!("{} {value}", axis.label)).collect();
    if names.is_empty() { "the one point".into() } else { names.join(", ") }
}

fn knees(report: &SweepReport) -> Html {
    let setting = Setting { id: "table-knees", caption: render::KNEE, ..Setting::default() };
    let mut html = or_none(sortable(&render::knees(report), setting), "No knee was found.");
    let without = report.knees.iter().filter(|knee| knee.knee.is_none()).map(|knee| {
        let held = if knee.held_words.is_empty() { "–".to_owned() } else { knee.held_words.clone() };
        vec![render::title(knee.figure), knee.axis.clone(), held, knee.reason.clone()]
    });
    let table = words(&["figure", "along", "with", "why there is no knee"], without);
    if !table.is_empty() {
        html.element("details", &[], |html| {
            html.line("summary", "Curves without a knee");
            super::overview::scroll(html, "Curves without a knee", &table);
        });
    }
    html
}

/// What the preflight predicted against what came, a point each.
fn predicted(report: &SweepReport) -> Option<Drawing> {
    let of = |group: &SweepGroup| {
        let observed = group.band(Figure::DIRECT_SHARE)?.mean;
        let (low, high) = group.predicted()?;
        let off = if observed < low { observed - low } else { (observed - high).max(0.0) };
        Some(Prediction { point: point_name(group, report), low, high, observed, off })
    };
    let points: Vec<Prediction> = report.groups.iter().filter_map(of).collect();
    let furthest = points.iter().max_by(|a, b| a.off.abs().total_cmp(&b.off.abs()))?;
    let inside = points.iter().filter(|point| point.off.abs() < 0.01).count() as u64;
    let mut says =
        format!("{} of {} came as predicted, within 1 point", count(inside), plural(points.len() as u64, "point"));
    if furthest.off.abs() >= 0.01 {
        let Prediction { point, low, high, observed, .. } = furthest;
        let range = both_ends(*low, *high);
        says += &format!("; furthest off is {point}: {range} predicted, {} observed", percent(*observed));
    }
    let row = |point: &Prediction| {
        let off = if point.off == 0.0 {
            "–".to_owned()
        } else {
            signed(point.off, &format!("{:.1}", point.off.abs() * 100.0))
        };
        vec![point.point.clone(), both_ends(point.low, point.high), percent(point.observed), off]
    };
    let rows = points.iter().take(MOST_POINTS).map(row);
    let bars = points.iter().map(|point| {
        let ends = if point.low < point.high { vec![point.low, point.high] } else { vec![point.high] };
        Curve {
            name: point.point.clone(),
            color: "direct".into(),
            dash: "solid",
            points: ends.iter().map(|end| [short(end * 100.0), short(point.observed * 100.0)]).collect(),
        }
    });
    let even = Curve {
        name: "as predicted".into(),
        color: "turn1".into(),
        dash: "dashed",
        points: vec![[0.0, 0.0], [100.0, 100.0], [100.0, 100.0]],
    };
    Some(Drawing {
        id: "chart-predicted",
        title: "Direct share".into(),
        says: format!("{says}."),
        note: "Of the turns after each session's first: predicted before the run (across; a line is a range) and observed (up). At \
               the lower end no turn goes direct while the sessions on its D need more than its pool, the higher end has room \
               for all; fallbacks, which need room too, may bring it lower still. Where slots are short, both ends rest on an \
               estimate of who gets one, and more may go direct where the link or room on D hold up P."
            .into(),
        legend: vec![("a point of the sweep".into(), "direct".into()), ("as predicted".into(), "turn1".into())],
        chart: Some(Chart::Lines {
            x: Axis::linear("predicted", "%"),
            y: Axis::linear("observed", "%"),
            series: bars.chain([even]).collect(),
            marks: Vec::<Mark>::new(),
            cumulative: false,
        }),
        table: plain(&["point", "predicted", "observed", "beyond the range, points"], rows),
    })
}

/// `58.9–59.6 %`, however narrow: how far beyond the range a share came is counted from either end.
fn both_ends(low: f64, high: f64) -> String {
    let (from, to) = (percent(low), percent(high));
    if from == to { to } else { format!("{}–{to}", from.trim_end_matches(" %")) }
}

/// A direct share as it was predicted, as it came, and how far beyond the range that is.
struct Prediction {
    point: String,
    low: f64,
    high: f64,
    observed: f64,
    off: f64,
}

fn facts(report: &SweepReport) -> Html {
    let sweep = &report.sweep;
    let seeds: Vec<String> = sweep.seeds.iter().map(u64::to_string).collect();
    let mut facts = vec![
        ("Sweep", sweep.name.clone()),
        ("Base scenario", sweep.scenario.clone()),
        ("Trace", sweep.trace.clone()),
        ("Sent to", sweep.target.clone()),
        ("Seeds", seeds.join(" ")),
        ("Objectives", report.objectives().unwrap_or_default()),
        ("Before cells", sweep.between_cells.clone().unwrap_or_default()),
        ("Version", sweep.version.clone()),
    ];
    for axis in &sweep.axes {
        let values: Vec<&str> = axis.values.iter().map(|value| value.label.as_str()).collect();
        facts.push(("Axis", format!("{} ({}): {}", axis.label, axis.key, values.join(", "))));
    }
    let mut html = Html::new();
    html.element("dl", &[], |html| {
        for (name, value) in facts.iter().filter(|(_, value)| !value.is_empty()) {
            html.line("dt", name).line("dd", value);
        }
    });
    html
}
