//! The one place of the trace module that touches the file system.
//!
//! Owns opening and reading a path as a whole; what the bytes mean is `read`'s business.

use std::fs;
use std::path::Path;

use crate::trace::Trace;

use super::{ReadOptions, TraceError, read_bytes};

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
    let stored = fs::read(path).map_err(|cause| TraceError::Read { file: file.clone(), cause })?;
    read_bytes(&file, &stored, options)
}
