//! `requests.parquet`: the records as a table, one column per field, written and read in row groups.
//!
//! The only folder that names polars, and of it only arrays and Parquet: data frames (polars-core) would triple the build.
//! [`FrameWriter`] writes a file, [`FrameReader`] reads chosen columns of it, a row group at a time, into a [`Batch`], which
//! also takes records. Invariant: memory is bounded by a row group and by the distinct names in the file.

mod batch;
mod columns;
mod decode;
mod error;
mod page;
mod read;
mod write;

pub use batch::{Batch, Cells, Labels, Texts};
pub use columns::{COLUMNS, Column, Kind};
pub use error::FrameError;
pub use read::{FrameReader, Group};
pub use write::{FrameWriter, Kind as SheetKind, Scalar, write_sheet};

/// Rows of a row group, and of a batch of records.
pub const GROUP_ROWS: usize = 16_384;
