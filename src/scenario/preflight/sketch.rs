//! A coarse replay: prefill workers with the iterations their prompts share, slots, and nothing else.
//!
//! It exists because live time depends on queueing for P and slots depend on live time. No KV room, no eviction,
//! no retraction, an even decode batch, slots of all D in one heap: the result is an estimate and is called one.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use super::super::model::Scenario;
use super::context;
use super::prefill::Server;
use super::service::{Service, Way, limit};
use crate::admission::SlotRelease;
use crate::base::{Dur, SessionIx};
use crate::replay::{FirstTurn, Mechanism, ReplayConfig, Schedule};
use crate::trace::{Trace, TurnTrace};

/// What the coarse replay found.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sketch {
    /// Most sessions begun and not ended.
    pub(super) peak_live: u32,
    /// Turns gone direct.
    pub(super) direct_turns: u32,
    /// Which, in the order of the trace's turns.
    pub(super) direct: Vec<bool>,
    /// Turns that would have gone direct with a slot for everyone.
    pub(super) appendable_turns: u32,
    /// Sessions that asked for a slot and never held one.
    pub(super) starved: u32,
    /// Begin of each turn, ns, in the order of the trace's turns.
    pub(super) begins: Vec<u64>,
    /// End of each session, ns.
    pub(super) ends: Vec<u64>,
    /// Sessions that held a slot at some time.
    pub(super) held_once: Vec<bool>,
    /// First to last planned send, seconds.
    pub(super) planned_s: f64,
}

struct State<'a> {
    trace: &'a Trace,
    scenario: &'a Scenario,
    service: &'a Service<'a>,
    /// Prefill (or colocated) workers.
    servers: Vec<Server>,
    /// Ends of requests under way, ns.
    in_flight: BinaryHeap<Reverse<u64>>,
    /// Times at which slots come back, ns.
    releases: BinaryHeap<Reverse<u64>>,
    slots_free: u64,
    holds: Vec<bool>,
    held_once: Vec<bool>,
    /// Sessions with a slot and turns to come, by the end of their last turn, ns: idle ones come first.
    holders: BTreeSet<(u64, usize)>,
    last_end: Vec<u64>,
    direct: Vec<bool>,
    begins: Vec<u64>,
}

/// Runs the sketch. `slots`: how many there are; `None` for no limit.
pub(super) fn sketch(scenario: &Scenario, trace: &Trace, service: &Service, slots: Option<u64>) -> Sketch {
    let sessions = trace.sessions.len();
    let mut state = State {
        trace,
        scenario,
        service,
        servers: vec![Server::default(); usize::from(service.prefillers()).max(1)],
        in_flight: BinaryHeap::new(),
        releases: BinaryHeap::new(),
        slots_free: slots.unwrap_or(u64::MAX),
        holds: vec![false; sessions],
        held_once: vec![false; sessions],
        holders: BTreeSet::new(),
        last_end: vec![0; sessions],
        direct: vec![false; trace.turns.len()],
        begins: vec![0; trace.turns.len()],
    };
    let mut due = BinaryHeap::new();
    let mut starts = vec![0; sessions];
    let mut edges = Vec::new();
    for (ix, start) in starts.iter_mut().enumerate() {
        let Some(first) = trace.turns_of(SessionIx(ix as u32)).first() else { continue };
        *start = scaled(first.timestamp, scenario.replay.arrival_scale);
        due.push(Reverse((*start, ix, 0)));
    }
    // Planned time of each session's current turn, had none waited for its predecessor.
    let mut planned = starts.clone();
    while let Some(Reverse((now, ix, k))) = due.pop() {
        let turns = trace.turns_of(SessionIx(ix as u32));
        let end = state.serve(now, ix, k);
        if k + 1 < turns.len() {
            planned[ix] = planned[ix].saturating_add(gap(&scenario.replay, turns, k + 1));
            due.push(Reverse((next_due(&scenario.replay, turns, k + 1, planned[ix], end), ix, k + 1)));
        } else {
            edges.push((end, -1));
            edges.push((starts[ix], 1));
            state.holders.remove(&(end, ix));
            if state.holds[ix] && scenario.admission.slot_release != SlotRelease::Never {
                state.releases.push(Reverse(end));
            }
        }
    }
    Sketch {
        peak_live: peak(edges),
        direct_turns: state.direct.iter().filter(|direct| **direct).count() as u32,
        direct: state.direct,
        appendable_turns: appendable(scenario, trace, service),
        starved: (0..sessions)
            .filter(|ix| !state.held_once[*ix] && asks_for_slot(&scenario.replay, trace.sessions[*ix].turns.len()))
            .count() as u32,
        begins: state.begins,
        ends: state.last_end,
        held_once: state.held_once,
        planned_s: Dur(planned.iter().copied().max().unwrap_or(0)).as_secs_f64(),
    }
}

