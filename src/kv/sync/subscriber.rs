//! [`Subscriber`]: all streams of a run or a service, with one agenda. A trouble of one stream is no other's.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::Time;
use crate::kv::index::{AddStreamError, PrefixIndex, StreamId, StreamSpec};
use crate::kv::sync::{StreamReport, StreamSync, SyncInput, SyncOptions, SyncOutput};

/// See the module.
#[derive(Debug, Default)]
pub struct Subscriber {
    index: PrefixIndex,
    streams: BTreeMap<StreamId, StreamSync>,
    agenda: BTreeSet<(Time, StreamId)>,
}

impl Subscriber {
    /// Without streams, into an index of its own.
    pub fn new() -> Subscriber {
        Subscriber::default()
    }

    /// What the streams feed.
    pub fn index(&self) -> &PrefixIndex {
        &self.index
    }

    /// Adds a stream, without a connection yet.
    ///
    /// # Errors
    /// Its instance has a stream of that rank, or its block size is 0.
    pub fn add(&mut self, spec: StreamSpec, options: SyncOptions, now: Time) -> Result<StreamId, AddStreamError> {
        let writer = self.index.add_stream(spec)?;
        let id = writer.id();
        self.streams.insert(id, StreamSync::new(writer, options, now));
        Ok(id)
    }

    /// Takes a stream out, and everything of it out of the index. Returns what is to be said of it, `None` when it is not
    /// here.
    pub fn remove(&mut self, id: StreamId, now: Time) -> Option<StreamReport> {
        let stream = self.streams.remove(&id)?;
        self.agenda.retain(|(_, of)| *of != id);
        Some(stream.report(now))
    }

    /// A stream.
    pub fn stream(&self, id: StreamId) -> Option<&StreamSync> {
        self.streams.get(&id)
    }

    /// Takes what arrived for a stream, and passes on what that stream wants or says. What arrives for one that was taken
    /// out is dropped.
    pub fn input(&mut self, now: Time, id: StreamId, input: SyncInput<'_>, mut tell: impl FnMut(StreamId, SyncOutput)) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let before = stream.wake_at();
        stream.input(now, input);
        while let Some(output) = stream.next_output() {
            tell(id, output);
        }
        let after = stream.wake_at();
        if before != after {
            before.map(|at| self.agenda.remove(&(at, id)));
            self.agenda.extend(after.map(|at| (at, id)));
        }
    }

    /// When the first stream wants to be woken.
    pub fn wake_at(&self) -> Option<Time> {
        self.agenda.first().map(|(at, _)| *at)
    }

    /// Wakes every stream that is due, each once.
    pub fn wake(&mut self, now: Time, mut tell: impl FnMut(StreamId, SyncOutput)) {
        let due: Vec<StreamId> = self.agenda.iter().take_while(|(at, _)| *at <= now).map(|(_, id)| *id).collect();
        for id in due {
            self.input(now, id, SyncInput::Wake, &mut tell);
        }
    }

    /// All streams in the order they were added.
    pub fn reports(&self, now: Time) -> Vec<StreamReport> {
        self.streams.values().map(|stream| stream.report(now)).collect()
    }
}
