//! One growing file of JSON lines, written so that a killed run keeps what has ended.
//!
//! Lines are gathered and handed to the file whole, at least every half second of wall time, so a reader never sees
//! a half line unless the disk itself failed; a run that panics hands over what it has. Every error names the path.

use std::error::Error;
use std::fmt::{self, Display};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::cli::folder::{Digested, LeftFile};

/// Longest time a finished line stays in memory.
const FLUSH_EVERY: Duration = Duration::from_millis(500);

/// Bytes gathered before they are handed over.
const FLUSH_BYTES: usize = 256 * 1024;

/// An open file of JSON lines.
#[derive(Debug)]
pub struct JsonLines {
    path: PathBuf,
    file: Digested<File>,
    gathered: Vec<u8>,
    flushed_at: Instant,
}

impl JsonLines {
    /// A new file at `path`; one that exists is an error.
    pub fn create(path: PathBuf, now: Instant) -> io::Result<JsonLines> {
        let file = File::create_new(&path).map_err(|error| at_path(&path, error))?;
        let file = Digested::new(file);
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
    pub fn finish(mut self) -> io::Result<LeftFile> {
        self.flush()?;
        self.file.out().sync_all().map_err(|error| at_path(&self.path, error))?;
        Ok(self.file.left())
    }

    /// Hands the gathered lines to the file.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        // Cleared in either case: lines that could not be written must not be written twice.
        let written = self.file.write_all(&self.gathered);
        self.gathered.clear();
        written.map_err(|error| at_path(&self.path, error))
    }
}

impl Drop for JsonLines {
    fn drop(&mut self) {
        // After `finish` there is nothing left; after a panic the lines so far are worth a try.
        let _ = self.flush();
    }
}

/// A write that failed, and where.
#[derive(Debug)]
struct WriteError {
    path: PathBuf,
    source: io::Error,
}

impl Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot write {}: {}", self.path.display(), self.source)
    }
}

impl Error for WriteError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.source)
    }
}

/// `error` with the path it concerns.
pub fn at_path(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), WriteError { path: path.to_path_buf(), source: error })
}

/// What to do about a file that could not be made or written.
pub fn way_out(error: &io::Error) -> &'static str {
    /// Too many open files, of the system and of the process: the same numbers on Linux and macOS.
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<WriteError>());
    match (error.kind(), inner.map_or(error, |inner| &inner.source).raw_os_error()) {
        (_, Some(ENFILE | EMFILE)) => "raise the limit on open files (`ulimit -n`), or run fewer --jobs at once",
        (ErrorKind::FileTooLarge, _) => "raise the limit on the size of a file (`ulimit -f`)",
        (ErrorKind::StorageFull | ErrorKind::QuotaExceeded, _) => "make room, or choose another --output-dir",
        (_, _) => "choose another --output-dir",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::recorder::wall_now;

    #[test]
    fn lines_gathered_before_a_panic_reach_the_file() {
        let path = std::env::temp_dir().join(format!("pdreplay-jsonl-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let mut lines = JsonLines::create(path.clone(), wall_now()).unwrap();
        lines.push(&7).unwrap();
        drop(lines);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "7\n");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn the_way_out_fits_the_cause() {
        let hint = |number: i32| way_out(&at_path(Path::new("x"), io::Error::from_raw_os_error(number)));
        // EMFILE, EFBIG, ENOSPC, EACCES on Linux and macOS.
        assert_eq!(
            [24, 27, 28, 13].map(|number| hint(number).split([' ', ',']).next().unwrap()),
            ["raise", "raise", "make", "choose"]
        );
    }
}