impl State<'_> {
    /// Serves turn `k` of a session, due now; returns its end.
    fn serve(&mut self, now: u64, ix: usize, k: usize) -> u64 {
        let turns = self.trace.turns_of(SessionIx(ix as u32));
        self.begins[self.trace.sessions[ix].turns.start as usize + k] = now;
        while self.in_flight.peek().is_some_and(|Reverse(end)| *end <= now) {
            self.in_flight.pop();
        }
        while self.releases.peek().is_some_and(|Reverse(at)| *at <= now) {
            self.releases.pop();
            self.slots_free += 1;
        }
        let way = self.way(now, ix, turns, k);
        let decoders = match self.scenario.replay.mechanism {
            Mechanism::Dp => self.scenario.cluster.colocated,
            Mechanism::Pd | Mechanism::Kvc => self.scenario.cluster.decode,
        };
        let batch = (self.in_flight.len() as u32 + 1).div_ceil(u32::from(decoders.max(1)));
        let parts = self.service.parts(turns, k, way, batch.min(self.scenario.engine.max_running).max(1));
        let arrived = now.saturating_add(ns(parts.ingest));
        let refused = context(&turns[k]) > limit(&self.scenario.engine).0;
        let end = match way {
            _ if refused => arrived,
            Way::Direct => {
                self.direct[self.trace.sessions[ix].turns.start as usize + k] = true;
                arrived.saturating_add(ns(self.service.alone_s(parts.prompt) + parts.rest))
            }
            Way::Plain | Way::Colocated => {
                let first = self.servers.iter_mut().min_by(|a, b| a.free.total_cmp(&b.free));
                let server = first.expect("at least one server");
                let prefilled = server.prefill(self.service, Dur(arrived).as_secs_f64(), parts.prompt);
                ns(prefilled + parts.rest).max(arrived)
            }
        };
        self.in_flight.push(Reverse(end));
        self.last_end[ix] = end;
        if self.holds[ix] {
            self.holders.insert((end, ix));
        }
        end
    }

    fn way(&mut self, now: u64, ix: usize, turns: &[TurnTrace], k: usize) -> Way {
        match self.scenario.replay.mechanism {
            Mechanism::Dp => Way::Colocated,
            Mechanism::Pd => Way::Plain,
            Mechanism::Kvc if k < seeded_by(&self.scenario.replay) => Way::Plain,
            Mechanism::Kvc if self.holds[ix] => {
                self.holders.remove(&(self.last_end[ix], ix));
                if self.service.appendable(turns, k) { Way::Direct } else { Way::Plain }
            }
            Mechanism::Kvc => {
                if self.slots_free > 0 {
                    self.slots_free -= 1;
                    self.hold(ix);
                } else if self.scenario.admission.slot_release == SlotRelease::IdleLru {
                    // The slot of the session that has been idle longest, whose next turn must seed again.
                    if let Some((_, other)) = self.holders.first().copied().filter(|(idle_since, _)| *idle_since <= now)
                    {
                        self.holders.pop_first();
                        self.holds[other] = false;
                        self.hold(ix);
                    }
                }
                Way::Plain
            }
        }
    }

    fn hold(&mut self, ix: usize) {
        self.holds[ix] = true;
        self.held_once[ix] = true;
    }
}

/// The turn, from 0, that seeds a session for which there is a slot.
pub(super) fn seeded_by(replay: &ReplayConfig) -> usize {
    match replay.first_turn {
        FirstTurn::Plain => 1,
        FirstTurn::Seed => 0,
    }
}

/// A session of so many turns asks for a slot.
pub(super) fn asks_for_slot(replay: &ReplayConfig, turns: usize) -> bool {
    turns > seeded_by(replay)
}

fn appendable(scenario: &Scenario, trace: &Trace, service: &Service) -> u32 {
    let of = |ix: u32| {
        let turns = trace.turns_of(SessionIx(ix));
        (seeded_by(&scenario.replay) + 1..turns.len()).filter(|k| service.appendable(turns, *k)).count() as u32
    };
    (0..trace.sessions.len() as u32).map(of).sum()
}

/// Recorded gap before turn `k`, scaled and limited, ns.
fn gap(replay: &ReplayConfig, turns: &[TurnTrace], k: usize) -> u64 {
    let recorded = turns[k].timestamp.ns().saturating_sub(turns[k - 1].timestamp.ns());
    let gap = scaled(Dur(recorded), replay.think_scale);
    if replay.max_gap_s > 0.0 { gap.min(ns(replay.max_gap_s)) } else { gap }
}

/// When turn `k`, planned for `planned`, is due, its predecessor having ended at `end`.
fn next_due(replay: &ReplayConfig, turns: &[TurnTrace], k: usize, planned: u64, end: u64) -> u64 {
    match replay.schedule {
        // The sketch serves a session's turns one after another: overlap under open-strict is left out.
        Schedule::Open | Schedule::OpenStrict => planned.max(end),
        Schedule::Think => {
            let served = replay.service_base_s + f64::from(turns[k - 1].output_length) / replay.service_tokens_per_s;
            end.saturating_add(gap(replay, turns, k).saturating_sub(scaled(Dur(ns(served)), replay.think_scale)))
        }
    }
}

fn scaled(gap: Dur, scale: f64) -> u64 {
    (gap.ns() as f64 / scale) as u64
}

fn ns(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

/// Most intervals at once; one that ends when another begins makes room for it.
fn peak(mut edges: Vec<(u64, i32)>) -> u32 {
    edges.sort_unstable();
    let mut live = 0;
    edges
        .iter()
        .map(|(_, step)| {
            live += step;
            live
        })
        .max()
        .unwrap_or(0)
        .max(0) as u32
}
