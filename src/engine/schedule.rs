//! The start of an iteration: who is in it, how long it takes.

use crate::base::{Role, Time};
use crate::engine::cost::{Batch, PrefillPart};
use crate::engine::message::Cx;
use crate::engine::worker::{Step, Worker};

impl Worker {
    /// At a boundary, or idle: reads the inbox, shares out memory, starts the next iteration if there is work.
    pub(super) fn start(&mut self, cx: Cx<'_>) {
        debug_assert!(self.step.is_none(), "one iteration at a time");
        self.cost.set_slow_factor(self.slow_factor);
        let free_at = self.read_inbox(cx);
        if let Some(host) = &mut self.host {
            host.confirm(cx.tree, cx.now);
        }
        self.expire_sessions(cx.now);
        loop {
            self.join_ready(cx, free_at);
            self.make_running_fit(cx);
            let starts = self.resume_retracted(cx, free_at);
            self.admit_prefills(cx, starts);
            self.reserve_decode_legs(cx);
            self.step = self.next_step(starts);
            if self.step.is_some() || !self.break_deadlock(cx) {
                break;
            }
        }
        if self.step.is_none() && free_at > cx.now {
            self.step = Some(Step::Control { ends: free_at });
        }
        self.meter(cx.now);
    }

    /// Gives out the chunk budget: what is in prefill first, then retracted requests, then the queue in order of arrival.
    fn admit_prefills(&mut self, cx: Cx<'_>, at: Time) {
        let mut budget = self.config.chunk_tokens;
        for (active, chunk) in &mut self.prefilling {
            *chunk = (active.todo - active.computed).min(budget);
            budget -= *chunk;
        }
        while budget > 0 && self.slots_left() > 0 {
            let again = if self.id.role == Role::Colocated { self.retracted.pop_front() } else { None };
            let resumed = again.is_some();
            let mut active = match again {
                Some(mut active) => {
                    self.lock_prefix(cx, &mut active);
                    active
                }
                None => match self.waiting.pop_front() {
                    Some(job) => self.activate(cx, job),
                    None => break,
                },
            };
            if !self.give_memory(cx, &mut active) {
                if resumed {
                    self.pool.unlock(cx.tree, std::mem::replace(&mut active.lock, crate::kv::BlockPath::EMPTY));
                    self.retracted.push_front(active);
                } else {
                    let job = self.deactivate(cx, active);
                    self.waiting.push_front(job);
                }
                break;
            }
            active.prefill_started.get_or_insert(at);
            self.load_back(active.loaded);
            self.stats.cached_tokens += u64::from(active.job.input_tokens.saturating_sub(active.todo));
            let chunk = active.todo.min(budget);
            budget -= chunk;
            self.prefilling.push((active, chunk));
        }
    }

    fn next_step(&mut self, started: Time) -> Option<Step> {
        let batch = Batch {
            requests: self.running.len() as u32,
            context_tokens: self.running.iter().map(|active| active.context()).sum(),
        };
        let parts: Vec<PrefillPart> = self
            .prefilling
            .iter()
            .filter(|(_, chunk)| *chunk > 0)
            .map(|(active, chunk)| PrefillPart {
                new_tokens: *chunk,
                context_tokens: active.context() as u32 - active.todo + active.computed,
            })
            .collect();
        if !parts.is_empty() {
            let loading = std::mem::take(&mut self.loading);
            return Some(Step::Mixed { started, ends: started + loading + self.cost.mixed(&parts, batch).dur() });
        }
        let until_first_ends = self.running.iter().map(|active| active.remaining()).min()?;
        let until_first_ends = if self.streams { 1 } else { until_first_ends };
        let steps = self.steps_with_room(until_first_ends);
        Some(Step::Decode { started, ends: started + self.cost.decode(batch, steps).dur(), batch, steps })
    }

    /// The most steps up to `limit` that the batch has room for; one always has.
    fn steps_with_room(&self, limit: u32) -> u32 {
        let available = self.pool.available();
        let (mut fits, mut beyond) = (1, limit + 1);
        if self.growth(limit) <= available {
            return limit;
        }
        while beyond - fits > 1 {
            let middle = fits + (beyond - fits) / 2;
            if self.growth(middle) <= available {
                fits = middle;
            } else {
                beyond = middle;
            }
        }
        fits
    }
}
