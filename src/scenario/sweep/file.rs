//! From the text of a sweep file to a [`Sweep`]: `[sweep]`, `[set]`, `[axes]`, `[[exclude]]`, `[[cell]]`.

use std::path::{Path, PathBuf};

use toml::{Table, Value as Toml};

use super::axis::{self, SEED};
use super::head::head;
use super::points::{Grid, points};
use super::{Axis, Sweep, SweepFlags};
use crate::base::nearest;
use crate::scenario::error::{Cause, Origin, Problem, ScenarioError};
use crate::scenario::layer::{Layer, found};
use crate::scenario::load::{base, finish, lay_over, read_text};
use crate::scenario::shipped::{self, SWEEPS};

const TABLES: [&str; 5] = ["sweep", "set", "axes", "exclude", "cell"];

/// A key with its value and place.
pub(super) struct Entry<'a> {
    pub(super) key: String,
    pub(super) value: &'a Toml,
    pub(super) at: Origin,
    /// Path in the file, for the places of list items.
    path: String,
}

/// Loads a sweep: a path, or the name of a shipped one.
pub fn load_sweep(given: &str, flags: &SweepFlags) -> Result<Sweep, ScenarioError> {
    let path = Path::new(given);
    let shipped = shipped::text(SWEEPS, given).filter(|_| !path.is_file());
    let (file, text, folder) = match shipped {
        Some(text) => (format!("{given}.toml"), text.to_owned(), PathBuf::new()),
        None if !path.exists() && path.extension().is_none() && path.components().count() == 1 => {
            let known = shipped::names(SWEEPS);
            let cause = Cause::UnknownName { what: "sweep", name: given.into(), near: nearest(given, &known), known };
            return Err(ScenarioError::one(Origin::Flag(given.into()), cause));
        }
        None => (given.to_owned(), read_text(path)?, path.parent().unwrap_or(Path::new("")).into()),
    };
    parse(&file, &text, &folder, flags)
}

/// A sweep of text; `file` names it in messages, relative paths start from `folder`.
pub(super) fn parse(file: &str, text: &str, folder: &Path, flags: &SweepFlags) -> Result<Sweep, ScenarioError> {
    let layer = Layer::from_text(file, text)?;
    check_tables(&layer)?;
    let stem = Path::new(file).file_stem().unwrap_or_default().to_string_lossy();
    let mut head = head(&layer, folder, &stem)?;
    head.repeats = flags.repeats.unwrap_or(head.repeats);
    let mut axes = read_axes(&layer, folder)?;
    let first_seeds = take_seeds(&mut axes)?;
    let grid = Grid::new(&layer, &mut axes, folder)?;
    let mut over = Vec::new();
    if let Some(jitter_ms) = head.jitter_ms {
        over.push(axis::over("replay.arrival_jitter_ms", Toml::Float(jitter_ms), &layer.origin("sweep.jitter_ms"))?);
    }
    for entry in table_entries(&layer, "set")? {
        refuse_moved(&entry.key, &axes, &entry.at)?;
        axis::check_key(&entry.key, "[set]", &entry.at)?;
        if matches!(entry.key.as_str(), "topology" | "scenario") {
            let text =
                format!("`{}` is not for [set]; name the keys it stands for, or the scenario in [sweep]", entry.key);
            return Err(ScenarioError::one(entry.at, Cause::Contradiction(text)));
        }
        over.push(axis::over(&entry.key, entry.value.clone(), &entry.at)?);
    }
    for overlay in &flags.set {
        refuse_moved(overlay.key(), &axes, &overlay.origin())?;
        over.push(overlay.layer()?);
    }
    let base_at = layer.origin("sweep.scenario");
    let mut whole = base(head.scenario.as_deref()).map_err(|error| error.at(&base_at))?;
    for layer in &over {
        lay_over(&mut whole, layer.clone())?;
    }
    let scenario = finish(&whole)?;
    let seeds = seeds(first_seeds, scenario.seed, head.repeats)?;
    grid.check_size(seeds.len(), layer.origin("axes"))?;
    let points = points(&grid, &axes, &over, whole, &head, seeds.len());
    Ok(Sweep { head, axes, seeds, scenario: scenario.name, points })
}

fn check_tables(layer: &Layer) -> Result<(), ScenarioError> {
    if let Some(key) = layer.table.keys().find(|key| !TABLES.contains(&key.as_str())) {
        let known: Vec<String> = TABLES.map(String::from).to_vec();
        let near = nearest(key, &known);
        let cause = Cause::UnknownKey { key: key.clone(), table: "the top level of a sweep".into(), near, known };
        return Err(ScenarioError::one(layer.origin(key), cause));
    }
    if layer.table.contains_key("axes") || layer.table.contains_key("cell") {
        return Ok(());
    }
    let remedy = "write for example `[axes]` and below it `cap = [2, 4, 8]`".into();
    Err(ScenarioError::one(layer.origin(""), Cause::Missing { key: "axes".into(), remedy }))
}

