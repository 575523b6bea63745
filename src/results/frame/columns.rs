//! [`COLUMNS`]: every column of the table, in order: its name, its type, its value in a record.
//!
//! The one list of fields; the writer has its builders from it. Invariant: taking a record apart without `..` makes a
//! forgotten field a compile error.

use crate::record::{ExecutionMode, IndexSight, ModeReason, Outcome};

/// Calls `$then!` with every field of a record: name, type, and how its text is kept.
///
/// A `label` is one of few words, numbered once for the whole file; a `text` differs from row to row.
macro_rules! with_fields {
    ($then:ident) => {
        $then! {
            schema_version: u32,
            run_id: String as label,
            session_id: String as label,
            turn_id: u32,
            request_id: String as text,
            trace_request_id: Option<String> as text,
            trace_line: u32,
            policy: String as label,
            mechanism: String as label,
            execution_mode: ExecutionMode,
            mode_reason: ModeReason,
            prefill_worker: Option<String> as label,
            decode_worker_intended: Option<String> as label,
            decode_worker_actual: Option<String> as label,
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
            index_worker: Option<String> as label,
            index_hit_tokens_device: Option<u32>,
            index_hit_tokens_host_only: Option<u32>,
            index_blind: Option<bool>,
            index_sight: Option<IndexSight>,
            assumed_hit_tokens: u32,
            ideal_hit_tokens: u32,
            outcome: Outcome,
            finish_reason: Option<String> as label,
            error_class: Option<String> as label,
            error_message: Option<String> as text,
            http_status: Option<u16>,
            attempts: u32,
            retry_wait_ms: Option<f64>,
            retractions: u32,
        }
    };
}
pub(super) use with_fields;

/// How the values of a column are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// 32-bit whole numbers.
    U32,
    /// 64-bit whole numbers.
    U64,
    /// Floating-point numbers.
    F64,
    /// True or false.
    Bool,
    /// One of few words, numbered for the whole file.
    Label,
    /// Words of their own in each row.
    Text,
}

/// A value of a record.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value<'a> {
    Null,
    U32(u32),
    U64(u64),
    F64(f64),
    Bool(bool),
    Words(&'a str),
}

/// A column.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// Name: that of the field.
    pub name: &'static str,
    /// Type.
    pub kind: Kind,
    /// Null may stand in it.
    pub is_nullable: bool,
    /// Words of a closed set, if it is one.
    pub(super) words: Option<fn(&str) -> bool>,
}

/// A field's type.
pub(super) trait Field {
    const KIND: Kind;
    const IS_NULLABLE: bool = false;
    const WORDS: Option<fn(&str) -> bool> = None;
    fn value(&self) -> Value<'_>;
}

macro_rules! fields {
    ($($type:ty: $kind:ident, |$this:ident| $value:expr;)+) => {
        $(impl Field for $type {
            const KIND: Kind = Kind::$kind;

            fn value(&self) -> Value<'_> {
                let $this = self;
                $value
            }
        })+
    };
}

fields! {
    u32: U32, |it| Value::U32(*it);
    u16: U32, |it| Value::U32(u32::from(*it));
    u64: U64, |it| Value::U64(*it);
    f64: F64, |it| Value::F64(*it);
    bool: Bool, |it| Value::Bool(*it);
    String: Label, |it| Value::Words(it);
}

impl<T: Field> Field for Option<T> {
    const KIND: Kind = T::KIND;
    const IS_NULLABLE: bool = true;
    const WORDS: Option<fn(&str) -> bool> = T::WORDS;

    fn value(&self) -> Value<'_> {
        self.as_ref().map_or(Value::Null, T::value)
    }
}

macro_rules! closed_sets {
    ($($type:ty),+) => {
        $(impl Field for $type {
            const KIND: Kind = Kind::Label;
            const WORDS: Option<fn(&str) -> bool> = Some(|word| <$type>::ALL.iter().any(|known| known.as_str() == word));

            fn value(&self) -> Value<'_> {
                Value::Words(self.as_str())
            }
        })+
    };
}

closed_sets!(ExecutionMode, IndexSight, ModeReason, Outcome);

macro_rules! kind {
    ($type:ty) => {
        <$type as Field>::KIND
    };
    ($type:ty, label) => {
        Kind::Label
    };
    ($type:ty, text) => {
        Kind::Text
    };
}

macro_rules! table {
    ($($name:ident: $type:ty $(as $text:ident)?,)+) => {
        /// Every column, in the order of the file.
        pub const COLUMNS: &[Column] = &[$(Column {
            name: stringify!($name),
            kind: kind!($type $(, $text)?),
            is_nullable: <$type as Field>::IS_NULLABLE,
            words: <$type as Field>::WORDS,
        },)+];

        /// The values of a record, in the order of [`COLUMNS`].
        pub(super) fn values(record: &crate::record::RequestRecord) -> [Value<'_>; COLUMNS.len()] {
            let crate::record::RequestRecord { $($name,)+ } = record;
            [$(Field::value($name),)+]
        }
    };
}
with_fields!(table);

impl Column {
    /// Its place in [`COLUMNS`]; `None` when no field has that name.
    pub fn place(name: &str) -> Option<usize> {
        COLUMNS.iter().position(|column| column.name == name)
    }
}
