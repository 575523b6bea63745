//! Per session: what became of its turns, where they went, and the turn pattern that shows it at a glance.
//!
//! Direct share: turns that went direct to the session's D and ended ok, over the turns sent after the first turn present.
//! The first turn never can go direct, and a turn never sent says nothing about routing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use super::distribution::{ms, ns_of_ms};
use super::stats::share;
use super::{Percentile, is_failure};
use crate::record::{ExecutionMode, ModeReason, Outcome, RequestRecord, SessionFacts};

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
    /// Seeds and reseeds asked for.
    pub seed_asks: Option<u32>,
    /// Those refused.
    pub seed_rejections: Option<u32>,
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
pub(super) struct SessionTally {
    id: Arc<str>,
    first_scheduled_ns: u64,
    /// First send and last end; `None` while nothing was sent.
    live_ns: Option<(u64, u64)>,
    turns: Vec<Turn>,
    e2e_ns: Vec<u64>,
    peak_input_tokens: u32,
    peak_context_tokens: u64,
    workers: Vec<Seen>,
}

/// What a session had to do with a worker.
#[derive(Debug)]
struct Seen {
    worker: u32,
    /// Turns meant for it.
    meant: u32,
    served: bool,
}

/// Names of workers, by number.
#[derive(Debug, Default)]
struct Names {
    names: Vec<String>,
    by_name: HashMap<String, u32>,
}

/// All sessions, in the order their first records came.
#[derive(Debug, Default)]
pub(super) struct SessionTallies {
    tallies: Vec<SessionTally>,
    by_id: HashMap<Arc<str>, usize>,
    names: Names,
}

impl Names {
    fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.by_name.get(name) {
            return *number;
        }
        let number = self.names.len() as u32;
        self.names.push(name.to_owned());
        self.by_name.insert(name.to_owned(), number);
        number
    }

    fn name(&self, seen: &Seen) -> &str {
        &self.names[seen.worker as usize]
    }
}

impl SessionRow {
    /// It asked for a slot on a D; where nobody counted the asks, it sent a second turn.
    pub(super) fn asks_for_slot(&self) -> bool {
        self.seed_asks.map_or(self.later_turns > 0, |asks| asks > 0)
    }
}

impl SessionTallies {
    pub(super) fn add(&mut self, record: &RequestRecord) {
        let ix = match self.by_id.get(record.session_id.as_str()) {
            Some(ix) => *ix,
            None => {
                let id: Arc<str> = record.session_id.as_str().into();
                self.by_id.insert(Arc::clone(&id), self.tallies.len());
                self.tallies.push(SessionTally::new(id));
                self.tallies.len() - 1
            }
        };
        self.tallies[ix].add(record, &mut self.names);
    }

    /// Mean over sessions of their largest prompt with its answer, tokens.
    pub(super) fn mean_peak_context(&self) -> Option<f64> {
        share(self.tallies.iter().map(|tally| tally.peak_context_tokens).sum(), self.tallies.len() as u64)
    }

    /// Rows by arrival rank. Without facts (an unfinished run) the rank is the order of the first scheduled turns.
    pub(super) fn rows(&self, facts: &[SessionFacts]) -> Vec<SessionRow> {
        let facts: HashMap<&str, &SessionFacts> = facts.iter().map(|fact| (fact.session_id.as_str(), fact)).collect();
        let mut order: Vec<&SessionTally> = self.tallies.iter().collect();
        order.sort_by_key(|tally| tally.first_scheduled_ns);
        let row = |(ix, tally): (usize, &&SessionTally)| {
            tally.row(ix as u32 + 1, facts.get(&*tally.id).copied(), &self.names)
        };
        let mut rows: Vec<SessionRow> = order.iter().enumerate().map(row).collect();
        rows.sort_by_key(|row| row.arrival_rank);
        rows
    }

