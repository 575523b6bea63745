//! Routers, both legs joined by the client, who served, and control calls.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::fake::{End, Fake, Script, generate_event};
use super::support::{Rig, block_on, failure, generate_of, target, two_turns};
use crate::base::{Dur, SessionIx, WorkerId};
use crate::live::client::line::locked;
use crate::live::probe::RouteMap;
use crate::live::{Addresses, Endpoint, Heard, Target};
use crate::protocol::{
    Action, AdmitAsk, AdmitKind, AdmitReason, CallId, ErrorClass, Event, Finish, Generate, Phases, Route,
    RoutingHeader, WorkerState,
};
use crate::record::LedgerKind;
use crate::scenario::{HeaderConfig, Legs, TargetValue};
use crate::trace::Trace;

fn worker(name: &str) -> WorkerId {
    name.parse().unwrap()
}

fn cluster(router: Option<&Fake>, prefill: &[&Fake], decode: &[&Fake]) -> Target {
    let endpoints = |fakes: &[&Fake]| -> Vec<Endpoint> {
        fakes.iter().map(|fake| Endpoint { url: fake.url.clone(), bootstrap_port: Some(8998) }).collect()
    };
    let addresses = Addresses {
        router: router.map(|fake| fake.url.clone()),
        prefill: endpoints(prefill),
        decode: endpoints(decode),
        ..Addresses::default()
    };
    let legs = if router.is_some() { Legs::Router } else { Legs::Direct };
    Target { addresses, legs, ..target(&[]) }
}

fn routed(trace: &Trace, request: u32, header: RoutingHeader) -> Generate {
    Generate { route: Route::Router(header), ..generate_of(trace, request) }
}

