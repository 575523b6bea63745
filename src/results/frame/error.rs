//! [`FrameError`]: why a table of requests cannot be read; and the guard around a library that panics on hostile bytes.

use std::cell::Cell;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use thiserror::Error;

use super::columns::Kind;
use crate::record::SCHEMA_VERSION;

/// A table that cannot be read.
#[derive(Debug, Error)]
pub enum FrameError {
    /// The file cannot be read at all.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// It is no Parquet file, or its bytes are damaged.
    #[error("not a whole Parquet file: {0}")]
    Damaged(String),
    /// A time that lies before the request was sent.
    #[error("row {row}: {cause}; the file was changed after the run: take it from a copy, or run again")]
    Misplaced {
        /// Row, from 1.
        row: u64,
        /// Which.
        cause: String,
    },
    /// A field of the record has no column.
    #[error("it has no column `{0}`: it is of another version of pdreplay, or no table of requests")]
    Missing(&'static str),
    /// A column has another type.
    #[error("column `{name}` is not {wanted:?}: it is of another version of pdreplay, or of another tool")]
    OtherType {
        /// Its name.
        name: &'static str,
        /// What it should be.
        wanted: Kind,
    },
    /// Written in a way of Parquet that is not read.
    #[error("column `{name}` is written in a way that is not read: {what}")]
    Unread {
        /// Its name.
        name: &'static str,
        /// Page, encoding or compression.
        what: String,
    },
    /// A column holds what no record holds.
    #[error("column `{name}`, row {row}: {what}")]
    Value {
        /// Its name.
        name: &'static str,
        /// Row of the file, from 0.
        row: u64,
        /// What is wrong.
        what: String,
    },
    /// Written by a newer pdreplay.
    #[error("schema_version {0} is newer than {SCHEMA_VERSION}")]
    Newer(u32),
}

impl FrameError {
    pub(super) fn damaged(what: impl Into<String>) -> FrameError {
        FrameError::Damaged(what.into())
    }
}

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `read`, which may panic on damaged bytes, as the reader of footers in polars-parquet does on an offset that
/// overflows: the panic is an error, and nothing of it is printed.
pub(super) fn guarded<T>(read: impl FnOnce() -> Result<T, FrameError>) -> Result<T, FrameError> {
    static HUSH: Once = Once::new();
    HUSH.call_once(|| {
        let tell = panic::take_hook();
        panic::set_hook(Box::new(move |found| {
            if !GUARDED.get() {
                tell(found);
            }
        }));
    });
    let before = GUARDED.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(read));
    GUARDED.set(before);
    result.unwrap_or_else(|_| Err(FrameError::damaged("its footer makes no sense")))
}
