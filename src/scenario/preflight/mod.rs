//! What a run will meet, said before it starts: slots, capacity, time scale, conflicts.
//!
//! Estimates only. Closed counts come straight from trace and scenario; what depends on timing comes from the
//! `sketch` module. Nothing here is used by a run.

mod crowding;
mod prefill;
mod render;
mod service;
mod sketch;

#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::crowding::{Crowding, crowding};
pub use self::prefill::PrefillLoad;
use self::service::Service;
use self::sketch::{Sketch, asks_for_slot, sketch};
use super::conflicts::{Conflict, Severity, conflicts};
use super::model::Scenario;
use crate::admission::{AdmissionBy, Footprint, SlotRelease};
use crate::base::SessionIx;
use crate::policies::PolicyName;
use crate::replay::Mechanism;
use crate::trace::{Trace, TurnTrace};

/// The whole preflight of a scenario with a trace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Preflight {
    /// Time scale in a sentence: `time-scale 10: 6,000 s → 600 s`.
    pub time_scale: String,
    /// Span of the trace, seconds.
    pub span_s: f64,
    /// First to last planned send at the chosen scale, seconds; 0 when all is sent at once.
    pub planned_s: f64,
    /// Sessions of the trace.
    pub sessions: u32,
    /// Requests of the trace.
    pub requests: u32,
    /// Most sessions live at once, estimated with queueing for P but not for KV room.
    pub peak_live_sessions: u32,
    /// Session slots; null where no soft cap applies.
    pub slots: Option<Slots>,
    /// KV room.
    pub capacity: Capacity,
    /// Direct-to-D share; null without sessions on D.
    pub direct: Option<DirectShare>,
    /// Gaps against service times; null when no session has two turns.
    pub gaps: Option<Gaps>,
    /// Prefill work over prefill time there is, estimated; null when all is sent at once.
    pub prefill_load: Option<PrefillLoad>,
    /// Turns no worker can take.
    pub over_limit: OverLimit,
    /// Policy × mechanism × router.
    pub conflicts: Vec<Conflict>,
}

/// Slots against sessions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Slots {
    /// Decode workers.
    pub workers: u16,
    /// Soft cap of each.
    pub cap: u64,
    /// Their product.
    pub total: u64,
    /// Sessions that will want one: those with a second turn, or all when the first turn is already a seed.
    pub wanted: u32,
    /// When they are given back.
    pub release: SlotRelease,
    /// Sessions predicted never to hold one.
    pub starved: u32,
}

/// Sessions against pools.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Capacity {
    /// Workers that keep contexts: D, or colocated.
    pub workers: u16,
    /// Their pools together, tokens.
    pub pool_tokens: u64,
    /// Sum of the sessions' largest contexts, tokens.
    pub peak_context_tokens: u64,
    /// The second over the first.
    pub overload: f64,
    /// Mean context over all turns, tokens.
    pub mean_context_tokens: f64,
    /// Contexts of that size of the sessions live at once, tokens.
    pub live_context_tokens: f64,
    /// Whole sessions of that size in one worker's pool.
    pub sessions_per_worker: u64,
    /// D whose share of the live sessions exceeds its pool at some time, sessions dealt round robin.
    pub crowded_workers: u16,
    /// Share of the time in which at least one of them does, 0 to 1.
    pub crowded_share: f64,
    /// The most that live sessions need on one D, tokens.
    pub peak_worker_tokens: u64,
}

/// Predicted share of requests that go direct to D, 0 to 1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DirectShare {
    /// The smaller of `by_slots` and `by_capacity`. No upper bound where slots are short: see `by_slots`.
    pub predicted: f64,
    /// Lower end: no turn that begins while the sessions on its D need more than its pool goes direct. An estimate, too: turns
    /// of the plain path need room as well and are not in it.
    pub at_least: f64,
    /// With slots and KV room for all: turns that append little enough to what their session's seed left.
    pub appendable: f64,
    /// If only slots were short: turns after a session's seed that can be appended, while it has a slot. An estimate of who
    /// gets one: where turns through P are held up by the link or by room on D, which it does not know, fewer ask for the slots
    /// of others, and more turns may go direct.
    pub by_slots: f64,
    /// If only KV room were short: appendable turns times the share of live sessions that fit into the pools.
    pub by_capacity: f64,
}

