//! [`Outlet`]: a worker's publisher of KV events, and what faults make of its messages.

use crate::base::{Time, WorkerId};
use crate::cluster::{FaultKind, Faults};
use crate::engine::Worker;
use crate::kv::publish::{Calendar, Message, Publisher, PublisherOptions, TokenSource};
use crate::kv::{BlockTree, Moved};

/// See the module.
#[derive(Debug)]
pub struct Outlet {
    worker: WorkerId,
    publisher: Publisher,
    /// Of its time stamps.
    calendar: Calendar,
    /// Overtaken by the message that follows it.
    held: Option<Message>,
    sent: Vec<Message>,
}

/// When, and what the words are made from.
#[derive(Clone, Copy)]
pub struct Telling<'a> {
    /// Now.
    pub now: Time,
    /// Blocks.
    pub tree: &'a BlockTree,
    /// Their tokens.
    pub tokens: &'a dyn TokenSource,
}

impl Outlet {
    /// Of `worker`, which tells of its cache from now on; `None` for one that keeps none. Its process begins now, and says
    /// so in its first message.
    pub fn new(options: &PublisherOptions, calendar: Calendar, worker: &mut Worker, cx: Telling<'_>) -> Option<Outlet> {
        if !worker.caches_prompts() {
            return None;
        }
        worker.record_cache_changes();
        let publisher = Publisher::new(options.clone());
        let mut outlet = Outlet { worker: worker.id(), publisher, calendar, held: None, sent: Vec::new() };
        outlet.begin(cx);
        Some(outlet)
    }

    /// Takes what a step of the worker changed.
    pub fn step(&mut self, worker: &mut Worker, faults: &mut Faults, cx: Telling<'_>) {
        let (device, host) = (worker.take_cache_changes(), worker.take_host_changes());
        let unix_s = self.calendar.unix_s(cx.now);
        if let Some(message) = self.publisher.step(unix_s, (&device, &host), cx.tree, cx.tokens) {
            self.send(message, faults);
        }
    }

    /// The publisher, though not the cache, is started again.
    pub fn begin(&mut self, cx: Telling<'_>) {
        let unix_s = self.calendar.unix_s(cx.now);
        self.held = None;
        self.sent.push(self.publisher.begin(unix_s, cx.tree, cx.tokens));
    }

    /// Messages to subscribers since the last call.
    pub fn take_sent(&mut self) -> Vec<Message> {
        std::mem::take(&mut self.sent)
    }

    /// Replies to a request from sequence number `from` on.
    pub fn answer(&mut self, from: u64, cx: Telling<'_>) -> Vec<Message> {
        let unix_s = self.calendar.unix_s(cx.now);
        self.publisher.answer(unix_s, from, cx.tree, cx.tokens)
    }

    /// The tree was compacted.
    pub fn follow(&mut self, moved: &Moved) {
        self.publisher.follow(moved);
    }

    fn send(&mut self, message: Message, faults: &mut Faults) {
        if faults.strike(FaultKind::KvEventDrop, self.worker).is_some() {
            return;
        }
        if self.held.is_none() && faults.strike(FaultKind::KvEventReorder, self.worker).is_some() {
            self.held = Some(message);
            return;
        }
        if faults.strike(FaultKind::KvEventDuplicate, self.worker).is_some() {
            self.sent.push(message.clone());
        }
        self.sent.push(message);
        self.sent.extend(self.held.take());
    }
}
