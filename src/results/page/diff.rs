//! The page of a comparison: what changed and whether it is more than chance, where it comes from, and for whom.

use super::chart::{Axis, Chart, Curve, Figure, Range, short};
use super::html::Html;
use super::matrix::{Heading, shaded};
use super::overview::{list, scroll};
use super::shell::{Page, Section};
use super::tables::{Setting, plain, sortable, words as left};
use crate::base::words::{count, fine_time, percent};
use crate::record::ExecutionMode;
use crate::results::diff::{
    ComparisonKind, Curve as Percentiles, DeltaVerdict, DiffReport, MetricDelta, SideFacts, Split, Transition,
};
use crate::results::render::diff as words;

/// Percentiles in the table of a distribution.
const LADDER: [f64; 13] = [0.0, 1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99, 100.0];

/// The page of a comparison as one HTML file.
pub fn diff_page(report: &DiffReport) -> String {
    let mut sections = vec![
        Section::new("verdict", "What came of it", verdict(report)),
        Section::new("sides", "What was compared", sides(report)),
    ];
    if report.comparison != ComparisonKind::Identical {
        let setting = Setting { id: "table-figures", caption: "Figures of A and B", ..Setting::default() };
        let mut figures = Section::new("figures", "Figures", before_figures(report)).with(deltas(report));
        figures.after = sortable(&words::figures(report, words::Shown::All), setting);
        sections.extend([
            figures,
            Section::new("cdf", "How latencies spread", Html::new()).with(curves(report)),
            splits(report),
            Section::new("transitions", "From mode to mode", transitions(report)),
            Section::new("sessions", "Sessions starved and freed", sessions(report)),
            Section::new("why", "Why", causes(report)),
            Section::new("workers", "Workers", lines(words::workers(report), "Nothing is known of workers.")),
            Section::new("outcomes", "Outcomes", lines(words::outcomes(report), "All ended alike.")),
        ]);
    }
    let title = format!("{} against {}", report.b.label, report.a.label);
    let subtitle = format!("{}. Every difference is B − A.", words::result(report));
    Page { kind: "diff", title, subtitle, sections }.render()
}

fn verdict(report: &DiffReport) -> Html {
    let class = match &report.comparison {
        ComparisonKind::Identical => "verdict good",
        ComparisonKind::Different if !report.is_crossed() && words::caution(report).is_none() => "verdict",
        ComparisonKind::Different | ComparisonKind::NotComparable { .. } => "verdict bad",
    };
    let mut html = Html::new();
    html.element("p", &[("class", class)], |html| {
        let said = words::failed(report).into_iter().chain([words::result(report)]);
        html.line("strong", &said.collect::<Vec<_>>().join(" · "));
    });
    html.add(&caution(report));
    let forced = report.forced.iter().map(|forced| format!("forced: {}: {}", forced.text, forced.meaningless));
    let notes: Vec<String> = report.notes.iter().cloned().chain(forced).collect();
    if !notes.is_empty() {
        list(&mut html, notes.iter());
    }
    if !report.thresholds.is_empty() {
        html.line("p", "Conditions of --fail-on:");
        list(&mut html, words::thresholds(&report.thresholds).iter());
    }
    html
}

/// Before every figure of a run that may not be read.
fn caution(report: &DiffReport) -> Html {
    let mut html = Html::new();
    words::caution(report).iter().for_each(|caution| {
        html.line_with("p", &[("class", "verdict bad")], caution);
    });
    html
}

/// What to know before the figures.
fn before_figures(report: &DiffReport) -> Html {
    let mut html = caution(report);
    words::objectives(report).iter().for_each(|words| {
        html.line_with("p", &[("class", "hint")], &format!("{words}."));
    });
    html
}

fn sides(report: &DiffReport) -> Html {
    let mut html = Html::new();
    let fact = |name: &str, of: &dyn Fn(&SideFacts) -> String| vec![name.to_owned(), of(&report.a), of(&report.b)];
    let rows = [
        fact("side", &|side| side.label.clone()),
        fact("trace", &|side| side.trace.clone()),
        fact("requests, sessions", &|side| format!("{}, {}", count(side.requests), count(side.sessions))),
        fact("topology", &|side| side.topology.clone()),
        fact("mechanism, policy", &|side| format!("{}, {}", side.mechanism, side.policy)),
        fact("limits", &|side| side.limits.clone()),
        fact("time scale", &|side| side.time_scale_text.clone()),
        fact("driver", &|side| side.driver.clone()),
        fact("runs", &|side| side.runs.iter().map(run_words).collect::<Vec<_>>().join("; ")),
    ];
    scroll(&mut html, "The two sides", &left(&["", "A", "B"], rows));
    let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "–".into());
    let row =
        |change: &crate::results::diff::ScenarioChange| vec![change.key.clone(), value(&change.a), value(&change.b)];
    let changes = left(&["scenario key", "A", "B"], report.scenario_changes.iter().map(row));
    if changes.is_empty() {
        html.line("p", "The scenarios do not differ, seed and name aside.");
    }
    scroll(&mut html, "What differs in the scenarios", &changes);
    let chance = [words::paired(report)].into_iter().chain(words::chance(report));
    let chance: Vec<String> = chance.chain(words::objectives(report)).collect();
    list(&mut html, chance.iter());
    html
}

