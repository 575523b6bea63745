//! `replay --replicas N`: the same run with other seeds, and how far its headline figures spread.
//!
//! A deterministic run is one sample. Replica i runs with seed + i − 1 in folder `rNN`; each is a run
//! of its own, so the number of threads changes no byte. Invariant: a band is over whole runs alone, and replicas that
//! are missing show in `replicas.json`, on stderr and in the exit code.

mod goodput;

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cli::drive::{Finished, Job, broken, drive, write_sealed};
use crate::cli::exit::{Exit, Failure};
use crate::cli::folder::{self, ManifestState, RunFolder, replica_name};
use crate::cli::found::parse_json;
use crate::cli::live::{Ready, TargetArg};
use crate::cli::member::{Found, Member, Strays};
use crate::cli::output::json;
use crate::cli::provenance::run_id;
use crate::cli::stages::Stopwatch;
use crate::cli::starving::Starving;
use crate::cli::stdout;
use crate::cli::terminal::Terminal;
use crate::results::render::{Format, noted};
use crate::results::{Band, Figure, Figures, RunState, RunSummary, bands};
use crate::scenario::{Scenario, Setup};

/// Key of the jitter that replicas set when nobody did.
pub const JITTER_KEY: &str = "replay.arrival_jitter_ms";

/// Jitter of replicas, milliseconds.
const JITTER_MS: f64 = 1.0;

/// Least jitter that a hint proposes, milliseconds: enough to move a queue that is full all run long.
const WIDE_JITTER_MS: f64 = 1000.0;

/// Said when it is taken.
pub const JITTER_NOTE: &str =
    "  replicas: arrivals are jittered by up to 1 ms, since replay.arrival_jitter_ms is 0; --set it to choose";

/// Figures of the bands.
const FIGURES: [Figure; 13] = [
    Figure::COMPLETED,
    Figure::BAD_SHARE,
    Figure::P50_TTFT,
    Figure::P99_TTFT,
    Figure::MEAN_E2E,
    Figure::P50_E2E,
    Figure::P99_E2E,
    Figure::REQUEST_THROUGHPUT,
    Figure::REQUEST_GOODPUT,
    Figure::SLO_ATTAINMENT,
    Figure::OUTPUT_THROUGHPUT,
    Figure::DIRECT_SHARE,
    Figure::STARVED_SESSIONS,
];

/// Version of `replicas.json`.
pub const SCHEMA_VERSION: u32 = 2;

/// `replicas.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Replicas {
    /// Version of this file.
    pub schema_version: u32,
    /// Replicas asked for.
    pub asked: u32,
    /// Those that ran to their end; fewer when a signal broke the rest off.
    pub finished: u32,
    /// Replicas that were begun, in order of their seeds.
    pub replicas: Vec<Replica>,
    /// Headline figures over those that finished; empty when none did.
    pub bands: Vec<Band>,
    /// What is wrong with this file or the replicas, where it was read later.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// One replica.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Replica {
    /// Folder, beside this file.
    pub folder: String,
    /// Seed.
    pub seed: u64,
    /// Id of the run; null in files of earlier versions.
    #[serde(default)]
    pub run_id: Option<String>,
    /// Exit code the run alone would have had.
    pub exit_code: u8,
    /// Sessions with a direct share below 20 %; null without sessions on D.
    pub starved_sessions: Option<u64>,
}

impl Replica {
    /// What is in its folder below `beside`. One that was broken off ended, too.
    fn found(&self, beside: &Path) -> Found {
        let path = beside.join(&self.folder);
        if !path.is_dir() {
            return Found::Nothing;
        }
        let run = match Member::read(&path) {
            Ok(run) => run,
            Err(why) => return Found::Unfinished(why),
        };
        if self.run_id.as_ref().is_some_and(|run_id| *run_id != run.run_id) || self.seed != run.seed {
            return Found::Other;
        }
        let is_ended = !matches!(run.state, ManifestState::Running | ManifestState::Failed);
        let change =
            run.change(&path).or_else(|| (!is_ended).then(|| format!("{}: the run did not end", path.display())));
        change.map_or(Found::Done, Found::Unfinished)
    }
}

/// Replicas as they lie on the disk.
#[derive(Debug)]
pub struct FoundReplicas {
    /// What their file says, and what is wrong with that among the notes, which nobody has been told yet.
    pub replicas: Replicas,
    /// Why the file is not to be trusted, in words.
    pub broken: Option<String>,
    /// Which of the folders hold other runs, in words.
    pub others: Option<String>,
}