/// Gaps between turns of a session that are shorter than the service time of the first of the two on idle workers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Gaps {
    /// Gaps.
    pub count: u32,
    /// Share at the trace's own speed, 0 to 1.
    pub under_service_share: f64,
    /// Share at the chosen think scale, 0 to 1.
    pub under_service_share_scaled: f64,
    /// Mean service time on idle workers, seconds.
    pub mean_service_s: f64,
}

/// Turns whose prompt and answer exceed what a worker takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OverLimit {
    /// The limit, tokens.
    pub limit_tokens: u64,
    /// Which key sets it.
    pub limit_key: String,
    /// Turns over it.
    pub turns: u32,
    /// Sessions with such a turn, in arrival order.
    pub sessions: Vec<String>,
}

impl Preflight {
    /// Whether the run is refused without `--allow-conflict`.
    pub fn refuses(&self) -> bool {
        self.conflicts.iter().any(|conflict| conflict.severity == Severity::Refuse)
    }

    /// The report as plain lines, the pressing ones marked with `!`.
    pub fn lines(&self) -> Vec<String> {
        render::lines(self, "")
    }

    /// The same before a run against servers that are not ours: what follows from the scenario's model of a worker says so.
    pub fn lines_for_a_server(&self) -> Vec<String> {
        render::lines(self, " (by the scenario's cost model)")
    }
}

/// Looks at a scenario and a trace before the run.
pub fn preflight(scenario: &Scenario, trace: &Trace) -> Preflight {
    let slots = slot_cap(scenario, trace);
    let service = Service::new(scenario);
    let sketch = sketch(scenario, trace, &service, slots.map(|(workers, cap)| u64::from(workers) * cap));
    let crowding = crowding(scenario, trace, &sketch);
    let capacity = capacity(scenario, trace, &sketch, &crowding);
    let direct = direct_share(scenario, trace, &sketch, &capacity, &crowding);
    Preflight {
        time_scale: render::time_scale(&scenario.replay, trace.span().as_secs_f64()),
        span_s: trace.span().as_secs_f64(),
        planned_s: sketch.planned_s,
        sessions: trace.sessions.len() as u32,
        requests: trace.turns.len() as u32,
        peak_live_sessions: sketch.peak_live,
        slots: slots.map(|(workers, cap)| Slots {
            workers,
            cap,
            total: u64::from(workers) * cap,
            wanted: trace.sessions.iter().filter(|session| asks_for_slot(&scenario.replay, session.turns.len())).count()
                as u32,
            release: scenario.admission.slot_release,
            starved: sketch.starved,
        }),
        prefill_load: prefill::load(scenario, trace, &sketch, &capacity, direct.as_ref()),
        direct,
        capacity,
        gaps: gaps(scenario, trace, &service),
        over_limit: over_limit(scenario, trace),
        conflicts: conflicts(scenario),
    }
}

/// Decode workers and the soft cap of each, where the replayer's soft cap decides.
fn slot_cap(scenario: &Scenario, trace: &Trace) -> Option<(u16, u64)> {
    let admission = &scenario.admission;
    if scenario.replay.mechanism != Mechanism::Kvc || admission.seed == AdmissionBy::Worker {
        return None;
    }
    let cap_max = u64::from(admission.cap_max);
    let cap = if admission.capacity_known {
        let usable = scenario.engine.kv_pool_tokens as f64 * admission.usable_share;
        let target = |turn: &TurnTrace| match admission.footprint {
            Footprint::Full => context(turn) as f64,
            Footprint::Incremental => {
                f64::from(turn.input_length.saturating_sub(turn.cached_tokens) + turn.output_length)
            }
        };
        ((usable / mean(trace.turns.iter().map(target)).max(1.0)) as u64).clamp(1, cap_max.max(1))
    } else {
        cap_max
    };
    Some((scenario.cluster.decode, cap))
}

