//! Tests of the worker: what one engine does with memory, batches and sessions.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::base::{RequestIx, Role, SessionIx, Time, WorkerId};
use crate::engine::{Cx, Done, EngineConfig, Input, Job, Output, SessionTrim, Worker};
use crate::kv::{BlockPath, BlockTree};
use crate::protocol::{AdmitAsk, AdmitKind, AdmitReason, CallId, ErrorClass, Finish};

struct Bench {
    worker: Worker,
    tree: BlockTree,
    now: Time,
    outputs: Vec<(Time, Output)>,
}

fn small() -> EngineConfig {
    let session_trim = SessionTrim::Admission;
    EngineConfig { kv_pool_tokens: 64 * 64, reserved_decode_tokens: 64, session_trim, ..EngineConfig::default() }
}

impl Bench {
    fn new(role: Role, config: &EngineConfig) -> Bench {
        let worker = Worker::new(WorkerId::new(role, 0), 0, config, 64);
        Bench { worker, tree: BlockTree::new(64), now: Time::ZERO, outputs: Vec::new() }
    }

    fn put(&mut self, input: Input) {
        self.worker.handle_input(Cx { now: self.now, tree: &self.tree, names: &() }, input);
        self.drain();
    }

    fn drain(&mut self) {
        while let Some((at, output)) = self.worker.poll_output() {
            assert!(at >= self.now, "an output lies in the past");
            if let Output::Reserved { request, .. } = output {
                self.outputs.push((at, output));
                self.put(Input::KvArrived(request));
                continue;
            }
            if let Output::Prefilled { request, .. } = output {
                self.outputs.push((at, output));
                self.put(Input::KvSent(request));
                continue;
            }
            self.outputs.push((at, output));
        }
    }

    /// Lets the worker run until it sleeps or `until`.
    fn run(&mut self, until: Time) {
        let mut steps = 0;
        while let Some(at) = self.worker.poll_timeout().filter(|at| *at <= until) {
            assert!(at >= self.now, "a wake lies in the past");
            self.now = at;
            self.worker.handle_timeout(Cx { now: self.now, tree: &self.tree, names: &() });
            self.drain();
            steps += 1;
            assert!(steps < 100_000, "the worker spins");
        }
        if until < FOREVER {
            self.now = self.now.max(until);
        }
    }

    fn job(&mut self, request: u32, blocks: &[u64], input: u32, output: u32) -> Job {
        let prompt = self.tree.insert(&blocks[..(input / 64).min(blocks.len() as u32) as usize], BlockPath::EMPTY);
        Job {
            request: RequestIx(request),
            session: None,
            prompt,
            context: prompt,
            input_tokens: input,
            shipped_tokens: input,
            output_tokens: output,
            hang_after: None,
            arrived: self.now,
        }
    }

    fn done(&self) -> BTreeMap<u32, Done> {
        let ends = self.outputs.iter().filter_map(|(_, output)| match output {
            Output::Done(done) => Some((done.request.0, (**done).clone())),
            _ => None,
        });
        ends.collect()
    }
}

fn open(call: u64, session: u32) -> Input {
    Input::Open { call: CallId(call), session: SessionIx(session), idle_timeout: None }
}

const FOREVER: Time = Time(u64::MAX / 4);

fn ids(from: u64, count: u64) -> Vec<u64> {
    (from..from + count).collect()
}

#[test]
fn a_repeated_prompt_is_prefilled_once() {
    let mut bench = Bench::new(Role::Colocated, &EngineConfig::default());
    let first = bench.job(0, &ids(0, 100), 6400, 10);
    bench.put(Input::Generate(first));
    bench.run(FOREVER);
    let again = bench.job(1, &ids(0, 100), 6400, 10);
    bench.put(Input::Generate(again));
    bench.run(FOREVER);
    let done = bench.done();
    assert_eq!((done[&0].cached_tokens, done[&1].cached_tokens), (0, 6336), "the last token is always computed");
    assert_eq!((done[&0].output_tokens, done[&0].finish.clone()), (10, Finish::Length));
}

