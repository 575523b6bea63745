//! [`FoundRun`]: a run as it lies on the disk, for every command that reads one.
//!
//! The summary is computed anew from the records, with `run.json` and `summary.json` for what those do not hold, so the
//! percentiles are free to choose and a killed run needs nothing special. Invariant: a file of the folder that is missing,
//! cut or changed is named on stderr and among the notes of the summary, and no summary is of two runs.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::base::from_json;
use crate::cli::exit::Failure;
use crate::cli::folder::{self, ManifestState, RunManifest, broken_seal, is_in_use};
use crate::cli::intact::{Checks, OneRun};
use crate::cli::provenance::BareInfo;
use crate::cli::stored::Stored;
use crate::cli::terminal::Terminal;
use crate::record::RunFacts;
use crate::results::{Accumulator, Batch, Percentiles, RunInfo, RunState, RunSummary, Slos};

/// A run as found on disk.
#[derive(Debug, Clone)]
pub struct FoundRun {
    /// Its folder.
    pub folder: PathBuf,
    /// Its `requests.jsonl`, or the file of records that was given.
    pub requests: PathBuf,
    /// `run.json`; missing when only a file of records was given.
    pub manifest: Option<RunManifest>,
    /// What is known of its files.
    pub checks: Checks,
    /// Its table is not to be read.
    pub lines_alone: bool,
}

/// What a summary is asked for; what is not said is as the run itself has it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Asked {
    /// Percentiles.
    pub percentiles: Option<Percentiles>,
    /// Objectives for each request.
    pub slos: Option<Slos>,
}

/// What else is gathered while the records are summed up.
pub struct Beside<'c, S> {
    /// Columns it needs, fields of [`crate::record::RequestRecord`].
    pub columns: &'c [&'static str],
    /// Nothing gathered yet.
    pub start: &'c dyn Fn() -> S,
    /// Takes in a batch. All are of one file.
    pub add: fn(&mut S, &Batch),
}

/// What to give in place of a folder without `run.json`.
fn no_run(folder: &Path) -> String {
    let first = folder.join(folder::replica_name(1));
    if first.join(folder::RUN).is_file() {
        return format!(
            "its replicas were stopped before {} was written; give them one by one, such as {}",
            folder::REPLICAS,
            first.display()
        );
    }
    if folder.join(folder::SWEEP).is_file() {
        return match some_cell(folder) {
            Some(cell) => format!("it is a sweep: give one of its cells, such as {}", cell.display()),
            None => "it is a sweep, and none of its cells has run: the command of the sweep runs them".into(),
        };
    }
    "give a run folder as pdreplay replay writes it, such as outputs/NAME, or a file of records".into()
}

/// The first cell by name, of the sweep in `folder`, in which there is a run.
fn some_cell(folder: &Path) -> Option<PathBuf> {
    let cells = fs::read_dir(folder.join(folder::CELLS)).ok()?;
    cells.flatten().map(|cell| cell.path()).filter(|cell| cell.join(folder::RUN).is_file()).min()
}

impl FoundRun {
    /// The run at `run`: its folder, or a file in it; `run.json` is read and its version checked; says when it was changed,
    /// and when the run did not end.
    pub fn open(run: &Path, terminal: &Terminal) -> Result<FoundRun, Failure> {
        let is_folder = run.is_dir();
        if !is_folder && !run.exists() {
            return Err(Failure::input(format!("{} does not exist", run.display()))
                .hint("give a run folder, such as outputs/NAME, or a file in one"));
        }
        let folder = if is_folder { run } else { run.parent().unwrap_or(Path::new("")) };
        let own = run.file_name().and_then(|name| name.to_str()).is_some_and(folder::is_own_name);
        let manifest_path = folder.join(folder::RUN);
        let has_manifest = (is_folder || own) && manifest_path.is_file();
        if is_folder || has_manifest {
            refuse_special(folder)?;
        }
        if is_folder && !has_manifest {
            return Err(Failure::input(format!("{} holds no {}", run.display(), folder::RUN)).hint(no_run(folder)));
        }
        let version = folder::manifest::SCHEMA_VERSION;
        let read = has_manifest.then(|| parse_json(&manifest_path, version)).transpose()?;
        let (manifest, broken) = read.map_or((None, None), |(manifest, broken)| (Some(manifest), broken));
        let requests = if has_manifest { folder.join(folder::REQUESTS) } else { run.to_path_buf() };
        let folder = folder.to_path_buf();
        let found = FoundRun { folder, requests, manifest, checks: Checks::default(), lines_alone: false };
        broken.into_iter().for_each(|broken| found.say_doubt(broken, terminal));
        found.tell_unfinished(terminal);
        Ok(found)
    }

