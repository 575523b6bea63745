//! [`Replayer`]: its state and its contract with a driver. What it decides lives in the files beside.

use std::collections::{BTreeMap, VecDeque};

use crate::admission::AdmissionConfig;
use crate::base::{Dur, RequestIx, Role, SessionIx, Time, WorkerId};
use crate::kv::{PrefixLookup, WorkerHit};
use crate::policies::{HeaderMode, Policy, PolicyConfig};
use crate::protocol::{Action, CallId, Event, LoadReport, TokenRun};
use crate::record::{CandidateScore, LedgerEvent, LedgerKind, RequestRecord, SessionFacts};
use crate::replay::fleet::Fleet;
use crate::replay::last_word::GivenUp;
use crate::replay::schedule::{Timers, Wake};
use crate::replay::turn::{Queued, Stage, Turn};
use crate::replay::{Mechanism, NoIndex, ReplayConfig, Schedule, plan};
use crate::sessions::SessionTable;
use crate::trace::Trace;

/// Everything a replayer is told before the run.
#[derive(Debug, Clone)]
pub struct ReplayerConfig {
    /// Name of the run.
    pub run_id: String,
    /// Seed of the arrival jitter.
    pub seed: u64,
    /// Time, limits, mechanism.
    pub replay: ReplayConfig,
    /// Who chooses workers.
    pub policy: PolicyConfig,
    /// Who lets sessions live on a D.
    pub admission: AdmissionConfig,
    /// Workers serving at the start: prefill and decode workers, or colocated ones under `dp`. Others may join.
    pub workers: Vec<WorkerId>,
    /// Loads they reported before the run.
    pub initial_loads: Vec<LoadReport>,
    /// What is expected of the KV index, where there is one.
    pub index: IndexWatch,
    /// KV pool of a worker, tokens; used when the admission config says that the capacity is known.
    pub kv_pool_tokens: u64,
    /// Idle time after which a worker drops a session, as far as the replayer knows.
    pub session_idle_timeout: Option<Dur>,
    /// Header the PD router is sent.
    pub header_mode: HeaderMode,
    /// The PD router picks decode workers by a counter of its own.
    pub router_round_robin: bool,
}

/// What is expected of the KV index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexWatch {
    /// When its streams are looked at.
    pub after: Dur,
    /// The run stops when none of them is in step by then.
    pub require: bool,
}

/// Why a wake was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WakeReason {
    /// A turn is due.
    TurnDue,
    /// A quiet stream reaches the stall limit.
    Stall,
    /// A request reaches the total limit.
    TotalTimeout,
    /// Time to poll the loads.
    LoadPoll,
    /// What had arrived of a request given up is waited for no longer.
    LastWord,
    /// Time to look at the streams of the KV index.
    IndexCheck,
}

/// What the replayer alone knows at the end of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplayFacts {
    /// Every session, by arrival rank.
    pub sessions: Vec<SessionFacts>,
    /// Requests planned.
    pub planned: u64,
    /// Sends to the router until its round robin and the replayer's first differed; `None` when they never did or
    /// only one of them counts.
    pub counters_diverged_after: Option<u64>,
    /// Beliefs a worker's word corrected.
    pub beliefs_corrected: u64,
}

/// Counters of one session.
#[derive(Debug, Clone, Default)]
pub(super) struct SessionStats {
    pub seed_asks: u32,
    pub seed_rejections: u32,
    /// Those for want of a slot that would not have been, had sessions given theirs back at their end.
    pub refused_by_ended: u32,
    pub append_rejections: u32,
    pub migrations: u32,
    pub usage_sum: f64,
    pub usage_count: u32,
    /// Refusals since the last success or move.
    pub refusals_in_row: u32,
    /// Worker not to choose next time.
    pub excluded: Option<u16>,
    /// Worker it was last resident on.
    pub home: Option<u16>,
    /// Turns with a record.
    pub settled: u32,
}

