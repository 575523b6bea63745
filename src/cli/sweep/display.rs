//! Progress of a sweep on stderr: a bar on a terminal, a plain line now and then elsewhere, nothing when quiet.

use std::time::Instant;

use indicatif::ProgressBar;

use crate::base::words::{plural, seconds};
use crate::cli::messages::Messages;
use crate::cli::progress::{LINE_EVERY, bar};
use crate::cli::recorder::wall_now;
use crate::cli::terminal::Terminal;
use crate::results::sweep::{CellState, SweepCell};

/// Cells under way that are named on the bar.
const NAMED: usize = 2;

/// What shows the progress of a sweep.
#[derive(Debug)]
pub struct SweepDisplay<'a> {
    messages: &'a Messages,
    bar: Option<ProgressBar>,
    began: Instant,
    shown_at: Instant,
    cells: u64,
    ended: u64,
    /// Folders of the cells under way.
    under_way: Vec<String>,
}

impl<'a> SweepDisplay<'a> {
    /// `cells` are to be run on so many threads.
    pub fn start(terminal: &'a Terminal, cells: u64, threads: usize) -> SweepDisplay<'a> {
        let messages = &terminal.messages;
        let draws = !messages.is_quiet() && terminal.stderr_draws && cells > 0;
        if cells > 0 && !draws {
            messages.progress(format!("{} to run on {}", plural(cells, "cell"), plural(threads as u64, "thread")));
        }
        messages.settle();
        let now = wall_now();
        let bar = draws.then(|| bar(cells));
        SweepDisplay { messages, bar, began: now, shown_at: now, cells, ended: 0, under_way: Vec::new() }
    }

    /// A cell begins.
    pub fn begin(&mut self, cell: &SweepCell) {
        self.under_way.push(cell.folder.clone());
    }

    /// A cell ended; one that broke is told at once.
    pub fn end(&mut self, cell: &SweepCell) {
        self.ended += u64::from(cell.state != CellState::Missing);
        self.under_way.retain(|folder| *folder != cell.folder);
        if let Some(error) = &cell.error {
            let text = format!("cell {} ({}) {}: {error}", cell.number, cell.words(), cell.state.as_str());
            match &self.bar {
                Some(bar) => bar.suspend(|| {
                    self.messages.warning(text);
                    self.messages.settle();
                }),
                None => self.messages.warning(text),
            }
        }
    }

    /// Shows how far the sweep is, when it is time to.
    pub fn show(&mut self) {
        let now = wall_now();
        match &self.bar {
            Some(bar) => {
                bar.set_position(self.ended);
                let named = self.under_way.iter().take(NAMED).filter_map(|folder| folder.rsplit('/').next());
                bar.set_message(format!("{} {}", self.left(now), named.collect::<Vec<_>>().join(" ")));
            }
            None if now.duration_since(self.shown_at) >= LINE_EVERY => {
                self.shown_at = now;
                let percent = 100 * self.ended / self.cells.max(1);
                self.messages.progress(format!(
                    "{} of {} cells ended ({percent} %){}",
                    self.ended,
                    self.cells,
                    self.left(now)
                ));
            }
            None => {}
        }
    }

    /// The end: the bar goes.
    pub fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }

    /// By the rate of the cells so far: `, about 40.0 s left`.
    fn left(&self, now: Instant) -> String {
        if self.ended == 0 {
            return String::new();
        }
        let per_cell_s = now.duration_since(self.began).as_secs_f64() / self.ended as f64;
        format!(", about {} left", seconds(per_cell_s * (self.cells - self.ended) as f64 * 1e3))
    }
}
