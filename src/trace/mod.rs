//! Traces: what was recorded, as sessions of turns.
//!
//! Owns the file formats (native JSONL, Mooncake), their validation, statistics, slicing and the generator.
//! Does not know when a turn will be sent: that is the replayer's.

mod assemble;
pub mod generate;
mod model;
mod order;
mod read;
mod row;
mod slice;
mod stats;
mod write;

pub use assemble::{AssembleError, Assembler, MOST_TOKENS};
pub use model::{Notice, SessionTrace, Trace, TraceMeta, TurnTrace};
pub use read::{Format, ReadOptions, RowError, RowErrors, TimeUnit, TraceError, read_bytes, read_from, read_path};
pub use row::Row;
pub use slice::{SliceError, SliceOptions, slice};
pub use stats::{Spread, StatRow, TraceStats, ideal_hits};
pub use write::{native_digest, write_native};

#[cfg(test)]
pub(crate) mod tests;
