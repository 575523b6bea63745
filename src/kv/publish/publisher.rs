//! [`Publisher`]: sequence numbers, the ring of past batches, replies to requests.
//!
//! Its first batch says all the cache holds, behind an event that clears everything: a subscriber that hears it is in
//! step, and a ring that still has it is a whole history. Invariant: what it answers is as of its last batch.

use std::collections::VecDeque;

use crate::kv::publish::TokenSource;
use crate::kv::publish::events::{Blocks, Cache};
use crate::kv::wire::{EncodeForm, Encoder, end_frames, live_frames, replay_frames};
use crate::kv::{BlockTree, CacheChange, EventBatch, KvEvent, Moved, Recovery, Tier};

/// Past batches that are kept for replays when nobody says otherwise, as with vLLM and SGLang.
pub const BUFFER_STEPS: usize = 10_000;

/// Frames of a message.
pub type Message = Vec<Vec<u8>>;

/// What a publisher is.
#[derive(Debug, Clone, PartialEq)]
pub struct PublisherOptions {
    /// Release whose form it writes.
    pub form: EncodeForm,
    /// Tokens in a published block, at least 1.
    pub block_size: u32,
    /// Topic of its live messages.
    pub topic: String,
    /// Its data-parallel rank.
    pub dp_rank: u32,
    /// Past batches it keeps.
    pub buffer_steps: usize,
}

/// See the module.
#[derive(Debug)]
pub struct Publisher {
    options: PublisherOptions,
    cache: Cache,
    next: u64,
    ring: VecDeque<(u64, Vec<u8>)>,
}

impl Publisher {
    /// Of a process whose cache is empty.
    pub fn new(options: PublisherOptions) -> Publisher {
        let cache = Cache::new(options.block_size, options.form.dialect());
        Publisher { options, cache, next: 0, ring: VecDeque::new() }
    }

    /// The first batch, at `unix_s` by its own clock. Called later, it is as if the process of the publisher, though not
    /// the cache, had been started again: numbers and history begin anew.
    pub fn begin(&mut self, unix_s: f64, tree: &BlockTree, tokens: &dyn TokenSource) -> Message {
        self.next = 0;
        self.ring.clear();
        let mut events = vec![KvEvent::Cleared];
        events.extend(self.cache.all(Blocks { tree, tokens }));
        self.send(unix_s, events)
    }

    /// What a step changed on the device and, later in the step, on the host; `None` when there is nothing to say.
    pub fn step(
        &mut self,
        unix_s: f64,
        (device, host): (&[CacheChange], &[CacheChange]),
        tree: &BlockTree,
        tokens: &dyn TokenSource,
    ) -> Option<Message> {
        let (blocks, mut events) = (Blocks { tree, tokens }, Vec::new());
        self.cache.change(blocks, Tier::Device, device, &mut events);
        self.cache.change(blocks, Tier::Host, host, &mut events);
        (!events.is_empty()).then(|| self.send(unix_s, events))
    }

    /// Answers a request for what happened from sequence number `from` on, as a DEALER receives it: all that is held now,
    /// or the batches that are still known, by dialect; then the end.
    pub fn answer(&mut self, unix_s: f64, from: u64, tree: &BlockTree, tokens: &dyn TokenSource) -> Vec<Message> {
        let form = self.options.form;
        let topic = form.has_reply_topic().then_some(self.options.topic.as_str());
        let mut replies = match form.dialect().recovery() {
            Recovery::Snapshot => {
                let all = self.cache.all(Blocks { tree, tokens });
                self.last().map(|last| replay_frames(topic, last, self.encode(unix_s, all))).into_iter().collect()
            }
            Recovery::History => {
                let wanted = self.ring.iter().filter(|(number, _)| *number >= from);
                wanted.map(|(number, batch)| replay_frames(topic, *number, batch.clone())).collect()
            }
            Recovery::None => Vec::new(),
        };
        replies.push(end_frames(topic));
        replies
    }

    /// Sequence number of the last batch.
    pub fn last(&self) -> Option<u64> {
        self.next.checked_sub(1)
    }

    /// What it is.
    pub fn options(&self) -> &PublisherOptions {
        &self.options
    }

    /// The tree was compacted: the nodes it kept, all that are held among them, have moved.
    pub fn follow(&mut self, moved: &Moved) {
        self.cache.follow(moved);
    }

    #[cfg(test)]
    pub(super) fn cache(&self) -> &Cache {
        &self.cache
    }

    fn send(&mut self, unix_s: f64, events: Vec<KvEvent>) -> Message {
        let (number, payload) = (self.next, self.encode(unix_s, events));
        self.next += 1;
        if self.options.form.dialect().recovery() == Recovery::History {
            if self.ring.len() >= self.options.buffer_steps {
                self.ring.pop_front();
            }
            self.ring.push_back((number, payload.clone()));
        }
        live_frames(&self.options.topic, number, payload)
    }

    fn encode(&self, unix_s: f64, events: Vec<KvEvent>) -> Vec<u8> {
        let batch = EventBatch { timestamp: unix_s, events, dp_rank: Some(self.options.dp_rank), ignored: 0 };
        Encoder::new(self.options.form).batch(&batch)
    }
}
