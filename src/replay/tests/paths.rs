//! The session path of spec 2.5: labels, reasons, caps, admission, migration, and the two counters of `default`.

use std::collections::BTreeMap;

use super::fake::{Fake, Row, config, dur, run, trace};
use crate::admission::{AdmissionBy, SlotRelease};
use crate::base::{Dur, Role, WorkerId};
use crate::policies::PolicyName;
use crate::protocol::{Action, Route};
use crate::record::{LedgerKind, Outcome};
use crate::replay::Mechanism;

const PLAIN: &str = "pd-router-turn1";
const SEED: &str = "kvcache-seed";
const DIRECT: &str = "kvcache-direct-to-d-session";
const RESEED: &str = "kvcache-reseed";
const CAP: &str = "pd-router-fallback-large-append-session-cap";
const NO_ROOM: &str = "pd-router-fallback-large-append-no-capacity";
const REFUSED: &str = "pd-router-fallback-admission-rejected";

fn growing(turns: u32, offset_s: f64, by: u32) -> Vec<Row> {
    (0..turns).map(|k| (k + 1, offset_s + f64::from(k), 640 + by * k, 20)).collect()
}

#[test]
fn a_session_is_seeded_then_goes_direct() {
    let trace = trace(&[("a", growing(4, 0.0, 100))]);
    let run = run(&trace, config(PolicyName::KvAware, 3), Fake::new(3, 0.1));
    assert_eq!(run.modes("a"), [PLAIN, SEED, DIRECT, DIRECT]);
    assert_eq!(run.reasons("a"), ["first-turn", "never-seeded", "admitted", "admitted"]);
    let appends: Vec<_> = (1..=4).map(|turn| run.of("a", turn).append_tokens).collect();
    assert_eq!(appends, [640, 740, 80, 80]);
    let shipped: Vec<_> = run
        .actions
        .iter()
        .filter_map(|action| match action {
            Action::Generate(sent) => Some((sent.shipped_tokens, sent.session_params, sent.route)),
            _ => None,
        })
        .collect();
    assert_eq!(shipped[2], (80, true, Route::Worker(WorkerId::new(Role::Decode, 0))));
    assert!(shipped[1].1 && !shipped[0].1);
    let hits: Vec<_> = (1..=4).map(|turn| run.of("a", turn).assumed_hit_tokens).collect();
    assert_eq!(hits, [0, 640, 704, 832], "blocks sent before count as held");
    assert!(run.fake.workers.iter().all(|worker| worker.sessions.is_empty()), "closed at the end");
}

#[test]
fn the_router_places_first_turns_and_the_policy_follows() {
    let trace = trace(&[("a", growing(3, 0.0, 100)), ("b", growing(3, 0.2, 100)), ("c", growing(3, 0.4, 100))]);
    let run = run(&trace, config(PolicyName::KvAware, 3), Fake::new(3, 0.1));
    for (session, worker) in [("a", "D0"), ("b", "D1"), ("c", "D2")] {
        assert_eq!(run.of(session, 1).decode_worker_intended, None);
        for turn in 1..=3 {
            assert_eq!(run.of(session, turn).decode_worker_actual.as_deref(), Some(worker));
        }
    }
    assert!(run.records.iter().all(|record| !record.route_mismatch));
}

#[test]
fn a_session_may_stay_open_after_its_end() {
    let trace = trace(&[("a", growing(2, 0.0, 100)), ("b", growing(2, 5.0, 100))]);
    let closed_early = |close_at_end| {
        let mut config = config(PolicyName::KvAware, 1);
        config.admission.close_at_end = close_at_end;
        let run = run(&trace, config, Fake::new(1, 0.1));
        let first_close = run.ledger.iter().find(|event| event.kind == LedgerKind::SessionClosed);
        first_close.map(|event| event.at_ns < 5_000_000_000)
    };
    assert_eq!((closed_early(true), closed_early(false)), (Some(true), Some(false)));
}

