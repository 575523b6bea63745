//! [`Figure`]: a chart as plain data, what it shows in a sentence, and the same as a table.
//!
//! `charts.js` makes the chart library's options of the data: colours follow the theme of the reader, and renderers are
//! functions, so neither can be said here. Colours are names of the style sheet's variables.

use serde::Serialize;

use super::html::Html;
use crate::record::ExecutionMode;

/// A chart with its words.
#[derive(Debug, Clone)]
pub(super) struct Figure {
    /// Id in the page.
    pub id: &'static str,
    /// Caption.
    pub title: String,
    /// What it shows, computed.
    pub says: String,
    /// How to read it; empty when the axes say it all.
    pub note: String,
    /// Names and colours beside it; empty without.
    pub legend: Vec<(String, String)>,
    /// The data; `None` where there is nothing to draw.
    pub chart: Option<Chart>,
    /// The same in numbers.
    pub table: Html,
}

/// An axis of numbers.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Axis {
    /// What it measures.
    pub name: String,
    /// `s`, `%`, `tokens` …
    pub unit: &'static str,
    /// Logarithmic.
    pub log: bool,
}

/// The data of a chart.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(super) enum Chart {
    /// Shares of a whole in columns of time.
    Stacked {
        /// Seconds of a column.
        width_s: f64,
        /// One a part.
        series: Vec<Part>,
        /// The whole of each column.
        totals: Vec<u64>,
    },
    /// Curves.
    Lines {
        /// Axis.
        x: Axis,
        /// Axis.
        y: Axis,
        /// The curves.
        series: Vec<Curve>,
        /// Levels to compare with.
        marks: Vec<Mark>,
        /// Steps of cumulative distributions, whose tails can be looked at on a scale of their own.
        cumulative: bool,
    },
    /// One bar a category.
    Bars {
        /// Name of the values.
        y: Axis,
        /// Names of the bars.
        categories: Vec<String>,
        /// Their lengths.
        values: Vec<f64>,
        /// Colour.
        color: String,
        /// Colours of single bars, where they differ.
        colors: Vec<String>,
    },
    /// Rows of coloured cells over time.
    Strip {
        /// Seconds of a column.
        width_s: f64,
        /// Columns.
        columns: usize,
        /// What the letters of the cells stand for.
        classes: Vec<Class>,
        /// The rows, in each order that can be chosen.
        orders: Vec<Order>,
    },
    /// A grid of values, one grid for each figure that can be chosen.
    Heat {
        /// Name of the columns.
        x_name: String,
        /// Columns.
        x: Vec<String>,
        /// Seconds of a column, where columns are times of the run.
        width_s: Option<f64>,
        /// Name of the rows.
        y_name: String,
        /// Rows, from the top.
        y: Vec<String>,
        /// The figures.
        grids: Vec<Grid>,
    },
    /// Intervals around a value, one a row.
    Ranges {
        /// Name and unit of the axis.
        x: Axis,
        /// The rows, from the top.
        rows: Vec<Range>,
    },
}

/// One part of a [`Chart::Stacked`].
#[derive(Debug, Clone, Serialize)]
pub(super) struct Part {
    /// Name.
    pub name: String,
    /// Colour.
    pub color: String,
    /// Count in each column.
    pub values: Vec<u64>,
}

/// One curve.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Curve {
    /// Name.
    pub name: String,
    /// Colour.
    pub color: String,
    /// `solid`, `dashed` or `dotted`.
    pub dash: &'static str,
    /// x and y.
    pub points: Vec<[f64; 2]>,
}

/// A level.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Mark {
    /// Name.
    pub name: String,
    /// Its y.
    pub at: f64,
}

/// What a letter of a cell stands for.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Class {
    /// The letter.
    pub letter: char,
    /// Name.
    pub name: String,
    /// Colour.
    pub color: String,
}

/// Rows in one order.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Order {
    /// Name of the order.
    pub name: &'static str,
    /// The rows, from the top.
    pub rows: Vec<Row>,
}

/// One row of a strip.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Row {
    /// Name.
    pub label: String,
    /// A letter a column; a space is nothing.
    pub cells: String,
}

/// One figure over a grid.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Grid {
    /// Name.
    pub name: String,
    /// `s`, `%` …
    pub unit: &'static str,
    /// What it shows, where another grid shows something else; empty elsewhere.
    pub says: String,
    /// Row by row; null where there is none.
    pub values: Vec<Vec<Option<f64>>>,
    /// Words for cells, row by row; empty when the value says it all.
    pub notes: Vec<Vec<String>>,
}

/// One row of a [`Chart::Ranges`].
#[derive(Debug, Clone, Serialize)]
pub(super) struct Range {
    /// Name.
    pub label: String,
    /// Lower end.
    pub low: f64,
    /// The value.
    pub at: f64,
    /// Upper end.
    pub high: f64,
    /// Colour.
    pub color: String,
    /// Words for the pointer.
    pub note: String,
}

impl Axis {
    /// With equal steps.
    pub(super) fn linear(name: impl Into<String>, unit: &'static str) -> Axis {
        Axis { name: name.into(), unit, log: false }
    }

    /// With equal factors.
    pub(super) fn log(name: impl Into<String>, unit: &'static str) -> Axis {
        Axis { name: name.into(), unit, log: true }
    }
}

/// Colour of a failed request, whatever its mode.
pub(super) const FAILED: &str = "failed";

/// Colour of a mode: the same everywhere.
pub(super) fn mode_color(mode: ExecutionMode) -> &'static str {
    match mode {
        ExecutionMode::DpColocated => "dp",
        ExecutionMode::PdRouter => "pd",
        ExecutionMode::PdRouterTurn1 => "turn1",
        ExecutionMode::KvcacheSeed => "seed",
        ExecutionMode::KvcacheDirectToDSession => "direct",
        ExecutionMode::KvcacheReseed => "reseed",
        ExecutionMode::FallbackSessionCap => "cap",
        ExecutionMode::FallbackNoCapacity => "room",
        ExecutionMode::FallbackAdmissionRejected => "rejected",
        ExecutionMode::FallbackWorkerUnhealthy => "unhealthy",
        ExecutionMode::FallbackOpenFailed => "open",
        ExecutionMode::NotSent => "unsent",
    }
}

/// Six significant digits: enough for a chart that shows four at most, and short.
pub(super) fn short(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let digits = 5 - value.abs().log10().floor() as i32;
    let scale = 10f64.powi(digits.clamp(-300, 300));
    let rounded = (value * scale).round() / scale;
    if rounded.is_finite() { rounded } else { value }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_mode_has_a_colour_of_its_own_in_the_style_sheet() {
        let css = include_str!("page.css");
        let colors: BTreeSet<&str> = ExecutionMode::ALL.iter().map(|mode| mode_color(*mode)).collect();
        assert_eq!(colors.len(), ExecutionMode::ALL.len());
        for color in colors.into_iter().chain([FAILED]) {
            assert_eq!(css.matches(&format!("--c-{color}: light-dark(")).count(), 1, "{color}");
        }
    }

    #[test]
    fn six_digits_are_kept() {
        assert_eq!(
            [0.0, 1.0 / 3.0, 123_456.789, -0.000_123_456_7].map(short),
            [0.0, 0.333_333, 123_457.0, -0.000_123_457]
        );
    }
}