fn run_words(run: &crate::results::diff::RunLine) -> String {
    let verdict = run.verdict.as_str();
    format!("{} (seed {}, {}, {verdict})", run.path, run.seed, run.state.as_str())
}

fn lines(lines: Vec<String>, none: &str) -> Html {
    if lines.is_empty() {
        return Html::of("p", none);
    }
    let mut html = Html::new();
    list(&mut html, lines.iter());
    html
}

/// Changes in per cent of A with their intervals.
fn deltas(report: &DiffReport) -> Option<Figure> {
    let rows: Vec<Range> = report.metrics.iter().filter_map(delta).collect();
    if rows.is_empty() {
        return None;
    }
    let of = |verdict: DeltaVerdict| report.metrics.iter().filter(|metric| metric.verdict == verdict).count() as u64;
    let widest = report.metrics.iter().filter(|metric| metric.relative.is_some_and(f64::is_finite));
    let widest = widest.max_by(|a, b| a.relative.unwrap_or(0.0).abs().total_cmp(&b.relative.unwrap_or(0.0).abs()));
    let widest = widest.map_or_else(String::new, |metric| {
        format!("; {} moves most, by {} %", metric.key, words::signed(metric.relative.unwrap_or(0.0) * 100.0, "%"))
    });
    let says = format!(
        "{} better in B, {} worse, {} inside the noise, {} unclear, {} unjudged{widest}.",
        count(of(DeltaVerdict::Better)),
        count(of(DeltaVerdict::Worse)),
        count(of(DeltaVerdict::InsideNoise)),
        count(of(DeltaVerdict::Unclear)),
        count(of(DeltaVerdict::Unjudged)),
    );
    let legend = [("better in B", "seed"), ("worse in B", "cap"), ("no verdict, or inside the noise", "turn1")];
    Some(Figure {
        id: "chart-deltas",
        title: "Changes from A to B".into(),
        says,
        note: "In per cent of A; the bar is the bootstrap interval, where there is one. Figures that are 0 in A are in the table alone.".into(),
        legend: legend.map(|(name, color)| (name.into(), color.into())).to_vec(),
        chart: Some(Chart::Ranges { x: Axis::linear("change", "%"), rows }),
        table: Html::new(),
    })
}

fn delta(metric: &MetricDelta) -> Option<Range> {
    let (a, at) = (metric.a.filter(|a| *a != 0.0)?, metric.relative?);
    let interval = metric.interval.map_or((at, at), |interval| (interval.lo / a, interval.hi / a));
    // Nothing can fall by more than all of it; resamples whose A is larger would say so and flatten the rest of the chart.
    let interval = (interval.0.max(-1.0), interval.1);
    let color = match metric.verdict {
        DeltaVerdict::Better => "seed",
        DeltaVerdict::Worse => "cap",
        DeltaVerdict::Changed => "direct",
        DeltaVerdict::Same
        | DeltaVerdict::InsideNoise
        | DeltaVerdict::Unclear
        | DeltaVerdict::Unjudged
        | DeltaVerdict::NotComparable => "turn1",
    };
    let show = |value: Option<f64>| {
        value.map_or_else(|| "–".to_owned(), |value| super::replicas::in_unit(value, &metric.unit))
    };
    Some(Range {
        label: metric.key.clone(),
        low: short(interval.0 * 100.0),
        at: short(at * 100.0),
        high: short(interval.1 * 100.0),
        color: color.into(),
        note: format!("{} → {}", show(metric.a), show(metric.b)),
    })
}

/// Both cumulative distributions of each latency.
fn curves(report: &DiffReport) -> Vec<Figure> {
    let ids = ["chart-cdf-0", "chart-cdf-1", "chart-cdf-2", "chart-cdf-3", "chart-cdf-4"];
    report
        .curves
        .iter()
        .zip(ids)
        .filter(|(curve, _)| !curve.points.is_empty())
        .map(|(curve, id)| cdf(curve, id))
        .collect()
}

fn cdf(curve: &Percentiles, id: &'static str) -> Figure {
    let name = curve.metric.to_uppercase();
    let side = |label: &str, color: &str, dash, of: fn(&crate::results::diff::CurvePoint) -> Option<f64>| {
        let points = curve.points.iter().filter_map(|point| Some([short(of(point)?.max(0.1) / 1e3), point.percentile]));
        Curve { name: label.into(), color: color.into(), dash, points: points.collect() }
    };
    // A value stands at its highest percentile: that of a lower one is the next on the curve.
    let at = |percentile: f64| curve.points.iter().find(|point| point.percentile >= percentile);
    let middle = at(50.0);
    let show = |ms: Option<f64>| ms.map_or_else(|| "–".to_owned(), fine_time);
    let says = middle.map_or_else(String::new, |point| {
        format!("the median {name} goes from {} to {}.", show(point.a_ms), show(point.b_ms))
    });
    let row = |percentile: &f64| {
        let point = at(*percentile)?;
        Some(vec![format!("p{percentile}"), show(point.a_ms), show(point.b_ms)])
    };
    let rows = LADDER.iter().filter_map(row);
    Figure {
        id,
        title: format!("{name} of A and B, cumulative"),
        says,
        note: "Of ok requests; logarithmic time axis. Scale shows the tail.".into(),
        legend: vec![("A".into(), "k0".into()), ("B (dashed)".into(), "k1".into())],
        chart: Some(Chart::Lines {
            x: Axis::log(name.clone(), "s"),
            y: Axis::linear("share of requests", "%"),
            series: vec![side("A", "k0", "solid", |point| point.a_ms), side("B", "k1", "dashed", |point| point.b_ms)],
            marks: Vec::new(),
            cumulative: true,
        }),
        table: plain(&[&name, "A", "B"], rows),
    }
}

