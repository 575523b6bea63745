//! The summary as Markdown, for a pull request: what a terminal shows, with tables of latencies, starved sessions and workers.
//!
//! Like the terminal, it says first what to know, and has no latency that may not be read.

use super::summary::{Extras, headline, lengths, notes, outcome, rates, sessions, withheld, workers};
use super::table::{Cell, Column, Format, Style, Table, in_markdown};
use super::tables;
use crate::base::words::{count, fine_time, plural};
use crate::results::{ITL_NOTE, Latency, Metric, RunSummary};

/// Starved sessions in the table.
const STARVED: usize = 20;

/// The summary as Markdown; every line ends with a line feed.
pub fn markdown(summary: &RunSummary, extras: &Extras) -> String {
    let mut text = format!("## pdreplay report\n\n{}\n", in_markdown(&headline(summary, extras)));
    lines(&mut text, "outcome", [outcome(summary).0]);
    lines(&mut text, "notes", notes(summary));
    lines(&mut text, "why", summary.causes.iter().map(|cause| cause.text.clone()));
    match withheld(summary) {
        Some((_, why)) => lines(&mut text, "latency", [why]),
        None => {
            table(&mut text, "Latencies of ok requests", &latencies(summary));
            if summary.latencies.of(Metric::Itl).n > 0 {
                text += &format!("\n{ITL_NOTE}\n");
            }
            if summary.failed > 0 {
                table(&mut text, "With failures as endless", &with_failures(summary));
            }
            lines(&mut text, "rates", rates(summary));
        }
    }
    lines(&mut text, "lengths", lengths(summary));
    table(&mut text, "Modes", &tables::modes(summary));
    lines(&mut text, "sessions", sessions(summary));
    starved(&mut text, summary);
    table(&mut text, "Workers", &tables::workers(summary));
    lines(&mut text, "spread", workers(summary));
    text
}

fn lines(text: &mut String, label: &str, lines: impl IntoIterator<Item = String>) {
    let lines: Vec<String> = lines.into_iter().map(|line| format!("- {}\n", in_markdown(&line))).collect();
    if !lines.is_empty() {
        *text += &format!("\n**{label}**\n\n{}", lines.concat());
    }
}

fn table(text: &mut String, title: &str, table: &Table) {
    if table.body().next().is_some() {
        *text += &format!("\n### {title}\n\n{}", table.render(Format::Markdown, Style::default()));
    }
}

/// One row a latency that there is.
fn latencies(summary: &RunSummary) -> Table {
    let time = |ms: Option<f64>| ms.map_or_else(|| "–".to_owned(), fine_time);
    rows(summary, &["n", "left out", "mean"], &["max"], |latency| {
        let ladder = latency.rungs.iter().map(|rung| time(rung.ms));
        let counts = [count(latency.n), count(latency.n_excluded), time(latency.mean_ms)];
        Some(counts.into_iter().chain(ladder).chain([time(latency.max_ms)]).collect())
    })
}

fn with_failures(summary: &RunSummary) -> Table {
    let reached = |ms: Option<f64>| ms.map_or_else(|| "not reached".to_owned(), fine_time);
    rows(summary, &[], &[], |latency| {
        let ladder = latency.rungs.iter().map(|rung| reached(rung.with_failures_ms)).collect();
        latency.metric.has_failures_form().then_some(ladder)
    })
}

fn rows(
    summary: &RunSummary,
    before: &[&str],
    after: &[&str],
    cells: impl Fn(&Latency) -> Option<Vec<String>>,
) -> Table {
    let column =
        |title: String, left| Column { key: title.clone().into(), title: title.into(), left, on_terminal: true };
    let titles = before.iter().map(|title| (*title).to_owned());
    let percentiles = summary.latencies.percentiles();
    let titles = titles.chain(percentiles.iter().map(|percentile| percentile.to_string()));
    let titles = titles.chain(after.iter().map(|title| (*title).to_owned()));
    let columns =
        [column("latency".into(), true)].into_iter().chain(titles.map(|title| column(title, false))).collect();
    let of = |latency: &Latency| Some((latency.metric.title().to_owned(), cells(latency)?));
    // A wait that nobody had is no row of a short report.
    let known = Metric::ALL.iter().map(|metric| summary.latencies.of(*metric));
    let known = known.filter(|latency| latency.max_ms.is_some_and(|most| most > 0.0));
    let rows = known.filter_map(of).map(|(name, cells)| [name].into_iter().chain(cells).map(Cell::text).collect());
    Table::new(columns, rows.collect(), &serde_json::Value::Null)
}

/// The starved come first in the table of sessions.
fn starved(text: &mut String, summary: &RunSummary) {
    let all = summary.sessions.iter().filter(|row| row.starved).count();
    if all == 0 {
        return;
    }
    let shown = all.min(STARVED);
    let of =
        if shown < all { format!(" (the first {shown} of {})", plural(all as u64, "session")) } else { String::new() };
    table(text, &format!("Starved sessions{of}"), &tables::sessions(summary).first(shown));
}