#[test]
fn an_arrival_cuts_the_macro_step_at_the_next_boundary() {
    let lone = |interrupted: bool| {
        let mut bench = Bench::new(Role::Colocated, &EngineConfig::default());
        let job = bench.job(0, &ids(0, 20), 1280, 1000);
        bench.put(Input::Generate(job));
        bench.run(Time(500_000_000));
        if interrupted {
            bench.put(Input::Close(SessionIx(9)));
        }
        bench.run(FOREVER);
        bench.done()[&0].clone()
    };
    let (whole, cut) = (lone(false), lone(true));
    assert_eq!(whole.output_tokens, cut.output_tokens);
    let apart = whole.last_token.map(Time::ns).zip(cut.last_token.map(Time::ns)).map(|(a, b)| a.abs_diff(b));
    assert!(apart.is_some_and(|ns| ns <= 2), "an input without effect moves nothing but the rounding: {apart:?}");
    assert!(cut.runs.len() > whole.runs.len());
}

#[test]
fn an_unknown_session_is_aborted_inside_a_200_with_one_token() {
    let mut bench = Bench::new(Role::Decode, &EngineConfig::default());
    let mut job = bench.job(7, &[], 500, 120);
    job.session = Some(SessionIx(3));
    bench.put(Input::Reserve(job));
    let done = &bench.done()[&7];
    assert_eq!((done.http_status, done.output_tokens), (200, 1));
    assert!(
        matches!(&done.finish, Finish::Abort { class: ErrorClass::SessionNotFound, message } if message.contains("does not exist"))
    );
}

#[test]
fn a_session_holds_its_kv_and_a_direct_turn_computes_only_the_append() {
    let mut bench = Bench::new(Role::Decode, &EngineConfig::default());
    bench.put(open(0, 0));
    let mut seed = bench.job(0, &[], 10_000, 50);
    seed.session = Some(SessionIx(0));
    bench.put(Input::Reserve(seed));
    bench.run(FOREVER);
    let mut turn = bench.job(1, &[], 10_300, 50);
    (turn.session, turn.shipped_tokens) = (Some(SessionIx(0)), 250);
    bench.put(Input::Generate(turn));
    bench.run(FOREVER);
    let done = bench.done();
    assert_eq!((done[&1].cached_tokens, done[&1].output_tokens), (10_050, 50));
    assert_eq!(bench.worker.stats().prefilled_tokens, 250);
    bench.put(Input::Close(SessionIx(0)));
    assert_eq!(bench.worker.load().token_usage, 0.0, "a closed session gives its memory back");
}

#[test]
fn admission_trims_idle_sessions_least_recently_used_first() {
    let mut bench = Bench::new(Role::Decode, &small());
    for session in 0..3 {
        bench.put(open(0, session));
        let mut seed = bench.job(session, &[], 1000, 20);
        seed.session = Some(SessionIx(session));
        bench.put(Input::Reserve(seed));
        bench.run(FOREVER);
        bench.now = Time(bench.now.ns() + 1);
    }
    let ask = |session, append_tokens| AdmitAsk {
        session: SessionIx(session),
        kind: AdmitKind::Append,
        append_tokens,
        output_tokens: 10,
    };
    bench.put(Input::Admit { call: CallId(1), ask: ask(1, 1500) });
    bench.put(Input::Admit { call: CallId(2), ask: ask(0, 10) });
    bench.put(Input::Admit { call: CallId(3), ask: ask(1, 4000) });
    bench.run(FOREVER);
    let answers: Vec<_> = bench
        .outputs
        .iter()
        .filter_map(|(_, output)| match output {
            Output::Admission { answer, .. } => Some((answer.reason, answer.evicted.clone())),
            _ => None,
        })
        .collect();
    assert_eq!(answers[0], (AdmitReason::FitsAfterTrim, vec![SessionIx(0)]));
    assert_eq!(answers[1], (AdmitReason::SessionNotFound, vec![]));
    assert_eq!(answers[2], (AdmitReason::NoCapacity, vec![SessionIx(2)]), "trimmed as it goes, in vain");
}

