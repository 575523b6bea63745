//! Takes what a run produces: records to their files and into the summary, progress to the display, signals back.
//!
//! Invariant: the first write that fails ends the run, and everything handed over before it is on the disk.

use std::fs::File;
use std::io::{self, BufWriter, IntoInnerError};
use std::ops::ControlFlow;
use std::time::Instant;

use crate::cli::folder::{self, Digested, LeftFiles, Part, RunFolder, jsonl::JsonLines};
use crate::cli::progress::Display;
use crate::cli::signals::Signals;
use crate::cli::stages::{Stage, Stopwatch};
use crate::protocol::TokenRun;
use crate::record::{LedgerEvent, LedgerKind, Outcome, RequestRecord};
use crate::replay::{Observer, Progress};
use crate::results::{Accumulator, FrameWriter};

/// Bytes of `requests.parquet` gathered before they are handed over: its writer hands out a page header at a time.
const TABLE_BUFFER: usize = 256 * 1024;

/// The files that grow with the run.
pub struct Files {
    requests: JsonLines,
    events: JsonLines,
    table: FrameWriter<BufWriter<Digested<File>>>,
    table_part: Part,
}

impl Files {
    /// Opens the files of `folder` for about `planned` requests.
    pub fn create(folder: &RunFolder, planned: u64) -> io::Result<Files> {
        let now = wall_now();
        let requests = JsonLines::create(folder.file(folder::REQUESTS), now)?;
        let events = JsonLines::create(folder.file(folder::EVENTS), now)?;
        let table_part = Part::create(folder.file(folder::REQUESTS_PARQUET))?;
        let out = BufWriter::with_capacity(TABLE_BUFFER, Digested::new(table_part.handle()?));
        let table = FrameWriter::new(out, planned as usize).map_err(|error| table_part.blame(error))?;
        Ok(Files { requests, events, table, table_part })
    }
}

/// Observer of one run.
pub struct Recorder<'a> {
    files: Files,
    accumulator: Accumulator,
    signals: &'a Signals,
    display: Option<Display<'a>>,
    watch: &'a mut Stopwatch,
    failed: Option<io::Error>,
}

impl<'a> Recorder<'a> {
    /// Into `files` and `accumulator`; `watch` is lapped between them.
    pub fn new(
        files: Files,
        accumulator: Accumulator,
        signals: &'a Signals,
        display: Option<Display<'a>>,
        watch: &'a mut Stopwatch,
    ) -> Recorder<'a> {
        Recorder { files, accumulator, signals, display, watch, failed: None }
    }

    /// The end of the run, good or bad: the files are complete as far as the records go, and told as they are then.
    pub fn finish(self) -> io::Result<(Accumulator, LeftFiles)> {
        let Recorder { files, accumulator, display, watch, failed, .. } = self;
        watch.lap(Stage::Simulate);
        if let Some(display) = display {
            display.end();
        }
        let (requests, events) = (files.requests.finish(), files.events.finish());
        watch.lap(Stage::Lines);
        failed.map_or(Ok(()), Err)?;
        let (requests, events) = (requests?, events?);
        let written = files.table.finish().and_then(|out| out.into_inner().map_err(IntoInnerError::into_error));
        let table = written.map_err(|error| files.table_part.blame(error))?.left();
        files.table_part.publish()?;
        watch.lap(Stage::Table);
        let left = [(folder::REQUESTS, requests), (folder::EVENTS, events), (folder::REQUESTS_PARQUET, table)];
        Ok((accumulator, left.map(|(name, left)| (name.to_owned(), left)).into()))
    }

    fn flush_if_due(&mut self, now: Instant) -> io::Result<()> {
        self.files.requests.flush_if_due(now)?;
        self.files.events.flush_if_due(now)
    }
}

impl Observer for Recorder<'_> {
    fn record(&mut self, record: &RequestRecord, tokens: &[TokenRun]) -> io::Result<()> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        if let Some(display) = self.display.as_mut().filter(|_| record.outcome == Outcome::Skipped) {
            display.skip();
        }
        self.watch.lap(Stage::Simulate);
        self.files.requests.push(record)?;
        self.watch.lap(Stage::Lines);
        self.files.table.push(record).map_err(|error| self.files.table_part.blame(error))?;
        self.watch.lap(Stage::Table);
        self.accumulator.push(record, tokens);
        self.watch.lap(Stage::Summarise);
        Ok(())
    }

    fn ledger(&mut self, event: &LedgerEvent) -> io::Result<()> {
        self.watch.lap(Stage::Simulate);
        if let (LedgerKind::IndexNotInStep, Some(display)) = (event.kind, &self.display) {
            let at_s = event.at_ns as f64 / 1e9;
            let what = event.detail.as_deref().unwrap_or_default();
            display.warn(&format!("KV index not in step after {at_s:.1} s of the run: {what}"));
        }
        self.files.events.push(event)?;
        self.watch.lap(Stage::Lines);
        Ok(())
    }

    fn idle(&mut self) -> io::Result<()> {
        self.watch.lap(Stage::Simulate);
        let flushed = self.files.requests.flush().and_then(|()| self.files.events.flush());
        self.watch.lap(Stage::Lines);
        flushed
    }

    fn progress(&mut self, progress: &Progress) -> ControlFlow<()> {
        let now = wall_now();
        if let Err(error) = self.flush_if_due(now) {
            self.failed = Some(error);
            return ControlFlow::Break(());
        }
        let is_signalled = self.signals.caught().is_some();
        if let Some(display) = &mut self.display {
            if is_signalled {
                display.stop(progress);
            }
            display.show(progress, now);
        }
        if is_signalled { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// Wall clock of progress and flushing; no result depends on it.
#[expect(clippy::disallowed_methods, reason = "progress and flushing follow the wall clock; results never see it")]
pub fn wall_now() -> Instant {
    Instant::now()
}
