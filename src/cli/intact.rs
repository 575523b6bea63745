//! Whether the files of a found run are as it left them: by their sizes, and by the digests of those that are read.
//!
//! A digest costs reading a file through, so it is compared when the file is about to be read, and once. Invariant: what a
//! command says of a file's content it says once, however often it reads it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::cli::folder;
use crate::cli::found::FoundRun;
use crate::cli::stored::Stored;
use crate::cli::terminal::Terminal;

/// What is known of the content of files, by name. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Checks(Arc<Mutex<BTreeMap<&'static str, Check>>>);

#[derive(Debug, Clone)]
struct Check {
    /// What became of it, in words.
    change: Option<String>,
    is_told: bool,
}

impl Checks {
    fn known(&self) -> MutexGuard<'_, BTreeMap<&'static str, Check>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FoundRun {
    /// What became of the content of a file since the run, in words; `None` when it is as it was, has another size, or the
    /// run told no digest of it. The file is read through the first time.
    pub fn change_of(&self, name: &'static str) -> Option<String> {
        let then = self.manifest.as_ref()?.files.get(name)?;
        let check = || Check { change: then.change_at(&self.folder.join(name)), is_told: false };
        self.checks.known().entry(name).or_insert_with(check).change.clone()
    }

    /// Says it, unless it was said already; `instead` is what is done about it.
    pub fn tell_change_of(&self, name: &'static str, instead: impl Fn(&str) -> String, terminal: &Terminal) {
        let Some(change) = self.change_of(name) else { return };
        let is_told = self.checks.known().get_mut(name).map(|check| std::mem::replace(&mut check.is_told, true));
        if is_told == Some(false) {
            terminal.messages.warning(instead(&change));
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
            let instead = if name == folder::REQUESTS { self.in_place_of_lines() } else { None };
            let instead = instead.map(|table| format!("; {} is read in its place", table.display()));
            terminal.messages.warning(text + &instead.unwrap_or_default());
        });
    }
}
