//! `sweep`: every combination of a sweep file as a run of its own, resumable, with one table over all of them.
//!
//! Reading order: `plan` (the cells), `folder` (which are done), `run` (the pool), `show` (what is printed). Invariant: the
//! folder of a sweep belongs to one process at a time, and what is done is never run again unless that was asked for.

mod differs;
mod display;
mod dry;
mod filter;
mod folder;
mod goodput;
mod live;
mod plan;
mod run;
mod show;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use clap::Args;

use crate::base::words::plural;
use crate::cli::drive::{broken, write_sealed};
use crate::cli::exit::{Exit, Failure};
use crate::cli::folder::{SWEEP, SWEEP_PARQUET, write_whole};
use crate::cli::inputs::{ReadingArgs, objectives, tell_notices};
use crate::cli::live::{LiveArgs, TargetArg};
use crate::cli::member::Found;
use crate::cli::output::FormatName;
use crate::cli::page::PageArgs;
use crate::cli::signals::Signals;
use crate::cli::stdout;
use crate::cli::terminal::Terminal;
use crate::results::Slos;
use crate::results::render::Format;
use crate::results::sweep::{CellState, SweepCell, SweepInfo, SweepReport, VIRTUAL_TIME};
use crate::scenario::sweep::{Sweep, SweepFlags, load_sweep};
use crate::scenario::{Overlay, shipped_sweep_text, shipped_sweeps};

use filter::Chosen;
use folder::{SweepFolder, found, take_result};
use plan::{Plan, Traces};
use run::Runner;

pub use goodput::judged;
pub use show::{Ended, FoundSweep, first_cell, read_sweep, show, starving};

/// Causes named when no cell can run.
const NAMED_CAUSES: usize = 5;

const EXAMPLES: &str = "\
Examples:
  # the cells, and how long they will take
  pdreplay sweep cap-policy --dry-run
  # a shipped sweep; Ctrl-C, and the same command goes on
  pdreplay sweep cap-policy
  # the file of a shipped sweep, to start from
  pdreplay sweep cap-policy --source > caps.toml
  # a file of one's own on a recorded trace
  pdreplay sweep caps.toml trace.jsonl.zst --jobs 4
  # only some of the cells now
  pdreplay sweep cap-policy --filter policy=sticky --filter cap=4
  # requests within objectives
  pdreplay sweep cap-policy --goodput ttft:2000,e2el:60000
  # heat maps, knees and tables as one page
  pdreplay report outputs/cap-policy --html caps.html
  # the table again
  pdreplay report outputs/cap-policy

