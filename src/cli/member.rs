//! [`Member`]: a run among several, a cell of a sweep or a replica, as its folder tells it without its records being read.
//!
//! `run.json` is held against its own digest, every file against its size, `summary.json` against its digest; large files
//! are not read through. Invariant: a run that is not the one listed, or not as it ended, is named by the list.

use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::cli::folder::{self, LeftFiles, ManifestState, broken_seal, damage};

/// Runs named in a sentence; of more, it is said how many.
const NAMED: usize = 8;

/// Why the records of a folder say nothing of the run that is wanted.
pub const ANOTHER_RUN: &str = "its folder holds another run";

/// As much of `run.json` as tells what run it was and how far it came.
#[derive(Debug, Deserialize)]
pub struct Member {
    /// Id of the run.
    pub run_id: String,
    /// Its seed.
    pub seed: u64,
    /// How far it came.
    pub state: ManifestState,
    #[serde(default)]
    files: LeftFiles,
    /// Present in real time.
    #[serde(default)]
    target: Option<IgnoredAny>,
    /// Why the file is not as it was written, in words.
    #[serde(skip)]
    broken: Option<String>,
}

/// What is in the folder of a run that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// The run that is wanted, at its end.
    Done,
    /// A run that did not come to its end, or was changed since: why, in words.
    Unfinished(String),
    /// A run at its end, but of another scenario, trace, target or version.
    Other,
}

impl Found {
    /// Why its records say nothing of the run that is wanted, in words. Of one that was changed the rest may do, and what may
    /// not is refused when it is read.
    pub fn is_not_it(&self) -> Option<&'static str> {
        match self {
            Found::Nothing => Some("its folder is gone"),
            Found::Other => Some(ANOTHER_RUN),
            Found::Done | Found::Unfinished(_) => None,
        }
    }
}

impl Member {
    /// The run in `folder`. Error: why there is none, in words.
    pub fn read(folder: &Path) -> Result<Member, String> {
        let path = folder.join(folder::RUN);
        let say = |cause: &str| format!("{}: {cause}", path.display());
        let text = fs::read(&path).map_err(|error| say(&error.to_string()))?;
        let run: serde_json::Value =
            serde_json::from_slice(&text).map_err(|error| say(&format!("no JSON: {error}")))?;
        let member = Member::deserialize(&run).map_err(|error| say(&format!("of no run: {error}")))?;
        Ok(Member { broken: broken_seal(run).map(|broken| say(&broken)), ..member })
    }

    /// It ran in real time.
    pub fn is_live(&self) -> bool {
        self.target.is_some()
    }

    /// What became of the files in `folder` since the run, in words.
    pub fn change(&self, folder: &Path) -> Option<String> {
        let summary = || {
            let change = folder::change(folder, &self.files, folder::SUMMARY)?;
            Some(format!("{}: {change}", folder.join(folder::SUMMARY).display()))
        };
        let sizes = damage(folder, &self.files).into_iter().next().map(|(_, text)| text);
        sizes.or_else(summary).or_else(|| self.broken.clone())
    }
}

/// What became of the runs that a list names, since it was written.
#[derive(Debug, Default)]
pub struct Strays {
    gone: Vec<String>,
    others: Vec<String>,
    changed: Vec<String>,
}

impl Strays {
    /// Takes in what was found in the folder `name` of a run that the list says has ended.
    pub fn add(&mut self, name: &str, found: Found) {
        match found {
            Found::Done => {}
            Found::Nothing => self.gone.push(name.into()),
            Found::Other => self.others.push(name.into()),
            Found::Unfinished(why) => self.changed.push(why),
        }
    }

    /// Sentences for people about the list at `path`, of which `what` cannot be checked.
    pub fn notes(&self, path: &Path, what: &str) -> Vec<String> {
        let note = |names: &[String], how: &str, between: &str| {
            let named = listed(names, between);
            (!names.is_empty()).then(|| format!("{}: {how}: {named}; {what} cannot be checked", path.display()))
        };
        let changed = "runs it lists are not as they ended";
        let gone = note(&self.gone, "folders it lists are missing", ", ");
        [gone, self.others(path), note(&self.changed, changed, "; ")].into_iter().flatten().collect()
    }

    /// That folders hold other runs than the list at `path` says.
    pub fn others(&self, path: &Path) -> Option<String> {
        let named = listed(&self.others, ", ");
        (!named.is_empty()).then(|| format!("{}: folders hold another run than it lists: {named}", path.display()))
    }
}

fn listed(names: &[String], between: &str) -> String {
    let (named, more) = names.split_at(names.len().min(NAMED));
    let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
    named.join(between) + &more
}
