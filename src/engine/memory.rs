//! Who gets memory: growth of the running batch first, then what was retracted, then new work.
//!
//! New work is let in only if, besides its own need, everything already let in can still grow by
//! `reserved_decode_tokens` (or what it still needs). When the running batch cannot grow by a token, the request with the
//! fewest answer tokens is retracted (ties: the longest prompt), as SGLang does.
//! Invariant: after [`Worker::make_running_fit`] one more token for every running request has room.

use crate::base::{Dur, Role, Time};
use crate::engine::job::{Active, Job};
use crate::engine::message::{Cx, DropReason, Output};
use crate::engine::worker::Worker;
use crate::protocol::{ErrorClass, Finish, TokenRun};

impl Worker {
    /// Tokens the running batch lacks for `steps` more tokens each.
    pub(super) fn growth(&self, steps: u32) -> u64 {
        self.running.iter().map(|active| self.shortfall(active, steps)).sum()
    }

    /// Retracts until the running batch can grow by a token.
    pub(super) fn make_running_fit(&mut self, cx: Cx<'_>) {
        while self.growth(1) > self.pool.available() {
            if self.trims_under_pressure() && self.trim_session(cx.now, None, DropReason::Pressure).is_some() {
                continue;
            }
            let victim = (0..self.running.len())
                .min_by_key(|&at| {
                    let active = &self.running[at];
                    (active.generated, std::cmp::Reverse(active.job.input_tokens), active.job.request)
                })
                .expect("a batch that lacks room has a request");
            let mut active = self.running.remove(victim);
            self.take_memory(cx, &mut active);
            active.retractions += 1;
            self.stats.retractions += 1;
            self.retracted.push_back(active);
        }
    }

    /// Decode: takes up retracted requests whose KV has room again; it is loaded back from host memory meanwhile.
    /// Returns when the loop is free again.
    pub(super) fn resume_retracted(&mut self, cx: Cx<'_>, mut free_at: Time) -> Time {
        while self.id.role == Role::Decode && self.slots_left() > 0 {
            let Some(mut active) = self.retracted.pop_front() else { break };
            if !self.give_memory(cx, &mut active) {
                self.retracted.push_front(active);
                break;
            }
            free_at = free_at + self.reload_time(active.context());
            self.running.push(active);
        }
        free_at
    }

    /// Decode legs in order of arrival, as long as there is room; requests to sessions go first.
    pub(super) fn reserve_decode_legs(&mut self, cx: Cx<'_>) {
        while self.waiting.is_empty() && self.retracted.is_empty() {
            let Some(job) = self.unreserved.pop_front() else { break };
            let mut active = self.activate(cx, job);
            if !self.give_memory(cx, &mut active) {
                let job = self.deactivate(cx, active);
                self.unreserved.push_front(job);
                break;
            }
            let (request, tokens) = (active.job.request, active.todo);
            self.stats.cached_tokens += u64::from(active.cached);
            self.reserved.insert(request, active);
            self.emit(cx.now, Output::Reserved { request, tokens });
        }
    }

    /// Decode legs whose KV is there enter the batch; the first token came with the KV and is sent now.
    pub(super) fn join_ready(&mut self, cx: Cx<'_>, at: Time) {
        while self.slots_left() > 0 {
            let Some(mut active) = self.ready.pop_front() else { break };
            active.take(TokenRun { first: at, step: Dur::ZERO, count: 1 }, at);
            self.stats.output_tokens += 1;
            self.tell(at, active.progress());
            if active.remaining() == 0 {
                self.finish(cx, at, active);
            } else {
                self.running.push(active);
            }
        }
    }

    /// With its cached prefix locked, or its session's tokens counted; holds no new memory yet.
    pub(super) fn activate(&mut self, cx: Cx<'_>, job: Job) -> Active {
        if job.session.is_some() && job.shipped_tokens < job.input_tokens {
            let todo = job.shipped_tokens.max(1);
            let cached = job.input_tokens - todo;
            let mut active = Active::new(job, cached, todo);
            let session = active.job.session.and_then(|session| self.sessions.get(session));
            active.reserved = session.map_or(0, |slot| std::mem::take(&mut slot.reserved));
            return active;
        }
        let mut active = Active::new(job, 0, 0);
        self.lock_prefix(cx, &mut active);
        active
    }

    /// Back to the queue it came from.
    pub(super) fn deactivate(&mut self, cx: Cx<'_>, active: Active) -> Job {
        self.pool.unlock(cx.tree, active.lock);
        match active.job.session.and_then(|session| self.sessions.get(session)) {
            Some(slot) => slot.reserved += active.reserved,
            None => debug_assert_eq!(active.reserved, 0),
        }
        active.job
    }