A file begins like this:
  [sweep]
  scenario = \"v3-1p7d\"
  repeats = 3
  [axes]
  policy = [\"sticky\", \"kv-aware\"]
  cap = [4, 8, 16]

Exits with 1 when a cell failed or is refused, after all others have run; with 2 when none can run.";

/// Arguments of `sweep`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct SweepArgs {
    /// Sweep file, or the name of a shipped one: cap-policy, topology, time-scale, starvation.
    #[arg(value_name = "SWEEP")]
    sweep: String,
    /// Trace file, in place of the one the sweep names. Default: the traces its scenarios generate.
    #[arg(value_name = "TRACE")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    reading: ReadingArgs,
    /// Any scenario key for all cells, over the base scenario; may be repeated. Not the key of an axis.
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Scenario")]
    set: Vec<String>,
    /// Objectives in ms that a request should keep to count as good, such as `ttft:2000,e2el:60000`, for all cells. Cells that
    /// ran with others are run again; `pdreplay report SWEEP --goodput` judges them as they are.
    #[arg(long, value_name = "METRIC:MS,…", help_heading = "Scenario")]
    goodput: Option<Slos>,
    /// End with exit 1 when in a run that keeps sessions on D less than 20 % of a session's later turns went direct; with
    /// --filter, in one of the cells it chooses.
    #[arg(long, help_heading = "Output")]
    fail_on_starvation: bool,
    /// Run points although policy, mechanism and router do not fit together.
    #[arg(long, help_heading = "Scenario")]
    allow_conflict: bool,
    /// Runs of each point, with consecutive seeds, in place of the file's.
    #[arg(long, value_name = "N", help_heading = "Run", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: Option<u32>,
    /// Threads; default: those of the file, or one per processor. Live cells run one after another.
    #[arg(long, value_name = "N", help_heading = "Run", value_parser = clap::value_parser!(u32).range(1..=1024))]
    jobs: Option<u32>,
    /// Run only the cells with this value on this axis (`seed` too); may be repeated. The others stay as they are.
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Run")]
    filter: Vec<String>,
    /// What requests are sent to; on a live target caches are emptied between two cells.
    #[arg(long, value_name = "TARGET", value_enum, default_value = "virtual", help_heading = "Run")]
    on: TargetArg,
    /// Leave the caches of live servers as they are between two cells: each finds what those before it left.
    #[arg(long, help_heading = "Run")]
    no_flush: bool,
    #[command(flatten)]
    live: LiveArgs,
    /// Print the file of a shipped sweep as it is written, comments included.
    #[arg(long, help_heading = "Output")]
    source: bool,
    /// Print the cells and how long they will take; run and write nothing.
    #[arg(long, help_heading = "Output", conflicts_with = "html")]
    dry_run: bool,
    /// Format of the table [default: table]; `json` is the whole of sweep.json.
    #[arg(long, value_name = "FORMAT", help_heading = "Output")]
    format: Option<FormatName>,
    #[command(flatten)]
    page: PageArgs,
    /// Directory of all run folders.
    #[arg(long, value_name = "DIR", default_value = "outputs", help_heading = "Results")]
    output_dir: PathBuf,
    /// Name of the folder; default: that of the sweep. One that holds this sweep goes on where it was.
    #[arg(long, value_name = "NAME", help_heading = "Results")]
    name: Option<String>,
    /// Run cells again that are there, but of another sweep file, trace or version; keep the rest.
    #[arg(long, help_heading = "Results")]
    overwrite: bool,
    /// Run all cells again.
    #[arg(long, help_heading = "Results")]
    fresh: bool,
}

impl SweepArgs {
    fn format(&self) -> Format {
        self.format.map(FormatName::format).unwrap_or_default()
    }
}

/// Runs it.
pub fn run(args: &SweepArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    if args.source {
        return source(&args.sweep);
    }
    let signals = Signals::install()?;
    signals.end_at_once(true);
    args.live.check(args.on, "--on live")?;
    args.page.check(args.format.is_some())?;
    let sweep = load(args)?;
    let chosen = Chosen::new(&args.filter, &sweep)?;
    let threads = threads(args, &sweep);
    let trace = args.trace.as_ref().or(sweep.head.trace.as_ref()).map(|path| args.reading.read(path)).transpose()?;
    let allow_conflict = args.allow_conflict || sweep.head.allow_conflict;
    let plan = Plan { sweep, allow_conflict, traces: Traces::new(trace.map(Arc::new), threads + 1) };
    let mut rows = plan.rows()?;
    refuse_all(&rows, &chosen)?;
    if let (true, Some(scenario)) =
        (args.no_flush, plan.sweep.points.iter().find_map(|point| point.scenario.as_ref().ok()))
    {
        live::check_no_flush(args.on, scenario)?;
    }
    let info = plan.info(target_words(args, &plan));
    let name = args.name.as_deref().unwrap_or(&plan.sweep.head.name);
    if args.dry_run {
        let path = args.output_dir.join(name);
        if !args.fresh {
            take_done(&path, &mut rows, args.on);
        }
        return dry::run(
            &dry::Dry { plan: &plan, info, target: args.on, threads, format: args.format() },
            rows,
            |row| chosen.takes(row),
            terminal,
        );
    }
    let folder = SweepFolder::claim(&args.output_dir, name, args.fresh)?;
    let others = take_done(folder.path(), &mut rows, args.on);
    if !others.is_empty() && !args.overwrite {
        let others: Vec<&SweepCell> = others.iter().map(|ix| &rows[*ix]).collect();
        return Err(differs::refuse(&plan, folder.path(), &others, &args.set, args.goodput.is_some()));
    }
    signals.end_at_once(false);
    sweep_cells(
        args,
        &Sweeping { plan: &plan, folder: &folder, signals: &signals, chosen: &chosen, threads },
        info,
        rows,
        terminal,
    )
}

