//! `replay`: one run, or seeded replicas of it.

use std::path::PathBuf;

use clap::Args;
use jiff::Timestamp;

use crate::cli::drive::{Finished, Job, drive};
use crate::cli::exit::{Exit, Failure};
use crate::cli::export::ExportArgs;
use crate::cli::folder::{RunFolder, Wanted, path_safe};
use crate::cli::found::{Asked, FoundRun};
use crate::cli::inputs::{InputArgs, Inputs, tell_notices};
use crate::cli::live::{Ready, TargetArg};
use crate::cli::outfile;
use crate::cli::output::OutputArgs;
use crate::cli::page::{self, PageArgs};
use crate::cli::preflight;
use crate::cli::replicas;
use crate::cli::signals::Signals;
use crate::cli::stages::{Stage, Stopwatch};
use crate::cli::starving::Starving;
use crate::cli::stdout;
use crate::cli::terminal::Terminal;
use crate::results::render::{Extras, Format};

const EXAMPLES: &str = "\
Examples:
  # built-in trace, default scenario, virtual time
  pdreplay replay
  # a recorded trace on a shipped scenario
  pdreplay replay trace.jsonl.zst -s v3-1p7d
  # another cap, in a run folder of that name
  pdreplay replay -s v3-1p7d --set admission.cap_max=16 --name cap16
  # five seeded replicas, with a band for each figure
  pdreplay replay --time-scale 10 --replicas 5
  # the emulated cluster behind real sockets
  pdreplay replay --target live --emulation-speed 10
  # an OpenAI-compatible server
  pdreplay replay --target live --mechanism dp --policy sticky \\
    --worker http://127.0.0.1:8000
  # requests a second within objectives
  pdreplay replay --goodput ttft:2000,e2el:60000
  # with a page to open in a browser
  pdreplay replay --html run.html
  # stdout holds only the result
  pdreplay replay --json > summary.json";

/// A run that has just ended.
const WHOLE: &str = "whole";

/// Arguments of `replay`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ReplayArgs {
    #[command(flatten)]
    inputs: InputArgs,
    /// What requests are sent to.
    #[arg(long, value_name = "TARGET", value_enum, default_value = "virtual", help_heading = "Run")]
    target: TargetArg,
    /// Run seeded replicas (seed, seed + 1, …), each in its own folder rNN. Without jitter they would all be alike: where
    /// the scenario's `replay.arrival_jitter_ms` is 0, 1 ms is taken; `--set replay.arrival_jitter_ms=0` takes none.
    #[arg(long, value_name = "N", default_value = "1", help_heading = "Run", value_parser = clap::value_parser!(u32).range(1..=1000))]
    replicas: u32,
    /// Threads for the replicas; default: one per processor. Live runs go one after another.
    #[arg(long, value_name = "N", help_heading = "Run", value_parser = clap::value_parser!(u32).range(1..=1024))]
    jobs: Option<u32>,
    /// Run although policy, mechanism and router do not fit together.
    #[arg(long, help_heading = "Run")]
    allow_conflict: bool,
    /// Do not print the preflight.
    #[arg(long, help_heading = "Output")]
    no_preflight: bool,
    /// Directory of all run folders.
    #[arg(long, value_name = "DIR", default_value = "outputs", help_heading = "Results")]
    output_dir: PathBuf,
    /// Name of the run folder; default: UTC time and scenario name. One that holds anything is refused.
    #[arg(long, value_name = "NAME", help_heading = "Results")]
    name: Option<String>,
    /// Replace an earlier run of this --name; stops when the folder holds anything else.
    #[arg(long, requires = "name", help_heading = "Results")]
    overwrite: bool,
    /// Print where the wall time went, stage by stage, on stderr.
    #[arg(long, conflicts_with = "replicas", help_heading = "Output")]
    timings: bool,
    #[command(flatten)]
    exports: ExportArgs,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Runs it.
