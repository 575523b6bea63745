//! [`FrameWriter`]: `requests.parquet`, one column per field of the record, through polars.
//!
//! The only file that names polars. Records go straight into column builders; full row groups are written as they fill, so
//! memory stays bounded. Everything runs on the calling thread. Labels are plain strings; what is null in a record is null here.

use std::io::{self, Write};

use polars_core::prelude::{
    BooleanChunkedBuilder, ChunkedBuilder, Column, DataFrame, Float64Type, IntoColumn, PlSmallStr, PolarsNumericType,
    PrimitiveChunkedBuilder, StringChunkedBuilder, UInt32Type, UInt64Type,
};
use polars_io::parquet::write::{BatchedWriter, ParquetCompression, ParquetWriter};

use crate::record::{ExecutionMode, ModeReason, Outcome, RequestRecord};

/// Rows of a row group.
const GROUP_ROWS: usize = 65_536;

/// Writes request records as Parquet.
pub struct FrameWriter<W: Write> {
    columns: Columns,
    rows: usize,
    writer: BatchedWriter<W>,
}

impl<W: Write> FrameWriter<W> {
    /// Starts a file; `expected_rows` is a hint.
    ///
    /// # Errors
    /// When the header cannot be written.
    pub fn new(out: W, expected_rows: usize) -> io::Result<Self> {
        let columns = Columns::new(expected_rows.min(GROUP_ROWS));
        let schema = frame(0, Columns::new(0).take())?.schema().as_ref().clone();
        let writer = ParquetWriter::new(out)
            .with_compression(ParquetCompression::Uncompressed)
            .set_parallel(false)
            .batched(&schema)
            .map_err(io::Error::from)?;
        Ok(FrameWriter { columns, rows: 0, writer })
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
        self.writer.finish().map_err(io::Error::from)
    }

    fn flush(&mut self) -> io::Result<()> {
        let group = frame(self.rows, self.columns.take())?;
        self.rows = 0;
        self.writer.write_batch(&group).map_err(io::Error::from)
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