fn source(name: &str) -> Result<Exit, Failure> {
    let text = shipped_sweep_text(name).ok_or_else(|| {
        let names: Vec<&str> = shipped_sweeps().collect();
        Failure::input(format!("no shipped sweep is called `{name}`")).hint(format!("there are {}", names.join(", ")))
    })?;
    stdout::print(text)?;
    Ok(Exit::Ok)
}

/// What a sweep under way needs.
struct Sweeping<'a> {
    plan: &'a Plan,
    folder: &'a SweepFolder,
    signals: &'a Signals,
    chosen: &'a Chosen,
    threads: usize,
}

fn sweep_cells(
    args: &SweepArgs,
    sweeping: &Sweeping,
    info: SweepInfo,
    mut rows: Vec<SweepCell>,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let Sweeping { plan, folder, signals, chosen, threads } = *sweeping;
    plan.traces.given().into_iter().for_each(|trace| tell_notices(trace, &terminal.messages));
    tell_start(&rows, folder, terminal)?;
    let is_work = |row: &SweepCell| row.state == CellState::Missing && chosen.takes(row);
    let work: Vec<usize> = (0..rows.len()).filter(|ix| is_work(&rows[*ix])).collect();
    let begun = write(folder, &SweepReport::new(info.clone(), rows.clone()));
    if !work.is_empty() {
        begun?;
    } else if let Err(failure) = begun {
        let files = format!("{SWEEP} and {SWEEP_PARQUET}");
        terminal.messages.warning(format!("nothing was left to run, and {files} are not written anew: {failure}"));
    }
    let runner = Runner { plan, folder, signals, target: args.on, flush: !args.no_flush, terminal };
    let stopped = runner.run(&mut rows, &work, threads);
    let left = work.iter().filter(|ix| rows[**ix].state == CellState::Missing).count();
    let report = SweepReport::new(info, rows);
    let written = if work.is_empty() { Ok(()) } else { write(folder, &report) };
    if let Some(failure) = stopped {
        // What could not be written is told once.
        let missing = plural(left as u64, "cell");
        let failure = Failure { exit: Exit::Broke, ..failure };
        return Err(failure.hint(format!("the same command goes on with the {missing} that are missing")));
    }
    written?;
    let ended = if left > 0 && signals.caught().is_some() { Ended::Interrupted } else { Ended::Asked };
    show(&report, folder.path(), &args.page, args.format.map(FormatName::format), ended, terminal)?;
    let exit = exit_of(&report, left, signals, chosen);
    let starving = starving(&report, folder.path(), |cell| chosen.takes(cell));
    Ok(starving.exit(exit, args.fail_on_starvation, terminal))
}

fn load(args: &SweepArgs) -> Result<Sweep, Failure> {
    let set = args.set.iter().map(|assignment| Overlay::set(assignment));
    let set = args.goodput.iter().flat_map(objectives).map(Ok).chain(set).collect::<Result<Vec<_>, _>>()?;
    let mut flags = SweepFlags { set, repeats: args.repeats };
    let sweep = load_sweep(&args.sweep, &flags)?;
    let embedded =
        sweep.points.iter().find_map(|point| point.scenario.as_ref().ok()).is_none_or(|s| s.live.is_embedded());
    let overlays = args.live.overlays(embedded);
    if overlays.is_empty() {
        return Ok(sweep);
    }
    flags.set.splice(0..0, overlays);
    Ok(load_sweep(&args.sweep, &flags)?)
}

fn threads(args: &SweepArgs, sweep: &Sweep) -> usize {
    let available = || thread::available_parallelism().map_or(1, NonZeroUsize::get);
    match args.on {
        TargetArg::Virtual => args.jobs.or(sweep.head.jobs).map_or_else(available, |jobs| jobs as usize),
        // Two runs at a time on one target would measure each other.
        TargetArg::Live => 1,
    }
}

