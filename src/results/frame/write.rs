//! [`FrameWriter`]: rows as Parquet, through polars: `requests.parquet`, one column per field of the record, and tables
//! whose columns are known only as they are written ([`write_sheet`]).
//!
//! Records go straight into column builders; full row groups are written as they fill, so memory stays bounded. One thread.
//! Labels are plain strings; what is null in a record is null here.

use std::io::{self, Write};
use std::sync::{Arc, OnceLock};

use polars_arrow::array::{Array, MutableArray, MutableBinaryViewArray, MutableBooleanArray, MutablePrimitiveArray};
use polars_arrow::datatypes::{ArrowSchema, Field};
use polars_parquet::write::{
    CompressionOptions, Compressor, DynIter, DynStreamingIterator, Encoding, FallibleStreamingIterator, FileWriter,
    StatisticsOptions, Version, WriteOptions, array_to_pages, to_nested, to_parquet_leaves,
};

use super::GROUP_ROWS;
use super::columns::with_fields;
use crate::record::{ExecutionMode, IndexSight, ModeReason, Outcome, RequestRecord};

// Snappy takes 1 ms for 4,449 requests and saves a third, and every reader knows it; zstd saves another third for 7 ms.

const OPTIONS: WriteOptions = WriteOptions {
    statistics: StatisticsOptions {
        min_value: true,
        max_value: true,
        distinct_count: false,
        null_count: true,
        binary_statistics_truncate_length: None,
    },
    version: Version::V1,
    compression: CompressionOptions::Snappy,
    data_page_size: None,
};

/// Writes rows as Parquet, request records unless told otherwise.
pub struct FrameWriter<W: Write, C = RecordColumns> {
    columns: C,
    rows: usize,
    writer: FileWriter<Watched<W>>,
    failure: Arc<OnceLock<io::ErrorKind>>,
}

/// The builders of a table's columns.
pub trait Columns {
    /// What a row is made from.
    type Row<'a>;
    /// Names and types.
    fn schema(&self) -> ArrowSchema;
    /// Adds a row.
    fn push(&mut self, row: Self::Row<'_>);
    /// Makes room for the rows of a group, in columns that have none yet.
    fn reserve(&mut self);
    /// The finished columns; empty ones without room take their place.
    fn take(&mut self) -> Vec<(Box<dyn Array>, Encoding)>;
}

/// Remembers why the disk refused, which polars turns into text: a full disk must stay recognisable.
struct Watched<W> {
    out: W,
    failure: Arc<OnceLock<io::ErrorKind>>,
}

impl<W: Write> FrameWriter<W> {
    /// Starts a file of request records; `expected_rows` is a hint.
    ///
    /// # Errors
    /// When the header cannot be written.
    pub fn new(out: W, expected_rows: usize) -> io::Result<Self> {
        FrameWriter::with_columns(out, RecordColumns::new(expected_rows.min(GROUP_ROWS)))
    }
}

impl<W: Write, C: Columns> FrameWriter<W, C> {
    fn with_columns(out: W, columns: C) -> io::Result<Self> {
        let failure = Arc::new(OnceLock::new());
        let watched = Watched { out, failure: failure.clone() };
        let writer = FileWriter::try_new(watched, columns.schema(), OPTIONS).map_err(io::Error::from)?;
        Ok(FrameWriter { columns, rows: 0, writer, failure })
    }

    /// Adds a row.
    ///
    /// # Errors
    /// When a full row group cannot be written.
    pub fn push(&mut self, row: C::Row<'_>) -> io::Result<()> {
        if self.rows == 0 {
            self.columns.reserve();
        }
        self.columns.push(row);
        self.rows += 1;
        if self.rows == GROUP_ROWS { self.flush() } else { Ok(()) }
    }

    /// Writes what is left and the footer; gives back what it wrote to.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        if self.rows > 0 {
            self.flush()?;
        }
        self.writer.end(None).map_err(|error| self.io_error(error.into()))?;
        Ok(self.writer.into_inner().out)
    }

    fn flush(&mut self) -> io::Result<()> {
        let columns = self.columns.take();
        let types = self.writer.parquet_schema().fields().to_vec();
        // A flat column is one leaf. Its own validity is written: going through the nested form would make polars clear
        // 8 MiB of zeroes for the first column without a value.
        let pages = columns.into_iter().zip(types).map(|((column, encoding), kind)| {
            let nested = to_nested(column.as_ref(), &kind)?;
            let leaf = to_parquet_leaves(kind).swap_remove(0);
            let pages = array_to_pages(column.as_ref(), leaf, &nested[0], OPTIONS, encoding)?;
            let pages =
                Compressor::new(DynIter::new(pages.map(|page| page.map_err(Into::into))), OPTIONS.compression, vec![]);
            Ok(DynStreamingIterator::new(pages.map_err(Into::into)))
        });
        let rows = std::mem::take(&mut self.rows) as u64;
        self.writer.write(rows, DynIter::new(pages)).map_err(|error| self.io_error(error.into()))
    }

    fn io_error(&self, error: io::Error) -> io::Error {
        match self.failure.get() {
            Some(kind) => io::Error::new(*kind, error.to_string()),
            None => error,
        }
    }
}

