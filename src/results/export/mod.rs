//! A run in the forms of other tools, for [`Exporter`]s: a batch of records in, bytes out.
//!
//! Nothing is invented: what the records do not hold is left out. Memory does not grow with the records. docs/formats.md says
//! what each form cannot hold.

mod aiperf;
mod csv;
mod vllm;

use std::io::{self, Write};

pub use aiperf::Aiperf;
pub use csv::Csv;
pub use vllm::Vllm;

use super::Batch;

/// Writes a run in another form, in one or more passes over its records.
pub trait Exporter {
    /// Fields that the next pass wants; `None` when there is none.
    fn next_pass(&mut self, out: &mut dyn Write) -> io::Result<Option<Vec<&'static str>>>;

    /// Takes the records of the pass.
    fn batch(&mut self, batch: &Batch, out: &mut dyn Write) -> io::Result<()>;

    /// Records that the form cannot hold, and were left out.
    fn left_out(&self) -> u64;
}

/// Writes `value` as JSON.
fn json(out: &mut dyn Write, value: &impl serde::Serialize) -> io::Result<()> {
    serde_json::to_writer(out, value).map_err(io::Error::from)
}
