//! A [`DiffReport`] as text for a terminal, and as Markdown for a pull request; its tables are in `tables`.
//!
//! Both show the same blocks in the same order: what was compared, what to know first, the figures, where the difference comes
//! from, who is concerned. Computes nothing; long lists are cut here and whole in JSON.

mod tables;

use super::page::{Page, wrap};
use super::summary::by_class;
use super::table::{BOLD, Format, RED, Style, Table, in_markdown, paint, visible};
use crate::base::words::{count, plural};
use crate::results::diff::{ComparisonKind, DeltaVerdict, DiffReport, SideFacts, StarvationChange, ThresholdResult};
use crate::results::{CauseLine, Verdict};

pub(in crate::results) use tables::{figures, session_rows, signed, split_table, split_title, transitions};

use tables::{ROWS, listed, short_percent};

/// Sessions named in a line.
const NAMED: usize = 12;
/// Cause lines of a side.
const CAUSES: usize = 4;

/// A piece of the page.
enum Block {
    /// Label and lines; the first piece of the line in bold where it matters.
    Lines(&'static str, Vec<String>),
    /// What the label says above all.
    Alarm(&'static str, Vec<String>),
    /// Title, what to know before it is read, and table.
    Table(String, Option<String>, Table),
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
            Block::Table(title, caution, table) => {
                page.text += &format!("\n{}\n", paint(&title, BOLD, style));
                for line in caution.iter().flat_map(|caution| wrap(&visible(caution), style.width)) {
                    page.text += &(paint(&line, RED, style) + "\n");
                }
                page.text += &table.render(Format::Table, style);
            }
        }
    }
    page.text
}

