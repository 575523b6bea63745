//! Transfer errors by pair of P and D, as a table whose cells are shaded.

use std::collections::BTreeMap;

use super::html::Html;
use super::overview::scroll;
use super::tables::{Setting, sortable};
use crate::base::WorkerId;
use crate::base::words::{count, plural};
use crate::record::TransferRecord;
use crate::results::render;
use crate::results::transfers::not_concentrated;
use crate::results::{Concentration, RunSummary, Transfers};

/// Most pairs in the matrix; beyond, those with errors are in the table alone.
const MOST_PAIRS: usize = 2_500;

/// Transfers of a run: the sentence, the matrix, the table.
pub(super) fn transfers(summary: &RunSummary) -> Html {
    let transfers = &summary.transfers;
    if transfers.pairs.is_empty() {
        return Html::of("p", "No KV transfer was made between workers.");
    }
    let mut html = Html::of("p", &words(transfers));
    if transfers.pairs.len() <= MOST_PAIRS {
        scroll(&mut html, "Transfer errors by pair of P and D", &matrix(&transfers.pairs));
    }
    let setting = Setting {
        id: "table-transfers",
        caption: "By pair of prefill and decode worker",
        all: "pdreplay report RUN --transfers has them all.",
        ..Setting::default()
    };
    html.add(&sortable(&render::transfers(summary), setting));
    html
}

fn words(transfers: &Transfers) -> String {
    let all = format!("{} of {} failed", count(transfers.errors), plural(transfers.total, "KV transfer"));
    if !transfers.concentrated.is_empty() {
        let each: Vec<String> = transfers.concentrated.iter().map(Concentration::sentence).collect();
        return format!("{all}: on {}.", each.join("; on "));
    }
    if transfers.errors > 0 {
        let Transfers { total, errors, timed_out, most_timed_out, .. } = transfers;
        return not_concentrated(*errors, *total, *timed_out, most_timed_out.as_ref()) + ".";
    }
    format!("{all}.")
}

fn matrix(pairs: &[TransferRecord]) -> Html {
    let sorted = |of: fn(&TransferRecord) -> &str| {
        let mut names: Vec<&str> = pairs.iter().map(of).collect();
        names.sort_by_key(|name| (name.parse::<WorkerId>().ok(), *name));
        names.dedup();
        names
    };
    let (rows, columns) = (sorted(|pair| &pair.prefill_worker), sorted(|pair| &pair.decode_worker));
    let cells: BTreeMap<(&str, &str), &TransferRecord> =
        pairs.iter().map(|pair| ((pair.prefill_worker.as_str(), pair.decode_worker.as_str()), pair)).collect();
    let worst = pairs.iter().map(|pair| pair.errors).max().unwrap_or(0).max(1) as f64;
    let heading = Heading {
        caption: "Failed transfers / transfers, by P (rows) and D (columns); stronger colour is more failures",
        corner: "P \\ D",
    };
    shaded(heading, &rows, &columns, |p, d| {
        let pair = cells.get(&(p, d))?;
        Some((format!("{} / {}", count(pair.errors), count(pair.transfers)), pair.errors as f64 / worst))
    })
}

/// What stands over a matrix.
pub(super) struct Heading {
    /// Caption.
    pub caption: &'static str,
    /// In the corner.
    pub corner: &'static str,
}

/// A matrix of words, each cell shaded by its weight, 0 to 1; `None` is no such pair.
pub(super) fn shaded(
    heading: Heading,
    rows: &[&str],
    columns: &[&str],
    cell: impl Fn(&str, &str) -> Option<(String, f64)>,
) -> Html {
    let mut html = Html::new();
    html.element("table", &[("class", "matrix")], |html| {
        html.line("caption", heading.caption);
        html.element("thead", &[], |html| {
            html.element("tr", &[], |html| {
                html.line_with("th", &[("scope", "col")], heading.corner);
                columns.iter().for_each(|name| {
                    html.line_with("th", &[("scope", "col"), ("class", "n")], name);
                });
            });
        });
        html.element("tbody", &[], |html| {
            for row in rows {
                html.element("tr", &[], |html| {
                    html.line_with("th", &[("scope", "row")], row);
                    columns.iter().for_each(|column| shaded_cell(cell(row, column), html));
                });
            }
        });
    });
    html
}

fn shaded_cell(cell: Option<(String, f64)>, html: &mut Html) {
    let Some((text, weight)) = cell else {
        html.line_with("td", &[("class", "n")], "–");
        return;
    };
    // At most 45 %: the text on it keeps its contrast in both themes.
    let shade = if weight > 0.0 { 8 + (weight * 37.0) as u32 } else { 0 };
    let style = format!("background:color-mix(in srgb, var(--c-cap) {shade}%, transparent)");
    html.line_with("td", &[("class", "n"), ("style", &style)], &text);
}
