//! Routers: headers that say where to, who served, and maps that prove old.

use std::sync::{Arc, Mutex};

use super::fake::{Fake, Script};
use super::support::{Rig, block_on, cluster, failure, generate_of, routed, two_turns, worker};
use crate::base::{Dur, SessionIx};
use crate::live::client::line::locked;
use crate::live::probe::RouteMap;
use crate::live::{Heard, Target};
use crate::protocol::{Action, ErrorClass, Event, Finish, Generate, Route, RoutingHeader};
use crate::record::LedgerKind;
use crate::scenario::{HeaderConfig, TargetValue};

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
        assert_eq!(rig.client.seen().unlisted_workers, [("http://unknown".to_owned(), 2)].into());
    });
}

#[test]
fn a_request_posted_to_a_worker_is_no_strangers_whoever_it_passed_it_on_to() {
    block_on(async {
        let trace = two_turns();
        let front = Fake::start(|_| Script::tokens(10).header("x-smg-routed-worker-id", "http://unknown")).await;
        let mut rig = Rig::new(&trace, cluster(None, &[], &[&front]));
        let direct = Generate { route: Route::Worker(worker("D0")), ..generate_of(&trace, 0) };
        assert_eq!(rig.finish(direct).await.decode_worker, Some(worker("D0")));
        assert!(rig.client.seen().unlisted_workers.is_empty());
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
