//! Transfer errors by pair of P and D, as a table whose cells are shaded.

use std::collections::BTreeMap;

use super::html::Html;
use super::overview::scroll;
use super::tables::{Setting, sortable};
use crate::base::WorkerId;
use crate::base::words::{count, plural};
use crate::record::TransferRecord;
use crate::results::render;
use crate::results::{RunSummary, Transfers};

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
    match &transfers.concentrated {
        Some(pair) => format!(
            "{all}; {} of them on {} → {}, which chance explains with p = {:.0e}.",
            count(pair.errors),
            pair.prefill_worker,
            pair.decode_worker,
            pair.p_value
        ),
        None if transfers.errors > 0 => format!("{all}, on no pair more than chance explains."),
        None => format!("{all}."),
    }
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
    let worst = pairs.iter().map(|pair| pair.errors).max().unwrap_or(0).max(1);
    let mut html = Html::new();
    html.element("table", &[("class", "matrix"), ("id", "matrix")], |html| {
        html.line("caption", "Failed transfers / transfers, by P (rows) and D (columns); darker is more failures");
        html.element("thead", &[], |html| {
            html.element("tr", &[], |html| {
                html.line_with("th", &[("scope", "col")], "P \\ D");
                columns.iter().for_each(|name| {
                    html.line_with("th", &[("scope", "col"), ("class", "n")], name);
                });
            });
        });
        html.element("tbody", &[], |html| {
            for p in &rows {
                html.element("tr", &[], |html| {
                    html.line_with("th", &[("scope", "row")], p);
                    columns.iter().for_each(|d| cell(cells.get(&(p, d)).copied(), worst, html));
                });
            }
        });
    });
    html
}

fn cell(pair: Option<&TransferRecord>, worst: u64, html: &mut Html) {
    let Some(pair) = pair else {
        html.line_with("td", &[("class", "n")], "–");
        return;
    };
    // At most 45 %: the text on it keeps its contrast in both themes.
    let shade = if pair.errors == 0 { 0 } else { 8 + pair.errors * 37 / worst };
    let style = format!("background:color-mix(in srgb, var(--c-cap) {shade}%, transparent)");
    let text = format!("{} / {}", count(pair.errors), count(pair.transfers));
    html.line_with("td", &[("class", "n"), ("style", &style)], &text);
}
