//! Reads `requests.jsonl` back, also one whose run was killed in the middle of a line.

use std::io::{self, BufRead, Read};

use serde::Deserialize;
use thiserror::Error;

use crate::base::{JsonFaultKind, from_json};
use crate::record::{RequestRecord, SCHEMA_VERSION};

/// Most bytes of a line, its end included. A record has a few thousand.
const MOST_LINE_BYTES: usize = 64 << 20;

/// A line that is no request record.
#[derive(Debug, Error)]
pub enum RecordError {
    /// The file could not be read on.
    #[error("line {line}: {source}")]
    Read {
        /// Line, from 1.
        line: u64,
        /// Why.
        source: io::Error,
    },
    /// The last line was cut off: the run was killed while writing it. All lines before it are whole.
    #[error(
        "line {line}: cut off after {bytes} bytes, as a killed run or a full disk leaves it; the request it began is not counted"
    )]
    CutOff {
        /// Line, from 1.
        line: u64,
        /// Bytes it has.
        bytes: usize,
    },
    /// Written by a newer pdreplay.
    #[error(
        "line {line}: schema_version {found} is newer than {SCHEMA_VERSION}; read it with the pdreplay that wrote it, or a newer one"
    )]
    Newer {
        /// Line, from 1.
        line: u64,
        /// Its version.
        found: u32,
    },
    /// Longer than any record.
    #[error("line {line}: longer than {} MiB; give a file of request records as pdreplay writes it", MOST_LINE_BYTES >> 20)]
    TooLong {
        /// Line, from 1.
        line: u64,
    },
    /// A time that lies before the request was sent.
    #[error("line {line}: {cause}; the file was changed after the run: take it from a copy, or run again")]
    Misplaced {
        /// Line, from 1.
        line: u64,
        /// Which.
        cause: String,
    },
    /// Not a record.
    #[error("line {line}: {cause}; every line must be one request record as pdreplay writes it")]
    Malformed {
        /// Line, from 1.
        line: u64,
        /// What the parser met, with field and column.
        cause: String,
    },
}

impl RecordError {
    /// The records read so far are no base for a summary. A cut-off last line is not fatal.
    pub fn is_fatal(&self) -> bool {
        match self {
            RecordError::CutOff { .. } => false,
            RecordError::Read { .. }
            | RecordError::Newer { .. }
            | RecordError::TooLong { .. }
            | RecordError::Misplaced { .. }
            | RecordError::Malformed { .. } => true,
        }
    }
}

/// Records of `requests.jsonl`, line by line; blank lines are passed over. Ends after its first error.
pub fn read_requests<R: BufRead>(reader: R) -> impl Iterator<Item = Result<RequestRecord, RecordError>> {
    Lines { reader, text: Vec::new(), line: 0, done: false }
}

struct Lines<R> {
    reader: R,
    text: Vec<u8>,
    line: u64,
    done: bool,
}

impl<R: BufRead> Iterator for Lines<R> {
    type Item = Result<RequestRecord, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.done {
            self.line += 1;
            self.text.clear();
            let mut bounded = (&mut self.reader).take(MOST_LINE_BYTES as u64 + 1);
            let found = match bounded.read_until(b'\n', &mut self.text) {
                Err(source) => Err(RecordError::Read { line: self.line, source }),
                Ok(0) => break,
                Ok(bytes) if bytes > MOST_LINE_BYTES => Err(RecordError::TooLong { line: self.line }),
                Ok(_) if self.text.trim_ascii().is_empty() => continue,
                Ok(_) => parse(&self.text, self.line),
            };
            self.done = found.is_err();
            return Some(found);
        }
        self.done = true;
        None
    }
}

/// The first of the times, by name, nanoseconds, that lies before the request was sent; in words.
pub(super) fn misplaced<'n>(
    sent_ns: Option<u64>,
    times: impl IntoIterator<Item = (&'n str, Option<u64>)>,
) -> Option<String> {
    let sent_ns = sent_ns?;
    let (name, time) = times.into_iter().find(|(_, time)| time.is_some_and(|time| time < sent_ns))?;
    Some(format!("{name} {} is before sent_ns {sent_ns}", time?))
}

#[derive(Deserialize)]
struct Version {
    schema_version: u32,
}

fn parse(text: &[u8], line: u64) -> Result<RequestRecord, RecordError> {
    let parsed = from_json::<RequestRecord>(text);
    let version = match &parsed {
        Ok(record) => Some(record.schema_version),
        Err(_) => serde_json::from_slice::<Version>(text).ok().map(|version| version.schema_version),
    };
    match (parsed, version) {
        (_, Some(found)) if found > SCHEMA_VERSION => Err(RecordError::Newer { line, found }),
        (Ok(record), _) => {
            let times = [("ended_ns", Some(record.ended_ns)), ("first_token_ns", record.first_token_ns)];
            let times = times.into_iter().chain([("last_token_ns", record.last_token_ns)]);
            match misplaced(record.sent_ns, times) {
                Some(cause) => Err(RecordError::Misplaced { line, cause }),
                None => Ok(record),
            }
        }
        (Err(fault), _) if fault.kind == JsonFaultKind::Eof && !text.ends_with(b"\n") => {
            Err(RecordError::CutOff { line, bytes: text.len() })
        }
        (Err(fault), _) => Err(RecordError::Malformed { line, cause: fault.in_line() }),
    }
}
