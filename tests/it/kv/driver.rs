//! Drives streams through their machine in a time of its own, and keeps what they asked for and said.

use pdreplay::base::{Dur, Time};
use pdreplay::kv::index::{HashSpace, Match, StreamId, StreamSpec};
use pdreplay::kv::sync::{Change, StreamReport, Subscriber, SyncInput, SyncOptions, SyncOutput};
use pdreplay::kv::wire::{EncodeForm, Encoder};
use pdreplay::kv::{BlockRemoved, BlockStored, DEFAULT_HASH_SEED, EngineHash, EventBatch, KvEvent, Tier};

pub const BLOCK_SIZE: u32 = 4;

/// What one stream asked for and said.
#[derive(Debug, Default)]
pub struct Said {
    /// Number of the last request.
    pub attempt: u32,
    /// First sequence numbers of requests.
    pub asks: Vec<u64>,
    /// Whether the last request is still wanted.
    pub is_asking: bool,
    pub reconnects: u64,
    pub changes: Vec<Change>,
}

#[derive(Debug, Default)]
pub struct Driver {
    pub subscriber: Subscriber,
    pub now: Time,
    pub streams: Vec<(StreamId, Said)>,
}

impl Driver {
    pub fn add(&mut self, spec: StreamSpec, options: SyncOptions) -> usize {
        let id = self.subscriber.add(spec, options, self.now).unwrap();
        self.streams.push((id, Said::default()));
        self.streams.len() - 1
    }

    pub fn input(&mut self, stream: usize, input: SyncInput<'_>) {
        let id = self.streams[stream].0;
        let streams = &mut self.streams;
        self.subscriber.input(self.now, id, input, |id, output| keep(streams, id, output));
    }

    /// A reply to the last request.
    pub fn reply(&mut self, stream: usize, frames: &[Vec<u8>]) {
        let attempt = self.streams[stream].1.attempt;
        self.input(stream, SyncInput::Replay { attempt, frames });
    }

    /// Lets time pass, with all that falls due in it.
    pub fn wait(&mut self, time: Dur) {
        let end = self.now + time;
        while let Some(at) = self.subscriber.wake_at().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            let streams = &mut self.streams;
            self.subscriber.wake(self.now, |id, output| keep(streams, id, output));
        }
        self.now = end;
    }

    pub fn said(&mut self, stream: usize) -> &mut Said {
        &mut self.streams[stream].1
    }

    pub fn report(&self, stream: usize) -> StreamReport {
        self.subscriber.stream(self.streams[stream].0).unwrap().report(self.now)
    }

    pub fn query(&self, stream: usize, tokens: &[u32]) -> Match {
        let id = self.streams[stream].0;
        self.subscriber.index().query(tokens).into_iter().find(|found| found.stream.id == id).unwrap()
    }
}

fn keep(streams: &mut [(StreamId, Said)], id: StreamId, output: SyncOutput) {
    let said = &mut streams.iter_mut().find(|(other, _)| *other == id).unwrap().1;
    match output {
        SyncOutput::AskReplay { from, attempt } => {
            assert!(attempt > said.attempt, "attempts are numbered");
            said.asks.push(from);
            (said.attempt, said.is_asking) = (attempt, true);
        }
        SyncOutput::DropReplay => {
            assert!(said.is_asking, "nothing to drop");
            said.is_asking = false;
        }
        SyncOutput::Reconnect => said.reconnects += 1,
        SyncOutput::Changed(change) => said.changes.push(change),
    }
}

pub fn spec(name: &str, dp_rank: u32, max_blocks: usize) -> StreamSpec {
    StreamSpec {
        instance: name.into(),
        dp_rank,
        space: HashSpace { block_size: BLOCK_SIZE, hash_seed: DEFAULT_HASH_SEED },
        max_blocks,
        incarnation: None,
        register_ts_ms: None,
    }
}

pub fn batch(timestamp: f64, dp_rank: u32, events: Vec<KvEvent>) -> EventBatch {
    EventBatch { timestamp, events, dp_rank: Some(dp_rank), ignored: 0 }
}

pub fn payload(options: &SyncOptions, batch: &EventBatch) -> Vec<u8> {
    Encoder::new(EncodeForm::current(options.dialect)).batch(batch)
}

/// A topic in replies is optional: half of the releases have one.
pub fn reply_topic(options: &SyncOptions) -> Option<&str> {
    EncodeForm::current(options.dialect).has_reply_topic().then_some(options.topic.as_str())
}

pub fn stored(hashes: &[u64], parent: Option<u64>, tokens: Vec<u32>, tier: Tier) -> KvEvent {
    KvEvent::Stored(BlockStored {
        hashes: hashes.iter().copied().map(EngineHash).collect(),
        parent: parent.map(EngineHash),
        block_size: if tokens.is_empty() { 0 } else { BLOCK_SIZE },
        tokens,
        tier,
        bigram: false,
    })
}

pub fn removed(hashes: &[u64], tier: Tier) -> KvEvent {
    KvEvent::Removed(BlockRemoved { hashes: hashes.iter().copied().map(EngineHash).collect(), tier })
}
