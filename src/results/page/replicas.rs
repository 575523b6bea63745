//! The page of replicas: how far each headline figure spreads over runs that differ by seed alone.

use super::chart::{Axis, Chart, Figure, Range, short};
use super::html::Html;
use super::shell::{Page, Section};
use super::tables::{Setting, plain, sortable};
use crate::base::words::{count, percent, rate, seconds, tokens};
use crate::results::render::Table;

/// A figure over replicas.
#[derive(Debug, Clone, PartialEq)]
pub struct Spread {
    /// Name, a key of `summary.json`.
    pub figure: String,
    /// Its unit.
    pub unit: &'static str,
    /// Replicas that have it.
    pub n: usize,
    /// Smallest.
    pub min: f64,
    /// Median.
    pub median: f64,
    /// Largest.
    pub max: f64,
    /// Mean.
    pub mean: f64,
    /// Half width of the 95 % interval of the mean; `None` below two replicas.
    pub ci95: Option<f64>,
}

/// The page of a folder of replicas: `replicas` has a row each (folder, seed, exit code); `notes` says what is missing.
pub fn replicas_page(name: &str, spreads: &[Spread], replicas: &Table, notes: &[String]) -> String {
    let mut verdict = Html::new();
    if notes.is_empty() {
        verdict.line("p", "All replicas ran to their end.");
    }
    notes.iter().for_each(|note| {
        verdict.line_with("p", &[("class", "verdict part")], note);
    });
    let bands = Section::new("bands", "How far the figures spread", table(spreads)).with([figure(spreads)]);
    let caption = "Each replica is a run folder: pdreplay report FOLDER --html gives its own page";
    let runs = sortable(replicas, Setting { id: "table-replicas", caption, ..Setting::default() });
    let sections =
        vec![Section::new("verdict", "May it be believed", verdict), bands, Section::new("replicas", "Replicas", runs)];
    let subtitle =
        "Runs that differ by their seed alone: one run is one sample, and this is how far samples lie apart.";
    Page { kind: "replicas", title: name.to_owned(), subtitle: subtitle.into(), sections }.render()
}

/// A value in its unit.
pub(super) fn in_unit(value: f64, unit: &str) -> String {
    match unit {
        "ms" => seconds(value),
        "share" => percent(value),
        "tokens/s" | "tokens" => format!("{} {unit}", tokens(value)),
        "requests/s" => format!("{} {unit}", rate(value)),
        "" => format!("{value:.3}"),
        _ if value.fract() == 0.0 && value >= 0.0 => format!("{} {unit}", count(value as u64)),
        _ => format!("{value:.1} {unit}"),
    }
}

fn figure(spreads: &[Spread]) -> Figure {
    let relative = |value: f64, median: f64| short(value / median * 100.0);
    let rows: Vec<Range> = spreads
        .iter()
        .filter(|spread| spread.median != 0.0)
        .map(|spread| Range {
            label: spread.figure.clone(),
            low: relative(spread.min, spread.median),
            at: 100.0,
            high: relative(spread.max, spread.median),
            color: "direct".into(),
            note: format!("{} to {}", in_unit(spread.min, spread.unit), in_unit(spread.max, spread.unit)),
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

fn table(spreads: &[Spread]) -> Html {
    let row = |spread: &Spread| {
        let show = |value: f64| in_unit(value, spread.unit);
        let ci95 = spread.ci95.map_or_else(|| "–".to_owned(), |half| format!("± {}", show(half)));
        let values = [spread.min, spread.median, spread.max, spread.mean].map(show);
        [spread.figure.clone(), spread.n.to_string()].into_iter().chain(values).chain([ci95]).collect()
    };
    let mut html = Html::new();
    let head = ["figure", "replicas", "smallest", "median", "largest", "mean", "95 % interval of the mean"];
    super::overview::scroll(&mut html, "Figures over replicas", &plain(&head, spreads.iter().map(row)));
    html
}
