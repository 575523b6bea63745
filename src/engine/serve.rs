//! What a server around one worker needs beside its inputs and outputs: tokens as they leave, queue depths, a flush,
//! and a block tree that does not grow for ever.

use crate::base::{SessionIx, Time};
use crate::engine::host::HostTier;
use crate::engine::job::Job;
use crate::engine::message::{Cx, Input, Output, Tokens};
use crate::engine::worker::Worker;
use crate::kv::{BlockPath, CacheChange, Moved, NodeId};

/// Requests by where they are, and tokens of the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Queues {
    /// To be prefilled here.
    pub waiting: usize,
    /// In prefill.
    pub prefilling: usize,
    /// Decoding.
    pub running: usize,
    /// Prefill: KV computed, not sent yet.
    pub sending: usize,
    /// Decode: waiting for room.
    pub prealloc: usize,
    /// Decode: with room, waiting for KV.
    pub transfer: usize,
    /// Decode: KV there, waiting for a place in the batch.
    pub ready: usize,
    /// Thrown out for lack of room.
    pub retracted: usize,
    /// Tokens that requests and sessions hold.
    pub used_tokens: u64,
    /// Tokens of the cache that may be evicted.
    pub evictable_tokens: u64,
    /// Tokens that idle sessions hold.
    pub session_tokens: u64,
}

impl Worker {
    /// Tells of the tokens of every iteration from the next one on, with [`Output::Tokens`]. Costs a wake an iteration.
    pub fn stream_tokens(&mut self) {
        self.streams = true;
    }

    /// Keeps a list of what enters and leaves the prefix cache, for [`Worker::take_cache_changes`].
    pub fn record_cache_changes(&mut self) {
        self.pool.record_changes();
        if let Some(host) = &mut self.host {
            host.record_changes();
        }
    }

    /// What entered and left the prefix cache since the last call, in order, parents stored before their children. The KV
    /// that sessions hold lies outside that cache.
    pub fn take_cache_changes(&mut self) -> Vec<CacheChange> {
        self.pool.take_changes()
    }

    /// The same of the copies in host memory.
    pub fn take_host_changes(&mut self) -> Vec<CacheChange> {
        self.host.as_mut().map(HostTier::take_changes).unwrap_or_default()
    }

    /// All that the prefix cache holds, as if it had just been stored.
    pub fn cached_extents(&self) -> Vec<CacheChange> {
        self.pool.extents()
    }

    /// All copies in host memory, as if they had just been confirmed.
    pub fn host_extents(&self) -> Vec<CacheChange> {
        self.host.as_ref().map(|host| host.cache().extents()).unwrap_or_default()
    }

    /// It keeps transferred and finished prompts in its prefix cache, so their paths matter.
    pub fn caches_prompts(&self) -> bool {
        self.caches()
    }

    /// Requests by where they are.
    pub fn queues(&self) -> Queues {
        Queues {
            waiting: self.waiting.len(),
            prefilling: self.prefilling.len(),
            running: self.running.len(),
            sending: self.sending.len(),
            prealloc: self.unreserved.len(),
            transfer: self.reserved.len(),
            ready: self.ready.len(),
            retracted: self.retracted.len(),
            used_tokens: self.pool.used(),
            evictable_tokens: self.pool.evictable(),
            session_tokens: self.sessions.held_tokens(),
        }
    }

    /// Sessions open now.
    pub fn sessions_open(&self) -> usize {
        self.sessions.len()
    }

    /// The session is open, or an input about it has not been read.
    pub fn knows_session(&self, session: SessionIx) -> bool {
        let names = |input: &Input| match input {
            Input::Open { session: named, .. } | Input::Close(named) => *named == session,
            Input::Admit { ask, .. } => ask.session == session,
            Input::Generate(job) | Input::Reserve(job) => job.session == Some(session),
            Input::KvArrived(_) | Input::KvSent(_) | Input::Abort(_) => false,
        };
        self.sessions.contains(session) || self.inbox.iter().any(names)
    }

    /// `/flush_cache`: empties the prefix cache. False, and nothing changes, while a request is inside.
    pub fn flush(&mut self, cx: Cx<'_>) -> bool {
        let inside =
            self.queue_len() + self.running.len() + self.prefilling.len() + self.sending.len() + self.hung.len();
        let idle = inside == 0 && self.inbox.is_empty();
        if idle {
            self.pool.clear_cache(cx.tree);
            if let Some(host) = &mut self.host {
                host.clear(cx.tree);
            }
        }
        idle
    }

    /// Nodes of the block tree that the cache or a request refers to.
    pub fn nodes_in_use(&mut self) -> Vec<NodeId> {
        let mut nodes = self.pool.cached_nodes();
        nodes.extend(self.host.iter().flat_map(HostTier::nodes));
        self.each_path(&mut |path| nodes.push(path.node));
        nodes
    }

    /// The block tree was compacted: the nodes it kept have moved.
    pub fn follow(&mut self, moved: &Moved) {
        self.pool.follow(moved);
        if let Some(host) = &mut self.host {
            host.follow(moved);
        }
        self.each_path(&mut |path| *path = moved.path(*path));
    }

    pub(super) fn tell(&mut self, at: Time, tokens: Option<Tokens>) {
        if let Some(tokens) = tokens.filter(|_| self.streams) {
            self.emit(at, Output::Tokens(tokens));
        }
    }

    fn each_path(&mut self, visit: &mut dyn FnMut(&mut BlockPath)) {
        let mut both = |job: &mut Job| {
            visit(&mut job.prompt);
            visit(&mut job.context);
        };
        for input in &mut self.inbox {
            if let Input::Generate(job) | Input::Reserve(job) = input {
                both(job);
            }
        }
        self.waiting.iter_mut().chain(&mut self.unreserved).for_each(&mut both);
        let held = [&mut self.reserved, &mut self.sending, &mut self.hung].into_iter().flat_map(|map| map.values_mut());
        let queued = self.ready.iter_mut().chain(&mut self.retracted).chain(&mut self.running);
        let prefilling = self.prefilling.iter_mut().map(|(active, _)| active);
        for active in held.chain(queued).chain(prefilling) {
            visit(&mut active.job.prompt);
            visit(&mut active.job.context);
            visit(&mut active.lock);
        }
    }
}
