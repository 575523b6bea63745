//! Both legs joined by the client.

use std::time::Duration;

use super::fake::{End, Fake, Script, generate_event};
use super::support::{Rig, block_on, cluster, failure, generate_of, routed, two_turns, worker};
use crate::base::Dur;
use crate::live::client::line::locked;
use crate::protocol::{Action, ErrorClass, Finish, Generate, Phases, RoutingHeader, WorkerState};

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
