//! The folder of a sweep: `sweep.json`, `sweep.parquet`, and a run folder a cell in `cells/`.
//!
//! A cell is done when its `run.json` says so, with the id of the run that is wanted, its files have the sizes they had
//! then, and its summary the digest. So nothing but the cells themselves has to be right after a kill. Invariant: only files that pdreplay itself wrote are removed.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use crate::cli::exit::Failure;
use crate::cli::folder::{self, ManifestState, RunFolder, check_name, is_own_name, part_of};
use crate::cli::member::{Found, Member};
use crate::results::sweep::{CellResult, CellState, SweepCell};

/// The folder of a sweep, which this process alone writes to.
#[derive(Debug)]
pub struct SweepFolder {
    folder: RunFolder,
}

impl SweepFolder {
    /// Claims it; `fresh` removes every cell in it. One that holds anything else than a sweep is refused.
    pub fn claim(output_dir: &Path, name: &str, fresh: bool) -> Result<SweepFolder, Failure> {
        check_sweep(&output_dir.join(check_name(name)?))?;
        let folder = SweepFolder { folder: RunFolder::open(output_dir, name)? };
        // Another process may have written into it before the lock was ours.
        check_sweep(folder.path())?;
        if fresh {
            folder.cell_names()?.iter().try_for_each(|name| folder.clear(&format!("{}/{name}", folder::CELLS)))?;
        }
        let cells = folder.folder.file(folder::CELLS);
        fs::create_dir_all(&cells).map_err(|error| cannot("create", &cells, &error).of_write())?;
        Ok(folder)
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The folder as one of runs, for files in it.
    pub fn files(&self) -> &RunFolder {
        &self.folder
    }

    /// Names in `cells/`.
    pub fn cell_names(&self) -> Result<BTreeSet<String>, Failure> {
        let cells = self.folder.file(folder::CELLS);
        if !cells.is_dir() {
            return Ok(BTreeSet::new());
        }
        let names = names(&cells)?;
        Ok(names.into_iter().map(|(name, _)| name).collect())
    }

    /// A new, empty run folder for a cell; what an unfinished run left there is removed.
    pub fn begin(&self, cell: &SweepCell) -> Result<RunFolder, Failure> {
        self.clear(&cell.folder)?;
        self.folder.inside(&cell.folder)
    }

    /// Removes the run folder `inner`; a foreign file in it stops that.
    fn clear(&self, inner: &str) -> Result<(), Failure> {
        let path = self.folder.file(inner);
        if path.symlink_metadata().is_err() {
            return Ok(());
        }
        let entries = names(&path)?;
        if let Some((name, _)) = entries.iter().find(|(name, is_folder)| *is_folder || !is_own_name(name)) {
            return Err(Failure::input(format!(
                "{} was not written by pdreplay, so it is not removed",
                path.join(name).display()
            ))
            .hint("move it away, or give another --name")
            .of_write());
        }
        let removed = |result: io::Result<()>| result.map_err(|error| cannot("remove", &path, &error).of_write());
        // Its mark goes first: what is left after a kill is then no run at its end.
        removed(remove_if_there(&path.join(folder::RUN)))?;
        entries.iter().try_for_each(|(name, _)| removed(remove_if_there(&path.join(name))))?;
        removed(fs::remove_dir(&path))
    }
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// What is in the folder of `cell` below the folder of its sweep, which runs its cells in real time or not.
pub fn found(sweep: &Path, cell: &SweepCell, is_live: bool) -> Found {
    let path = sweep.join(&cell.folder);
    if path.symlink_metadata().is_err() {
        return Found::Nothing;
    }
    let run = match Member::read(&path) {
        Ok(run) => run,
        Err(why) => return Found::Unfinished(why),
    };
    if !matches!(run.state, ManifestState::Completed | ManifestState::Stopped) {
        return Found::Unfinished(format!("{}: the run did not come to its end", path.display()));
    }
    match run.change(&path) {
        Some(change) => Found::Unfinished(change),
        None if cell.run_id.as_ref() == Some(&run.run_id) && run.is_live() == is_live => Found::Done,
        None => Found::Other,
    }
}

/// Reads the result of a cell that is done; false when its summary cannot be used.
pub fn take_result(sweep: &Path, cell: &mut SweepCell) -> bool {
    let text = fs::read(sweep.join(&cell.folder).join(folder::SUMMARY)).unwrap_or_default();
    let summary: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
    cell.result = CellResult::of(&summary);
    if cell.result.is_some() {
        cell.state = CellState::Done;
        cell.error = None;
    }
    cell.result.is_some()
}

/// Refuses a folder that holds anything but a sweep.
fn check_sweep(path: &Path) -> Result<(), Failure> {
    match path.symlink_metadata() {
        Err(_) => return Ok(()),
        Ok(meta) if !meta.is_dir() && !path.is_dir() => {
            return Err(Failure::input(format!("{} is not a folder", path.display())).hint("give another --name"));
        }
        Ok(_) => {}
    }
    let is_own = |name: &str, is_folder: bool| {
        let files = [folder::SWEEP, folder::SWEEP_PARQUET];
        let is_file = files.iter().any(|file| name == *file || part_of(Path::new(file)).to_str() == Some(name));
        if is_folder { name == folder::CELLS } else { is_file }
    };
    match names(path)?.into_iter().find(|(name, is_folder)| !is_own(name, *is_folder)) {
        None => Ok(()),
        Some((name, _)) => Err(Failure::input(format!("{} holds {name}: it is no folder of a sweep", path.display()))
            .hint("give another --name, or another --output-dir")),
    }
}

/// The entries of a folder, and whether each is one.
fn names(path: &Path) -> Result<Vec<(String, bool)>, Failure> {
    let read = || -> io::Result<Vec<(String, bool)>> {
        fs::read_dir(path)?
            .map(|entry| {
                let entry = entry?;
                Ok((entry.file_name().to_string_lossy().into_owned(), entry.file_type()?.is_dir()))
            })
            .collect()
    };
    let mut names = read().map_err(|error| cannot("read", path, &error))?;
    names.sort();
    Ok(names)
}

fn cannot(what: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::input(format!("cannot {what} {}: {error}", path.display()))
}
