//! The points of a sweep: the product of the axes without what `[[exclude]]` takes out, and what `[[cell]]` adds.

use std::collections::BTreeSet;
use std::path::Path;

use toml::{Table, Value as Toml};

use super::axis::{self, Effect, label};
use super::file::{Entry, entries};
use super::{Axis, MOST_CELLS, Point, SweepHead};
use crate::base::nearest;
use crate::scenario::error::{Cause, Origin, Problem, ScenarioError};
use crate::scenario::layer::{Layer, found};
use crate::scenario::load::{base, finish, lay_over};
use crate::scenario::model::Scenario;

/// Jitter where several seeds would otherwise give the same run, ms.
const JITTER_MS: f64 = 1.0;
const JITTER_KEY: &str = "replay.arrival_jitter_ms";

/// Which points there are.
pub(super) struct Grid {
    /// Values of each axis that are crossed: those of `[axes]`.
    crossed: Vec<u32>,
    /// Positions to leave out, by axis; an axis without any matches always.
    excluded: Vec<Vec<BTreeSet<u32>>>,
    /// Points beside the product.
    extra: Vec<Vec<u32>>,
}

impl Grid {
    /// Reads `[[exclude]]` and `[[cell]]`; values that only a cell has join their axes.
    pub(super) fn new(layer: &Layer, axes: &mut Vec<Axis>, folder: &Path) -> Result<Grid, ScenarioError> {
        let crossed: Vec<u32> = axes.iter().map(|axis| axis.values.len() as u32).collect();
        let mut grid = Grid { crossed, excluded: Vec::new(), extra: Vec::new() };
        for (path, table) in tables(layer, "exclude")? {
            let rule = exclusion(layer, &path, table, axes)?;
            grid.excluded.push(rule);
        }
        for (path, table) in tables(layer, "cell")? {
            let at = cell(layer, &path, table, axes, folder)?;
            let is_there = grid.extra.contains(&at) || grid.is_crossed(&at);
            if is_there {
                let text = "this cell is there already; leave it out".into();
                return Err(ScenarioError::one(layer.origin(&path), Cause::Contradiction(text)));
            }
            grid.extra.push(at);
        }
        Ok(grid)
    }

    /// Refuses more cells than a sweep may have, and a sweep of none.
    pub(super) fn check_size(&self, seeds: usize, at: Origin) -> Result<(), ScenarioError> {
        let product = self.crossed.iter().try_fold(seeds, |product, count| product.checked_mul(*count as usize));
        let refuse = |cause: String, remedy: &str| {
            let problem = Problem { key: "axes".into(), cause, remedy: remedy.into() };
            Err(ScenarioError::one(at.clone(), Cause::Impossible(problem)))
        };
        if product.is_none_or(|product| product > 100 * MOST_CELLS) {
            return refuse(format!("span more than {} cells", 100 * MOST_CELLS), "take values out, or fewer repeats");
        }
        let cells = self.all().count() * seeds;
        match cells {
            0 => refuse("leave no cell: all of them are excluded".into(), "exclude less"),
            cells if cells > MOST_CELLS => {
                let cause = format!("span {cells} cells, and a sweep has {MOST_CELLS} at most");
                refuse(cause, "take values out, exclude some, or run fewer repeats")
            }
            _ => Ok(()),
        }
    }

    /// Every point, the last axis moving fastest.
    fn all(&self) -> impl Iterator<Item = Vec<u32>> + '_ {
        // A file of cells alone has no product, not even the one point of no axes.
        let is_listed = self.crossed.is_empty() && !self.extra.is_empty();
        let total = if is_listed { 0 } else { self.crossed.iter().map(|count| u64::from(*count)).product() };
        let at = |mut number: u64| {
            let mut at = vec![0; self.crossed.len()];
            for (place, count) in at.iter_mut().zip(&self.crossed).rev() {
                *place = (number % u64::from(*count)) as u32;
                number /= u64::from(*count);
            }
            at
        };
        (0..total).map(at).filter(|at| !self.is_excluded(at)).chain(self.extra.iter().cloned())
    }

    fn is_excluded(&self, at: &[u32]) -> bool {
        let hits = |rule: &Vec<BTreeSet<u32>>| rule.iter().zip(at).all(|(set, at)| set.is_empty() || set.contains(at));
        self.excluded.iter().any(hits)
    }

    fn is_crossed(&self, at: &[u32]) -> bool {
        let inside = self.crossed.iter().zip(at).all(|(count, at)| at < count);
        !self.crossed.is_empty() && inside && !self.is_excluded(at)
    }
}

/// The tables of a list of tables, with their paths.
fn tables<'a>(layer: &'a Layer, name: &str) -> Result<Vec<(String, &'a Table)>, ScenarioError> {
    let wrong = |path: &str, value: &Toml| {
        let cause =
            Cause::WrongType { key: name.into(), wanted: format!("a table: `[[{name}]]`"), found: found(value) };
        ScenarioError::one(layer.origin(path), cause)
    };
    let list = match layer.table.get(name) {
        None => return Ok(Vec::new()),
        Some(Toml::Array(list)) => list,
        Some(other) => return Err(wrong(name, other)),
    };
    let table = |(ix, item): (usize, &'a Toml)| {
        let path = format!("{name}[{ix}]");
        item.as_table().map(|table| (path.clone(), table)).ok_or_else(|| wrong(&path, item))
    };
    list.iter().enumerate().map(table).collect()
}

