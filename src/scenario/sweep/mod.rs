//! Sweep files: one scenario, axes of values for its keys, and the points they span.
//!
//! Owns the file format and its refusals. A point's scenario is checked as any other; one that is refused is a point with its
//! error, since the rest of the sweep is of use without it. Invariant: the order of axes, values and points is that of
//! the file, and every error about a value names the line that value stands on.

mod axis;
mod file;
mod head;
mod points;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use super::error::ScenarioError;
use super::load::Overlay;
use super::model::Scenario;

pub use file::load_sweep;

/// Most cells of a sweep.
pub const MOST_CELLS: usize = 10_000;

/// What the command line says about a sweep.
#[derive(Debug, Clone, Default)]
pub struct SweepFlags {
    /// `--set`, over the base scenario.
    pub set: Vec<Overlay>,
    /// Repeats, in place of the file's.
    pub repeats: Option<u32>,
}

/// A sweep file, resolved.
#[derive(Debug)]
pub struct Sweep {
    /// `[sweep]`.
    pub head: SweepHead,
    /// The axes, without that of the seed.
    pub axes: Vec<Axis>,
    /// Seeds each point runs with.
    pub seeds: Vec<u64>,
    /// Name of the base scenario.
    pub scenario: String,
    /// What is run with each seed.
    pub points: Vec<Point>,
}

/// `[sweep]`.
#[derive(Debug, Clone, PartialEq)]
pub struct SweepHead {
    /// Name of the sweep and of its folder.
    pub name: String,
    /// One sentence for people.
    pub description: String,
    /// Base scenario: a path or the name of a shipped one; `None`: the built-in defaults.
    pub scenario: Option<String>,
    /// Trace file; `None`: the trace the scenario generates.
    pub trace: Option<PathBuf>,
    /// Consecutive seeds each point runs with.
    pub repeats: u32,
    /// Jitter of arrivals, ms; `None`: 1 ms where there are several seeds and the scenario has none.
    pub jitter_ms: Option<f64>,
    /// Threads; `None`: one per processor.
    pub jobs: Option<u32>,
    /// Run points whose policy, mechanism and router do not fit together.
    pub allow_conflict: bool,
}

/// An axis.
#[derive(Debug, Clone)]
pub struct Axis {
    /// Key as written.
    pub key: String,
    /// Its values, in order.
    pub values: Vec<Value>,
}

/// A value on an axis.
#[derive(Debug, Clone)]
pub struct Value {
    /// As text.
    pub label: String,
    /// As a finite number.
    pub number: Option<f64>,
    /// What it says of the scenario.
    effect: axis::Effect,
}

/// A point: one value on each axis.
#[derive(Debug)]
pub struct Point {
    /// Position of its value on each axis.
    pub at: Vec<u32>,
    /// Its scenario, but for the seed; or why there is none.
    pub scenario: Result<Scenario, ScenarioError>,
}

impl Sweep {
    /// The labels of a point.
    pub fn labels(&self, point: &Point) -> Vec<String> {
        self.axes.iter().zip(&point.at).map(|(axis, at)| axis.values[*at as usize].label.clone()).collect()
    }

    /// Number of cells: points times seeds.
    pub fn cells(&self) -> usize {
        self.points.len() * self.seeds.len()
    }
}
