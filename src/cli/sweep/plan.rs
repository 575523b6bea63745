//! The cells of a sweep before any has run: their folders, their scenarios, their traces.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest, Sha256};

use crate::cli::exit::Failure;
use crate::cli::folder::{CELLS, path_safe};
use crate::cli::inputs::generate_trace;
use crate::cli::provenance::{VERSION, run_id};
use crate::results::sweep::{AxisValue, CellState, SweepAxis, SweepCell, SweepInfo};
use crate::scenario::sweep::{Axis, Sweep};
use crate::scenario::{Scenario, Severity, TraceConfig, conflicts};
use crate::trace::Trace;

/// Longest name of a cell's folder; what is longer ends in a digest.
const MOST_NAME: usize = 96;

/// A sweep with its cells.
#[derive(Debug)]
pub struct Plan {
    /// The file, resolved.
    pub sweep: Sweep,
    /// Run points whose policy, mechanism and router do not fit together.
    pub allow_conflict: bool,
    /// Where traces come from.
    pub traces: Traces,
}

impl Plan {
    /// Every cell as a row: refused, or missing.
    pub fn rows(&self) -> Result<Vec<SweepCell>, Failure> {
        let (points, seeds) = (&self.sweep.points, &self.sweep.seeds);
        let mut folders = Folders::default();
        let mut rows = Vec::with_capacity(self.sweep.cells());
        for point in points {
            let values = self.sweep.labels(point);
            let name = folders.name(&words(&self.sweep.axes, &values));
            for seed in seeds {
                let folder = if seeds.len() > 1 { format!("{name}_s{seed}") } else { name.clone() };
                let mut row = SweepCell {
                    number: rows.len() as u32 + 1,
                    at: point.at.clone(),
                    values: values.clone(),
                    seed: *seed,
                    folder: format!("{CELLS}/{folder}"),
                    run_id: None,
                    state: CellState::Missing,
                    error: None,
                    result: None,
                };
                match self.scenario(&row) {
                    Ok(scenario) => row.run_id = Some(run_id(&scenario, self.traces.of(&scenario)?.as_ref())),
                    Err(error) => {
                        row.state = CellState::Refused;
                        row.error = Some(error);
                    }
                }
                rows.push(row);
            }
        }
        Ok(rows)
    }

    /// The scenario of a cell, its seed included; or why there is none.
    pub fn scenario(&self, cell: &SweepCell) -> Result<Scenario, String> {
        let point = &self.sweep.points[(cell.number as usize - 1) / self.sweep.seeds.len()];
        let mut scenario = point.scenario.as_ref().map_err(ToString::to_string)?.clone();
        scenario.seed = cell.seed;
        let refused = |conflict: &crate::scenario::Conflict| conflict.severity == Severity::Refuse;
        match conflicts(&scenario).into_iter().find(refused) {
            Some(conflict) if !self.allow_conflict => Err(conflict.text),
            Some(_) | None => Ok(scenario),
        }
    }

    /// What is swept, for the report.
    pub fn info(&self, target: String) -> SweepInfo {
        let sweep = &self.sweep;
        let value =
            |value: &crate::scenario::sweep::Value| AxisValue { label: value.label.clone(), number: value.number };
        let axis = |axis: &Axis| SweepAxis {
            key: axis.key.clone(),
            label: axis.key.rsplit('.').next().unwrap_or_default().replace('_', " "),
            values: axis.values.iter().map(value).collect(),
        };
        SweepInfo {
            name: sweep.head.name.clone(),
            description: sweep.head.description.clone(),
            scenario: sweep.scenario.clone(),
            trace: self.traces.names(sweep),
            target,
            between_cells: None,
            version: VERSION.into(),
            axes: sweep.axes.iter().map(axis).collect(),
            seeds: sweep.seeds.clone(),
        }
    }
}

/// The trace of each cell: the one that was given, or what its scenario generates.
#[derive(Debug)]
pub struct Traces {
    given: Option<Arc<Trace>>,
    /// Those made last: cells that share one are neighbours.
    made: Mutex<Vec<(TraceConfig, Arc<Trace>)>>,
    keep: usize,
}

impl Traces {
    /// A given one for all; or generated ones, of which `keep` stay in memory.
    pub fn new(given: Option<Arc<Trace>>, keep: usize) -> Traces {
        Traces { given, made: Mutex::default(), keep }
    }

    /// The one that was given.
    pub fn given(&self) -> Option<&Trace> {
        self.given.as_deref()
    }

    /// The trace of a scenario.
    pub fn of(&self, scenario: &Scenario) -> Result<Arc<Trace>, Failure> {
        if let Some(given) = &self.given {
            return Ok(Arc::clone(given));
        }
        // Held while one is made: who wants the same waits for it.
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, trace)) = made.iter().find(|(config, _)| *config == scenario.trace) {
            return Ok(Arc::clone(trace));
        }
        let trace = Arc::new(generate_trace(scenario)?);
        if made.len() >= self.keep {
            made.remove(0);
        }
        made.push((scenario.trace.clone(), Arc::clone(&trace)));
        Ok(trace)
    }

    fn names(&self, sweep: &Sweep) -> String {
        if let Some(given) = &self.given {
            return given.meta.name.clone();
        }
        let mut names: Vec<&str> = Vec::new();
        for scenario in sweep.points.iter().filter_map(|point| point.scenario.as_ref().ok()) {
            if !names.contains(&scenario.trace.preset.as_str()) {
                names.push(&scenario.trace.preset);
            }
        }
        names.join(", ")
    }
}

/// `kv-aware_cap-4_2p6d`: words speak for themselves, numbers go with their key.
fn words(axes: &[Axis], values: &[String]) -> String {
    let word = |(axis, value): (&Axis, &String)| {
        let key = axis.key.rsplit('.').next().unwrap_or_default();
        let is_word = value.starts_with(|first: char| first.is_ascii_alphabetic())
            && !matches!(value.as_str(), "inf" | "true" | "false");
        let speaks = is_word || axis.key == "topology";
        if speaks { value.clone() } else { format!("{key}-{value}") }
    };
    let all: Vec<String> = axes.iter().zip(values).map(word).collect();
    if all.is_empty() { "run".into() } else { all.join("_") }
}

/// Names of folders: safe, not too long, each once.
#[derive(Debug, Default)]
struct Folders(BTreeMap<String, u32>);

impl Folders {
    fn name(&mut self, words: &str) -> String {
        let mut name = path_safe(words).trim_start_matches('.').to_owned();
        if name.len() > MOST_NAME || name.is_empty() {
            let digest: String = Sha256::digest(words).iter().take(4).map(|byte| format!("{byte:02x}")).collect();
            name.truncate(MOST_NAME);
            name = format!("{name}-{digest}");
        }
        let taken = self.0.entry(name.to_ascii_lowercase()).or_insert(0);
        *taken += 1;
        if *taken > 1 { format!("{name}-{taken}") } else { name }
    }
}
