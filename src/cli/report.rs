//! `report`: tables of a run folder, also of one whose run was killed.
//!
//! What it prints is computed anew from the records, or read from `replicas.json`.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::cli::exit::{Exit, Failure};
use crate::cli::export::ExportArgs;
use crate::cli::folder;
use crate::cli::found::{Asked, FoundRun};
use crate::cli::ledger;
use crate::cli::output::OutputArgs;
use crate::cli::page::{self, PageArgs};
use crate::cli::replicas::{self, Replicas};
use crate::cli::starving::Starving;
use crate::cli::stdout;
use crate::cli::sweep;
use crate::cli::terminal::Terminal;
use crate::results::render::{self, Extras, Format, Table};
use crate::results::sweep::SweepReport;
use crate::results::{RunSummary, Slos};

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
  # for a pull request
  pdreplay report outputs/NAME --format markdown
  # requests within objectives of your own
  pdreplay report outputs/NAME --goodput ttft:2000,e2el:60000
  # the same, by a file of the folder
  pdreplay report outputs/NAME/requests.jsonl";

/// Judges a run, or every cell of a sweep.
const GOODPUT: &str = "--goodput";

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
    /// Objectives in ms that a request should keep to count as good, such as `ttft:2000,e2el:60000`. Default: those of the run.
    /// Of a sweep or replicas: each of their runs, by its records.
    #[arg(long, value_name = "METRIC:MS,…", help_heading = "Output")]
    goodput: Option<Slos>,
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
    args.page.check(args.output.prints())?;
    let asked = Asked { percentiles: args.output.percentiles(terminal), slos: args.goodput };
    if let Some(replicas) = replicas::read(&args.run, terminal)? {
        return args.replicas(replicas, terminal);
    }
    if let Some(report) = sweep::read_sweep(&args.run, terminal)? {
        return args.sweep(report, terminal);
    }
    let found = FoundRun::open(&args.run, terminal)?;
    args.exports.check(args.page.html.as_deref(), &found)?;
    if args.tables.events {
        return args.events(&found, &asked, terminal);
    }
    let starved = match &args.page.html {
        Some(target) if !args.exports.is_some() && !args.output.prints() => {
            let (page, summary) = page::of_run(&found, &asked, terminal)?;
            page::write(target, &page, terminal)?;
            summary.starved_sessions()
        }
        _ => args.tables_and_files(&found, &asked, terminal)?.starved_sessions(),
    };
    Ok(args.output.exit(Exit::Ok, &Starving::in_run(starved, args.run.display()), terminal))
}

impl ReportArgs {
    /// Writes all files that are asked for, and prints what is left to print.
    fn tables_and_files(&self, found: &FoundRun, asked: &Asked, terminal: &Terminal) -> Result<RunSummary, Failure> {
        let (mut summary, stored) = found.summarise(asked, terminal)?;
        self.exports.write(found, &summary, terminal)?;
        found.note(&mut summary);
        if let Some(target) = &self.page.html {
            page::write(target, &page::of_run(found, asked, terminal)?.0, terminal)?;
        }
        terminal.messages.settle();
        if self.exports.takes_stdout() || !self.page.leaves_stdout(self.output.prints()) {
            return Ok(summary);
        }
        let format = self.output.format();
        match (self.tables.of(&summary), stored) {
            (Some(table), _) => stdout::print(&table.render(format, terminal.style))?,
            (None, Some(stored)) if format == Format::Json && *asked == Asked::default() && found.said().is_empty() => {
                stdout::print(&stored.text)?;
            }
            (None, _) => stdout::print(&self.output.summary(&summary, &extras(found), terminal.style))?,
        }
        Ok(summary)
    }

    fn events(&self, found: &FoundRun, asked: &Asked, terminal: &Terminal) -> Result<Exit, Failure> {
        if self.exports.is_some() {
            let (summary, _) = found.summarise(asked, terminal)?;
            self.exports.write(found, &summary, terminal)?;
        } else {
            found.tell_damage(None, terminal);
        }
        let ledger = ledger::count(&found.events(terminal))?;
        ledger.cut_off.iter().for_each(|cut_off| found.say(cut_off, terminal));
        terminal.messages.settle();
        if !self.exports.takes_stdout() {
            stdout::print(&ledger.table.render(self.output.format(), terminal.style))?;
        }
        Ok(Exit::Ok)
    }

    /// The bands of replicas; what is of one run belongs to one of them.
    fn replicas(&self, replicas: Replicas, terminal: &Terminal) -> Result<Exit, Failure> {
        let folder = self.folder();
        let one = folder.join(folder::replica_name(1));
        if let Some(flag) = self.of_one_run().filter(|flag| *flag != GOODPUT) {
            return Err(
                of_one_run(&self.run, "replicas", flag).hint(format!("give one of them, such as {}", one.display()))
            );
        }
        let replicas = match self.goodput {
            Some(slos) => replicas.judged(folder, slos, terminal),
            None => replicas,
        };
        if let Some(target) = &self.page.html {
            page::write(target, &page::of_replicas(&self.run, &replicas), terminal)?;
        }
        if self.page.leaves_stdout(self.output.prints()) {
            terminal.messages.settle();
            stdout::print(&replicas::shown(&replicas, self.output.format(), terminal))?;
        }
        if let Some(shortfall) = replicas.shortfall() {
            terminal.messages.warning(shortfall);
        }
        Ok(self.output.exit(Exit::Ok, &replicas.starving(folder), terminal))
    }

    /// The table of a sweep; those of one run belong to its cells.
    fn sweep(&self, report: SweepReport, terminal: &Terminal) -> Result<Exit, Failure> {
        let folder = self.folder();
        if let Some(flag) = self.of_one_run().filter(|flag| *flag != GOODPUT) {
            let cell = report.cells.first().map_or("cells/NAME", |cell| cell.folder.as_str());
            return Err(of_one_run(&self.run, "a sweep", flag)
                .hint(format!("give one of its cells, such as {}/{cell}", folder.display())));
        }
        let report = match self.goodput {
            Some(slos) => sweep::judged(report, folder, slos, terminal),
            None => report,
        };
        sweep::show(&report, folder, &self.page, self.output.asked(), sweep::Ended::Unknown, terminal)?;
        Ok(self.output.exit(Exit::Ok, &sweep::starving(&report, folder, |_| true), terminal))
    }

    fn folder(&self) -> &Path {
        if self.run.is_dir() { &self.run } else { self.run.parent().unwrap_or(&self.run) }
    }

    /// What is asked for and only one run has.
    fn of_one_run(&self) -> Option<&'static str> {
        let table = self.tables.asked();
        let given = [
            (self.exports.is_some(), "an export"),
            (self.output.percentiles.is_some(), "--percentiles"),
            (self.goodput.is_some(), GOODPUT),
        ];
        table.or_else(|| given.into_iter().find(|(given, _)| *given).map(|(_, name)| name))
    }
}

fn of_one_run(run: &Path, what: &str, flag: &str) -> Failure {
    Failure::input(format!("{} holds {what}, and {flag} is for one run", run.display()))
}

impl TableArgs {
    fn asked(&self) -> Option<&'static str> {
        let given = [
            (self.modes, "--modes"),
            (self.sessions, "--sessions"),
            (self.workers, "--workers"),
            (self.transfers, "--transfers"),
            (self.events, "--events"),
        ];
        given.into_iter().find(|(given, _)| *given).map(|(_, flag)| flag)
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
