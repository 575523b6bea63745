//! `replay --replicas N`: the same run with other seeds, and how far its headline figures spread.
//!
//! A deterministic run is one sample of a chaotic system. Replica i runs with seed + i − 1 in folder `rNN`; each is a run
//! of its own, so the number of threads changes no byte.

use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cli::band::{Band, bands};
use crate::cli::drive::{Finished, Job, broken, drive, write_json};
use crate::cli::exit::{Exit, Failure};
use crate::cli::folder::{self, RunFolder};
use crate::cli::output::json;
use crate::cli::stages::Stopwatch;
use crate::cli::stdout;
use crate::cli::terminal::Terminal;
use crate::results::render::Format;
use crate::scenario::Scenario;

/// Key of the jitter that replicas set when nobody did.
pub const JITTER_KEY: &str = "replay.arrival_jitter_ms";

/// Jitter of replicas, milliseconds.
const JITTER_MS: f64 = 1.0;

/// Version of `replicas.json`.
pub const SCHEMA_VERSION: u32 = 1;

/// `replicas.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Replicas {
    /// Version of this file.
    pub schema_version: u32,
    /// Replicas, in order of their seeds.
    pub replicas: Vec<Replica>,
    /// Headline figures over them.
    pub bands: Vec<Band>,
}

/// One replica.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Replica {
    /// Folder, beside this file.
    pub folder: String,
    /// Seed.
    pub seed: u64,
    /// Exit code the run alone would have had.
    pub exit_code: u8,
}

/// Lets replicas differ in arrivals, unless the scenario does already.
pub fn jitter(scenario: &mut Scenario) {
    if scenario.replay.arrival_jitter_ms == 0.0 {
        scenario.replay.arrival_jitter_ms = JITTER_MS;
    }
}

/// Runs `count` replicas of `job` on up to `jobs` threads, and writes `replicas.json`.
pub fn run(job: &Job, folder: &RunFolder, count: u32, jobs: Option<u32>) -> Result<Replicas, Failure> {
    let folders = (1..=count).map(|number| folder.replica(number)).collect::<Result<Vec<_>, _>>()?;
    let available = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let threads = jobs.map_or(available, |jobs| jobs as usize).min(folders.len());
    let finished = run_all(job, &folders, threads)?;
    let replica = |(number, finished): (u64, &Finished)| Replica {
        folder: folders[number as usize].name().rsplit('/').next().unwrap_or_default().into(),
        seed: job.scenario.seed.wrapping_add(number),
        exit_code: finished.exit as u8,
    };
    let replicas = Replicas {
        schema_version: SCHEMA_VERSION,
        replicas: (0..).zip(&finished).map(replica).collect(),
        bands: bands(&finished.iter().map(|finished| &finished.summary).collect::<Vec<_>>()),
    };
    write_json(folder, folder::REPLICAS, &replicas).map_err(broken)?;
    Ok(replicas)
}

/// Prints the bands; the exit code is the worst of the replicas'.
pub fn print(replicas: &Replicas, folder: &RunFolder, format: Format, terminal: &Terminal) -> Result<Exit, Failure> {
    terminal.messages.settle();
    stdout::print(&shown(replicas, format, terminal))?;
    terminal.messages.note(format!("{} replicas in {}/rNN/", replicas.replicas.len(), folder.path().display()));
    let of = |code: u8| replicas.replicas.iter().any(|replica| replica.exit_code == code);
    let worst = [Exit::Terminated, Exit::Interrupted, Exit::Broke].into_iter().find(|exit| of(*exit as u8));
    Ok(worst.unwrap_or(Exit::Ok))
}

/// The bands as text in a format.
pub fn shown(replicas: &Replicas, format: Format, terminal: &Terminal) -> String {
    match format {
        Format::Json => json(replicas),
        Format::Table | Format::Csv | Format::Markdown => Band::table(&replicas.bands).render(format, terminal.style),
    }
}

/// All replicas in order; the first failure by number, when one failed.
fn run_all(job: &Job, folders: &[RunFolder], threads: usize) -> Result<Vec<Finished>, Failure> {
    let next = AtomicU32::new(0);
    let ended = Mutex::new(Vec::with_capacity(folders.len()));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while job.signals.caught().is_none() {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(folder) = folders.get(number as usize) else { break };
                    let finished = run_one(job, number, folder);
                    ended.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push((number, finished));
                }
            });
        }
    });
    let mut ended = ended.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    ended.sort_by_key(|(number, _)| *number);
    ended.into_iter().map(|(_, finished)| finished).collect()
}

fn run_one(job: &Job, number: u32, folder: &RunFolder) -> Result<Finished, Failure> {
    let mut scenario = job.scenario.clone();
    scenario.seed = scenario.seed.wrapping_add(u64::from(number));
    let finished = drive(&Job { scenario: &scenario, display: None, ..*job }, folder, &mut Stopwatch::start())?;
    if let Some(terminal) = job.display {
        let ended = format!("{} of seed {}: {} ok", folder.name(), scenario.seed, finished.summary.completed);
        terminal.messages.progress(ended);
    }
    Ok(finished)
}
