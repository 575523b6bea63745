//! [`Worker`]: the scheduler loop of one engine, as a machine told the time.
//!
//! A worker lives from iteration to iteration. Whatever reaches it waits in the inbox until the running iteration ends,
//! as in a real scheduler loop; then the effects of the iteration are booked (`finish.rs`), the inbox is read
//! (`control.rs`), memory is shared out (`memory.rs`) and the next iteration starts (`schedule.rs`). Decode iterations
//! of an unchanging batch are taken as one macro-step, cut at the boundary after an arrival.
//! Invariants: every job ends in exactly one [`Output::Done`], [`Output::Silent`] or abort; a worker that can do
//! something has a step under way; times of outputs are never in the past.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::base::{Dur, RequestIx, Role, Time, WorkerId};
use crate::engine::cost::{Batch, CostModel};
use crate::engine::host::HostTier;
use crate::engine::job::{Active, Done, Job};
use crate::engine::message::{Cx, Input, Output};
use crate::engine::pool::KvPool;
use crate::engine::sessions::SessionStore;
use crate::engine::stats::WorkerStats;
use crate::engine::{EngineConfig, SessionTrim};
use crate::protocol::LoadReport;

/// Iterations under way.
#[derive(Debug)]
pub(super) enum Step {
    /// Prefill chunks (in `Worker::prefilling`) and one token for each running request.
    Mixed { started: Time, ends: Time },
    /// `steps` decode iterations.
    Decode { started: Time, ends: Time, batch: Batch, steps: u32 },
    /// Only control calls kept the loop busy.
    Control { ends: Time },
}

/// See the module.
#[derive(Debug)]
pub struct Worker {
    pub(super) id: WorkerId,
    pub(super) incarnation: u32,
    pub(super) config: EngineConfig,
    pub(super) cost: CostModel,
    pub(super) pool: KvPool,
    /// Copies in host memory, on workers that keep any.
    pub(super) host: Option<HostTier>,
    pub(super) block_size: u32,
    pub(super) sessions: SessionStore,
    pub(super) inbox: VecDeque<Input>,
    /// To be prefilled here.
    pub(super) waiting: VecDeque<Job>,
    /// Decode legs that wait for room.
    pub(super) unreserved: VecDeque<Job>,
    /// Decode legs with room, waiting for their KV.
    pub(super) reserved: BTreeMap<RequestIx, Active>,
    /// Decode legs whose KV is there.
    pub(super) ready: VecDeque<Active>,
    /// Thrown out for lack of room, to be taken up again.
    pub(super) retracted: VecDeque<Active>,
    /// In prefill, with the tokens of the current chunk.
    pub(super) prefilling: Vec<(Active, u32)>,
    pub(super) running: Vec<Active>,
    /// Prefill: KV computed, not sent yet.
    pub(super) sending: BTreeMap<RequestIx, Active>,
    /// Requests whose KV is on the link of this worker.
    pub(super) moving: BTreeSet<RequestIx>,
    /// Streams that a fault made quiet.
    pub(super) hung: BTreeMap<RequestIx, Active>,
    pub(super) step: Option<Step>,
    /// Time the next iteration spends on loading copies back from host memory.
    pub(super) loading: Dur,
    pub(super) outputs: VecDeque<(Time, Output)>,
    pub(super) stats: WorkerStats,
    /// Slow-down from the next iteration on.
    pub(super) slow_factor: f64,
    /// Tells of tokens as they leave.
    pub(super) streams: bool,
}

/// What a worker that dies leaves behind.
#[derive(Debug)]
pub struct Crash {
    /// Requests inside, with what their clients had received.
    pub requests: Vec<Done>,
    /// Open and admission calls nobody will answer.
    pub calls: Vec<Input>,
    /// Counters.
    pub stats: WorkerStats,
}