fn unknown_axis(entry: &Entry, table: &str, axes: &[Axis]) -> ScenarioError {
    let known: Vec<String> = axes.iter().map(|axis| axis.key.clone()).collect();
    let near = nearest(&entry.key, &known);
    let cause = Cause::UnknownKey { key: entry.key.clone(), table: table.into(), near, known };
    ScenarioError::one(entry.at.clone(), cause)
}

/// One `[[exclude]]`: the positions it takes out, by axis.
fn exclusion(layer: &Layer, path: &str, table: &Table, axes: &[Axis]) -> Result<Vec<BTreeSet<u32>>, ScenarioError> {
    let mut rule = vec![BTreeSet::new(); axes.len()];
    let entries = entries(layer, table, path);
    if entries.is_empty() {
        let text = "[[exclude]] names no axis and would take out every cell; give values of one or more axes".into();
        return Err(ScenarioError::one(layer.origin(path), Cause::Contradiction(text)));
    }
    for entry in entries {
        let Some(ix) = axes.iter().position(|axis| axis.key == entry.key) else {
            return Err(unknown_axis(&entry, "[[exclude]]", axes));
        };
        let one = std::slice::from_ref(entry.value);
        let values = entry.value.as_array().map_or(one, Vec::as_slice);
        for value in values {
            let wanted = label(value);
            let Some(at) = axes[ix].position(&wanted) else {
                let known: Vec<String> = axes[ix].values.iter().map(|value| value.label.clone()).collect();
                let near = nearest(&wanted, &known);
                let cause = Cause::NotOneOf { key: entry.key.clone(), found: wanted, near, allowed: known };
                return Err(ScenarioError::one(entry.at.clone(), cause));
            };
            rule[ix].insert(at);
        }
    }
    Ok(rule)
}

/// One `[[cell]]`: its position on each axis. The first of a file without `[axes]` makes them.
fn cell(
    layer: &Layer,
    path: &str,
    table: &Table,
    axes: &mut Vec<Axis>,
    folder: &Path,
) -> Result<Vec<u32>, ScenarioError> {
    let entries = entries(layer, table, path);
    if axes.is_empty() {
        for entry in &entries {
            axis::check_key(&entry.key, "[[cell]]", &entry.at)?;
            axes.push(Axis { key: entry.key.clone(), values: Vec::new() });
        }
    }
    if let Some(entry) = entries.iter().find(|entry| axes.iter().all(|axis| axis.key != entry.key)) {
        return Err(unknown_axis(entry, "[[cell]]", axes));
    }
    let position = |axis: &mut Axis| {
        let Some(entry) = entries.iter().find(|entry| entry.key == axis.key) else {
            let remedy = format!("a cell has a value on each axis: write `{} = …`", axis.key);
            return Err(ScenarioError::one(layer.origin(path), Cause::Missing { key: axis.key.clone(), remedy }));
        };
        if let Some(at) = axis.position(&label(entry.value)) {
            return Ok(at);
        }
        let value = axis::value(&axis.key, entry.value, &entry.at, folder)?;
        axis.push(value, &entry.at)?;
        Ok(axis.values.len() as u32 - 1)
    };
    axes.iter_mut().map(position).collect()
}

/// The points with their scenarios: `base` is the base scenario with `over` laid over it already.
pub(super) fn points(
    grid: &Grid,
    axes: &[Axis],
    over: &[Layer],
    whole: Layer,
    head: &SweepHead,
    seeds: usize,
) -> Vec<Point> {
    let sets_jitter = whole_sets(over, JITTER_KEY) || axes.iter().any(|axis| axis.key == JITTER_KEY);
    let wants_jitter = seeds > 1 && head.jitter_ms.is_none() && !sets_jitter;
    let point = |at: Vec<u32>| {
        let mut scenario = resolve(axes, &at, over, &whole);
        if let Ok(scenario) = &mut scenario
            && wants_jitter
            && scenario.replay.arrival_jitter_ms == 0.0
        {
            scenario.replay.arrival_jitter_ms = JITTER_MS;
        }
        Point { at, scenario }
    };
    grid.all().map(point).collect()
}

fn whole_sets(over: &[Layer], key: &str) -> bool {
    over.iter().any(|layer| layer.has(key))
}

fn resolve(axes: &[Axis], at: &[u32], over: &[Layer], whole: &Layer) -> Result<Scenario, ScenarioError> {
    let effects = || axes.iter().zip(at).map(|(axis, at)| &axis.values[*at as usize].effect);
    let mut layer = whole.clone();
    for effect in effects() {
        if let Effect::Base(given, at) = effect {
            layer = base(Some(given)).map_err(|error| error.at(at))?;
            over.iter().try_for_each(|over| lay_over(&mut layer, over.clone()))?;
        }
    }
    for effect in effects() {
        if let Effect::Topology { counts, defaults } = effect {
            lay_over(&mut layer, counts.clone())?;
            let is_said =
                |key: &str| whole_sets(over, key) || axes.iter().any(|axis| axis::sets(&axis.key).contains(&key));
            defaults
                .iter()
                .filter(|(key, _)| !is_said(key))
                .try_for_each(|(_, over)| lay_over(&mut layer, over.clone()))?;
        }
    }
    for effect in effects() {
        if let Effect::Over(over) = effect {
            lay_over(&mut layer, over.clone())?;
        }
    }
    finish(&layer)
}
