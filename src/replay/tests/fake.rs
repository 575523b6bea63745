//! A tiny cluster: every answer after a fixed delay, sessions really held, faults on demand.

use std::collections::{BTreeMap, BTreeSet};

use crate::admission::AdmissionConfig;
use crate::base::{Dur, RequestIx, Rng, Role, SessionIx, Time, WorkerId};
use crate::kv::{BlockPath, BlockTree, PrefixLookup};
use crate::policies::{HeaderMode, PolicyConfig, PolicyName};
use crate::protocol::{
    Action, AdmitAnswer, AdmitAsk, AdmitKind, AdmitReason, Answer, CallError, ErrorClass, Event, Finish, Generate,
    LoadReport, Phases, Route, RoutingHeader, TokenRun, WorkerState,
};
use crate::record::{LedgerEvent, LedgerKind, RequestRecord};
use crate::replay::{IndexWatch, NoIndex, ReplayConfig, ReplayFacts, Replayer, ReplayerConfig};
use crate::trace::{SessionTrace, Trace, TraceMeta, TurnTrace};

pub fn secs(s: f64) -> Time {
    Time::ZERO + Dur::from_secs_f64(s).unwrap()
}

pub fn dur(s: f64) -> Dur {
    Dur::from_secs_f64(s).unwrap()
}

/// One turn: number, timestamp in seconds, prompt tokens, answer tokens.
pub type Row = (u32, f64, u32, u32);

/// A trace of block size 64; a turn extends its predecessor when its prompt is longer than what that one left.
pub fn trace(sessions: &[(&str, Vec<Row>)]) -> Trace {
    let mut tree = BlockTree::new(64);
    let (mut all, mut turns) = (Vec::new(), Vec::new());
    for ((id, rows), ix) in sessions.iter().zip(0u32..) {
        let start = turns.len() as u32;
        let mut epoch = 0u64;
        for (at, row) in rows.iter().enumerate() {
            let held = at.checked_sub(1).map(|before| rows[before].2 + rows[before].3);
            let extends = held.is_some_and(|held| row.2 > held);
            epoch += u64::from(at > 0 && !extends);
            let ids = |tokens: u32| -> Vec<u64> {
                (0..u64::from(tokens / 64)).map(|k| u64::from(ix) << 32 | epoch << 20 | k).collect()
            };
            let prompt = tree.insert(&ids(row.2), BlockPath::EMPTY);
            let context = tree.insert(&ids(row.2 + row.3), prompt);
            turns.push(TurnTrace {
                session: SessionIx(ix),
                turn_id: row.0,
                line: turns.len() as u32 + 1,
                request_id: None,
                timestamp: dur(row.1),
                input_length: row.2,
                output_length: row.3,
                cached_tokens: held.filter(|_| extends).unwrap_or(0),
                prompt,
                context,
                extends_previous: extends,
                output_raised: false,
            });
        }
        let turns = start..turns.len() as u32;
        all.push(SessionTrace { id: (*id).to_owned(), turns, incomplete: rows[0].0 > 1 });
    }
    let meta = TraceMeta {
        name: "fake".into(),
        source: "fake".into(),
        sha256: String::new(),
        format: "native".into(),
        timestamp_unit: "s".into(),
        block_size: 64,
        block_size_source: "header".into(),
        origin_ns: 0,
    };
    Trace { meta, sessions: all, turns, tree, notices: Vec::new() }
}

/// Prefill workers, which are always up and idle.
pub const PREFILLS: u16 = 2;

/// The report of a worker that does nothing.
pub fn idle(worker: WorkerId) -> LoadReport {
    LoadReport {
        worker,
        token_usage: 0.0,
        capacity_tokens: 1_000_000,
        num_running: 0,
        num_waiting: 0,
        num_prealloc: 0,
        num_transfer: 0,
    }
}

