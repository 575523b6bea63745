//! Random traces, configurations, refusals, failures and restarts: nothing vanishes, nothing overlaps, nothing drifts.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::fake::{Fake, Fault, Row, Run, config, dur, run_watched, trace};
use crate::admission::{AdmissionBy, Footprint, SlotRelease};
use crate::base::{Dur, RequestIx, Rng, Role, WorkerId};
use crate::policies::{HeaderMode, PolicyName};
use crate::record::{ExecutionMode, Outcome};
use crate::replay::{FirstTurn, Mechanism, OnTurnFailure, ReplayerConfig, Schedule};
use crate::trace::Trace;

struct Dice(Rng);

impl Dice {
    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.0.below(of.len() as u64) as usize]
    }
}

fn any_trace(dice: &mut Dice) -> Trace {
    let ids: Vec<_> = (0..dice.pick(&[1, 2, 5, 8])).map(|k| format!("s{k}")).collect();
    let mut sessions: Vec<(&str, Vec<Row>)> = Vec::new();
    for id in &ids {
        let mut at = if sessions.is_empty() { 0.0 } else { dice.pick(&[0.0, 0.3, 1.0, 4.0]) };
        let (mut input, mut rows) = (dice.pick(&[64, 200, 640]), Vec::new());
        for turn in 1..=dice.pick(&[1, 2, 4, 9]) {
            let output = dice.pick(&[1, 10, 70]);
            rows.push((turn, at, input, output));
            at += dice.pick(&[0.0, 0.1, 1.0, 3.0]);
            // Now and then the context is compacted.
            input = if dice.pick(&[0, 0, 0, 0, 1]) == 1 { 100 } else { input + output + dice.pick(&[1, 64, 900]) };
        }
        sessions.push((id, rows));
    }
    sessions.sort_by(|a, b| a.1[0].1.total_cmp(&b.1[0].1));
    trace(&sessions)
}

fn any_config(dice: &mut Dice) -> ReplayerConfig {
    let mut config = config(dice.pick(&PolicyName::ALL), 3);
    config.replay.mechanism =
        dice.pick(&[Mechanism::Dp, Mechanism::Pd, Mechanism::Kvc, Mechanism::Kvc, Mechanism::Kvc]);
    if config.replay.mechanism == Mechanism::Dp {
        config.workers = (0..3).map(|index| WorkerId::new(Role::Colocated, index)).collect();
    }
    config.header_mode = dice.pick(&[HeaderMode::None, HeaderMode::RoutingKey, HeaderMode::TargetWorker]);
    let replay = &mut config.replay;
    replay.schedule = dice.pick(&[Schedule::Open, Schedule::Open, Schedule::Think, Schedule::OpenStrict]);
    replay.concurrency = dice.pick(&[0, 0, 1, 3]);
    replay.max_sessions = dice.pick(&[0, 0, 1, 2]);
    replay.arrival_scale = dice.pick(&[1.0, 10.0, f64::INFINITY]);
    replay.think_scale = dice.pick(&[1.0, 10.0, f64::INFINITY]);
    replay.max_gap_s = dice.pick(&[0.0, 0.5]);
    replay.arrival_jitter_ms = dice.pick(&[0.0, 100.0]);
    replay.stall_timeout_s = 3.0;
    replay.request_timeout_s = dice.pick(&[0.0, 0.0, 0.3, 2.0]);
    replay.first_turn = dice.pick(&[FirstTurn::Plain, FirstTurn::Seed]);
    replay.on_turn_failure = dice.pick(&[
        OnTurnFailure::Continue,
        OnTurnFailure::Continue,
        OnTurnFailure::StopSession,
        OnTurnFailure::StopRun,
    ]);
    let admission = &mut config.admission;
    admission.append = dice.pick(&[AdmissionBy::Router, AdmissionBy::Worker]);
    admission.seed = dice.pick(&[AdmissionBy::Router, AdmissionBy::Router, AdmissionBy::Worker]);
    admission.cap_max = dice.pick(&[1, 2, 4]);
    admission.capacity_known = dice.pick(&[false, true]);
    admission.footprint = dice.pick(&[Footprint::Full, Footprint::Incremental]);
    admission.slot_release = dice.pick(&[SlotRelease::Never, SlotRelease::SessionEnd, SlotRelease::IdleLru]);
    admission.close_at_end = dice.pick(&[false, true]);
    admission.direct_append_max_tokens = dice.pick(&[100, 8192]);
    config.policy.kv_aware.capacity_aware = dice.pick(&[false, true]);
    config.policy.kv_aware.migrate_after_rejections = dice.pick(&[0, 1, 3]);
    config.kv_pool_tokens = dice.pick(&[500, 3000, 100_000]);
    config
}

