//! Per session: what became of its turns, where they went, and the turn pattern that shows it at a glance.
//!
//! Direct share: turns that went direct to the session's D and ended ok, over the turns sent after the first turn present.
//! The first turn never can go direct, and a turn never sent says nothing about routing.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use schemars::JsonSchema;
use serde::Serialize;

use super::distribution::ms;
use super::seen::{Name, Seen};
use super::stats::share;
use super::vocabulary::Vocabulary;
use super::{Metric, Percentile, is_failure};
use crate::record::{ExecutionMode, ModeReason, Outcome, SessionFacts};

/// One row of the session table, a line of `sessions.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SessionRow {
    /// Session id of the trace.
    pub session_id: String,
    /// Rank of its arrival, from 1.
    pub arrival_rank: u32,
    /// Turns in the trace.
    pub turns: u64,
    /// Turns that were sent.
    pub sent: u64,
    /// Turns that ended ok.
    pub ok: u64,
    /// The trace lacks some of its turns.
    pub incomplete: bool,
    /// Largest prompt, tokens.
    pub peak_input_tokens: u32,
    /// Decode (or colocated) workers that served it, by name.
    pub workers: Vec<String>,
    /// The worker most of its turns were meant for.
    pub pinned_worker: Option<String>,
    /// Turns sent after the first turn present: the base of the two shares.
    pub later_turns: u64,
    /// Those that went direct to D and ended ok.
    pub direct_turns: u64,
    /// `direct_turns / later_turns`; null for a session of one turn.
    pub direct_share: Option<f64>,
    /// Share of later turns that fell back to the plain path.
    pub fallback_share: Option<f64>,
    /// Seeds.
    pub seeds: u64,
    /// Reseeds.
    pub reseeds: u64,
    /// Most frequent reason of the later turns that did not go direct, but for a first placement that went well; null
    /// when there are none.
    pub main_reason: Option<ModeReason>,
    /// Mean E2E of ok turns, ms.
    pub mean_e2e_ms: Option<f64>,
    /// E2E p50 of ok turns, ms; exact.
    pub p50_e2e_ms: Option<f64>,
    /// E2E p99 of ok turns, ms; exact.
    pub p99_e2e_ms: Option<f64>,
    /// Time it held a session slot, seconds; null when unknown.
    pub slot_hold_s: Option<f64>,
    /// Of these, seconds after its last turn had ended; null when unknown.
    pub slot_after_end_s: Option<f64>,
    /// Seeds and reseeds asked for.
    pub seed_asks: Option<u32>,
    /// Those refused.
    pub seed_rejections: Option<u32>,
    /// Of these, refused for want of a slot that a session which had ended kept; null when unknown.
    pub refused_by_ended: Option<u32>,
    /// Appends refused.
    pub append_rejections: Option<u32>,
    /// Moves to another D.
    pub migrations: Option<u32>,
    /// Mean believed usage of the chosen D when it asked: tokens of resident sessions and of requests in flight over
    /// capacity, above 1 when more is under way than fits.
    pub usage_when_asked: Option<f64>,
    /// Starved: its direct share is below 20 % while the run's is above 20 %.
    pub starved: bool,
    /// One letter a turn: `.` ok without a session, `D` direct, `S` seed, `R` reseed, `F` fallback, `T` truncated,
    /// `E` aborted, error or timeout, `-` cancelled or never sent.
    pub pattern: String,
}

/// One turn as its session remembers it; ordered as in the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    turn_id: u32,
    line: u32,
    mode: ExecutionMode,
    reason: ModeReason,
    outcome: Outcome,
}

/// A run may have many sessions of one turn: what one holds is small, and grows one by one.
#[derive(Debug)]
struct SessionTally {
    first_scheduled_ns: u64,
    /// First send and last end; `None` while nothing was sent.
    live_ns: Option<(u64, u64)>,
    turns: Vec<Turn>,
    e2e_ns: Vec<u64>,
    peak_input_tokens: u32,
    peak_context_tokens: u64,
    workers: Vec<OnWorker>,
}

/// What a session had to do with a worker.
#[derive(Debug)]
struct OnWorker {
    /// Number of its name.
    worker: u32,
    /// Turns meant for it.
    meant: u32,
    served: bool,
}

/// All sessions, by the number of their id: in the order their first records came.
#[derive(Debug, Default)]
pub(super) struct SessionTallies(Vec<SessionTally>);

/// The names behind the numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Names<'a> {
    pub sessions: &'a Vocabulary,
    pub workers: &'a Vocabulary,
}

impl SessionRow {
    /// It asked for a slot on a D; where nobody counted the asks, it sent a second turn.
    pub(super) fn asks_for_slot(&self) -> bool {
        self.seed_asks.map_or(self.later_turns > 0, |asks| asks > 0)
    }
}

impl SessionTallies {
    pub(super) fn add(&mut self, request: &Seen) {
        let ix = request.session.ix as usize;
        if self.0.len() <= ix {
            self.0.resize_with(ix + 1, SessionTally::new);
        }
        self.0[ix].add(request);
    }

