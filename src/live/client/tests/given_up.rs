//! Requests given up: the stream is closed, and what had come is told once.

use std::time::Duration;

use super::fake::{End, Fake, Script, generate_event};
use super::support::{Rig, block_on, generate_of, pd_addresses, target, two_turns};
use crate::base::{Dur, RequestIx, WorkerId};
use crate::live::client::line::locked;
use crate::live::{Retries, Target};
use crate::protocol::{Action, Answer, Event, Finish, Generate, Route, RoutingHeader};
use crate::scenario::Legs;

const REQUEST: RequestIx = RequestIx(0);

/// What the client has read and done once this holds.
async fn once(holds: impl Fn() -> bool) {
    while !holds() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    // One runtime for both ends: what has been written is read within some of its turns.
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn given_up(rig: &mut Rig) -> Answer {
    assert_eq!(rig.client.in_flight(), 1);
    rig.client.perform(Action::Abort { request: REQUEST });
    assert_eq!(rig.client.in_flight(), 0);
    let answer = rig.answer().await;
    assert_eq!(answer.request, REQUEST);
    assert!(rig.hears_nothing().await, "told once");
    answer
}

fn with_retries(fake: &Fake, backoff: Duration) -> Target {
    Target { retries: Retries { most: 5, backoff, longest: Duration::from_secs(3600) }, ..target(&[&fake.url]) }
}

#[test]
fn an_abort_closes_the_stream_and_tells_what_had_come() {
    block_on(async {
        let trace = two_turns();
        let script = || Script::stream().then(0, &generate_event(2, "null")).then(5, &generate_event(5, "null"));
        let fake = Fake::start(move |_| script().end(End::Hang)).await;
        let mut rig = Rig::new(&trace, target(&[&fake.url]));
        rig.client.perform(Action::Generate(generate_of(&trace, 0)));
        once(|| locked(&fake.log).written == 1).await;
        let answer = given_up(&mut rig).await;
        assert_eq!(answer.finish, Finish::given_up());
        assert_eq!((answer.http_status, answer.output_tokens, answer.cached_tokens), (Some(200), 5, Some(3)));
        assert_eq!(answer.token_runs.iter().map(|run| run.count).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(answer.first_token_at, Some(answer.token_runs[0].first));
        assert_eq!(answer.last_token_at, Some(answer.token_runs[1].first));
        assert_eq!((answer.decode_worker, answer.attempts), (Some("W0".parse().unwrap()), 1));
        while locked(&fake.log).closed == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
}

#[test]
fn who_served_and_the_phases_are_kept() {
    block_on(async {
        let trace = two_turns();
        let event = r#"data: {"meta_info":{"completion_tokens":1,"finish_reason":null,"by":"D1","emulated":{"worker":"D0","incarnation":41,"prefill_worker":"P0","prefill_ns":5}}}"#;
        for (pointer, served) in [("", "D0"), ("/meta_info/by", "D1")] {
            let fake = Fake::start(|_| Script::stream().then(0, event).then(0, "\n\n").end(End::Hang)).await;
            let mut target = target(&[]);
            target.addresses = pd_addresses(&fake.url);
            (target.legs, target.served_by.pointer) = (Legs::Router, pointer.into());
            let mut rig = Rig::new(&trace, target);
            let route = Route::Router(RoutingHeader::None);
            rig.client.perform(Action::Generate(Generate { route, ..generate_of(&trace, 0) }));
            once(|| locked(&fake.log).written == 1).await;
            let answer = given_up(&mut rig).await;
            let named = |name: &str| Some(name.parse::<WorkerId>().unwrap());
            assert_eq!((answer.prefill_worker, answer.decode_worker), (named("P0"), named(served)));
            assert_eq!((answer.output_tokens, answer.phases.prefill), (1, Some(Dur(5))));
        }
    });
}

#[test]
fn a_wait_for_the_next_attempt_keeps_the_status_of_the_last() {
    block_on(async {
        let trace = two_turns();
        let fake = Fake::start(|_| Script::json(503, "busy")).await;
        let mut rig = Rig::new(&trace, with_retries(&fake, Duration::from_secs(3600)));
        rig.client.perform(Action::Generate(generate_of(&trace, 0)));
        once(|| rig.client.counters().throttled == 1).await;
        let answer = given_up(&mut rig).await;
        assert_eq!((answer.http_status, answer.attempts, answer.retry_wait), (Some(503), 1, Dur::ZERO));
        assert_eq!((answer.output_tokens, answer.first_token_at), (0, None));
    });
}

#[test]
fn an_attempt_without_an_answer_has_no_status_of_the_one_before() {
    block_on(async {
        let trace = two_turns();
        let fake = Fake::start(|request| match request.connection {
            0 if request.json()["rid"] == "s\"1/0" => Script::json(429, "").until_close(),
            _ => Script::nothing().end(End::Mute),
        })
        .await;
        let mut rig = Rig::new(&trace, with_retries(&fake, Duration::from_millis(30)));
        rig.client.perform(Action::Generate(generate_of(&trace, 0)));
        once(|| fake.requests().len() == 2).await;
        let answer = given_up(&mut rig).await;
        assert_eq!((answer.http_status, answer.attempts), (None, 2));
        assert_eq!(answer.retry_wait, Dur::from_millis(30));
    });
}

#[test]
fn what_is_given_up_before_it_is_sent_is_not_sent() {
    block_on(async {
        let trace = two_turns();
        let fake = Fake::start(|_| Script::tokens(10)).await;
        let mut rig = Rig::new(&trace, target(&[&fake.url]));
        rig.client.perform(Action::Generate(generate_of(&trace, 0)));
        let answer = given_up(&mut rig).await;
        assert_eq!((answer.attempts, answer.http_status), (0, None));
        assert_eq!(locked(&fake.log).connections, 0);
    });
}

#[test]
fn an_abort_of_what_has_ended_leaves_its_end() {
    block_on(async {
        let trace = two_turns();
        let fake = Fake::start(|_| Script::tokens(10)).await;
        let mut rig = Rig::new(&trace, target(&[&fake.url]));
        rig.client.perform(Action::Generate(generate_of(&trace, 0)));
        once(|| rig.client.in_flight() == 0).await;
        rig.client.perform(Action::Abort { request: REQUEST });
        let Event::Finished(answer) = rig.event().await else { panic!("no end") };
        assert_eq!((&answer.finish, answer.output_tokens), (&Finish::Length, 10));
        assert!(rig.hears_nothing().await, "told once");
    });
}