/// See the module.
#[derive(Debug)]
pub struct Replayer<'t> {
    pub(super) trace: &'t Trace,
    pub(super) config: ReplayerConfig,
    pub(super) ideal_hits: &'t [u32],
    pub(super) planned: Vec<Time>,
    pub(super) policy: Policy,
    pub(super) fleet: Fleet,
    /// Prefill workers; empty under `dp`.
    pub(super) prefill: Fleet,
    pub(super) index: Option<Box<dyn PrefixLookup + Send>>,
    pub(super) hits: Vec<WorkerHit>,
    pub(super) no_index: Option<NoIndex>,
    pub(super) table: SessionTable,
    pub(super) stats: Vec<SessionStats>,
    pub(super) settled: Vec<bool>,
    pub(super) ended: u64,
    pub(super) timers: Timers,
    pub(super) waiting: VecDeque<Queued>,
    pub(super) waiting_sessions: VecDeque<Queued>,
    /// The ledger says that turns wait for a slot.
    pub(super) backpressure: bool,
    pub(super) live_sessions: u32,
    pub(super) active: BTreeMap<RequestIx, Turn>,
    /// Settled, but for their records.
    pub(super) given_up: BTreeMap<RequestIx, GivenUp>,
    pub(super) calls: BTreeMap<CallId, (RequestIx, SessionIx)>,
    pub(super) next_call: u64,
    pub(super) router_sends: u64,
    pub(super) diverged_at: Option<u64>,
    pub(super) beliefs_corrected: u64,
    pub(super) stopped: bool,
    /// The cluster tells what it was sent, and when.
    pub(super) sends_are_told: bool,
    /// Longest wait for what had arrived of a request given up; without it, the cluster tells at once.
    pub(super) last_word_wait: Option<Dur>,
    pub(super) actions: VecDeque<Action>,
    pub(super) records: VecDeque<(RequestRecord, Vec<TokenRun>)>,
    pub(super) ledger: VecDeque<LedgerEvent>,
}