fn any_fake(dice: &mut Dice, config: &ReplayerConfig, requests: u64) -> Fake {
    let mut fake = Fake::new(3, dice.pick(&[0.0, 0.1, 0.7]));
    fake.role = if config.replay.mechanism == Mechanism::Dp { Role::Colocated } else { Role::Decode };
    fake.hop = dice.pick(&[Dur::ZERO, Dur::from_millis(3), Dur::from_millis(200)]);
    fake.capacity = dice.pick(&[500, 3000, 100_000]);
    fake.idle_drop = dice.pick(&[None, Some(dur(0.5))]);
    fake.discovery = dice.pick(&[Dur::ZERO, dur(0.5), dur(100.0)]);
    fake.chaos = dice.pick(&[None, Some(0.1), Some(0.5)]).map(|share| (Rng::new(dice.0.u64(), 0), share));
    if dice.pick(&[false, true]) {
        fake.hanging.insert(RequestIx(dice.0.below(requests) as u32));
    }
    for _ in 0..dice.pick(&[0, 1, 4]) {
        let worker = dice.pick(&[0, 1, 2]);
        let what = [
            Fault::Restart(worker),
            Fault::Down(worker),
            Fault::Gone(worker),
            Fault::Up(worker),
            Fault::Join(worker + 3),
            Fault::Down(2),
            Fault::Restart(0),
        ];
        fake = fake.fault(dice.pick(&[0.2, 0.9, 1.0, 2.5]), dice.pick(&what));
    }
    fake
}

fn play(seed: u64) -> (Trace, ReplayerConfig, Run) {
    let mut dice = Dice(Rng::new(seed, 0));
    let trace = any_trace(&mut dice);
    let config = any_config(&mut dice);
    let fake = any_fake(&mut dice, &config, trace.turns.len() as u64);
    let by_router = config.admission.seed == AdmissionBy::Router;
    let cap = config.admission.cap_max;
    let limit = config.replay.concurrency as u64;
    let break_at = dice.pick(&[None, None, None, Some(crate::base::Time::ZERO + dur(1.3))]);
    let drains_for = dice.pick(&[dur(0.0), dur(0.7)]);
    let run = run_watched(&trace, config.clone(), fake, |now, replayer| {
        replayer.table.check().unwrap();
        assert!(limit == 0 || replayer.in_flight() <= limit);
        for worker in 0..replayer.fleet.len() as u16 {
            assert!(!by_router || replayer.table.slots(worker) <= cap, "slots above the cap");
        }
        if break_at.is_some_and(|at| now >= at + drains_for) {
            replayer.interrupt(now);
        } else if break_at.is_some_and(|at| now >= at) {
            replayer.drain(now);
        }
    });
    (trace, config, run)
}

fn check(trace: &Trace, config: &ReplayerConfig, run: &Run) {
    let planned = trace.turns.len();
    assert_eq!(run.records.len(), planned, "one record per request");
    let ids: BTreeSet<_> = run.records.iter().map(|record| &record.request_id).collect();
    assert_eq!(ids.len(), planned, "and each its own");
    let mut sent_until: BTreeMap<&str, u64> = BTreeMap::new();
    let mut order: Vec<_> = run.records.iter().collect();
    order.sort_by_key(|record| (record.session_id.clone(), record.turn_id));
    for record in order {
        let never_sent = record.attempts == 0;
        assert_eq!(record.sent_ns.is_none(), record.outcome == Outcome::Skipped);
        assert!(!never_sent || record.outcome != Outcome::Ok);
        if record.outcome == Outcome::Skipped {
            assert_eq!(record.execution_mode, ExecutionMode::NotSent);
        }
        if let Some(sent) = record.sent_ns {
            assert_eq!(record.schedule_lag_ms, Some(0.0), "{record:?}");
            assert!(sent >= record.scheduled_ns && record.ended_ns >= sent);
            let until = sent_until.entry(&record.session_id).or_default();
            assert!(config.replay.schedule == Schedule::OpenStrict || sent >= *until, "turns overlap: {record:?}");
            *until = record.ended_ns.max(*until);
        }
        assert!(record.placements <= config.admission.open_attempts);
        match record.outcome {
            Outcome::Ok => {
                assert_eq!(record.output_tokens, record.expected_output_tokens);
                assert!(record.error_class.is_none() && record.first_token_ns.is_some());
            }
            Outcome::Skipped | Outcome::Cancelled => assert!(record.error_class.is_none()),
            Outcome::Truncated | Outcome::Aborted | Outcome::Error | Outcome::Timeout => {
                assert!(record.error_class.is_some() && record.error_message.is_some());
            }
        }
    }
    let facts = &run.facts;
    assert_eq!(facts.planned as usize, planned);
    for session in &facts.sessions {
        assert!(session.seed_rejections <= session.seed_asks);
        assert!(session.slot_hold_ns <= run.end.ns());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn nothing_vanishes_whatever_goes_wrong(seed in any::<u64>()) {
        let (trace, config, run) = play(seed);
        check(&trace, &config, &run);
    }

    #[test]
    fn the_same_seed_gives_the_same_run(seed in any::<u64>()) {
        let (one, two) = (play(seed).2, play(seed).2);
        prop_assert_eq!(one.records, two.records);
        prop_assert_eq!(one.ledger, two.ledger);
        prop_assert_eq!(one.actions, two.actions);
        prop_assert_eq!(one.facts, two.facts);
    }
}