#[test]
fn the_client_joins_both_legs_and_p_gets_no_session() {
    block_on(async {
        let trace = two_turns();
        let p = Fake::start(|_| {
            Script::stream().then(30, &generate_event(0, r#"{"type":"length","length":0}"#)).then(0, "data: [DONE]\n\n")
        })
        .await;
        let d = Fake::start(|_| {
            Script::stream().then(60, &generate_event(10, r#"{"type":"length"}"#)).then(0, "data: [DONE]\n\n")
        })
        .await;
        let mut rig = Rig::new(&trace, cluster(None, &[&p], &[&d]));
        let ask = Generate { session_params: true, ..routed(&trace, 0, RoutingHeader::None) };
        let answer = rig.finish(ask).await;
        assert_eq!((&answer.finish, answer.output_tokens), (&Finish::Length, 10));
        assert_eq!((answer.prefill_worker, answer.decode_worker), (Some(worker("P0")), Some(worker("D0"))));
        let Phases { prefill: Some(took), kv_transfer: None, .. } = answer.phases else { panic!("{answer:?}") };
        assert!(took >= Dur::from_millis(30));
        let (p, d) = (p.requests()[0].json(), d.requests()[0].json());
        assert_eq!(
            (p["bootstrap_room"].as_u64(), p["bootstrap_host"].as_str()),
            (d["bootstrap_room"].as_u64(), Some("127.0.0.1"))
        );
        assert!(p["bootstrap_room"].as_u64().unwrap() < 1 << 63 && p["bootstrap_port"] == 8998);
        assert!(p.get("session_params").is_none() && d["session_params"]["id"] == "s\"1");
    });
}

#[test]
fn when_p_fails_the_request_ends_at_once_and_d_is_let_go() {
    block_on(async {
        let trace = two_turns();
        let abort = r#"{"type":"abort","message":"Prefill bootstrap failed for request rank=0","status_code":500}"#;
        let failures = [
            (Script::json(500, "boom"), ErrorClass::PrefillFailed, Some(500)),
            (
                Script::stream().then(0, &generate_event(0, abort)).then(0, "data: [DONE]\n\n"),
                ErrorClass::PrefillFailed,
                Some(200),
            ),
            (Script::nothing(), ErrorClass::PrefillFailed, None),
            (
                Script::json(400, "Request exceeds the maximum number of tokens: 9 > 8"),
                ErrorClass::ContextLimit,
                Some(400),
            ),
        ];
        for (script, wanted, status) in failures {
            let named = script.header("x-pdreplay-worker", "P0").header("x-pdreplay-incarnation", "i7");
            let p = Fake::start(move |_| named.clone()).await;
            let d = Fake::start(|_| Script::nothing().end(End::Mute)).await;
            let mut rig = Rig::new(&trace, cluster(None, &[&p], &[&d]));
            let answer = rig.finish(routed(&trace, 0, RoutingHeader::None)).await;
            let (class, message) = failure(&answer);
            assert_eq!((class, answer.http_status), (wanted, status));
            assert_eq!((answer.prefill_worker, answer.decode_worker), (Some(worker("P0")), Some(worker("D0"))));
            assert_eq!((answer.incarnation, answer.output_tokens), (None, 0), "P's word is not D's");
            assert!(message.starts_with("prefill failed on P0: "), "{message}");
            while !d.is_left() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
    });
}

#[test]
fn a_failed_hand_off_is_the_fault_of_the_leg_that_says_more() {
    block_on(async {
        let trace = two_turns();
        let aborts = |words: &str| {
            let reason = format!(r#"{{"type":"abort","message":"{words}","status_code":500}}"#);
            Script::stream().then(0, &generate_event(0, &reason)).then(0, "data: [DONE]\n\n")
        };
        let hand_off = aborts("KVTransferError(bootstrap_room=5): transfer failed");
        let (own, silent) = (aborts("prefill failed on P0: server answered 500"), Script::nothing().end(End::Mute));
        let full = Script::json(503, "full");
        let cases = [
            (&own, &hand_off, ErrorClass::PrefillFailed),
            (&hand_off, &hand_off, ErrorClass::KvTransferFailed),
            (&hand_off, &full, ErrorClass::Overloaded),
            (&hand_off, &silent, ErrorClass::KvTransferFailed),
            (&silent, &hand_off, ErrorClass::KvTransferFailed),
        ];
        for (nth, (p, d, wanted)) in cases.into_iter().enumerate() {
            let (p, d) = (p.clone(), d.clone());
            let (p, d) = (Fake::start(move |_| p.clone()).await, Fake::start(move |_| d.clone()).await);
            let mut rig = Rig::new(&trace, cluster(None, &[&p], &[&d]));
            let answer = rig.finish(routed(&trace, 0, RoutingHeader::None)).await;
            assert_eq!(failure(&answer).0, wanted, "case {nth}: {answer:?}");
        }
    });
}

#[test]
fn when_d_fails_or_the_request_is_given_up_p_is_let_go() {
    block_on(async {
        let trace = two_turns();
        let mute = || Fake::start(|_| Script::nothing().end(End::Mute));
        let (p, refusing) = (mute().await, Fake::start(|_| Script::json(503, "full")).await);
        let mut rig = Rig::new(&trace, cluster(None, &[&p], &[&refusing]));
        let answer = rig.finish(routed(&trace, 0, RoutingHeader::None)).await;
        assert_eq!((failure(&answer).0, answer.decode_worker), (ErrorClass::Overloaded, Some(worker("D0"))));
        let d = mute().await;
        let mut given_up = Rig::new(&trace, cluster(None, &[&p], &[&d]));
        given_up.client.perform(Action::Generate(routed(&trace, 1, RoutingHeader::None)));
        while p.requests().len() < 2 || d.requests().is_empty() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        given_up.client.perform(Action::Abort { request: generate_of(&trace, 1).request });
        let answer = given_up.answer().await;
        assert_eq!((answer.prefill_worker, answer.decode_worker), (Some(worker("P0")), Some(worker("D0"))));
        assert_eq!((answer.http_status, answer.output_tokens, answer.attempts), (None, 0, 1));
        while locked(&p.log).closed < 2 || locked(&d.log).closed < 1 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
}

#[test]
fn legs_avoid_workers_that_are_down() {
    block_on(async {
        let trace = two_turns();
        let p = Fake::start(|_| Script::tokens(0)).await;
        let up = Fake::start(|_| Script::tokens(10)).await;
        let down = Fake::start(|_| Script::json(503, "")).await;
        let mut rig = Rig::new(&trace, cluster(None, &[&p], &[&down, &up]));
        assert_eq!(rig.client.looker().look(worker("D0")).await, WorkerState::Down);
        assert_eq!(rig.client.looker().look(worker("D1")).await, WorkerState::Up { incarnation: 0 });
        for request in 0..2 {
            assert_eq!(
                rig.finish(routed(&trace, request, RoutingHeader::None)).await.decode_worker,
                Some(worker("D1"))
            );
        }
        assert_eq!(rig.client.looker().look(worker("D1")).await, WorkerState::Up { incarnation: 0 });
        let mut none = Rig::new(&trace, cluster(None, &[&p], &[]));
        assert_eq!(failure(&none.finish(routed(&trace, 0, RoutingHeader::None)).await).0, ErrorClass::NoWorker);
    });
}

#[test]
fn routing_headers_are_written_as_the_target_wants_them() {
    block_on(async {
        let trace = two_turns();
        let session = SessionIx(0);
        let sent = async |config: HeaderConfig, header, name: &str| {
            let router = Fake::start(|_| Script::tokens(10)).await;
            let d = Fake::start(|_| Script::tokens(10)).await;
            let target = Target { header: config, ..cluster(Some(&router), &[&d], &[&d, &d]) };
            let mut rig = Rig::new(&trace, target);
            rig.finish(routed(&trace, 0, header)).await;
            (router.requests()[0].header(name).map(str::to_owned), d.url)
        };
        let value = |target_value| HeaderConfig { target_value, ..HeaderConfig::default() };
        let target = RoutingHeader::TargetWorker(1);
        let (key, target_name) = ("x-smg-routing-key", "x-smg-target-worker");
        assert_eq!(
            sent(value(TargetValue::Index), RoutingHeader::RoutingKey(session), key).await.0.as_deref(),
            Some("s\"1")
        );
        assert_eq!(sent(value(TargetValue::Index), target, target_name).await.0.as_deref(), Some("1"));
        assert_eq!(sent(value(TargetValue::Id), target, target_name).await.0.as_deref(), Some("D1"));
        let (url, d) = sent(value(TargetValue::Url), target, target_name).await;
        assert_eq!(url, Some(d));
        assert_eq!(sent(value(TargetValue::Index), RoutingHeader::None, key).await.0, None);
    });
}

#[test]
fn who_served_is_read_from_headers_pointer_or_the_emulated_workers_word() {
    block_on(async {
        let trace = two_turns();
        let emulated = r#"data: {"meta_info":{"completion_tokens":10,"finish_reason":{"type":"length"},"num_retractions":2,"by":"D0","emulated":{"worker":"D1","incarnation":41,"prefill_worker":"P0","prefill_ns":5,"kv_transfer_ns":7}}}"#;
        let plain = Script::tokens(10);
        let told = Script::stream().then(0, emulated).then(0, "\n\ndata: [DONE]\n\n");
        let cases = [
            (plain.clone(), "", None),
            (plain.clone().header("x-smg-routed-worker-id", "D1"), "", Some("D1")),
            (plain.header("x-pdreplay-worker", "D0"), "", Some("D0")),
            (told.clone(), "", Some("D1")),
            (told.clone(), "/meta_info/by", Some("D0")),
        ];
        for (script, pointer, served) in cases {
            let router = Fake::start(move |_| script.clone()).await;
            let d = Fake::start(|_| Script::tokens(10)).await;
            let mut target = cluster(Some(&router), &[&d], &[&d, &d]);
            target.served_by.pointer = pointer.into();
            let answer = Rig::new(&trace, target).finish(routed(&trace, 0, RoutingHeader::None)).await;
            assert_eq!(answer.decode_worker, served.map(worker));
            assert_eq!(answer.finish, Finish::Length);
        }
        let router = Fake::start(move |_| told.clone()).await;
        let mut rig = Rig::new(&trace, cluster(Some(&router), &[&router], &[&router, &router]));
        let answer = rig.finish(routed(&trace, 0, RoutingHeader::None)).await;
        assert_eq!((answer.prefill_worker, answer.incarnation, answer.retractions), (Some(worker("P0")), Some(0), 2));
        assert_eq!((answer.phases.prefill, answer.phases.kv_transfer), (Some(Dur(5)), Some(Dur(7))));
    });
}

#[test]
fn where_it_was_posted_counts_before_what_the_worker_calls_itself() {
    block_on(async {
        let trace = two_turns();
        let swapped = |name: &'static str| Fake::start(move |_| Script::tokens(10).header("x-pdreplay-worker", name));
        let (first, second) = (swapped("D1").await, swapped("D0").await);
        let router = Fake::start(|_| Script::tokens(10).header("x-pdreplay-worker", "D1")).await;
        let mut target = cluster(Some(&router), &[], &[&first, &second]);
        target.addresses.learn_name(worker("D0"), "D1");
        target.addresses.learn_name(worker("D1"), "D0");
        let mut rig = Rig::new(&trace, target);
        for (request, name) in [(0, "D0"), (1, "D1")] {
            let direct = Generate { route: Route::Worker(worker(name)), ..generate_of(&trace, request) };
            assert_eq!(rig.finish(direct).await.decode_worker, Some(worker(name)));
        }
        let through = rig.finish(routed(&trace, 0, RoutingHeader::None)).await;
        assert_eq!(through.decode_worker, Some(worker("D0")), "the one that calls itself D1");
    });
}

#[test]
fn a_worker_that_nobody_listed_is_told_once() {
    block_on(async {
        let trace = two_turns();
        let router = Fake::start(|_| Script::tokens(10).header("x-smg-routed-worker-id", "http://unknown")).await;
        let mut rig = Rig::new(&trace, cluster(Some(&router), &[&router], &[&router]));
        rig.client.perform(Action::Generate(routed(&trace, 0, RoutingHeader::None)));
        assert!(matches!(rig.hear().await, Heard::Event(Event::Sent { .. })));
        match rig.hear().await {
            Heard::Notice { kind: LedgerKind::UnlistedWorker, worker: None, detail } => {
                assert!(detail.starts_with("http://unknown served a request"), "{detail}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(rig.answer().await.decode_worker, None);
        assert_eq!(rig.finish(routed(&trace, 1, RoutingHeader::None)).await.decode_worker, None, "and no second word");
    });
}

#[test]
fn the_token_of_a_sessions_last_answer_is_sent_back() {
    block_on(async {
        let trace = two_turns();
        let router = Fake::start(|_| Script::tokens(10).header("x-session-token", "abc")).await;
        let mut target = cluster(Some(&router), &[], &[]);
        target.header.echo_name = "x-session-token".into();
        let mut rig = Rig::new(&trace, target);
        for request in 0..2 {
            rig.finish(routed(&trace, request, RoutingHeader::None)).await;
        }
        let sent: Vec<_> = router.requests().iter().map(|r| r.header("x-session-token").map(str::to_owned)).collect();
        assert_eq!(sent, [None, Some("abc".to_owned())]);
    });
}

#[test]
fn a_request_that_lands_elsewhere_makes_the_route_map_anew() {
    block_on(async {
        let trace = two_turns();
        let router = Fake::start(|request| match request.header("x-smg-target-worker") {
            Some("7") => Script::tokens(10).header("x-smg-routed-worker-id", "D1"),
            _ => Script::tokens(10).header("x-smg-routed-worker-id", "D0"),
        })
        .await;
        let mut rig = Rig::new(&trace, cluster(Some(&router), &[], &[&router, &router, &router]));
        rig.client.set_route_map(RouteMap { index: vec![Some(0), Some(1), None] });
        let probes = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&probes);
        rig.client.set_prober(Arc::new(move || {
            *locked(&counted) += 1;
            Box::pin(async { Ok(RouteMap { index: vec![Some(0), Some(7), None] }) })
        }));
        let ask = |request, d| routed(&trace, request, RoutingHeader::TargetWorker(d));
        rig.client.perform(Action::Generate(ask(0, 1)));
        for _ in 0..3 {
            match rig.hear().await {
                Heard::Event(Event::Sent { .. }) => {}
                Heard::Event(Event::Finished(answer)) => {
                    assert_eq!(answer.decode_worker, Some(worker("D0")), "a mismatch, told as it is");
                }
                Heard::Notice { kind: LedgerKind::RouteMapChanged, detail, .. } => {
                    assert_eq!(detail, "D0=0 D1=7 D2=-");
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(rig.finish(ask(1, 1)).await.decode_worker, Some(worker("D1")));
        let unreachable = rig.finish(ask(0, 2)).await;
        assert_eq!(failure(&unreachable), (ErrorClass::NoWorker, "no index of the router reaches D2"));
        assert!(rig.hears_nothing().await);
        assert_eq!(*locked(&probes), 1, "not again at once");
    });
}

#[test]
fn control_calls_are_answered_and_keep_their_order() {
    block_on(async {
        let trace = two_turns();
        let admission = r#"{"can_admit":true,"reason":"fits-after-trim","available_tokens":9,"capacity_tokens":10,"evicted":["s\"1","other"]}"#;
        let d = Fake::start(move |request| {
            match request.line.as_str() {
                "POST /open_session" => Script::json(200, r#""s\"1""#),
                "POST /close_session" => Script::json(200, "").header("slow", "").then(60, ""),
                _ => Script::json(200, admission),
            }
            .header("x-pdreplay-incarnation", "p17")
        })
        .await;
        let mut rig = Rig::new(&trace, cluster(None, &[], &[&d]));
        let (session, at) = (SessionIx(0), worker("D0"));
        rig.client.perform(Action::CloseSession { worker: at, session });
        rig.client.perform(Action::OpenSession { call: CallId(1), worker: at, session });
        assert_eq!(rig.event().await, Event::Opened { call: CallId(1), worker: at, result: Ok(0) });
        let lines: Vec<_> = d.requests().into_iter().map(|request| request.line).collect();
        assert_eq!(lines, ["POST /close_session", "POST /open_session"]);
        let opened = d.requests()[1].json();
        assert_eq!((opened["session_id"].as_str(), opened["streaming"].as_bool()), (Some("s\"1"), Some(true)));
        let ask = AdmitAsk { session, kind: AdmitKind::Seed, append_tokens: 5, output_tokens: 6 };
        rig.client.perform(Action::Admit { call: CallId(2), worker: at, ask });
        let Event::Admission { call: CallId(2), result: Ok(answer), .. } = rig.event().await else { panic!() };
        assert_eq!((answer.reason, answer.evicted, answer.incarnation), (AdmitReason::FitsAfterTrim, vec![session], 0));
        assert_eq!(d.requests()[2].json()["kind"], "seed");
        rig.client.perform(Action::CloseSession { worker: at, session });
        rig.client.close(Duration::from_secs(5)).await;
        assert_eq!(d.requests().len(), 4);
    });
}

#[test]
fn a_run_marks_its_sessions_wherever_they_are_named() {
    block_on(async {
        let trace = two_turns();
        let admission = r#"{"can_admit":true,"reason":"fits","evicted":["s\"1","s\"1~c0ffee"]}"#;
        let d = Fake::start(move |request| match request.line.as_str() {
            "POST /open_session" => Script::json(200, r#""s\"1~c0ffee""#),
            "POST /close_session" => Script::json(200, ""),
            "POST /generate" => Script::tokens(10),
            _ => Script::json(200, admission),
        })
        .await;
        let marked = |target: Target| Target { session_mark: "~c0ffee".into(), ..target };
        let mut rig = Rig::new(&trace, marked(cluster(None, &[], &[&d])));
        let (session, at) = (SessionIx(0), worker("D0"));
        rig.client.perform(Action::OpenSession { call: CallId(1), worker: at, session });
        assert_eq!(rig.event().await, Event::Opened { call: CallId(1), worker: at, result: Ok(0) });
        let ask = AdmitAsk { session, kind: AdmitKind::Append, append_tokens: 5, output_tokens: 6 };
        rig.client.perform(Action::Admit { call: CallId(2), worker: at, ask });
        let Event::Admission { result: Ok(answer), .. } = rig.event().await else { panic!() };
        assert_eq!(answer.evicted, [session], "another run's session of that name is none of ours");
        rig.finish(Generate { route: Route::Worker(at), session_params: true, ..generate_of(&trace, 0) }).await;
        rig.client.perform(Action::CloseSession { worker: at, session });
        rig.client.close(Duration::from_secs(5)).await;
        let bodies: Vec<_> = d.requests().iter().map(|request| request.json()).collect();
        let named = ["/session_id", "/session_id", "/session_params/id", "/session_id"];
        for (body, pointer) in bodies.iter().zip(named) {
            assert_eq!(body.pointer(pointer).and_then(|id| id.as_str()), Some("s\"1~c0ffee"), "{body}");
        }
        assert_eq!((bodies.len(), bodies[2]["rid"].as_str()), (4, Some("s\"1/0")), "a rid is the trace's");
        let router = Fake::start(|_| Script::tokens(10)).await;
        let mut rig = Rig::new(&trace, marked(cluster(Some(&router), &[], &[])));
        rig.finish(routed(&trace, 0, RoutingHeader::RoutingKey(session))).await;
        assert_eq!(router.requests()[0].header("x-smg-routing-key"), Some("s\"1~c0ffee"));
    });
}

#[test]
fn control_calls_that_fail_say_why_within_their_limit() {
    block_on(async {
        let trace = two_turns();
        let d = Fake::start(|request| match request.line.as_str() {
            "POST /open_session" => {
                Script::json(400, r#"{"error":{"message":"Failed to open the session. Check if it is still open."}}"#)
            }
            "POST /close_session" => Script::nothing().end(End::Mute),
            _ => Script::nothing().end(End::Mute),
        })
        .await;
        let mut target = cluster(None, &[], &[&d]);
        target.limits.control = Duration::from_millis(80);
        let mut rig = Rig::new(&trace, target);
        let (session, at) = (SessionIx(0), worker("D0"));
        rig.client.perform(Action::OpenSession { call: CallId(1), worker: at, session });
        let Event::Opened { result: Err(error), .. } = rig.event().await else { panic!() };
        assert_eq!(error.status, Some(400));
        assert!(error.message.starts_with("D0: Failed to open"), "{}", error.message);
        let ask = AdmitAsk { session, kind: AdmitKind::Append, append_tokens: 5, output_tokens: 6 };
        rig.client.perform(Action::Admit { call: CallId(2), worker: at, ask });
        let Event::Admission { result: Err(error), .. } = rig.event().await else { panic!() };
        assert_eq!((error.status, error.message.as_str()), (None, "D0: no answer within 80ms"));
        rig.client.perform(Action::PollLoads);
        assert_eq!(rig.event().await, Event::Loads(Vec::new()));
    });
}

#[test]
fn loads_come_from_every_worker_that_tells_old_or_new() {
    block_on(async {
        let trace = two_turns();
        let new = Fake::start(|_| {
            Script::json(200, r#"{"loads":[{"num_running_reqs":2,"token_usage":0.5,"max_total_num_tokens":100,"num_waiting_reqs":1}]}"#)
        })
        .await;
        let old = Fake::start(|request| match request.line.as_str() {
            "GET /get_load" => Script::json(200, r#"[{"dp_rank":0,"num_reqs":3,"num_waiting_reqs":1,"num_tokens":7}]"#),
            _ => Script::json(404, ""),
        })
        .await;
        let dead = Fake::start(|_| Script::nothing()).await;
        let mut rig = Rig::new(&trace, cluster(None, &[&new], &[&old, &dead]));
        rig.client.perform(Action::PollLoads);
        let Event::Loads(loads) = rig.event().await else { panic!() };
        let seen: Vec<_> = loads.iter().map(|load| (load.worker, load.num_running, load.capacity_tokens)).collect();
        assert_eq!(seen, [(worker("P0"), 2, 100), (worker("D0"), 2, 0)]);
    });
}

#[test]
fn a_worker_that_names_no_process_is_another_one_after_nobody_listened() {
    block_on(async {
        let trace = two_turns();
        let first = Fake::start(|_| Script::tokens(10)).await;
        let rig = Rig::new(&trace, Target { emulated: false, ..target(&[&first.url, "http://127.0.0.1:1"]) });
        let look = async |name: &str| rig.client.looker().look(worker(name)).await;
        assert_eq!(look("W0").await, WorkerState::Up { incarnation: 0 });
        assert_eq!(look("W1").await, WorkerState::Down);
        assert_eq!(look("W0").await, WorkerState::Up { incarnation: 0 }, "the other worker's end is not its");
    });
}
