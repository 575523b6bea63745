//! Tests of the cluster as a machine: hand-off, outages and what the client hears of them.

use super::*;
use crate::base::{RequestIx, Role, SessionIx, Time, WorkerId};
use crate::engine::{Cx, EngineConfig};
use crate::kv::{BlockPath, BlockTree};
use crate::protocol::{Action, Answer, ErrorClass, Event, Finish, Generate, Route, RoutingHeader, WorkerState};

struct Bench {
    cluster: Cluster,
    tree: BlockTree,
    now: Time,
    events: Vec<(Time, Event)>,
}

fn fault(text: &str) -> Fault {
    Fault::new(&serde_json::from_str::<FaultConfig>(text).unwrap(), None, None).unwrap()
}

impl Bench {
    fn new(faults: &[&str]) -> Bench {
        let router = RouterConfig { decode_policy: RouterPolicy::RoundRobin, ..RouterConfig::default() };
        let config = ClusterConfig { prefill: 1, decode: 2, router, ..ClusterConfig::default() };
        let faults = faults.iter().map(|text| fault(text)).collect();
        let cluster = Cluster::new(&config, &EngineConfig::default(), 64, faults);
        Bench { cluster, tree: BlockTree::new(64), now: Time::ZERO, events: Vec::new() }
    }

    fn send(&mut self, request: u32, input_tokens: u32, output_tokens: u32) {
        let generate = Generate {
            request: RequestIx(request),
            session: SessionIx(request),
            route: Route::Router(RoutingHeader::None),
            session_params: false,
            prompt: BlockPath::EMPTY,
            context: BlockPath::EMPTY,
            input_tokens,
            shipped_tokens: input_tokens,
            output_tokens,
        };
        let cx = Cx { now: self.now, tree: &self.tree, names: &() };
        self.cluster.handle_action(cx, Action::Generate(generate));
    }

    fn run(&mut self, until: f64) {
        let until = Time((until * 1e9) as u64);
        while let Some(at) = self.cluster.poll_timeout().filter(|at| *at <= until) {
            self.now = at;
            self.cluster.handle_timeout(Cx { now: at, tree: &self.tree, names: &() });
            while let Some(event) = self.cluster.poll_event() {
                self.events.push((at, event));
            }
        }
        self.now = until;
    }

    fn give_up(&mut self, request: u32) {
        let cx = Cx { now: self.now, tree: &self.tree, names: &() };
        self.cluster.handle_action(cx, Action::Abort { request: RequestIx(request) });
        while let Some(event) = self.cluster.poll_event() {
            self.events.push((self.now, event));
        }
    }

    fn answer(&self, request: u32) -> &Answer {
        let answers = self.events.iter().filter_map(|(_, event)| match event {
            Event::Finished(answer) if answer.request == RequestIx(request) => Some(&**answer),
            _ => None,
        });
        let answers: Vec<_> = answers.collect();
        assert_eq!(answers.len(), 1, "one answer a request");
        answers[0]
    }

    fn states(&self, worker: WorkerId) -> Vec<WorkerState> {
        let heard = self.events.iter().filter_map(|(_, event)| match event {
            Event::WorkerChanged { worker: changed, state } if *changed == worker => Some(*state),
            _ => None,
        });
        heard.collect()
    }
}

#[test]
fn phases_add_up_to_the_time_to_the_first_token() {
    let mut bench = Bench::new(&[]);
    bench.send(0, 20_000, 5);
    bench.run(60.0);
    let answer = bench.answer(0);
    let phases = answer.phases;
    let sum = [phases.prefill_queue, phases.prefill, phases.kv_transfer, phases.decode_queue];
    let sum: u64 = sum.iter().map(|phase| phase.expect("all phases occurred").ns()).sum();
    // Beside the phases: taking the prompt in (6 ms + 2 µs a token) and four hops of 100 µs.
    assert_eq!(answer.first_token_at.unwrap().ns(), sum + 46_000_000 + 400_000);
    // 20,000 tokens × 98,304 bytes at 2.5 GB/s, and 1 ms of set-up.
    assert_eq!(phases.kv_transfer.unwrap().ns(), 786_432_000 + 1_000_000);
}

