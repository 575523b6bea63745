//! Finds the [`Cause`]s of a run. Each rule is one function: evidence in, cause out or nothing.
//!
//! The order is that of weight: what spoils the run, then what cost turns their path or time by the number of turns, then
//! what explains or describes, and last failed transfers that accuse nobody.

use std::collections::{BTreeMap, BTreeSet};

use super::cause::{
    Cause, CauseLine, CounterDrift, EndedSlots, HotDecoder, NoHits, PartlyBlind, Room, SlotShortage, SlowWorker,
    turns_worth,
};
use super::contrast::{Contrast, tells_apart};
use super::fairness::Fairness;
use super::gaps::Gaps;
use super::pace::Paces;
use super::prefill::{self, ThroughPrefill};
use crate::protocol::ErrorClass;
use crate::record::{ExecutionMode, ModeReason, RunFacts};
use crate::results::outcomes::{ErrorGroup, Outcomes};
use crate::results::seen::Seen;
use crate::results::stats::share;
use crate::results::transfers::TimeOuts;
use crate::results::vocabulary::Vocabulary;
use crate::results::{IndexUse, RoleSpread, RunInfo, SessionRow, SlotFacts, Transfers, WorkerRow, workers};

/// Short gaps matter when the time scale adds at least this share of them.
const COMPRESSES_FROM: f64 = 0.10;
/// Lost requests that are named.
const NAMED: usize = 4;
/// Label of the policy that always reads the index.
const CAR: &str = "car";

/// What causes look for in records and the tables do not hold.
#[derive(Debug, Default)]
pub(in crate::results) struct Signals {
    pub route_mismatches: u64,
    extra_placements: u64,
    modes: [u64; ExecutionMode::ALL.len()],
    reasons: [u64; ModeReason::ALL.len()],
    cap_refusals: Vec<Asked>,
    compacted: Affected,
    refused: Refused,
    pub(super) through_p: ThroughPrefill,
    paces: Paces,
    gaps: Gaps,
    pub time_outs: TimeOuts,
    losses: Losses,
}

/// Requests that a worker took with it, and the sessions whose last turn was one.
#[derive(Debug, Default)]
struct Losses {
    requests: Vec<Loss>,
    /// Index of the one that was a session's last turn so far, by the number of the session.
    sessions: BTreeMap<u32, usize>,
}

/// One of them: lost with its worker, or broken off on it.
#[derive(Debug)]
struct Loss {
    request: String,
    session: String,
    workers: Vec<String>,
    /// The worker is known to be lost; else its connection broke, which is its restart's doing only if there was one.
    is_certain: bool,
    /// The next turn of the session was placed again because of it.
    reseeded: bool,
}

/// Size of a turn the soft cap refused, tokens.
#[derive(Debug, Clone, Copy)]
struct Asked {
    full: u64,
    incremental: u64,
}

#[derive(Debug, Default)]
struct Affected {
    turns: u64,
    sessions: BTreeSet<u32>,
}

#[derive(Debug, Default)]
struct Refused {
    requests: u64,
    sessions: BTreeSet<u32>,
    smallest_tokens: Option<u64>,
}

/// Everything a rule may look at.
pub(in crate::results) struct Diagnosis<'a> {
    pub info: &'a RunInfo,
    pub facts: &'a RunFacts,
    pub signals: &'a Signals,
    /// Mean over sessions of their largest prompt with its answer, tokens.
    pub mean_peak_context: Option<f64>,
    pub outcomes: &'a Outcomes,
    pub errors: &'a [ErrorGroup],
    pub sessions: &'a [SessionRow],
    pub most_live_sessions: u64,
    pub fairness: &'a Fairness,
    pub workers: &'a [WorkerRow],
    pub spread: &'a [RoleSpread],
    pub slow_workers: &'a [SlowWorker],
    pub transfers: &'a Transfers,
    pub index: Option<&'a IndexUse>,
}

