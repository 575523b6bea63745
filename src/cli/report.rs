//! `report`: tables of a run folder, also of one whose run was killed.
//!
//! What it prints is computed anew from the records, or read from `replicas.json`.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::cli::exit::{Exit, Failure};
use crate::cli::export::ExportArgs;
use crate::cli::found::{Asked, FoundRun};
use crate::cli::ledger;
use crate::cli::outfile;
use crate::cli::output::OutputArgs;
use crate::cli::page::{self, PageArgs};
use crate::cli::replicas::{self, FoundReplicas};
use crate::cli::starving::Starving;
use crate::cli::stdout;
use crate::cli::stored::Stored;
use crate::cli::sweep::{self, FoundSweep};
use crate::cli::terminal::Terminal;
use crate::results::render::{self, Extras, Format, Table};
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
    if let Some(replicas) = replicas::read(&args.run)? {
        return args.replicas(replicas, terminal);
    }
    if let Some(sweep) = sweep::read_sweep(&args.run, terminal)? {
        return args.sweep(sweep, terminal);
    }
    let found = FoundRun::open(&args.run, terminal)?;
    args.exports.check(args.page.html.as_deref(), &found)?;
    if args.tables.events {
        return args.events(&found, &asked, terminal);
    }
    let (summary, written) = match &args.page.html {
        Some(target) if !args.exports.is_some() && !args.output.prints() => {
            let (page, summary) = page::of_run(&found, &asked, terminal)?;
            let written = page::write(target, &page, terminal);
            if args.page.leaves_stdout_after(false, &written) {
                args.print(&found, &summary, None, &asked, terminal)?;
            }
            (summary, written)
        }
        _ => args.tables_and_files(&found, &asked, terminal)?,
    };
    written.map_err(|failure| beside(failure, &found))?;
    Ok(args.judged(&found, summary.starved_sessions(), terminal))
}

/// What could not be written keeps no table from being printed; what could not be read does.
fn beside_table(written: Result<(), Failure>) -> Result<Result<(), Failure>, Failure> {
    match written {
        Err(failure) if !failure.is_write => Err(failure),
        written => Ok(written),
    }
}

/// A file beside the run could not be written; the run was only read.
fn beside(failure: Failure, found: &FoundRun) -> Failure {
    let is_whole = found.manifest.as_ref().is_some_and(|manifest| manifest.facts.is_some()) && found.said().is_empty();
    match &found.manifest {
        _ if !failure.is_write => failure,
        None => failure.hint(format!("the records are as they were, in {}", found.requests.display())),
        Some(_) => outfile::beside(failure, if is_whole { "whole" } else { "as it was" }, &found.folder),
    }
}

impl ReportArgs {
    /// Writes all files that are asked for, and prints what is left to print, also where they could not be written.
    fn tables_and_files(
        &self,
        found: &FoundRun,
        asked: &Asked,
        terminal: &Terminal,
    ) -> Result<(RunSummary, Result<(), Failure>), Failure> {
        let (mut summary, stored) = found.summarise(asked, terminal)?;
        let mut written = beside_table(self.exports.write(found, &summary, terminal))?;
        found.note(&mut summary);
        if let (Some(target), Ok(())) = (&self.page.html, &written) {
            let page = page::of_run(found, asked, terminal)?.0;
            written = page::write(target, &page, terminal);
        }
        if !self.exports.takes_stdout() && self.page.leaves_stdout_after(self.output.prints(), &written) {
            self.print(found, &summary, stored.as_ref(), asked, terminal)?;
        }
        Ok((summary, written))
    }

    /// The table that is asked for, or the summary: the one that is `stored` where that says the same.
    fn print(
        &self,
        found: &FoundRun,
        summary: &RunSummary,
        stored: Option<&Stored>,
        asked: &Asked,
        terminal: &Terminal,
    ) -> Result<(), Failure> {
        terminal.messages.settle();
        let format = self.output.format();
        match (self.tables.of(summary), stored) {
            (Some(table), _) => stdout::print(&table.render(format, terminal.style)),
            (None, Some(stored)) if format == Format::Json && *asked == Asked::default() && found.said().is_empty() => {
                stdout::print(&stored.text)
            }
            (None, _) => stdout::print(&self.output.summary(summary, &extras(found), terminal.style)),
        }
    }

