//! Whether the files of a found run are as it left them, and of one run: by their sizes, by the digests of those that are
//! read, and by the id of the run.
//!
//! A digest costs reading a file through, so it is compared when the file is about to be read, and once. Invariant: what a
//! command says of a file's content it says once, however often it reads it, and what it said stands in what it shows.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::cli::exit::Failure;
use crate::cli::folder;
use crate::cli::found::FoundRun;
use crate::cli::stored::Stored;
use crate::cli::terminal::Terminal;
use crate::results::{Batch, RunSummary};

/// What is known of the files, and what was said of them. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Checks(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    /// What became of the content of a file, in words, by its name.
    changes: BTreeMap<&'static str, Option<String>>,
    said: Vec<String>,
    /// The first word on what makes figures of the run doubtful.
    doubt: Option<String>,
}

impl Checks {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks for records of another run among those of a run.
#[derive(Debug, Default)]
pub struct OneRun {
    /// Number of the run's own id in the file, once it was met.
    own: Option<u32>,
    /// The first other id.
    other: Option<String>,
}

impl OneRun {
    /// Takes in the records of a batch of the run `run_id`.
    pub fn add(&mut self, batch: &Batch, run_id: &str) {
        if self.other.is_some() {
            return;
        }
        let ids = batch.labels("run_id");
        for row in 0..batch.rows() {
            let code = ids.code(row);
            if code.is_some() && code == self.own {
                continue;
            }
            match ids.get(row) {
                Some(id) if id == run_id => self.own = code,
                id => {
                    self.other = Some(id.unwrap_or("no").to_owned());
                    return;
                }
            }
        }
    }
}

impl FoundRun {
    /// Says on stderr what is wrong with a file, once, and keeps it for what is shown.
    pub fn say(&self, text: impl Into<String>, terminal: &Terminal) {
        let text = text.into();
        let mut known = self.checks.known();
        if !known.said.contains(&text) {
            terminal.messages.warning(&text);
            known.said.push(text);
        }
    }

    /// Says it of what its figures are made from: `run.json`, or the records that are read.
    pub fn say_doubt(&self, text: impl Into<String>, terminal: &Terminal) {
        let text = text.into();
        self.checks.known().doubt.get_or_insert_with(|| text.clone());
        self.say(text, terminal);
    }

    /// Why its figures may be wrong, in words: nothing is to be judged by them.
    pub fn doubt(&self) -> Option<String> {
        self.checks.known().doubt.clone()
    }

    /// What was said of its files so far.
    pub fn said(&self) -> Vec<String> {
        self.checks.known().said.clone()
    }

    /// Puts it among the notes of its summary.
    pub fn note(&self, summary: &mut RunSummary) {
        let notes = &mut summary.integrity.notes;
        self.said().into_iter().for_each(|said| {
            if !notes.contains(&said) {
                notes.push(said);
            }
        });
    }

    /// What became of the content of a file since the run, in words; `None` when it is as it was, has another size, or the
    /// run told no digest of any. The file is read through the first time.
    pub fn change_of(&self, name: &'static str) -> Option<String> {
        let manifest = self.manifest.as_ref()?;
        let check = || folder::change(&self.folder, &manifest.files, name);
        self.checks.known().changes.entry(name).or_insert_with(check).clone()
    }

    /// Says it; `instead` is what is done about it.
    pub fn tell_change_of(&self, name: &'static str, instead: impl Fn(&str) -> String, terminal: &Terminal) {
        if let Some(change) = self.change_of(name) {
            self.say(instead(&change), terminal);
        }
    }

    /// `events.jsonl`, about to be read; says when its content is not that of the run.
    pub fn events(&self, terminal: &Terminal) -> PathBuf {
        let path = self.folder.join(folder::EVENTS);
        self.tell_change_of(folder::EVENTS, |change| format!("{}: {change}", path.display()), terminal);
        path
    }

    /// Names the files of the folder that do not have the size the run left them with. Of a summary that cannot be used all
    /// is said.
    pub fn tell_damage(&self, stored: Option<&Stored>, terminal: &Terminal) {
        let files = self.manifest.as_ref().map(|manifest| folder::damage(&self.folder, &manifest.files));
        let told = |(name, _): &(String, String)| name != folder::SUMMARY || stored.is_some();
        files.into_iter().flatten().filter(told).for_each(|(name, text)| {
            let is_records = name == folder::REQUESTS;
            match is_records.then(|| self.in_place_of_lines()).flatten() {
                Some(table) => self.say(format!("{text}; {} is read in its place", table.display()), terminal),
                None if is_records && self.table_read().is_none() => self.say_doubt(text, terminal),
                None => self.say(text, terminal),
            }
        });
    }

    /// Refuses a folder in which no file is as its `run.json` tells: that is of another run.
    ///
    /// # Errors
    /// When it is so.
    pub fn require_own_manifest(&self) -> Result<(), Failure> {
        let Some(manifest) = self.manifest.as_ref().filter(|manifest| !manifest.files.is_empty()) else {
            return Ok(());
        };
        // That of the table is looked at anyway, and small files come before large ones.
        let names = [
            folder::REQUESTS_PARQUET,
            folder::SUMMARY,
            folder::WORKERS,
            folder::SESSIONS,
            folder::EVENTS,
            folder::REQUESTS,
        ];
        let there: Vec<&'static str> = names.into_iter().filter(|name| self.folder.join(name).is_file()).collect();
        let sizes = folder::damage(&self.folder, &manifest.files);
        let is_other =
            |name: &&'static str| sizes.iter().any(|(other, _)| other == *name) || self.change_of(name).is_some();
        if there.len() < 2 || !there.iter().all(is_other) {
            return Ok(());
        }
        let (folder, run) = (self.folder.display(), folder::RUN);
        Err(Failure::input(format!(
            "{folder}: none of its {} files has the size and digest that its {run} tells: the {run} is of another run",
            there.len()
        ))
        .hint(PUT_BACK))
    }

    /// Refuses records of another run.
    ///
    /// # Errors
    /// When there are any.
    pub fn require_one_run(&self, records: OneRun) -> Result<(), Failure> {
        let (Some(manifest), Some(other)) = (&self.manifest, records.other) else { return Ok(()) };
        Err(Failure::input(format!(
            "{}: holds the files of two runs: its {} is of run {}, its records are of run {other}",
            self.folder.display(),
            folder::RUN,
            manifest.run_id
        ))
        .hint(PUT_BACK))
    }
}

/// The remedy.
const PUT_BACK: &str = "put the file of the run back in its place; records alone can be read from a folder without run.json: pdreplay report FILE";