/// The replicas at `run`, their folder or its `replicas.json`; `None` when there is no such file.
///
/// # Errors
/// When the file is none of ours, or lists what is no replica in its folder.
pub fn read(run: &Path) -> Result<Option<FoundReplicas>, Failure> {
    let path = if run.is_dir() { run.join(folder::REPLICAS) } else { run.to_path_buf() };
    if path.file_name().is_none_or(|name| name != folder::REPLICAS) || !path.is_file() {
        return Ok(None);
    }
    let (mut replicas, broken): (Replicas, _) = parse_json(&path, SCHEMA_VERSION)?;
    if let Some(fault) = replicas.fault() {
        return Err(Failure::input(format!("{}: {fault}: changed after it was written", path.display()))
            .hint("take the file from a copy, or give the runs themselves, one by one or joined by commas"));
    }
    let strays = replicas.strays(path.parent().unwrap_or(Path::new("")));
    replicas.notes = broken.iter().cloned().chain(strays.notes(&path, "the bands")).collect();
    Ok(Some(FoundReplicas { replicas, broken, others: strays.others(&path) }))
}

/// Lets replicas differ in arrivals, unless the scenario does already; true when it did not.
pub fn jitter(scenario: &mut Scenario) -> bool {
    let none = scenario.replay.arrival_jitter_ms == 0.0;
    if none {
        scenario.replay.arrival_jitter_ms = JITTER_MS;
    }
    none
}

/// Runs `count` replicas of `job` on up to `jobs` threads, and writes `replicas.json`. The exit code is the worst of the
/// replicas', and that of the signal when one kept some from running to their end.
pub fn run(job: &Job, folder: &RunFolder, count: u32, jobs: Option<u32>) -> Result<(Replicas, Exit), Failure> {
    let available = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let most = match job.target {
        TargetArg::Virtual => jobs.map_or(available, |jobs| jobs as usize),
        // Two runs at a time on one target would measure each other.
        TargetArg::Live => 1,
    };
    let threads = most.min(count as usize);
    let begun = run_all(job, folder, count, threads)?;
    let replicas = Replicas::of(&begun, count, job.scenario.seed);
    // Of a set that has begun nothing, nothing is left.
    if !begun.is_empty() {
        write_sealed(folder, folder::REPLICAS, &replicas).map_err(broken)?;
    }
    let exit = match job.signals.caught() {
        Some(signal) if replicas.finished < count => signal,
        Some(_) | None if begun.iter().any(|(_, replica)| replica.exit != Exit::Ok) => Exit::Broke,
        Some(_) | None => Exit::Ok,
    };
    Ok((replicas, exit))
}

impl Replicas {
    /// Of the replicas that were begun, by number from 0.
    fn of(begun: &[(u32, Finished)], asked: u32, seed: u64) -> Replicas {
        let replica = |(number, replica): &(u32, Finished)| Replica {
            folder: replica_name(number + 1),
            seed: seed_of(seed, *number),
            run_id: Some(replica.run_id.clone()),
            exit_code: replica.exit as u8,
            starved_sessions: replica.summary.starved_sessions(),
        };
        let is_whole = |summary: &&RunSummary| summary.run.state != RunState::Interrupted;
        let whole = begun.iter().map(|(_, replica)| &replica.summary).filter(is_whole);
        let whole: Vec<Figures> = whole.map(Figures::of_summary).collect();
        Replicas {
            schema_version: SCHEMA_VERSION,
            asked,
            finished: whole.len() as u32,
            replicas: begun.iter().map(replica).collect(),
            bands: bands(&FIGURES, whole.iter()),
            notes: Vec::new(),
        }
    }

    /// Why this is no list of replicas, in words: each has a folder of its own beside the file, and no more ended than began.
    fn fault(&self) -> Option<String> {
        let mut seen = BTreeSet::new();
        for (ix, Replica { folder, .. }) in self.replicas.iter().enumerate() {
            if !folder::is_replica_name(folder) {
                return Some(format!(
                    "replicas[{ix}].folder is `{folder}`, but replicas are in r01, r02 … beside the file"
                ));
            }
            if !seen.insert(folder) {
                return Some(format!("replicas[{ix}].folder is `{folder}`, which is listed before"));
            }
        }
        let listed = self.replicas.len();
        let is_more = self.finished as usize > listed || listed > self.asked as usize;
        is_more.then(|| format!("{} finished of {listed} listed of {} asked for", self.finished, self.asked))
    }

    /// Those that are not in their folders as they ended.
    fn strays(&self, beside: &Path) -> Strays {
        let mut strays = Strays::default();
        self.replicas.iter().for_each(|replica| strays.add(&replica.folder, replica.found(beside)));
        strays
    }