pub fn config(policy: PolicyName, workers: u16) -> ReplayerConfig {
    let replay = ReplayConfig::default();
    let header_mode = match policy {
        PolicyName::Default => HeaderMode::None,
        PolicyName::Sticky => HeaderMode::RoutingKey,
        PolicyName::KvAware | PolicyName::CacheAware => HeaderMode::TargetWorker,
        PolicyName::Car => HeaderMode::TargetLegs,
    };
    let prefills = (0..PREFILLS).map(|index| WorkerId::new(Role::Prefill, index));
    ReplayerConfig {
        run_id: "run".into(),
        seed: 1,
        replay,
        policy: PolicyConfig { name: policy, ..PolicyConfig::default() },
        admission: AdmissionConfig { cap_max: 16, ..AdmissionConfig::default() },
        workers: prefills.chain((0..workers).map(|index| WorkerId::new(Role::Decode, index))).collect(),
        initial_loads: Vec::new(),
        index: IndexWatch { after: dur(5.0), require: false },
        kv_pool_tokens: 83_000,
        session_idle_timeout: None,
        header_mode,
        router_round_robin: policy == PolicyName::Default,
    }
}

#[derive(Debug, Clone, Default)]
pub struct Held {
    pub last_used: Time,
    pub busy: bool,
    pub tokens: u64,
}

#[derive(Debug, Clone)]
pub struct Worker {
    pub up: bool,
    pub incarnation: u32,
    pub sessions: BTreeMap<SessionIx, Held>,
}

/// What goes wrong at a time.
#[derive(Debug, Clone, Copy)]
pub enum Fault {
    Restart(u16),
    Down(u16),
    Gone(u16),
    Join(u16),
    Up(u16),
}

#[derive(Debug)]
enum Due {
    Tell(Event),
    LastWord(Answer),
    Served(Generate, WorkerId, u32, Time),
    Strike(Fault),
}

/// See the module. Times are those of the replayer.
#[derive(Debug)]
pub struct Fake {
    pub role: Role,
    pub workers: Vec<Worker>,
    pub hop: Dur,
    pub service: Dur,
    pub capacity: u64,
    pub idle_drop: Option<Dur>,
    /// `(worker, times)`: opens refused.
    pub open_failures: BTreeMap<u16, u32>,
    /// Requests answered 500.
    pub failing: BTreeSet<RequestIx>,
    /// Requests that send one token after 40 ms, then nothing.
    pub hanging: BTreeSet<RequestIx>,
    /// Service times of single requests.
    pub slow: BTreeMap<RequestIx, Dur>,
    /// Refuse every append.
    pub refuse_appends: bool,
    /// Chance of a failure at every step.
    pub chaos: Option<(Rng, f64)>,
    pub discovery: Dur,
    pub served_by: BTreeMap<u16, u32>,
    /// What the replayer reads of a KV index.
    pub index: Option<Box<dyn PrefixLookup + Send>>,
    /// Prefill workers that tell no load.
    pub mute: BTreeSet<u16>,
    due: BTreeMap<(Time, u64), Due>,
    created: u64,
    counter: u64,
    map: BTreeMap<SessionIx, u16>,
    inside: BTreeMap<RequestIx, u16>,
    aborted: BTreeSet<RequestIx>,
    /// First and only token of those that hang.
    quiet: BTreeMap<RequestIx, Time>,
}

impl Fake {
    pub fn new(workers: u16, service_s: f64) -> Fake {
        let worker = Worker { up: true, incarnation: 0, sessions: BTreeMap::new() };
        Fake {
            role: Role::Decode,
            workers: vec![worker; usize::from(workers)],
            hop: Dur::ZERO,
            service: dur(service_s),
            capacity: 1_000_000,
            idle_drop: None,
            open_failures: BTreeMap::new(),
            failing: BTreeSet::new(),
            hanging: BTreeSet::new(),
            slow: BTreeMap::new(),
            refuse_appends: false,
            chaos: None,
            discovery: dur(1.0),
            served_by: BTreeMap::new(),
            index: None,
            mute: BTreeSet::new(),
            due: BTreeMap::new(),
            created: 0,
            counter: 0,
            map: BTreeMap::new(),
            inside: BTreeMap::new(),
            aborted: BTreeSet::new(),
            quiet: BTreeMap::new(),
        }
    }

