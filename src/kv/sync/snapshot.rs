//! [`Snapshot`]: a replay that states all a publisher holds, in one batch; [`State`]: a whole state that nobody sees yet.

use crate::kv::EventBatch;
use crate::kv::index::{Applied, Mode, Shadow};
use crate::kv::sync::SyncReason;
use crate::kv::sync::change::Flaw;

/// All a publisher holds as of a sequence number.
#[derive(Debug)]
pub(super) struct State {
    pub shadow: Shadow,
    pub sequence: u64,
    /// Of the batch it ends with, Unix seconds.
    pub timestamp: f64,
    /// Fingerprint of the payload of the batch it ends with.
    pub proof: u64,
    /// What it took to get here.
    pub work: Work,
}

/// Events that were applied, and what they did.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Work {
    pub events: u64,
    pub applied: Applied,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    state: Option<State>,
}

impl State {
    /// The state after one more batch, which is gone with an error.
    pub fn then(mut self, sequence: u64, batch: &EventBatch, proof: u64, mode: Mode) -> Result<State, Flaw> {
        let applied = self.shadow.apply(batch, mode).map_err(|error| Flaw::of_apply(sequence, &error))?;
        self.work.add(batch, applied);
        Ok(State { sequence, timestamp: batch.timestamp, proof, ..self })
    }

    /// Of a publisher that holds nothing yet.
    pub fn empty(shadow: Shadow) -> State {
        State { shadow, sequence: 0, timestamp: 0.0, proof: 0, work: Work::default() }
    }
}

impl Work {
    /// Counts a batch.
    pub fn add(&mut self, batch: &EventBatch, applied: Applied) {
        self.events += batch.events.len() as u64;
        self.applied.blocks += applied.blocks;
        self.applied.unknown_removals += applied.unknown_removals;
        self.applied.outside += applied.outside;
    }
}

impl Snapshot {
    /// Takes a reply.
    pub fn take(&mut self, sequence: u64, batch: &EventBatch, empty: Shadow) -> Result<(), Flaw> {
        if self.state.is_some() {
            let detail = format!(
                "batch {sequence} follows the snapshot, where its end mark was expected: vLLM and SGLang answer with batches \
                 of the past; is `dialect` the publisher's?"
            );
            return Err(Flaw::new(SyncReason::BadReplay, detail));
        }
        self.state = Some(State::empty(empty).then(sequence, batch, 0, Mode::Snapshot)?);
        Ok(())
    }

    /// The end mark came.
    pub fn finish(self) -> Result<State, Flaw> {
        self.state.ok_or_else(|| Flaw::new(SyncReason::EmptyReplay, String::new()))
    }
}