impl<W> Watched<W> {
    fn note<T>(&self, result: &io::Result<T>) {
        // An interrupted write is tried again by the caller.
        if let Some(kind) =
            result.as_ref().err().map(io::Error::kind).filter(|kind| *kind != io::ErrorKind::Interrupted)
        {
            self.failure.get_or_init(|| kind);
        }
    }
}

impl<W: Write> Write for Watched<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes);
        self.note(&written);
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.out.flush();
        self.note(&flushed);
        flushed
    }
}

/// A field's type, as a column.
trait Cell {
    type Builder: MutableArray;
    /// Dictionaries pay for what repeats; times and lengths hardly do.
    const ENCODING: Encoding;
    fn builder(capacity: usize) -> Self::Builder;
    fn put(&self, column: &mut Self::Builder);
}

macro_rules! number_cells {
    ($($field:ty => $stored:ty, $encoding:ident, $convert:expr;)+) => {
        $(impl Cell for $field {
            type Builder = MutablePrimitiveArray<$stored>;
            const ENCODING: Encoding = Encoding::$encoding;

            fn builder(capacity: usize) -> Self::Builder {
                MutablePrimitiveArray::with_capacity(capacity)
            }

            fn put(&self, column: &mut Self::Builder) {
                let convert: fn(&$field) -> Option<$stored> = $convert;
                column.push(convert(self));
            }
        })+
    };
}

macro_rules! text_cells {
    ($($field:ty => $convert:expr;)+) => {
        $(impl Cell for $field {
            type Builder = MutableBinaryViewArray<str>;
            const ENCODING: Encoding = Encoding::RleDictionary;

            fn builder(capacity: usize) -> Self::Builder {
                MutableBinaryViewArray::with_capacity(capacity)
            }

            fn put(&self, column: &mut Self::Builder) {
                let convert: fn(&$field) -> Option<&str> = $convert;
                column.push(convert(self));
            }
        })+
    };
}

number_cells! {
    u32 => u32, RleDictionary, |value| Some(*value);
    u64 => u64, Plain, |value| Some(*value);
    Option<u16> => u32, RleDictionary, |value| value.map(u32::from);
    Option<u32> => u32, RleDictionary, |value| *value;
    Option<u64> => u64, Plain, |value| *value;
    Option<f64> => f64, Plain, |value| *value;
}

text_cells! {
    String => |value| Some(value);
    Option<String> => |value| value.as_deref();
    ExecutionMode => |value| Some(value.as_str());
    ModeReason => |value| Some(value.as_str());
    Outcome => |value| Some(value.as_str());
    Option<IndexSight> => |value| value.map(IndexSight::as_str);
}

macro_rules! flag_cells {
    ($($field:ty => $convert:expr;)+) => {
        $(impl Cell for $field {
            type Builder = MutableBooleanArray;
            const ENCODING: Encoding = Encoding::Plain;

            fn builder(capacity: usize) -> Self::Builder {
                MutableBooleanArray::with_capacity(capacity)
            }

            fn put(&self, column: &mut Self::Builder) {
                let convert: fn(&$field) -> Option<bool> = $convert;
                column.push(convert(self));
            }
        })+
    };
}

flag_cells! {
    bool => |value| Some(*value);
    Option<bool> => |value| *value;
}

/// One builder per field.
macro_rules! columns {
    ($($field:ident: $kind:ty $(as $text:ident)?,)+) => {
        /// Builders of the columns of `requests.parquet`.
        pub struct RecordColumns {
            capacity: usize,
            $($field: <$kind as Cell>::Builder,)+
        }

        impl RecordColumns {
            fn new(capacity: usize) -> Self {
                RecordColumns { capacity, $($field: <$kind as Cell>::builder(0),)+ }
            }
        }

        impl Columns for RecordColumns {
            type Row<'a> = &'a RequestRecord;

            fn schema(&self) -> ArrowSchema {
                [$((stringify!($field), self.$field.dtype()),)+]
                    .into_iter()
                    .map(|(name, kind)| Field::new(name.into(), kind.clone(), true))
                    .collect()
            }

            fn push(&mut self, record: Self::Row<'_>) {
                let RequestRecord { $($field,)+ } = record;
                $($field.put(&mut self.$field);)+
            }

            fn reserve(&mut self) {
                $(self.$field = <$kind as Cell>::builder(self.capacity);)+
            }

            fn take(&mut self) -> Vec<(Box<dyn Array>, Encoding)> {
                vec![$((self.$field.as_box(), <$kind as Cell>::ENCODING),)+]
            }
        }
    };
}

