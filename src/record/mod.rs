//! The one line written for each request, and the closed sets it draws from.
//!
//! Owns the on-disk schema of `requests.jsonl`. `_ns` fields count from the start of the run, `_ms` fields are
//! lengths in milliseconds. A value that does not apply is null, never 0, NaN or infinite.

mod labels;
mod ledger;
mod request;
mod run;
mod target;

pub use labels::{ExecutionMode, IndexSight, ModeReason, Outcome};
pub use ledger::{CandidateScore, LedgerEvent, LedgerKind};
pub use request::{RequestRecord, SCHEMA_VERSION};
pub use run::{
    AnswerFacts, CacheFacts, HarnessFacts, PromptFacts, RunFacts, SessionFacts, StreamFacts, TransferRecord,
    WorkerRecord,
};
pub use target::{RouterFact, TargetFacts, TargetWorker};
