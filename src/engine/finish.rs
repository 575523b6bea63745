//! The end of an iteration: tokens booked, memory grown, prefills completed, requests finished.

use crate::base::{Dur, RequestIx, Role, Time};
use crate::engine::job::{Active, Done};
use crate::engine::message::{Cx, Output};
use crate::engine::worker::{Step, Worker};
use crate::kv::BlockPath;
use crate::protocol::{Finish, TokenRun};

impl Worker {
    pub(super) fn finish_step(&mut self, cx: Cx<'_>, step: Step) {
        match step {
            Step::Decode { started, ends, batch, steps } => {
                self.stats.busy += ends - started;
                let first = started + self.cost.decode(batch, 1).dur();
                self.book_tokens(cx, token_run(first, ends, steps), ends);
            }
            Step::Mixed { started, ends } => {
                self.stats.busy += ends - started;
                self.book_tokens(cx, token_run(ends, ends, 1), ends);
                self.advance_prefills(cx, ends);
            }
            Step::Control { .. } => {}
        }
    }

    /// The tokens that the iteration under way has sent every running request by `now`, and when the last of them left.
    fn partial_tokens(&self, now: Time) -> Option<(TokenRun, Time)> {
        let Some(Step::Decode { started, batch, steps, .. }) = self.step else { return None };
        let done = self.cost.decode_steps_within(batch, now.since(started), steps);
        let first = started + self.cost.decode(batch, 1).dur();
        let last = started + self.cost.decode(batch, done).dur();
        (done > 0).then(|| (token_run(first, last, done), last))
    }

    /// The worker dies at `now`: books the tokens that the iteration under way has sent by then.
    pub(super) fn cut_tokens(&mut self, now: Time) {
        let Some((run, last)) = self.partial_tokens(now) else { return };
        self.running.iter_mut().for_each(|active| active.take(run, last));
    }

    /// What has left for a request inside by `now`, as if it ended now; `None` when it holds no memory here.
    pub fn sent_so_far(&self, request: RequestIx, now: Time) -> Option<Done> {
        let is = |active: &&Active| active.job.request == request;
        let waiting = self.reserved.values().chain(self.hung.values()).chain(&self.ready).chain(&self.retracted);
        let prefilling = self.prefilling.iter().map(|(active, _)| active);
        let running = self.running.iter().find(is);
        let mut active = running.or_else(|| waiting.chain(prefilling).find(is))?.clone();
        if let Some((run, last)) = running.and_then(|_| self.partial_tokens(now)) {
            active.take(run, last);
        }
        active.lose_unsent(now);
        Some(active.into_done(Finish::given_up(), 200))
    }

    /// `run.count` tokens for every running request; those that have all leave the batch.
    fn book_tokens(&mut self, cx: Cx<'_>, run: TokenRun, last: Time) {
        self.stats.output_tokens += u64::from(run.count) * self.running.len() as u64;
        for at in 0..self.running.len() {
            self.running[at].take(run, last);
            let wanted = self.pool.paged(self.running[at].private(self.block_size));
            let more = wanted.saturating_sub(self.running[at].reserved);
            let grown = self.pool.reserve(cx.tree, more);
            assert!(grown, "{}: the iteration was cut to the room there was", self.id);
            self.running[at].reserved += more;
        }
        for at in 0..self.running.len() {
            self.tell(last, self.running[at].progress());
        }
        if self.running.iter().any(|active| active.remaining() == 0) {
            let (ended, running) =
                std::mem::take(&mut self.running).into_iter().partition(|active| active.remaining() == 0);
            self.running = running;
            let ended: Vec<Active> = ended;
            for active in ended {
                self.finish(cx, last, active);
            }
        }
    }

    fn advance_prefills(&mut self, cx: Cx<'_>, now: Time) {
        for (mut active, chunk) in std::mem::take(&mut self.prefilling) {
            active.computed += chunk;
            self.stats.prefilled_tokens += u64::from(chunk);
            if active.computed < active.todo {
                self.prefilling.push((active, 0));
            } else {
                self.complete_prefill(cx, now, active);
            }
        }
    }

    fn complete_prefill(&mut self, cx: Cx<'_>, now: Time, mut active: Active) {
        active.prefill_ended.get_or_insert(now);
        if self.id.role != Role::Prefill {
            active.take(TokenRun { first: now, step: Dur::ZERO, count: 1 }, now);
            self.stats.output_tokens += 1;
            self.tell(now, active.progress());
        }
        if self.caches() && active.job.session.is_none() {
            let behind = active.context() - u64::from(active.job.prompt.depth) * u64::from(self.block_size);
            let turned = (active.lock, active.job.prompt);
            active.reserved = self.pool.cache_reserved(cx.tree, turned, active.reserved, behind);
            active.lock = active.job.prompt;
            self.copy_to_host(now, active.job.prompt);
        }
        if self.id.role == Role::Prefill {
            let (request, cached_tokens, arrived) = (active.job.request, active.cached, active.job.arrived);
            let started = active.prefill_started.unwrap_or(now);
            self.emit(now, Output::Prefilled { request, cached_tokens, arrived, started });
            self.sending.insert(request, active);
        } else if active.remaining() == 0 {
            self.finish(cx, now, active);
        } else {
            self.running.push(active);
        }
    }

    fn copy_to_host(&mut self, now: Time, path: BlockPath) {
        if let Some(host) = &mut self.host {
            host.store(now, path);
        }
    }

    /// All tokens are sent: the KV goes to the session or the cache, the rest is free again.
    pub(super) fn finish(&mut self, cx: Cx<'_>, now: Time, mut active: Active) {
        let request = active.job.request;
        if active.job.hang_after.is_some_and(|after| active.generated >= after) {
            let since = active.last_token.unwrap_or(now);
            self.emit(now, Output::Silent { request, since, output_tokens: active.generated });
            self.hung.insert(request, active);
            return;
        }
        if active.job.session.is_some() {
            let kept = (active.context(), active.reserved);
            self.pool.unlock(cx.tree, active.lock);
            self.release_session(now, active.job.session, Some(kept));
        } else if self.caches() {
            let turned = (active.lock, active.job.context);
            active.reserved = self.pool.cache_reserved(cx.tree, turned, active.reserved, 0);
            self.pool.unlock(cx.tree, active.job.context);
            self.copy_to_host(now, active.job.context);
        } else {
            self.pool.release(active.reserved);
        }
        self.emit(now, Output::Done(Box::new(active.into_done(Finish::Length, 200))));
    }
}

/// `count` tokens evenly from `first` to `last`.
fn token_run(first: Time, last: Time, count: u32) -> TokenRun {
    let gaps = u64::from(count.saturating_sub(1)).max(1);
    TokenRun { first, step: Dur((last - first).ns() / gaps), count }
}