/// When no cell that is asked for can run, that is all there is to say.
fn refuse_all(rows: &[SweepCell], chosen: &Chosen) -> Result<(), Failure> {
    let asked = || rows.iter().filter(|row| chosen.takes(row));
    if asked().any(|row| row.state != CellState::Refused) {
        return Ok(());
    }
    let mut causes: Vec<&str> = asked().filter_map(|row| row.error.as_deref()).flat_map(str::lines).collect();
    causes.dedup();
    causes.truncate(NAMED_CAUSES);
    let all = plural(asked().count() as u64, "cell");
    Err(Failure::inputs(causes)
        .hint(format!("every cell is refused ({all}): change the base scenario or the axes"))
        .hint("--allow-conflict runs pairs of policy, mechanism and router that do not fit together"))
}

/// Takes the results of cells that are done; gives the places of those whose folders hold another run.
fn take_done(path: &Path, rows: &mut [SweepCell], on: TargetArg) -> Vec<usize> {
    let mut others = Vec::new();
    for (ix, row) in rows.iter_mut().enumerate().filter(|(_, row)| row.state == CellState::Missing) {
        match found(path, row, on == TargetArg::Live) {
            Found::Done => {
                take_result(path, row);
            }
            Found::Other => others.push(ix),
            Found::Nothing | Found::Unfinished(_) => {}
        }
    }
    others
}

fn tell_start(rows: &[SweepCell], folder: &SweepFolder, terminal: &Terminal) -> Result<(), Failure> {
    let done = rows.iter().filter(|row| row.state == CellState::Done).count() as u64;
    if done > 0 {
        terminal.messages.note(format!(
            "{} of {} are done already and are kept",
            done,
            plural(rows.len() as u64, "cell")
        ));
    }
    let mut strangers = folder.cell_names()?;
    for row in rows {
        strangers.remove(row.folder.rsplit('/').next().unwrap_or_default());
    }
    if let Some(first) = strangers.first() {
        let count = plural(strangers.len() as u64, "folder");
        terminal
            .messages
            .note(format!("{count} in cells/ belong to no cell of this sweep and are left alone: {first}"));
    }
    let mut refused: Vec<(&str, &SweepCell, u64)> = Vec::new();
    for row in rows.iter().filter(|row| row.state == CellState::Refused) {
        let error = row.error.as_deref().unwrap_or_default();
        match refused.iter_mut().find(|(known, ..)| *known == error) {
            Some((.., count)) => *count += 1,
            None => refused.push((error, row, 1)),
        }
    }
    for (error, first, count) in refused {
        let cells = plural(count, "cell");
        terminal.messages.warning(format!(
            "refused: {cells}, the first is {} ({}): {error}",
            first.number,
            first.words()
        ));
    }
    Ok(())
}

fn write(folder: &SweepFolder, report: &SweepReport) -> Result<(), Failure> {
    let path = folder.files().file(SWEEP_PARQUET);
    write_whole(&path, |out| report.write_parquet(out)).map_err(broken)?;
    write_sealed(folder.files(), SWEEP, report).map_err(broken)
}

fn exit_of(report: &SweepReport, left: usize, signals: &Signals, chosen: &Chosen) -> Exit {
    let asked = || report.cells.iter().filter(|cell| chosen.takes(cell));
    let is_broken = |cell: &SweepCell| matches!(cell.state, CellState::Failed | CellState::Refused);
    match signals.caught() {
        Some(signal) if left > 0 => signal,
        Some(_) | None if asked().all(|cell| cell.state == CellState::Refused) => Exit::Usage,
        Some(_) | None if asked().any(is_broken) => Exit::Broke,
        Some(_) | None => Exit::Ok,
    }
}

fn target_words(args: &SweepArgs, plan: &Plan) -> String {
    match (args.on, plan.sweep.points.iter().find_map(|point| point.scenario.as_ref().ok())) {
        (TargetArg::Live, Some(scenario)) => format!("real time, {}", scenario.live.target.as_str()),
        (TargetArg::Virtual | TargetArg::Live, _) => VIRTUAL_TIME.into(),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::args::Args;

    #[test]
    fn help_names_every_shipped_sweep() {
        let sweep = Args::command().find_subcommand("sweep").unwrap().clone();
        let help = sweep.get_positionals().next().unwrap().get_help().unwrap().to_string();
        let names: Vec<&str> = shipped_sweeps().collect();
        assert!(help.ends_with(&names.join(", ")), "{help}");
    }
}