pub fn run(args: &ReplayArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    let mut watch = Stopwatch::start();
    let signals = Signals::install()?;
    signals.end_at_once(true);
    args.inputs.scenario.live.check(args.target, "--target live")?;
    RunFolder::check(&wanted(args, ""))?;
    check_files(args)?;
    let mut inputs = args.inputs.resolve()?;
    watch.lap(Stage::Read);
    let jittered = args.replicas > 1
        && !args.inputs.scenario.named.sets(replicas::JITTER_KEY)
        && replicas::jitter(&mut inputs.scenario);
    let setup = inputs.setup()?;
    let preflight = crate::scenario::preflight(&inputs.scenario, &inputs.trace);
    if preflight.refuses() && !args.allow_conflict {
        return Err(preflight::refusal(&preflight));
    }
    let is_live = args.target == TargetArg::Live;
    let make = || Ready::make(&inputs.scenario, &inputs.trace, &setup, preflight.peak_live_sessions);
    let ready = (is_live && args.replicas == 1).then(make).transpose()?;
    signals.end_at_once(false);
    let folder = claim(args, &inputs)?;
    let percentiles = args.output.percentiles(terminal).unwrap_or_default();
    tell_notices(&inputs.trace, &terminal.messages);
    if !args.no_preflight {
        let foreign = is_live && !inputs.scenario.live.is_embedded();
        let lines = if foreign { preflight.lines_for_a_server() } else { preflight.lines() };
        lines.into_iter().for_each(|line| terminal.messages.note(line));
    }
    if let Some(ready) = &ready {
        ready.tell(&inputs.scenario, terminal);
    }
    if jittered {
        terminal.messages.note(replicas::JITTER_NOTE);
    }
    let job = Job {
        trace: inputs.trace,
        scenario: &inputs.scenario,
        setup: &setup,
        preflight: &preflight,
        percentiles: &percentiles,
        signals: &signals,
        display: Some(terminal),
        target: args.target,
    };
    if args.replicas > 1 {
        let (replicas, exit) = replicas::run(&job, &folder, args.replicas, args.jobs)?;
        if replicas.is_empty() {
            replicas.shortfall().into_iter().for_each(|shortfall| terminal.messages.warning(shortfall));
            return Ok(exit);
        }
        let write = |target: &PathBuf| page::write(target, &page::of_replicas(folder.path(), &replicas), terminal);
        let written = args.page.html.as_ref().map_or(Ok(()), write);
        let prints = args.page.leaves_stdout_after(args.output.prints(), &written);
        replicas::print(&replicas, &folder, prints.then(|| args.output.format()), terminal)?;
        written.map_err(|failure| outfile::beside(failure, WHOLE, folder.path()))?;
        let jitter_ms = inputs.scenario.replay.arrival_jitter_ms;
        replicas.hint(jitter_ms, args.inputs.trace.is_none()).into_iter().for_each(|hint| terminal.messages.note(hint));
        return Ok(args.output.exit(exit, &replicas.starving(folder.path()), terminal));
    }
    let finished = drive(job, ready, &folder, &mut watch)?;
    let written = write_files(&folder, args, terminal);
    print(&finished, &folder, args, &written, terminal)?;
    watch.lap(Stage::Print);
    if args.timings {
        terminal.messages.block(&watch.table(is_live).render(Format::Table, terminal.style));
    }
    written.map_err(|failure| outfile::beside(failure, WHOLE, folder.path()))?;
    let starving = Starving::in_run(finished.summary.starved_sessions(), folder.path().display());
    Ok(args.output.exit(finished.exit, &starving, terminal))
}

fn claim(args: &ReplayArgs, inputs: &Inputs) -> Result<RunFolder, Failure> {
    let began = Timestamp::now().strftime("%Y-%m-%dT%H-%M-%S");
    RunFolder::claim(&wanted(args, &format!("{began}-{}", path_safe(&inputs.scenario.name))))
}

fn wanted<'a>(args: &'a ReplayArgs, default_name: &'a str) -> Wanted<'a> {
    Wanted { output_dir: &args.output_dir, name: args.name.as_deref(), default_name, overwrite: args.overwrite }
}

/// Refuses places for the files beside the run before it begins.
fn check_files(args: &ReplayArgs) -> Result<(), Failure> {
    if args.replicas > 1 && args.exports.is_some() {
        return Err(Failure::input("an export is of one run, and --replicas makes several")
            .hint("export one of them afterwards, such as pdreplay report outputs/NAME/r01 --export …"));
    }
    args.page.check(args.output.prints())?;
    args.exports.check_places(args.page.html.as_deref())
}

/// What is asked for beside the run folder.
fn write_files(folder: &RunFolder, args: &ReplayArgs, terminal: &Terminal) -> Result<(), Failure> {
    if !args.exports.is_some() && args.page.html.is_none() {
        return Ok(());
    }
    let found = FoundRun::open(folder.path(), terminal)?;
    let asked = Asked::default();
    if args.exports.is_some() {
        let (summary, _) = found.summarise(&asked, terminal)?;
        args.exports.write(&found, &summary, terminal)?;
    }
    if let Some(target) = &args.page.html {
        page::write(target, &page::of_run(&found, &asked, terminal)?.0, terminal)?;
    }
    Ok(())
}

fn print(
    finished: &Finished,
    folder: &RunFolder,
    args: &ReplayArgs,
    written: &Result<(), Failure>,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let path = folder.path().display();
    let files = format!("{path}/  (summary.json, requests.parquet; pdreplay report {path} --sessions)");
    terminal.messages.settle();
    if args.exports.takes_stdout() || !args.page.leaves_stdout_after(args.output.prints(), written) {
        terminal.messages.note(format!("files: {files}"));
        return Ok(());
    }
    let extras = Extras { wall_s: Some(finished.wall_seconds), files: Some(files) };
    stdout::print(&args.output.summary(&finished.summary, &extras, terminal.style))
}
