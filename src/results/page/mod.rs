//! Pages: a run, its replicas, a sweep or a comparison as one HTML file that asks nobody for anything.
//!
//! Owns what stands on a page, its style and scripts. Touches no file or clock: it takes summaries and reports, and for a
//! run's charts a [`PageTally`] that was fed its records; it gives the whole file as text. Here alone is the chart library
//! named. Invariant: what comes from a run gets into a page through `html` only, escaped.

mod chart;
mod columns;
mod diff;
mod html;
mod matrix;
mod overview;
mod replicas;
mod residency;
mod run;
mod shell;
mod story;
mod strip;
mod sweep;
mod tables;
mod tally;
#[cfg(test)]
mod tests;
mod workers;

pub use diff::diff_page;
pub use replicas::replicas_page;
pub use run::{RunPage, run_page};
pub use sweep::sweep_page;
pub use tally::PageTally;