#[test]
fn what_can_never_fit_is_refused_and_what_cannot_grow_is_given_up() {
    let mut bench = Bench::new(Role::Decode, &small());
    let huge = bench.job(0, &[], 4090, 10);
    bench.put(Input::Reserve(huge));
    assert!(matches!(bench.done()[&0].finish, Finish::Error { class: ErrorClass::ContextLimit, .. }));
    bench.put(open(0, 0));
    let mut seed = bench.job(1, &[], 3000, 20);
    seed.session = Some(SessionIx(0));
    bench.put(Input::Reserve(seed));
    bench.run(FOREVER);
    let beside = bench.job(2, &[], 900, 900);
    bench.put(Input::Reserve(beside));
    bench.run(FOREVER);
    let done = &bench.done()[&2];
    assert!(matches!(done.finish, Finish::Abort { class: ErrorClass::Overloaded, .. }), "{:?}", done.finish);
    assert!(done.output_tokens > 0 && done.retractions == 1);
}

#[test]
fn a_worker_that_streams_tells_of_every_token_when_it_leaves() {
    let lone = |streams: bool| {
        let mut bench = Bench::new(Role::Colocated, &EngineConfig::default());
        if streams {
            bench.worker.stream_tokens();
        }
        for request in 0..3 {
            let job = bench.job(request, &ids(u64::from(request) * 100, 20), 1280, 100 + request);
            bench.put(Input::Generate(job));
        }
        bench.run(FOREVER);
        let told = bench.outputs.iter().filter_map(|(at, output)| match output {
            Output::Tokens(tokens) if tokens.request == RequestIx(2) => Some((*at, *tokens)),
            _ => None,
        });
        (told.collect::<Vec<_>>(), bench.done()[&2].clone())
    };
    let ((none, whole), (told, streamed)) = (lone(false), lone(true));
    assert!(none.is_empty(), "nobody asked for it");
    let counts: Vec<u32> = told.iter().map(|(_, tokens)| tokens.output_tokens).collect();
    assert_eq!(counts, (1..102).collect::<Vec<_>>(), "the last token comes with the end");
    assert_eq!((told[0].1.prompt_tokens, Some(told[0].0)), (1280, whole.first_token));
    let apart = whole.last_token.unwrap().ns().abs_diff(streamed.last_token.unwrap().ns());
    assert!(apart <= 110, "each iteration is rounded up to a nanosecond: {apart}");
}

#[test]
fn an_idle_session_times_out() {
    let config = EngineConfig { session_idle_timeout_s: 30.0, ..EngineConfig::default() };
    let mut bench = Bench::new(Role::Decode, &config);
    bench.put(open(0, 0));
    bench.run(Time(29_999_999_999));
    assert_eq!(bench.worker.stats().session_timeouts, 0);
    let own =
        Input::Open { call: CallId(1), session: SessionIx(1), idle_timeout: crate::base::Dur::from_secs_f64(40.0) };
    bench.put(own);
    bench.run(Time(30_000_000_000));
    assert_eq!(bench.worker.stats().session_timeouts, 1);
    bench.run(Time(69_999_999_998));
    assert_eq!(bench.worker.stats().session_timeouts, 1, "it has its own time-out");
    bench.run(Time(70_000_000_000));
    assert_eq!(bench.worker.stats().session_timeouts, 2);
}