    /// Reserves what it needs up to its next token, if everybody else can still grow beside it.
    pub(super) fn give_memory(&mut self, cx: Cx<'_>, active: &mut Active) -> bool {
        let wanted = self.shortfall(active, 1);
        let beside = self.headroom() + self.shortfall(active, self.config.reserved_decode_tokens.max(1)) - wanted;
        // Alone it needs no head start: it can grow into all that is free.
        let alone = self.running.is_empty() && self.prefilling.is_empty() && self.reserved.is_empty();
        let needed = wanted + if alone { 0 } else { beside };
        let but = active.job.session;
        while needed > self.pool.available() {
            if !(self.trims_under_pressure() && self.trim_session(cx.now, but, DropReason::Pressure).is_some()) {
                return false;
            }
        }
        let reserved = self.pool.reserve(cx.tree, wanted);
        assert!(reserved, "{} tokens were available", wanted);
        active.reserved += wanted;
        true
    }

    /// Gives all its memory back and forgets what was computed.
    fn take_memory(&mut self, cx: Cx<'_>, active: &mut Active) {
        self.pool.release(std::mem::take(&mut active.reserved));
        self.pool.unlock(cx.tree, active.lock);
        active.lock = crate::kv::BlockPath::EMPTY;
    }

    /// Frees a request's memory for good.
    pub(super) fn free(&mut self, cx: Cx<'_>, mut active: Active) {
        self.take_memory(cx, &mut active);
    }

    /// Nothing runs and the head of a queue does not fit: it never will, so it is given up. False when something else
    /// will free memory, or nothing waits.
    pub(super) fn break_deadlock(&mut self, cx: Cx<'_>) -> bool {
        if !(self.reserved.is_empty() && self.sending.is_empty() && self.hung.is_empty()) {
            return false;
        }
        let active = match self.retracted.pop_front() {
            Some(active) => active,
            None => match self.waiting.pop_front() {
                Some(job) => Active::new(job, 0, 0),
                None => return false,
            },
        };
        let message = format!(
            "out of KV memory on {}: {} of {} tokens are held",
            self.id,
            self.pool.used(),
            self.pool.capacity()
        );
        let session = active.job.session;
        let done = active.into_done(Finish::Abort { class: ErrorClass::Overloaded, message }, 503);
        self.emit(cx.now, Output::Done(Box::new(done)));
        self.release_session(cx.now, session, None);
        true
    }

    /// Requests that may still join the batch.
    pub(super) fn slots_left(&self) -> usize {
        (self.config.max_running as usize).saturating_sub(self.running.len() + self.prefilling.len())
    }

    /// Locks what is cached of the prompt (all but its last token, which must be computed) and sets what is to do.
    pub(super) fn lock_prefix(&mut self, cx: Cx<'_>, active: &mut Active) {
        if self.caches() && active.job.session.is_none() {
            let most = (active.job.input_tokens - 1) / self.block_size;
            active.lock = self.pool.lock_prefix(cx.tree, cx.tree.truncate(active.job.prompt, most));
        }
        let locked = active.lock.depth * self.block_size;
        active.loaded = self.copied_behind(cx, active);
        if active.retractions == 0 {
            active.cached = locked + active.loaded;
        }
        (active.computed, active.todo) = (0, active.context() as u32 - locked - active.loaded);
    }

    /// Tokens behind the locked prefix that have copies in host memory.
    fn copied_behind(&mut self, cx: Cx<'_>, active: &Active) -> u32 {
        let Some(host) = self.host.as_mut().filter(|_| active.job.session.is_none()) else { return 0 };
        let most = (active.job.input_tokens - 1) / self.block_size;
        let copied = host.lookup(cx.tree, cx.tree.truncate(active.job.prompt, most));
        copied.depth.saturating_sub(active.lock.depth) * self.block_size
    }

    /// The next iteration loads so many tokens back from host memory.
    pub(super) fn load_back(&mut self, tokens: u32) {
        if tokens > 0 {
            self.stats.host_loaded_tokens += u64::from(tokens);
            self.loading += self.reload_time(tokens.into());
        }
    }

    /// Tokens beyond its reservation for `tokens` more, at most as many as it still wants.
    fn shortfall(&self, active: &Active, tokens: u32) -> u64 {
        let more = u64::from(tokens.min(active.remaining()));
        self.pool.paged(active.private(self.block_size) + more).saturating_sub(active.reserved)
    }

    /// Tokens that everything let in may still claim.
    fn headroom(&self) -> u64 {
        let tokens = self.config.reserved_decode_tokens.max(1);
        let in_prefill = self.prefilling.iter().map(|(active, _)| active);
        let inside = self.running.iter().chain(self.reserved.values()).chain(&self.ready).chain(in_prefill);
        if self.id.role == Role::Prefill { 0 } else { inside.map(|active| self.shortfall(active, tokens)).sum() }
    }

    fn reload_time(&self, tokens: u64) -> Dur {
        let seconds =
            (tokens * self.config.kv_bytes_per_token) as f64 / (self.config.retract_reload_gbytes_per_s * 1e9);
        Dur::from_secs_f64(seconds).unwrap_or(Dur::ZERO)
    }
}
