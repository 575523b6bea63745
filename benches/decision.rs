//! Cost of a decision: the replayer alone, against a scripted cluster of 64 workers that answers everything at once.
//!
//! A decision is all the replayer does for one request: timer, policy choice, session and admission steps, their answers,
//! and the record. Prints the median over several runs, per policy: `cargo bench --bench decision`.

#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "a benchmark reads the clock and prints")]

use std::error::Error;
use std::time::Instant;

use pdreplay::admission::AdmissionConfig;
use pdreplay::base::{Dur, Role, Time, WorkerId};
use pdreplay::policies::{HeaderMode, PolicyConfig, PolicyName};
use pdreplay::protocol::{
    Action, AdmitAnswer, AdmitReason, Answer, Event, Finish, Generate, Phases, Route, RoutingHeader, TokenRun,
};
use pdreplay::replay::{IndexWatch, Mechanism, ReplayConfig, Replayer, ReplayerConfig};
use pdreplay::trace::generate::{GenerateSpec, generate};
use pdreplay::trace::{Trace, ideal_hits};

const WORKERS: u16 = 64;
const SESSIONS: u32 = 520;
const ROUNDS: usize = 7;
const POOL_TOKENS: u64 = 83_000;

fn config(policy: PolicyName, mechanism: Mechanism) -> ReplayerConfig {
    let (role, header_mode) = match (mechanism, policy) {
        (Mechanism::Dp, _) => (Role::Colocated, HeaderMode::None),
        (_, PolicyName::Default) => (Role::Decode, HeaderMode::None),
        (_, PolicyName::Sticky) => (Role::Decode, HeaderMode::RoutingKey),
        (_, PolicyName::KvAware | PolicyName::CacheAware) => (Role::Decode, HeaderMode::TargetWorker),
        (_, PolicyName::Car) => (Role::Decode, HeaderMode::TargetLegs),
    };
    ReplayerConfig {
        run_id: "bench".into(),
        seed: 1,
        replay: ReplayConfig { mechanism, ..ReplayConfig::default() },
        policy: PolicyConfig { name: policy, ..PolicyConfig::default() },
        admission: AdmissionConfig { cap_max: 16, ..AdmissionConfig::default() },
        workers: (0..WORKERS).map(|index| WorkerId::new(role, index)).collect(),
        initial_loads: Vec::new(),
        index: IndexWatch { after: Dur::from_millis(5000), require: false },
        kv_pool_tokens: POOL_TOKENS,
        session_idle_timeout: None,
        header_mode,
        router_round_robin: false,
    }
}

/// The scripted cluster's answer, if the action has one.
fn answer(now: Time, action: Action, turns: &mut u16) -> Option<Event> {
    match action {
        Action::Generate(generate) => Some(Event::Finished(Box::new(finished(now, &generate, turns)))),
        Action::OpenSession { call, worker, .. } => Some(Event::Opened { call, worker, result: Ok(0) }),
        Action::Admit { call, worker, .. } => {
            let answer = AdmitAnswer {
                can_admit: true,
                reason: AdmitReason::Fits,
                available_tokens: POOL_TOKENS,
                capacity_tokens: POOL_TOKENS,
                evicted: Vec::new(),
                incarnation: 0,
            };
            Some(Event::Admission { call, worker, result: Ok(answer) })
        }
        Action::PollLoads => Some(Event::Loads(Vec::new())),
        Action::CloseSession { .. } | Action::Abort { .. } => None,
    }
}

fn finished(now: Time, generate: &Generate, turns: &mut u16) -> Answer {
    let decode_worker = match generate.route {
        Route::Worker(worker) => worker,
        Route::Router(RoutingHeader::TargetWorker(index) | RoutingHeader::TargetLegs { decode: index, .. }) => {
            WorkerId::new(Role::Decode, index)
        }
        Route::Router(RoutingHeader::None | RoutingHeader::RoutingKey(_)) => {
            *turns = (*turns + 1) % WORKERS;
            WorkerId::new(Role::Decode, *turns)
        }
    };
    Answer {
        request: generate.request,
        finish: Finish::Length,
        http_status: Some(200),
        prefill_worker: Some(WorkerId::new(Role::Prefill, 0)),
        decode_worker: Some(decode_worker),
        incarnation: Some(0),
        cached_tokens: Some(0),
        output_tokens: generate.output_tokens,
        first_token_at: Some(now),
        last_token_at: Some(now),
        phases: Phases::default(),
        retractions: 0,
        token_runs: vec![TokenRun { first: now, step: Dur::ZERO, count: generate.output_tokens }],
        attempts: 1,
        retry_wait: Dur::ZERO,
    }
}

/// Replays the whole trace; returns the number of records.
fn replay(trace: &Trace, ideal: &[u32], config: ReplayerConfig) -> usize {
    let mut replayer = Replayer::new(trace, config, ideal);
    let (mut records, mut turns) = (0, 0);
    while let Some((now, _)) = replayer.poll_timeout() {
        replayer.handle_timeout(now);
        while let Some(action) = replayer.poll_action() {
            if let Some(event) = answer(now, action, &mut turns) {
                replayer.handle_event(now, event);
            }
        }
        while replayer.poll_ledger().is_some() {}
        while let Some((record, _)) = replayer.poll_record() {
            assert!(record.outcome.is_ok(), "{record:?}");
            records += 1;
        }
    }
    records
}

fn main() -> Result<(), Box<dyn Error>> {
    let trace = generate(&GenerateSpec { sessions: SESSIONS, ..GenerateSpec::default() })?;
    let ideal = ideal_hits(&trace);
    let runs = [
        (PolicyName::KvAware, Mechanism::Kvc),
        (PolicyName::Sticky, Mechanism::Kvc),
        (PolicyName::Default, Mechanism::Kvc),
        (PolicyName::KvAware, Mechanism::Pd),
        (PolicyName::CacheAware, Mechanism::Dp),
    ];
    for (policy, mechanism) in runs {
        let mut samples = Vec::new();
        for _ in 0..ROUNDS {
            let start = Instant::now();
            let records = replay(&trace, &ideal, config(policy, mechanism));
            samples.push(start.elapsed().as_secs_f64() * 1e6 / records as f64);
            assert_eq!(records, trace.turns.len());
        }
        samples.sort_by(f64::total_cmp);
        let (policy, mechanism, median) = (policy.as_str(), mechanism.as_str(), samples[ROUNDS / 2]);
        println!("{policy:<12} {mechanism:<4} {WORKERS} workers {median:>7.2} us per decision");
    }
    Ok(())
}
