//! Runs the cells of a sweep: one process, a pool of threads, each cell a run folder of its own.
//!
//! What a thread keeps of a run that ended is its row. Invariant: a cell that breaks is a row, and only what no other cell could
//! do better stops the sweep: a signal, and results that cannot be written.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use crate::cli::drive::{Job, drive};
use crate::cli::exit::Failure;
use crate::cli::live::{Ready, TargetArg};
use crate::cli::signals::Signals;
use crate::cli::stages::Stopwatch;
use crate::cli::sweep::display::SweepDisplay;
use crate::cli::sweep::folder::{SweepFolder, take_result};
use crate::cli::sweep::live::make_cold;
use crate::cli::sweep::plan::Plan;
use crate::cli::terminal::Terminal;
use crate::results::sweep::{CellState, SweepCell};
use crate::results::{Percentiles, RunState};
use crate::scenario::{Setup, preflight};

/// Longest wait for news of a cell before the display is looked at again.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What every cell needs.
#[derive(Debug, Clone, Copy)]
pub struct Runner<'a> {
    /// The sweep.
    pub plan: &'a Plan,
    /// Where it is written.
    pub folder: &'a SweepFolder,
    /// Where signals show.
    pub signals: &'a Signals,
    /// What requests are sent to.
    pub target: TargetArg,
    /// Empty the caches of servers before a live cell.
    pub flush: bool,
    /// Where a live cell says what it was sent to.
    pub terminal: &'a Terminal,
}

/// News of a thread.
enum News {
    Begun(usize),
    Ended(usize, Box<SweepCell>),
    Stopped(Failure),
}

impl Runner<'_> {
    /// Runs the cells of `rows` at the places `work`, on so many `threads`, and puts what they gave into `rows`. Gives why the
    /// sweep stopped early, when results could not be written.
    pub fn run(&self, rows: &mut [SweepCell], work: &[usize], threads: usize) -> Option<Failure> {
        let mut display = SweepDisplay::start(self.terminal, work.len() as u64, threads);
        let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let planned: Vec<(usize, SweepCell)> = work.iter().map(|ix| (*ix, rows[*ix].clone())).collect();
        let mut failure = None;
        thread::scope(|scope| {
            let (sender, news) = mpsc::channel();
            for _ in 0..threads.min(work.len()) {
                let (sender, next, stop, planned) = (sender.clone(), &next, &stop, &planned);
                scope.spawn(move || self.work(planned, next, stop, &sender));
            }
            drop(sender);
            loop {
                match news.recv_timeout(LOOK_EVERY) {
                    Ok(News::Begun(ix)) => display.begin(&rows[ix]),
                    Ok(News::Ended(ix, row)) => {
                        rows[ix] = *row;
                        display.end(&rows[ix]);
                    }
                    Ok(News::Stopped(first)) => {
                        failure.get_or_insert(first);
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break,
                }
                display.show();
            }
        });
        display.finish();
        failure
    }

    fn work(&self, planned: &[(usize, SweepCell)], next: &AtomicUsize, stop: &AtomicBool, news: &Sender<News>) {
        while self.signals.caught().is_none() && !stop.load(Ordering::Relaxed) {
            let Some((ix, cell)) = planned.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
            // The other end lives as long as this thread.
            let _ = news.send(News::Begun(*ix));
            let ended = match self.cell(cell.clone()) {
                Ok(row) => News::Ended(*ix, Box::new(row)),
                Err(failure) => {
                    stop.store(true, Ordering::Relaxed);
                    News::Stopped(failure)
                }
            };
            let _ = news.send(ended);
        }
    }

    /// Runs one cell and gives its row. Error: results cannot be written.
    fn cell(&self, mut cell: SweepCell) -> Result<SweepCell, Failure> {
        match self.drive(&cell) {
            Ok(RunState::Interrupted) => {}
            Ok(RunState::Completed | RunState::Stopped | RunState::Unfinished) => {
                if !take_result(self.folder.path(), &mut cell) {
                    fail(&mut cell, CellState::Failed, "its summary.json cannot be read back".into());
                }
            }
            Err(Broken::Run(failure)) if failure.is_write => return Err(failure),
            Err(Broken::Run(failure)) => fail(&mut cell, CellState::Failed, failure.to_string()),
            Err(Broken::Input(error)) => fail(&mut cell, CellState::Refused, error),
        }
        Ok(cell)
    }

    fn drive(&self, cell: &SweepCell) -> Result<RunState, Broken> {
        let scenario = self.plan.scenario(cell).map_err(Broken::Input)?;
        let trace = self.plan.traces.of(&scenario).map_err(|failure| Broken::Input(failure.to_string()))?;
        let run_id = cell.run_id.as_deref().unwrap_or_default();
        let setup = Setup::new(&scenario, &trace, run_id).map_err(|error| Broken::Input(error.to_string()))?;
        let preflight = preflight(&scenario, &trace);
        let ready = match self.target {
            TargetArg::Virtual => None,
            TargetArg::Live => {
                let caches = make_cold(cell, &scenario, self.flush, self.terminal).map_err(Broken::Run)?;
                let peak_live = preflight.peak_live_sessions;
                let made = Ready::make_unless(self.signals, &scenario, &trace, &setup, peak_live);
                let Some(mut ready) = made.map_err(Broken::Run)? else { return Ok(RunState::Interrupted) };
                ready.caches = caches;
                ready.tell(&scenario, self.terminal);
                Some(ready)
            }
        };
        let folder = self.folder.begin(cell).map_err(Broken::Run)?;
        let job = Job {
            trace,
            scenario: &scenario,
            setup: &setup,
            preflight: &preflight,
            percentiles: &Percentiles::default(),
            signals: self.signals,
            display: None,
            target: self.target,
        };
        let finished = drive(job, ready, &folder, &mut Stopwatch::start()).map_err(Broken::Run)?;
        Ok(finished.summary.run.state)
    }
}

/// Why a cell has no result.
enum Broken {
    /// It was never run.
    Input(String),
    /// It broke on its way.
    Run(Failure),
}

fn fail(cell: &mut SweepCell, state: CellState, error: String) {
    cell.state = state;
    cell.error = Some(error);
}
