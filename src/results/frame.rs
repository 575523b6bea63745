//! [`FrameWriter`]: `requests.parquet`, one column per field of the record, through polars.
//!
//! The only file that names polars. Records go straight into column builders; full row groups are written as they fill, so
//! memory stays bounded. Everything runs on the calling thread. Labels are plain strings; what is null in a record is null here.

use std::io::{self, Write};
use std::sync::{Arc, OnceLock};

use polars_core::prelude::{
    BooleanChunkedBuilder, ChunkedBuilder, Column, DataFrame, Float64Type, IntoColumn, PlSmallStr, PolarsError,
    PolarsNumericType, PrimitiveChunkedBuilder, StringChunkedBuilder, UInt32Type, UInt64Type,
};
use polars_io::parquet::write::{BatchedWriter, ParquetCompression, ParquetWriter};

use crate::record::{ExecutionMode, ModeReason, Outcome, RequestRecord};

// Snappy: 1 ms dearer than no compression for 4,449 requests and a third smaller, as LZ4 is; every Parquet reader knows it.
// zstd saves another third for 7 ms.

/// Rows of a row group.
const GROUP_ROWS: usize = 65_536;

/// Writes request records as Parquet.
pub struct FrameWriter<W: Write> {
    columns: Columns,
    rows: usize,
    writer: BatchedWriter<Watched<W>>,
    failure: Arc<OnceLock<io::ErrorKind>>,
}

/// Remembers why the disk refused, which polars turns into text: a full disk must stay recognisable.
struct Watched<W> {
    out: W,
    failure: Arc<OnceLock<io::ErrorKind>>,
}

impl<W: Write> FrameWriter<W> {
    /// Starts a file; `expected_rows` is a hint.
    ///
    /// # Errors
    /// When the header cannot be written.
    pub fn new(out: W, expected_rows: usize) -> io::Result<Self> {
        let columns = Columns::new(expected_rows.min(GROUP_ROWS));
        let schema = frame(0, Columns::new(0).take())?.schema().as_ref().clone();
        let failure = Arc::new(OnceLock::new());
        let writer = ParquetWriter::new(Watched { out, failure: failure.clone() })
            .with_compression(ParquetCompression::Snappy)
            .set_parallel(false)
            .batched(&schema)
            .map_err(io::Error::from)?;
        Ok(FrameWriter { columns, rows: 0, writer, failure })
    }

    /// Adds a record.
    ///
    /// # Errors
    /// When a full row group cannot be written.
    pub fn push(&mut self, record: &RequestRecord) -> io::Result<()> {
        self.columns.push(record);
        self.rows += 1;
        if self.rows == GROUP_ROWS { self.flush() } else { Ok(()) }
    }

