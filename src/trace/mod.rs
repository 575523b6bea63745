//! Traces: what was recorded, as sessions of turns.
//!
//! Owns the file formats (native JSONL, Mooncake), their validation, statistics, slicing and the generator.
//! Does not know when a turn will be sent: that is the replayer's.

mod assemble;
pub mod generate;
mod model;
mod row;

pub use assemble::{AssembleError, Assembler};
pub use model::{Notice, SessionTrace, Trace, TraceMeta, TurnTrace};
pub use row::Row;

#[cfg(test)]
pub(crate) mod tests;
