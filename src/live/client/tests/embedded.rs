//! The client and the emulated cluster over real sockets: they speak the same language.

use std::time::Duration;

use super::support::{Rig, block_on, failure, generate_of, target, trace_of, two_turns};
use crate::base::{SessionIx, WorkerId};
use crate::cluster::{ClusterConfig, FaultConfig, RouterConfig, RouterPolicy};
use crate::engine::EngineConfig;
use crate::live::cluster::{ClusterPlan, EmbeddedCluster};
use crate::live::{Accounts, Dialect, Target};
use crate::protocol::{
    Action, AdmitAsk, AdmitKind, AdmitReason, CallId, ErrorClass, Event, Finish, Generate, Route, RoutingHeader,
    WorkerState,
};
use crate::scenario::{Legs, OpenAiApi};

fn start([prefill, decode, colocated]: [u16; 3], faults: &[&str]) -> EmbeddedCluster {
    let router = RouterConfig { decode_policy: RouterPolicy::ConsistentHashing, ..RouterConfig::default() };
    let config = ClusterConfig { prefill, decode, colocated, router, ..ClusterConfig::default() };
    let faults = faults.iter().map(|text| serde_json::from_str::<FaultConfig>(text).unwrap()).collect();
    let plan = ClusterPlan { faults, speed: 20.0, ..ClusterPlan::new(config, EngineConfig::default(), 64) };
    EmbeddedCluster::start(plan).unwrap()
}

/// One P, one D, one colocated worker and the router, none of which takes a body of more than 100,000 bytes.
fn start_narrow() -> EmbeddedCluster {
    let config = ClusterConfig { prefill: 1, decode: 1, colocated: 1, ..ClusterConfig::default() };
    let mut plan = ClusterPlan::new(config, EngineConfig::default(), 64);
    plan.worker.body_limit = 100_000;
    EmbeddedCluster::start(plan).unwrap()
}

fn speaking_to(cluster: &EmbeddedCluster, legs: Legs) -> Target {
    let router_config = RouterConfig { decode_policy: RouterPolicy::ConsistentHashing, ..RouterConfig::default() };
    Target { addresses: cluster.addresses().clone(), legs, router_config, ..target(&[]) }
}

fn worker(name: &str) -> WorkerId {
    name.parse().unwrap()
}

#[test]
fn a_session_is_seeded_through_p_and_appended_to_on_its_d() {
    for legs in [Legs::Router, Legs::Direct] {
        let cluster = start([1, 2, 0], &[]);
        let trace = two_turns();
        block_on(async {
            let mut rig = Rig::new(&trace, speaking_to(&cluster, legs));
            let (session, d1) = (SessionIx(0), worker("D1"));
            rig.client.perform(Action::OpenSession { call: CallId(0), worker: d1, session });
            assert_eq!(rig.event().await, Event::Opened { call: CallId(0), worker: d1, result: Ok(0) });
            let route = Route::Router(RoutingHeader::TargetWorker(1));
            let seed = Generate { route, session_params: true, ..generate_of(&trace, 0) };
            let first = rig.finish(seed).await;
            assert_eq!((&first.finish, first.output_tokens), (&Finish::Length, 10), "{legs:?}");
            assert_eq!((first.prefill_worker, first.decode_worker), (Some(worker("P0")), Some(d1)));
            assert_eq!((first.http_status, first.incarnation, first.attempts), (Some(200), Some(0), 1));
            assert!(first.phases.prefill.is_some() && first.phases.kv_transfer.is_some(), "{:?}", first.phases);
            let ask = AdmitAsk { session, kind: AdmitKind::Append, append_tokens: 90, output_tokens: 10 };
            rig.client.perform(Action::Admit { call: CallId(1), worker: d1, ask });
            let Event::Admission { result: Ok(admitted), .. } = rig.event().await else { panic!() };
            assert_eq!((admitted.reason, admitted.incarnation), (AdmitReason::Fits, 0));
            let append = Generate {
                route: Route::Worker(d1),
                session_params: true,
                shipped_tokens: 90,
                ..generate_of(&trace, 1)
            };
            let second = rig.finish(append.clone()).await;
            assert_eq!((&second.finish, second.decode_worker), (&Finish::Length, Some(d1)));
            assert_eq!((second.cached_tokens, second.prefill_worker), (Some(110), None), "what the session held");
            let lost = Generate { route: Route::Worker(worker("D0")), ..append };
            let lost = rig.finish(lost).await;
            assert_eq!((failure(&lost).0, lost.decode_worker), (ErrorClass::SessionNotFound, Some(worker("D0"))));
            rig.client.perform(Action::PollLoads);
            let Event::Loads(loads) = rig.event().await else { panic!() };
            assert_eq!(loads.len(), 3);
            assert!(loads.iter().all(|load| load.capacity_tokens > 0 && load.num_waiting == 0), "{loads:?}");
            let looker = rig.client.looker();
            assert_eq!(looker.look(d1).await, WorkerState::Up { incarnation: 0 });
            let accounts = Accounts::read(cluster.addresses(), looker.http(), Duration::from_secs(2)).await;
            assert!([worker("P0"), worker("D0"), d1].into_iter().all(|told| accounts.has(told)), "{accounts:?}");
        });
        cluster.stop().unwrap();
    }
}

