//! A table with a row for each stream, and below a row why its stream is not in step.

use crate::results::render::{Format, Style, Table};

/// Whether a table is wider than what it is written to.
pub(super) fn is_wide(table: &Table, style: Style) -> bool {
    let whole = table.render(Format::Table, Style { color: false, width: usize::MAX });
    whole.lines().any(|line| line.chars().count() > style.width)
}

/// The table with a line below each row that has a reason.
pub(super) fn with_reasons(table: &str, reasons: impl Iterator<Item = Option<String>>) -> String {
    let line = |(line, reason): (&str, Option<String>)| match reason {
        Some(reason) => format!("{line}\n    {reason}\n"),
        None => format!("{line}\n"),
    };
    table.lines().zip([None].into_iter().chain(reasons)).map(line).collect()
}