#[test]
fn what_cannot_be_appended_is_seeded_again() {
    let compacted = trace(&[("a", vec![(1, 0.0, 640, 20), (2, 1.0, 800, 20), (3, 2.0, 500, 20), (4, 3.0, 640, 20)])]);
    let after = run(&compacted, config(PolicyName::KvAware, 2), Fake::new(2, 0.1));
    assert_eq!(after.modes("a"), [PLAIN, SEED, RESEED, DIRECT]);
    assert_eq!(after.reasons("a")[2], "context-compacted");
    let large = trace(&[("a", growing(3, 0.0, 9000))]);
    let after = run(&large, config(PolicyName::KvAware, 2), Fake::new(2, 0.1));
    assert_eq!(after.modes("a"), [PLAIN, SEED, RESEED]);
    assert_eq!(after.reasons("a")[2], "append-too-large");
    assert_eq!(after.outcomes()["ok"], 3, "the old session is closed before it is opened again");
}

#[test]
fn a_cap_of_one_starves_the_second_session() {
    let trace = trace(&[("a", growing(4, 0.0, 100)), ("b", growing(4, 0.5, 100))]);
    let mut capped = config(PolicyName::KvAware, 1);
    capped.admission.cap_max = 1;
    let run_with = |release| {
        let mut capped = capped.clone();
        capped.admission.slot_release = release;
        run(&trace, capped, Fake::new(1, 0.1))
    };
    let never = run_with(SlotRelease::Never);
    assert_eq!(never.modes("a"), [PLAIN, SEED, DIRECT, DIRECT]);
    assert_eq!(never.modes("b"), [PLAIN, CAP, CAP, CAP]);
    assert_eq!(never.reasons("b")[1], "session-cap");
    let starved = &never.facts.sessions[1];
    assert_eq!((starved.seed_asks, starved.seed_rejections, starved.slot_hold_ns), (3, 3, 0));
    assert!(never.facts.sessions[0].slot_hold_ns > 2_000_000_000);
    assert_eq!(starved.refused_by_ended, Some(1), "its last turn comes after a has ended");
    let after_end = |played: &super::fake::Run, ix: usize| played.facts.sessions[ix].slot_after_end_ns.unwrap();
    assert!((1..1_000_000_000).contains(&after_end(&never, 0)) && after_end(&never, 1) == 0);
    let at_end = run_with(SlotRelease::SessionEnd);
    assert_eq!(at_end.modes("b"), [PLAIN, CAP, CAP, SEED], "a ends before b's last turn");
    assert_eq!((at_end.facts.sessions[1].refused_by_ended, after_end(&at_end, 0)), (Some(0), 0));
    let lru = run_with(SlotRelease::IdleLru);
    assert_eq!(lru.modes("b"), [PLAIN, SEED, RESEED, RESEED]);
    assert_eq!(lru.modes("a"), [PLAIN, SEED, RESEED, RESEED]);
    assert_eq!(lru.reasons("a")[2], "evicted-idle");
    assert_eq!(lru.outcomes()["ok"], 8);
}

#[test]
fn the_known_capacity_bounds_the_cap_and_the_room() {
    let trace = trace(&[("a", growing(4, 0.0, 100)), ("b", growing(4, 0.5, 100))]);
    let mut known = config(PolicyName::KvAware, 1);
    known.admission.capacity_known = true;
    known.admission.append = AdmissionBy::Router;
    known.kv_pool_tokens = 1400;
    // 1260 usable tokens over a 760-token session: one slot.
    let one = run(&trace, known.clone(), Fake::new(1, 0.1));
    assert_eq!(one.modes("b"), [PLAIN, CAP, CAP, CAP]);
    assert!(one.facts.sessions[0].usage_when_asked.unwrap() > 0.3);
    // Two slots by the incremental size, but room for one session: the idle one is dropped, its slot kept.
    known.admission.footprint = crate::admission::Footprint::Incremental;
    let two = run(&trace, known.clone(), Fake::new(1, 0.1));
    assert_eq!(two.modes("a"), [PLAIN, SEED, RESEED, RESEED]);
    assert_eq!(two.outcomes()["ok"], 8);
    assert!(two.noted(LedgerKind::SessionReleased) >= 4);
    known.kv_pool_tokens = 700;
    let none = run(&trace, known, Fake::new(1, 0.1));
    assert_eq!(none.modes("a"), [PLAIN, NO_ROOM, NO_ROOM, NO_ROOM]);
}