    pub fn fault(mut self, at_s: f64, fault: Fault) -> Fake {
        self.at(secs(at_s), Due::Strike(fault));
        self
    }

    fn at(&mut self, at: Time, what: Due) {
        self.due.insert((at, self.created), what);
        self.created += 1;
    }

    fn tell(&mut self, at: Time, event: Event) {
        self.at(at, Due::Tell(event));
    }

    fn chance(&mut self) -> bool {
        self.chaos.as_mut().is_some_and(|(rng, share)| rng.f64() < *share)
    }

    pub fn next(&self) -> Option<Time> {
        self.due.first_key_value().map(|((at, _), _)| *at)
    }

    fn drop_idle(&mut self, now: Time) {
        let Some(limit) = self.idle_drop else { return };
        for worker in &mut self.workers {
            worker.sessions.retain(|_, held| held.busy || now.since(held.last_used) < limit);
        }
    }

    pub fn act(&mut self, now: Time, action: Action) {
        self.drop_idle(now);
        let back = now + self.hop + self.hop;
        match action {
            Action::OpenSession { call, worker, session } => {
                let refused = self.open_failures.get_mut(&worker.index).filter(|left| **left > 0);
                let refused = refused.map(|left| *left -= 1).is_some() || self.chance();
                let target = &mut self.workers[usize::from(worker.index)];
                let result = if refused || !target.up || target.sessions.contains_key(&session) {
                    Err(CallError { status: Some(503), message: "open refused".into() })
                } else {
                    target.sessions.insert(session, Held { last_used: now, ..Held::default() });
                    Ok(target.incarnation)
                };
                self.tell(back, Event::Opened { call, worker, result });
            }
            Action::CloseSession { worker, session } => {
                self.workers[usize::from(worker.index)].sessions.remove(&session);
            }
            Action::Admit { call, worker, ask } => {
                let result = if self.chance() || !self.workers[usize::from(worker.index)].up {
                    Err(CallError { status: None, message: "no answer".into() })
                } else {
                    Ok(self.admit(worker.index, ask))
                };
                self.tell(back, Event::Admission { call, worker, result });
            }
            Action::Abort { request } => {
                self.aborted.insert(request);
                let index = self.inside.remove(&request);
                let heard = self.quiet.get(&request).filter(|first| **first <= now).map(|first| Answer {
                    http_status: Some(200),
                    decode_worker: index.map(|index| WorkerId::new(self.role, index)),
                    output_tokens: 1,
                    first_token_at: Some(*first),
                    last_token_at: Some(*first),
                    token_runs: vec![TokenRun { first: *first, step: Dur::ZERO, count: 1 }],
                    ..Answer::unheard(request)
                });
                let heard = heard.unwrap_or_else(|| Answer::unheard(request));
                self.at(now, Due::LastWord(heard));
            }
            Action::PollLoads => {
                let reports = self.workers.iter().zip(0u16..).filter(|(worker, _)| worker.up);
                let reports = reports.map(|(worker, index)| LoadReport {
                    token_usage: used(worker) as f64 / self.capacity as f64,
                    capacity_tokens: self.capacity,
                    ..idle(WorkerId::new(self.role, index))
                });
                let telling = (0..PREFILLS).filter(|index| !self.mute.contains(index));
                let reports = reports.chain(telling.map(|index| idle(WorkerId::new(Role::Prefill, index))));
                let reports = reports.collect();
                self.tell(back, Event::Loads(reports));
            }
            Action::Generate(generate) => self.generate(now, generate),
        }
    }

