//! Random scenarios and traces of every kind: they end, obey the laws of [`super::laws`], and do so twice alike.

use pdreplay::admission::{AdmissionBy, AdmissionConfig, Footprint, SlotRelease};
use pdreplay::base::Rng;
use pdreplay::cluster::{ClusterConfig, FaultConfig, FaultKind, RouterPolicy};
use pdreplay::engine::{EngineConfig, SessionTrim};
use pdreplay::policies::{KvAwareConfig, PolicyConfig, PolicyName};
use pdreplay::replay::{FirstTurn, Mechanism, OnTurnFailure, ReplayConfig, Schedule};
use pdreplay::results::{Percentiles, render};
use pdreplay::scenario::{Scenario, fault_fields, load_text, preflight, resolve_router, validate};
use pdreplay::trace::Trace;
use proptest::prelude::*;

use super::{Played, play, trace};
use crate::results::{info, summarise_with};

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, max_shrink_iters: 0, ..ProptestConfig::with_cases(cases()) })]

    #[test]
    fn a_random_run_ends_and_obeys_the_laws(seed: u64) {
        let mut dice = Dice(Rng::new(seed, 0));
        let (trace, most) = dice.trace();
        let scenario = dice.scenario(&trace, most);
        let (once, again) = (play(&trace, &scenario), play(&trace, &scenario));
        prop_assert!(once.records == again.records, "two runs differ");
        prop_assert!(once.ledger == again.ledger && once.end == again.end, "two runs differ");
        report(&trace, &scenario, &once);
        let written = load_text("written.toml", &scenario.to_toml().unwrap()).unwrap();
        let mut resolved = scenario;
        resolve_router(&mut resolved);
        prop_assert_eq!(written, resolved, "a scenario loads to itself");
    }
}

/// `PROPTEST_CASES` for a long search; otherwise few enough for everyday.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(150)
}

/// What is told before and after the run can be told of any run.
fn report(trace: &Trace, scenario: &Scenario, played: &Played) {
    let predicted = preflight(scenario, trace);
    assert!(!predicted.lines().is_empty());
    let requests = trace.turns.len() as u64;
    let facts = &played.end.facts;
    let info = info(requests, trace.sessions.len() as u64);
    let summary = summarise_with(&played.records, Percentiles::default(), facts, &info);
    assert_eq!(summary.outcomes.total(), requests);
    assert_eq!(summary.modes.iter().map(|row| row.n).sum::<u64>(), requests);
    assert_eq!(summary.sessions.len(), trace.sessions.len());
    assert!(summary.sessions.iter().all(|session| session.pattern.chars().count() as u64 == session.turns));
    assert_eq!(summary.workers.len(), facts.workers.len());
    assert!(
        !render::summary(&summary, &render::Extras::default(), render::Style { color: false, width: 80 }).is_empty()
    );
}

struct Dice(Rng);

