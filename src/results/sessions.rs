//! Per session: what became of its turns, where they went, and the turn pattern that shows it at a glance.
//!
//! Direct share: turns that went direct to the session's D and ended ok, over the turns sent after the first turn present.
//! The first turn never can go direct, and a turn never sent says nothing about routing.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;

use super::Percentile;
use super::distribution::ms;
use super::seen::{Name, Seen};
use super::starvation::STARVED_BELOW;
use super::stats::share;
use super::turns::{Turn, Turns};
use super::vocabulary::Vocabulary;
use super::word::Word;
use crate::record::{ExecutionMode, ModeReason, SessionFacts};

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
    #[schemars(with = "Vec<String>")]
    pub workers: Vec<Word>,
    /// The worker most of its turns were meant for.
    #[schemars(with = "Option<String>")]
    pub pinned_worker: Option<Word>,
    /// Turns sent after the first turn present: the base of the two shares.
    pub later_turns: u64,
    /// Those that went direct to D and ended ok.
    pub direct_turns: u64,
    /// `direct_turns / later_turns`; null for a session of one turn, and where no sessions are kept on D.
    pub direct_share: Option<f64>,
    /// Share of later turns that fell back to the plain path.
    pub fallback_share: Option<f64>,
    /// Seeds.
    pub seeds: u64,
    /// Reseeds.
    pub reseeds: u64,
    /// Most frequent reason of the later turns that did not go direct, but for a first placement that went well or was
    /// cancelled; null when there are none.
    pub main_reason: Option<ModeReason>,
    /// Mean E2E of ok turns, ms.
    pub mean_e2e_ms: Option<f64>,
    /// E2E p50 of ok turns, ms; exact.
    pub p50_e2e_ms: Option<f64>,
    /// E2E p99 of ok turns, ms; exact.
    pub p99_e2e_ms: Option<f64>,
    /// Time it held a session slot, seconds; null when unknown, and where no sessions are kept on D.
    pub slot_hold_s: Option<f64>,
    /// Of these, seconds after its last turn had ended; null as above.
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
    /// Starved: its direct share is below 20 %, `main_reason` is not null, and the run's direct share is above 20 %.
    pub starved: bool,
    /// One letter a turn: `.` ok without a session, `D` direct, `S` seed, `R` reseed, `F` fallback, `T` truncated,
    /// `E` aborted, error or timeout, `-` cancelled or never sent.
    pub pattern: String,
}

/// A run may have many sessions of one turn: what one holds is small. Its turns are in [`Turns`].
#[derive(Debug)]
struct SessionTally {
    first_scheduled_ns: u64,
    /// First send and last end; `None` while nothing was sent.
    live_ns: Option<(u64, u64)>,
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
pub(super) struct SessionTallies {
    sessions: Vec<SessionTally>,
    turns: Turns,
}

impl SessionRow {
    /// Of a run that keeps no sessions on D: that none of its turns went direct, and that it had no slot, says nothing.
    pub(super) fn keeps_none_on_d(&mut self) {
        (self.direct_share, self.slot_hold_s, self.slot_after_end_s) = (None, None, None);
    }

    /// It asked for a slot on a D; where nobody counted the asks, it sent a second turn.
    pub(super) fn asks_for_slot(&self) -> bool {
        self.seed_asks.map_or(self.later_turns > 0, |asks| asks > 0)
    }

    /// It starves, whatever the run's own share: too few of its later turns went direct, and not because it had hardly been
    /// placed when it ended.
    pub(super) fn starves(&self) -> bool {
        self.main_reason.is_some() && self.direct_share.is_some_and(|share| share < STARVED_BELOW)
    }
}

impl SessionTallies {
    pub(super) fn add(&mut self, request: &Seen) {
        let ix = request.session.ix as usize;
        if self.sessions.len() <= ix {
            self.sessions.resize_with(ix + 1, SessionTally::new);
        }
        self.sessions[ix].add(request);
        self.turns.push(request);
    }

    /// Mean over sessions of their largest prompt with its answer, tokens.
    pub(super) fn mean_peak_context(&self) -> Option<f64> {
        let peaks = self.sessions.iter().map(|tally| tally.peak_context_tokens);
        share(peaks.sum(), self.sessions.len() as u64)
    }

