//! CAR and the KV index: both legs are chosen, promises are written down, blindness is told.

use std::collections::BTreeMap;

use super::fake::{Fake, PREFILLS, Run, config, idle, run, trace};
use crate::base::{Dur, Role, WorkerId};
use crate::kv::{BlockPath, BlockTree, PrefixLookup, Process, StreamHealth, StreamOrigin, WorkerHit};
use crate::policies::{OverlapSource, PolicyName};
use crate::protocol::{Action, Route, RoutingHeader};
use crate::record::LedgerKind;
use crate::replay::{Mechanism, ReplayerConfig};
use crate::trace::Trace;

/// Every worker holds so many of the first blocks of whatever is asked for.
#[derive(Debug, Clone)]
struct Holds {
    blocks: BTreeMap<&'static str, u32>,
    synchronized: bool,
}

impl PrefixLookup for Holds {
    fn lookup(&mut self, tree: &BlockTree, prompt: BlockPath, hits: &mut Vec<WorkerHit>) {
        hits.extend(self.blocks.iter().map(|(worker, blocks)| WorkerHit {
            worker: worker.parse().unwrap(),
            dp_rank: 0,
            dp_size: 1,
            device_tokens: if self.synchronized { (*blocks).min(prompt.depth) * tree.block_size() } else { 0 },
            host_only_tokens: 0,
            block_size: tree.block_size(),
            synchronized: self.synchronized,
            origin: StreamOrigin::Discovered(Process::default()),
        }));
    }

    fn streams(&self) -> Vec<StreamHealth> {
        let health = |worker: &&str| StreamHealth {
            name: (*worker).to_owned(),
            endpoint: format!("tcp://{worker}:1"),
            synchronized: self.synchronized,
            error: (!self.synchronized).then(|| "connection refused".to_owned()),
        };
        self.blocks.keys().map(health).collect()
    }
}

