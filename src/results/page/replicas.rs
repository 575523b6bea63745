//! The page of replicas: how far each headline figure spreads over runs that differ by seed alone.

use super::chart::{Axis, Chart, Figure, Range, short};
use super::html::Html;
use super::shell::{Page, Section};
use super::tables::{Setting, plain, sortable};
use crate::base::words::{count, fine_time, percent, rate, tokens};
use crate::results::Band;
use crate::results::render::Table;

/// The page of a folder of replicas: `replicas` has a row each (folder, seed, exit code); `notes` says what is missing.
pub fn replicas_page(name: &str, bands: &[Band], replicas: &Table, notes: &[String]) -> String {
    let mut verdict = Html::new();
    if notes.is_empty() {
        verdict.line("p", "All replicas ran to their end.");
    }
    notes.iter().for_each(|note| {
        verdict.line_with("p", &[("class", "verdict part")], note);
    });
    let spread = Section::new("bands", "How far the figures spread", table(bands)).with([figure(bands)]);
    let caption = "Each replica is a run folder: pdreplay report FOLDER --html gives its own page";
    let runs = sortable(replicas, Setting { id: "table-replicas", caption, ..Setting::default() });
    let sections = vec![
        Section::new("verdict", "May it be believed", verdict),
        spread,
        Section::new("replicas", "Replicas", runs),
    ];
    let subtitle =
        "Runs that differ by their seed alone: one run is one sample, and this is how far samples lie apart.";
    Page { kind: "replicas", title: name.to_owned(), subtitle: subtitle.into(), sections }.render()
}

/// A value in its unit.
pub(super) fn in_unit(value: f64, unit: &str) -> String {
    match unit {
        "ms" => fine_time(value),
        "share" => percent(value),
        "tokens/s" | "tokens" => format!("{} {unit}", tokens(value)),
        "requests/s" => format!("{} {unit}", rate(value)),
        "index" => format!("{value:.3}"),
        _ if value.fract() == 0.0 && value >= 0.0 => format!("{} {unit}", count(value as u64)),
        _ => format!("{value:.1} {unit}"),
    }
}

fn figure(bands: &[Band]) -> Figure {
    let relative = |value: f64, median: f64| short(value / median * 100.0);
    let rows: Vec<Range> = bands
        .iter()
        .filter(|band| band.median != 0.0)
        .map(|band| Range {
            label: band.figure.to_string(),
            low: relative(band.min, band.median),
            at: 100.0,
            high: relative(band.max, band.median),
            color: "direct".into(),
            note: format!("{} to {}", in_unit(band.min, band.figure.unit()), in_unit(band.max, band.figure.unit())),
        })
        .collect();
    let width = |row: &&Range| (row.high - row.low).abs();
    let widest = rows.iter().max_by(|a, b| width(a).total_cmp(&width(b)));
    let says = widest.map_or_else(
        || "there are no figures: no replica ran to its end.".to_owned(),
        |row| format!("{} spreads most, from {:.1} % to {:.1} % of its median.", row.label, row.low, row.high),
    );
    Figure {
        id: "chart-bands",
        title: "Smallest to largest".into(),
        says,
        note: "Each figure over the replicas, in per cent of its median; the dot is the median.".into(),
        legend: Vec::new(),
        chart: (!rows.is_empty()).then(|| Chart::Ranges { x: Axis::linear("share of the median", "%"), rows }),
        table: Html::new(),
    }
}

fn table(bands: &[Band]) -> Html {
    let row = |band: &Band| {
        let show = |value: f64| in_unit(value, band.figure.unit());
        let ci95 = band.ci95.map_or_else(|| "–".to_owned(), |half| format!("± {}", show(half)));
        let values = [band.min, band.median, band.max, band.mean].map(show);
        [band.figure.to_string(), band.n.to_string()].into_iter().chain(values).chain([ci95]).collect()
    };
    let mut html = Html::new();
    let head = ["figure", "replicas", "smallest", "median", "largest", "mean", "95 % interval of the mean"];
    super::overview::scroll(&mut html, "Figures over replicas", &plain(&head, bands.iter().map(row)));
    html
}