#[test]
fn the_worker_may_trim_others_and_refuse_appends() {
    let trace = trace(&[("a", growing(4, 0.0, 100)), ("b", growing(4, 0.5, 100))]);
    let mut fake = Fake::new(1, 0.1);
    fake.capacity = 1500;
    let mut ask = config(PolicyName::KvAware, 1);
    ask.admission.seed = AdmissionBy::Worker;
    let trimmed = run(&trace, ask, fake);
    assert_eq!(trimmed.modes("b")[..2], [PLAIN, SEED]);
    assert!(trimmed.records.iter().any(|record| record.mode_reason.as_str() == "evicted-trim"));
    assert!(trimmed.noted(LedgerKind::SessionTrimmed) > 0);
    assert_eq!(trimmed.outcomes()["ok"], 8);
    let mut fake = Fake::new(1, 0.1);
    fake.refuse_appends = true;
    let refused = run(&trace, config(PolicyName::KvAware, 1), fake);
    assert_eq!(refused.modes("a"), [PLAIN, SEED, REFUSED, REFUSED]);
    assert_eq!(refused.facts.sessions[0].append_rejections, 2);
    assert_eq!(refused.facts.sessions[0].seed_asks, 1, "it stays resident");
}

#[test]
fn a_session_the_worker_no_longer_knows_was_trimmed() {
    let trace = trace(&[("a", vec![(1, 0.0, 640, 20), (2, 1.0, 740, 20), (3, 9.0, 840, 20)])]);
    let mut fake = Fake::new(1, 0.1);
    fake.idle_drop = Some(dur(5.0));
    let mut expected = config(PolicyName::KvAware, 1);
    let silent = run(&trace, expected.clone(), fake);
    assert_eq!(silent.reasons("a")[2], "evicted-trim");
    assert_eq!((silent.facts.beliefs_corrected, silent.outcomes()["ok"]), (1, 3));
    expected.admission.append = AdmissionBy::Router;
    let mut fake = Fake::new(1, 0.1);
    fake.idle_drop = Some(dur(5.0));
    let unasked = run(&trace, expected, fake);
    assert_eq!(unasked.of("a", 3).execution_mode.as_str(), DIRECT);
    assert_eq!(unasked.of("a", 3).error_class.as_deref(), Some("session-not-found"));
    assert_eq!(unasked.facts.beliefs_corrected, 1);
}

#[test]
fn after_enough_refusals_a_session_moves() {
    let trace = trace(&[("a", growing(8, 0.0, 100))]);
    let mut moving = config(PolicyName::KvAware, 2);
    moving.policy.kv_aware.migrate_after_rejections = 2;
    let mut fake = Fake::new(2, 0.1);
    fake.refuse_appends = true;
    let run = run(&trace, moving, fake);
    assert_eq!(run.modes("a"), [PLAIN, SEED, REFUSED, REFUSED, RESEED, REFUSED, REFUSED, RESEED]);
    assert_eq!(run.facts.sessions[0].migrations, 2);
    assert_eq!(run.of("a", 5).decode_worker_actual.as_deref(), Some("D1"));
    assert_eq!(run.of("a", 8).decode_worker_actual.as_deref(), Some("D0"));
}

