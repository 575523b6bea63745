//! One run, from a claimed folder to a written summary.
//!
//! Order on disk: `run.json` (running), records and events as they come, then everything else, then `run.json` again.
//! Invariant: `summary.json` exists only when every record was written; a failure is told in `run.json` as far as the
//! disk allows.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::cli::exit::{Exit, Failure};
use crate::cli::folder::jsonl::way_out;
use crate::cli::folder::{self, LeftFile, LeftFiles, RunFolder, RunManifest, Sealed, write_whole};
use crate::cli::live::{self, Ready, TargetArg};
use crate::cli::progress::Display;
use crate::cli::provenance;
use crate::cli::recorder::{Files, Recorder, wall_now};
use crate::cli::signals::Signals;
use crate::cli::stages::{Stage, Stopwatch};
use crate::cli::terminal::Terminal;
use crate::record::RunFacts;
use crate::replay::{RunEnd, RunStatus};
use crate::results::{Accumulator, Percentiles, RunInfo, RunState, RunSummary};
use crate::scenario::{Preflight, Scenario, Setup};
use crate::sim::{self, SimError};
use crate::trace::Trace;

const REPORT_BUG: &str = "report this as a bug of pdreplay, with run.json; the records written so far are kept";

/// What one run needs. Shared by replicas, but for folder and scenario.
#[derive(Debug)]
pub struct Job<'a> {
    /// The trace: let go of once it is replayed, before the summary takes memory.
    pub trace: Arc<Trace>,
    /// The scenario, frozen.
    pub scenario: &'a Scenario,
    /// What the machines are built from.
    pub setup: &'a Setup,
    /// What was predicted.
    pub preflight: &'a Preflight,
    /// Percentiles of the summary.
    pub percentiles: &'a Percentiles,
    /// Where signals show.
    pub signals: &'a Signals,
    /// Where progress goes; `None`: nowhere.
    pub display: Option<&'a Terminal>,
    /// What requests are sent to.
    pub target: TargetArg,
}

/// What came out.
#[derive(Debug)]
pub struct Finished {
    /// Id of the run.
    pub run_id: String,
    /// The summary, as written.
    pub summary: RunSummary,
    /// Exit code it deserves.
    pub exit: Exit,
    /// Wall time of the simulation and the writing, seconds.
    pub wall_seconds: f64,
}

/// Runs `job` into `folder`, on `ready` where the target is a live one; laps `watch` at the end of each stage.
pub fn drive(job: Job, ready: Option<Ready>, folder: &RunFolder, watch: &mut Stopwatch) -> Result<Finished, Failure> {
    let began = wall_now();
    let mut info = provenance::run_info(job.scenario, &job.trace, job.preflight);
    let facts = ready.as_ref().map(|ready| &ready.facts);
    if let Some(facts) = facts {
        info.driver = live::driver_label(facts);
        info.speed = facts.emulation_speed;
    }
    info.caches = ready.as_ref().and_then(|ready| ready.caches.clone());
    let mut manifest = RunManifest::begin(folder.name(), job.scenario, &job.trace, &info, facts);
    write_manifest(folder, &manifest)?;
    let signals = job.signals;
    let outcome = caught(|| run_and_write(job, ready, folder, &mut info, watch));
    let wall_seconds = began.elapsed().as_secs_f64();
    manifest.stamp(wall_seconds);
    let ended = outcome.and_then(|(summary, facts, files)| {
        let exit = exit_of(&summary, signals);
        let mut manifest = manifest.clone();
        manifest.end(info, facts, files, exit);
        write_manifest(folder, &manifest)?;
        watch.lap(Stage::Write);
        Ok(Finished { run_id: manifest.run_id, summary, exit, wall_seconds })
    });
    ended.inspect_err(|failure| {
        manifest.fail(failure);
        // The disk that refused the records may refuse this, too; the first failure is the one to tell.
        let _ = write_manifest(folder, &manifest);
    })
}

