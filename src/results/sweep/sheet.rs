//! Columns of `sweep.parquet`: one row a cell, one column an axis, then state, verdict and figures.

use super::{SweepAxis, SweepCell, SweepReport};
use crate::results::Figure;
use crate::results::frame::{Scalar, SheetKind as Kind, write_sheet};
use std::io::{self, Write};

/// Columns before the figures, axes left aside.
const FIXED: [(&str, Kind); 13] = [
    ("cell", Kind::Whole),
    ("seed", Kind::Whole),
    ("folder", Kind::Text),
    ("run_id", Kind::Text),
    ("state", Kind::Text),
    ("error", Kind::Text),
    ("verdict", Kind::Text),
    ("reason", Kind::Text),
    ("cause", Kind::Text),
    ("caches", Kind::Text),
    ("objectives", Kind::Text),
    ("predicted_direct_share", Kind::Number),
    ("predicted_direct_share_at_least", Kind::Number),
];

impl SweepReport {
    /// Writes `sweep.parquet`.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_parquet(&self, out: impl Write) -> io::Result<()> {
        let axes = self.sweep.axes.iter().map(|axis| (axis.key.clone(), axis.kind()));
        let (first, rest) = FIXED.split_at(1);
        let named = |columns: &[(&str, Kind)]| -> Vec<(String, Kind)> {
            columns.iter().map(|(name, kind)| ((*name).to_owned(), *kind)).collect()
        };
        let figures = Figure::HEADLINE.iter().map(|figure| (figure.to_string(), Kind::Number));
        let columns: Vec<(String, Kind)> =
            named(first).into_iter().chain(axes).chain(named(rest)).chain(figures).collect();
        write_sheet(out, &columns, self.cells.iter().map(|cell| self.row(cell)))
    }

    fn row<'a>(&'a self, cell: &'a SweepCell) -> Vec<Scalar<'a>> {
        let result = cell.result.as_ref();
        let axes = self.sweep.axes.iter().zip(&cell.at).map(|(axis, at)| axis.scalar(*at));
        let fixed = [
            Scalar::Whole(Some(cell.seed)),
            Scalar::Text(Some(&cell.folder)),
            Scalar::Text(cell.run_id.as_deref()),
            Scalar::Text(Some(cell.state.as_str())),
            Scalar::Text(cell.error.as_deref()),
            Scalar::Text(result.map(|result| result.verdict.as_str())),
            Scalar::Text(result.and_then(|result| result.reason.as_deref())),
            Scalar::Text(result.and_then(|result| result.cause.as_deref())),
            Scalar::Text(result.and_then(|result| result.caches.as_deref())),
            Scalar::Text(result.and_then(|result| result.objectives.as_deref())),
            Scalar::Number(result.and_then(|result| result.predicted_direct_share)),
            Scalar::Number(result.and_then(|result| result.predicted_direct_share_at_least)),
        ];
        let figures =
            Figure::HEADLINE.iter().map(|figure| Scalar::Number(result.and_then(|result| result.figures.get(*figure))));
        [Scalar::Whole(Some(cell.number.into()))].into_iter().chain(axes).chain(fixed).chain(figures).collect()
    }
}

impl SweepAxis {
    fn kind(&self) -> Kind {
        if self.is_numeric() { Kind::Number } else { Kind::Text }
    }

    fn scalar(&self, at: u32) -> Scalar<'_> {
        let value = &self.values[at as usize];
        match self.kind() {
            Kind::Number => Scalar::Number(Some(value.number.unwrap_or(f64::INFINITY))),
            Kind::Text | Kind::Whole => Scalar::Text(Some(&value.label)),
        }
    }
}