#[test]
fn two_counters_drift_apart_and_requests_are_cut_off() {
    // Irregular gaps: sooner or later the rotation meets a session's own D, and the append bypasses the router.
    let ids: Vec<_> = (0..12).map(|k| format!("s{k:02}")).collect();
    let turns =
        |k: u32| (0..10).map(|n| (n + 1, f64::from(n) * (1.0 + 0.07 * f64::from(k)), 640 + 100 * n, 20)).collect();
    let rows: Vec<(&str, Vec<Row>)> = ids.iter().zip(0u32..).map(|(id, k)| (id.as_str(), turns(k))).collect();
    let trace = trace(&rows);
    let mut fake = Fake::new(7, 0.4);
    fake.hop = Dur::from_millis(90);
    let run = run(&trace, config(PolicyName::Default, 7), fake);
    let truncated = run.outcomes()["truncated"];
    assert!(truncated > 60, "{:?}", run.outcomes());
    for record in &run.records {
        if record.outcome == Outcome::Truncated {
            assert_eq!((record.output_tokens, record.error_class.as_deref()), (1, Some("session-not-found")));
            assert!(record.route_mismatch && record.turn_id > 1);
        }
    }
    assert!(run.facts.counters_diverged_after.is_some_and(|sends| sends > 0));
    assert_eq!(run.noted(LedgerKind::RouteMismatch), run.records.iter().filter(|r| r.route_mismatch).count());
}

#[test]
fn dp_sends_straight_and_without_workers_fails_at_once() {
    let trace = trace(&[("a", growing(3, 0.0, 100)), ("b", growing(3, 0.0, 100))]);
    let mut dp = config(PolicyName::CacheAware, 0);
    dp.replay.mechanism = Mechanism::Dp;
    dp.workers = (0..2).map(|index| WorkerId::new(Role::Colocated, index)).collect();
    let mut fake = Fake::new(2, 0.1);
    fake.role = Role::Colocated;
    let served = run(&trace, dp.clone(), fake);
    assert_eq!(served.modes("a"), ["dp-colocated"; 3]);
    let workers: BTreeMap<_, _> =
        served.records.iter().map(|r| (r.session_id.clone(), r.decode_worker_actual.clone().unwrap())).collect();
    assert_eq!(workers["a"], "W0");
    assert_eq!(workers["b"], "W1");
    dp.workers.clear();
    let none = run(&trace, dp, Fake::new(0, 0.1));
    assert_eq!(none.outcomes(), BTreeMap::from([("error", 6)]));
    assert!(none.records.iter().all(|record| record.error_class.as_deref() == Some("no-worker")));
}

#[test]
fn loads_are_polled_only_for_a_policy_that_reads_them() {
    let trace = trace(&[("a", growing(4, 0.0, 100))]);
    let polls = |capacity_aware| {
        let mut aware = config(PolicyName::KvAware, 2);
        aware.policy.kv_aware.capacity_aware = capacity_aware;
        let run = run(&trace, aware, Fake::new(2, 0.1));
        run.actions.iter().filter(|action| **action == Action::PollLoads).count()
    };
    assert_eq!((polls(false), polls(true)), (0, 4));
}

#[test]
fn a_worker_that_dies_between_open_and_seed_is_not_used() {
    use super::fake::Fault;
    let trace = trace(&[("a", growing(3, 0.0, 100))]);
    let mut fake = Fake::new(2, 0.1).fault(1.15, Fault::Down(0)).fault(9.0, Fault::Up(0));
    fake.hop = Dur::from_millis(100);
    fake.discovery = dur(0.001);
    let run = run(&trace, config(PolicyName::KvAware, 2), fake);
    assert_eq!(run.modes("a"), [PLAIN, "pd-router-fallback-worker-unhealthy", SEED]);
    assert_eq!(run.of("a", 2).decode_worker_actual.as_deref(), Some("D1"));
    assert_eq!(run.outcomes()["ok"], 3);
}