    fn admit(&mut self, index: u16, ask: AdmitAsk) -> AdmitAnswer {
        let worker = &mut self.workers[usize::from(index)];
        let mut evicted = Vec::new();
        let need = u64::from(ask.append_tokens + ask.output_tokens);
        let found = worker.sessions.contains_key(&ask.session) || ask.kind == AdmitKind::Seed;
        let mut idle: Vec<_> = worker
            .sessions
            .iter()
            .filter(|(session, held)| !held.busy && **session != ask.session && held.tokens > 0)
            .map(|(session, held)| (held.last_used, *session))
            .collect();
        idle.sort();
        let mut idle = idle.into_iter();
        while found && used(worker) + need > self.capacity {
            let Some((_, session)) = idle.next() else { break };
            worker.sessions.remove(&session);
            evicted.push(session);
        }
        let fits = used(worker) + need <= self.capacity;
        let reason = match (found, fits && !self.refuse_appends, evicted.is_empty()) {
            (false, _, _) => AdmitReason::SessionNotFound,
            (true, false, _) => AdmitReason::NoCapacity,
            (true, true, true) => AdmitReason::Fits,
            (true, true, false) => AdmitReason::FitsAfterTrim,
        };
        let can_admit = reason == AdmitReason::Fits || reason == AdmitReason::FitsAfterTrim;
        AdmitAnswer {
            can_admit,
            reason,
            available_tokens: self.capacity.saturating_sub(used(worker)),
            capacity_tokens: self.capacity,
            evicted,
            incarnation: worker.incarnation,
        }
    }

    fn route(&mut self, generate: &Generate) -> Option<u16> {
        let up: Vec<u16> =
            (0u16..).zip(&self.workers).filter(|(_, worker)| worker.up).map(|(index, _)| index).collect();
        match generate.route {
            Route::Worker(worker) => Some(worker.index),
            Route::Router(RoutingHeader::TargetWorker(index) | RoutingHeader::TargetLegs { decode: index, .. }) => {
                up.contains(&index).then_some(index)
            }
            Route::Router(RoutingHeader::RoutingKey(session)) => {
                if let Some(bound) = self.map.get(&session).filter(|index| up.contains(index)) {
                    return Some(*bound);
                }
                let load = |index: &u16| self.inside.values().filter(|inside| *inside == index).count();
                let least = up.iter().map(load).min()?;
                let equal: Vec<u16> = up.iter().copied().filter(|index| load(index) == least).collect();
                let index = equal[(self.counter % equal.len() as u64) as usize];
                self.counter += 1;
                self.map.insert(session, index);
                Some(index)
            }
            Route::Router(RoutingHeader::None) => {
                let index = *up.get((self.counter % up.len().max(1) as u64) as usize)?;
                self.counter += 1;
                Some(index)
            }
        }
    }

    fn generate(&mut self, now: Time, generate: Generate) {
        let at = now + self.hop;
        let request = generate.request;
        let Some(index) = self.route(&generate) else {
            let finish = Finish::Error { class: ErrorClass::NoWorker, message: "no worker".into() };
            return self.finish(at, &generate, None, finish, 0, Dur::ZERO);
        };
        let worker = WorkerId::new(self.role, index);
        let target = &mut self.workers[usize::from(index)];
        if !target.up {
            let finish = Finish::Error { class: ErrorClass::WorkerLost, message: "connection refused".into() };
            return self.finish(at, &generate, Some(worker), finish, 0, Dur::ZERO);
        }
        *self.served_by.entry(index).or_default() += 1;
        self.inside.insert(request, index);
        if generate.session_params {
            match target.sessions.get_mut(&generate.session) {
                Some(held) if !held.busy => held.busy = true,
                Some(_) | None => {
                    let id = generate.session.0;
                    let message = format!("Invalid request: session id {id} does not exist");
                    let finish = Finish::Abort { class: ErrorClass::SessionNotFound, message };
                    return self.finish(at, &generate, Some(worker), finish, 1, Dur::from_millis(8));
                }
            }
        }
        if self.failing.contains(&request) || self.chance() {
            let finish = Finish::Error { class: ErrorClass::ServerError, message: "status 500".into() };
            self.workers[usize::from(index)].sessions.remove(&generate.session);
            return self.finish(at, &generate, Some(worker), finish, 0, Dur::from_millis(1));
        }
        if self.hanging.contains(&request) {
            let first = at + Dur::from_millis(40);
            self.quiet.insert(request, first);
            let silent = Event::Silent { request, since: first };
            return self.tell(first, silent);
        }
        let incarnation = self.workers[usize::from(index)].incarnation;
        let service = self.slow.get(&request).copied().unwrap_or(self.service);
        self.at(at + service, Due::Served(generate, worker, incarnation, at));
    }

