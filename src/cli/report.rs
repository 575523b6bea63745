//! `report`: tables of a run folder, also of one whose run was killed.
//!
//! The summary is computed anew from `requests.jsonl`, with `run.json` for what the records do not hold, so the
//! percentiles are free to choose and a killed run needs nothing special.

use std::fs::{self, File};
use std::io::{BufReader, ErrorKind};
use std::path::{Path, PathBuf};

use clap::Args;

use crate::cli::exit::{Exit, Failure};
use crate::cli::folder::{self, ManifestState, RunManifest, is_in_use};
use crate::cli::ledger;
use crate::cli::output::OutputArgs;
use crate::cli::provenance::bare_info;
use crate::cli::replicas::{self, Replicas};
use crate::cli::stdout;
use crate::cli::terminal::Terminal;
use crate::record::{RequestRecord, RunFacts};
use crate::results::render::{self, Extras, Format, Table};
use crate::results::{Accumulator, Percentiles, RunInfo, RunState, RunSummary, read_requests};

const EXAMPLES: &str = "\
Examples:
  pdreplay report outputs/NAME                       the summary
  pdreplay report outputs/NAME --sessions            one line per session, the starved marked
  pdreplay report outputs/NAME --workers --format csv
  pdreplay report outputs/NAME --percentiles 50,99.9 --json
  pdreplay report outputs/NAME/requests.jsonl        the same, by a file of the folder";

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
    output: OutputArgs,
}

/// Which table; without one, the summary.
#[derive(Debug, Clone, Args)]
#[group(multiple = false)]
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

/// A run as found on disk.
struct Found {
    folder: PathBuf,
    requests: PathBuf,
    /// Missing when only a file of records was given.
    manifest: Option<RunManifest>,
}

/// Runs it.
pub fn run(args: &ReportArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    let percentiles = args.output.percentiles(terminal);
    if let Some(replicas) = read_replicas(&args.run)? {
        stdout::print(&replicas::shown(&replicas, args.output.format(), terminal))?;
        if let Some(shortfall) = replicas.shortfall() {
            terminal.messages.warning(shortfall);
        }
        return Ok(Exit::Ok);
    }
    let found = find(&args.run)?;
    let format = args.output.format();
    if args.tables.events {
        let table = ledger::count(&found.folder.join(folder::EVENTS))?;
        stdout::print(&table.render(format, terminal.style))?;
        return Ok(Exit::Ok);
    }
    let summary = summarise(&found, percentiles, terminal)?;
    terminal.messages.settle();
    match args.tables.of(&summary) {
        Some(table) => stdout::print(&table.render(format, terminal.style))?,
        None if format == Format::Json && args.output.percentiles.is_none() && is_whole(&found) => {
            stdout::print(&read(&found.folder.join(folder::SUMMARY))?)?;
        }
        None => stdout::print(&args.output.summary(&summary, &extras(&found), terminal.style))?,
    }
    Ok(Exit::Ok)
}

