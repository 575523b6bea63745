//! `trace validate`: errors with file, line and field; notes on what was decided or is odd.

use std::path::PathBuf;

use clap::Args;

use crate::cli::exit::Failure;
use crate::cli::inputs::ReadingArgs;
use crate::cli::output::json;
use crate::cli::stdout;
use crate::results::render::visible;
use crate::trace::Trace;

/// Arguments of `trace validate`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  pdreplay trace validate trace.jsonl.gz\n\nExits with 2 when the trace would be refused."
)]
pub struct ValidateArgs {
    /// Trace file.
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    #[command(flatten)]
    reading: ReadingArgs,
    /// Print JSON.
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// Reads the trace, and says how.
pub fn run(args: &ValidateArgs) -> Result<(), Failure> {
    let trace = args.reading.read(&args.trace)?;
    stdout::print(&if args.json { as_json(&trace) } else { as_text(&trace) })
}

fn as_text(trace: &Trace) -> String {
    let meta = &trace.meta;
    let mut lines = vec![format!(
        "{}: valid; {} requests in {} sessions; {}, timestamps in {}, blocks of {} tokens ({})",
        meta.source,
        trace.turns.len(),
        trace.sessions.len(),
        meta.format,
        meta.timestamp_unit,
        meta.block_size,
        meta.block_size_source
    )];
    lines.extend(trace.notices.iter().map(|notice| format!("note: {} ({})", notice.text, notice.code)));
    lines.iter().map(|line| visible(line) + "\n").collect()
}

fn as_json(trace: &Trace) -> String {
    json(&crate::cli::folder::manifest::TraceFacts::of(trace))
}
