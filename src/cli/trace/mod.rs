//! `trace`: inspect, validate, generate, convert and slice. One file each; where a written trace goes is [`target`]'s.

mod convert;
mod generate;
mod inspect;
mod slice;
mod target;
mod validate;

use clap::Subcommand;

use crate::cli::exit::{Exit, Failure};
use crate::cli::terminal::Terminal;

/// Subcommands of `trace`.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Statistics of a trace: sessions, turns, gaps, lengths, growth, cache hits, peaks.
    Inspect(inspect::InspectArgs),
    /// Check a trace and say how it would be read.
    Validate(validate::ValidateArgs),
    /// Make a SWE-bench-like trace from a seed.
    Generate(generate::GenerateArgs),
    /// Write a trace as native JSONL, whatever its format.
    Convert(convert::ConvertArgs),
    /// Cut out sessions, a time range or turns.
    Slice(slice::SliceArgs),
}

/// Runs one of them.
pub fn run(command: &TraceCommand, terminal: &Terminal) -> Result<Exit, Failure> {
    match command {
        TraceCommand::Inspect(args) => inspect::run(args, terminal),
        TraceCommand::Validate(args) => validate::run(args),
        TraceCommand::Generate(args) => generate::run(args, terminal),
        TraceCommand::Convert(args) => convert::run(args, terminal),
        TraceCommand::Slice(args) => slice::run(args, terminal),
    }?;
    Ok(Exit::Ok)
}
