//! [`Stream`]: what readers know of a stream; [`Streams`]: all of them, and the planes they live in.
//!
//! A view is switched from one slot to another at once, under its own lock. Invariant: a slot in a view is complete.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::kv::Tier;
use crate::kv::index::plane::{Planes, Slot};
use crate::kv::index::side::Side;
use crate::kv::index::words::{AddStreamError, StreamId, StreamSpec, StreamStatus};

/// What every reader and writer shares.
#[derive(Debug, Default)]
pub(super) struct Streams {
    /// Where blocks are.
    pub planes: Planes,
    // Ordered by name, then rank.
    all: RwLock<Vec<Arc<Stream>>>,
    added: AtomicU64,
}

/// A stream as readers see it.
#[derive(Debug)]
pub(super) struct Stream {
    id: StreamId,
    spec: Arc<StreamSpec>,
    view: RwLock<View>,
}

#[derive(Debug, Clone)]
struct View {
    slot: Option<Arc<Slot>>,
    sequence: Option<u64>,
    resident: [u64; 2],
    mappings: u64,
    bigram: bool,
    error: Option<Arc<str>>,
}

impl Streams {
    /// Adds a stream without a state.
    pub fn add(&self, spec: StreamSpec) -> Result<Arc<Stream>, AddStreamError> {
        if spec.space.block_size == 0 {
            return Err(AddStreamError::NoBlockSize { instance: spec.instance });
        }
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        let place = all.binary_search_by(|other| name(&other.spec).cmp(&name(&spec)));
        let Err(at) = place else {
            return Err(AddStreamError::Duplicate { instance: spec.instance, dp_rank: spec.dp_rank });
        };
        let error = Some("no state yet".into());
        let view = View { slot: None, sequence: None, resident: [0; 2], mappings: 0, bigram: false, error };
        let id = StreamId(self.added.fetch_add(1, Ordering::Relaxed));
        let stream = Arc::new(Stream { id, spec: Arc::new(spec), view: RwLock::new(view) });
        all.insert(at, Arc::clone(&stream));
        Ok(stream)
    }

    /// Takes a stream out.
    pub fn remove(&self, id: StreamId) {
        self.all.write().unwrap_or_else(PoisonError::into_inner).retain(|stream| stream.id != id);
    }

    /// All streams, by name and rank.
    pub fn all(&self) -> Vec<Arc<Stream>> {
        self.all.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Stream {
    /// As it was added.
    pub fn spec(&self) -> &Arc<StreamSpec> {
        &self.spec
    }

    /// Which.
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// State, and where to look for blocks when it has any.
    pub fn look(&self) -> (StreamStatus, Option<Arc<Slot>>) {
        let View { slot, sequence, resident: [device_blocks, host_blocks], mappings, bigram, error } =
            self.view.read().unwrap_or_else(PoisonError::into_inner).clone();
        let status = StreamStatus {
            id: self.id,
            spec: Arc::clone(&self.spec),
            synchronized: slot.is_some(),
            sequence,
            device_blocks,
            host_blocks,
            mappings,
            bigram,
            error,
        };
        (status, slot)
    }

    /// From now on readers see this state.
    pub fn show(&self, side: &Side, sequence: u64) {
        self.set(View {
            slot: Some(Arc::clone(side.slot())),
            sequence: Some(sequence),
            resident: Tier::ALL.map(|tier| side.resident(tier)),
            mappings: side.mappings() as u64,
            bigram: side.slot().plane().naming().bigram,
            error: None,
        });
    }

    /// From now on readers see no state, and why.
    pub fn hide(&self, reason: &str) {
        let (status, _) = self.look();
        let StreamStatus { sequence, bigram, .. } = status;
        self.set(View { slot: None, sequence, resident: [0; 2], mappings: 0, bigram, error: Some(reason.into()) });
    }

    fn set(&self, view: View) {
        let mut place = self.view.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *place, view);
        drop(place);
        // What the last one to name a slot has to do, it does without the lock.
        drop(before);
    }
}

fn name(spec: &StreamSpec) -> (&str, u32) {
    (&spec.instance, spec.dp_rank)
}
