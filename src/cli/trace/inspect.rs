//! `trace inspect`: statistics of a trace, or its sessions one by one.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::base::SessionIx;
use crate::cli::exit::Failure;
use crate::cli::folder::manifest::TraceFacts;
use crate::cli::inputs::{ReadingArgs, built_in};
use crate::cli::output::{FormatName, json};
use crate::cli::stdout;
use crate::cli::terminal::Terminal;
use crate::results::render::{Format, Table};
use crate::trace::{Trace, TraceStats};

/// Arguments of `trace inspect`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  pdreplay trace inspect trace.jsonl.zst\n  pdreplay trace inspect --sessions --format csv"
)]
pub struct InspectArgs {
    /// Trace file; default: the built-in generated trace.
    #[arg(value_name = "TRACE")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    reading: ReadingArgs,
    /// One line per session instead.
    #[arg(long, help_heading = "Output")]
    sessions: bool,
    /// Format of what is printed.
    #[arg(long, value_name = "FORMAT", default_value = "table", help_heading = "Output")]
    format: FormatName,
}

/// One session, for `--sessions`.
#[derive(Debug, Serialize)]
struct SessionLine<'a> {
    arrival_rank: usize,
    session_id: &'a str,
    turns: usize,
    first_s: f64,
    last_s: f64,
    first_input_tokens: u32,
    peak_input_tokens: u32,
    output_tokens: u64,
    incomplete: bool,
}

/// Prints them.
pub fn run(args: &InspectArgs, terminal: &Terminal) -> Result<(), Failure> {
    let trace = args.trace.as_ref().map_or_else(built_in, |path| args.reading.read(path))?;
    let format = args.format.format();
    let text = match (args.sessions, format) {
        (true, Format::Json) => json(&session_lines(&trace)),
        (false, Format::Json) => json(&TraceFacts::of(&trace)),
        (true, Format::Table | Format::Csv | Format::Markdown) => session_table(&trace).render(format, terminal.style),
        (false, Format::Table | Format::Csv | Format::Markdown) => table(&trace).render(format, terminal.style),
    };
    stdout::print(&text)
}

fn table(trace: &Trace) -> Table {
    let meta = &trace.meta;
    let mut rows = vec![
        vec!["source".into(), meta.source.clone()],
        vec!["sha256".into(), meta.sha256.clone()],
        vec!["format".into(), format!("{}, timestamps in {}", meta.format, meta.timestamp_unit)],
        vec!["block size".into(), format!("{} tokens ({})", meta.block_size, meta.block_size_source)],
    ];
    rows.extend(TraceStats::of(trace).rows().into_iter().map(|row| vec![row.label.to_owned(), row.value]));
    rows.extend(trace.notices.iter().map(|notice| vec![format!("note: {}", notice.code), notice.text.clone()]));
    Table::plain(&["what", "value"], rows)
}

fn session_lines(trace: &Trace) -> Vec<SessionLine<'_>> {
    let line = |(rank, session): (usize, &crate::trace::SessionTrace)| {
        // The index is an arrival rank, which a trace numbers in 32 bits.
        let turns = trace.turns_of(SessionIx(rank as u32));
        SessionLine {
            arrival_rank: rank + 1,
            session_id: &trace.sessions[rank].id,
            turns: turns.len(),
            first_s: turns.first().map_or(0.0, |turn| turn.timestamp.as_secs_f64()),
            last_s: turns.last().map_or(0.0, |turn| turn.timestamp.as_secs_f64()),
            first_input_tokens: turns.first().map_or(0, |turn| turn.input_length),
            peak_input_tokens: turns.iter().map(|turn| turn.input_length).max().unwrap_or(0),
            output_tokens: turns.iter().map(|turn| u64::from(turn.output_length)).sum(),
            incomplete: session.incomplete,
        }
    };
    trace.sessions.iter().enumerate().map(line).collect()
}

fn session_table(trace: &Trace) -> Table {
    let row = |line: SessionLine| {
        vec![
            line.session_id.to_owned(),
            line.arrival_rank.to_string(),
            line.turns.to_string(),
            format!("{:.3}", line.first_s),
            format!("{:.3}", line.last_s),
            line.first_input_tokens.to_string(),
            line.peak_input_tokens.to_string(),
            line.output_tokens.to_string(),
            if line.incomplete { "yes" } else { "no" }.to_owned(),
        ]
    };
    let titles = [
        "session_id",
        "arrival_rank",
        "turns",
        "first_s",
        "last_s",
        "first_input_tokens",
        "peak_input_tokens",
        "output_tokens",
        "incomplete",
    ];
    Table::plain(&titles, session_lines(trace).into_iter().map(row).collect())
}