    /// Mean over sessions of their largest prompt with its answer, tokens.
    pub(super) fn mean_peak_context(&self) -> Option<f64> {
        share(self.0.iter().map(|tally| tally.peak_context_tokens).sum(), self.0.len() as u64)
    }

    /// Rows by arrival rank. Without facts (an unfinished run) the rank is the order of the first scheduled turns.
    pub(super) fn rows(&self, names: Names, facts: &[SessionFacts]) -> Vec<SessionRow> {
        let facts: HashMap<&str, &SessionFacts> = facts.iter().map(|fact| (fact.session_id.as_str(), fact)).collect();
        let mut order: Vec<(&SessionTally, &str)> = self.0.iter().zip(names.sessions.list().iter()).collect();
        order.sort_by_key(|(tally, _)| tally.first_scheduled_ns);
        let row = |(ix, (tally, id)): (usize, &(&SessionTally, &str))| {
            tally.row(id, names.workers, ix as u32 + 1, facts.get(id).copied())
        };
        let mut rows: Vec<SessionRow> = order.iter().enumerate().map(row).collect();
        rows.sort_by_key(|row| row.arrival_rank);
        rows
    }

    /// Most sessions at once between their first send and their last end, of those that asked for a slot.
    pub(super) fn most_live(&self, ids: &Vocabulary, rows: &[SessionRow]) -> u64 {
        let asking = rows.iter().filter(|row| row.asks_for_slot());
        let tallies = asking.filter_map(|row| ids.find(&row.session_id)).map(|ix| &self.0[ix as usize]);
        let mut edges: Vec<(u64, i64)> =
            tallies.filter_map(|tally| tally.live_ns).flat_map(|(first, last)| [(first, 1), (last, -1)]).collect();
        // A session that ends when another begins makes room for it.
        edges.sort_unstable();
        let live = edges.iter().scan(0, |live, (_, step)| {
            *live += step;
            Some(*live)
        });
        live.max().unwrap_or(0).unsigned_abs()
    }

    /// Sessions of the run without a record, and sessions with records that are not in the run.
    pub(super) fn unmatched(&self, ids: &Vocabulary, facts: &[SessionFacts], sessions: u64) -> (u64, u64) {
        let recorded = self.0.len() as u64;
        if facts.is_empty() {
            let known = if sessions > 0 { sessions } else { recorded };
            return (known.saturating_sub(recorded), recorded.saturating_sub(known));
        }
        let silent = facts.iter().filter(|facts| ids.find(&facts.session_id).is_none()).count() as u64;
        let matched = facts.len() as u64 - silent;
        (silent, recorded.saturating_sub(matched))
    }
}

impl SessionTally {
    fn new() -> Self {
        SessionTally {
            first_scheduled_ns: u64::MAX,
            live_ns: None,
            turns: Vec::new(),
            e2e_ns: Vec::new(),
            peak_input_tokens: 0,
            peak_context_tokens: 0,
            workers: Vec::new(),
        }
    }

    fn add(&mut self, request: &Seen) {
        self.first_scheduled_ns = self.first_scheduled_ns.min(request.scheduled_ns);
        self.peak_context_tokens = self.peak_context_tokens.max(request.context_tokens());
        if let Some(sent_ns) = request.sent_ns {
            let (first, last) = self.live_ns.unwrap_or((sent_ns, request.ended_ns));
            self.live_ns = Some((first.min(sent_ns), last.max(request.ended_ns)));
        }
        self.peak_input_tokens = self.peak_input_tokens.max(request.input_tokens);
        let turn = Turn {
            turn_id: request.turn_id,
            line: request.trace_line,
            mode: request.mode,
            reason: request.reason,
            outcome: request.outcome,
        };
        push(&mut self.turns, turn);
        if request.outcome.is_ok()
            && let Some(e2e) = request.ns(Metric::E2e)
        {
            push(&mut self.e2e_ns, e2e);
        }
        if let Some(Name { ix, .. }) = request.decode_worker_actual {
            self.on(ix).served = true;
        }
        if let Some(Name { ix, .. }) = request.decode_worker_intended.or(request.decode_worker_actual) {
            self.on(ix).meant += 1;
        }
    }

    fn on(&mut self, worker: u32) -> &mut OnWorker {
        let at = self.workers.iter().position(|on| on.worker == worker).unwrap_or_else(|| {
            push(&mut self.workers, OnWorker { worker, meant: 0, served: false });
            self.workers.len() - 1
        });
        &mut self.workers[at]
    }

