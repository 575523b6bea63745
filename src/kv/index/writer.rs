//! [`StreamWriter`], the one that may change a stream, and [`Shadow`], a state being built beside the one that is served.
//!
//! Invariant: a stream with an error in it has no state. Dropping the writer takes the stream out of the index.

use std::sync::Arc;

use crate::kv::index::side::{Reading, Side};
use crate::kv::index::stream::{Stream, Streams};
use crate::kv::index::words::{Applied, ApplyError, Mode, StreamId, StreamSpec, StreamStatus};
use crate::kv::{EventBatch, KvEvent, Tier};

/// See the module.
#[derive(Debug)]
pub struct StreamWriter {
    streams: Arc<Streams>,
    stream: Arc<Stream>,
    served: Option<Side>,
}

/// A state that nobody sees yet. Costs what a served one costs.
#[derive(Debug)]
pub struct Shadow {
    streams: Arc<Streams>,
    spec: Arc<StreamSpec>,
    side: Side,
}

impl StreamWriter {
    pub(super) fn new(streams: Arc<Streams>, stream: Arc<Stream>) -> StreamWriter {
        StreamWriter { streams, stream, served: None }
    }

    /// Which stream.
    pub fn id(&self) -> StreamId {
        self.stream.id()
    }

    /// As it was added.
    pub fn spec(&self) -> &Arc<StreamSpec> {
        self.stream.spec()
    }

    /// As readers see it.
    pub fn status(&self) -> StreamStatus {
        self.stream.look().0
    }

    /// Applies a change to the state that is served, which is of `sequence` from then on. An error invalidates the stream,
    /// with itself as the reason, and nothing of the batch is served. Readers may see the events of a batch come one by
    /// one, in order, except that nothing of a batch with [`KvEvent::Cleared`] is seen before all of it.
    pub fn apply(&mut self, batch: &EventBatch, sequence: u64) -> Result<Applied, ApplyError> {
        let outcome = self.change(batch, sequence);
        if let Err(error) = &outcome {
            self.invalidate(&error.to_string());
        }
        outcome
    }

    fn change(&mut self, batch: &EventBatch, sequence: u64) -> Result<Applied, ApplyError> {
        let served = self.served.as_mut().ok_or(ApplyError::NotSynchronized)?;
        let mut fresh = None;
        let applied = read(batch, Mode::Delta, &self.streams, self.stream.spec(), served, &mut fresh)?;
        let side = fresh.as_mut().unwrap_or(served);
        side.commit();
        self.stream.show(side, sequence);
        // Only now may what was served before go.
        if fresh.is_some() {
            self.served = fresh;
        }
        Ok(applied)
    }

    /// Serves nothing any more and frees the memory of the state.
    pub fn invalidate(&mut self, reason: &str) {
        self.stream.hide(reason);
        self.served = None;
    }

    /// Serves nothing any more, like [`StreamWriter::invalidate`], but gives the state back: a caller that can prove that
    /// nothing was missed goes on from it.
    pub fn withdraw(&mut self, reason: &str) -> Option<Shadow> {
        self.stream.hide(reason);
        let side = self.served.take()?;
        Some(Shadow { streams: Arc::clone(&self.streams), spec: Arc::clone(self.stream.spec()), side })
    }

    /// An empty state to build beside the one that is served: for a snapshot, a replayed history, or a batch that states
    /// the whole cache.
    pub fn shadow(&self) -> Shadow {
        let spec = Arc::clone(self.stream.spec());
        let side = Side::new(&self.streams.planes, &spec);
        Shadow { streams: Arc::clone(&self.streams), spec, side }
    }

    /// Serves `shadow`, a state of `sequence`, instead of what was served, at once. It has to be a shadow of this stream.
    pub fn replace_by(&mut self, shadow: Shadow, sequence: u64) {
        assert!(Arc::ptr_eq(&shadow.spec, self.stream.spec()), "a shadow of {} for {}", shadow.spec, self.spec());
        self.stream.show(&shadow.side, sequence);
        self.served = Some(shadow.side);
    }
}

impl Drop for StreamWriter {
    fn drop(&mut self) {
        self.streams.remove(self.stream.id());
    }
}

impl Shadow {
    /// Applies a batch. After an error the shadow is of no use.
    pub fn apply(&mut self, batch: &EventBatch, mode: Mode) -> Result<Applied, ApplyError> {
        let mut fresh = None;
        let applied = read(batch, mode, &self.streams, &self.spec, &mut self.side, &mut fresh)?;
        if let Some(fresh) = fresh {
            self.side = fresh;
        }
        self.side.commit();
        Ok(applied)
    }
}

/// Reads the events of a batch into `side`; from the first one on that clears it, into `fresh`.
fn read(
    batch: &EventBatch,
    mode: Mode,
    streams: &Streams,
    spec: &StreamSpec,
    side: &mut Side,
    fresh: &mut Option<Side>,
) -> Result<Applied, ApplyError> {
    let mut reading = Reading { planes: &streams.planes, event: 0, mode, applied: Applied::default() };
    for (event, what) in batch.events.iter().enumerate() {
        reading.event = event;
        let side = fresh.as_mut().unwrap_or(side);
        match what {
            KvEvent::Stored(stored) => side.store(stored, &mut reading)?,
            KvEvent::Removed(removed) => side.remove(removed, &mut reading),
            KvEvent::Foreign { hashes } => side.put_outside(hashes, None, Tier::Device, &mut reading)?,
            KvEvent::Cleared if side.mappings() == 0 => {}
            KvEvent::Cleared => *fresh = Some(Side::new(&streams.planes, spec)),
        }
    }
    Ok(reading.applied)
}
