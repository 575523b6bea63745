//! Cases of areas F and G: sessions that fail to open, are evicted, lose their worker; who serves whom.

use std::collections::BTreeMap;

use super::fake::{Fake, Fault, Row, Run, config, dur, run, trace};
use crate::base::Dur;
use crate::policies::PolicyName;
use crate::record::{LedgerKind, RequestRecord};
use crate::replay::{FirstTurn, ReplayerConfig};
use crate::trace::Trace;

const PLAIN: &str = "pd-router-turn1";
const SEED: &str = "kvcache-seed";
const DIRECT: &str = "kvcache-direct-to-d-session";
const RESEED: &str = "kvcache-reseed";

fn turns(times: &[f64]) -> Vec<Row> {
    times.iter().zip(0u32..).map(|(at, k)| (k, *at, 128 + 64 * k, 10)).collect()
}

fn sessions(count: u32, step_s: f64, times: &[f64]) -> Trace {
    let ids: Vec<_> = (0..count).map(|k| format!("s{k:02}")).collect();
    let shifted = |k: usize| turns(&times.iter().map(|at| at + step_s * k as f64).collect::<Vec<_>>());
    trace(&ids.iter().enumerate().map(|(k, id)| (id.as_str(), shifted(k))).collect::<Vec<_>>())
}

fn sticky(workers: u16) -> ReplayerConfig {
    config(PolicyName::Sticky, workers)
}

fn workers_of(run: &Run, session: &str) -> Vec<String> {
    let mut own: Vec<&RequestRecord> = run.records.iter().filter(|record| record.session_id == session).collect();
    own.sort_by_key(|record| record.turn_id);
    own.iter().filter_map(|record| record.decode_worker_actual.clone()).collect()
}

#[test]
fn case_12_the_first_row_present_is_the_first_turn() {
    let trace = trace(&[
        ("A", vec![(1, 0.0, 128, 8), (2, 2.0, 192, 8)]),
        ("B", vec![(0, 0.2, 128, 8), (1, 2.2, 192, 8)]),
        ("C", vec![(3, 0.4, 320, 8), (4, 2.4, 384, 8)]),
        ("D", vec![(0, 0.6, 64, 8), (1, 2.6, 128, 8), (3, 4.6, 256, 8)]),
    ]);
    let plain_first = run(&trace, sticky(2), Fake::new(2, 0.1));
    assert_eq!(plain_first.outcomes(), BTreeMap::from([("ok", 9)]));
    assert_eq!(plain_first.modes("C"), [PLAIN, SEED]);
    assert_eq!(plain_first.modes("D"), [PLAIN, SEED, DIRECT]);
    assert_eq!(plain_first.noted(LedgerKind::SessionOpened), 4);
    let mut seeded = config(PolicyName::KvAware, 2);
    seeded.replay.first_turn = FirstTurn::Seed;
    let seed_first = run(&trace, seeded, Fake::new(2, 0.1));
    assert_eq!(seed_first.outcomes(), BTreeMap::from([("ok", 9)]));
    assert_eq!(seed_first.modes("C"), [SEED, DIRECT]);
    assert_eq!(seed_first.reasons("C"), ["first-turn", "admitted"]);
    assert_eq!(seed_first.noted(LedgerKind::SessionOpened), 4);
}

#[test]
fn case_55_a_failed_open_leaves_nothing_behind() {
    let trace = sessions(4, 0.1, &[0.0, 2.0, 4.0]);
    for policy in [PolicyName::Sticky, PolicyName::KvAware] {
        let mut fake = Fake::new(2, 0.15);
        fake.open_failures.insert(1, 1);
        let run = run(&trace, config(policy, 2), fake);
        assert_eq!(run.outcomes(), BTreeMap::from([("ok", 12)]), "{policy:?}");
        assert_eq!(run.noted(LedgerKind::SessionOpenFailed), 1);
        let twice: Vec<_> = run.records.iter().filter(|record| record.placements == 2).collect();
        assert_eq!(twice.len(), 1, "{policy:?}");
        let session = twice[0].session_id.clone();
        assert_eq!(run.modes(&session), [PLAIN, SEED, DIRECT]);
        let expected = if policy == PolicyName::Sticky { "D1" } else { "D0" };
        assert_eq!(twice[0].decode_worker_actual.as_deref(), Some(expected), "a key binds, a target does not");
    }
}

#[test]
fn an_open_that_never_works_falls_back() {
    let trace = sessions(1, 0.0, &[0.0, 2.0, 4.0]);
    let mut fake = Fake::new(1, 0.05);
    fake.open_failures.insert(0, 2);
    let run = run(&trace, sticky(1), fake);
    assert_eq!(run.modes("s00"), [PLAIN, "pd-router-fallback-open-failed", SEED]);
    assert_eq!(run.of("s00", 1).placements, 2);
    assert_eq!(run.outcomes()["ok"], 3);
}

