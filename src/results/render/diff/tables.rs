//! The tables of a comparison: figures, split by mode, transitions, sessions.

use serde::Serialize;

use super::Shown;
use crate::base::words::{self, count, fine_time, percent, rate, seconds, tokens};
use crate::results::RunFigure;
use crate::results::diff::{
    DeltaVerdict, DiffReport, MetricDelta, SessionDelta, SessionSide, Split, StarvationChange, Transition,
};
use crate::results::render::table::{Cell, Column, Table};

/// Transitions, outcome changes and modes shown.
pub(super) const ROWS: usize = 10;
/// Figures that are shown unless all are wanted; those of `--fail-on` are shown, too.
const HEADLINE: [&str; 23] = [
    "mean_ttft_ms",
    "p50_ttft_ms",
    "p90_ttft_ms",
    "p99_ttft_ms",
    "mean_tpot_ms",
    "mean_e2e_ms",
    "p50_e2e_ms",
    "p90_e2e_ms",
    "p99_e2e_ms",
    "p99_e2e_ms_with_failures",
    "direct_share",
    "starved_sessions",
    "cached_token_share",
    "mean_recomputed_tokens",
    "index_blind_share",
    "index_over_promised_tokens",
    "index_under_promised_tokens",
    "bad_share",
    "slo_attainment",
    "request_throughput",
    "request_goodput",
    "output_throughput",
    "duration",
];

/// The figures, a row each.
pub(in crate::results) fn figures(report: &DiffReport, which: Shown) -> Table {
    let rows = listed(report, which);
    let repeats = report.noise.as_ref().map(|noise| noise.repeats_a.max(noise.repeats_b));
    let cells = |metric: &&MetricDelta| {
        let value = |value: Option<f64>| value.map_or_else(|| "–".into(), |value| shown(value, &metric.unit));
        let change = |value: f64| signed(value, &metric.unit);
        vec![
            metric.key.clone(),
            value(metric.a),
            value(metric.b),
            metric.delta.map_or_else(|| "–".into(), change),
            metric.relative.map_or_else(|| "–".into(), |relative| format!("{} %", signed(relative * 100.0, "%"))),
            verdict(metric.verdict, repeats),
            metric.interval.map_or_else(|| "–".into(), |i| format!("{} … {}", change(i.lo), change(i.hi))),
            metric.noise.map_or_else(|| "–".into(), |noise| half_width(noise, &metric.unit)),
        ]
    };
    let titles = [
        ("figure", true),
        ("A", false),
        ("B", false),
        ("B − A", false),
        ("%", false),
        ("verdict", true),
        ("interval", false),
        ("noise", false),
    ];
    table(&titles, rows.iter().map(cells).collect(), &rows)
}

/// The figures that are shown.
pub(super) fn listed(report: &DiffReport, shown: Shown) -> Vec<&MetricDelta> {
    let is_asked =
        |metric: &MetricDelta| report.thresholds.iter().any(|threshold| threshold.expr.contains(&metric.key));
    let is_headline = |metric: &MetricDelta| HEADLINE.contains(&metric.key.as_str()) || is_asked(metric);
    let is_wanted = |metric: &&MetricDelta| is_shown(metric, report) && (shown == Shown::All || is_headline(metric));
    report.metrics.iter().filter(is_wanted).collect()
}

/// Figures of nothing, and times from the schedule that say the same as those from the send, are left to JSON.
fn is_shown(metric: &MetricDelta, report: &DiffReport) -> bool {
    let is_nothing = |value: Option<f64>| value.is_none_or(|value| value == 0.0);
    let is_unknown = metric.a.is_none() && metric.b.is_none() && metric.key != RunFigure::DirectShare.as_str();
    if is_unknown || is_nothing(metric.a) && is_nothing(metric.b) && metric.unit != "share" {
        return false;
    }
    let Some(plain) = metric.key.find("sched_").map(|at| metric.key[..at].to_owned() + &metric.key[at + 6..]) else {
        return true;
    };
    let near = |a: Option<f64>, b: Option<f64>| a.zip(b).is_some_and(|(a, b)| (a - b).abs() <= 0.01 * b.abs());
    !report.metric(&plain).is_some_and(|plain| near(metric.a, plain.a) && near(metric.b, plain.b))
}

