//! What can be wrong with a trace file, in words that name file, line, field, cause and remedy.

use std::fmt;
use std::io;

use crate::trace::AssembleError;

/// Why a trace was refused.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be read.
    #[error("{file}: cannot be read: {cause}; {}", remedy(.cause))]
    Read {
        /// Path as given.
        file: String,
        /// The system's words.
        cause: io::Error,
    },
    /// The path is a folder.
    #[error("{file}: is a directory; give the trace file inside it")]
    Directory {
        /// Path as given.
        file: String,
    },
    /// The compressed data are cut off or damaged.
    #[error("{file}: the {packing} data are cut off or damaged ({cause}); copy or compress the file again")]
    Unpack {
        /// Path as given.
        file: String,
        /// `gzip` or `zstd`.
        packing: &'static str,
        /// The decoder's words.
        cause: io::Error,
    },
    /// Another kind of file.
    #[error("{file}: looks like {kind}, which is not read; {remedy}")]
    NotJsonl {
        /// Path as given.
        file: String,
        /// What it looks like.
        kind: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// The header line is wrong.
    #[error("{file}:{line}: header: {cause}")]
    Header {
        /// Path as given.
        file: String,
        /// Physical line.
        line: u32,
        /// Cause and remedy.
        cause: String,
    },
    /// Nothing to replay.
    #[error("{file}: the trace has no rows; give it at least one request")]
    Empty {
        /// Path as given.
        file: String,
    },
    /// AIPerf rows that hold only what a turn adds.
    #[error(
        "{file}:{line}: incremental rows: session {session} has `delay`, a smaller `input_length` and `hash_ids` that do \
         not begin with the previous turn's first id, so its rows hold only what each turn adds; convert them so that every row holds the \
         whole prompt, and a `timestamp`"
    )]
    Incremental {
        /// Path as given.
        file: String,
        /// First such line.
        line: u32,
        /// Its session.
        session: String,
    },
    /// Rows are wrong.
    #[error("{0}")]
    Rows(RowErrors),
    /// Rows are right one by one, but do not make a trace.
    #[error("{file}: {cause}")]
    Assemble {
        /// Path as given.
        file: String,
        /// Why.
        cause: AssembleError,
    },
}

/// The bad rows of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowErrors {
    /// Path as given.
    pub file: String,
    /// Problems in all.
    pub total: u64,
    /// The first of them, by line.
    pub listed: Vec<RowError>,
    /// A remedy for all of them at once.
    pub advice: Option<String>,
}

/// One problem of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowError {
    /// Physical line, from 1.
    pub line: u32,
    /// Byte in the line, from 1, where the JSON breaks.
    pub column: Option<usize>,
    /// Field at fault.
    pub field: Option<String>,
    /// Cause and remedy.
    pub cause: String,
}

fn remedy(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::OutOfMemory => "it is larger than the memory: name a trace file, or slice it",
        _ => "check the path and its permissions",
    }
}

impl fmt::Display for RowErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let noun = if self.total == 1 { "problem" } else { "problems" };
        write!(f, "{}: {} {noun} in its rows", self.file, self.total)?;
        for row in &self.listed {
            write!(f, "\n  {}:{}", self.file, row.line)?;
            if let Some(column) = row.column {
                write!(f, ":{column}")?;
            }
            if let Some(field) = &row.field {
                write!(f, ": `{field}`")?;
            }
            write!(f, ": {}", row.cause)?;
        }
        let more = self.total - self.listed.len() as u64;
        if more > 0 {
            write!(f, "\n  and {more} more")?;
        }
        if let Some(advice) = &self.advice {
            write!(f, "\n  {advice}")?;
        }
        Ok(())
    }
}

impl RowError {
    /// A field that is wrong; `cause` carries the remedy.
    pub(super) fn field(line: u32, field: &str, cause: impl Into<String>) -> RowError {
        RowError { line, column: None, field: Some(field.to_owned()), cause: cause.into() }
    }
}

/// Gathers bad rows: all counted, the first ones kept.
#[derive(Debug)]
pub(super) struct Collector {
    file: String,
    limit: usize,
    total: u64,
    listed: Vec<RowError>,
}

impl Collector {
    pub(super) fn new(file: &str, limit: usize) -> Collector {
        Collector { file: file.to_owned(), limit: limit.max(1), total: 0, listed: Vec::new() }
    }

    pub(super) fn push(&mut self, error: RowError) {
        self.total += 1;
        if self.listed.len() < self.limit {
            self.listed.push(error);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// An error when anything was gathered.
    pub(super) fn finish(self, advice: Option<String>) -> Result<(), TraceError> {
        if self.total == 0 {
            return Ok(());
        }
        let mut listed = self.listed;
        listed.sort_by_key(|error| error.line);
        Err(TraceError::Rows(RowErrors { file: self.file, total: self.total, listed, advice }))
    }
}