    fn events(&self, found: &FoundRun, asked: &Asked, terminal: &Terminal) -> Result<Exit, Failure> {
        let (mut written, mut starved) = (Ok(()), None);
        if self.exports.is_some() || self.output.fail_on_starvation {
            let (summary, _) = found.summarise(asked, terminal)?;
            written = beside_table(self.exports.write(found, &summary, terminal))?;
            starved = summary.starved_sessions();
        } else {
            found.tell_damage(None, terminal);
        }
        let ledger = ledger::count(&found.events(terminal))?;
        ledger.cut_off.iter().for_each(|cut_off| found.say(cut_off, terminal));
        terminal.messages.settle();
        if !self.exports.takes_stdout() {
            stdout::print(&ledger.table.render(self.output.format(), terminal.style))?;
        }
        written.map_err(|failure| beside(failure, found))?;
        Ok(self.judged(found, starved, terminal))
    }

    /// The exit code of a run in which so many sessions starve.
    fn judged(&self, found: &FoundRun, starved: Option<u64>, terminal: &Terminal) -> Exit {
        let starving = Starving::in_run(starved, self.run.display()).doubted(found.doubt());
        self.output.exit(Exit::Ok, &starving, terminal)
    }

    /// The bands of replicas; what is of one run belongs to one of them.
    fn replicas(&self, found: FoundReplicas, terminal: &Terminal) -> Result<Exit, Failure> {
        let FoundReplicas { replicas, broken, .. } = found;
        let folder = self.folder();
        replicas.notes.iter().for_each(|note| terminal.messages.warning(note));
        if let Some(flag) = self.of_one_run().filter(|flag| *flag != GOODPUT) {
            let one = replicas.first(folder).map(|replica| folder.join(&replica.folder));
            return Err(of_one_run(&self.run, "replicas", flag, one));
        }
        let replicas = match self.goodput {
            Some(slos) => replicas.judged(folder, slos, terminal),
            None => replicas,
        };
        let write = |target: &PathBuf| page::write(target, &page::of_replicas(&self.run, &replicas), terminal);
        let written = self.page.html.as_ref().map_or(Ok(()), write);
        if self.page.leaves_stdout_after(self.output.prints(), &written) {
            terminal.messages.settle();
            stdout::print(&replicas::shown(&replicas, self.output.format(), terminal))?;
        }
        if let Some(shortfall) = replicas.shortfall() {
            terminal.messages.warning(shortfall);
        }
        let path = folder.display();
        written.map_err(|failure| {
            failure.hint(format!("the replicas are as they were, in {path}/: pdreplay report {path} --html FILE"))
        })?;
        Ok(self.output.exit(Exit::Ok, &replicas.starving(folder).doubted(broken), terminal))
    }

    /// The table of a sweep; those of one run belong to its cells.
    fn sweep(&self, found: FoundSweep, terminal: &Terminal) -> Result<Exit, Failure> {
        let FoundSweep { report, broken } = found;
        let folder = self.folder();
        if let Some(flag) = self.of_one_run().filter(|flag| *flag != GOODPUT) {
            let one = sweep::first_cell(&report, folder).map(|cell| folder.join(&cell.folder));
            return Err(of_one_run(&self.run, "a sweep", flag, one));
        }
        let report = match self.goodput {
            Some(slos) => sweep::judged(report, folder, slos, terminal),
            None => report,
        };
        sweep::show(&report, folder, &self.page, self.output.asked(), sweep::Ended::Unknown, terminal)?;
        let starving = sweep::starving(&report, folder, |_| true).doubted(broken);
        Ok(self.output.exit(Exit::Ok, &starving, terminal))
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

/// `one` is such a run.
fn of_one_run(run: &Path, what: &str, flag: &str, one: Option<PathBuf>) -> Failure {
    let failure = Failure::input(format!("{} holds {what}, and {flag} is for one run", run.display()));
    match one {
        Some(one) => failure.hint(format!("give one of them, such as {}", one.display())),
        None => failure.hint("none of its runs is there as it ended: each that is left can be given by its folder"),
    }
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