    fn row(&self, id: &str, workers: &Vocabulary, rank: u32, facts: Option<&SessionFacts>) -> SessionRow {
        let name = |on: &OnWorker| workers.list().get(on.worker);
        let served_by: BTreeSet<&str> = self.workers.iter().filter(|on| on.served).map(name).collect();
        let meant = self.workers.iter().filter(|on| on.meant > 0);
        let meant_for: BTreeMap<&str, u64> = meant.map(|on| (name(on), on.meant.into())).collect();
        let mut turns = self.turns.clone();
        turns.sort_unstable();
        let mut e2e = self.e2e_ns.clone();
        e2e.sort_unstable();
        let sum: u128 = e2e.iter().map(|ns| u128::from(*ns)).sum();
        let later: Vec<&Turn> = turns.iter().skip(1).filter(|turn| turn.was_sent()).collect();
        let count = |wanted: fn(&Turn) -> bool| later.iter().filter(|turn| wanted(turn)).count() as u64;
        let (later_turns, direct_turns) = (later.len() as u64, count(Turn::is_direct));
        let modes = |mode: ExecutionMode| turns.iter().filter(|turn| turn.mode == mode).count() as u64;
        SessionRow {
            session_id: id.into(),
            arrival_rank: facts.map_or(rank, |facts| facts.arrival_rank),
            turns: facts.map_or(turns.len() as u64, |facts| facts.planned_turns.into()),
            sent: turns.iter().filter(|turn| turn.was_sent()).count() as u64,
            ok: turns.iter().filter(|turn| turn.outcome.is_ok()).count() as u64,
            incomplete: facts.is_some_and(|facts| facts.incomplete),
            peak_input_tokens: self.peak_input_tokens,
            workers: served_by.into_iter().map(String::from).collect(),
            pinned_worker: most_frequent(&meant_for).map(String::from),
            later_turns,
            direct_turns,
            direct_share: share(direct_turns, later_turns),
            fallback_share: share(count(|turn| turn.mode.is_fallback()), later_turns),
            seeds: modes(ExecutionMode::KvcacheSeed),
            reseeds: modes(ExecutionMode::KvcacheReseed),
            main_reason: main_reason(&later),
            mean_e2e_ms: (!e2e.is_empty()).then(|| sum as f64 / e2e.len() as f64 / 1e6),
            p50_e2e_ms: Percentile::P50.of_sorted(&e2e).map(ms),
            p99_e2e_ms: Percentile::P99.of_sorted(&e2e).map(ms),
            slot_hold_s: facts.map(|facts| facts.slot_hold_ns as f64 / 1e9),
            slot_after_end_s: facts.and_then(|facts| facts.slot_after_end_ns).map(|ns| ns as f64 / 1e9),
            seed_asks: facts.map(|facts| facts.seed_asks),
            seed_rejections: facts.map(|facts| facts.seed_rejections),
            refused_by_ended: facts.and_then(|facts| facts.refused_by_ended),
            append_rejections: facts.map(|facts| facts.append_rejections),
            migrations: facts.map(|facts| facts.migrations),
            usage_when_asked: facts.and_then(|facts| facts.usage_when_asked),
            starved: false,
            pattern: turns.iter().map(Turn::letter).collect(),
        }
    }
}

impl Turn {
    fn was_sent(&self) -> bool {
        self.outcome.is_ok() || self.outcome == Outcome::Cancelled || is_failure(self.outcome)
    }

    fn is_direct(&self) -> bool {
        self.mode == ExecutionMode::KvcacheDirectToDSession && self.outcome.is_ok()
    }

    /// Every session that goes direct was placed once: that is no reason against it.
    fn is_good_seed(&self) -> bool {
        self.mode == ExecutionMode::KvcacheSeed && self.outcome.is_ok()
    }

    fn letter(&self) -> char {
        match self.outcome {
            Outcome::Truncated => 'T',
            Outcome::Aborted | Outcome::Error | Outcome::Timeout => 'E',
            Outcome::Cancelled | Outcome::Skipped => '-',
            Outcome::Ok if self.mode.is_fallback() => 'F',
            Outcome::Ok => match self.mode {
                ExecutionMode::KvcacheDirectToDSession => 'D',
                ExecutionMode::KvcacheSeed => 'S',
                ExecutionMode::KvcacheReseed => 'R',
                ExecutionMode::DpColocated
                | ExecutionMode::PdRouter
                | ExecutionMode::PdRouterTurn1
                | ExecutionMode::FallbackSessionCap
                | ExecutionMode::FallbackNoCapacity
                | ExecutionMode::FallbackAdmissionRejected
                | ExecutionMode::FallbackWorkerUnhealthy
                | ExecutionMode::FallbackOpenFailed
                | ExecutionMode::NotSent => '.',
            },
        }
    }
}

fn main_reason(later: &[&Turn]) -> Option<ModeReason> {
    let mut counts = BTreeMap::new();
    for turn in later.iter().filter(|turn| turn.mode != ExecutionMode::KvcacheDirectToDSession && !turn.is_good_seed())
    {
        *counts.entry(turn.reason).or_insert(0) += 1;
    }
    most_frequent(&counts)
}

/// Room for the first value alone: most sessions of a large run have few.
fn push<T>(list: &mut Vec<T>, value: T) {
    if list.is_empty() {
        list.reserve_exact(1);
    }
    list.push(value);
}

/// The key counted most often, the first of equals.
fn most_frequent<K: Clone + Ord>(counts: &BTreeMap<K, u64>) -> Option<K> {
    let best = counts.values().max()?;
    counts.iter().find(|(_, count)| *count == best).map(|(key, _)| key.clone())
}
