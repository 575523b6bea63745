//! Takes what a run produces: records to their files and into the summary, progress to the display, signals back.
//!
//! Invariant: the first write that fails ends the run, and everything handed over before it is on the disk.

use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::time::Instant;

use crate::cli::folder::{self, Part, RunFolder, jsonl::JsonLines};
use crate::cli::progress::Display;
use crate::cli::signals::Signals;
use crate::protocol::TokenRun;
use crate::record::{LedgerEvent, RequestRecord};
use crate::results::{Accumulator, FrameWriter};
use crate::sim::{Observer, Progress};

/// Observer of one run.
pub struct Recorder<'a> {
    requests: JsonLines,
    events: JsonLines,
    table: FrameWriter<File>,
    table_part: Part,
    accumulator: Accumulator,
    signals: &'a Signals,
    display: Option<Display<'a>>,
    failed: Option<io::Error>,
}

impl<'a> Recorder<'a> {
    /// Opens the files of `folder` for about `planned` requests.
    pub fn open(
        folder: &RunFolder,
        planned: u64,
        accumulator: Accumulator,
        signals: &'a Signals,
        display: Option<Display<'a>>,
    ) -> io::Result<Recorder<'a>> {
        let now = wall_now();
        let requests = JsonLines::create(folder.file(folder::REQUESTS), now)?;
        let events = JsonLines::create(folder.file(folder::EVENTS), now)?;
        let table_part = Part::create(folder.file(folder::REQUESTS_PARQUET))?;
        let table =
            FrameWriter::new(table_part.handle()?, planned as usize).map_err(|error| table_part.blame(error))?;
        Ok(Recorder { requests, events, table, table_part, accumulator, signals, display, failed: None })
    }

    /// The end of the run, good or bad: the files are complete as far as the records go.
    pub fn finish(self) -> io::Result<Accumulator> {
        if let Some(display) = self.display {
            display.end();
        }
        let finished = self.requests.finish().and(self.events.finish());
        self.failed.map_or(finished, Err)?;
        self.table.finish().map_err(|error| self.table_part.blame(error))?;
        self.table_part.publish()?;
        Ok(self.accumulator)
    }

    fn flush_if_due(&mut self, now: Instant) -> io::Result<()> {
        self.requests.flush_if_due(now)?;
        self.events.flush_if_due(now)
    }
}

impl Observer for Recorder<'_> {
    fn record(&mut self, record: &RequestRecord, tokens: &[TokenRun]) -> io::Result<()> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        self.requests.push(record)?;
        self.table.push(record).map_err(|error| self.table_part.blame(error))?;
        self.accumulator.push(record, tokens);
        Ok(())
    }

    fn ledger(&mut self, event: &LedgerEvent) -> io::Result<()> {
        self.events.push(event)
    }

    fn progress(&mut self, progress: &Progress) -> ControlFlow<()> {
        let now = wall_now();
        if let Err(error) = self.flush_if_due(now) {
            self.failed = Some(error);
            return ControlFlow::Break(());
        }
        if let Some(display) = &mut self.display {
            display.show(progress, now);
        }
        if self.signals.caught().is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// Wall clock of progress and flushing; no result depends on it.
#[expect(clippy::disallowed_methods, reason = "progress and flushing follow the wall clock; results never see it")]
pub fn wall_now() -> Instant {
    Instant::now()
}
