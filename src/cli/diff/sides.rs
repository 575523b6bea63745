//! Both sides of a comparison as they lie on the disk: runs, folders of replicas, files of records.

use std::path::{Path, PathBuf};

use crate::cli::exit::{Exit, Failure};
use crate::cli::folder::{REPLICAS, RunManifest};
use crate::cli::found::{Asked, Beside, FoundRun};
use crate::cli::replicas::{self, FoundReplicas};
use crate::cli::terminal::Terminal;
use crate::cli::threads::in_order;
use crate::results::diff::{COLUMNS, Origin, Requests, RunInput, SideInput};
use crate::results::{RunInfo, RunSummary};

/// One side, read.
#[derive(Debug)]
pub struct Loaded {
    /// As typed.
    pub label: String,
    /// Its runs, at least one.
    pub runs: Vec<LoadedRun>,
}

/// One run, read.
#[derive(Debug)]
pub struct LoadedRun {
    found: FoundRun,
    path: String,
    summary: RunSummary,
    requests: Requests,
}

/// A run that may be repeated.
#[derive(Debug)]
pub struct Single {
    /// The run in words.
    pub info: RunInfo,
    /// Its `run.json`; missing for a file of records.
    pub manifest: Option<RunManifest>,
}

impl LoadedRun {
    fn into_input(self) -> RunInput {
        let run_id = self.found.manifest.as_ref().map_or(&self.summary.run.name, |manifest| &manifest.run_id).clone();
        let (damage, doubt) = (self.found.said(), self.found.doubt());
        let origin = self.found.manifest.map(|manifest| Origin {
            trace_sha256: manifest.trace.sha256,
            arrival_scale: manifest.scenario.replay.arrival_scale,
            think_scale: manifest.scenario.replay.think_scale,
            scenario: serde_json::to_value(&manifest.scenario).unwrap_or_default(),
        });
        RunInput { path: self.path, run_id, damage, doubt, summary: self.summary, requests: self.requests, origin }
    }
}

impl Loaded {
    /// What says how to run it again, where it is a single run.
    pub fn single(&self) -> Option<Single> {
        let [run] = self.runs.as_slice() else { return None };
        Some(Single { info: run.summary.run.clone(), manifest: run.found.manifest.clone() })
    }

    /// For the library.
    pub fn into_input(self) -> SideInput {
        let runs = self.runs.into_iter().map(LoadedRun::into_input).collect();
        SideInput { label: self.label, runs }
    }
}

/// Reads both sides, several runs at a time.
pub fn load(
    names: &[Vec<PathBuf>; 2],
    asked: &Asked,
    jobs: usize,
    terminal: &Terminal,
) -> Result<[Loaded; 2], Failure> {
    let [a, b] = names.each_ref().map(|names| open_all(names, terminal));
    let (a, b) = (a?, b?);
    let first_of_b = a.len();
    let mut found: Vec<FoundRun> = a.into_iter().chain(b).collect();
    let read = in_order(found.len(), jobs, |number| read(&found[number], asked, terminal));
    let mut loaded = Vec::new();
    for (found, read) in found.drain(..).zip(read) {
        let (summary, requests) = read?;
        loaded.push(LoadedRun { path: shown(&found), found, summary, requests });
    }
    let of_b = loaded.split_off(first_of_b);
    let [label_a, label_b] =
        names.each_ref().map(|names| names.iter().map(|name| name.display().to_string()).collect::<Vec<_>>().join(","));
    let side = |label: String, runs: Vec<LoadedRun>| -> Result<Loaded, Failure> {
        Ok(Loaded { label, runs: joined(runs, asked, terminal)? })
    };
    Ok([side(label_a, loaded)?, side(label_b, of_b)?])
}

fn shown(found: &FoundRun) -> String {
    let path = if found.manifest.is_some() { &found.folder } else { &found.requests };
    path.display().to_string()
}

fn open_all(names: &[PathBuf], terminal: &Terminal) -> Result<Vec<FoundRun>, Failure> {
    let mut found = Vec::new();
    for name in names {
        let listed = replicas::read(name)?;
        let first = found.len();
        for path in runs_at(name, listed.as_ref(), terminal) {
            found.push(FoundRun::open(&path, terminal)?);
        }
        if let (Some(listed), Some(run)) = (&listed, found.get(first)) {
            // A list that was changed, or holds other runs, makes the side doubtful.
            listed.broken.iter().chain(&listed.others).for_each(|doubt| run.say_doubt(doubt, terminal));
            listed.replicas.notes.iter().for_each(|note| run.say(note, terminal));
        }
    }
    if found.is_empty() {
        return Err(Failure::input("a side names no run").hint("give a run folder, such as outputs/NAME"));
    }
    Ok(found)
}

/// The run at `path`, or the replicas in it that ran to their end.
fn runs_at(path: &Path, listed: Option<&FoundReplicas>, terminal: &Terminal) -> Vec<PathBuf> {
    let Some(FoundReplicas { replicas, .. }) = listed else { return vec![path.to_path_buf()] };
    let list = if path.is_dir() { path.join(REPLICAS) } else { path.to_path_buf() };
    if let Some(shortfall) = replicas.shortfall() {
        terminal.messages.warning(format!("{}: {shortfall}", list.display()));
    }
    let folder = list.parent().unwrap_or(Path::new(""));
    let signals = [Exit::HungUp, Exit::Interrupted, Exit::Terminated].map(|exit| exit as u8);
    let whole = replicas.replicas.iter().filter(|replica| !signals.contains(&replica.exit_code));
    whole.map(|replica| folder.join(&replica.folder)).collect()
}

fn read(found: &FoundRun, asked: &Asked, terminal: &Terminal) -> Result<(RunSummary, Requests), Failure> {
    let beside = Beside { columns: COLUMNS, start: &Requests::default, add: Requests::push };
    let (summary, _, requests) = found.summarise_beside(asked, &beside, terminal)?;
    Ok((summary, requests))
}

/// Files of records of one side that have no request in common are parts of one run.
fn joined(mut runs: Vec<LoadedRun>, asked: &Asked, terminal: &Terminal) -> Result<Vec<LoadedRun>, Failure> {
    let bare = runs.len() > 1 && runs.iter().all(|run| run.found.manifest.is_none());
    if !bare || !Requests::are_parts(&runs.iter().map(|run| &run.requests).collect::<Vec<_>>()) {
        return Ok(runs);
    }
    let files: Vec<&FoundRun> = runs.iter().map(|run| &run.found).collect();
    let summary = FoundRun::summarise_parts(&files, asked, terminal)?;
    let path = runs.iter().map(|run| run.path.as_str()).collect::<Vec<_>>().join(" + ");
    let mut first = runs.remove(0);
    runs.into_iter().for_each(|run| first.requests.append(run.requests));
    terminal.messages.note(format!("{path}: no request is in two of them: taken as parts of one run"));
    Ok(vec![LoadedRun { path, summary, ..first }])
}
