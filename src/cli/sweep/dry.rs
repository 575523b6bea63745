//! `sweep --dry-run`: the cells, and how long they will take, measured on the first of them.

use std::io;
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
    let mut text = sweep_cells(&report, &is_asked).render(dry.format, terminal.style);
    if dry.format == Format::Table {
        text += "\n";
        text += &match estimate {
            Some(Estimate { cells, threads, expected_s, basis }) => format!(
                "{} to run on {}: about {} ({basis})\n",
                plural(cells as u64, "cell"),
                plural(threads as u64, "thread"),
                seconds(expected_s * 1e3)
            ),
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
        let _ = sim::drive(&trace, setup, &mut Nobody);
        let one_s = began.elapsed().as_secs_f64();
        let threads = dry.threads.min(to_run.len());
        let basis = format!(
            "cell {} was simulated in {} on one thread; writing is not counted, and other cells may take longer or less",
            cell.number,
            seconds(one_s * 1e3)
        );
        let expected_s = one_s * to_run.len().div_ceil(threads) as f64;
        return Ok(Some(Estimate { cells: to_run.len(), threads, expected_s, basis }));
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
    Ok((!to_run.is_empty()).then_some(Estimate { cells: to_run.len(), threads: 1, expected_s, basis }))
}

/// Looks at nothing.
struct Nobody;

impl Observer for Nobody {
    fn record(&mut self, _: &RequestRecord, _: &[TokenRun]) -> io::Result<()> {
        Ok(())
    }

    fn ledger(&mut self, _: &LedgerEvent) -> io::Result<()> {
        Ok(())
    }

    fn progress(&mut self, _: &Progress) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}
