//! [`StreamSync`]: whether a stream of KV events is in step with its publisher, and how it gets back.
//!
//! Owns the order of batches: sequence numbers, replays, what is kept waiting, time-outs. It is told the time and what
//! arrived, and says what to send and what changed. Bytes are `wire`'s, blocks `index`'s, connections their caller's.
//! Invariant: a view is served only while every batch from a whole state of the publisher up to the view's sequence number
//! was applied, in order; otherwise the stream says that it is not synchronised, and why.
//!
//! Reading order: `words`; `machine` (what arrived), `live` (batches), `recover` (replays), `change` (what is said);
//! `snapshot` and `history` (the two kinds of replay), `silence`, `buffer`; [`Subscriber`] (many streams). Rules:
//! docs/kv-events.md.

mod buffer;
mod change;
mod history;
mod live;
mod machine;
mod pace;
mod reason;
mod recover;
mod silence;
mod snapshot;
mod stats;
mod subscriber;
mod topic;
mod words;

pub use machine::StreamSync;
pub use reason::SyncReason;
pub use stats::{StreamReport, SyncStats};
pub use subscriber::Subscriber;
pub use words::{Change, SyncInput, SyncOptions, SyncOutput, SyncState, trouble_at};
