//! Reads trace files: native JSONL and Mooncake FAST'25, plain, gzip or zstd.
//!
//! Three passes over bytes in memory: `line` turns each line into a raw row, then the file as a whole decides format,
//! clock and block size (`decide`), then `plan` hands the rows to the assembler. Nothing is decided per row, and every
//! decision that the file does not spell out becomes a notice.
//! Invariant: bad rows never reach the assembler; all of them are counted, the first ones listed with line and field.

mod blocks;
mod clock;
mod decide;
mod error;
mod file;
mod ids;
mod json;
mod line;
mod number;
mod plan;
mod unpack;

use std::io::{self, BufRead};
use std::str::FromStr;

use sha2::{Digest, Sha256};

use crate::trace::{Notice, Trace, TraceMeta};

pub use clock::TimeUnit;
pub(crate) use decide::{HEADER_FORMAT, HEADER_VERSION};
pub use error::{RowError, RowErrors, TraceError};
pub use file::read_path;

/// Layout of a trace file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Own JSONL: `session_id`, seconds, block size from the header or the ids.
    Native,
    /// Mooncake FAST'25 JSONL: milliseconds, blocks of 512, no sessions (each row is its own).
    Mooncake,
}

impl Format {
    /// Every format.
    pub const ALL: [Format; 2] = [Format::Native, Format::Mooncake];

    /// Stable label.
    pub fn as_str(self) -> &'static str {
        match self {
            Format::Native => "native",
            Format::Mooncake => "mooncake",
        }
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Format, String> {
        let found = Format::ALL.into_iter().find(|format| format.as_str() == text);
        found.ok_or_else(|| format!("`{text}` is not a trace format; write native or mooncake"))
    }
}

/// How to read a trace file. `None` leaves the decision to the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadOptions {
    /// Layout; found by whether the first rows have a `session_id`.
    pub format: Option<Format>,
    /// Unit of `timestamp`.
    pub timestamp_unit: Option<TimeUnit>,
    /// Tokens per block of `hash_ids`, at least 1.
    pub block_size: Option<u32>,
    /// Bad rows listed in the error; the rest is counted.
    pub max_errors: usize,
}

impl Default for ReadOptions {
    fn default() -> Self {
        ReadOptions { format: None, timestamp_unit: None, block_size: None, max_errors: 20 }
    }
}

/// Reads a trace from bytes as stored, compressed or not. `name` stands for the path in messages and in the result.
///
/// # Errors
/// Every problem of the bytes, with line and field.
pub fn read_bytes(name: &str, stored: &[u8], options: &ReadOptions) -> Result<Trace, TraceError> {
    let sha256 = hex(&Sha256::digest(stored));
    let mut notices = Vec::new();
    let unpacked = unpack::unpack(name, stored, &mut notices)?;
    let text = without_mark(unpacked.as_deref().unwrap_or(stored), &mut notices);
    unpack::check_looks(name, text)?;
    let mut lines = line::lines(name, text, options.max_errors)?;
    if options.block_size.is_none() {
        lines.drop_empty_ids();
    }
    let decided = decide::decide(name, &lines, options, &mut notices)?;
    let meta = TraceMeta {
        name: stem(name),
        source: name.to_owned(),
        sha256,
        format: decided.format.as_str().to_owned(),
        timestamp_unit: decided.unit.as_str().to_owned(),
        block_size: decided.block_size,
        block_size_source: decided.block_size_source.to_owned(),
        origin_ns: 0,
    };
    let mut trace = plan::assemble(name, lines, &decided, meta)?;
    notices.append(&mut trace.notices);
    trace.notices = notices;
    Ok(trace)
}

/// Reads a trace from a stream to its end, then as [`read_bytes`].
///
/// # Errors
/// Those of the stream and of [`read_bytes`].
pub fn read_from(name: &str, from: &mut impl BufRead, options: &ReadOptions) -> Result<Trace, TraceError> {
    let mut stored = Vec::new();
    from.read_to_end(&mut stored).map_err(|cause: io::Error| TraceError::Read { file: name.to_owned(), cause })?;
    read_bytes(name, &stored, options)
}

fn without_mark<'a>(text: &'a [u8], notices: &mut Vec<Notice>) -> &'a [u8] {
    let Some(rest) = text.strip_prefix(b"\xEF\xBB\xBF") else { return text };
    notices.push(Notice { code: "byte-order-mark", text: "a byte-order mark before the first row was skipped".into() });
    rest
}

/// File name without folder and without the endings of a trace file.
fn stem(name: &str) -> String {
    let file = name.rsplit(['/', '\\']).next().unwrap_or(name);
    let mut stem = file;
    for ending in [".gz", ".zst", ".jsonl", ".json"] {
        stem = stem.strip_suffix(ending).filter(|rest| !rest.is_empty()).unwrap_or(stem);
    }
    stem.to_owned()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
