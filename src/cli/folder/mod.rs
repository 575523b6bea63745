//! The run folder `outputs/<name>/`: who may write there, and under which names.
//!
//! Owns the claim of a folder and the list of files in it. A folder that exists is never written into, unless
//! `--overwrite` is given and nothing in it is foreign. Invariant: one folder, one run: the claim is an exclusive
//! `create_dir` and a lock on the directory, which the kernel drops with the process. A folder into which nothing came
//! belongs to nobody: it goes with its claim, and one that is found is taken.

mod canonical;
mod host;
pub mod jsonl;
mod left;
pub mod manifest;
mod seal;
mod whole;

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

pub use host::HostFacts;
pub use left::{Digested, LeftFile, LeftFiles, change, damage, told};
pub use manifest::{ManifestState, RunManifest};
pub use seal::{Sealed, broken_seal};
pub use whole::{Part, part_of, write_whole};

use crate::cli::exit::Failure;

/// Resolved scenario, provenance, how the run ended.
pub const RUN: &str = "run.json";
/// One line per request, in order of their ends.
pub const REQUESTS: &str = "requests.jsonl";
/// The same as a table.
pub const REQUESTS_PARQUET: &str = "requests.parquet";
/// One line per event beside the requests.
pub const EVENTS: &str = "events.jsonl";
/// One line per session.
pub const SESSIONS: &str = "sessions.jsonl";
/// One line per worker.
pub const WORKERS: &str = "workers.jsonl";
/// Everything the tables print.
pub const SUMMARY: &str = "summary.json";
/// Headline figures over the replicas, beside their folders.
pub const REPLICAS: &str = "replicas.json";

/// Everything a sweep found, in the folder of the sweep.
pub const SWEEP: &str = "sweep.json";
/// A row a cell.
pub const SWEEP_PARQUET: &str = "sweep.parquet";
/// Run folders of the cells, in the folder of the sweep.
pub const CELLS: &str = "cells";

const FILES: [&str; 8] = [RUN, REQUESTS, REQUESTS_PARQUET, EVENTS, SESSIONS, WORKERS, SUMMARY, REPLICAS];

/// Most runs with the same default name within one second.
const SUFFIX_LIMIT: u32 = 1000;

/// What folder is wanted.
#[derive(Debug, Clone)]
pub struct Wanted<'a> {
    /// Directory of all runs; created when missing.
    pub output_dir: &'a Path,
    /// Name given by the user; refused when taken.
    pub name: Option<&'a str>,
    /// Name otherwise; a number is appended when taken.
    pub default_name: &'a str,
    /// Remove an earlier run of this name.
    pub overwrite: bool,
}

/// A folder this process alone writes to.
#[derive(Debug)]
pub struct RunFolder {
    name: String,
    path: PathBuf,
    /// Held for its lock.
    _lock: Option<File>,
}

/// A folder that holds nothing would only be in the way of the next attempt; another is not removed by this.
impl Drop for RunFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.path);
    }
}

impl RunFolder {
    /// Refuses what a claim would refuse, as far as that shows without making anything: before any work is done.
    pub fn check(wanted: &Wanted) -> Result<(), Failure> {
        let Some(name) = wanted.name.map(check_name).transpose()? else { return Ok(()) };
        let path = wanted.output_dir.join(name);
        match path.symlink_metadata() {
            Ok(_) if wanted.overwrite => Leftovers::find(&path).map(drop),
            Ok(_) if is_empty(&path) => Ok(()),
            Ok(_) => Err(is_taken(&path)),
            Err(_) => Ok(()),
        }
    }

    /// Claims the folder, before anything is sent.
    pub fn claim(wanted: &Wanted) -> Result<RunFolder, Failure> {
        let name = wanted.name.map(check_name).transpose()?;
        fs::create_dir_all(wanted.output_dir).map_err(|error| cannot_create(wanted.output_dir, &error))?;
        name.map_or_else(|| claim_next(wanted), |name| claim_named(wanted, name))
    }