/// The entries of a table at the top of the file, in the order of the file; `a.b = 1`, `[a] b = 1` and `"a.b" = 1` alike.
pub(super) fn table_entries<'a>(layer: &'a Layer, name: &str) -> Result<Vec<Entry<'a>>, ScenarioError> {
    match layer.table.get(name) {
        None => Ok(Vec::new()),
        Some(Toml::Table(table)) => Ok(entries(layer, table, name)),
        Some(other) => {
            let cause = Cause::WrongType { key: name.into(), wanted: "a table".into(), found: found(other) };
            Err(ScenarioError::one(layer.origin(name), cause))
        }
    }
}

/// The entries of `table`, which stands at `path`.
pub(super) fn entries<'a>(layer: &'a Layer, table: &'a Table, path: &str) -> Vec<Entry<'a>> {
    let mut found = Vec::new();
    gather(layer, table, path, "", &mut found);
    found.sort_by_key(|entry| match &entry.at {
        Origin::File { at, .. } => *at,
        Origin::BuiltIn | Origin::Flag(_) => None,
    });
    found
}

fn gather<'a>(layer: &'a Layer, table: &'a Table, path: &str, prefix: &str, into: &mut Vec<Entry<'a>>) {
    for (key, value) in table {
        let path = format!("{path}.{key}");
        let key = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        match value {
            Toml::Table(inner) => gather(layer, inner, &path, &key, into),
            value => into.push(Entry { key, value, at: layer.origin(&path), path }),
        }
    }
}

fn read_axes(layer: &Layer, folder: &Path) -> Result<Vec<Axis>, ScenarioError> {
    let mut axes: Vec<Axis> = Vec::new();
    for Entry { key, value, at, path } in table_entries(layer, "axes")? {
        axis::check_key(&key, "[axes]", &at)?;
        refuse_moved(&key, &axes, &at)?;
        let Toml::Array(items) = value else {
            let wanted = format!("a list of values, such as `{key} = [{value}]`");
            return Err(ScenarioError::one(at, Cause::WrongType { key, wanted, found: found(value) }));
        };
        if items.is_empty() {
            let (cause, remedy) = ("has no values".into(), "give at least one, or leave the axis out".into());
            return Err(ScenarioError::one(at, Cause::Impossible(Problem { key, cause, remedy })));
        }
        let mut axis = Axis { key, values: Vec::new() };
        for (ix, item) in items.iter().enumerate() {
            let at = layer.origin(&format!("{path}[{ix}]"));
            let value = axis::value(&axis.key, item, &at, folder)?;
            axis.push(value, &at)?;
        }
        axes.push(axis);
    }
    Ok(axes)
}

/// Refuses a key that an axis sets already.
fn refuse_moved(key: &str, axes: &[Axis], at: &Origin) -> Result<(), ScenarioError> {
    let keys = axis::sets(key);
    let moves = |axis: &&Axis| axis.key == key || axis::sets(&axis.key).iter().any(|moved| keys.contains(moved));
    match axes.iter().find(moves) {
        None => Ok(()),
        Some(axis) => {
            let text = format!("`{key}` and the axis `{}` set the same key; leave one out", axis.key);
            Err(ScenarioError::one(at.clone(), Cause::Contradiction(text)))
        }
    }
}

/// The values of the axis `seed`, which is none of the others.
fn take_seeds(axes: &mut Vec<Axis>) -> Result<Option<Vec<u64>>, ScenarioError> {
    let Some(ix) = axes.iter().position(|axis| axis.key == SEED) else { return Ok(None) };
    // The schema let whole numbers pass alone.
    Ok(Some(axes.remove(ix).values.iter().filter_map(|value| value.label.parse().ok()).collect()))
}

/// Every seed: `repeats` consecutive ones from each first.
fn seeds(first: Option<Vec<u64>>, base: u64, repeats: u32) -> Result<Vec<u64>, ScenarioError> {
    let first = first.unwrap_or_else(|| vec![base]);
    let all: Vec<u64> = first.iter().flat_map(|seed| (0..repeats).map(|n| seed.wrapping_add(n.into()))).collect();
    let mut sorted = all.clone();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        None => Ok(all),
        Some(pair) => {
            let problem = Problem {
                key: "axes.seed".into(),
                cause: format!("with repeats = {repeats} runs seed {} twice: a repeat takes the next seed", pair[0]),
                remedy: "list seeds further apart, or leave the axis or the repeats out".into(),
            };
            Err(ScenarioError::one(Origin::BuiltIn, Cause::Impossible(problem)))
        }
    }
}