impl Signals {
    pub(in crate::results) fn add(&mut self, request: &Seen) {
        self.route_mismatches += u64::from(request.route_mismatch);
        self.extra_placements += u64::from(request.placements.saturating_sub(1));
        self.modes[request.mode as usize] += 1;
        self.reasons[request.reason as usize] += 1;
        if request.mode == ExecutionMode::FallbackSessionCap {
            let context = request.context_tokens();
            let incremental = context.saturating_sub(u64::from(request.ideal_hit_tokens));
            self.cap_refusals.push(Asked { full: context, incremental });
        }
        self.through_p.add(request);
        self.paces.add(request);
        self.gaps.add(request);
        if request.error_class == Some(ErrorClass::KvTransferTimeout.as_str())
            && let (Some(p), Some(d)) = (request.prefill_worker, request.decode_worker_actual)
        {
            let on_link = self.time_outs.entry((p.word.into(), d.word.into())).or_default();
            on_link.count += 1;
            on_link.sessions.insert(request.session.ix);
        }
        self.losses.add(request);
        if request.reason == ModeReason::ContextCompacted {
            self.compacted.turns += 1;
            self.compacted.sessions.insert(request.session.ix);
        }
        if request.error_class == Some(ErrorClass::ContextLimit.as_str()) {
            let context = request.context_tokens();
            self.refused.requests += 1;
            self.refused.sessions.insert(request.session.ix);
            self.refused.smallest_tokens =
                Some(self.refused.smallest_tokens.map_or(context, |least| least.min(context)));
        }
    }

    /// Workers that were slow in the requests added so far; names are by number.
    pub(in crate::results) fn slow_workers(&mut self, names: &Vocabulary) -> Vec<SlowWorker> {
        self.paces.slow(names)
    }

    fn mode(&self, mode: ExecutionMode) -> u64 {
        self.modes[mode as usize]
    }

    fn reason(&self, reason: ModeReason) -> u64 {
        self.reasons[reason as usize]
    }
}

impl Losses {
    fn add(&mut self, request: &Seen) {
        let before = self.sessions.remove(&request.session.ix);
        if let Some(loss) = before.and_then(|at| self.requests.get_mut(at)) {
            loss.reseeded = request.reason == ModeReason::PreviousTurnFailed;
        }
        let is = |class: ErrorClass| request.error_class == Some(class.as_str());
        let is_certain = is(ErrorClass::WorkerLost);
        if is_certain || is(ErrorClass::ConnectionClosed) || is(ErrorClass::PrefillFailed) {
            // A prefill that failed is no D's doing.
            let decode = request.decode_worker_actual.or(request.decode_worker_intended);
            let workers = decode.filter(|_| !is(ErrorClass::PrefillFailed)).into_iter().chain(request.prefill_worker);
            let workers = workers.map(|worker| worker.word.into()).collect();
            self.sessions.insert(request.session.ix, self.requests.len());
            let (request, session) = (request.request_id.into(), request.session.word.into());
            self.requests.push(Loss { request, session, workers, is_certain, reseeded: false });
        }
    }

    /// Those that restarts of these workers explain.
    fn with(&self, restarted: &[String]) -> Vec<&Loss> {
        let explained = |loss: &&Loss| loss.is_certain || loss.workers.iter().any(|on| restarted.contains(on));
        self.requests.iter().filter(explained).collect()
    }
}