    /// The same run, to be read from its lines alone.
    pub fn without_table(&self) -> FoundRun {
        FoundRun { lines_alone: true, ..self.clone() }
    }

    /// The summary, from the records, and the one in the folder when it may be used; says what is missing.
    pub fn summarise(&self, asked: &Asked, terminal: &Terminal) -> Result<(RunSummary, Option<Stored>), Failure> {
        let nothing = Beside { columns: &[], start: &|| (), add: |(), _| () };
        let (summary, stored, ()) = self.summarise_beside(asked, &nothing, terminal)?;
        Ok((summary, stored))
    }

    /// The same, and what is gathered of the records beside it.
    pub fn summarise_beside<S>(
        &self,
        asked: &Asked,
        beside: &Beside<S>,
        terminal: &Terminal,
    ) -> Result<(RunSummary, Option<Stored>, S), Failure> {
        self.require_own_manifest()?;
        let mut stored = self.stored(terminal);
        let own = || stored.as_ref().and_then(Stored::percentiles);
        let percentiles = asked.percentiles.clone().or_else(own).unwrap_or_default();
        let slos = asked.slos.or_else(|| Some(self.manifest.as_ref()?.info.slos)).unwrap_or_default();
        let anew = || Accumulator::new(percentiles.clone()).with_slos(slos);
        self.tell_damage(stored.as_ref(), terminal);
        let (mut summary, mut gathered) = self.sum_up(&anew, stored.is_none(), beside, terminal)?;
        if let Some(contradictions) = stored.as_ref().and_then(|stored| stored.contradictions(&summary)) {
            let path = self.folder.join(folder::SUMMARY);
            self.say(
                format!("{} contradicts the records, and is not used: {contradictions}", path.display()),
                terminal,
            );
            stored = None;
            (summary, gathered) = self.sum_up(&anew, true, beside, terminal)?;
        }
        if let Some(stored) = &stored {
            recall_gaps(&mut summary, stored, terminal);
        }
        self.note(&mut summary);
        Ok((summary, stored, gathered))
    }

    /// The summary of the records; `rebuilt` says that it stands alone.
    fn sum_up<S>(
        &self,
        anew: &dyn Fn() -> Accumulator,
        rebuilt: bool,
        beside: &Beside<S>,
        terminal: &Terminal,
    ) -> Result<(RunSummary, S), Failure> {
        let columns = [Accumulator::columns(), BareInfo::COLUMNS.to_vec(), beside.columns.to_vec()].concat();
        let start = || Ok((BareInfo::default(), OneRun::default(), anew(), (beside.start)()));
        let run_id = self.manifest.as_ref().map(|manifest| manifest.run_id.as_str());
        let add = |state: &mut (BareInfo, OneRun, Accumulator, S), batch: &Batch| {
            let (bare, one, accumulator, gathered) = state;
            match run_id {
                Some(run_id) => one.add(batch, run_id),
                None => bare.add(batch),
            }
            accumulator.push_batch(batch);
            (beside.add)(gathered, batch);
            Ok(())
        };
        let (bare, one, accumulator, gathered) = self.fold_batches(&columns, terminal, start, add)?;
        self.require_one_run(one)?;
        let (mut info, facts) = match &self.manifest {
            Some(manifest) => described(manifest),
            None if bare.is_empty() => return Err(nothing_in(&self.requests)),
            None => (bare.finish(&self.requests), RunFacts::default()),
        };
        info.rebuilt |= rebuilt;
        let summary = accumulator.finish(&facts, &info).map_err(|error| {
            Failure::input(format!("{}: {error}", self.requests.display()))
                .hint("the file was cut or changed after the run: take it from a copy, or run again")
        })?;
        Ok((summary, gathered))
    }

    /// The summary of files of records that together are one run.
    pub fn summarise_parts(parts: &[&FoundRun], asked: &Asked, terminal: &Terminal) -> Result<RunSummary, Failure> {
        let columns = [Accumulator::columns(), BareInfo::COLUMNS.to_vec()].concat();
        let mut bare = BareInfo::default();
        let percentiles = asked.percentiles.clone().unwrap_or_default();
        let mut accumulator = Accumulator::new(percentiles).with_slos(asked.slos.unwrap_or_default());
        FoundRun::each_batch_of(parts, &columns, terminal, |batch| {
            bare.add(batch);
            accumulator.push_batch(batch);
        })?;
        let first = parts.first().map_or(Path::new(""), |part| part.requests.as_path());
        let info = bare.finish(first);
        accumulator.finish(&RunFacts::default(), &info).map_err(Failure::input)
    }