/// For a pull request.
pub fn markdown(report: &DiffReport, shown: Shown) -> String {
    let mut text = String::from("## pdreplay diff\n\n");
    for head in heads(report) {
        text += &format!("- {}\n", in_markdown(&head));
    }
    for block in blocks(report, shown) {
        match block {
            Block::Lines(label, lines) | Block::Alarm(label, lines) if !lines.is_empty() => {
                text += &format!("\n**{label}**\n\n");
                lines.iter().for_each(|line| text += &format!("- {}\n", in_markdown(line)));
            }
            Block::Lines(..) | Block::Alarm(..) => {}
            Block::Table(title, caution, table) => {
                text += &format!("\n### {title}\n\n");
                if let Some(caution) = caution {
                    text += &format!("**{}**\n\n", in_markdown(&caution));
                }
                text += &table.render(Format::Markdown, Style::default());
            }
        }
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
        Block::Lines("goodput", objectives(report).into_iter().collect()),
        Block::Lines("result", vec![result(report)]),
        Block::Lines("fail-on", thresholds(&report.thresholds)),
    ];
    if report.comparison == ComparisonKind::Identical {
        return blocks;
    }
    let (all, here) = (listed(report, Shown::All).len(), listed(report, shown).len());
    let rest = if here < all { format!(" ({here} of {all}; the others with --all)") } else { String::new() };
    blocks.push(Block::Table(format!("Figures{rest}"), caution(report), figures(report, shown)));
    for split in &report.splits {
        blocks.push(Block::Table(split_title(split), None, split_table(split)));
    }
    if !report.transitions.is_empty() {
        let shown = report.transitions.len().min(ROWS);
        let of = if shown < report.transitions.len() {
            format!(" (the first {shown} of {})", report.transitions.len())
        } else {
            String::new()
        };
        let title = format!("Modes, from A to B{of}");
        blocks.push(Block::Table(title, None, transitions(&report.transitions[..shown])));
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

/// What goodput is, where there is any.
pub(in crate::results) fn objectives(report: &DiffReport) -> Option<String> {
    let slos = report.objectives?;
    Some(format!("request_goodput and slo_attainment: requests that ended ok within {slos} (ms)"))
}

/// Why verdicts are no results, where the headline of a run may not be read.
pub(in crate::results) fn caution(report: &DiffReport) -> Option<String> {
    let of_side = |(name, side): (&str, &SideFacts)| {
        let unread = side.runs.iter().find(|run| !run.verdict.shows_headline())?;
        let word = if unread.verdict == Verdict::Invalid { "is invalid" } else { "is withheld" };
        Some(format!("the headline of {name} {word} ({})", unread.reason.as_deref().unwrap_or("see the notes")))
    };
    let sides: Vec<String> = [("A", &report.a), ("B", &report.b)].into_iter().filter_map(of_side).collect();
    (!sides.is_empty()).then(|| format!("No result: {}; the verdicts compare what may not be read.", sides.join(", ")))
}

pub(in crate::results) fn result(report: &DiffReport) -> String {
    match &report.comparison {
        ComparisonKind::Identical => "no difference: every request is alike on both sides".into(),
        ComparisonKind::NotComparable { reason } => format!("not comparable: {reason}"),
        ComparisonKind::Different => {
            let of = |verdict: DeltaVerdict| report.metrics.iter().filter(|m| m.verdict == verdict).count();
            let (better, worse) = (of(DeltaVerdict::Better), of(DeltaVerdict::Worse));
            let (noise, unclear) = (of(DeltaVerdict::InsideNoise), of(DeltaVerdict::Unclear));
            let but = if caution(report).is_some() { " · of runs whose headline may not be read" } else { "" };
            format!("figures: {better} better, {worse} worse, {noise} inside the noise, {unclear} unclear{but}")
        }
    }
}

pub(in crate::results) fn sessions(report: &DiffReport) -> Vec<String> {
    let sessions = &report.sessions;
    if sessions.rows.is_empty() {
        return Vec::new();
    }
    // There are two ways to count over repeats: the figure of that name has the other.
    let is_group = report.a.runs.len() > 1 || report.b.runs.len() > 1;
    let which = if is_group {
        " (below 20 % in more than half of the repeats; starved_sessions is the mean over them)"
    } else {
        ""
    };
    let shown = |n: Option<u64>| n.map_or_else(|| "–".into(), count);
    let number = |ids: &Option<Vec<String>>| shown(ids.as_ref().map(|ids| ids.len() as u64));
    let (a, b) = (sessions.starved_a, sessions.starved_b);
    let changes = match (a, b) {
        (Some(_), Some(_)) => format!(
            "{} freed, {} became starved, {} in both",
            number(&sessions.freed),
            number(&sessions.became_starved),
            number(&sessions.still_starved)
        ),
        (None, Some(_)) => "A keeps no sessions on D".into(),
        (Some(_), None) => "B keeps no sessions on D".into(),
        (None, None) => "neither side keeps sessions on D".into(),
    };
    let mut lines = vec![format!("starved{which} {} → {}: {changes}", shown(a), shown(b))];
    for (change, label) in [(StarvationChange::BecameStarved, "became starved"), (StarvationChange::Freed, "freed")] {
        let rows: Vec<_> = sessions.rows.iter().filter(|row| row.change == Some(change)).collect();
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
    let failures = [("A", &report.a), ("B", &report.b)].into_iter().filter_map(|(name, side)| {
        // Of one run: the counts above are of all repeats.
        let first = if side.runs.len() > 1 { ", first run" } else { "" };
        Some(format!("failures of {name} by class{first}: {}", by_class(&side.errors)?))
    });
    let (runs_a, runs_b) = (report.a.runs.len() as u64, report.b.runs.len() as u64);
    let together = (runs_a > 1 || runs_b > 1).then(|| format!("over {} of A, {runs_b} of B: ", plural(runs_a, "run")));
    let counts = together.unwrap_or_default() + &counts.join(" · ");
    [counts].into_iter().chain(changes).chain(failures).collect()
}

/// That a gate failed, and how much of it, where it did.
pub(in crate::results) fn failed(report: &DiffReport) -> Option<String> {
    let (crossed, all) = (report.thresholds.iter().filter(|result| result.crossed).count(), report.thresholds.len());
    (crossed > 0).then(|| format!("--fail-on FAILED: {crossed} of {}", plural(all as u64, "condition")))
}

/// The conditions of `--fail-on`, a line each: `FAIL` or `ok`, and why.
pub fn thresholds(results: &[ThresholdResult]) -> Vec<String> {
    results.iter().map(|result| format!("{} {}", result.label(), result.text)).collect()
}