/// A panic inside a run is a failure of that run; what it said is on stderr, with its place.
fn caught<T>(run: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    // What the run shared with the rest is written over or dropped, whatever state the panic left it in.
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        Err(Failure::broke(format!("the run panicked, which is a bug: {}", words_of(panic.as_ref()))).hint(REPORT_BUG))
    })
}

fn words_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a word")
}

fn run_and_write(
    job: Job,
    ready: Option<Ready>,
    folder: &RunFolder,
    info: &mut RunInfo,
    watch: &mut Stopwatch,
) -> Result<(RunSummary, RunFacts, LeftFiles), Failure> {
    let title = format!("{}: {} requests in {} sessions, {}", folder.name(), info.requests, info.sessions, info.driver);
    let schedule = ready.as_ref().map(|ready| ready.schedule(job.preflight.planned_s));
    let display = job.display.map(|terminal| Display::start(terminal, &title, info.requests, schedule, wall_now()));
    let accumulator = Accumulator::new(job.percentiles.clone()).with_slos(info.slos);
    let files = Files::create(folder, info.requests).map_err(broken)?;
    watch.lap(Stage::Prepare);
    let mut recorder = Recorder::new(files, accumulator, job.signals, display, watch);
    let setup = job.setup.clone();
    let ended = match ready {
        None => sim::drive(&job.trace, setup, &mut recorder).map_err(stopped),
        Some(ready) => ready.drive(&job.trace, setup, &mut recorder),
    };
    // Records are kept whatever ended the run; what ended it is the failure to tell.
    let recorded = recorder.finish();
    drop(job);
    let RunEnd { status, facts } = ended?;
    let (accumulator, mut files) = recorded.map_err(broken)?;
    info.state = state_of(status);
    let summary = accumulator.finish(&facts, info).map_err(|error| Failure::broke(error).hint(REPORT_BUG))?;
    watch.lap(Stage::Summarise);
    files.extend(write_results(folder, &summary).map_err(broken)?);
    Ok((summary, facts, files))
}

fn write_results(folder: &RunFolder, summary: &RunSummary) -> io::Result<LeftFiles> {
    let sessions = write_lines(folder, folder::SESSIONS, &summary.sessions)?;
    let workers = write_lines(folder, folder::WORKERS, &summary.workers)?;
    let left = [(folder::SESSIONS, sessions), (folder::WORKERS, workers)];
    let left = left.into_iter().chain([(folder::SUMMARY, write_json(folder, folder::SUMMARY, summary)?)]);
    Ok(left.map(|(name, left)| (name.to_owned(), left)).collect())
}

fn write_lines(folder: &RunFolder, name: &str, rows: &[impl serde::Serialize]) -> io::Result<LeftFile> {
    write_whole(&folder.file(name), |out| {
        rows.iter().try_for_each(|row| {
            serde_json::to_writer(&mut *out, row)?;
            out.write_all(b"\n")
        })
    })
}

/// A file of `folder` as indented JSON.
fn write_json(folder: &RunFolder, name: &str, value: &impl serde::Serialize) -> io::Result<LeftFile> {
    write_whole(&folder.file(name), |out| {
        serde_json::to_writer_pretty(&mut *out, value)?;
        out.write_all(b"\n")
    })
}

/// The same, with the digest of its content at its end.
pub fn write_sealed(folder: &RunFolder, name: &str, value: &impl serde::Serialize) -> io::Result<()> {
    write_json(folder, name, &Sealed::new(value)?).map(drop)
}

fn write_manifest(folder: &RunFolder, manifest: &RunManifest) -> Result<(), Failure> {
    write_sealed(folder, folder::RUN, manifest).map_err(broken)
}

fn stopped(error: SimError) -> Failure {
    match error {
        SimError::Observer(error) => broken(error),
        SimError::Setup(error) => error.into(),
        SimError::NoIndex(error) => Failure::input(error),
        error @ (SimError::Stalled { .. } | SimError::Spins { .. } | SimError::Endless { .. }) => Failure::broke(error),
    }
}