impl Worker {
    /// A cold worker. `incarnation` tells processes at one address apart.
    pub fn new(id: WorkerId, incarnation: u32, config: &EngineConfig, block_size: u32) -> Worker {
        Worker {
            id,
            incarnation,
            cost: CostModel::new(&config.timing, config.max_running),
            pool: KvPool::new(config.kv_pool_tokens, config.page_size, block_size),
            host: host_tier(id.role, config, block_size),
            loading: Dur::ZERO,
            config: config.clone(),
            block_size,
            sessions: SessionStore::default(),
            inbox: VecDeque::new(),
            waiting: VecDeque::new(),
            unreserved: VecDeque::new(),
            reserved: BTreeMap::new(),
            ready: VecDeque::new(),
            retracted: VecDeque::new(),
            prefilling: Vec::new(),
            running: Vec::new(),
            sending: BTreeMap::new(),
            moving: BTreeSet::new(),
            hung: BTreeMap::new(),
            step: None,
            outputs: VecDeque::new(),
            stats: WorkerStats::default(),
            slow_factor: 1.0,
            streams: false,
        }
    }

    /// Takes something in; it is read when the iteration under way ends.
    pub fn handle_input(&mut self, cx: Cx<'_>, input: Input) {
        if let Input::KvArrived(request) | Input::KvSent(request) | Input::Abort(request) = &input {
            self.moving.remove(request);
            self.meter_link(cx.now);
        }
        self.inbox.push_back(input);
        match self.step {
            None => self.start(cx),
            Some(_) => self.cut_step(cx.now),
        }
    }

    /// Call at the time of [`Worker::poll_timeout`].
    pub fn handle_timeout(&mut self, cx: Cx<'_>) {
        match self.step.take() {
            Some(step) if step.ends() > cx.now => {
                self.step = Some(step);
                return;
            }
            Some(step) => self.finish_step(cx, step),
            None => {}
        }
        self.start(cx);
    }

    /// When [`Worker::handle_timeout`] wants to be called.
    pub fn poll_timeout(&self) -> Option<Time> {
        match &self.step {
            Some(step) => Some(step.ends()),
            None => self.sessions.next_expiry().into_iter().chain(self.host.as_ref().and_then(HostTier::next)).min(),
        }
    }

    /// The next output and when it leaves: now, or after control calls of this boundary.
    pub fn poll_output(&mut self) -> Option<(Time, Output)> {
        self.outputs.pop_front()
    }

    /// The KV of a request has begun to move over this worker's link; it has ended with [`Input::KvSent`],
    /// [`Input::KvArrived`] or [`Input::Abort`]. The loop does not hear of it.
    pub fn kv_moves(&mut self, now: Time, request: RequestIx) {
        self.moving.insert(request);
        self.meter_link(now);
    }

    /// Makes the worker `factor` times slower (1 is normal) from its next iteration on.
    pub fn set_slow_factor(&mut self, now: Time, factor: f64) {
        self.slow_factor = factor;
        self.cut_step(now);
    }

    /// The worker dies at `now`.
    pub fn crash(mut self, now: Time) -> Crash {
        self.cut_tokens(now);
        let message = format!("{} died with the request inside", self.id);
        let lost = || crate::protocol::Finish::Error {
            class: crate::protocol::ErrorClass::WorkerLost,
            message: message.clone(),
        };
        let mut done: Vec<Done> = Vec::new();
        done.extend(self.waiting.iter().chain(&self.unreserved).map(|job| Done::refused(job, lost(), 502)));
        let mut calls = Vec::new();
        for input in self.inbox {
            match input {
                Input::Generate(job) | Input::Reserve(job) => done.push(Done::refused(&job, lost(), 502)),
                Input::Open { .. } | Input::Admit { .. } => calls.push(input),
                Input::KvArrived(_) | Input::KvSent(_) | Input::Abort(_) | Input::Close(_) => {}
            }
        }
        let holding = [self.reserved, self.sending, self.hung].into_iter().flat_map(BTreeMap::into_values);
        let queued = self.ready.into_iter().chain(self.retracted).chain(self.running);
        let prefilling = self.prefilling.into_iter().map(|(active, _)| active);
        done.extend(holding.chain(queued).chain(prefilling).map(|mut active| {
            active.lose_unsent(now);
            active.into_done(lost(), 502)
        }));
        self.stats.usage.set(now, 0);
        for meter in [&mut self.stats.link, &mut self.stats.stalled_by_link, &mut self.stats.stalled_by_room] {
            meter.set(now, false);
        }
        Crash { requests: done, calls, stats: self.stats }
    }