#[test]
fn a_first_token_held_up_by_control_calls_dies_with_the_worker() {
    let mut bench = Bench::new(Role::Decode, &EngineConfig { admission_cost_us: 1000, ..small() });
    let ask = AdmitAsk { session: SessionIx(9), kind: AdmitKind::Seed, append_tokens: 1, output_tokens: 1 };
    let millis = |ms: u64| Time(ms * 1_000_000);
    bench.put(Input::Admit { call: CallId(0), ask });
    let job = bench.job(0, &[1], 64, 10);
    bench.put(Input::Reserve(job));
    bench.put(Input::Admit { call: CallId(1), ask });
    // At 1 ms room is reserved and the KV comes; at 2 ms it is taken in behind the next call, which ends at 3 ms.
    bench.run(millis(1));
    bench.put(Input::Admit { call: CallId(2), ask });
    bench.run(millis(2));
    bench.put(open(3, 9));
    let crash = bench.worker.crash(Time(2_500_000));
    let lost = &crash.requests[0];
    assert_eq!((lost.output_tokens, lost.first_token, lost.last_token, lost.runs.len()), (0, None, None, 0));
    assert_eq!(crash.calls, vec![open(3, 9)], "nobody answers it");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Random work under 0.5 to 5 times the pool: the pool's laws hold (asserted inside), every request ends once or
    /// hangs, the worker falls asleep, and with nothing left but sessions it holds no other memory.
    #[test]
    fn every_request_ends_once_under_pressure(
        role in prop::sample::select(vec![Role::Colocated, Role::Decode, Role::Prefill]),
        pressure in any::<bool>(),
        radix in any::<bool>(),
        steps in prop::collection::vec((0u8..10, 0u32..6, 1u32..3000, 1u32..400, 0u64..400_000_000), 1..60),
    ) {
        let trim = if pressure { SessionTrim::Pressure } else { SessionTrim::Admission };
        let config = EngineConfig { session_trim: trim, decode_radix_cache: radix, max_running: 6, chunk_tokens: 1024, ..small() };
        let mut bench = Bench::new(role, &config);
        let (mut sent, mut aborted) = (Vec::new(), Vec::new());
        for (at, (action, session, input, output, wait)) in steps.into_iter().enumerate() {
            let request = at as u32;
            match action {
                0..=5 => {
                    let blocks = ids(u64::from(session) * 1000, 64);
                    let mut job = bench.job(request, &blocks, input, output);
                    if action == 5 {
                        job.hang_after = Some(output / 2);
                    }
                    let direct = role == Role::Decode && action < 3;
                    if direct {
                        (job.session, job.shipped_tokens) = (Some(SessionIx(session)), input / 4 + 1);
                    } else if role == Role::Decode && action == 3 {
                        job.session = Some(SessionIx(session));
                    }
                    sent.push(request);
                    bench.put(if role == Role::Decode && !direct { Input::Reserve(job) } else { Input::Generate(job) });
                }
                6 => bench.put(open(request.into(), session)),
                7 => bench.put(Input::Close(SessionIx(session))),
                8 => {
                    let kind = if input % 2 == 0 { AdmitKind::Append } else { AdmitKind::Seed };
                    let ask = AdmitAsk { session: SessionIx(session), kind, append_tokens: input, output_tokens: output };
                    bench.put(Input::Admit { call: CallId(u64::from(request)), ask });
                }
                _ if !sent.is_empty() => {
                    let request = sent[input as usize % sent.len()];
                    aborted.push(request);
                    bench.put(Input::Abort(RequestIx(request)));
                }
                _ => {}
            }
            let until = Time(bench.now.ns() + wait);
            bench.run(until);
        }
        bench.run(FOREVER);
        // A decode leg may wait for idle sessions for ever; the cluster's transfer time-out would end it.
        for session in 0..6 {
            bench.put(Input::Close(SessionIx(session)));
        }
        bench.run(FOREVER);
        let mut ended: Vec<u32> = Vec::new();
        let mut seen = 0;
        while seen < bench.outputs.len() {
            let output = bench.outputs[seen].1.clone();
            seen += 1;
            match output {
                Output::Done(done) => {
                    prop_assert!(done.output_tokens > 0 || done.finish != Finish::Length);
                    let tokens: u32 = done.runs.iter().map(|run| run.count).sum();
                    prop_assert_eq!(tokens, done.output_tokens);
                    ended.push(done.request.0);
                }
                Output::Silent { request, .. } => {
                    ended.push(request.0);
                    bench.put(Input::Abort(request));
                    bench.run(FOREVER);
                }
                Output::Prefilled { request, .. } if role == Role::Prefill => ended.push(request.0),
                Output::Prefilled { .. }
                | Output::Tokens(_)
                | Output::Reserved { .. }
                | Output::Opened { .. }
                | Output::SessionDropped { .. }
                | Output::Admission { .. } => {}
            }
        }
        ended.sort_unstable();
        let twice = ended.windows(2).find(|pair| pair[0] == pair[1]);
        prop_assert_eq!(twice, None, "ended twice");
        for request in sent {
            prop_assert!(ended.binary_search(&request).is_ok() || aborted.contains(&request), "request {} vanished", request);
        }
        prop_assert_eq!(bench.worker.load_count(), 0);
        prop_assert_eq!(bench.worker.load().token_usage, 0.0, "memory leaked");
    }
}