#[test]
fn case_60_idle_sessions_are_seeded_again() {
    let trace = sessions(1, 0.0, &[0.0, 10.0, 55.0, 65.0, 110.0]);
    let fake = || {
        let mut fake = Fake::new(1, 0.1);
        fake.idle_drop = Some(dur(30.0));
        fake
    };
    let mut patient = sticky(1);
    patient.session_idle_timeout = Some(dur(30.0));
    patient.replay.first_turn = FirstTurn::Seed;
    let slow = run(&trace, patient.clone(), fake());
    assert_eq!(slow.modes("s00"), [SEED, DIRECT, RESEED, DIRECT, RESEED]);
    assert_eq!(slow.reasons("s00")[2], "evicted-idle");
    assert_eq!(slow.outcomes()["ok"], 5);
    assert_eq!(slow.facts.beliefs_corrected, 2);
    patient.replay.think_scale = 10.0;
    let fast = run(&trace, patient.clone(), fake());
    assert_eq!(fast.modes("s00"), [SEED, DIRECT, DIRECT, DIRECT, DIRECT]);
    patient.replay.think_scale = 1.0;
    patient.replay.first_turn = FirstTurn::Plain;
    let plain_first = run(&trace, patient, fake());
    assert_eq!(plain_first.modes("s00"), [PLAIN, SEED, RESEED, DIRECT, RESEED]);
}

#[test]
fn case_62_a_restart_costs_at_most_one_abort() {
    let trace = sessions(4, 0.1, &[0.0, 5.0, 15.0, 20.0]);
    let run_with = |discovery_s: f64, config: ReplayerConfig| {
        let mut fake = Fake::new(2, 0.05).fault(10.0, Fault::Restart(0));
        fake.discovery = dur(discovery_s);
        run(&trace, config, fake)
    };
    let noticed = run_with(1.0, sticky(2));
    assert_eq!(noticed.outcomes(), BTreeMap::from([("ok", 16)]));
    let mut blind = sticky(2);
    blind.admission.append = crate::admission::AdmissionBy::Router;
    let unnoticed = run_with(1000.0, blind);
    assert_eq!(unnoticed.outcomes(), BTreeMap::from([("ok", 15), ("truncated", 1)]));
    for run in [noticed, unnoticed] {
        let moved: Vec<_> =
            run.records.iter().filter(|record| record.mode_reason.as_str() == "worker-restarted").collect();
        let aborts = run.records.iter().filter(|record| record.outcome.as_str() == "truncated").count();
        let on_d0 = run.records.iter().filter(|r| r.turn_id == 1 && r.decode_worker_actual.as_deref() == Some("D0"));
        assert_eq!(moved.iter().filter(|record| record.turn_id == 2).count() + aborts, on_d0.count());
        assert!(run.facts.beliefs_corrected > 0);
        for id in ["s00", "s01", "s02", "s03"] {
            let lost = workers_of(&run, id)[1] == "D0";
            let modes = run.modes(id);
            assert!(lost || modes[2..] == [DIRECT, DIRECT], "D1's sessions stay: {modes:?}");
            assert!(!lost || modes[2] == RESEED || run.of(id, 2).outcome.as_str() == "truncated");
        }
    }
}

#[test]
fn a_restart_noticed_by_admission_costs_nothing() {
    let trace = sessions(4, 0.1, &[0.0, 5.0, 15.0, 20.0]);
    let mut fake = Fake::new(2, 0.05).fault(10.0, Fault::Restart(0));
    fake.discovery = dur(1000.0);
    let run = run(&trace, sticky(2), fake);
    assert_eq!(run.outcomes(), BTreeMap::from([("ok", 16)]));
    let reseeds = run.records.iter().filter(|record| record.execution_mode.as_str() == RESEED);
    assert!(reseeds.clone().count() > 0);
    assert!(reseeds.into_iter().all(|record| record.mode_reason.as_str() == "worker-restarted"));
}

#[test]
fn case_63_load_counts_from_the_decision() {
    let ids: Vec<_> = (0..64).map(|k| format!("q{k:02}")).collect();
    let rows: Vec<_> = ids.iter().map(|id| (id.as_str(), vec![(0, 0.0, 640, 20)])).collect();
    let trace = trace(&rows);
    for policy in [PolicyName::Default, PolicyName::Sticky, PolicyName::KvAware] {
        let mut fake = Fake::new(4, 1.0);
        fake.hop = Dur::from_micros(100);
        let run = run(&trace, config(policy, 4), fake);
        let served: Vec<u32> = run.fake.served_by.values().copied().collect();
        assert_eq!(served, [16; 4], "{policy:?}");
    }
}

#[test]
fn case_70_nobody_moves_whose_worker_lives() {
    let trace = sessions(30, 0.05, &[0.0, 5.0, 10.0, 15.0]);
    let fake = Fake::new(3, 0.13).fault(4.0, Fault::Join(3)).fault(13.0, Fault::Gone(1));
    let mut roomy = sticky(3);
    roomy.admission.cap_max = 30;
    let run = run(&trace, roomy, fake);
    assert_eq!(run.outcomes(), BTreeMap::from([("ok", 120)]));
    let mut moved = 0;
    for record in run.records.iter().filter(|record| record.turn_id == 2) {
        let workers = workers_of(&run, &record.session_id);
        assert!(workers[0] == workers[1] && workers[1] == workers[2], "{workers:?}");
        let last = run.of(&record.session_id, 3);
        if workers[0] == "D1" {
            moved += 1;
            assert_eq!((last.execution_mode.as_str(), last.mode_reason.as_str()), (RESEED, "worker-gone"));
            assert_ne!(workers[3], "D1");
        } else {
            assert_eq!(last.execution_mode.as_str(), DIRECT);
            assert_eq!(workers[3], workers[0]);
        }
    }
    assert!(moved > 0);
    let migrations: u32 = run.facts.sessions.iter().map(|session| session.migrations).sum();
    assert_eq!(migrations, moved);
}