    fn finish(
        &mut self,
        at: Time,
        generate: &Generate,
        worker: Option<WorkerId>,
        finish: Finish,
        tokens: u32,
        took: Dur,
    ) {
        let first = at + Dur(took.ns() / 2);
        let incarnation = worker.map(|worker| self.workers[usize::from(worker.index)].incarnation);
        let answer = Answer {
            request: generate.request,
            finish,
            http_status: Some(200),
            prefill_worker: match generate.route {
                Route::Router(RoutingHeader::TargetLegs { prefill, .. }) => Some(WorkerId::new(Role::Prefill, prefill)),
                Route::Router(_) | Route::Worker(_) => None,
            },
            decode_worker: worker,
            incarnation,
            cached_tokens: Some(0),
            output_tokens: tokens,
            first_token_at: (tokens > 0).then_some(first),
            last_token_at: (tokens > 0).then_some(at + took),
            phases: Phases::default(),
            retractions: 0,
            token_runs: vec![TokenRun { first, step: Dur::ZERO, count: tokens }],
            attempts: 1,
            retry_wait: Dur::ZERO,
        };
        self.tell(at + took + self.hop, Event::Finished(Box::new(answer)));
    }

    /// What happens first; the events to tell the replayer.
    pub fn step(&mut self) -> Option<Event> {
        let ((now, _), due) = self.due.pop_first()?;
        self.drop_idle(now);
        match due {
            Due::Tell(Event::Finished(answer)) if self.aborted.contains(&answer.request) => None,
            Due::LastWord(answer) => Some(Event::Finished(Box::new(answer))),
            Due::Tell(event) => {
                if let Event::Finished(answer) = &event {
                    self.inside.remove(&answer.request);
                }
                Some(event)
            }
            Due::Served(generate, worker, incarnation, began) => {
                let target = &mut self.workers[usize::from(worker.index)];
                if !target.up || target.incarnation != incarnation {
                    let finish = Finish::Error { class: ErrorClass::WorkerLost, message: "connection reset".into() };
                    self.finish(now, &generate, Some(worker), finish, 0, Dur::ZERO);
                    return None;
                }
                if let Some(held) = target.sessions.get_mut(&generate.session).filter(|_| generate.session_params) {
                    let tokens = u64::from(generate.input_tokens + generate.output_tokens);
                    *held = Held { last_used: now, busy: false, tokens };
                }
                let took = now.since(began);
                self.finish(began, &generate, Some(worker), Finish::Length, generate.output_tokens, took);
                None
            }
            Due::Strike(fault) => {
                self.strike(now, fault);
                None
            }
        }
    }

    fn strike(&mut self, now: Time, fault: Fault) {
        let (index, up) = match fault {
            Fault::Restart(index) | Fault::Up(index) | Fault::Join(index) => (index, true),
            Fault::Down(index) | Fault::Gone(index) => (index, false),
        };
        while self.workers.len() <= usize::from(index) {
            self.workers.push(Worker { up: false, incarnation: 0, sessions: BTreeMap::new() });
        }
        let worker = &mut self.workers[usize::from(index)];
        if matches!(fault, Fault::Restart(_)) {
            worker.incarnation += 1;
            worker.sessions.clear();
        }
        worker.up = up;
        let incarnation = worker.incarnation;
        let state = match fault {
            Fault::Restart(_) | Fault::Up(_) | Fault::Join(_) => WorkerState::Up { incarnation },
            Fault::Down(_) => WorkerState::Down,
            Fault::Gone(_) => WorkerState::Gone,
        };
        let worker = WorkerId::new(self.role, index);
        self.tell(now + self.discovery, Event::WorkerChanged { worker, state });
    }
}

