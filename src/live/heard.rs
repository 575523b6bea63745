//! What socket tasks tell the one task that owns the replayer.

use crate::base::WorkerId;
use crate::protocol::Event;
use crate::record::LedgerKind;

/// A message to the driver, over one bounded channel.
#[derive(Debug)]
pub enum Heard {
    /// For the replayer.
    Event(Event),
    /// For the ledger alone: something about the target that no client protocol has a word for.
    Notice {
        /// What.
        kind: LedgerKind,
        /// Worker it concerns.
        worker: Option<WorkerId>,
        /// In words.
        detail: String,
    },
}