/// Kitagawa's split of the means.
fn splits(report: &DiffReport) -> Section {
    let mut section = Section::new("splits", "Where the difference of the means comes from", Html::new());
    if report.splits.is_empty() {
        section.body = Html::of("p", "There is no difference of means to split.");
    }
    let ids =
        [("chart-split-0", "table-split-0"), ("chart-split-1", "table-split-1"), ("chart-split-2", "table-split-2")];
    for (split, (chart, table)) in report.splits.iter().zip(ids) {
        section.figures.push(split_figure(split, chart));
        let caption = words::split_title(split);
        section
            .after
            .add(&sortable(&words::split_table(split), Setting { id: table, caption: &caption, ..Setting::default() }));
    }
    section
}

fn split_figure(split: &Split, id: &'static str) -> Figure {
    let name = split.metric.to_uppercase();
    let parts = [
        ("all".to_owned(), split.delta_ms, "k0"),
        ("other mix of modes".to_owned(), split.mix_ms, "k5"),
        ("within the modes".to_owned(), split.within_ms, "k4"),
    ];
    Figure {
        id,
        title: format!("Mean {name}, split"),
        says: format!(
            "of {}, {} come from another mix of modes and {} from other latencies within them.",
            words::signed(split.delta_ms, "ms"),
            words::signed(split.mix_ms, "ms"),
            words::signed(split.within_ms, "ms")
        ),
        note: "Kitagawa's split: mix + within = all.".into(),
        legend: Vec::new(),
        chart: Some(Chart::Bars {
            y: Axis::linear("B − A", "s"),
            categories: parts.iter().map(|(name, ..)| name.clone()).collect(),
            values: parts.iter().map(|(_, ms, _)| short(ms / 1e3)).collect(),
            color: "direct".into(),
            colors: parts.iter().map(|(.., color)| (*color).to_owned()).collect(),
        }),
        table: Html::new(),
    }
}

/// Modes of A (rows) by modes of B (columns).
fn transitions(report: &DiffReport) -> Html {
    if report.transitions.is_empty() {
        return Html::of("p", "No request is paired.");
    }
    let stayed: f64 = report.transitions.iter().filter(|t| t.from == t.to).map(|t| t.share).sum();
    let mut html = Html::of("p", &format!("{} of the paired requests kept their mode.", percent(stayed)));
    let heading = Heading {
        caption: "Paired requests by mode in A (rows) and in B (columns); stronger colour is more",
        corner: "A \\ B",
    };
    let most = report.transitions.iter().map(|t| t.share).fold(f64::MIN_POSITIVE, f64::max);
    let matrix = shaded(heading, &modes_seen(report, |t| t.from), &modes_seen(report, |t| t.to), |from, to| {
        let found = report.transitions.iter().find(|t| t.from.as_str() == from && t.to.as_str() == to)?;
        Some((format!("{} ({})", count(found.count), percent(found.share)), found.share / most))
    });
    scroll(&mut html, "Modes of A by modes of B", &matrix);
    let setting = Setting { id: "table-transitions", caption: "The same as a list", ..Setting::default() };
    html.add(&sortable(&words::transitions(&report.transitions), setting));
    html
}

/// Modes on one side of the transitions, in the order of tables.
fn modes_seen(report: &DiffReport, of: fn(&Transition) -> ExecutionMode) -> Vec<&'static str> {
    let seen = ExecutionMode::ALL.iter().filter(|mode| report.transitions.iter().any(|t| of(t) == **mode));
    seen.map(|mode| mode.as_str()).collect()
}

fn sessions(report: &DiffReport) -> Html {
    let mut html = lines(words::sessions(report), "Nothing is known of sessions.");
    html.add(&sortable(
        &words::session_rows(report),
        Setting {
            id: "table-sessions",
            caption: "By session: those that became starved first, then those freed",
            filter: "Show rows with",
            all: "pdreplay diff --format json has them all.",
        },
    ));
    html
}

fn causes(report: &DiffReport) -> Html {
    let mut html = Html::new();
    for (name, side) in [("A", &report.a), ("B", &report.b)] {
        html.line("h3", &format!("{name}: {}", side.label));
        if side.causes.is_empty() {
            html.line("p", "Nothing in the data stands out as a cause.");
        }
        list(&mut html, side.causes.iter().map(|line| &line.text));
    }
    html
}
