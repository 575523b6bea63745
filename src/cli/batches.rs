//! The records of a run on the disk, in batches of chosen columns: from `requests.parquet` when it is there whole, which takes
//! a tenth of the time, else from `requests.jsonl`.
//!
//! Row groups are decoded on a thread of their own, a few ahead. Invariant: both files give the same rows in the same order,
//! the one that is as the run left it is read, and a table that turns out damaged is said so and the lines are read in its
//! place.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use crate::cli::exit::Failure;
use crate::cli::folder;
use crate::cli::found::{FoundRun, unreadable};
use crate::cli::progress::ReadBar;
use crate::cli::terminal::Terminal;
use crate::record::RequestRecord;
use crate::results::{Batch, FrameError, FrameReader, GROUP_ROWS, Group, read_requests};

/// Bytes read from a file of lines at a time.
const READ_BYTES: usize = 256 * 1024;

/// Row groups decoded ahead.
const AHEAD: usize = 2;

/// First bytes of a Parquet file.
const MAGIC: [u8; 4] = *b"PAR1";

/// A table that may be read, and what is known of it.
struct Table {
    path: PathBuf,
    /// Rows it must have.
    rows: Option<u64>,
    /// The same records are in the file of lines, as far as its size tells.
    has_lines: bool,
}

/// Why a table was not read to its end.
enum Stop {
    Table(FrameError),
    Consumer(Failure),
}

impl FoundRun {
    /// Takes every record into what `start` gives, in the order of the file, some rows of the wanted `columns` (fields of
    /// [`RequestRecord`]) at a time; says on stderr what is wrong with the file. Memory does not grow with the records.
    ///
    /// # Errors
    /// When the file cannot be read, a line in it is no record, or `start` or `each` fails. `start` is called again when
    /// `requests.parquet` turns out damaged half way, and `requests.jsonl` is read from its begin.
    pub fn fold_batches<S>(
        &self,
        columns: &[&str],
        terminal: &Terminal,
        mut start: impl FnMut() -> Result<S, Failure>,
        mut each: impl FnMut(&mut S, &Batch) -> Result<(), Failure>,
    ) -> Result<S, Failure> {
        let Some(table) = self.table() else { return self.fold_lines(columns, terminal, start()?, each) };
        let not_used = |error: &dyn Display| {
            let (path, lines) = (table.path.display(), self.requests.display());
            format!("{path} is not used: {error}; {lines} is read in its place")
        };
        // Before anything is decoded: what a consumer has written need not be taken back.
        if let Some(change) = self.change_of(folder::REQUESTS_PARQUET) {
            if !table.has_lines {
                let failure = Failure::input(format!("{}: {change}", table.path.display()));
                return Err(
                    failure.hint(format!("move it away, and what there is of {} is read", self.requests.display()))
                );
            }
            self.tell_change_of(folder::REQUESTS_PARQUET, |change| not_used(&change), terminal);
            return self.fold_lines(columns, terminal, start()?, each);
        }
        match fold_table(&table, columns, terminal, start()?, &mut each) {
            Ok(state) => Ok(state),
            Err(Stop::Consumer(failure)) => Err(failure),
            Err(Stop::Table(error)) if table.has_lines => {
                self.say(not_used(&error), terminal);
                self.fold_lines(columns, terminal, start()?, each)
            }
            Err(Stop::Table(error)) => Err(Failure::input(format!("{}: {error}", table.path.display()))),
        }
    }

    /// The table of the run, when it has the size it was left with, whatever became of the lines.
    fn table(&self) -> Option<Table> {
        let Some(manifest) = &self.manifest else {
            return is_table(&self.requests).then(|| Table {
                path: self.requests.clone(),
                rows: None,
                has_lines: false,
            });
        };
        let facts = manifest.facts.as_ref()?;
        let rows = if facts.planned > 0 { facts.planned } else { manifest.info.requests };
        let path = self.folder.join(folder::REQUESTS_PARQUET);
        let is_usable = self.is_whole(folder::REQUESTS_PARQUET) && !self.lines_alone;
        is_usable.then_some(Table { path, rows: Some(rows), has_lines: self.is_whole(folder::REQUESTS) })
    }

    /// The file has the size that the run left it with. One of which the run tells nothing has none.
    fn is_whole(&self, name: &str) -> bool {
        let then = self.manifest.as_ref().and_then(|manifest| manifest.files.get(name));
        then.is_some_and(|then| fs::metadata(self.folder.join(name)).is_ok_and(|now| now.len() == then.bytes))
    }

    /// The table, when it is read: the run left it so.
    pub fn table_read(&self) -> Option<PathBuf> {
        self.table().filter(|_| self.change_of(folder::REQUESTS_PARQUET).is_none()).map(|table| table.path)
    }