    /// Which worker it is.
    pub fn id(&self) -> WorkerId {
        self.id
    }

    /// What `/v1/loads` says.
    pub fn load(&self) -> LoadReport {
        LoadReport {
            worker: self.id,
            token_usage: self.pool.used() as f64 / self.pool.capacity() as f64,
            capacity_tokens: self.pool.capacity(),
            num_running: (self.running.len() + self.prefilling.len()) as u32,
            num_waiting: (self.waiting.len() + self.retracted.len()) as u32,
            num_prealloc: self.unreserved.len() as u32,
            num_transfer: (self.reserved.len() + self.ready.len()) as u32,
        }
    }

    /// Counters so far.
    pub fn stats(&self) -> &WorkerStats {
        &self.stats
    }

    /// Tokens evicted from the prefix cache so far.
    pub fn evicted_tokens(&self) -> u64 {
        self.pool.evicted()
    }

    /// Most sessions open at once so far.
    pub fn sessions_peak(&self) -> u64 {
        self.sessions.peak()
    }

    /// Requests inside, wherever.
    #[cfg(test)]
    pub fn load_count(&self) -> usize {
        self.queue_len() + self.running.len() + self.prefilling.len() + self.sending.len() + self.hung.len()
    }

    /// Ends a macro-step at its next iteration boundary.
    fn cut_step(&mut self, now: Time) {
        let Some(Step::Decode { started, ends, batch, steps }) = &mut self.step else { return };
        let elapsed = now.since(*started);
        let done = self.cost.decode_steps_within(*batch, elapsed, *steps);
        let on_boundary = done > 0 && self.cost.decode(*batch, done).dur() == elapsed;
        let cut = if on_boundary { done } else { done + 1 };
        if cut < *steps {
            *steps = cut;
            *ends = *started + self.cost.decode(*batch, cut).dur();
        }
    }

    pub(super) fn queue_len(&self) -> usize {
        self.waiting.len() + self.unreserved.len() + self.reserved.len() + self.ready.len() + self.retracted.len()
    }

    /// The worker keeps transferred and finished prompts in its prefix cache.
    pub(super) fn caches(&self) -> bool {
        self.id.role != Role::Decode || self.config.decode_radix_cache
    }

    pub(super) fn session_timeout(&self) -> Option<Dur> {
        Dur::from_secs_f64(self.config.session_idle_timeout_s).filter(|timeout| *timeout > Dur::ZERO)
    }

    pub(super) fn trims_under_pressure(&self) -> bool {
        self.config.session_trim == SessionTrim::Pressure
    }

    pub(super) fn emit(&mut self, at: Time, output: Output) {
        self.outputs.push_back((at, output));
    }

    pub(super) fn meter(&mut self, now: Time) {
        self.stats.usage.set(now, self.pool.used());
        self.stats.queue_peak = self.stats.queue_peak.max(self.queue_len() as u64);
        self.meter_link(now);
    }

    fn meter_link(&mut self, now: Time) {
        let moves = !self.moving.is_empty();
        // Memory is shared out at every boundary: a prompt that still waits found no room.
        let stalled = self.step.is_none() && !self.waiting.is_empty() && !self.sending.is_empty();
        self.stats.link.set(now, moves);
        self.stats.stalled_by_link.set(now, stalled && moves);
        self.stats.stalled_by_room.set(now, stalled && !moves);
    }
}

fn host_tier(role: Role, config: &EngineConfig, block_size: u32) -> Option<HostTier> {
    let blocks = config.host_pool_tokens / u64::from(block_size);
    let delay = Dur::from_secs_f64(config.host_store_ms / 1e3).unwrap_or(Dur::ZERO);
    (blocks > 0 && role != Role::Decode).then(|| HostTier::new(blocks, delay))
}

impl Step {
    pub(super) fn ends(&self) -> Time {
        match self {
            Step::Mixed { ends, .. } | Step::Decode { ends, .. } | Step::Control { ends } => *ends,
        }
    }
}
