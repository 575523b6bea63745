//! Rendering of a [`super::RunSummary`]: the text after a run, and tables as text, CSV, Markdown or JSON.
//!
//! Computes nothing. Text is plain ASCII-safe Unicode within the width given; colour only repeats what words say.

pub mod diff;
mod markdown;
mod page;
pub(in crate::results) mod summary;
mod sweep;
mod table;
mod tables;

pub use markdown::markdown;
pub use summary::{Extras, summary};
pub(in crate::results) use sweep::title;
pub use sweep::{
    KNEE, PREDICTED_RANGE, fitted_groups, in_slo, knees, page_cells, page_groups, sweep_cells, sweep_groups,
};
pub(super) use table::csv_field;
pub use table::{Format, FormatError, Style, Table, noted, visible};
pub use tables::{modes, sessions, transfers, workers};