with_fields!(columns);

/// Type of a column of a sheet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Words.
    Text,
    /// Whole numbers.
    Whole,
    /// Numbers.
    Number,
}

/// A value of a sheet; `None` is null. Its kind is that of its column.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scalar<'a> {
    /// Words.
    Text(Option<&'a str>),
    /// A whole number.
    Whole(Option<u64>),
    /// A number.
    Number(Option<f64>),
}

/// Writes a table of named columns.
///
/// # Errors
/// When it cannot be written.
pub fn write_sheet<'a>(
    out: impl Write,
    columns: &[(String, Kind)],
    rows: impl Iterator<Item = Vec<Scalar<'a>>>,
) -> io::Result<()> {
    let mut writer = FrameWriter::with_columns(out, SheetColumns::new(columns.to_vec()))?;
    for row in rows {
        writer.push(&row)?;
    }
    writer.finish().map(drop)
}

struct SheetColumns {
    names: Vec<(String, Kind)>,
    builders: Vec<SheetColumn>,
}

enum SheetColumn {
    Text(<Option<String> as Cell>::Builder),
    Whole(<Option<u64> as Cell>::Builder),
    Number(<Option<f64> as Cell>::Builder),
}

impl SheetColumns {
    fn new(names: Vec<(String, Kind)>) -> SheetColumns {
        let builder = |(_, kind): &(String, Kind)| match kind {
            Kind::Text => SheetColumn::Text(<Option<String> as Cell>::builder(0)),
            Kind::Whole => SheetColumn::Whole(<Option<u64> as Cell>::builder(0)),
            Kind::Number => SheetColumn::Number(<Option<f64> as Cell>::builder(0)),
        };
        let builders = names.iter().map(builder).collect();
        SheetColumns { names, builders }
    }
}

