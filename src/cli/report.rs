//! `report`: tables of a run folder, also of one whose run was killed.
//!
//! What it prints is computed anew from the records, or read from `replicas.json`.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::cli::exit::{Exit, Failure};
use crate::cli::export::ExportArgs;
use crate::cli::folder;
use crate::cli::found::{FoundRun, parse_json};
use crate::cli::ledger;
use crate::cli::output::OutputArgs;
use crate::cli::page::{self, PageArgs};
use crate::cli::replicas::{self, Replicas};
use crate::cli::stdout;
use crate::cli::sweep;
use crate::cli::terminal::Terminal;
use crate::results::RunSummary;
use crate::results::render::{self, Extras, Format, Table};
use crate::results::sweep::SweepReport;

const EXAMPLES: &str = "\
Examples:
  # the summary
  pdreplay report outputs/NAME
  # one line per session, the starved marked
  pdreplay report outputs/NAME --sessions
  # tables and figures for programs
  pdreplay report outputs/NAME --workers --format csv
  pdreplay report outputs/NAME --percentiles 50,99.9 --json
  # for other tools: aiperf, vllm or csv, and a trace for ui.perfetto.dev
  pdreplay report outputs/NAME --export aiperf=profile_export.jsonl
  pdreplay report outputs/NAME --perfetto trace.json.gz
  # one page with charts, to open in a browser
  pdreplay report outputs/NAME --html run.html
  # the same, by a file of the folder
  pdreplay report outputs/NAME/requests.jsonl";

/// Arguments of `report`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ReportArgs {
    /// Run folder, or a file in it.
    #[arg(value_name = "RUN")]
    run: PathBuf,
    #[command(flatten)]
    tables: TableArgs,
    #[command(flatten)]
    exports: ExportArgs,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Which table; without one, the summary.
#[derive(Debug, Clone, Args)]
#[group(multiple = false, conflicts_with = "html")]
#[command(next_help_heading = "Table (default: the summary)")]
pub struct TableArgs {
    /// Execution modes: share, latencies, recomputed tokens, outcomes.
    #[arg(long)]
    modes: bool,
    /// Sessions: turns, direct share, placements, slot time, turn pattern.
    #[arg(long)]
    sessions: bool,
    /// Workers: requests, tokens, usage, evictions, errors.
    #[arg(long)]
    workers: bool,
    /// Transfers by pair of prefill and decode worker.
    #[arg(long)]
    transfers: bool,
    /// Events beside the requests, counted by kind and detail.
    #[arg(long)]
    events: bool,
}

/// Runs it.
pub fn run(args: &ReportArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    args.page.html.as_deref().map(page::check).transpose()?;
    let percentiles = args.output.percentiles(terminal);
    if let Some(replicas) = read_replicas(&args.run, terminal)? {
        if args.exports.is_some() {
            return Err(Failure::input(format!("{} holds replicas, not one run", args.run.display()))
                .hint(format!("give one of them, such as {}", args.run.join(folder::replica_name(1)).display())));
        }
        match &args.page.html {
            Some(target) => page::write(target, &page::of_replicas(&args.run, &replicas), terminal)?,
            None => stdout::print(&replicas::shown(&replicas, args.output.format(), terminal))?,
        }
        if let Some(shortfall) = replicas.shortfall() {
            terminal.messages.warning(shortfall);
        }
        return Ok(args.output.exit(Exit::Ok, replicas.most_starved(), terminal));
    }
    if let Some(report) = sweep::read_sweep(&args.run, terminal)? {
        return args.sweep(&report, terminal);
    }
    let found = FoundRun::open(&args.run, terminal)?;
    args.exports.check(args.page.html.as_deref(), &found)?;
    let format = args.output.format();
    if args.tables.events {
        if args.exports.is_some() {
            let (summary, _) = found.summarise(&percentiles, terminal)?;
            args.exports.write(&found, &summary, terminal)?;
        } else {
            found.tell_damage(None, terminal);
        }
        let ledger = ledger::count(&found.events(terminal))?;
        ledger.cut_off.iter().for_each(|cut_off| terminal.messages.warning(cut_off));
        terminal.messages.settle();
        if !args.exports.takes_stdout() {
            stdout::print(&ledger.table.render(format, terminal.style))?;
        }
        return Ok(Exit::Ok);
    }
    if let Some(target) = &args.page.html {
        if args.exports.is_some() {
            let (summary, _) = found.summarise(&percentiles, terminal)?;
            args.exports.write(&found, &summary, terminal)?;
        }
        page::write(target, &page::of_run(&found, &percentiles, terminal)?, terminal)?;
        return Ok(Exit::Ok);
    }
    let (summary, stored) = found.summarise(&percentiles, terminal)?;
    args.exports.write(&found, &summary, terminal)?;
    terminal.messages.settle();
    if args.exports.takes_stdout() {
        return Ok(Exit::Ok);
    }
    match (args.tables.of(&summary), stored) {
        (Some(table), _) => stdout::print(&table.render(format, terminal.style))?,
        (None, Some(stored)) if format == Format::Json && args.output.percentiles.is_none() => {
            stdout::print(&stored.text)?;
        }
        (None, _) => stdout::print(&args.output.summary(&summary, &extras(&found), terminal.style))?,
    }
    Ok(args.output.exit(Exit::Ok, summary.starved_sessions().unwrap_or(0), terminal))
}

impl ReportArgs {
    /// The table of a sweep; those of one run belong to its cells.
    fn sweep(&self, report: &SweepReport, terminal: &Terminal) -> Result<Exit, Failure> {
        let folder = if self.run.is_dir() { &self.run } else { self.run.parent().unwrap_or(&self.run) };
        if self.tables.any() {
            let cell = report.cells.first().map_or("cells/NAME", |cell| cell.folder.as_str());
            return Err(Failure::input(format!("{} is a sweep, and this table is of one run", self.run.display()))
                .hint(format!("give one of its cells, such as {}/{cell}", folder.display())));
        }
        sweep::show(report, folder, &self.page, self.output.format(), terminal)?;
        Ok(Exit::Ok)
    }
}

impl TableArgs {
    fn any(&self) -> bool {
        self.modes || self.sessions || self.workers || self.transfers || self.events
    }

    fn of(&self, summary: &RunSummary) -> Option<Table> {
        type Draw = fn(&RunSummary) -> Table;
        let tables: [(bool, Draw); 4] = [
            (self.modes, render::modes),
            (self.sessions, render::sessions),
            (self.workers, render::workers),
            (self.transfers, render::transfers),
        ];
        tables.into_iter().find(|(wanted, _)| *wanted).map(|(_, table)| table(summary))
    }
}

fn extras(found: &FoundRun) -> Extras {
    let wall_s = found.manifest.as_ref().and_then(|manifest| manifest.wall_seconds);
    Extras { wall_s, files: Some(format!("{}/", found.folder.display())) }
}

fn read_replicas(run: &Path, terminal: &Terminal) -> Result<Option<Replicas>, Failure> {
    let path = if run.is_dir() { run.join(folder::REPLICAS) } else { run.to_path_buf() };
    if path.file_name().is_none_or(|name| name != folder::REPLICAS) || !path.is_file() {
        return Ok(None);
    }
    let replicas: Replicas = parse_json(&path, replicas::SCHEMA_VERSION, terminal)?;
    Ok(Some(replicas))
}
