//! A [`DiffReport`] as text for a terminal, and as Markdown for a pull request.
//!
//! Both show the same blocks in the same order: what was compared, what to know first, the figures, where the difference comes
//! from, who is concerned. Computes nothing; long lists are cut here and whole in JSON.

use serde::Serialize;

use super::page::{Page, wrap};
use super::table::{BOLD, Cell, Column, Format, RED, Style, Table, paint, visible};
use crate::base::words::{count, fine_time, percent, plural, rate, seconds, tokens};
use crate::results::diff::{
    ComparisonKind, DeltaVerdict, DiffReport, MetricDelta, RunFigure, SideFacts, Split, StarvationChange,
    ThresholdResult, Transition,
};
use crate::results::{CauseLine, Verdict};

/// Sessions named in a line.
const NAMED: usize = 12;
/// Transitions, outcome changes and modes shown.
const ROWS: usize = 10;
/// Figures that are shown unless all are wanted; those of `--fail-on` are shown, too.
const HEADLINE: [&str; 21] = [
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
    "request_throughput",
    "output_throughput",
    "duration",
];
/// Cause lines of a side.
const CAUSES: usize = 4;

/// A piece of the page.
enum Block {
    /// Label and lines; the first piece of the line in bold where it matters.
    Lines(&'static str, Vec<String>),
    /// What the label says above all.
    Alarm(&'static str, Vec<String>),
    /// Title and table.
    Table(String, Table),
}

/// Which figures are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// The headline ones and those of `--fail-on`.
    Headline,
    /// Every one that says something.
    All,
}

/// For a terminal.
pub fn text(report: &DiffReport, shown: Shown, style: Style) -> String {
    let mut page = Page::new(style);
    for line in heads(report).iter().flat_map(|head| wrap(&visible(head), style.width)) {
        page.text += &(paint(&line, BOLD, style) + "\n");
    }
    page.text += "\n";
    let mut after_table = false;
    for block in blocks(report, shown) {
        let is_table = matches!(block, Block::Table(..));
        if after_table && !is_table {
            page.text += "\n";
        }
        after_table = is_table;
        match block {
            Block::Lines(label, lines) => page.section(label, lines),
            Block::Alarm(label, lines) => {
                for line in lines {
                    page.section_with(label, line, label, RED);
                }
            }
            Block::Table(title, table) => {
                page.text += &format!("\n{}\n{}", paint(&title, BOLD, style), table.render(Format::Table, style));
            }
        }
    }
    page.text
}

/// For a pull request.
pub fn markdown(report: &DiffReport, shown: Shown) -> String {
    let mut text = String::from("## pdreplay diff\n\n");
    for head in heads(report) {
        text += &format!("- {}\n", escaped(&head));
    }
    for block in blocks(report, shown) {
        match block {
            Block::Lines(label, lines) | Block::Alarm(label, lines) if !lines.is_empty() => {
                text += &format!("\n**{label}**\n\n");
                lines.iter().for_each(|line| text += &format!("- {}\n", escaped(line)));
            }
            Block::Lines(..) | Block::Alarm(..) => {}
            Block::Table(title, table) => {
                text += &format!("\n### {title}\n\n{}", table.render(Format::Markdown, Style::default()));
            }
        }
    }
    text
}

/// Words from outside have no power over Markdown.
fn escaped(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    for c in visible(line).chars() {
        if matches!(c, '\\' | '`' | '*' | '_' | '<' | '>' | '[' | ']' | '|' | '~') {
            text.push('\\');
        }
        text.push(c);
    }
    text
}

fn heads(report: &DiffReport) -> [String; 2] {
    [head("A", &report.a), head("B", &report.b)]
}

pub(in crate::results) fn head(name: &str, side: &SideFacts) -> String {
    let setup = [side.topology.as_str(), &format!("{}/{}", side.mechanism, side.policy), side.limits.as_str()];
    let setup = setup.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
    let seeds: Vec<String> = side.runs.iter().map(|run| run.seed.to_string()).collect();
    let runs = match seeds.as_slice() {
        [one] => format!("seed {one}"),
        many => format!("{} repeats, seeds {}", many.len(), many.join(" ")),
    };
    let shape = format!("{}, {}", plural(side.requests, "request"), plural(side.sessions, "session"));
    format!("{name}  {} · {} · {shape} · {setup} · {} · {runs}", side.label, side.trace, side.time_scale_text)
}

fn blocks(report: &DiffReport, shown: Shown) -> Vec<Block> {
    let mut blocks = vec![
        Block::Alarm("notes", report.notes.clone()),
        Block::Alarm(
            "forced",
            report.forced.iter().map(|forced| format!("forced: {}: {}", forced.text, forced.meaningless)).collect(),
        ),
        Block::Lines("changed", changed(report)),
        Block::Lines("paired", vec![paired(report)]),
        Block::Lines("chance", chance(report)),
        Block::Lines("result", vec![result(report)]),
        Block::Lines("fail-on", thresholds(&report.thresholds)),
    ];
    if report.comparison == ComparisonKind::Identical {
        return blocks;
    }
    let (all, here) = (listed(report, Shown::All).len(), listed(report, shown).len());
    let rest = if here < all { format!(" ({here} of {all}; the others with --all)") } else { String::new() };
    blocks.push(Block::Table(format!("Figures{rest}"), figures(report, shown)));
    for split in &report.splits {
        blocks.push(Block::Table(split_title(split), split_table(split)));
    }
    if !report.transitions.is_empty() {
        let shown = report.transitions.len().min(ROWS);
        let of = if shown < report.transitions.len() {
            format!(" (the first {shown} of {})", report.transitions.len())
        } else {
            String::new()
        };
        blocks.push(Block::Table(format!("Modes, from A to B{of}"), transitions(&report.transitions[..shown])));
    }
    blocks.extend([
        Block::Lines("sessions", sessions(report)),
        Block::Lines("why A", causes(&report.a.causes)),
        Block::Lines("why B", causes(&report.b.causes)),
        Block::Lines("workers", workers(report)),
        Block::Lines("outcomes", outcomes(report)),
    ]);
    blocks
}

fn changed(report: &DiffReport) -> Vec<String> {
    let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".into());
    let line = |change: &crate::results::diff::ScenarioChange| {
        format!("{} {} → {}", change.key, value(&change.a), value(&change.b))
    };
    report.scenario_changes.iter().map(line).collect()
}

pub(in crate::results) fn paired(report: &DiffReport) -> String {
    let paired = report.paired;
    let beside = match (paired.only_a, paired.only_b) {
        (0, 0) => String::new(),
        (a, b) => format!(" · in A alone {} · in B alone {}", count(a), count(b)),
    };
    let (both, sessions) = (plural(paired.both, "request"), plural(paired.sessions, "session"));
    format!("{both} in {sessions} by (session, turn) · ok on both sides {}{beside}", count(paired.both_ok))
}

pub(in crate::results) fn chance(report: &DiffReport) -> Vec<String> {
    let bootstrap = report.bootstrap.as_ref().map(|facts| {
        format!(
            "intervals: {} %, {} of {} ({}), seed {}",
            short_percent(facts.confidence),
            plural(facts.resamples.into(), "resample"),
            plural(facts.sessions, "session"),
            facts.method,
            facts.seed
        )
    });
    let noise = match &report.noise {
        Some(noise) => format!("noise: {}", noise.text),
        None => "noise: unknown, there are no repeats".into(),
    };
    bootstrap.into_iter().chain([noise]).collect()
}

fn short_percent(share: f64) -> String {
    let text = format!("{:.2}", share * 100.0);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

pub(in crate::results) fn result(report: &DiffReport) -> String {
    match &report.comparison {
        ComparisonKind::Identical => "no difference: every request is alike on both sides".into(),
        ComparisonKind::NotComparable { reason } => format!("not comparable: {reason}"),
        ComparisonKind::Different => {
            let of = |verdict: DeltaVerdict| report.metrics.iter().filter(|m| m.verdict == verdict).count();
            let (better, worse) = (of(DeltaVerdict::Better), of(DeltaVerdict::Worse));
            let (noise, unclear) = (of(DeltaVerdict::InsideNoise), of(DeltaVerdict::Unclear));
            let runs = || report.a.runs.iter().chain(&report.b.runs);
            let unread = runs().filter(|run| matches!(run.verdict, Verdict::Withheld | Verdict::Invalid)).count();
            let but = if unread > 0 { " · of runs whose headline may not be read: see the notes" } else { "" };
            format!("figures: {better} better, {worse} worse, {noise} inside the noise, {unclear} unclear{but}")
        }
    }
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

fn listed(report: &DiffReport, shown: Shown) -> Vec<&MetricDelta> {
    let is_asked =
        |metric: &MetricDelta| report.thresholds.iter().any(|threshold| threshold.expr.contains(&metric.key));
    let is_headline = |metric: &MetricDelta| HEADLINE.contains(&metric.key.as_str()) || is_asked(metric);
    let is_wanted = |metric: &&MetricDelta| is_shown(metric, report) && (shown == Shown::All || is_headline(metric));
    report.metrics.iter().filter(is_wanted).collect()
}

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
        unit if unit.ends_with("/s") && value >= 1000.0 => format!("{} /s", count(value.round() as u64)),
        unit if unit.ends_with("/s") => format!("{} /s", rate(value)),
        _ if value.fract() == 0.0 => count(value as u64),
        _ => format!("{value:.1}"),
    }
}

/// A change; one of a share in points, since per cent of it would be another figure.
fn signed(value: f64, unit: &str) -> String {
    let sign = match value {
        value if value > 0.0 => "+",
        value if value < 0.0 => "−",
        _ => "",
    };
    match unit {
        "share" => format!("{sign}{:.1} points", value.abs() * 100.0),
        unit => format!("{sign}{}", shown(value.abs(), unit)),
    }
}

/// What chance makes of a change.
fn half_width(noise: f64, unit: &str) -> String {
    match unit {
        "share" => format!("± {:.1} points", noise * 100.0),
        unit if unit.ends_with("/s") => format!("± {noise:.2} /s"),
        unit => format!("± {}", shown(noise, unit)),
    }
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

pub(in crate::results) fn sessions(report: &DiffReport) -> Vec<String> {
    let sessions = &report.sessions;
    if sessions.rows.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![format!(
        "starved {} → {}: {} freed, {} became starved, {} in both",
        sessions.starved_a,
        sessions.starved_b,
        sessions.freed.len(),
        sessions.became_starved.len(),
        sessions.still_starved.len()
    )];
    for (change, label) in [(StarvationChange::BecameStarved, "became starved"), (StarvationChange::Freed, "freed")] {
        let rows: Vec<_> = sessions.rows.iter().filter(|row| row.change == change).collect();
        let name = |row: &&&crate::results::diff::SessionDelta| {
            let share = |side: &Option<crate::results::diff::SessionSide>| {
                let share = side.as_ref().and_then(|side| side.direct_share);
                share.map_or_else(|| "–".into(), |share| format!("{:.0} %", share * 100.0))
            };
            let starving = if change == StarvationChange::Freed { &row.a } else { &row.b };
            let reason = starving.as_ref().and_then(|side| side.main_reason);
            let reason = reason.map_or_else(String::new, |reason| format!(", {reason}"));
            format!("{} (direct {} → {}{reason})", row.session_id, share(&row.a), share(&row.b))
        };
        let more = rows.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" · and {more} more") } else { String::new() };
        let names: Vec<String> = rows.iter().take(NAMED).map(|row| name(&row)).collect();
        lines.extend((!names.is_empty()).then(|| format!("{label}: {}{more}", names.join(" · "))));
    }
    lines
}