    /// The summary in the folder of a run that ended; says why it cannot be used.
    fn stored(&self, terminal: &Terminal) -> Option<Stored> {
        let manifest = self.manifest.as_ref().filter(|manifest| manifest.facts.is_some())?;
        let path = self.folder.join(folder::SUMMARY);
        let unusable = |cause: String| {
            let (path, requests) = (path.display(), self.requests.display());
            self.say(format!("{path} cannot be used: {cause}; the summary is rebuilt from {requests}"), terminal);
        };
        Stored::read(&path, folder::told(&manifest.files, folder::SUMMARY)).map_err(unusable).ok()
    }

    /// Says of a run that left nothing beside its records why: whatever is shown of it is not the whole.
    fn tell_unfinished(&self, terminal: &Terminal) {
        let Some(manifest) = self.manifest.as_ref().filter(|manifest| manifest.facts.is_none()) else { return };
        let what = match manifest.state {
            ManifestState::Running if is_in_use(&self.folder) => "is still under way".to_owned(),
            ManifestState::Failed => format!("failed: {}", manifest.failure.as_deref().unwrap_or("cause unknown")),
            ManifestState::Running | ManifestState::Completed | ManifestState::Interrupted | ManifestState::Stopped => {
                "did not end properly (ended by a second signal, killed, crashed, or the disk was full)".to_owned()
            }
        };
        // The state is among the notes of its summary anyway.
        let folder = self.folder.display();
        terminal.messages.warning(format!("the run {what}; what is shown is rebuilt from what it wrote into {folder}"));
    }
}

/// The run in words, and what it left beside its records.
fn described(manifest: &RunManifest) -> (RunInfo, RunFacts) {
    let mut info = manifest.info.clone();
    let facts = manifest.facts.clone().unwrap_or_else(|| {
        info.state = RunState::Unfinished;
        RunFacts { planned: info.requests, ..RunFacts::default() }
    });
    (info, facts)
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

/// Refuses a folder in which a pipe, a device or a folder stands for a file of the run: it would be waited for, or never end.
fn refuse_special(folder: &Path) -> Result<(), Failure> {
    let read = [folder::RUN, folder::REQUESTS, folder::REQUESTS_PARQUET, folder::SUMMARY, folder::EVENTS];
    match read.map(|name| folder.join(name)).iter().find(|path| path.exists() && !path.is_file()) {
        Some(path) => Err(Failure::input(format!("{} is no regular file", path.display()))
            .hint("put the file of the run in its place, or move it away")),
        None => Ok(()),
    }
}

fn nothing_in(path: &Path) -> Failure {
    Failure::input(format!("{} holds no request record: there is nothing to report", path.display()))
        .hint("give a run folder, such as outputs/NAME, or a file of records in one")
}

/// For a file that is not as a run left it.
pub const RESTORE: &str = "put the file of the run in its place";

/// A JSON file of ours, and what to say when it has other content than it says it has; another version is refused by name.
pub fn parse_json<T: serde::de::DeserializeOwned>(path: &Path, version: u32) -> Result<(T, Option<String>), Failure> {
    #[derive(serde::Deserialize)]
    struct Version {
        schema_version: u32,
    }
    let text = read(path)?;
    let refuse = |cause: String| Failure::input(format!("{}: {cause}", path.display()));
    match from_json::<Version>(text.as_bytes()) {
        Ok(found) if found.schema_version != version => {
            let found = found.schema_version;
            Err(refuse(format!("schema_version is {found}, but this pdreplay reads {version}"))
                .hint("read it with the pdreplay that wrote it"))
        }
        Ok(_) => {
            let parsed = from_json(text.as_bytes()).map_err(|fault| refuse(fault.to_string()).hint(RESTORE))?;
            let broken = serde_json::from_str(&text).ok().and_then(broken_seal);
            Ok((parsed, broken.map(|broken| format!("{}: {broken}; what it says may be wrong", path.display()))))
        }
        Err(fault) => Err(refuse(format!("not a file of pdreplay: {fault}")).hint(RESTORE)),
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| unreadable(path, &error))
}

/// A file of a run that cannot be read.
pub fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    let failure = Failure::input(format!("cannot read {}: {error}", path.display()));
    if error.kind() == ErrorKind::NotFound { failure.hint("the folder is not a whole run folder") } else { failure }
}
