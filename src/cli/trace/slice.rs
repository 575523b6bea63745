//! `trace slice`: a part of a trace, as a trace of its own.

use std::path::PathBuf;

use clap::Args;

use crate::base::Dur;
use crate::cli::exit::Failure;
use crate::cli::inputs::{ReadingArgs, tell_notices};
use crate::cli::terminal::Terminal;
use crate::cli::trace::target::TargetArgs;
use crate::trace::{SliceOptions, slice};

/// Arguments of `trace slice`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  pdreplay trace slice trace.jsonl --first-sessions 8 -o eight.jsonl\n  \
                        pdreplay trace slice trace.jsonl --from 600 --until 1200 --last-turn 10\n\nAll conditions must hold.")]
pub struct SliceArgs {
    /// Trace file.
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    #[command(flatten)]
    reading: ReadingArgs,
    /// Sessions of these ids, separated by commas.
    #[arg(long, help_heading = "Part to keep", value_name = "IDS", value_delimiter = ',')]
    sessions: Option<Vec<String>>,
    /// The first N sessions to arrive.
    #[arg(long, help_heading = "Part to keep", value_name = "N")]
    first_sessions: Option<u32>,
    /// Turns at or after this time, seconds from the first row.
    #[arg(long, help_heading = "Part to keep", value_name = "SECONDS", value_parser = seconds, allow_hyphen_values = true)]
    from: Option<Dur>,
    /// Turns before this time, seconds from the first row.
    #[arg(long, help_heading = "Part to keep", value_name = "SECONDS", value_parser = seconds, allow_hyphen_values = true)]
    until: Option<Dur>,
    /// Turns numbered N and above.
    #[arg(long, help_heading = "Part to keep", value_name = "N")]
    first_turn: Option<u32>,
    /// Turns numbered up to N.
    #[arg(long, help_heading = "Part to keep", value_name = "N")]
    last_turn: Option<u32>,
    #[command(flatten)]
    target: TargetArgs,
}

/// Slices.
pub fn run(args: &SliceArgs, terminal: &Terminal) -> Result<(), Failure> {
    args.target.check()?;
    let trace = args.reading.read(&args.trace)?;
    let options = SliceOptions {
        sessions: args.sessions.clone(),
        first_sessions: args.first_sessions,
        from: args.from,
        until: args.until,
        first_turn: args.first_turn,
        last_turn: args.last_turn,
    };
    let part = slice(&trace, &options).map_err(|error| Failure::input(format!("{}: {error}", trace.meta.source)))?;
    tell_notices(&part, &terminal.messages);
    args.target.write(&part, terminal)
}

fn seconds(text: &str) -> Result<Dur, String> {
    let refused = || format!("`{text}` is not a time; write seconds from the first row, such as 600 or 12.5");
    text.parse().ok().and_then(Dur::from_secs_f64).ok_or_else(refused)
}