    /// The file that is read in place of lines that were cut or exchanged.
    pub fn in_place_of_lines(&self) -> Option<PathBuf> {
        let is_exchanged = self.requests.is_file() && !self.is_whole(folder::REQUESTS);
        is_exchanged.then(|| self.table_read()).flatten()
    }

    fn fold_lines<S>(
        &self,
        columns: &[&str],
        terminal: &Terminal,
        mut state: S,
        mut each: impl FnMut(&mut S, &Batch) -> Result<(), Failure>,
    ) -> Result<S, Failure> {
        let mut batch = Batch::new(columns);
        let mut bar = ReadBar::new(terminal, self.manifest.as_ref().map(|manifest| manifest.info.requests));
        let mut failure = None;
        self.each_line(terminal, |record| {
            batch.push(&record);
            if batch.rows() == GROUP_ROWS {
                failure = each(&mut state, &batch).err();
                bar.show(batch.first_row() + batch.rows() as u64);
                batch.next();
            }
            if failure.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        if let Some(failure) = failure {
            return Err(failure);
        }
        if batch.rows() > 0 {
            each(&mut state, &batch)?;
        }
        Ok(state)
    }

    /// Gives the records of several files of lines to `each`, as if they were one file.
    pub fn each_batch_of(
        parts: &[&FoundRun],
        columns: &[&str],
        terminal: &Terminal,
        mut each: impl FnMut(&Batch),
    ) -> Result<(), Failure> {
        let mut batch = Batch::new(columns);
        for part in parts {
            part.each_line(terminal, |record| {
                batch.push(&record);
                if batch.rows() == GROUP_ROWS {
                    each(&batch);
                    batch.next();
                }
                ControlFlow::Continue(())
            })?;
        }
        if batch.rows() > 0 {
            each(&batch);
        }
        Ok(())
    }

    /// Gives every record of the lines to `each`, until it breaks; says on stderr when the last line was cut off.
    fn each_line(
        &self,
        terminal: &Terminal,
        mut each: impl FnMut(RequestRecord) -> ControlFlow<()>,
    ) -> Result<(), Failure> {
        let path = &self.requests;
        if let Some(change) = self.change_of(folder::REQUESTS) {
            self.say_doubt(format!("{}: {change}", path.display()), terminal);
        }
        let file = File::open(path).map_err(|error| unreadable(path, &error))?;
        for record in read_requests(BufReader::with_capacity(READ_BYTES, file)) {
            match record {
                Ok(record) => {
                    if each(record).is_break() {
                        break;
                    }
                }
                Err(error) if error.is_fatal() => return Err(Failure::input(format!("{}: {error}", path.display()))),
                Err(error) => self.say(format!("{}: {error}", path.display()), terminal),
            }
        }
        Ok(())
    }
}

fn fold_table<S>(
    table: &Table,
    columns: &[&str],
    terminal: &Terminal,
    mut state: S,
    each: &mut impl FnMut(&mut S, &Batch) -> Result<(), Failure>,
) -> Result<S, Stop> {
    let file = File::open(&table.path).map_err(|error| Stop::Table(error.into()))?;
    let reader = FrameReader::open(file, columns).map_err(Stop::Table)?;
    let rows = reader.rows();
    if let Some(wanted) = table.rows.filter(|wanted| *wanted != rows) {
        let text = format!("it has {rows} rows for {wanted} requests");
        return Err(Stop::Table(FrameError::Damaged(text)));
    }
    let mut batch = Batch::new(columns);
    let mut bar = ReadBar::new(terminal, Some(rows));
    thread::scope(|scope| {
        let (groups, decoded) = sync_channel(AHEAD);
        scope.spawn(move || decode(reader, &groups));
        for group in decoded {
            batch.adopt(group.map_err(Stop::Table)?);
            batch.check_times().map_err(Stop::Table)?;
            each(&mut state, &batch).map_err(Stop::Consumer)?;
            bar.show(batch.first_row() + batch.rows() as u64);
        }
        Ok(state)
    })
}

/// Decodes until the end, an error, or nobody listens any more.
fn decode(mut reader: FrameReader<File>, groups: &SyncSender<Result<Group, FrameError>>) {
    while let Some(group) = reader.next_group().transpose() {
        let is_last = group.is_err();
        if groups.send(group).is_err() || is_last {
            return;
        }
    }
}

fn is_table(path: &Path) -> bool {
    let mut magic = [0; 4];
    // Nothing is read from what is no file: it could not be read again.
    path.is_file() && File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && magic == MAGIC
}