#[test]
fn a_prompt_that_was_answered_is_cached_where_it_was() {
    let trace = two_turns();
    for dialect in [Dialect::Generate, Dialect::OpenAi(OpenAiApi::Completions), Dialect::OpenAi(OpenAiApi::Chat)] {
        let cluster = start([0, 0, 1], &[]);
        block_on(async {
            let target = Target { dialect, model: "emu".into(), ..speaking_to(&cluster, Legs::Direct) };
            let mut rig = Rig::new(&trace, target);
            let first = rig.finish(generate_of(&trace, 0)).await;
            assert_eq!((&first.finish, first.output_tokens, first.cached_tokens), (&Finish::Length, 10, Some(0)));
            let second = rig.finish(generate_of(&trace, 1)).await;
            assert_eq!((&second.finish, second.output_tokens), (&Finish::Length, 10));
            // The first turn's prompt is one full block and a part.
            assert_eq!(second.cached_tokens, Some(64), "{dialect:?}");
        });
        cluster.stop().unwrap();
    }
}

#[test]
fn a_prefill_worker_that_fails_ends_the_request_in_either_way_of_joining() {
    for legs in [Legs::Router, Legs::Direct] {
        let cluster = start([1, 1, 0], &[r#"{"kind":"error-response","worker":"P0","status":500,"times":1}"#]);
        let trace = two_turns();
        block_on(async {
            let mut rig = Rig::new(&trace, speaking_to(&cluster, legs));
            let route = Route::Router(RoutingHeader::None);
            let failed = rig.finish(Generate { route, ..generate_of(&trace, 0) }).await;
            let (class, message) = failure(&failed);
            assert_eq!(class, ErrorClass::PrefillFailed, "{legs:?}: {message}");
            assert!(message.contains("P0"), "{message}");
            let next = rig.finish(Generate { route, ..generate_of(&trace, 1) }).await;
            assert_eq!(next.finish, Finish::Length, "{legs:?}");
        });
        cluster.stop().unwrap();
    }
}

#[test]
fn a_body_beyond_the_limit_of_a_node_is_413_though_the_node_hangs_up_while_it_comes() {
    // More than the sockets between them hold.
    let row = r#"{"session_id":"s","turn_id":0,"timestamp":0,"input_length":700000,"output_length":10}"#;
    let trace = trace_of(&[row.into()]);
    let cluster = start_narrow();
    let routes = [
        (Legs::Direct, Route::Worker(worker("W0"))),
        (Legs::Router, Route::Router(RoutingHeader::None)),
        (Legs::Direct, Route::Router(RoutingHeader::None)),
    ];
    for (legs, route) in routes {
        block_on(async {
            let mut rig = Rig::new(&trace, speaking_to(&cluster, legs));
            let answer = rig.finish(Generate { route, ..generate_of(&trace, 0) }).await;
            let (_, words) = failure(&answer);
            assert!(words.contains("HTTP 413: "), "{legs:?}: {words}");
            assert!(words.contains("the body is larger than 100000 bytes"), "{legs:?}: {words}");
            assert_eq!(answer.http_status, Some(413), "{legs:?}");
        });
    }
}