fn capacity(scenario: &Scenario, trace: &Trace, sketch: &Sketch, crowding: &Crowding) -> Capacity {
    let workers = match scenario.replay.mechanism {
        Mechanism::Dp => scenario.cluster.colocated,
        Mechanism::Pd | Mechanism::Kvc => scenario.cluster.decode,
    };
    let pool = scenario.engine.kv_pool_tokens;
    let pool_tokens = pool.saturating_mul(u64::from(workers));
    let peak_of = |ix: u32| trace.turns_of(SessionIx(ix)).iter().map(context).max().unwrap_or(0);
    let peak_context_tokens = (0..trace.sessions.len() as u32).map(peak_of).sum();
    let mean_context_tokens = mean(trace.turns.iter().map(|turn| context(turn) as f64));
    Capacity {
        workers,
        pool_tokens,
        peak_context_tokens,
        overload: peak_context_tokens as f64 / pool_tokens.max(1) as f64,
        mean_context_tokens,
        live_context_tokens: mean_context_tokens * f64::from(sketch.peak_live),
        sessions_per_worker: (pool as f64 / mean_context_tokens.max(1.0)) as u64,
        crowded_workers: crowding.workers,
        crowded_share: crowding.share,
        peak_worker_tokens: crowding.peak_tokens,
    }
}

fn direct_share(
    scenario: &Scenario,
    trace: &Trace,
    sketch: &Sketch,
    capacity: &Capacity,
    crowding: &Crowding,
) -> Option<DirectShare> {
    // `car` chooses D anew for each turn: whether a turn finds its session there is not a matter of slots and room.
    let moves = scenario.policy.name == PolicyName::Car;
    if scenario.replay.mechanism != Mechanism::Kvc || moves || trace.turns.is_empty() {
        return None;
    }
    let requests = trace.turns.len() as f64;
    let fitting = capacity.pool_tokens as f64 / capacity.mean_context_tokens.max(1.0);
    let by_slots = sketch.direct_turns as f64 / requests;
    let appendable = sketch.appendable_turns as f64 / requests;
    let by_capacity = appendable * (fitting / f64::from(sketch.peak_live.max(1))).min(1.0);
    let predicted = by_slots.min(by_capacity);
    let sure = f64::from(sketch.direct_turns - crowding.turns_at_risk) / requests;
    Some(DirectShare { predicted, at_least: predicted.min(sure), appendable, by_slots, by_capacity })
}

fn gaps(scenario: &Scenario, trace: &Trace, service: &Service) -> Option<Gaps> {
    let (mut count, mut under, mut under_scaled, mut total_s) = (0u32, 0u32, 0u32, 0.0);
    for ix in 0..trace.sessions.len() as u32 {
        let turns = trace.turns_of(SessionIx(ix));
        for k in 1..turns.len() {
            let service_s = service.unloaded_s(turns, k - 1);
            let gap_s = turns[k].timestamp.as_secs_f64() - turns[k - 1].timestamp.as_secs_f64();
            count += 1;
            total_s += service_s;
            under += u32::from(gap_s < service_s);
            under_scaled += u32::from(gap_s / scenario.replay.think_scale < service_s);
        }
    }
    let share = |part: u32| f64::from(part) / f64::from(count);
    (count > 0).then(|| Gaps {
        count,
        under_service_share: share(under),
        under_service_share_scaled: share(under_scaled),
        mean_service_s: total_s / f64::from(count),
    })
}

fn over_limit(scenario: &Scenario, trace: &Trace) -> OverLimit {
    let (limit_tokens, limit_key) = service::limit(&scenario.engine);
    let mut found = OverLimit { limit_tokens, limit_key: limit_key.into(), turns: 0, sessions: Vec::new() };
    for (ix, session) in trace.sessions.iter().enumerate() {
        let over = trace.turns_of(SessionIx(ix as u32)).iter().filter(|turn| context(turn) > limit_tokens).count();
        if over > 0 {
            found.turns += over as u32;
            found.sessions.push(session.id.clone());
        }
    }
    found
}

/// Prompt and answer, tokens.
fn context(turn: &TurnTrace) -> u64 {
    u64::from(turn.input_length) + u64::from(turn.output_length)
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0u32), |(sum, count), value| (sum + value, count + 1));
    sum / f64::from(count.max(1))
}
