//! Finds the [`Cause`]s of a run. Each rule is one function: evidence in, cause out or nothing.

use std::collections::{BTreeMap, BTreeSet};

use super::cause::{Cause, CauseLine, CounterDrift, Room, SlotShortage};
use super::outcomes::{ErrorGroup, Outcomes};
use super::sessions::context_tokens;
use super::{Fairness, RoleSpread, RunInfo, SessionRow, SlotFacts, Transfers, WorkerRow};
use crate::protocol::ErrorClass;
use crate::record::{ExecutionMode, ModeReason, RequestRecord, RunFacts};

/// A trait sets the starved apart when it orders them against the others at least this well.
const TELLS_APART: f64 = 0.75;
/// Short gaps matter when the time scale adds at least this share of them.
const COMPRESSES_FROM: f64 = 0.10;

/// What causes look for in records and the tables do not hold.
#[derive(Debug, Default)]
pub(super) struct Signals {
    pub route_mismatches: u64,
    extra_placements: u64,
    modes: BTreeMap<ExecutionMode, u64>,
    reasons: BTreeMap<ModeReason, u64>,
    refused: Refused,
}

#[derive(Debug, Default)]
struct Refused {
    requests: u64,
    sessions: BTreeSet<String>,
    smallest_tokens: Option<u64>,
}

/// Everything a rule may look at.
pub(super) struct Diagnosis<'a> {
    pub info: &'a RunInfo,
    pub facts: &'a RunFacts,
    pub signals: &'a Signals,
    /// Mean over sessions of their largest prompt with its answer, tokens.
    pub mean_peak_context: Option<f64>,
    pub outcomes: &'a Outcomes,
    pub errors: &'a [ErrorGroup],
    pub sessions: &'a [SessionRow],
    pub fairness: &'a Fairness,
    pub workers: &'a [WorkerRow],
    pub spread: &'a [RoleSpread],
    pub transfers: &'a Transfers,
}

impl Signals {
    pub(super) fn add(&mut self, record: &RequestRecord) {
        self.route_mismatches += u64::from(record.route_mismatch);
        self.extra_placements += u64::from(record.placements.saturating_sub(1));
        *self.modes.entry(record.execution_mode).or_insert(0) += 1;
        *self.reasons.entry(record.mode_reason).or_insert(0) += 1;
        if record.error_class.as_deref() == Some(ErrorClass::ContextLimit.as_str()) {
            let context = context_tokens(record);
            self.refused.requests += 1;
            self.refused.sessions.insert(record.session_id.clone());
            self.refused.smallest_tokens =
                Some(self.refused.smallest_tokens.map_or(context, |least| least.min(context)));
        }
    }

    fn mode(&self, mode: ExecutionMode) -> u64 {
        self.modes.get(&mode).copied().unwrap_or(0)
    }

    fn reason(&self, reason: ModeReason) -> u64 {
        self.reasons.get(&reason).copied().unwrap_or(0)
    }
}

/// All causes found, those that spoil the run first.
pub(super) fn diagnose(run: &Diagnosis) -> Vec<CauseLine> {
    let rules: [fn(&Diagnosis) -> Option<Cause>; 14] = [
        nothing_completed,
        counters_diverged,
        session_cap,
        capacity,
        next_binder,
        large_sessions,
        late_sessions,
        time_scale,
        open_failures,
        transfer_errors,
        context_limit,
        restarts,
        idle_workers,
        beliefs,
    ];
    rules.iter().filter_map(|rule| rule(run)).map(CauseLine::from).collect()
}

fn nothing_completed(run: &Diagnosis) -> Option<Cause> {
    let top = run.errors.first()?;
    (run.outcomes.ok == 0).then(|| Cause::NothingCompleted {
        failed: run.outcomes.bad(),
        class: top.class.clone(),
        count: top.count,
        example: top.example.clone(),
    })
}

fn counters_diverged(run: &Diagnosis) -> Option<Cause> {
    let after = run.facts.counters_diverged_after?;
    (run.signals.route_mismatches > 0).then(|| {
        Cause::CountersDiverged(CounterDrift {
            after,
            policy: run.info.policy.clone(),
            mechanism: run.info.mechanism.clone(),
            mismatches: run.signals.route_mismatches,
            sessions_not_found: class_count(run.errors, ErrorClass::SessionNotFound),
        })
    })
}

fn session_cap(run: &Diagnosis) -> Option<Cause> {
    let slots = run.info.slots.as_ref()?;
    let fallbacks = run.signals.mode(ExecutionMode::FallbackSessionCap);
    let all = run.sessions.len() as u64;
    let sessions =
        if slots.slot_release == "never" { all } else { slots.peak_live_sessions.map_or(all, |peak| peak.min(all)) };
    let holds: Option<Vec<f64>> = run.sessions.iter().map(|row| row.slot_hold_s).collect();
    let never_held = holds.map(|holds| holds.iter().filter(|hold| **hold == 0.0).count() as u64);
    (fallbacks > 0 && slots.slots() < sessions).then(|| {
        Cause::SessionCapStarvation(SlotShortage {
            decode_workers: slots.decode_workers,
            cap: slots.cap_max,
            slots: slots.slots(),
            sessions,
            slot_release: slots.slot_release.clone(),
            never_held,
            fallbacks,
        })
    })
}