impl Columns for SheetColumns {
    type Row<'a> = &'a [Scalar<'a>];

    fn schema(&self) -> ArrowSchema {
        let dtype = |builder: &SheetColumn| match builder {
            SheetColumn::Text(builder) => builder.dtype().clone(),
            SheetColumn::Whole(builder) => builder.dtype().clone(),
            SheetColumn::Number(builder) => builder.dtype().clone(),
        };
        let field = |((name, _), builder): (&(String, Kind), &SheetColumn)| {
            Field::new(name.as_str().into(), dtype(builder), true)
        };
        self.names.iter().zip(&self.builders).map(field).collect()
    }

    fn push(&mut self, row: Self::Row<'_>) {
        assert_eq!(row.len(), self.builders.len(), "a row has another number of values than columns");
        for (builder, value) in self.builders.iter_mut().zip(row) {
            match (builder, value) {
                (SheetColumn::Text(builder), Scalar::Text(text)) => builder.push(*text),
                (SheetColumn::Whole(builder), Scalar::Whole(number)) => builder.push(*number),
                (SheetColumn::Number(builder), Scalar::Number(number)) => builder.push(*number),
                (SheetColumn::Text(_) | SheetColumn::Whole(_) | SheetColumn::Number(_), value) => {
                    unreachable!("{value:?} in a column of another kind")
                }
            }
        }
    }

    // A sheet has few rows.
    fn reserve(&mut self) {}

    fn take(&mut self) -> Vec<(Box<dyn Array>, Encoding)> {
        let full = std::mem::replace(self, SheetColumns::new(self.names.clone()));
        let finished = |builder: SheetColumn| match builder {
            SheetColumn::Text(mut builder) => (builder.as_box(), <Option<String> as Cell>::ENCODING),
            SheetColumn::Whole(mut builder) => (builder.as_box(), <Option<u64> as Cell>::ENCODING),
            SheetColumn::Number(mut builder) => (builder.as_box(), <Option<f64> as Cell>::ENCODING),
        };
        full.builders.into_iter().map(finished).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use polars_arrow::array::{BinaryViewArrayGeneric, BooleanArray, PrimitiveArray, StaticArray};
    use polars_arrow::types::NativeType;
    use polars_parquet::read::{BasicDecompressor, PageReader, column_iter_to_arrays, infer_schema, read_metadata};

    use super::*;

    fn record(turn: u32) -> RequestRecord {
        let text = format!(
            r#"{{"schema_version":1,"run_id":"r","session_id":"s","turn_id":{turn},"request_id":"s/{turn}","trace_line":0,
            "policy":"default","mechanism":"pd","execution_mode":"pd-router","mode_reason":"mechanism","route_mismatch":true,
            "placements":0,"scheduled_ns":18446744073709551615,"ended_ns":7,"ttft_ms":0.5,"input_tokens":1,
            "append_tokens":1,"output_tokens":1,"expected_output_tokens":1,"assumed_hit_tokens":0,"ideal_hit_tokens":0,
            "outcome":"error","error_message":"größer, \"so\"","http_status":503,"attempts":1,"retractions":0}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    /// Columns of every row group with their names, as a reader of the file finds them.
    fn written(rows: u32) -> Vec<(String, Box<dyn Array>)> {
        let mut out = Vec::new();
        let mut writer = FrameWriter::new(&mut out, 3).unwrap();
        (0..rows).for_each(|turn| writer.push(&record(turn)).unwrap());
        writer.finish().unwrap();
        let metadata = read_metadata(&mut Cursor::new(&out)).unwrap();
        assert_eq!(metadata.num_rows, rows as usize);
        let fields = infer_schema(&metadata).unwrap();
        let column = |(field, chunk): (&Field, &polars_parquet::read::ColumnChunkMetadata)| {
            let range = chunk.byte_range();
            let bytes = out[range.start as usize..range.end as usize].to_vec();
            let pages = PageReader::new(Cursor::new(bytes.into()), chunk, vec![], usize::MAX);
            let kind = &chunk.descriptor().descriptor.primitive_type;
            let pages = vec![BasicDecompressor::new(pages, vec![])];
            let (mut arrays, _) = column_iter_to_arrays(pages, vec![kind], field.clone(), None).unwrap();
            (field.name.to_string(), arrays.swap_remove(0))
        };
        let groups = metadata.row_groups.iter();
        groups.flat_map(|group| fields.iter_values().zip(group.parquet_columns())).map(column).collect()
    }

    fn number<T: NativeType>(column: &dyn Array, row: usize) -> Option<T> {
        column.as_any().downcast_ref::<PrimitiveArray<T>>().unwrap().get(row)
    }

    #[test]
    fn columns_are_the_fields_of_the_record_in_their_order() {
        let value = serde_json::to_string(&record(0)).unwrap();
        let names: Vec<String> = written(1).into_iter().map(|(name, _)| name).collect();
        let places: Vec<usize> = names.iter().map(|name| value.find(&format!("\"{name}\":")).unwrap()).collect();
        assert!(places.is_sorted(), "{names:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&value).unwrap().as_object().unwrap().len(), names.len());
    }

    #[test]
    fn values_and_nulls_come_back() {
        let columns = written(2);
        let column = |name: &str| columns.iter().find(|(found, _)| found == name).unwrap().1.as_ref();
        let text = |name: &str| {
            let texts = column(name).as_any().downcast_ref::<BinaryViewArrayGeneric<str>>().unwrap();
            texts.get(1).unwrap().to_owned()
        };
        assert_eq!(number::<u32>(column("turn_id"), 1), Some(1));
        assert_eq!(number::<u64>(column("scheduled_ns"), 1), Some(u64::MAX));
        assert_eq!(number::<f64>(column("ttft_ms"), 1), Some(0.5));
        assert_eq!(column("route_mismatch").as_any().downcast_ref::<BooleanArray>().unwrap().get(1), Some(true));
        assert_eq!(number::<u32>(column("http_status"), 1), Some(503));
        assert_eq!(text("outcome"), "error");
        assert_eq!(text("error_message"), "größer, \"so\"");
        for name in ["sent_ns", "e2e_ms", "cached_tokens", "prefill_worker"] {
            assert_eq!(column(name).null_count(), 2, "{name}");
        }
    }

    #[test]
    fn no_rows_and_several_row_groups_are_whole_files() {
        assert!(written(0).is_empty(), "no row group");
        let many = written(GROUP_ROWS as u32 + 1);
        let (name, last) = many.iter().rev().find(|(name, _)| name == "turn_id").unwrap();
        assert_eq!((name.as_str(), number::<u32>(last.as_ref(), 0)), ("turn_id", Some(GROUP_ROWS as u32)));
    }

    #[test]
    fn a_full_disk_is_an_io_error() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let end = FrameWriter::new(Full, 1).and_then(|mut writer| {
            writer.push(&record(0))?;
            writer.finish().map(drop)
        });
        assert_eq!(end.unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