fn used(worker: &Worker) -> u64 {
    worker.sessions.values().map(|held| held.tokens).sum()
}

/// What a run left.
#[derive(Debug)]
pub struct Run {
    pub records: Vec<RequestRecord>,
    pub ledger: Vec<LedgerEvent>,
    pub actions: Vec<Action>,
    pub facts: ReplayFacts,
    pub end: Time,
    pub fake: Fake,
    pub no_index: Option<NoIndex>,
}

impl Run {
    /// The record of a turn.
    pub fn of(&self, session: &str, turn: u32) -> &RequestRecord {
        self.records.iter().find(|r| r.session_id == session && r.turn_id == turn).expect("a record of the turn")
    }

    pub fn modes(&self, session: &str) -> Vec<&'static str> {
        let mut own: Vec<_> = self.records.iter().filter(|record| record.session_id == session).collect();
        own.sort_by_key(|record| record.turn_id);
        own.iter().map(|record| record.execution_mode.as_str()).collect()
    }

    pub fn reasons(&self, session: &str) -> Vec<&'static str> {
        let mut own: Vec<_> = self.records.iter().filter(|record| record.session_id == session).collect();
        own.sort_by_key(|record| record.turn_id);
        own.iter().map(|record| record.mode_reason.as_str()).collect()
    }

    pub fn outcomes(&self) -> BTreeMap<&'static str, u32> {
        let mut counts = BTreeMap::new();
        for record in &self.records {
            *counts.entry(record.outcome.as_str()).or_default() += 1;
        }
        counts
    }

    pub fn noted(&self, kind: LedgerKind) -> usize {
        self.ledger.iter().filter(|event| event.kind == kind).count()
    }
}

/// Runs to the end; `watch` sees the replayer after every step and may interrupt.
pub fn run_watched(
    trace: &Trace,
    config: ReplayerConfig,
    mut fake: Fake,
    mut watch: impl FnMut(Time, &mut Replayer),
) -> Run {
    let ideal = vec![0; trace.turns.len()];
    let mut replayer = Replayer::new(trace, config, &ideal);
    if let Some(index) = fake.index.take() {
        replayer = replayer.with_index(index);
    }
    let (mut records, mut ledger, mut actions) = (Vec::new(), Vec::new(), Vec::new());
    let mut now = Time::ZERO;
    for step in 0.. {
        assert!(step < 200_000, "no end in sight at {now}");
        watch(now, &mut replayer);
        while let Some(action) = replayer.poll_action() {
            actions.push(action.clone());
            fake.act(now, action);
        }
        while let Some((record, _)) = replayer.poll_record() {
            records.push(record);
        }
        while let Some(event) = replayer.poll_ledger() {
            ledger.push(event);
        }
        if replayer.is_done() {
            break;
        }
        let wake = replayer.poll_timeout().map(|(at, _)| at);
        let told = fake.next();
        assert!(wake.is_some() || told.is_some(), "a lost wake at {now}");
        let next = wake.into_iter().chain(told).min().expect("something to wait for");
        assert!(next >= now, "time runs forward");
        now = next;
        if told == Some(now) {
            if let Some(event) = fake.step() {
                replayer.handle_event(now, event);
            }
        } else {
            replayer.handle_timeout(now);
        }
    }
    let facts = replayer.facts(now);
    let no_index = replayer.no_index().cloned();
    Run { records, ledger, actions, facts, end: now, fake, no_index }
}

pub fn run(trace: &Trace, config: ReplayerConfig, fake: Fake) -> Run {
    run_watched(trace, config, fake, |_, _| {})
}