    /// Most sessions at once between their first send and their last end, of those that asked for a slot.
    pub(super) fn most_live(&self, rows: &[SessionRow]) -> u64 {
        let asking = rows.iter().filter(|row| row.asks_for_slot());
        let tallies = asking.filter_map(|row| self.by_id.get(row.session_id.as_str())).map(|ix| &self.tallies[*ix]);
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
    pub(super) fn unmatched(&self, facts: &[SessionFacts], sessions: u64) -> (u64, u64) {
        let recorded = self.tallies.len() as u64;
        if facts.is_empty() {
            let known = if sessions > 0 { sessions } else { recorded };
            return (known.saturating_sub(recorded), recorded.saturating_sub(known));
        }
        let silent = facts.iter().filter(|facts| !self.by_id.contains_key(facts.session_id.as_str())).count() as u64;
        let matched = facts.len() as u64 - silent;
        (silent, recorded.saturating_sub(matched))
    }
}

/// Prompt and answer asked for.
pub(super) fn context_tokens(record: &RequestRecord) -> u64 {
    u64::from(record.input_tokens) + u64::from(record.expected_output_tokens)
}

impl SessionTally {
    fn new(id: Arc<str>) -> Self {
        SessionTally {
            id,
            first_scheduled_ns: u64::MAX,
            live_ns: None,
            turns: Vec::new(),
            e2e_ns: Vec::new(),
            peak_input_tokens: 0,
            peak_context_tokens: 0,
            workers: Vec::new(),
        }
    }

    fn add(&mut self, record: &RequestRecord, names: &mut Names) {
        self.first_scheduled_ns = self.first_scheduled_ns.min(record.scheduled_ns);
        self.peak_context_tokens = self.peak_context_tokens.max(context_tokens(record));
        if let Some(sent_ns) = record.sent_ns {
            let (first, last) = self.live_ns.unwrap_or((sent_ns, record.ended_ns));
            self.live_ns = Some((first.min(sent_ns), last.max(record.ended_ns)));
        }
        self.peak_input_tokens = self.peak_input_tokens.max(record.input_tokens);
        push(
            &mut self.turns,
            Turn {
                turn_id: record.turn_id,
                line: record.trace_line,
                mode: record.execution_mode,
                reason: record.mode_reason,
                outcome: record.outcome,
            },
        );
        if record.outcome.is_ok()
            && let Some(e2e) = record.e2e_ms.and_then(ns_of_ms)
        {
            push(&mut self.e2e_ns, e2e);
        }
        if let Some(worker) = record.decode_worker_actual.as_deref() {
            self.seen(names.number(worker)).served = true;
        }
        if let Some(worker) = record.decode_worker_intended.as_deref().or(record.decode_worker_actual.as_deref()) {
            self.seen(names.number(worker)).meant += 1;
        }
    }

    fn seen(&mut self, worker: u32) -> &mut Seen {
        let at = self.workers.iter().position(|seen| seen.worker == worker).unwrap_or_else(|| {
            push(&mut self.workers, Seen { worker, meant: 0, served: false });
            self.workers.len() - 1
        });
        &mut self.workers[at]
    }

    fn row(&self, rank: u32, facts: Option<&SessionFacts>, names: &Names) -> SessionRow {
        let mut turns = self.turns.clone();
        turns.sort_unstable();
        let mut e2e = self.e2e_ns.clone();
        e2e.sort_unstable();
        let sum: u128 = e2e.iter().map(|ns| u128::from(*ns)).sum();
        let later: Vec<&Turn> = turns.iter().skip(1).filter(|turn| turn.was_sent()).collect();
        let count = |wanted: fn(&Turn) -> bool| later.iter().filter(|turn| wanted(turn)).count() as u64;
        let (later_turns, direct_turns) = (later.len() as u64, count(Turn::is_direct));
        let modes = |mode: ExecutionMode| turns.iter().filter(|turn| turn.mode == mode).count() as u64;
        let meant = self.workers.iter().filter(|seen| seen.meant > 0);
        let meant: BTreeMap<&str, u64> = meant.map(|seen| (names.name(seen), seen.meant.into())).collect();
        let served = self.workers.iter().filter(|seen| seen.served);
        let served: BTreeSet<&str> = served.map(|seen| names.name(seen)).collect();
        SessionRow {
            session_id: self.id.to_string(),
            arrival_rank: facts.map_or(rank, |facts| facts.arrival_rank),
            turns: facts.map_or(turns.len() as u64, |facts| facts.planned_turns.into()),
            sent: turns.iter().filter(|turn| turn.was_sent()).count() as u64,
            ok: turns.iter().filter(|turn| turn.outcome.is_ok()).count() as u64,
            incomplete: facts.is_some_and(|facts| facts.incomplete),
            peak_input_tokens: self.peak_input_tokens,
            workers: served.into_iter().map(str::to_owned).collect(),
            pinned_worker: most_frequent(&meant).map(str::to_owned),
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
            seed_asks: facts.map(|facts| facts.seed_asks),
            seed_rejections: facts.map(|facts| facts.seed_rejections),
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
