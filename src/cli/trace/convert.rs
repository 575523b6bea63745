//! `trace convert`: any readable trace as native JSONL.

use std::path::PathBuf;

use clap::Args;

use crate::cli::exit::Failure;
use crate::cli::inputs::{ReadingArgs, tell_notices};
use crate::cli::terminal::Terminal;
use crate::cli::trace::target::TargetArgs;

/// Arguments of `trace convert`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  pdreplay trace convert mooncake.jsonl -o native.jsonl.zst")]
pub struct ConvertArgs {
    /// Trace file.
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    #[command(flatten)]
    reading: ReadingArgs,
    #[command(flatten)]
    target: TargetArgs,
}

/// Converts.
pub fn run(args: &ConvertArgs, terminal: &Terminal) -> Result<(), Failure> {
    args.target.check()?;
    let trace = args.reading.read(&args.trace)?;
    tell_notices(&trace, &terminal.messages);
    args.target.write(&trace, terminal)
}
