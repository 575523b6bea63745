//! [`SweepReport`]: everything a sweep found, as written to `sweep.json`; tables, Parquet and HTML are drawn from it.
//!
//! A sweep runs every **point** (one value on each axis) with every **seed**; one point with one seed is a **cell**, a run
//! with a folder of its own. A **group** is the cells of one point: its figures are means with 95 % intervals over the
//! seeds. Invariant: nothing here depends on the wall clock, the host or the order in which cells ended, so a sweep that was
//! killed and resumed gives the same bytes as one that was not.

mod cell;
mod group;
mod knee;
mod sheet;

use schemars::{JsonSchema, Schema, generate::SchemaSettings};
use serde::{Deserialize, Serialize};

use crate::base::words::plural;
pub use cell::{CellResult, CellState, SweepCell};
pub use group::SweepGroup;
pub use knee::{KNEE_FIGURES, Knee, KneePoint};

/// Version of `sweep.json`; grows when a key changes its meaning or goes away.
pub const SWEEP_VERSION: u32 = 1;

/// [`SweepInfo::target`] of a sweep that sends nothing anywhere.
pub const VIRTUAL_TIME: &str = "virtual time";

/// Kinds of a flush that are named.
const NAMED: usize = 4;

/// The whole sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SweepReport {
    /// `pdreplay`.
    pub tool: String,
    /// [`SWEEP_VERSION`].
    pub schema_version: u32,
    /// What was swept.
    pub sweep: SweepInfo,
    /// How far it came.
    pub counts: CellCounts,
    /// One row a point, in order of the cells.
    pub groups: Vec<SweepGroup>,
    /// Along each numeric axis, where figures stop improving; also those that do not.
    pub knees: Vec<Knee>,
    /// One row a run, in order of their numbers.
    pub cells: Vec<SweepCell>,
    /// What is wrong with the files it was read from, where it was read later.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// What a sweep was made of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SweepInfo {
    /// Its name.
    pub name: String,
    /// What it is for, in the words of its file; may be empty.
    pub description: String,
    /// Base scenario: its name, `default` for the built-in one.
    pub scenario: String,
    /// Short name of the trace; those of a sweep over generated traces are joined by commas.
    pub trace: String,
    /// What requests were sent to: `virtual time`, or the target of a live sweep.
    pub target: String,
    /// What was done before the cells of a live sweep that ran to their end, so that none finds the cache of the one before: as
    /// their runs tell it, whatever the command that wrote this was told. Null in virtual time, where each cell has a cluster
    /// of its own, and while none is done.
    pub between_cells: Option<String>,
    /// Version of pdreplay.
    pub version: String,
    /// The axes, in the order of the file. The seed is none of them.
    pub axes: Vec<SweepAxis>,
    /// Seeds each point runs with.
    pub seeds: Vec<u64>,
}

/// One axis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SweepAxis {
    /// Key as written in the file: a dotted scenario key such as `admission.cap_max`, or a short form such as `cap`.
    pub key: String,
    /// Title for people.
    pub label: String,
    /// Its values, in the order of the file.
    pub values: Vec<AxisValue>,
}

/// A value on an axis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AxisValue {
    /// As text, such as `4`, `kv-aware`, `2p6d` or `inf`.
    pub label: String,
    /// As a number, where it is a finite one.
    pub number: Option<f64>,
}

/// Cells by state; they add up to `planned`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct CellCounts {
    /// All cells of the sweep.
    pub planned: u32,
    /// Ran to their end.
    pub done: u32,
    /// Of these, without a headline: `withheld` or `invalid`.
    pub without_headline: u32,
    /// Broke while running.
    pub failed: u32,
    /// Never run: the scenario is refused.
    pub refused: u32,
    /// Not run yet.
    pub missing: u32,
}

impl SweepReport {
    /// Of `cells`, in order of their numbers.
    pub fn new(mut sweep: SweepInfo, cells: Vec<SweepCell>) -> SweepReport {
        sweep.between_cells = between_cells(&sweep.target, &cells);
        let groups = group::groups(&cells);
        let knees = knee::knees(&sweep.axes, &groups);
        SweepReport {
            tool: "pdreplay".into(),
            schema_version: SWEEP_VERSION,
            counts: CellCounts::of(&cells),
            sweep,
            groups,
            knees,
            cells,
            notes: Vec::new(),
        }
    }

    /// The group at these positions on the axes.
    pub fn group_at(&self, at: &[u32]) -> Option<&SweepGroup> {
        self.groups.iter().find(|group| group.at == at)
    }

    /// Objectives that goodput is judged by, in words; `None` where no cell has any.
    pub fn objectives(&self) -> Option<String> {
        let mut found: Vec<&str> = self.groups.iter().filter_map(|group| group.objectives.as_deref()).collect();
        found.sort_unstable();
        found.dedup();
        match found.as_slice() {
            [] => None,
            [one] => Some(format!("{one} (ms)")),
            many => Some(format!("those of each point (ms): {}", many.join(", or "))),
        }
    }

    /// JSON Schema of `sweep.json`.
    pub fn schema() -> Schema {
        SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<SweepReport>()
    }
}

impl SweepAxis {
    /// Whether its values are numbers, `inf` left aside: then figures can be drawn along it, and may have a knee.
    pub fn is_numeric(&self) -> bool {
        self.values.iter().any(|value| value.number.is_some())
            && self.values.iter().all(|value| value.number.is_some() || value.label == "inf")
    }
}

/// What was done before the cells that are done, by their own words.
fn between_cells(target: &str, cells: &[SweepCell]) -> Option<String> {
    let own = (target != VIRTUAL_TIME).then_some("a cluster of its own, started cold");
    let mut done = 0;
    let mut kinds: Vec<(&str, u64)> = Vec::new();
    for result in cells.iter().filter_map(|cell| cell.result.as_ref()) {
        let words = result.caches.as_deref().or(own)?;
        done += 1;
        match kinds.iter_mut().find(|(known, _)| *known == words) {
            Some((_, count)) => *count += 1,
            None => kinds.push((words, 1)),
        }
    }
    let more = kinds.len().saturating_sub(NAMED);
    let more = (more > 0).then(|| format!("{more} more (caches of each cell)"));
    let of = plural(done, "cell");
    let share = |(words, count): &(&str, u64)| {
        if *count == done { format!("before each cell: {words}") } else { format!("before {count} of {of}: {words}") }
    };
    let named: Vec<String> = kinds.iter().take(NAMED).map(share).chain(more).collect();
    (done > 0).then(|| format!("caches {}", named.join("; ")))
}

impl CellCounts {
    /// Counts `cells`.
    pub fn of<'a>(cells: impl IntoIterator<Item = &'a SweepCell>) -> CellCounts {
        let mut counts = CellCounts::default();
        for cell in cells {
            counts.planned += 1;
            match cell.state {
                CellState::Done => counts.done += 1,
                CellState::Failed => counts.failed += 1,
                CellState::Refused => counts.refused += 1,
                CellState::Missing => counts.missing += 1,
            }
            counts.without_headline += u32::from(cell.state == CellState::Done && !cell.shows_headline());
        }
        counts
    }
}

#[cfg(test)]
mod tests;
