//! One growing file of JSON lines, written so that a killed run keeps what has ended.
//!
//! Lines are gathered and handed to the file whole, at least every half second of wall time, so a reader never sees
//! a half line unless the disk itself failed. Every error names the path.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;

/// Longest time a finished line stays in memory.
const FLUSH_EVERY: Duration = Duration::from_millis(500);

/// Bytes gathered before they are handed over.
const FLUSH_BYTES: usize = 256 * 1024;

/// An open file of JSON lines.
#[derive(Debug)]
pub struct JsonLines {
    path: PathBuf,
    file: File,
    gathered: Vec<u8>,
    flushed_at: Instant,
}

impl JsonLines {
    /// A new file at `path`; one that exists is an error.
    pub fn create(path: PathBuf, now: Instant) -> io::Result<JsonLines> {
        let file = File::create_new(&path).map_err(|error| at_path(&path, error))?;
        Ok(JsonLines { path, file, gathered: Vec::with_capacity(FLUSH_BYTES), flushed_at: now })
    }

    /// Appends one line.
    pub fn push(&mut self, value: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.gathered, value).map_err(|error| at_path(&self.path, error.into()))?;
        self.gathered.push(b'\n');
        if self.gathered.len() >= FLUSH_BYTES { self.flush() } else { Ok(()) }
    }

    /// Hands the gathered lines to the file when half a second has passed.
    pub fn flush_if_due(&mut self, now: Instant) -> io::Result<()> {
        if now.duration_since(self.flushed_at) < FLUSH_EVERY {
            return Ok(());
        }
        self.flushed_at = now;
        self.flush()
    }

    /// The end of the file: everything written and on the disk.
    pub fn finish(mut self) -> io::Result<()> {
        self.flush()?;
        self.file.sync_all().map_err(|error| at_path(&self.path, error))
    }

    fn flush(&mut self) -> io::Result<()> {
        // Cleared in either case: lines that could not be written must not be written twice.
        let written = self.file.write_all(&self.gathered);
        self.gathered.clear();
        written.map_err(|error| at_path(&self.path, error))
    }
}

/// `error` with the path it concerns.
pub fn at_path(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display()))
}
