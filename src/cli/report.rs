//! `report`: tables of a run folder, also of one whose run was killed.
//!
//! The summary is computed anew from `requests.jsonl`, with `run.json` and `summary.json` for what the records do not hold,
//! so the percentiles are free to choose and a killed run needs nothing special. Invariant: a file of the folder that is
//! missing, cut or changed is named on stderr.

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
use crate::cli::stored::Stored;
use crate::cli::terminal::Terminal;
use crate::record::{RequestRecord, RunFacts};
use crate::results::render::{self, Extras, Format, Table};
use crate::results::{Accumulator, Percentiles, RunInfo, RunState, RunSummary, read_requests};

const EXAMPLES: &str = "\
Examples:
  # the summary
  pdreplay report outputs/NAME
  # one line per session, the starved marked
  pdreplay report outputs/NAME --sessions
  # tables and figures for programs
  pdreplay report outputs/NAME --workers --format csv
  pdreplay report outputs/NAME --percentiles 50,99.9 --json
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
        tell_damage(&found, None, terminal);
        let ledger = ledger::count(&found.folder.join(folder::EVENTS))?;
        ledger.cut_off.iter().for_each(|cut_off| terminal.messages.warning(cut_off));
        terminal.messages.settle();
        stdout::print(&ledger.table.render(format, terminal.style))?;
        return Ok(Exit::Ok);
    }
    let (summary, stored) = summarise(&found, &percentiles, terminal)?;
    terminal.messages.settle();
    match (args.tables.of(&summary), stored) {
        (Some(table), _) => stdout::print(&table.render(format, terminal.style))?,
        (None, Some(stored)) if format == Format::Json && args.output.percentiles.is_none() => {
            stdout::print(&stored.text)?;
        }
        (None, _) => stdout::print(&args.output.summary(&summary, &extras(&found), terminal.style))?,
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

/// The summary, from the records, and the one in the folder when it may be used; says what is missing.
fn summarise(
    found: &Found,
    percentiles: &Percentiles,
    terminal: &Terminal,
) -> Result<(RunSummary, Option<Stored>), Failure> {
    let mut stored = stored(found, terminal);
    tell_damage(found, stored.as_ref(), terminal);
    let records = read_records(&found.requests, terminal)?;
    let (mut info, facts) = match &found.manifest {
        Some(manifest) => described(found, manifest, terminal),
        None if records.is_empty() => return Err(nothing_in(&found.requests)),
        None => (bare_info(&found.requests, &records), RunFacts::default()),
    };
    let sum_up = |info: &RunInfo| {
        let mut accumulator = Accumulator::new(percentiles.clone());
        records.iter().for_each(|record| accumulator.push(record, &[]));
        accumulator.finish(&facts, info).map_err(|error| {
            Failure::input(format!("{}: {error}", found.requests.display()))
                .hint("the file was cut or changed after the run: take it from a copy, or run again")
        })
    };
    info.rebuilt |= stored.is_none();
    let mut summary = sum_up(&info)?;
    if let Some(contradictions) = stored.as_ref().and_then(|stored| stored.contradictions(&summary)) {
        let path = found.folder.join(folder::SUMMARY);
        terminal
            .messages
            .warning(format!("{} contradicts the records, and is not used: {contradictions}", path.display()));
        (stored, info.rebuilt) = (None, true);
        summary = sum_up(&info)?;
    }
    if let Some(stored) = &stored {
        recall_gaps(&mut summary, stored, terminal);
    }
    Ok((summary, stored))
}

/// The summary in the folder of a run that ended; says why it cannot be used.
fn stored(found: &Found, terminal: &Terminal) -> Option<Stored> {
    found.manifest.as_ref()?.facts.as_ref()?;
    let path = found.folder.join(folder::SUMMARY);
    let unusable = |cause: String| {
        terminal.messages.warning(format!(
            "{} cannot be used: {cause}; the summary is rebuilt from {}",
            path.display(),
            found.requests.display()
        ));
    };
    Stored::read(&path).map_err(unusable).ok()
}

/// Names the files of the folder that are not as the run left them. Of a summary that cannot be used all is said.
fn tell_damage(found: &Found, stored: Option<&Stored>, terminal: &Terminal) {
    let files = found.manifest.as_ref().map(|manifest| folder::damage(&found.folder, &manifest.files));
    let told = |(name, _): &(String, String)| name != folder::SUMMARY || stored.is_some();
    files.into_iter().flatten().filter(told).for_each(|(_, text)| terminal.messages.warning(text));
}

/// Takes the token gaps from the stored summary, and says which of their percentiles it lacks.
fn recall_gaps(summary: &mut RunSummary, stored: &Stored, terminal: &Terminal) {
    let lost = summary.latencies.recall_itl(&stored.summary);
    if lost.is_empty() {
        return;
    }
    let lost: Vec<String> = lost.iter().map(ToString::to_string).collect();
    let note = format!(
        "token gaps (ITL) are not in requests.jsonl, and summary.json has no {} of them; replay with --percentiles to have it",
        lost.join(", ")
    );
    terminal.messages.warning(&note);
    summary.percentile_notes.push(note);
}

fn nothing_in(path: &Path) -> Failure {
    Failure::input(format!("{} holds no request record: there is nothing to report", path.display()))
        .hint("give a run folder, such as outputs/NAME, or a file of records in one")
}

fn described(found: &Found, manifest: &RunManifest, terminal: &Terminal) -> (RunInfo, RunFacts) {
    let mut info = manifest.info.clone();
    let facts = manifest.facts.clone().unwrap_or_else(|| {
        info.state = RunState::Unfinished;
        let what = match manifest.state {
            ManifestState::Running if is_in_use(&found.folder) => "is still under way".to_owned(),
            ManifestState::Failed => format!("failed: {}", manifest.failure.as_deref().unwrap_or("cause unknown")),
            ManifestState::Running | ManifestState::Completed | ManifestState::Interrupted | ManifestState::Stopped => {
                "did not end properly (ended by a second signal, killed, crashed, or the disk was full)".to_owned()
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