#[test]
fn a_prefill_worker_that_dies_takes_only_what_it_still_holds() {
    // The KV is on D after about 1.35 s; the long answer decodes there when P dies.
    let mut bench = Bench::new(&[r#"{"kind":"kill","worker":"P0","at_s":2.0}"#]);
    bench.send(0, 20_000, 400);
    bench.run(1.9);
    bench.send(1, 20_000, 400);
    bench.run(60.0);
    assert_eq!(bench.answer(0).finish, Finish::Length);
    let lost = bench.answer(1);
    assert!(matches!(&lost.finish, Finish::Error { class: ErrorClass::PrefillFailed, .. }), "{:?}", lost.finish);
    assert!(
        bench.cluster.in_flight() == 0 && bench.cluster.workers(bench.now).iter().all(|worker| worker.requests <= 2)
    );
}

#[test]
fn a_worker_stays_down_as_long_as_any_fault_keeps_it_down() {
    let d1 = WorkerId::new(Role::Decode, 1);
    let mut bench = Bench::new(&[
        r#"{"kind":"kill","worker":"D1","at_s":10,"duration_s":90}"#,
        r#"{"kind":"kill","worker":"D1","at_s":50,"duration_s":10}"#,
    ]);
    bench.run(90.0);
    assert_eq!(bench.states(d1), vec![WorkerState::Down]);
    bench.run(200.0);
    assert_eq!(bench.states(d1), vec![WorkerState::Down, WorkerState::Up { incarnation: 1 }]);
    let mut bench = Bench::new(&[
        r#"{"kind":"kill","worker":"D1","at_s":10,"duration_s":30}"#,
        r#"{"kind":"leave","worker":"D1","at_s":20}"#,
    ]);
    bench.run(200.0);
    assert_eq!(bench.states(d1), vec![WorkerState::Down], "who leaves does not come back");
}

#[test]
fn a_failed_transfer_names_both_ends_and_the_pair_works_again() {
    let mut bench = Bench::new(&[r#"{"kind":"transfer-failure","worker":"P0","to":"D0","times":1,"after_s":1.0}"#]);
    bench.send(0, 1000, 5);
    bench.run(5.0);
    bench.send(1, 1000, 5);
    bench.send(2, 1000, 5);
    bench.run(20.0);
    let Finish::Error { class, message } = &bench.answer(0).finish else { panic!("the first transfer fails") };
    assert_eq!((*class, message.contains("P0 to D0")), (ErrorClass::KvTransferFailed, true));
    assert_eq!((&bench.answer(1).finish, &bench.answer(2).finish), (&Finish::Length, &Finish::Length));
    let errors: Vec<_> = bench.cluster.transfers().iter().map(|pair| (pair.transfers, pair.errors)).collect();
    assert_eq!(errors, vec![(2, 1), (1, 0)]);
}

#[test]
fn an_injected_refusal_has_the_class_of_its_status() {
    let cases = [
        (400, ErrorClass::BadRequest),
        (401, ErrorClass::Unauthorized),
        (429, ErrorClass::Overloaded),
        (500, ErrorClass::ServerError),
        (503, ErrorClass::Overloaded),
    ];
    for (status, wanted) in cases {
        let fault = format!(r#"{{"kind":"error-response","worker":"D0","times":1,"status":{status}}}"#);
        let mut bench = Bench::new(&[&fault]);
        bench.send(0, 1000, 5);
        bench.run(5.0);
        let Finish::Error { class, .. } = &bench.answer(0).finish else { panic!("{status} refuses the request") };
        assert_eq!(*class, wanted, "{status}");
    }
}

#[test]
fn a_request_given_up_tells_at_once_what_had_reached_the_client() {
    let mut bench = Bench::new(&[]);
    bench.send(0, 2000, 40);
    bench.run(60.0);
    let whole = bench.answer(0).clone();
    let (first, last) = (whole.first_token_at.unwrap(), whole.last_token_at.unwrap());
    // Before its arrival, waiting, all through the answer, and while the last tokens are on the way back.
    let hop = 100_000;
    let spread = (0..100).map(|part| last.ns() / 100 * part);
    let edges = [hop / 2, first.ns() - 1, first.ns(), last.ns() - 2 * hop, last.ns() - 1];
    let mut seen = Vec::new();
    for at in spread.chain(edges).map(Time) {
        let mut bench = Bench::new(&[]);
        bench.send(0, 2000, 40);
        bench.run(at.ns() as f64 / 1e9);
        bench.now = at;
        bench.give_up(0);
        assert!(matches!(bench.events[..], [(then, Event::Finished(_))] if then == at), "at once: {:?}", bench.events);
        let wanted = whole.clone().until(at);
        let answer = bench.answer(0).clone();
        // A run of tokens has a mean gap, so a cut one may be off by one.
        assert!(answer.output_tokens.abs_diff(wanted.output_tokens) <= 1, "at {at}: {answer:?}, not {wanted:?}");
        assert_eq!(answer.token_runs.iter().map(|run| run.count).sum::<u32>(), answer.output_tokens);
        assert_eq!(answer.first_token_at, Some(first).filter(|first| *first <= at), "at {at}");
        assert!(answer.last_token_at.is_none_or(|last| last <= at), "at {at}: {answer:?}");
        let heard = answer.output_tokens > 0;
        assert_eq!((answer.http_status, answer.decode_worker.is_some()), (heard.then_some(200), heard));
        assert_eq!(answer.phases, if heard { whole.phases } else { Default::default() }, "at {at}");
        seen.push(answer.output_tokens);
        bench.run(60.0);
        assert_eq!(bench.answer(0), &answer, "nothing more is heard");
        let requests: u64 = bench.cluster.workers(bench.now).iter().map(|worker| worker.requests).sum();
        assert!(at.ns() > hop || requests == 0, "nobody works for a request that is given up before it arrives");
        assert_eq!(bench.cluster.in_flight(), 0);
    }
    assert!(seen.contains(&0) && seen.contains(&39) && seen.iter().any(|tokens| (10..30).contains(tokens)), "{seen:?}");
}

#[test]
fn a_stream_that_hangs_keeps_its_tokens_when_it_is_given_up() {
    let mut bench = Bench::new(&[r#"{"kind":"hang","worker":"D0","times":1,"after_tokens":3}"#]);
    bench.send(0, 2000, 40);
    bench.run(30.0);
    let quiet = bench.events.iter().find_map(|(_, event)| match event {
        Event::Silent { since, .. } => Some(*since),
        _ => None,
    });
    bench.give_up(0);
    let answer = bench.answer(0);
    assert_eq!((answer.output_tokens, answer.last_token_at), (3, quiet));
}