    /// Writes what is left and the footer; gives the size of the file in bytes.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(mut self) -> io::Result<u64> {
        if self.rows > 0 {
            self.flush()?;
        }
        self.writer.finish().map_err(|error| self.io_error(error))
    }

    fn flush(&mut self) -> io::Result<()> {
        let group = frame(self.rows, self.columns.take())?;
        self.rows = 0;
        self.writer.write_batch(&group).map_err(|error| self.io_error(error))
    }

    fn io_error(&self, error: PolarsError) -> io::Error {
        match self.failure.get() {
            Some(kind) => io::Error::new(*kind, error.to_string()),
            None => io::Error::other(error),
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

fn frame(rows: usize, columns: Vec<Column>) -> io::Result<DataFrame> {
    DataFrame::new(rows, columns).map_err(io::Error::from)
}

/// A field's type, as a column.
trait Cell {
    type Builder;
    fn builder(name: &str, capacity: usize) -> Self::Builder;
    fn put(&self, column: &mut Self::Builder);
    fn column(builder: Self::Builder) -> Column;
}

macro_rules! number_cells {
    ($($field:ty => $stored:ty, $convert:expr;)+) => {
        $(impl Cell for $field {
            type Builder = PrimitiveChunkedBuilder<$stored>;

            fn builder(name: &str, capacity: usize) -> Self::Builder {
                PrimitiveChunkedBuilder::new(PlSmallStr::from_str(name), capacity)
            }

            fn put(&self, column: &mut Self::Builder) {
                let convert: fn(&$field) -> Option<<$stored as PolarsNumericType>::Native> = $convert;
                column.append_option(convert(self));
            }

            fn column(builder: Self::Builder) -> Column {
                builder.finish().into_column()
            }
        })+
    };
}

macro_rules! text_cells {
    ($($field:ty => $convert:expr;)+) => {
        $(impl Cell for $field {
            type Builder = StringChunkedBuilder;

            fn builder(name: &str, capacity: usize) -> Self::Builder {
                StringChunkedBuilder::new(PlSmallStr::from_str(name), capacity)
            }

            fn put(&self, column: &mut Self::Builder) {
                let convert: fn(&$field) -> Option<&str> = $convert;
                column.append_option(convert(self));
            }

            fn column(builder: Self::Builder) -> Column {
                builder.finish().into_column()
            }
        })+
    };
}

number_cells! {
    u32 => UInt32Type, |value| Some(*value);
    u64 => UInt64Type, |value| Some(*value);
    Option<u16> => UInt32Type, |value| value.map(u32::from);
    Option<u32> => UInt32Type, |value| *value;
    Option<u64> => UInt64Type, |value| *value;
    Option<f64> => Float64Type, |value| *value;
}

text_cells! {
    String => |value| Some(value);
    Option<String> => |value| value.as_deref();
    ExecutionMode => |value| Some(value.as_str());
    ModeReason => |value| Some(value.as_str());
    Outcome => |value| Some(value.as_str());
}

impl Cell for bool {
    type Builder = BooleanChunkedBuilder;

    fn builder(name: &str, capacity: usize) -> Self::Builder {
        BooleanChunkedBuilder::new(PlSmallStr::from_str(name), capacity)
    }

    fn put(&self, column: &mut Self::Builder) {
        column.append_value(*self);
    }

    fn column(builder: Self::Builder) -> Column {
        builder.finish().into_column()
    }
}

/// One builder per field; taking a record apart without `..` makes a forgotten field a compile error.
macro_rules! columns {
    ($($field:ident: $kind:ty,)+) => {
        struct Columns {
            capacity: usize,
            $($field: <$kind as Cell>::Builder,)+
        }

        impl Columns {
            fn new(capacity: usize) -> Self {
                Columns { capacity, $($field: <$kind as Cell>::builder(stringify!($field), capacity),)+ }
            }

            fn push(&mut self, record: &RequestRecord) {
                let RequestRecord { $($field,)+ } = record;
                $($field.put(&mut self.$field);)+
            }

            /// The finished columns; new ones of the same capacity take their place.
            fn take(&mut self) -> Vec<Column> {
                let full = std::mem::replace(self, Columns::new(self.capacity));
                vec![$(<$kind as Cell>::column(full.$field),)+]
            }
        }
    };
}

columns! {
    schema_version: u32,
    run_id: String,
    session_id: String,
    turn_id: u32,
    request_id: String,
    trace_request_id: Option<String>,
    trace_line: u32,
    policy: String,
    mechanism: String,
    execution_mode: ExecutionMode,
    mode_reason: ModeReason,
    prefill_worker: Option<String>,
    decode_worker_intended: Option<String>,
    decode_worker_actual: Option<String>,
    route_mismatch: bool,
    placements: u32,
    scheduled_ns: u64,
    released_ns: Option<u64>,
    sent_ns: Option<u64>,
    first_token_ns: Option<u64>,
    last_token_ns: Option<u64>,
    ended_ns: u64,
    ttft_ms: Option<f64>,
    tpot_ms: Option<f64>,
    e2e_ms: Option<f64>,
    sched_ttft_ms: Option<f64>,
    sched_e2e_ms: Option<f64>,
    wait_previous_turn_ms: Option<f64>,
    queue_cap_wait_ms: Option<f64>,
    schedule_lag_ms: Option<f64>,
    admission_ms: Option<f64>,
    prefill_queue_ms: Option<f64>,
    prefill_ms: Option<f64>,
    kv_transfer_ms: Option<f64>,
    decode_queue_ms: Option<f64>,
    input_tokens: u32,
    append_tokens: u32,
    output_tokens: u32,
    expected_output_tokens: u32,
    cached_tokens: Option<u32>,
    index_hit_tokens_device: Option<u32>,
    index_hit_tokens_host_only: Option<u32>,
    assumed_hit_tokens: u32,
    ideal_hit_tokens: u32,
    outcome: Outcome,
    finish_reason: Option<String>,
    error_class: Option<String>,
    error_message: Option<String>,
    http_status: Option<u16>,
    attempts: u32,
    retractions: u32,
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use polars_core::prelude::AnyValue;
    use polars_io::SerReader;
    use polars_io::prelude::ParquetReader;

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

    fn written(rows: u32) -> DataFrame {
        let mut out = Vec::new();
        let mut writer = FrameWriter::new(&mut out, 3).unwrap();
        (0..rows).for_each(|turn| writer.push(&record(turn)).unwrap());
        let bytes = writer.finish().unwrap();
        assert_eq!(bytes, out.len() as u64);
        ParquetReader::new(Cursor::new(out)).finish().unwrap()
    }

    #[test]
    fn columns_are_the_fields_of_the_record_in_their_order() {
        let value = serde_json::to_string(&record(0)).unwrap();
        let frame = written(1);
        let names: Vec<&str> = frame.get_column_names().into_iter().map(|name| name.as_str()).collect();
        let places: Vec<usize> = names.iter().map(|name| value.find(&format!("\"{name}\":")).unwrap()).collect();
        assert!(places.is_sorted(), "{names:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&value).unwrap().as_object().unwrap().len(), names.len());
    }

    #[test]
    fn values_and_nulls_come_back() {
        let frame = written(2);
        let cell = |name: &str| frame.column(name).unwrap().get(1).unwrap().into_static();
        assert_eq!(cell("turn_id"), AnyValue::UInt32(1));
        assert_eq!(cell("scheduled_ns"), AnyValue::UInt64(u64::MAX));
        assert_eq!(cell("ttft_ms"), AnyValue::Float64(0.5));
        assert_eq!(cell("route_mismatch"), AnyValue::Boolean(true));
        assert_eq!(cell("http_status"), AnyValue::UInt32(503));
        assert_eq!(cell("outcome").get_str(), Some("error"));
        assert_eq!(cell("error_message").get_str(), Some("größer, \"so\""));
        for name in ["sent_ns", "e2e_ms", "cached_tokens", "prefill_worker"] {
            assert_eq!(cell(name), AnyValue::Null, "{name}");
        }
    }

    #[test]
    fn no_rows_and_several_row_groups_are_whole_files() {
        assert_eq!((written(0).height(), written(0).width()), (0, written(1).width()));
        let many = written(GROUP_ROWS as u32 + 1);
        assert_eq!(many.column("turn_id").unwrap().get(GROUP_ROWS).unwrap(), AnyValue::UInt32(GROUP_ROWS as u32));
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
            writer.finish()
        });
        assert_eq!(end.unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