pub(in crate::results) fn split_title(split: &Split) -> String {
    let change = |ms: f64| signed(ms, "ms");
    format!(
        "Mean {} {} = mix of modes {} + within modes {}",
        split.metric.to_uppercase(),
        change(split.delta_ms),
        change(split.mix_ms),
        change(split.within_ms)
    )
}

pub(in crate::results) fn split_table(split: &Split) -> Table {
    let rows = &split.by_mode[..split.by_mode.len().min(ROWS)];
    let mean = |ms: Option<f64>| ms.map_or_else(|| "–".into(), fine_time);
    let cells = |mode: &crate::results::diff::ModeShift| {
        vec![
            mode.mode.as_str().to_owned(),
            percent(mode.share_a),
            percent(mode.share_b),
            mean(mode.mean_a_ms),
            mean(mode.mean_b_ms),
            signed(mode.mix_ms, "ms"),
            signed(mode.within_ms, "ms"),
        ]
    };
    let titles = [
        ("mode", true),
        ("share A", false),
        ("share B", false),
        ("mean A", false),
        ("mean B", false),
        ("mix", false),
        ("within", false),
    ];
    table(&titles, rows.iter().map(cells).collect(), &rows)
}

pub(in crate::results) fn transitions(rows: &[Transition]) -> Table {
    let cells = |row: &Transition| {
        vec![
            row.from.as_str().to_owned(),
            if row.from == row.to { "=".into() } else { row.to.as_str().to_owned() },
            count(row.count),
            percent(row.share),
            row.mean_e2e_delta_ms.map_or_else(|| "–".into(), |ms| signed(ms, "ms")),
        ]
    };
    let titles = [("in A", true), ("in B", true), ("requests", false), ("share", false), ("E2E, mean B − A", false)];
    table(&titles, rows.iter().map(cells).collect(), &rows)
}

