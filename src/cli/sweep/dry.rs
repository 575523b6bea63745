//! `sweep --dry-run`: the cells, and how long they will take, measured on the first of them.

use std::io::{self, Write};
use std::ops::ControlFlow;

use serde::Serialize;

use crate::base::words::{plural, seconds};
use crate::cli::exit::{Exit, Failure};
use crate::cli::live::TargetArg;
use crate::cli::output::json;
use crate::cli::recorder::wall_now;
use crate::cli::stdout;
use crate::cli::sweep::plan::Plan;
use crate::cli::terminal::Terminal;
use crate::protocol::TokenRun;
use crate::record::{LedgerEvent, RequestRecord};
use crate::replay::{Observer, Progress};
use crate::results::render::{Format, sweep_cells};
use crate::results::sweep::{CellState, SweepCell, SweepInfo, SweepReport};
use crate::scenario::{Setup, preflight};
use crate::sim;

/// What would be run.
pub struct Dry<'a> {
    /// The cells.
    pub plan: &'a Plan,
    /// For the report.
    pub info: SweepInfo,
    /// On what.
    pub target: TargetArg,
    /// On how many threads.
    pub threads: usize,
    /// How it is printed.
    pub format: Format,
}

/// How long it will take.
#[derive(Debug, Serialize)]
struct Estimate {
    /// Cells to run.
    cells: usize,
    /// On so many threads.
    threads: usize,
    /// Wall time, seconds.
    expected_s: f64,
    /// How that is known.
    basis: String,
    /// Bytes that the lines of one cell take (`requests.jsonl` and `events.jsonl`), those of the first that can run; null of a
    /// live sweep.
    cell_line_bytes: Option<u64>,
}

impl Estimate {
    fn words(&self) -> String {
        let (cells, threads) = (plural(self.cells as u64, "cell"), plural(self.threads as u64, "thread"));
        let mut text = format!("{cells} to run on {threads}: {} ({})\n", about(self.expected_s), self.basis);
        if let Some(bytes) = self.cell_line_bytes {
            let all = megabytes(bytes * self.cells as u64);
            text += &format!(
                "on disk: about {} a cell, {all} in all; tables and summaries take a little more\n",
                megabytes(bytes)
            );
        }
        text
    }
}

/// An estimate, no finer than it is good for.
fn about(wall_s: f64) -> String {
    match wall_s {
        s if s < 1.0 => "less than a second".into(),
        s if s < 90.0 => format!("about {s:.0} s"),
        s if s < 5400.0 => format!("about {:.0} min", s / 60.0),
        s => format!("about {:.1} h", s / 3600.0),
    }
}

fn megabytes(bytes: u64) -> String {
    match bytes as f64 / 1e6 {
        mb if mb < 0.1 => "0.1 MB".into(),
        mb if mb < 10.0 => format!("{mb:.1} MB"),
        mb if mb < 1e3 => format!("{mb:.0} MB"),
        mb => format!("{:.1} GB", mb / 1e3),
    }
}

#[derive(Serialize)]
struct Whole<'a> {
    estimate: Option<Estimate>,
    #[serde(flatten)]
    report: &'a SweepReport,
}

/// Prints the cells of which `is_asked` are to run.
pub fn run(
    dry: &Dry,
    rows: Vec<SweepCell>,
    is_asked: impl Fn(&SweepCell) -> bool,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let to_run: Vec<SweepCell> =
        rows.iter().filter(|row| row.state == CellState::Missing && is_asked(row)).cloned().collect();
    let estimate = match dry.target {
        TargetArg::Virtual => measured(dry, &to_run)?,
        TargetArg::Live => planned(dry, &to_run)?,
    };
    let report = SweepReport::new(dry.info.clone(), rows);
    terminal.messages.settle();
    if dry.format == Format::Json {
        stdout::print(&json(&Whole { estimate, report: &report }))?;
        return Ok(Exit::Ok);
    }
    let mut text = sweep_cells(&report, "planned", &is_asked).render(dry.format, terminal.table_style());
    if dry.format == Format::Table {
        text += "\n";
        text += &match estimate {
            Some(estimate) => estimate.words(),
            None => "nothing to run\n".to_owned(),
        };
    }
    stdout::print(&text)?;
    Ok(Exit::Ok)
}

/// Simulates the first cell that can run, and takes the others to be like it.
fn measured(dry: &Dry, to_run: &[SweepCell]) -> Result<Option<Estimate>, Failure> {
    for cell in to_run {
        let Ok(scenario) = dry.plan.scenario(cell) else { continue };
        let trace = dry.plan.traces.of(&scenario)?;
        let Ok(setup) = Setup::new(&scenario, &trace, "") else { continue };
        let began = wall_now();
        // One that breaks takes its time, too.
        let mut lines = Lines::default();
        let _ = sim::drive(&trace, setup, &mut lines);
        let one_s = began.elapsed().as_secs_f64();
        let threads = dry.threads.min(to_run.len());
        let basis = format!(
            "cell {} was simulated in {} on one thread; writing is not counted in full, and other cells may take longer or less",
            cell.number,
            seconds(one_s * 1e3)
        );
        let expected_s = one_s * to_run.len().div_ceil(threads) as f64;
        return Ok(Some(Estimate {
            cells: to_run.len(),
            threads,
            expected_s,
            basis,
            cell_line_bytes: Some(lines.bytes),
        }));
    }
    Ok(None)
}

/// A live cell takes as long as its schedule, at least.
fn planned(dry: &Dry, to_run: &[SweepCell]) -> Result<Option<Estimate>, Failure> {
    let mut expected_s = 0.0;
    for cell in to_run {
        let Ok(scenario) = dry.plan.scenario(cell) else { continue };
        let trace = dry.plan.traces.of(&scenario)?;
        expected_s += preflight(&scenario, &trace).planned_s / scenario.live.emulation_speed;
    }
    let basis = "the schedules of the cells one after another; what waits or comes late is not counted".into();
    Ok((!to_run.is_empty()).then_some(Estimate {
        cells: to_run.len(),
        threads: 1,
        expected_s,
        basis,
        cell_line_bytes: None,
    }))
}

/// Measures the lines that a run would write.
#[derive(Default)]
struct Lines {
    bytes: u64,
}

impl Lines {
    fn push(&mut self, line: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut *self, line)?;
        // The line feed.
        self.bytes += 1;
        Ok(())
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Observer for Lines {
    fn record(&mut self, record: &RequestRecord, _: &[TokenRun]) -> io::Result<()> {
        self.push(record)
    }

    fn ledger(&mut self, event: &LedgerEvent) -> io::Result<()> {
        self.push(event)
    }

    fn progress(&mut self, _: &Progress) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}
