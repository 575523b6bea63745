//! Where the wall time of a replay goes, for `--timings`.
//!
//! One stopwatch runs from start to end: each lap gives the time since the one before to a stage, so the stages add up
//! to the whole. A run is one thread; on an idle core its wall time is its CPU time.

use std::time::{Duration, Instant};

use crate::cli::recorder::wall_now;
use crate::results::render::Table;

/// Part of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Scenario and trace: reading, unpacking, checking, prefix tree.
    Read,
    /// Preflight, claim of the folder, manifest.
    Prepare,
    /// The simulation alone, replayer and cluster; of a live run, the wait for the target.
    Simulate,
    /// `requests.jsonl` and `events.jsonl`.
    Lines,
    /// `requests.parquet`.
    Table,
    /// Statistics, tables, causes.
    Summarise,
    /// The other files.
    Write,
    /// What is printed.
    Print,
}

impl Stage {
    const ALL: [Stage; 8] = [
        Stage::Read,
        Stage::Prepare,
        Stage::Simulate,
        Stage::Lines,
        Stage::Table,
        Stage::Summarise,
        Stage::Write,
        Stage::Print,
    ];

    fn label(self, is_live: bool) -> &'static str {
        match self {
            Stage::Simulate if is_live => "real time, with the target",
            Stage::Read => "read scenario and trace",
            Stage::Prepare => "preflight, manifest",
            Stage::Simulate => "simulate",
            Stage::Lines => "requests.jsonl, events.jsonl",
            Stage::Table => "requests.parquet",
            Stage::Summarise => "summary",
            Stage::Write => "other files",
            Stage::Print => "print",
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Stopwatch {
    last: Instant,
    spent: [Duration; Stage::ALL.len()],
}

impl Stopwatch {
    /// Runs from now on.
    pub fn start() -> Stopwatch {
        Stopwatch { last: wall_now(), spent: [Duration::ZERO; Stage::ALL.len()] }
    }

    /// The time since the last lap belongs to `stage`.
    pub fn lap(&mut self, stage: Stage) {
        let now = wall_now();
        self.spent[stage as usize] += now.duration_since(self.last);
        self.last = now;
    }

    /// The stages in order, milliseconds of wall time, and their sum.
    pub fn table(&self, is_live: bool) -> Table {
        let row = |label: &str, spent: Duration| vec![label.to_owned(), format!("{:.1}", spent.as_secs_f64() * 1e3)];
        let stages = Stage::ALL.iter().map(|stage| row(stage.label(is_live), self.spent[*stage as usize]));
        let all = std::iter::once(row("all", self.spent.iter().sum()));
        Table::plain(&["stage", "wall ms"], stages.chain(all).collect())
    }
}