/// How many mean peak contexts one pool holds.
fn room(run: &Diagnosis, slots: &SlotFacts) -> Option<Room> {
    let mean = run.mean_peak_context.filter(|mean| *mean > 0.0)?;
    Some(Room {
        kv_pool_tokens: slots.kv_pool_tokens,
        mean_context_tokens: mean,
        sessions_per_worker: (slots.kv_pool_tokens as f64 / mean) as u64,
        cap: slots.cap_max,
    })
}

fn capacity(run: &Diagnosis) -> Option<Cause> {
    let room = room(run, run.info.slots.as_ref()?)?;
    let refusals = run.signals.mode(ExecutionMode::FallbackNoCapacity)
        + run.signals.mode(ExecutionMode::FallbackAdmissionRejected);
    let reseeds_after_trim = run.signals.reason(ModeReason::EvictedTrim);
    let binds = room.sessions_per_worker < u64::from(room.cap);
    (binds && refusals + reseeds_after_trim > 0).then_some(Cause::CapacityBeforeCap {
        room,
        refusals,
        reseeds_after_trim,
    })
}

fn next_binder(run: &Diagnosis) -> Option<Cause> {
    let room = room(run, run.info.slots.as_ref()?)?;
    (session_cap(run).is_some() && capacity(run).is_none()).then_some(Cause::NextBinder { room })
}

fn large_sessions(run: &Diagnosis) -> Option<Cause> {
    let contrast = run.fairness.starved.as_ref()?.peak_input_tokens;
    let separation = contrast.separation.filter(|separation| *separation >= TELLS_APART)?;
    Some(Cause::LargeSessionsStarve { starved_tokens: contrast.starved?, other_tokens: contrast.others?, separation })
}

fn late_sessions(run: &Diagnosis) -> Option<Cause> {
    let starved = run.fairness.starved.as_ref()?;
    let separation = starved.arrival_rank.separation.filter(|separation| *separation >= TELLS_APART)?;
    Some(Cause::LateSessionsStarve {
        first_rank: starved.first_rank,
        starved_rank: starved.arrival_rank.starved?,
        other_rank: starved.arrival_rank.others?,
        separation,
    })
}

fn time_scale(run: &Diagnosis) -> Option<Cause> {
    let gaps = run.info.gaps?;
    (gaps.short_share_at_scale - gaps.short_share_at_1x >= COMPRESSES_FROM).then_some(Cause::TimeScaleCompressesGaps {
        time_scale: run.info.time_scale,
        short_share: gaps.short_share_at_scale,
        short_share_at_1x: gaps.short_share_at_1x,
    })
}

fn open_failures(run: &Diagnosis) -> Option<Cause> {
    let fallbacks = run.signals.mode(ExecutionMode::FallbackOpenFailed);
    let extra_placements = run.signals.extra_placements;
    (fallbacks + extra_placements > 0).then_some(Cause::OpenFailures { extra_placements, fallbacks })
}

fn transfer_errors(run: &Diagnosis) -> Option<Cause> {
    let Transfers { total, errors, concentrated, .. } = run.transfers;
    match concentrated {
        Some(pair) => Some(Cause::TransferErrorsConcentrated { pair: pair.clone(), all_errors: *errors }),
        None => (*errors > 0).then_some(Cause::TransferErrors { errors: *errors, transfers: *total }),
    }
}

fn context_limit(run: &Diagnosis) -> Option<Cause> {
    let Refused { requests, sessions, smallest_tokens } = &run.signals.refused;
    Some(Cause::ContextLimitRefusals {
        requests: *requests,
        sessions: sessions.len() as u64,
        smallest_tokens: (*smallest_tokens)?,
    })
}

fn restarts(run: &Diagnosis) -> Option<Cause> {
    let restarted = run.workers.iter().filter_map(|row| row.account.as_ref()).filter(|account| account.restarts > 0);
    let (workers, counts): (Vec<String>, Vec<u64>) =
        restarted.map(|account| (account.worker.clone(), u64::from(account.restarts))).unzip();
    (!workers.is_empty()).then(|| Cause::WorkerRestarts {
        workers,
        restarts: counts.iter().sum(),
        reseeds: run.signals.reason(ModeReason::WorkerRestarted),
    })
}

fn idle_workers(run: &Diagnosis) -> Option<Cause> {
    let busy_roles = run.spread.iter().filter(|spread| spread.idle_workers < spread.workers);
    let worst = busy_roles.filter(|spread| spread.idle_workers > 0).max_by_key(|spread| spread.idle_workers)?;
    Some(Cause::IdleWorkers { role: worst.role.clone(), idle: worst.idle_workers, workers: worst.workers })
}

fn beliefs(run: &Diagnosis) -> Option<Cause> {
    let corrections = run.facts.beliefs_corrected;
    (corrections > 0).then_some(Cause::BeliefsCorrected { corrections })
}

fn class_count(errors: &[ErrorGroup], class: ErrorClass) -> u64 {
    errors.iter().filter(|group| group.class == class.as_str()).map(|group| group.count).sum()
}