/// Columns with their titles: words to the left, numbers to the right.
fn table(titles: &[(&'static str, bool)], rows: Vec<Vec<String>>, rows_of: &impl Serialize) -> Table {
    let column = |(title, left): &(&'static str, bool)| Column {
        title: (*title).into(),
        key: (*title).into(),
        left: *left,
        on_terminal: true,
    };
    let cells = rows.into_iter().map(|row| row.into_iter().map(Cell::text).collect()).collect();
    Table::new(titles.iter().map(column).collect(), cells, rows_of)
}

/// `95`, `99.9`.
pub(super) fn short_percent(share: f64) -> String {
    let text = format!("{:.2}", share * 100.0);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn verdict(verdict: DeltaVerdict, repeats: Option<u32>) -> String {
    match (verdict, repeats) {
        (DeltaVerdict::Same, _) => "same".into(),
        (DeltaVerdict::InsideNoise, Some(n)) => format!("inside the noise of {n} repeats"),
        (DeltaVerdict::InsideNoise, None) => "inside the noise".into(),
        (DeltaVerdict::Unclear, _) => "unclear".into(),
        (DeltaVerdict::Better, _) => "better".into(),
        (DeltaVerdict::Worse, _) => "worse".into(),
        (DeltaVerdict::Changed, _) => "changed".into(),
        (DeltaVerdict::Unjudged, _) => "one sample each".into(),
        (DeltaVerdict::NotComparable, _) => "not comparable".into(),
    }
}

fn shown(value: f64, unit: &str) -> String {
    match unit {
        "ms" => fine_time(value),
        "s" => seconds(value * 1e3),
        "share" => percent(value),
        "index" => format!("{value:.3}"),
        "tokens" => tokens(value),
        "%" => format!("{value:.1}"),
        unit if unit.ends_with("/s") && value >= 99.5 => format!("{} /s", count(value.round() as u64)),
        unit if unit.ends_with("/s") => format!("{} /s", rate(value)),
        _ if value.fract() == 0.0 || value >= 999.5 => count(value.round() as u64),
        _ => format!("{value:.1}"),
    }
}

/// A change; one of a share in points, since per cent of it would be another figure.
pub(in crate::results) fn signed(value: f64, unit: &str) -> String {
    let text = match unit {
        "share" => format!("{:.1} points", value.abs() * 100.0),
        unit => shown(value.abs(), unit),
    };
    words::signed(value, &text)
}

/// What chance makes of a change.
fn half_width(noise: f64, unit: &str) -> String {
    match unit {
        "share" => format!("± {:.1} points", noise * 100.0),
        unit => format!("± {}", shown(noise, unit)),
    }
}

/// One row a session: those that became starved first, then those freed.
pub(in crate::results) fn session_rows(report: &DiffReport) -> Table {
    let order = |row: &&SessionDelta| match row.change {
        Some(StarvationChange::BecameStarved) => 0,
        Some(StarvationChange::Freed) => 1,
        Some(StarvationChange::StillStarved) => 2,
        Some(StarvationChange::None) | None => 3,
    };
    let mut rows: Vec<&SessionDelta> = report.sessions.rows.iter().collect();
    rows.sort_by_key(|row| (order(row), row.arrival_rank));
    let column = |(key, title, left): (&'static str, &'static str, bool)| Column {
        title: title.into(),
        key: key.into(),
        left,
        on_terminal: true,
    };
    let columns = [
        ("session_id", "session", true),
        ("change", "change", true),
        ("arrival_rank", "rank", false),
        ("turns", "turns", false),
        ("peak_input_tokens", "peak in", false),
        ("a_direct_share", "direct A", false),
        ("b_direct_share", "direct B", false),
        ("a_mean_e2e_ms", "mean E2E A", false),
        ("b_mean_e2e_ms", "mean E2E B", false),
        ("mean_e2e_delta_ms", "E2E B − A", false),
        ("a_main_reason", "reason A", true),
        ("b_main_reason", "reason B", true),
        ("a_pinned_worker", "on A", true),
        ("b_pinned_worker", "on B", true),
    ];
    let cells = rows.iter().map(|row| session_row(row)).collect();
    Table::new(columns.map(column).to_vec(), cells, &rows)
}

fn session_row(row: &SessionDelta) -> Vec<Cell> {
    let change = match row.change {
        Some(StarvationChange::BecameStarved) => "became starved",
        Some(StarvationChange::Freed) => "freed",
        Some(StarvationChange::StillStarved) => "still starved",
        Some(StarvationChange::None) => "",
        None => "–",
    };
    let (a, b) = (row.a.as_ref(), row.b.as_ref());
    let direct = |side: Option<&SessionSide>| Cell::number(side.and_then(|side| side.direct_share), percent);
    let mean = |side: Option<&SessionSide>| Cell::number(side.and_then(|side| side.mean_e2e_ms), fine_time);
    let reason = |side: Option<&SessionSide>| {
        Cell::text(side.and_then(|side| side.main_reason).map_or("", |reason| reason.as_str()))
    };
    let on =
        |side: Option<&SessionSide>| Cell::text(side.and_then(|side| side.pinned_worker.clone()).unwrap_or_default());
    vec![
        Cell::text(&row.session_id),
        Cell::text(change),
        Cell::count(row.arrival_rank.into()),
        Cell::count(row.turns),
        Cell::number(Some(row.peak_input_tokens.into()), tokens),
        direct(a),
        direct(b),
        mean(a),
        mean(b),
        Cell::number(row.mean_e2e_delta_ms, |ms| signed(ms, "ms")),
        reason(a),
        reason(b),
        on(a),
        on(b),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_separators_one_precision_and_no_sign_without_a_size() {
        let rates = [0.74, 36.76, 99.6, 367.6, 1291.7].map(|rate| shown(rate, "tokens/s"));
        assert_eq!(rates, ["0.74 /s", "36.76 /s", "100 /s", "368 /s", "1,292 /s"]);
        let counts = [5.0, 24.7, 999.96, 12_805.5].map(|n| shown(n, "requests"));
        assert_eq!(counts, ["5", "24.7", "1,000", "12,806"]);
        let changes =
            [(-0.00001, "%"), (-3.7, "%"), (0.00004, "share"), (-0.05, "share"), (-0.0001, "ms"), (0.0, "ms")];
        let changes = changes.map(|(value, unit)| signed(value, unit));
        assert_eq!(changes, ["0.0", "−3.7", "0.0 points", "−5.0 points", "−<0.001 ms", "0 ms"]);
        assert_eq!(half_width(1291.7, "tokens/s"), "± 1,292 /s");
    }
}
