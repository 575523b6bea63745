//! The one place of the trace module that touches the file system.
//!
//! Owns opening and reading a path as a whole; what the bytes mean is `read`'s business.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::trace::Trace;

use super::{ReadOptions, TraceError, read_bytes, unpack, without_mark};

/// Bytes looked at before the rest is read: a device may have no end.
const START: u64 = 1 << 16;

/// Reads the trace file at `path`.
///
/// # Errors
/// Directories, unreadable files, and everything of [`read_bytes`].
pub fn read_path(path: &Path, options: &ReadOptions) -> Result<Trace, TraceError> {
    let file = path.display().to_string();
    // A folder opens but does not read; said plainly it saves a puzzle.
    if path.is_dir() {
        return Err(TraceError::Directory { file });
    }
    let failed = |cause: io::Error| TraceError::Read { file: file.clone(), cause };
    let mut from = File::open(path).map_err(failed)?;
    let mut stored = Vec::new();
    let start = from.by_ref().take(START).read_to_end(&mut stored).map_err(failed)? as u64;
    let blank = stored.iter().all(u8::is_ascii_whitespace);
    if start == START && !blank && !unpack::is_packed(&stored) {
        unpack::check_looks(&file, without_mark(&stored, &mut Vec::new()))?;
    }
    let size = from.metadata().map_or(0, |about| about.len());
    let left = usize::try_from(size.saturating_sub(start)).unwrap_or(usize::MAX);
    stored.try_reserve_exact(left).map_err(|_| failed(io::ErrorKind::OutOfMemory.into()))?;
    from.read_to_end(&mut stored).map_err(failed)?;
    read_bytes(&file, &stored, options)
}