/// A result that could not be written; the error names path and cause.
pub fn broken(error: io::Error) -> Failure {
    let hint = format!("{}; what was written before, if anything, is kept", way_out(&error));
    Failure::broke(error).hint(hint).of_write()
}

fn state_of(status: RunStatus) -> RunState {
    match status {
        RunStatus::Completed => RunState::Completed,
        RunStatus::Interrupted => RunState::Interrupted,
        RunStatus::Stopped => RunState::Stopped,
    }
}

/// A signal first, then a run that stopped itself, then the integrity gate.
fn exit_of(summary: &RunSummary, signals: &Signals) -> Exit {
    let read = summary.integrity.verdict.shows_headline() && summary.completed > 0;
    match summary.run.state {
        RunState::Interrupted => signals.caught().unwrap_or(Exit::Interrupted),
        RunState::Stopped => Exit::Broke,
        RunState::Completed | RunState::Unfinished if read => Exit::Ok,
        RunState::Completed | RunState::Unfinished => Exit::Broke,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::folder::{ManifestState, Wanted};
    use crate::trace;

    const TURN: &str = "{\"session_id\":\"a\",\"turn_id\":1,\"timestamp\":0,\"input_length\":64,\"output_length\":2}\n";

    #[test]
    fn a_panic_is_a_failure_that_says_it_is_a_bug() {
        let panics: [fn() -> Result<(), Failure>; 2] = [|| panic!("{} requests", 3), || panic!("3 requests")];
        for panics in panics {
            let failure = caught(panics).unwrap_err();
            assert_eq!(failure.exit, Exit::Broke);
            assert_eq!(failure.to_string(), "the run panicked, which is a bug: 3 requests");
            assert!(failure.hints[0].contains("report this"));
        }
    }

    #[test]
    fn a_run_that_panics_leaves_its_folder_marked_as_failed() {
        let output_dir = std::env::temp_dir().join(format!("pdreplay-drive-{}", std::process::id()));
        let trace = trace::read_bytes("t.jsonl", TURN.as_bytes(), &trace::ReadOptions::default()).unwrap();
        let faulty = "[[fault]]\nkind = \"kill\"\nworker = \"D5\"\nat_s = 0.0\n";
        let scenario = crate::scenario::load_text("faulty.toml", faulty).unwrap();
        let mut setup = Setup::new(&scenario, &trace, "id").unwrap();
        let preflight = crate::scenario::preflight(&scenario, &trace);
        // A set-up nothing makes: the fault strikes a worker that is not there.
        setup.cluster.decode = 1;
        let folder =
            RunFolder::claim(&Wanted { output_dir: &output_dir, name: Some("a"), default_name: "", overwrite: false });
        let folder = folder.unwrap();
        let job = Job {
            trace: Arc::new(trace),
            scenario: &scenario,
            setup: &setup,
            preflight: &preflight,
            percentiles: &Percentiles::default(),
            signals: &Signals::default(),
            display: None,
            target: TargetArg::Virtual,
        };
        let failure = drive(job, None, &folder, &mut Stopwatch::start()).unwrap_err();
        let text = std::fs::read_to_string(folder.file(folder::RUN)).unwrap();
        let run: RunManifest = serde_json::from_str(&text).unwrap();
        std::fs::remove_dir_all(&output_dir).unwrap();
        assert!(failure.to_string().starts_with("the run panicked, which is a bug: "), "{failure}");
        assert_eq!(
            (run.state, run.failure, run.exit_code),
            (ManifestState::Failed, Some(failure.to_string()), Some(1))
        );
    }

    #[test]
    fn other_outcomes_pass() {
        assert_eq!(caught(|| Ok(7)).unwrap(), 7);
        assert_eq!(caught::<()>(|| Err(Failure::input("x"))).unwrap_err().exit, Exit::Usage);
    }
}