    /// The first that is there to be read.
    pub fn first(&self, beside: &Path) -> Option<&Replica> {
        self.replicas.iter().find(|replica| replica.found(beside) == Found::Done)
    }

    /// What to try when replicas under `jitter_ms` of jitter all but agree; another trace where it is `generated`.
    pub fn hint(&self, jitter_ms: f64, generated: bool) -> Option<String> {
        let narrow = self.finished > 1 && self.bands.iter().all(Band::is_narrow);
        let wider = (10.0 * jitter_ms).max(WIDE_JITTER_MS);
        let other = if generated { ", or another trace with --set trace.seed=N" } else { "" };
        narrow.then(|| {
            format!("replicas barely differ under {jitter_ms} ms of jitter: try --set {JITTER_KEY}={wider}{other}")
        })
    }

    /// None was begun.
    pub fn is_empty(&self) -> bool {
        self.replicas.is_empty()
    }

    /// Where sessions starve, these being the replicas in `folder`.
    pub fn starving(&self, folder: &Path) -> Starving {
        let place = |replica: &Replica| folder.join(&replica.folder).display().to_string();
        Starving::in_each("replica", self.replicas.iter().map(|replica| (replica.starved_sessions, place(replica))))
    }

    /// What is missing, in words.
    pub fn shortfall(&self) -> Option<String> {
        let Replicas { asked, finished, .. } = self;
        let bands = if *finished == 0 { "there are no bands" } else { "the bands are over those" };
        (finished < asked).then(|| format!("interrupted: {finished} of {asked} replicas ran to their end; {bands}"))
    }
}

/// Prints the bands in a format, if in any, and says what is missing.
pub fn print(
    replicas: &Replicas,
    folder: &RunFolder,
    format: Option<Format>,
    terminal: &Terminal,
) -> Result<(), Failure> {
    terminal.messages.settle();
    if let Some(format) = format {
        stdout::print(&shown(replicas, format, terminal))?;
    }
    if let Some(shortfall) = replicas.shortfall() {
        terminal.messages.warning(shortfall);
    }
    terminal.messages.note(format!("{} replicas in {}/rNN/", replicas.replicas.len(), folder.path().display()));
    Ok(())
}

/// The bands as text in a format.
pub fn shown(replicas: &Replicas, format: Format, terminal: &Terminal) -> String {
    match format {
        Format::Json => json(replicas),
        // Titles over nothing would look like a result.
        Format::Table | Format::Csv | Format::Markdown if replicas.bands.is_empty() => String::new(),
        Format::Table | Format::Csv | Format::Markdown => {
            noted(&replicas.notes, format, Band::table(&replicas.bands).render(format, terminal.style))
        }
    }
}

/// The replicas that were begun, in order; the first failure by number, when one failed.
fn run_all(job: &Job, folder: &RunFolder, count: u32, threads: usize) -> Result<Vec<(u32, Finished)>, Failure> {
    let next = AtomicU32::new(0);
    let ended = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while job.signals.caught().is_none() {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        break;
                    }
                    let Some(finished) = run_one(job, number, folder).transpose() else { break };
                    ended.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push((number, finished));
                }
            });
        }
    });
    let mut ended = ended.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    ended.sort_by_key(|(number, _)| *number);
    ended.into_iter().map(|(number, finished)| Ok((number, finished?))).collect()
}

/// `None`: a signal came before it began, and nothing is left of it.
fn run_one(job: &Job, number: u32, folder: &RunFolder) -> Result<Option<Finished>, Failure> {
    let mut scenario = job.scenario.clone();
    scenario.seed = seed_of(scenario.seed, number);
    let setup = Setup::new(&scenario, &job.trace, &run_id(&scenario, &job.trace))?;
    let own = Job { scenario: &scenario, setup: &setup, display: None, trace: Arc::clone(&job.trace), ..*job };
    let ready = match job.target {
        TargetArg::Virtual => None,
        TargetArg::Live => {
            let peak_live = job.preflight.peak_live_sessions;
            let made = Ready::make_unless(job.signals, &scenario, &job.trace, &setup, peak_live)?;
            let Some(ready) = made else { return Ok(None) };
            Some(ready)
        }
    };
    let folder = folder.replica(number + 1)?;
    let finished = drive(own, ready, &folder, &mut Stopwatch::start())?;
    if let Some(terminal) = job.display {
        let ended = format!("{} of seed {}: {} ok", folder.name(), scenario.seed, finished.summary.completed);
        terminal.messages.progress(ended);
    }
    Ok(Some(finished))
}

/// Seed of replica `number`, from 0.
pub fn seed_of(first: u64, number: u32) -> u64 {
    first.wrapping_add(u64::from(number))
}
