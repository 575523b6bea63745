//! Reads `requests.jsonl` back, also one whose run was killed in the middle of a line.

use std::io::{self, BufRead};

use serde::Deserialize;
use thiserror::Error;

use crate::record::{RequestRecord, SCHEMA_VERSION};

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
            RecordError::Read { .. } | RecordError::Newer { .. } | RecordError::Malformed { .. } => true,
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
            let found = match self.reader.read_until(b'\n', &mut self.text) {
                Err(source) => Err(RecordError::Read { line: self.line, source }),
                Ok(0) => break,
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

#[derive(Deserialize)]
struct Version {
    schema_version: u32,
}

fn parse(text: &[u8], line: u64) -> Result<RequestRecord, RecordError> {
    let parsed = serde_json::from_slice::<RequestRecord>(text);
    let version = match &parsed {
        Ok(record) => Some(record.schema_version),
        Err(_) => serde_json::from_slice::<Version>(text).ok().map(|version| version.schema_version),
    };
    match (parsed, version) {
        (_, Some(found)) if found > SCHEMA_VERSION => Err(RecordError::Newer { line, found }),
        (Ok(record), _) => Ok(record),
        (Err(error), _) if error.is_eof() && !text.ends_with(b"\n") => {
            Err(RecordError::CutOff { line, bytes: text.len() })
        }
        (Err(error), _) => Err(RecordError::Malformed { line, cause: error.to_string() }),
    }
}
