//! [`FrameReader`]: reads chosen columns of a `requests.parquet`, a row group at a time.
//!
//! Invariant: what it gives are values of records: the columns have the types of their fields, nothing but what may be null is,
//! labels of closed sets are known, and the version is. Whatever else the file holds is an error, never a panic, and no length
//! in it is believed.

use std::io::{Read, Seek, SeekFrom};

use polars_parquet::parquet::read::read_metadata;
use polars_parquet::parquet::schema::types::{IntegerType, PrimitiveType};
use polars_parquet::read::RowGroupMetadata;
use polars_parquet::read::{ColumnChunkMetadata, PhysicalType, PrimitiveConvertedType, PrimitiveLogicalType};

use super::batch::Data;
use super::columns::{COLUMNS, Column, Kind};
use super::decode;
use super::error::{FrameError, guarded};
use super::page::Pages;
use crate::record::SCHEMA_VERSION;

/// Most rows of a row group: ours have 16,384, other writers' up to a million.
const MOST_GROUP_ROWS: usize = 1 << 20;

/// Reads a table.
#[derive(Debug)]
pub struct FrameReader<R> {
    file: R,
    groups: std::vec::IntoIter<RowGroupMetadata>,
    /// By place in [`COLUMNS`].
    wanted: Vec<bool>,
    rows: u64,
    rows_read: u64,
    file_bytes: u64,
    chunk: Vec<u8>,
    buffer: Vec<u8>,
}

/// The chosen columns of a row group; a [`Batch`](super::Batch) adopts it.
#[derive(Debug)]
pub struct Group {
    pub(super) rows: usize,
    /// By place in [`COLUMNS`].
    pub(super) columns: Vec<Option<Data>>,
}

impl<R: Read + Seek> FrameReader<R> {
    /// Of the columns with these names (fields of a record).
    ///
    /// # Errors
    /// When the file is no Parquet file, or its columns are not those of records.
    pub fn open(mut file: R, columns: &[&str]) -> Result<FrameReader<R>, FrameError> {
        let file_bytes = file.seek(SeekFrom::End(0))?;
        let metadata = guarded(|| read_metadata(&mut file).map_err(|error| FrameError::damaged(error.to_string())))?;
        // The version is always looked at.
        let wanted = COLUMNS.iter().enumerate().map(|(at, column)| at == 0 || columns.contains(&column.name)).collect();
        let rows = metadata.row_groups.iter().map(|group| group.num_rows() as u64).fold(0, u64::saturating_add);
        Ok(FrameReader {
            file,
            groups: metadata.row_groups.into_iter(),
            wanted,
            rows,
            rows_read: 0,
            file_bytes,
            chunk: Vec::new(),
            buffer: Vec::new(),
        })
    }

    /// Rows of the file.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The next row group; `None` at the end.
    ///
    /// # Errors
    /// When it cannot be read, or holds what no record holds. Nothing follows then.
    pub fn next_group(&mut self) -> Result<Option<Group>, FrameError> {
        let Some(group) = self.groups.next() else { return Ok(None) };
        let rows = group.num_rows();
        if rows > MOST_GROUP_ROWS {
            return Err(FrameError::damaged(format!("a row group of {rows} rows; at most {MOST_GROUP_ROWS} are read")));
        }
        let mut columns = Vec::with_capacity(COLUMNS.len());
        for (at, column) in COLUMNS.iter().enumerate() {
            columns.push(if self.wanted[at] { Some(self.column(column, &group)?) } else { None });
        }
        self.rows_read += rows as u64;
        Ok(Some(Group { rows, columns }))
    }

    fn column(&mut self, column: &Column, group: &RowGroupMetadata) -> Result<Data, FrameError> {
        let mut found = group.columns_under_root_iter(column.name).ok_or(FrameError::Missing(column.name))?;
        let other_type = FrameError::OtherType { name: column.name, wanted: column.kind };
        let (Some(chunk), None) = (found.next(), found.next()) else { return Err(other_type) };
        let descriptor = &chunk.descriptor().descriptor;
        if !is_of(&descriptor.primitive_type, column.kind)
            || descriptor.max_rep_level > 0
            || descriptor.max_def_level > 1
        {
            return Err(other_type);
        }
        self.read_chunk(chunk)?;
        let mut pages = Pages::new(&self.chunk, chunk.compression(), std::mem::take(&mut self.buffer));
        let data = decode::column(column, &mut pages, group.num_rows(), descriptor.max_def_level == 1);
        self.buffer = pages.into_buffer();
        let data = data?;
        self.check(column, &data)?;
        Ok(data)
    }

    fn read_chunk(&mut self, chunk: &ColumnChunkMetadata) -> Result<(), FrameError> {
        let range = guarded(|| Ok(chunk.byte_range()))?;
        let bytes = range.end - range.start;
        if range.end > self.file_bytes {
            return Err(FrameError::damaged("a column lies behind its end"));
        }
        self.file.seek(SeekFrom::Start(range.start))?;
        self.chunk.clear();
        self.file.by_ref().take(bytes).read_to_end(&mut self.chunk)?;
        Ok(())
    }

    /// What the types do not say of values.
    fn check(&self, column: &Column, data: &Data) -> Result<(), FrameError> {
        let wrong =
            |row: usize, what: String| FrameError::Value { name: column.name, row: self.rows_read + row as u64, what };
        if let (false, Some(row)) = (column.is_nullable, data.first_null()) {
            return Err(wrong(row, "null, where a record has a value".into()));
        }
        match (data, column.words) {
            (Data::Words(words), Some(is_known)) => match words.list.iter().position(|word| !is_known(word)) {
                Some(code) => {
                    let row = words.codes.iter().position(|found| *found == code as u32).unwrap_or(0);
                    Err(wrong(row, format!("`{}` is no {}", words.list.get(code as u32), column.name)))
                }
                None => Ok(()),
            },
            (Data::U32(versions), _) if column.name == "schema_version" => {
                let newer = versions.values.iter().find(|version| **version > SCHEMA_VERSION);
                newer.map_or(Ok(()), |version| Err(FrameError::Newer(*version)))
            }
            (Data::U32(numbers), _) if column.name == "http_status" => {
                match numbers.values.iter().position(|status| *status > u32::from(u16::MAX)) {
                    Some(row) => Err(wrong(row, format!("{} is no HTTP status", numbers.values[row]))),
                    None => Ok(()),
                }
            }
            (_, _) => Ok(()),
        }
    }
}

/// Whether values of this type are stored as those of the kind.
fn is_of(found: &PrimitiveType, kind: Kind) -> bool {
    let logical = found.logical_type;
    let converted = found.converted_type;
    let is_unsigned = |bits: IntegerType, older: PrimitiveConvertedType| {
        logical == Some(PrimitiveLogicalType::Integer(bits)) || converted == Some(older)
    };
    match (kind, found.physical_type) {
        (Kind::U32, PhysicalType::Int32) => is_unsigned(IntegerType::UInt32, PrimitiveConvertedType::Uint32),
        (Kind::U64, PhysicalType::Int64) => is_unsigned(IntegerType::UInt64, PrimitiveConvertedType::Uint64),
        (Kind::F64, PhysicalType::Double) | (Kind::Bool, PhysicalType::Boolean) => true,
        (Kind::Label | Kind::Text, PhysicalType::ByteArray) => {
            logical == Some(PrimitiveLogicalType::String) || converted == Some(PrimitiveConvertedType::Utf8)
        }
        (Kind::U32 | Kind::U64 | Kind::F64 | Kind::Bool | Kind::Label | Kind::Text, _) => false,
    }
}