/// All causes found, the weightiest first.
pub(in crate::results) fn diagnose(run: &Diagnosis) -> Vec<CauseLine> {
    let rules: [fn(&Diagnosis) -> Option<Cause>; 24] = [
        nothing_completed,
        load_only,
        partly_blind,
        counters_diverged,
        session_cap,
        next_binder,
        ended_slots,
        cap_shrinks,
        slots_uneven,
        capacity,
        open_failures,
        admission_fails,
        context_limit,
        restarts,
        compaction,
        slow_workers,
        prefill::prefill_queue,
        prefill::link,
        prefill::decode_room,
        large_sessions,
        late_sessions,
        time_scale,
        idle_workers,
        // Concentrated, they have a weight; here and there, they are the last to look at.
        transfer_errors,
    ];
    let mut causes: Vec<Cause> = rules.iter().filter_map(|rule| rule(run)).collect();
    let cap_fallbacks = session_cap(run).as_ref().map_or(0, |cause| weight(cause, 0));
    causes.sort_by_key(|cause| std::cmp::Reverse(weight(cause, cap_fallbacks)));
    causes.into_iter().map(CauseLine::from).collect()
}

/// So many turns are concerned: they took another path, or failed, for this cause, or it held them up, of which counts the
/// part of their TTFT. The next binder stays with its cap.
fn weight(cause: &Cause, cap_fallbacks: u64) -> u64 {
    match cause {
        Cause::NothingCompleted { .. } | Cause::RanAsLoadOnly(_) | Cause::CountersDiverged(_) => u64::MAX,
        Cause::IndexPartlyBlind(index) => index.blind,
        Cause::SessionCapStarvation(slots) | Cause::SlotsUneven(slots) => slots.fallbacks,
        Cause::NextBinder { .. } => cap_fallbacks,
        Cause::EndedSessionsHoldSlots(ended) => ended.refusals,
        Cause::CapShrinks { fallbacks, .. } => *fallbacks,
        Cause::LinkBinds(held) | Cause::DecodeRoomBinds(held) => held.turns_worth(),
        Cause::CapacityBinds { refusals, reseeds_after_trim, .. } => refusals + reseeds_after_trim,
        Cause::AdmissionFails { direct: 0, .. } => u64::MAX,
        Cause::AdmissionFails { turns, .. } => *turns,
        Cause::OpenFailures { extra_placements, fallbacks, given_up } => extra_placements + fallbacks + given_up,
        Cause::TransferErrorsConcentrated { found, .. } => found.iter().map(|one| one.errors).sum(),
        Cause::ContextLimitRefusals { requests, .. } => *requests,
        Cause::WorkerRestarts { reseeds, lost_requests, reseeds_after_loss, .. } => {
            reseeds + lost_requests + reseeds_after_loss
        }
        Cause::ContextCompacted { turns, .. } => *turns,
        Cause::SlowWorkers { workers } => {
            workers.iter().map(|slow| (slow.turns as f64 * (1.0 - 1.0 / slow.factor)) as u64).sum()
        }
        Cause::PrefillQueue { turns, mean_queue_ms, mean_ttft_ms, .. } => {
            turns_worth(*turns, *mean_queue_ms, *mean_ttft_ms)
        }
        Cause::TransferErrors { .. }
        | Cause::LargeSessionsStarve { .. }
        | Cause::LateSessionsStarve { .. }
        | Cause::TimeScaleCompressesGaps { .. }
        | Cause::IdleWorkers { .. } => 0,
    }
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

/// A policy that reads the KV index and was never promised anything looks almost as good as one that was.
fn load_only(run: &Diagnosis) -> Option<Cause> {
    let index = run.index.cloned().unwrap_or_default();
    let reads = index.decisions > 0 || run.info.policy == CAR;
    (reads && index.with_hits == 0 && run.outcomes.served() > 0).then(|| {
        Cause::RanAsLoadOnly(NoHits {
            streams: index.known_streams().count() as u64,
            policy: run.info.policy.clone(),
            decisions: index.decisions,
            blind: index.blind,
            in_step: index.in_step(),
            events: index.events(),
            blindness: index.blindness,
        })
    })
}

/// What some workers hold was not seen: requests went there, or elsewhere, by load alone.
fn partly_blind(run: &Diagnosis) -> Option<Cause> {
    let index = run.index.filter(|index| index.with_hits > 0 && index.blind > 0)?;
    Some(Cause::IndexPartlyBlind(PartlyBlind {
        decisions: index.decisions,
        blind: index.blind,
        share: index.blind_share?,
        blindness: index.blindness.clone(),
    }))
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
    full_slots(run).filter(|slots| slots.slots < slots.sessions).map(Cause::SessionCapStarvation)
}

fn slots_uneven(run: &Diagnosis) -> Option<Cause> {
    full_slots(run).filter(|slots| slots.slots >= slots.sessions).map(Cause::SlotsUneven)
}

/// Turns refused by the soft cap at its maximum, against the sessions that asked for a slot.
fn full_slots(run: &Diagnosis) -> Option<SlotShortage> {
    let facts = run.info.slots.as_ref()?;
    let (cap, slots) = (facts.cap_max?, facts.slots()?);
    let fallbacks = run.signals.cap_refusals.iter().filter(|asked| soft_cap(facts, asked).is_none()).count() as u64;
    let asking: Vec<&SessionRow> = run.sessions.iter().filter(|row| row.asks_for_slot()).collect();
    let sessions = if facts.slot_release == "never" { asking.len() as u64 } else { run.most_live_sessions };
    let holds: Option<Vec<f64>> = asking.iter().map(|row| row.slot_hold_s).collect();
    (fallbacks > 0).then(|| SlotShortage {
        decode_workers: facts.decode_workers,
        cap,
        slots,
        sessions,
        slot_release: facts.slot_release.clone(),
        never_held: holds.map(|holds| holds.iter().filter(|hold| **hold == 0.0).count() as u64),
        fallbacks,
    })
}

/// Slots kept after the last turn of their session, and refused to others meanwhile.
fn ended_slots(run: &Diagnosis) -> Option<Cause> {
    let refused_by_ended = |row: &&SessionRow| row.refused_by_ended.is_some_and(|refusals| refusals > 0);
    let refused: Vec<&SessionRow> = run.sessions.iter().filter(refused_by_ended).collect();
    let seconds = |of: fn(&SessionRow) -> Option<f64>| run.sessions.iter().filter_map(of).sum::<f64>();
    let (held_s, after_end_s) = (seconds(|row| row.slot_hold_s), seconds(|row| row.slot_after_end_s));
    (!refused.is_empty() && held_s > 0.0).then(|| {
        Cause::EndedSessionsHoldSlots(EndedSlots {
            held_s,
            after_end_s,
            share: after_end_s / held_s,
            refusals: refused.iter().filter_map(|row| row.refused_by_ended).map(u64::from).sum(),
            sessions: refused.len() as u64,
            starved: refused.iter().filter(|row| row.starved).count() as u64,
            remedy: "admission.slot_release".into(),
        })
    })
}

/// Tokens of a turn as the soft cap counts them.
fn size(facts: &SlotFacts, asked: &Asked) -> u64 {
    if facts.footprint == "incremental" { asked.incremental.max(1) } else { asked.full.max(1) }
}

/// The soft cap a turn met, where it was below its maximum.
fn soft_cap(facts: &SlotFacts, asked: &Asked) -> Option<u64> {
    let fits = (facts.usable_tokens? / size(facts, asked)).max(1);
    (fits < u64::from(facts.cap_max?)).then_some(fits)
}

fn cap_shrinks(run: &Diagnosis) -> Option<Cause> {
    let facts = run.info.slots.as_ref()?;
    let (cap, usable_tokens) = (facts.cap_max?, facts.usable_tokens?);
    let shrunk = run.signals.cap_refusals.iter().filter(|asked| soft_cap(facts, asked).is_some());
    let sizes: Vec<u64> = shrunk.map(|asked| size(facts, asked)).collect();
    let mean_turn_tokens = share(sizes.iter().sum(), sizes.len() as u64)?;
    Some(Cause::CapShrinks {
        cap,
        usable_tokens,
        mean_turn_tokens,
        shrunk_cap: ((usable_tokens as f64 / mean_turn_tokens) as u64).max(1),
        fallbacks: sizes.len() as u64,
    })
}

/// How many mean peak contexts one pool holds.
fn room(run: &Diagnosis, slots: &SlotFacts) -> Option<Room> {
    let mean = run.mean_peak_context.filter(|mean| *mean > 0.0)?;
    Some(Room {
        kv_pool_tokens: slots.kv_pool_tokens,
        mean_context_tokens: mean,
        sessions_per_worker: slots.kv_pool_tokens as f64 / mean,
        cap: slots.cap_max,
    })
}

fn capacity(run: &Diagnosis) -> Option<Cause> {
    let room = room(run, run.info.slots.as_ref()?)?;
    let refusals = run.signals.reason(ModeReason::NoCapacity);
    let reseeds_after_trim = run.signals.reason(ModeReason::EvictedTrim);
    let share = share(refusals + reseeds_after_trim, run.outcomes.served())?;
    let hot = hot_decoder(run);
    (share > 0.0).then_some(Cause::CapacityBinds {
        room,
        refusals,
        reseeds_after_trim,
        share,
        hot,
        remedy: prefill::ROOM_KEYS.into(),
    })
}

/// The D with most trims, or without trims most KV transfers, if chance does not explain them.
pub(super) fn hot_decoder(run: &Diagnosis) -> Option<HotDecoder> {
    let transfers_to = |worker: &str| {
        run.transfers.pairs.iter().filter(|pair| pair.decode_worker == worker).map(|pair| pair.transfers).sum()
    };
    let accounts = run.workers.iter().filter_map(|row| row.account.as_ref()).filter(|account| account.role == "decode");
    let loads: Vec<(&str, u64, u64)> = accounts
        .map(|account| (account.worker.as_str(), account.session_trims, transfers_to(&account.worker)))
        .collect();
    let all_trims: u64 = loads.iter().map(|(_, trims, _)| trims).sum();
    let all_transfers: u64 = loads.iter().map(|(_, _, transfers)| transfers).sum();
    let (worker, trims, transfers) =
        loads.iter().rev().max_by_key(|(_, trims, transfers)| if all_trims > 0 { *trims } else { *transfers })?;
    let (most, all) = if all_trims > 0 { (*trims, all_trims) } else { (*transfers, all_transfers) };
    workers::is_hot(most, all, loads.len() as u64).then(|| HotDecoder {
        worker: (*worker).to_owned(),
        trims: *trims,
        all_trims,
        transfers: *transfers,
        all_transfers,
    })
}

/// Left out where the pool is full before the cap is reached: then the capacity line says it.
fn next_binder(run: &Diagnosis) -> Option<Cause> {
    let room = room(run, run.info.slots.as_ref()?)?;
    // Where capacity has a line of its own, that says it.
    let said = capacity(run).is_some() && room.cap.is_some_and(|cap| room.sessions_per_worker < f64::from(cap) + 1.0);
    (session_cap(run).is_some() && !said).then_some(Cause::NextBinder { room })
}

fn large_sessions(run: &Diagnosis) -> Option<Cause> {
    let contrast = run.fairness.starved.as_ref()?.peak_input_tokens;
    let separation = separation(run, contrast)?;
    Some(Cause::LargeSessionsStarve { starved_tokens: contrast.starved?, other_tokens: contrast.others?, separation })
}

/// How well a trait sets the starved apart, where chance does not explain it.
fn separation(run: &Diagnosis, contrast: Contrast) -> Option<f64> {
    let with_share = || run.sessions.iter().filter(|row| row.direct_share.is_some());
    let starved = with_share().filter(|row| row.starved).count();
    contrast.separation.filter(|separation| tells_apart(*separation, starved, with_share().count() - starved))
}

fn late_sessions(run: &Diagnosis) -> Option<Cause> {
    let starved = run.fairness.starved.as_ref()?;
    let separation = separation(run, starved.arrival_rank)?;
    Some(Cause::LateSessionsStarve {
        first_rank: starved.first_rank,
        starved_rank: starved.arrival_rank.starved?,
        other_rank: starved.arrival_rank.others?,
        separation,
    })
}

fn time_scale(run: &Diagnosis) -> Option<Cause> {
    // Without them the scale is unknown: there, no scale means an infinite one. What they say is an estimate, and not used.
    run.info.gaps?;
    let time_scale = run.info.time_scale;
    let short_share = run.signals.gaps.short_share(1.0)?;
    let short_share_at_1x = time_scale.and_then(|scale| run.signals.gaps.short_share(scale));
    let is_much = short_share - short_share_at_1x.unwrap_or(0.0) >= COMPRESSES_FROM;
    is_much.then_some(Cause::TimeScaleCompressesGaps { time_scale, short_share, short_share_at_1x })
}

fn open_failures(run: &Diagnosis) -> Option<Cause> {
    let fallbacks = run.signals.mode(ExecutionMode::FallbackOpenFailed);
    let extra_placements = run.signals.extra_placements;
    let given_up = run.signals.reason(ModeReason::OpenTimedOut);
    (fallbacks + extra_placements + given_up > 0).then_some(Cause::OpenFailures {
        extra_placements,
        fallbacks,
        given_up,
    })
}

fn admission_fails(run: &Diagnosis) -> Option<Cause> {
    let turns = run.signals.reason(ModeReason::AdmissionFailed);
    let direct = run.signals.mode(ExecutionMode::KvcacheDirectToDSession);
    (turns > 0).then_some(Cause::AdmissionFails { turns, direct })
}

fn transfer_errors(run: &Diagnosis) -> Option<Cause> {
    let Transfers { total, errors, timed_out, concentrated, most_timed_out, .. } = run.transfers;
    let timeouts = *timed_out;
    if !concentrated.is_empty() {
        return Some(Cause::TransferErrorsConcentrated { found: concentrated.clone(), all_errors: *errors, timeouts });
    }
    (*errors > 0).then(|| Cause::TransferErrors {
        errors: *errors,
        transfers: *total,
        timeouts,
        most_timeouts: most_timed_out.clone(),
    })
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
    let lost = run.signals.losses.with(&workers);
    let sessions: BTreeSet<&str> = lost.iter().map(|loss| loss.session.as_str()).collect();
    (!workers.is_empty()).then(|| Cause::WorkerRestarts {
        restarts: counts.iter().sum(),
        reseeds: run.signals.reason(ModeReason::WorkerRestarted),
        lost_requests: lost.len() as u64,
        lost_sessions: sessions.len() as u64,
        first_lost: lost.iter().take(NAMED).map(|loss| loss.request.clone()).collect(),
        reseeds_after_loss: lost.iter().filter(|loss| loss.reseeded).count() as u64,
        workers,
    })
}

fn slow_workers(run: &Diagnosis) -> Option<Cause> {
    (!run.slow_workers.is_empty()).then(|| Cause::SlowWorkers { workers: run.slow_workers.to_vec() })
}

fn idle_workers(run: &Diagnosis) -> Option<Cause> {
    let busy_roles = run.spread.iter().filter(|spread| spread.idle_workers < spread.workers);
    let worst = busy_roles.filter(|spread| spread.idle_workers > 0).max_by_key(|spread| spread.idle_workers)?;
    Some(Cause::IdleWorkers { role: worst.role.clone(), idle: worst.idle_workers, workers: worst.workers })
}

fn compaction(run: &Diagnosis) -> Option<Cause> {
    let Affected { turns, sessions } = &run.signals.compacted;
    (*turns > 0).then_some(Cause::ContextCompacted { turns: *turns, sessions: sessions.len() as u64 })
}

fn class_count(errors: &[ErrorGroup], class: ErrorClass) -> u64 {
    errors.iter().filter(|group| group.class == class.as_str()).map(|group| group.count).sum()
}