fn holds(blocks: &[(&'static str, u32)], synchronized: bool) -> Option<Box<dyn PrefixLookup + Send>> {
    Some(Box::new(Holds { blocks: blocks.iter().copied().collect(), synchronized }))
}

/// CAR on two P and `decode` D, whose loads are known from the start.
fn car(decode: u16) -> ReplayerConfig {
    let mut config = config(PolicyName::Car, decode);
    config.replay.mechanism = Mechanism::Pd;
    config.initial_loads = config.workers.iter().copied().map(idle).collect();
    config
}

fn with_index(decode: u16, service_s: f64, index: Option<Box<dyn PrefixLookup + Send>>) -> Fake {
    let mut fake = Fake::new(decode, service_s);
    fake.index = index;
    fake
}

/// One-turn sessions of ten blocks, this long after one another.
fn spaced(count: u32, gap_s: f64) -> Trace {
    let ids: Vec<String> = (0..count).map(|k| format!("q{k:02}")).collect();
    let rows: Vec<_> =
        ids.iter().zip(0u32..).map(|(id, k)| (id.as_str(), vec![(0, f64::from(k) * gap_s, 640, 20)])).collect();
    trace(&rows)
}

fn headers(run: &Run) -> Vec<RoutingHeader> {
    let header = |action: &Action| match action {
        Action::Generate(generate) => match generate.route {
            Route::Router(header) => Some(header),
            Route::Worker(_) => None,
        },
        _ => None,
    };
    run.actions.iter().filter_map(header).collect()
}

#[test]
fn the_p_with_the_prefix_is_chosen_and_named() {
    let trace = spaced(3, 2.0);
    let run = run(&trace, car(2), with_index(2, 0.1, holds(&[("P0", 0), ("P1", 6)], true)));
    let legs = |decode| RoutingHeader::TargetLegs { prefill: 1, decode };
    assert_eq!(headers(&run), [legs(0), legs(1), legs(0)], "D takes turns");
    for record in &run.records {
        assert_eq!(record.prefill_worker.as_deref(), Some("P1"));
        assert_eq!((record.index_hit_tokens_device, record.index_hit_tokens_host_only), (Some(384), Some(0)));
        assert_eq!((record.index_blind, record.assumed_hit_tokens), (Some(false), 384));
        assert!(!record.route_mismatch);
    }
    let choices: Vec<_> = run.ledger.iter().filter(|line| line.kind == LedgerKind::CarChoice).collect();
    assert_eq!((choices.len(), choices[0].worker.as_deref()), (3, Some("D0")));
    let scores: Vec<_> = choices[0].candidates.iter().map(|it| (it.worker.as_str(), it.cost)).collect();
    assert_eq!(scores, [("P0", Some(0.5)), ("P1", Some(0.2)), ("D0", Some(0.0)), ("D1", Some(0.0))]);
    assert_eq!(choices[0].candidates[1].hit_ratio, Some(0.6));
}

#[test]
fn without_explanations_there_is_no_line() {
    let mut quiet = car(2);
    quiet.policy.car.explain = false;
    let run = run(&spaced(3, 1.0), quiet, with_index(2, 0.1, None));
    assert_eq!(run.noted(LedgerKind::CarChoice), 0);
    assert_eq!(run.outcomes(), BTreeMap::from([("ok", 3)]));
}

#[test]
fn case_63_a_burst_spreads_over_p_and_d_also_towards_a_warm_one() {
    let shares = |index, count_own| {
        let mut config = car(4);
        config.policy.car.count_own = count_own;
        let run = run(&spaced(64, 0.0), config, with_index(4, 1.0, index));
        let mut shares = BTreeMap::new();
        for record in &run.records {
            *shares.entry(record.prefill_worker.clone().unwrap()).or_insert(0) += 1;
            *shares.entry(record.decode_worker_actual.clone().unwrap()).or_insert(0) += 1;
        }
        shares.into_values().collect::<Vec<u32>>()
    };
    assert_eq!(shares(None, true), [16, 16, 16, 16, 32, 32]);
    let warm = shares(holds(&[("P0", 2), ("P1", 0)], true), true);
    assert!(warm[4] >= warm[5] && warm[4] <= 48 && warm[4] + warm[5] == 64, "{warm:?}");
    let piled = shares(holds(&[("P0", 2), ("P1", 0)], true), false);
    assert_eq!(piled, [16, 16, 16, 16, 64], "reports alone let every choice see idle workers");
}

#[test]
fn a_report_takes_the_place_of_what_was_sent_before_it_was_asked_for() {
    // Two at 0 s, one each second: the report of second 1 says idle, though the long requests are still in flight.
    let trace = trace(&[
        ("a", vec![(0, 0.0, 640, 20)]),
        ("b", vec![(0, 0.5, 640, 20)]),
        ("c", vec![(0, 0.6, 640, 20)]),
        ("d", vec![(0, 1.5, 640, 20)]),
    ]);
    let run = run(&trace, car(1), with_index(1, 9.0, None));
    let lines = run.ledger.iter().filter(|line| line.kind == LedgerKind::CarChoice);
    let waiting: Vec<Vec<u64>> =
        lines.map(|line| line.candidates.iter().filter_map(|score| score.waiting).collect()).collect();
    assert_eq!(waiting, [[0, 0, 0], [0, 0, 0], [0, 1, 1], [0, 0, 0]], "P0, P1, D0");
}

#[test]
fn a_worker_without_a_report_is_left_out_and_with_none_the_request_fails() {
    let mut late = car(1);
    late.initial_loads.retain(|load| load.worker != WorkerId::new(Role::Prefill, 0));
    let mut fake = with_index(1, 0.1, None);
    fake.mute.insert(0);
    let ended = run(&spaced(4, 0.4), late, fake);
    assert!(ended.records.iter().all(|record| record.prefill_worker.as_deref() == Some("P1")));

    let mut blind = car(1);
    blind.initial_loads.clear();
    let mut fake = with_index(1, 0.1, None);
    fake.mute.extend(0..PREFILLS);
    let ended = run(&spaced(2, 3.0), blind, fake);
    assert_eq!(ended.outcomes(), BTreeMap::from([("error", 2)]));
    let record = ended.of("q01", 0);
    assert_eq!(record.error_class.as_deref(), Some("no-worker"));
    let message = record.error_message.as_deref().unwrap();
    assert_eq!(message, "a leg has no worker to choose: P0 no-load-report, P1 no-load-report");
    assert!(headers(&ended).is_empty(), "the router is not left to choose");
}

#[test]
fn colocated_workers_go_by_hits_and_queue() {
    let mut dp = config(PolicyName::Car, 0);
    dp.replay.mechanism = Mechanism::Dp;
    dp.workers = (0..3).map(|index| WorkerId::new(Role::Colocated, index)).collect();
    dp.initial_loads = dp.workers.iter().copied().map(idle).collect();
    let mut fake = with_index(3, 0.1, holds(&[("W0", 1), ("W1", 0), ("W2", 5)], true));
    fake.role = Role::Colocated;
    let run = run(&spaced(3, 2.0), dp, fake);
    let workers: Vec<_> = run.records.iter().map(|record| record.decode_worker_actual.as_deref()).collect();
    assert_eq!(workers, [Some("W2"); 3]);
    assert!(run.records.iter().all(|record| record.index_hit_tokens_device == Some(320)));
}

#[test]
fn kv_aware_follows_the_index_when_told_to() {
    let overlap = |source| {
        let mut config = config(PolicyName::KvAware, 3);
        config.replay.mechanism = Mechanism::Pd;
        config.policy.kv_aware.overlap = source;
        let run = run(&spaced(2, 2.0), config, with_index(3, 0.1, holds(&[("D0", 0), ("D1", 0), ("D2", 4)], true)));
        let found: Vec<_> = run
            .records
            .iter()
            .map(|record| (record.decode_worker_actual.clone().unwrap(), record.index_hit_tokens_device))
            .collect();
        found
    };
    assert_eq!(overlap(OverlapSource::Index), [("D2".to_owned(), Some(256)), ("D2".to_owned(), Some(256))]);
    assert_eq!(overlap(OverlapSource::Assumed), [("D0".to_owned(), None), ("D1".to_owned(), None)]);
}

#[test]
fn case_68_streams_out_of_step_are_named_and_choices_are_blind() {
    let index = || holds(&[("P0", 6), ("P1", 6)], false);
    let ended = run(&spaced(8, 1.0), car(2), with_index(2, 0.1, index()));
    assert_eq!(ended.outcomes(), BTreeMap::from([("ok", 8)]), "routing does not wait for an index");
    assert!(ended.records.iter().all(|record| record.index_blind == Some(true)));
    assert!(ended.records.iter().all(|record| record.index_hit_tokens_device == Some(0)));
    let named: Vec<_> = ended.ledger.iter().filter(|line| line.kind == LedgerKind::IndexNotInStep).collect();
    assert_eq!(named.len(), 2);
    assert_eq!(named[0].detail.as_deref(), Some("P0 at tcp://P0:1: connection refused"));
    assert_eq!(Dur(named[0].at_ns), Dur::from_millis(5000));
    assert!(ended.no_index.is_none());

    let mut strict = car(2);
    strict.index.require = true;
    let stopped = run(&spaced(8, 1.0), strict.clone(), with_index(2, 0.1, index()));
    let why = stopped.no_index.unwrap().to_string();
    assert!(why.starts_with("no stream of the KV index was in step 5.00 s into the run: P0 at tcp://P0:1"), "{why}");
    let fine = run(&spaced(8, 1.0), strict, with_index(2, 0.1, holds(&[("P0", 6)], true)));
    assert_eq!((&fine.no_index, fine.outcomes()), (&None, BTreeMap::from([("ok", 8)])));
}

#[test]
fn a_direct_turn_passes_p_by_and_its_promise_with_it() {
    let mut config = car(1);
    config.replay.mechanism = Mechanism::Kvc;
    let trace = trace(&[("a", vec![(0, 0.0, 640, 20), (1, 2.0, 800, 20), (2, 4.0, 900, 20)])]);
    let run = run(&trace, config, with_index(1, 0.1, holds(&[("P0", 0), ("P1", 6)], true)));
    let modes = ["pd-router-turn1", "kvcache-seed", "kvcache-direct-to-d-session"];
    assert_eq!(run.modes("a"), modes);
    let promised: Vec<_> = run.records.iter().map(|record| record.index_hit_tokens_device).collect();
    assert_eq!(promised, [Some(384), Some(384), None]);
}

#[test]
fn a_direct_turn_passes_the_cache_of_d_by_too() {
    let mut config = config(PolicyName::KvAware, 1);
    config.replay.mechanism = Mechanism::Kvc;
    config.policy.kv_aware.overlap = OverlapSource::Index;
    let trace = trace(&[("a", vec![(0, 0.0, 640, 20), (1, 2.0, 800, 20), (2, 4.0, 900, 20)])]);
    let run = run(&trace, config, with_index(1, 0.1, holds(&[("D0", 6)], true)));
    assert_eq!(run.modes("a"), ["pd-router-turn1", "kvcache-seed", "kvcache-direct-to-d-session"]);
    let told = |record: &crate::record::RequestRecord| (record.index_worker.clone(), record.index_blind);
    let told: Vec<_> = run.records.iter().map(told).collect();
    assert_eq!(
        told,
        [(None, None), (Some("D0".to_owned()), Some(false)), (None, None)],
        "what a session holds is in no cache"
    );
}