impl TableArgs {
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

fn extras(found: &Found) -> Extras {
    let wall_s = found.manifest.as_ref().and_then(|manifest| manifest.wall_seconds);
    Extras { wall_s, files: Some(format!("{}/", found.folder.display())) }
}

/// The run ended by itself and wrote its summary.
fn is_whole(found: &Found) -> bool {
    let ended = found.manifest.as_ref().is_some_and(|manifest| manifest.facts.is_some());
    ended && found.folder.join(folder::SUMMARY).is_file()
}

fn read_replicas(run: &Path) -> Result<Option<Replicas>, Failure> {
    let path = if run.is_dir() { run.join(folder::REPLICAS) } else { run.to_path_buf() };
    if path.file_name().is_none_or(|name| name != folder::REPLICAS) || !path.is_file() {
        return Ok(None);
    }
    let replicas: Replicas = parse(&path, replicas::SCHEMA_VERSION)?;
    Ok(Some(replicas))
}

fn find(run: &Path) -> Result<Found, Failure> {
    let is_folder = run.is_dir();
    if !is_folder && !run.exists() {
        return Err(Failure::input(format!("{} does not exist", run.display()))
            .hint("give a run folder, such as outputs/NAME, or a file in one"));
    }
    let folder = if is_folder { run } else { run.parent().unwrap_or(Path::new("")) };
    let own = run.file_name().and_then(|name| name.to_str()).is_some_and(folder::is_own_name);
    let manifest_path = folder.join(folder::RUN);
    let has_manifest = (is_folder || own) && manifest_path.is_file();
    if is_folder && !has_manifest {
        return Err(Failure::input(format!("{} holds no {}", run.display(), folder::RUN))
            .hint("give a run folder as pdreplay replay writes it, such as outputs/NAME, or a file of records"));
    }
    let manifest = if has_manifest { Some(parse(&manifest_path, folder::manifest::SCHEMA_VERSION)?) } else { None };
    let requests = if has_manifest { folder.join(folder::REQUESTS) } else { run.to_path_buf() };
    Ok(Found { folder: folder.to_path_buf(), requests, manifest })
}

/// The summary, from the records; says what is missing.
fn summarise(found: &Found, percentiles: Percentiles, terminal: &Terminal) -> Result<RunSummary, Failure> {
    let records = read_records(&found.requests, terminal)?;
    let (info, facts) = match &found.manifest {
        Some(manifest) => described(found, manifest, terminal),
        None => (bare_info(&found.requests, &records), RunFacts::default()),
    };
    let mut accumulator = Accumulator::new(percentiles);
    records.iter().for_each(|record| accumulator.push(record, &[]));
    accumulator.finish(&facts, &info).map_err(Failure::input)
}

fn described(found: &Found, manifest: &RunManifest, terminal: &Terminal) -> (RunInfo, RunFacts) {
    let mut info = manifest.info.clone();
    info.rebuilt = !is_whole(found);
    let facts = manifest.facts.clone().unwrap_or_else(|| {
        info.state = RunState::Killed;
        let what = match manifest.state {
            ManifestState::Running if is_in_use(&found.folder) => "is still under way".to_owned(),
            ManifestState::Failed => format!("failed: {}", manifest.failure.as_deref().unwrap_or("cause unknown")),
            ManifestState::Running | ManifestState::Completed | ManifestState::Interrupted | ManifestState::Stopped => {
                "was killed".to_owned()
            }
        };
        terminal.messages.warning(format!(
            "the run {what}; this summary is rebuilt from the records in {}",
            found.requests.display()
        ));
        RunFacts { planned: info.requests, ..RunFacts::default() }
    });
    (info, facts)
}

fn read_records(path: &Path, terminal: &Terminal) -> Result<Vec<RequestRecord>, Failure> {
    let at = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let file = File::open(path).map_err(|error| unreadable(path, &error))?;
    let mut records = Vec::new();
    for record in read_requests(BufReader::new(file)) {
        match record {
            Ok(record) => records.push(record),
            Err(error) if error.is_fatal() => return Err(Failure::input(at(&error))),
            Err(error) => terminal.messages.warning(at(&error)),
        }
    }
    Ok(records)
}

/// A JSON file of ours; another version is refused by name.
fn parse<T: serde::de::DeserializeOwned>(path: &Path, version: u32) -> Result<T, Failure> {
    #[derive(serde::Deserialize)]
    struct Version {
        schema_version: u32,
    }
    let text = read(path)?;
    let refuse = |cause: String| Failure::input(format!("{}: {cause}", path.display()));
    match serde_json::from_str::<Version>(&text) {
        Ok(found) if found.schema_version != version => {
            let found = found.schema_version;
            Err(refuse(format!("schema_version is {found}, but this pdreplay reads {version}"))
                .hint("read it with the pdreplay that wrote it"))
        }
        Ok(_) => serde_json::from_str(&text).map_err(|error| refuse(error.to_string())),
        Err(error) => Err(refuse(format!("not a file of pdreplay: {error}"))),
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    let failure = Failure::input(format!("cannot read {}: {error}", path.display()));
    if error.kind() == ErrorKind::NotFound { failure.hint("the folder is not a whole run folder") } else { failure }
}