impl Dice {
    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.0.below(of.len() as u64) as usize].clone()
    }

    /// A small trace, and its longest prompt with its answer.
    fn trace(&mut self) -> (Trace, u64) {
        let with_ids = self.pick(&[true, true, false]);
        let timed = self.pick(&[true, true, true, true, false]);
        let mut rows = Vec::new();
        let mut most = 0;
        for session in 0..=self.0.below(6) {
            let mut at = self.pick(&[0.0, 0.0, 0.2, 1.5, 6.0]);
            let mut input = self.pick(&[1, 63, 64, 200, 900, 4000]);
            // Blocks 0 and 1 are everybody's.
            let mut ids: Vec<u64> =
                (0..80).map(|block| if block < 2 { block } else { session * 10_000 + block }).collect();
            for turn in 0..=self.0.below(8) {
                let output = self.pick(&[0, 1, 2, 9, 60, 300]);
                most = most.max(input + output.max(1));
                let named: Vec<String> = ids.iter().take(input as usize / 64).map(u64::to_string).collect();
                let hashes = if with_ids { format!(r#","hash_ids":[{}]"#, named.join(",")) } else { String::new() };
                let time = if timed { format!(r#","timestamp":{at:.3}"#) } else { String::new() };
                rows.push(format!(
                    r#"{{"session_id":"s{session}","turn_id":{turn},"input_length":{input},"output_length":{output}{time}{hashes}}}"#
                ));
                at += self.pick(&[0.0, 0.05, 0.8, 4.0]);
                input += output.max(1) + self.pick(&[0, 1, 64, 130, 500]);
                if input > 5000 || self.pick(&[0, 0, 0, 0, 0, 1]) == 1 {
                    // The context is compacted: shorter, with other blocks.
                    input = self.pick(&[64, 150, 640]);
                    let from = self.pick(&[0, 1, 3]);
                    ids.iter_mut().skip(from).for_each(|id| *id += 1000);
                }
            }
        }
        let header = r#"{"format":"pdreplay-trace","version":1,"block_size":64}"#;
        (trace(&format!("{header}\n{}", rows.join("\n"))), most)
    }

    fn scenario(&mut self, trace: &Trace, most: u64) -> Scenario {
        let replay = self.replay();
        let mut scenario = Scenario {
            seed: self.0.u64() >> 1,
            policy: self.policy(),
            cluster: self.cluster(replay.mechanism),
            engine: self.engine(most),
            admission: self.admission(),
            replay,
            ..Scenario::default()
        };
        for _ in 0..self.pick(&[0, 0, 1, 2, 5]) {
            let fault = self.fault(&scenario.cluster, trace);
            scenario.fault.extend(fault);
        }
        assert_eq!(validate(&scenario), Vec::new(), "the dice make what the tool accepts");
        scenario
    }

    fn policy(&mut self) -> PolicyConfig {
        let kv_aware = KvAwareConfig {
            capacity_aware: self.pick(&[false, true]),
            migrate_after_rejections: self.pick(&[0, 1, 3]),
            sticky_bonus: self.pick(&[0, 1, 50]),
            overlap_cap_blocks: self.pick(&[0, 256]),
            hard_cap: self.pick(&[0.1, 0.9]),
            ..KvAwareConfig::default()
        };
        PolicyConfig { name: self.pick(&PolicyName::ALL), kv_aware, ..PolicyConfig::default() }
    }

    fn replay(&mut self) -> ReplayConfig {
        ReplayConfig {
            mechanism: self.pick(&[Mechanism::Dp, Mechanism::Pd, Mechanism::Kvc, Mechanism::Kvc, Mechanism::Kvc]),
            schedule: self.pick(&[Schedule::Open, Schedule::Think, Schedule::OpenStrict]),
            arrival_scale: self.pick(&[0.5, 1.0, 10.0, f64::INFINITY]),
            think_scale: self.pick(&[0.5, 1.0, 10.0, f64::INFINITY]),
            max_gap_s: self.pick(&[0.0, 0.0, 0.5]),
            concurrency: self.pick(&[0, 0, 1, 3]),
            max_sessions: self.pick(&[0, 0, 1, 2]),
            arrival_jitter_ms: self.pick(&[0.0, 0.0, 1.0, 300.0]),
            stall_timeout_s: self.pick(&[0.5, 3.0, 120.0]),
            request_timeout_s: self.pick(&[0.0, 0.0, 0.05, 1.0, 30.0]),
            first_turn: self.pick(&[FirstTurn::Plain, FirstTurn::Seed]),
            on_turn_failure: self.pick(&[
                OnTurnFailure::Continue,
                OnTurnFailure::Continue,
                OnTurnFailure::StopSession,
                OnTurnFailure::StopRun,
            ]),
            load_poll_ms: self.pick(&[50, 1000]),
            ..ReplayConfig::default()
        }
    }

    fn cluster(&mut self, mechanism: Mechanism) -> ClusterConfig {
        let mut cluster = ClusterConfig {
            prefill: self.pick(&[1, 2]),
            decode: self.pick(&[1, 2, 3]),
            colocated: 0,
            transfer_timeout_s: self.pick(&[0.05, 2.0, 32.0]),
            hop_us: self.pick(&[0, 100, 20_000]),
            discovery_delay_ms: self.pick(&[0, 100, 1000, 60_000]),
            ..ClusterConfig::default()
        };
        if mechanism == Mechanism::Dp {
            (cluster.prefill, cluster.decode, cluster.colocated) = (0, 0, self.pick(&[1, 2, 3]));
        }
        let policies =
            [RouterPolicy::Auto, RouterPolicy::RoundRobin, RouterPolicy::Manual, RouterPolicy::ConsistentHashing];
        cluster.router.decode_policy = self.pick(&policies);
        cluster.router.prefill_policy = self.pick(&policies);
        cluster.link.gbytes_per_s = self.pick(&[0.01, 2.5, 200.0]);
        cluster.link.setup_us = self.pick(&[0, 1000]);
        cluster
    }

    /// A pool of 1/5 to 2 times the longest context: pressure up to 5 for one session alone.
    fn engine(&mut self, most: u64) -> EngineConfig {
        let page_size = self.pick(&[1, 16, 64, 100]);
        let pool = (most as f64 * self.pick(&[0.2, 0.9, 1.1, 2.0, 5.0, 50.0])) as u64;
        EngineConfig {
            kv_pool_tokens: pool.max(u64::from(page_size)),
            page_size,
            chunk_tokens: self.pick(&[1, 100, 8192]),
            max_running: self.pick(&[1, 2, 64]),
            reserved_decode_tokens: self.pick(&[0, 16, 512]),
            context_limit_tokens: self.pick(&[0, 0, 0, 1000]),
            decode_radix_cache: self.pick(&[false, true]),
            admission_cost_us: self.pick(&[0, 200, 100_000]),
            ingest_base_ms: self.pick(&[0.0, 6.0]),
            session_idle_timeout_s: self.pick(&[0.0, 0.0, 0.3, 3.0]),
            session_trim: self.pick(&[SessionTrim::Admission, SessionTrim::Pressure]),
            ..EngineConfig::default()
        }
    }

    fn admission(&mut self) -> AdmissionConfig {
        AdmissionConfig {
            append: self.pick(&[AdmissionBy::Router, AdmissionBy::Worker]),
            seed: self.pick(&[AdmissionBy::Router, AdmissionBy::Worker]),
            cap_max: self.pick(&[1, 2, 4, 16]),
            capacity_known: self.pick(&[false, true]),
            usable_share: self.pick(&[0.3, 0.9, 1.0]),
            footprint: self.pick(&[Footprint::Full, Footprint::Incremental]),
            slot_release: self.pick(&[SlotRelease::Never, SlotRelease::SessionEnd, SlotRelease::IdleLru]),
            close_at_end: self.pick(&[false, true]),
            direct_append_max_tokens: self.pick(&[0, 100, 8192]),
            open_attempts: self.pick(&[1, 2, 4]),
        }
    }

    /// A fault of a random kind with every field it needs and some of those it takes; `None` where its kind has no
    /// worker in this cluster.
    fn fault(&mut self, cluster: &ClusterConfig, trace: &Trace) -> Option<FaultConfig> {
        let kind = self.pick(&FAULTS);
        let fields = fault_fields(kind);
        let pair = kind == FaultKind::TransferFailure || (kind == FaultKind::SlowLink && self.pick(&[true, false]));
        let any: Vec<String> = [('P', cluster.prefill), ('D', cluster.decode), ('W', cluster.colocated)]
            .into_iter()
            .filter(|(letter, _)| !pair || *letter == 'P')
            .filter(|(letter, _)| fields.roles.is_empty() || fields.roles.iter().any(|role| role.letter() == *letter))
            .flat_map(|(letter, count)| (0..count).map(move |index| format!("{letter}{index}")))
            .collect();
        if any.is_empty() {
            return None;
        }
        let by_count = self.pick(&[false, false, true]);
        let at = self.pick(&[0.0, 0.1, 0.5, 1.5, 4.0]);
        let after_requests = self.0.below(8);
        let session = self.pick(&trace.sessions);
        let turn = trace.turns[session.turns.start as usize].turn_id;
        let mut has =
            |field: &str| fields.needs.contains(&field) || (fields.takes.contains(&field) && self.pick(&[true, false]));
        let (worker, to) = (has("worker"), pair);
        let unaimed = matches!(kind, FaultKind::Hang | FaultKind::ErrorResponse);
        let of_session = has("session") || (unaimed && !worker);
        let of_turn = of_session && has("turn");
        let (times, lasts, shows, tokens) = (has("times"), has("duration_s"), has("after_s"), has("after_tokens"));
        let (factor, status) = (has("factor"), has("status"));
        Some(FaultConfig {
            kind,
            at_s: (!by_count).then_some(at),
            after_requests: by_count.then_some(after_requests),
            worker: worker.then(|| self.pick(&any)),
            to: to.then(|| format!("D{}", self.0.below(u64::from(cluster.decode)))),
            session: of_session.then(|| session.id.clone()),
            turn: of_turn.then_some(turn),
            times: times.then(|| self.pick(&[1, 3])),
            duration_s: lasts.then(|| self.pick(&[0.0, 0.3, 2.0])),
            factor: factor.then(|| self.pick(&[0.5, 4.0, 100.0])),
            status: status.then(|| self.pick(&[400, 429, 500, 503])),
            after_s: shows.then(|| self.pick(&[0.0, 0.02, 1.0])),
            after_tokens: tokens.then(|| self.pick(&[0, 1, 5])),
        })
    }
}

const FAULTS: [FaultKind; 17] = [
    FaultKind::Kill,
    FaultKind::Restart,
    FaultKind::Leave,
    FaultKind::Join,
    FaultKind::SlowWorker,
    FaultKind::SlowLink,
    FaultKind::TransferFailure,
    FaultKind::Hang,
    FaultKind::AdmissionTimeout,
    FaultKind::ErrorResponse,
    FaultKind::OpenFailure,
    FaultKind::RouterRestart,
    FaultKind::KvEventDrop,
    FaultKind::KvEventDuplicate,
    FaultKind::KvEventReorder,
    FaultKind::PublisherRestart,
    FaultKind::KvEndpointWrong,
];