fn causes(causes: &[CauseLine]) -> Vec<String> {
    let more = causes.len().saturating_sub(CAUSES);
    let rest = (more > 0).then(|| format!("and {more} more: report it, or --format json"));
    causes.iter().take(CAUSES).map(|cause| cause.text.clone()).chain(rest).collect()
}

pub(in crate::results) fn workers(report: &DiffReport) -> Vec<String> {
    let line = |role: &crate::results::diff::RoleDelta| {
        let ratio = |ratio: Option<f64>| ratio.map_or_else(|| "–".into(), |ratio| format!("{ratio:.2}"));
        let number = if role.workers.a == role.workers.b {
            role.workers.a.to_string()
        } else {
            format!("{} → {}", role.workers.a, role.workers.b)
        };
        let idle = match (role.idle.a, role.idle.b) {
            (0, 0) => String::new(),
            (a, b) => format!(" · without a request {a} → {b}"),
        };
        let names = |names: &[String]| if names.is_empty() { "none".into() } else { names.join(" ") };
        let hot = match (&role.hot.a, &role.hot.b) {
            (a, b) if a.is_empty() && b.is_empty() => String::new(),
            (a, b) => format!(" · above 1.5 × mean: {} → {}", names(a), names(b)),
        };
        format!(
            "{number} {}: largest/mean {} → {}{idle}{hot}",
            role.role,
            ratio(role.max_over_mean.a),
            ratio(role.max_over_mean.b)
        )
    };
    report.workers.roles.iter().map(line).collect()
}

pub(in crate::results) fn outcomes(report: &DiffReport) -> Vec<String> {
    let (a, b) = (report.outcomes.a, report.outcomes.b);
    let all = crate::record::Outcome::ALL.iter().filter(|outcome| a.of(**outcome) + b.of(**outcome) > 0);
    let counts: Vec<String> =
        all.map(|outcome| format!("{outcome} {} → {}", count(a.of(*outcome)), count(b.of(*outcome)))).collect();
    let changes = report.outcomes.changes.iter().take(ROWS).map(|change| {
        format!("{} → {}: {} (first {})", change.from, change.to, plural(change.count, "request"), change.first)
    });
    [counts.join(" · ")].into_iter().chain(changes).collect()
}

/// The conditions of `--fail-on`, a line each: `FAIL` or `ok`, and why.
pub fn thresholds(results: &[ThresholdResult]) -> Vec<String> {
    let line = |result: &ThresholdResult| format!("{} {}", if result.crossed { "FAIL" } else { "ok" }, result.text);
    results.iter().map(line).collect()
}