    /// Rows by arrival rank; the turns go. Without facts (an unfinished run) the rank is the order of the first scheduled
    /// turns.
    pub(super) fn rows(&mut self, ids: &Vocabulary, workers: &Vocabulary, facts: &[SessionFacts]) -> Vec<SessionRow> {
        let mut facts_of = vec![None; self.sessions.len()];
        for facts in facts {
            if let Some(ix) = ids.find(&facts.session_id) {
                facts_of[ix as usize] = Some(facts);
            }
        }
        let mut order: Vec<usize> = (0..self.sessions.len()).collect();
        order.sort_by_key(|ix| self.sessions[*ix].first_scheduled_ns);
        let ranked = |(ix, before): (usize, u32)| (facts_of[ix].map_or(before + 1, |facts| facts.arrival_rank), ix);
        let mut ranks: Vec<(u32, usize)> = order.into_iter().zip(0..).map(ranked).collect();
        ranks.sort_by_key(|(rank, _)| *rank);
        let workers: Vec<Word> = workers.list().iter().map(Word::from).collect();
        let turns = std::mem::take(&mut self.turns).by_session(self.sessions.len());
        let row = |(rank, ix): (u32, usize)| {
            self.sessions[ix].row(ids.list().get(ix as u32), &turns.of(ix), &workers, rank, facts_of[ix])
        };
        ranks.into_iter().map(row).collect()
    }

    /// Most sessions at once between their first send and their last end, of those that asked for a slot.
    pub(super) fn most_live(&self, ids: &Vocabulary, rows: &[SessionRow]) -> u64 {
        let asking = rows.iter().filter(|row| row.asks_for_slot());
        let tallies = asking.filter_map(|row| ids.find(&row.session_id)).map(|ix| &self.sessions[ix as usize]);
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
        let recorded = self.sessions.len() as u64;
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

    /// `turns` in the order of the trace, `workers` by their numbers.
    fn row(&self, id: &str, turns: &[Turn], workers: &[Word], rank: u32, facts: Option<&SessionFacts>) -> SessionRow {
        let name = |on: &OnWorker| &workers[on.worker as usize];
        let served_by: BTreeSet<&Word> = self.workers.iter().filter(|on| on.served).map(name).collect();
        let meant = self.workers.iter().filter(|on| on.meant > 0);
        let meant_for: BTreeMap<&Word, u64> = meant.map(|on| (name(on), on.meant.into())).collect();
        let mut e2e: Vec<u64> = turns.iter().filter_map(|turn| turn.e2e_ns()).collect();
        e2e.sort_unstable();
        let sum: u128 = e2e.iter().map(|ns| u128::from(*ns)).sum();
        let later: Vec<&Turn> = turns.iter().skip(1).filter(|turn| turn.was_sent()).collect();
        let count = |wanted: fn(&Turn) -> bool| later.iter().filter(|turn| wanted(turn)).count() as u64;
        let (later_turns, direct_turns) = (later.len() as u64, count(Turn::is_direct));
        let modes = |mode: ExecutionMode| turns.iter().filter(|turn| turn.mode == mode).count() as u64;
        SessionRow {
            session_id: id.into(),
            arrival_rank: rank,
            turns: facts.map_or(turns.len() as u64, |facts| facts.planned_turns.into()),
            sent: turns.iter().filter(|turn| turn.was_sent()).count() as u64,
            ok: turns.iter().filter(|turn| turn.outcome.is_ok()).count() as u64,
            incomplete: facts.is_some_and(|facts| facts.incomplete),
            peak_input_tokens: self.peak_input_tokens,
            workers: served_by.into_iter().cloned().collect(),
            pinned_worker: most_frequent(&meant_for).cloned(),
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

fn main_reason(later: &[&Turn]) -> Option<ModeReason> {
    let mut counts = BTreeMap::new();
    for turn in later.iter().filter(|turn| turn.mode != ExecutionMode::KvcacheDirectToDSession && !turn.is_fair_seed())
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