fn prompt(bench: &mut Bench, request: u32, ids: &[u64]) -> Job {
    let path = bench.tree.insert(ids, BlockPath::EMPTY);
    Job {
        request: RequestIx(request),
        session: None,
        prompt: path,
        context: path,
        input_tokens: ids.len() as u32 * 64 + 1,
        shipped_tokens: ids.len() as u32 * 64 + 1,
        output_tokens: 1,
        hang_after: None,
        arrived: Time::ZERO,
    }
}

/// Cached tokens and time to the first token of each of three prompts in turn: one, another that evicts it, the first again.
fn first_evicted_and_again(host_pool_tokens: u64) -> Vec<(u32, u64)> {
    let config = EngineConfig { kv_pool_tokens: 48 * 64, host_pool_tokens, ..small() };
    let mut bench = Bench::new(Role::Colocated, &config);
    bench.worker.record_cache_changes();
    let ids: Vec<Vec<u64>> = vec![(1..41).collect(), (101..141).collect(), (1..41).collect()];
    let mut seen = Vec::new();
    for (request, ids) in (0..).zip(&ids) {
        let (sent, job) = (bench.now, prompt(&mut bench, request, ids));
        bench.put(Input::Generate(job));
        bench.run(Time(u64::MAX));
        let (_, Output::Done(done)) = bench.outputs.pop().expect("it ended") else { panic!("it ended") };
        seen.push((done.cached_tokens, done.first_token.expect("a token").since(sent).ns()));
    }
    let device: i64 = bench.worker.take_cache_changes().iter().map(blocks).sum();
    let host: i64 = bench.worker.take_host_changes().iter().map(blocks).sum();
    assert_eq!(device, bench.worker.cached_extents().iter().map(blocks).sum::<i64>());
    assert_eq!(host, bench.worker.host_extents().iter().map(blocks).sum::<i64>());
    assert!(host <= host_pool_tokens as i64 / 64);
    seen
}

fn blocks(change: &crate::kv::CacheChange) -> i64 {
    let blocks = i64::from(change.to - change.from);
    if change.stored { blocks } else { -blocks }
}

#[test]
fn copies_in_host_memory_come_back_faster_than_they_are_computed() {
    let without = first_evicted_and_again(0);
    let with = first_evicted_and_again(100 * 64);
    assert_eq!(with[..2], without[..2], "copying costs nothing");
    assert_eq!(with[2].0, 40 * 64, "all of it was found");
    assert!(without[2].0 < with[2].0 && with[2].1 < without[2].1, "{with:?} against {without:?}");
}