    /// The folder of that name, made or found, for whom it concerns to look at what is in it.
    pub fn open(output_dir: &Path, name: &str) -> Result<RunFolder, Failure> {
        let path = output_dir.join(check_name(name)?);
        fs::create_dir_all(&path).map_err(|error| cannot_create(&path, &error))?;
        lock(path)
    }

    /// Folder of replica `number` (from 1), inside this one.
    pub fn replica(&self, number: u32) -> Result<RunFolder, Failure> {
        self.inside(&replica_name(number))
    }

    /// A new folder inside this one, at a path of names joined by `/`.
    pub fn inside(&self, inner: &str) -> Result<RunFolder, Failure> {
        let path = self.path.join(inner);
        fs::create_dir(&path).map_err(|error| cannot_create(&path, &error))?;
        // The lock of the outermost covers it.
        Ok(RunFolder { name: format!("{}/{inner}", self.name), path, _lock: None })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its name in the directory of all runs.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

/// Whether a run is writing to the folder at `path` right now. The folder of a replica is covered by the lock of the
/// one around it, that of a cell by the lock of its sweep.
pub fn is_in_use(path: &Path) -> bool {
    let is_held = |path: &Path| {
        File::open(path).is_ok_and(|directory| matches!(directory.try_lock(), Err(TryLockError::WouldBlock)))
    };
    let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let is_replica = path.file_name().and_then(|name| name.to_str()).is_some_and(is_replica_name);
    let around = path.parent().filter(|around| around.file_name().is_some_and(|name| name == CELLS));
    let sweep = around.and_then(Path::parent);
    is_held(&path) || (is_replica && path.parent().is_some_and(is_held)) || sweep.is_some_and(is_held)
}

/// `name` as part of a path: other characters than ASCII letters, digits, `.`, `_` and `-` become `-`.
pub fn path_safe(name: &str) -> String {
    let keep = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '-' };
    name.chars().map(keep).collect()
}

/// Folder name of replica `number`, from 1.
pub fn replica_name(number: u32) -> String {
    format!("r{number:02}")
}

/// A name of a folder, refused where it is none.
pub fn check_name(name: &str) -> Result<&str, Failure> {
    if name.is_empty() || name.starts_with('.') || path_safe(name) != name {
        return Err(Failure::input(format!("`{name}` cannot name a run folder"))
            .hint("use ASCII letters, digits, `-`, `_` and `.`, not `.` first; choose the place with --output-dir"));
    }
    Ok(name)
}

fn claim_named(wanted: &Wanted, name: &str) -> Result<RunFolder, Failure> {
    let path = wanted.output_dir.join(name);
    match fs::create_dir(&path) {
        Ok(()) => lock(path),
        Err(error) if error.kind() == ErrorKind::AlreadyExists && wanted.overwrite => {
            let folder = lock(path)?;
            Leftovers::find(folder.path())?.remove()?;
            Ok(folder)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists && is_empty(&path) => {
            let folder = lock(path)?;
            // Another program may have claimed and filled it just before.
            if is_empty(folder.path()) { Ok(folder) } else { Err(is_taken(folder.path())) }
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(is_taken(&path)),
        Err(error) => Err(cannot_create(&path, &error)),
    }
}

/// Left by a run that was killed before it wrote anything, or made for one.
fn is_empty(path: &Path) -> bool {
    fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

fn is_taken(path: &Path) -> Failure {
    Failure::input(format!("the run folder {} exists", path.display()))
        .hint("give another --name, or none for a time-stamped one")
        .hint("--overwrite replaces an earlier run, and only files pdreplay itself wrote")
}

fn claim_next(wanted: &Wanted) -> Result<RunFolder, Failure> {
    for number in 1..=SUFFIX_LIMIT {
        let suffix = if number == 1 { String::new() } else { format!("-{number}") };
        let path = wanted.output_dir.join(format!("{}{suffix}", wanted.default_name));
        match fs::create_dir(&path) {
            Ok(()) => return lock(path),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(cannot_create(&path, &error)),
        }
    }
    Err(Failure::input(format!("{} and its numbered names are all taken", wanted.default_name)).hint("give a --name"))
}

fn lock(path: PathBuf) -> Result<RunFolder, Failure> {
    let directory = File::open(&path).map_err(|error| cannot_create(&path, &error))?;
    match directory.try_lock() {
        Ok(()) => {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            Ok(RunFolder { name, path, _lock: Some(directory) })
        }
        Err(TryLockError::WouldBlock) => {
            Err(Failure::input(format!("another pdreplay is writing to {}", path.display()))
                .hint("wait for it to end, or give another --name"))
        }
        Err(TryLockError::Error(error)) => Err(cannot_create(&path, &error)),
    }
}

/// What an earlier run left in its folder; nothing else is in it.
struct Leftovers {
    files: Vec<PathBuf>,
    replicas: Vec<PathBuf>,
}

impl Leftovers {
    /// Looks, and refuses a folder that holds anything else.
    fn find(path: &Path) -> Result<Leftovers, Failure> {
        let unreadable = |error: io::Error| Failure::input(format!("cannot read {}: {error}", path.display()));
        let mut found = Leftovers { files: Vec::new(), replicas: Vec::new() };
        for entry in fs::read_dir(path).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            let is_folder = entry.file_type().map_err(unreadable)?.is_dir();
            if !is_folder || !entry.file_name().to_str().is_some_and(is_replica_name) {
                require_own(&entry.path(), is_folder)?;
                found.files.push(entry.path());
                continue;
            }
            for inner in fs::read_dir(entry.path()).map_err(unreadable)? {
                let inner = inner.map_err(unreadable)?;
                let is_folder = inner.file_type().map_err(unreadable)?.is_dir();
                require_own(&inner.path(), is_folder)?;
                found.files.push(inner.path());
            }
            found.replicas.push(entry.path());
        }
        require_run(path, &found.files)?;
        Ok(found)
    }

    fn remove(&self) -> Result<(), Failure> {
        let removed = |result: io::Result<()>, path: &Path| {
            result.map_err(|error| Failure::input(format!("cannot remove {}: {error}", path.display())))
        };
        self.files.iter().try_for_each(|file| removed(fs::remove_file(file), file))?;
        self.replicas.iter().try_for_each(|folder| removed(fs::remove_dir(folder), folder))
    }
}

fn require_own(path: &Path, is_folder: bool) -> Result<(), Failure> {
    let own = path.file_name().and_then(|name| name.to_str()).is_some_and(is_own_name);
    if own && !is_folder {
        return Ok(());
    }
    Err(Failure::input(format!("{} was not written by pdreplay, so --overwrite stops", path.display()))
        .hint("move it away, or give another --name"))
}

/// Files of the right names may still be another tool's: an earlier run shows by its `run.json`.
fn require_run(path: &Path, files: &[PathBuf]) -> Result<(), Failure> {
    let is_part = |file: &PathBuf| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
    if files.iter().all(is_part) || [path, &path.join(replica_name(1))].into_iter().any(manifest::is_run) {
        return Ok(());
    }
    Err(Failure::input(format!("{} holds no run of pdreplay (no {RUN} of its making)", path.display()))
        .hint("move it away, or give another --name"))
}

/// Whether pdreplay itself writes files of this name into a run folder.
pub fn is_own_name(name: &str) -> bool {
    FILES.iter().any(|file| name == *file || part_of(Path::new(file)).to_str() == Some(name))
}

/// Whether it is the name of a replica's folder.
pub fn is_replica_name(name: &str) -> bool {
    name.strip_prefix('r').is_some_and(|digits| digits.len() >= 2 && digits.bytes().all(|b| b.is_ascii_digit()))
}

fn cannot_create(path: &Path, error: &io::Error) -> Failure {
    Failure::input(format!("cannot create {}: {error}", path.display())).hint(jsonl::way_out(error)).of_write()
}

#[cfg(test)]
mod tests;