impl<'t> Replayer<'t> {
    /// A replayer before the start of the run. `ideal_hits` has, per request, the prompt tokens an infinite shared
    /// cache would hold. Panics when their number is not the trace's.
    pub fn new(trace: &'t Trace, config: ReplayerConfig, ideal_hits: &'t [u32]) -> Replayer<'t> {
        assert_eq!(ideal_hits.len(), trace.turns.len(), "one ideal hit per request");
        let role = match config.replay.mechanism {
            Mechanism::Dp => Role::Colocated,
            Mechanism::Pd | Mechanism::Kvc => Role::Decode,
        };
        let capacity = config.admission.capacity_known.then_some(config.kv_pool_tokens);
        let fleet = Fleet::new(role, &config.workers, capacity);
        let prefills: &[WorkerId] = if role == Role::Decode { &config.workers } else { &[] };
        let prefill = Fleet::new(Role::Prefill, prefills, None);
        let mut replayer = Replayer {
            trace,
            ideal_hits,
            planned: plan::planned(trace, &config.replay, config.seed),
            policy: Policy::new(&config.policy, trace.sessions.len()),
            table: SessionTable::new(trace.sessions.len(), fleet.len()),
            fleet,
            prefill,
            index: None,
            hits: Vec::new(),
            no_index: None,
            stats: vec![SessionStats::default(); trace.sessions.len()],
            settled: vec![false; trace.turns.len()],
            ended: 0,
            timers: Timers::default(),
            waiting: VecDeque::new(),
            waiting_sessions: VecDeque::new(),
            backpressure: false,
            live_sessions: 0,
            active: BTreeMap::new(),
            given_up: BTreeMap::new(),
            calls: BTreeMap::new(),
            next_call: 0,
            router_sends: 0,
            diverged_at: None,
            beliefs_corrected: 0,
            stopped: false,
            sends_are_told: false,
            last_word_wait: None,
            actions: VecDeque::new(),
            records: VecDeque::new(),
            ledger: VecDeque::new(),
            config,
        };
        let loads = std::mem::take(&mut replayer.config.initial_loads);
        if replayer.config.policy.reads_loads() {
            replayer.hear_loads(loads);
        }
        replayer.plan_first_turns();
        replayer
    }

    /// Lets the policy read this index.
    pub fn with_index(mut self, index: Box<dyn PrefixLookup + Send>) -> Replayer<'t> {
        self.index = Some(index);
        self.arm(Time::ZERO + self.config.index.after, Wake::IndexCheck);
        self
    }

    /// Goes by [`Event::Sent`]: until then a request counts as not sent. Without it an action is sent when it is made.
    /// What had arrived of a request that was given up, too, comes with a delay then: it is waited for so long.
    pub fn with_told_sends(self, last_word_wait: Dur) -> Replayer<'t> {
        Replayer { sends_are_told: true, last_word_wait: Some(last_word_wait), ..self }
    }

    /// An event of the cluster at `now`.
    pub fn handle_event(&mut self, now: Time, event: Event) {
        self.take_event(now, event);
        self.run_timers(now);
    }

    /// `now` has come: everything due until then is done.
    pub fn handle_timeout(&mut self, now: Time) {
        self.run_timers(now);
    }

    /// Breaks the run off: requests in flight are cancelled, the rest is skipped, sessions are closed.
    pub fn interrupt(&mut self, now: Time) {
        self.stop(now);
    }

    /// Sends nothing more: generate requests that were sent may end by themselves, turns that still ask or open are
    /// cancelled, the rest is skipped. [`Replayer::interrupt`] ends what takes too long.
    pub fn drain(&mut self, now: Time) {
        self.break_off(now, |turn| turn.stage != Stage::Generating || !turn.gone);
    }

    /// Next thing to do to the cluster.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Next request that ended, with its token arrivals.
    pub fn poll_record(&mut self) -> Option<(RequestRecord, Vec<TokenRun>)> {
        self.records.pop_front()
    }

    /// Next line of the ledger.
    pub fn poll_ledger(&mut self) -> Option<LedgerEvent> {
        self.ledger.pop_front()
    }

    /// When to call [`Replayer::handle_timeout`] next, and why; `None` when only an answer can move the run on.
    pub fn poll_timeout(&self) -> Option<(Time, WakeReason)> {
        if self.is_done() {
            return None;
        }
        self.timers.first().map(|(at, wake)| (at, wake.reason()))
    }

    /// No wake is armed but for load polls, which repeat whatever happens: only an answer can move the run on.
    pub fn is_waiting(&self) -> bool {
        self.timers.only_polls()
    }

    /// Every planned request has its record.
    pub fn is_done(&self) -> bool {
        self.ended == self.planned()
    }

    /// The run was stopped before its end: by [`Replayer::interrupt`] or [`Replayer::drain`], or by a failed turn under
    /// `stop-run`.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Why the run was stopped, when no stream of the index was in step in time and one had to be.
    pub fn no_index(&self) -> Option<&NoIndex> {
        self.no_index.as_ref()
    }

    /// Requests planned.
    pub fn planned(&self) -> u64 {
        self.trace.turns.len() as u64
    }

    /// Requests with a record.
    pub fn ended(&self) -> u64 {
        self.ended
    }

    /// Requests on the wire and not given up; each awaits an answer of the cluster.
    pub fn in_flight(&self) -> u64 {
        self.active.len() as u64
    }

    /// Control calls await their answers, also those of turns that have ended.
    pub fn awaits_calls(&self) -> bool {
        !self.calls.is_empty()
    }

    /// What only the replayer knows, as of `now`.
    pub fn facts(&self, now: Time) -> ReplayFacts {
        let sessions = self.trace.sessions.iter().zip(&self.stats).zip(0u32..);
        let facts = |((session, stats), ix): ((&crate::trace::SessionTrace, &SessionStats), u32)| SessionFacts {
            session_id: session.id.clone(),
            arrival_rank: ix + 1,
            planned_turns: session.turns.len() as u32,
            incomplete: session.incomplete,
            slot_hold_ns: self.table.slot_hold(SessionIx(ix), now).ns(),
            slot_after_end_ns: Some(self.table.slot_hold_after_end(SessionIx(ix), now).ns()),
            seed_asks: stats.seed_asks,
            seed_rejections: stats.seed_rejections,
            refused_by_ended: Some(stats.refused_by_ended),
            append_rejections: stats.append_rejections,
            migrations: stats.migrations,
            usage_when_asked: (stats.usage_count > 0).then(|| stats.usage_sum / f64::from(stats.usage_count)),
        };
        ReplayFacts {
            sessions: sessions.map(facts).collect(),
            planned: self.planned(),
            counters_diverged_after: self.diverged_at.map(|send| send - 1),
            beliefs_corrected: self.beliefs_corrected,
        }
    }

    pub(super) fn strict(&self) -> bool {
        self.config.replay.schedule == Schedule::OpenStrict
    }

    pub(super) fn turn_mut(&mut self, request: RequestIx) -> &mut Turn {
        self.active.get_mut(&request).expect("the turn is under way")
    }

    pub(super) fn turn(&self, request: RequestIx) -> &Turn {
        self.active.get(&request).expect("the turn is under way")
    }

    /// Writes a ledger line.
    pub(super) fn note(&mut self, now: Time, kind: LedgerKind, what: Note) {
        let session_id = what.session.map(|session| self.trace.sessions[session.ix()].id.clone());
        self.ledger.push_back(LedgerEvent {
            at_ns: now.ns(),
            kind,
            session_id,
            turn_id: what.request.map(|request| self.trace.turn(request).turn_id),
            worker: what.worker.map(|worker| worker.to_string()),
            detail: what.detail,
            candidates: what.candidates,
        });
    }

    pub(super) fn arm(&mut self, at: Time, wake: Wake) -> (Time, u64) {
        self.timers.arm(at, wake)
    }
}

/// What a ledger line is about.
#[derive(Debug, Clone, Default)]
pub(super) struct Note {
    pub session: Option<SessionIx>,
    pub request: Option<RequestIx>,
    pub worker: Option<WorkerId>,
    pub detail: Option<String>,
    pub candidates: Vec<CandidateScore>,
}

impl Note {
    pub fn session(session: SessionIx, worker: WorkerId) -> Note {
        Note { session: Some(session), worker: Some(worker), ..Note::default() }
    }

    pub fn of(mut self, request: RequestIx) -> Note {
        self.request = Some(request);
        self
    }

    pub fn because(mut self, detail: impl Into<String>) -> Note {
        self.detail = Some(detail.into());
        self
    }
}
