//! Refusals, broken connections, repeats, addresses, secrets.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::fake::{End, Fake, Script, generate_event};
use super::support::{Rig, answer_to, block_on, failure, generate_of, target, trace_of, two_turns};
use crate::base::Dur;
use crate::live::client::Client;
use crate::live::client::line::locked;
use crate::live::clock::Clock;
use crate::live::{Dialect, Retries, Secrets, Target};
use crate::protocol::{Action, Answer, ErrorClass, Finish};

fn native(script: Script) -> Answer {
    block_on(answer_to(Dialect::Generate, |_| {}, script))
}

fn two_tokens() -> Script {
    Script::stream().then(0, &generate_event(2, "null"))
}

/// A server that answers the first requests with these scripts and all others with ten tokens.
async fn first_answers(scripts: Vec<Script>) -> Fake {
    let served = AtomicUsize::new(0);
    Fake::start(move |_| {
        let at = served.fetch_add(1, Ordering::Relaxed);
        scripts.get(at).cloned().unwrap_or_else(|| Script::tokens(10))
    })
    .await
}

fn with_retries(fake: &Fake, most: u32) -> Target {
    let retries = Retries { most, backoff: Duration::from_millis(30), longest: Duration::from_secs(60) };
    Target { retries, ..target(&[&fake.url]) }
}

#[test]
fn refusals_have_the_class_of_their_words_or_status() {
    let smg =
        r#"{"error":{"type":"Service Unavailable","code":"no_available_workers","message":"no worker","param":null}}"#;
    let cases = [
        (
            Script::json(400, r#"{"error":{"message":"Request r exceeds the maximum number of tokens: 9 > 8"}}"#),
            ErrorClass::ContextLimit,
        ),
        (Script::json(400, r#"{"error":{"message":"bad"}}"#), ErrorClass::BadRequest),
        (Script::json(401, "{}"), ErrorClass::Unauthorized),
        (Script::json(403, "no"), ErrorClass::Unauthorized),
        (Script::json(404, r#"{"detail":"Not Found"}"#), ErrorClass::BadRequest),
        (Script::json(429, "").header("retry-after", "7"), ErrorClass::Overloaded),
        (Script::json(500, "oops"), ErrorClass::ServerError),
        (Script::json(503, smg), ErrorClass::NoWorker),
        (Script::json(503, "").header("x-smg-error-code", "worker_overload_protection_shed"), ErrorClass::Overloaded),
        (Script::json(500, "").header("x-smg-error-code", "prefill_internal_error"), ErrorClass::PrefillFailed),
        (Script::json(307, "").header("location", "http://elsewhere/"), ErrorClass::BadAnswer),
    ];
    for (script, class) in cases {
        let answer = native(script.clone());
        assert_eq!(failure(&answer).0, class, "{script:?}");
        assert!(answer.http_status.is_some() && answer.attempts == 1);
    }
    let limited = native(Script::json(429, "slow down").header("retry-after", "7"));
    assert_eq!(failure(&limited).1, "HTTP 429: slow down: Retry-After: 7");
}

#[test]
fn a_body_that_breaks_off_is_an_error_with_what_came() {
    let short = Script::json(200, r#"{"id": "rsp-7""#).length(4000).end(End::Fin);
    for (script, tokens) in [(two_tokens().end(End::Fin), 2), (two_tokens().end(End::Rst), 2), (short, 0)] {
        let answer = native(script);
        let (class, message) = failure(&answer);
        assert_eq!((class, answer.output_tokens), (ErrorClass::ConnectionClosed, tokens));
        assert!(message.contains("connection closed in the middle of the answer"), "{message}");
    }
}

#[test]
fn a_finish_reason_before_a_break_is_no_success() {
    let script = Script::stream().then(0, &generate_event(10, r#"{"type":"length"}"#)).end(End::Fin);
    assert_eq!(failure(&native(script)).0, ErrorClass::ConnectionClosed);
}

#[test]
fn an_end_mark_is_the_end_whatever_the_connection_does_then() {
    for end in [End::Fin, End::Rst, End::Hang] {
        let answer = native(Script::tokens(10).end(end));
        assert_eq!((&answer.finish, answer.output_tokens), (&Finish::Length, 10));
    }
}

#[test]
fn a_connection_closed_before_the_answer_is_repeated_only_when_it_was_kept_and_that_is_asked_for() {
    block_on(async {
        let trace = two_turns();
        for (most, attempts) in [(0, 1), (1, 2)] {
            // Connection 0 serves one request and closes on the second.
            let fake = Fake::start(|request| match (request.connection, request.line.as_str()) {
                (0, _) if request.json()["rid"] == "s\"1/1" => Script::nothing(),
                _ => Script::tokens(10),
            })
            .await;
            let mut rig = Rig::new(&trace, with_retries(&fake, most));
            assert_eq!(rig.finish(generate_of(&trace, 0)).await.finish, Finish::Length);
            tokio::time::sleep(Duration::from_millis(30)).await;
            let second = rig.finish(generate_of(&trace, 1)).await;
            assert_eq!((second.attempts, fake.requests().len()), (attempts, 2 + usize::from(most > 0)));
            if most == 0 {
                let (class, message) = failure(&second);
                assert_eq!(class, ErrorClass::ConnectionClosed);
                assert!(message.contains("connection closed before the answer"), "{message}");
            } else {
                assert_eq!((&second.finish, rig.client.counters().retries), (&Finish::Length, 1));
            }
        }
        // On a connection of its own the request may have been at work.
        let fake = first_answers(vec![Script::nothing()]).await;
        let mut rig = Rig::new(&trace, with_retries(&fake, 3));
        let answer = rig.finish(generate_of(&trace, 0)).await;
        assert_eq!((failure(&answer).0, answer.attempts), (ErrorClass::ConnectionClosed, 1));
    });
}

#[test]
fn throttled_requests_are_repeated_only_when_asked_for_and_say_how_long_they_waited() {
    block_on(async {
        let trace = two_turns();
        let refused = Script::json(503, "busy");
        let fake = first_answers(vec![refused.clone(), refused.clone()]).await;
        let mut rig = Rig::new(&trace, with_retries(&fake, 3));
        let answer = rig.finish(generate_of(&trace, 0)).await;
        assert_eq!((&answer.finish, answer.attempts), (&Finish::Length, 3));
        assert_eq!(answer.retry_wait, Dur::from_millis(30 + 60), "doubled");
        assert!(answer.first_token_at.unwrap().ns() >= answer.retry_wait.ns(), "the wait is part of it");
        assert_eq!((rig.client.counters().retries, rig.client.counters().throttled), (2, 2));

        let fake = first_answers(vec![Script::json(429, "").header("retry-after", "banana")]).await;
        let mut rig = Rig::new(&trace, with_retries(&fake, 1));
        assert_eq!(rig.finish(generate_of(&trace, 0)).await.retry_wait, Dur::from_millis(30));

        let fake = first_answers(vec![Script::json(429, "").header("retry-after", "1")]).await;
        let mut rig = Rig::new(&trace, with_retries(&fake, 1));
        assert_eq!(rig.finish(generate_of(&trace, 0)).await.retry_wait, Dur::from_millis(1000));

        let nobody = Script::json(503, r#"{"error":{"code":"no_available_workers","message":"none"}}"#);
        let fake = first_answers(vec![nobody]).await;
        let mut rig = Rig::new(&trace, with_retries(&fake, 0));
        assert_eq!(failure(&rig.finish(generate_of(&trace, 0)).await).0, ErrorClass::NoWorker);
        assert_eq!(rig.client.counters().throttled, 0, "a router without workers does not refuse for load");

        let fake = first_answers(vec![refused.clone(), refused]).await;
        let mut rig = Rig::new(&trace, with_retries(&fake, 1));
        let answer = rig.finish(generate_of(&trace, 0)).await;
        assert_eq!((failure(&answer).0, answer.attempts), (ErrorClass::Overloaded, 2));
        // Errors that say nothing of waiting are never repeated.
        let fake = first_answers(vec![Script::json(500, "")]).await;
        let mut rig = Rig::new(&trace, with_retries(&fake, 5));
        assert_eq!(rig.finish(generate_of(&trace, 0)).await.attempts, 1);
    });
}

#[test]
fn nobody_at_the_address_is_a_lost_worker_that_is_named_once() {
    block_on(async {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let trace = two_turns();
        let mut rig = Rig::new(&trace, target(&[&format!("http://{free}")]));
        let answer = rig.finish(generate_of(&trace, 0)).await;
        assert_eq!(failure(&answer), (ErrorClass::WorkerLost, &*format!("W0: connection refused by {free}")));
    });
}

#[test]
fn localhost_finds_whoever_listens_and_ipv6_addresses_work() {
    block_on(async {
        let trace = two_turns();
        let v4 = Fake::start(|_| Script::tokens(10)).await;
        let v6 = Fake::on("[::1]:0", |_| Script::tokens(10)).await;
        let mut urls = vec![v4.url.replace("127.0.0.1", "localhost")];
        match &v6 {
            Ok(v6) => urls.extend([v6.url.clone(), v6.url.replace("[::1]", "localhost")]),
            Err(error) => println!("skipped: no IPv6 here ({error})"),
        }
        for url in urls {
            let mut rig = Rig::new(&trace, target(&[&url]));
            let answer = rig.finish(generate_of(&trace, 0)).await;
            assert_eq!(answer.finish, Finish::Length, "{url}");
        }
    });
}

#[test]
fn loopback_never_goes_through_the_proxy() {
    block_on(async {
        let trace = two_turns();
        let fake = Fake::start(|_| Script::tokens(10)).await;
        for url in [fake.url.clone(), fake.url.replace("127.0.0.1", "localhost")] {
            let target = Target { proxy: Some("http://127.0.0.1:9".into()), ..target(&[&url]) };
            let mut rig = Rig::new(&trace, target);
            assert_eq!(rig.finish(generate_of(&trace, 0)).await.finish, Finish::Length, "{url}");
        }
        let proxy = Fake::start(|_| Script::tokens(10)).await;
        let target = Target { proxy: Some(proxy.url.clone()), ..target(&["http://elsewhere.invalid:81"]) };
        let mut rig = Rig::new(&trace, target);
        assert_eq!(rig.finish(generate_of(&trace, 0)).await.finish, Finish::Length);
        assert_eq!(proxy.requests()[0].line, "POST http://elsewhere.invalid:81/generate");
    });
}

#[test]
fn a_few_slots_need_a_few_connections() {
    let rows: Vec<String> = (0..400)
        .map(|turn| {
            format!(r#"{{"session_id":"s{turn}","turn_id":0,"timestamp":0,"input_length":3,"output_length":10}}"#)
        })
        .collect();
    let trace = trace_of(&rows);
    block_on(async {
        let served = AtomicUsize::new(0);
        let fake = Fake::start(move |_| match served.fetch_add(1, Ordering::Relaxed) % 10 {
            9 => Script::json(500, &"x".repeat(10_000)),
            // The end of the body comes on its own, as from most servers.
            3 => Script::tokens(10).then(2, ": over\n\n"),
            _ => Script::tokens(10),
        })
        .await;
        let mut rig = Rig::new(&trace, target(&[&fake.url]));
        (0..8).for_each(|turn| rig.client.perform(Action::Generate(generate_of(&trace, turn))));
        for turn in 8..408 {
            rig.answer().await;
            if turn < 400 {
                rig.client.perform(Action::Generate(generate_of(&trace, turn)));
            }
        }
        let opened = locked(&fake.log).connections;
        assert!(opened <= 10, "{opened} for 8 slots");
        let counters = rig.client.counters();
        assert_eq!((counters.connections, counters.requests), (opened as u64, 400));
        assert!(counters.bytes_sent > 400 * 50);
        tokio::task::yield_now().await;
        assert_eq!(rig.client.in_flight(), 0);
    });
}

#[test]
fn secrets_are_sent_and_never_shown() {
    block_on(async {
        let trace = two_turns();
        let fake = Fake::start(|_| Script::json(500, "no")).await;
        let secrets = Secrets { headers: vec![("Authorization".into(), "Bearer hush".into())], ca_pem: None };
        let target = Target { secrets, ..target(&[&fake.url]) };
        let mut rig = Rig::new(&trace, target);
        let answer = rig.finish(generate_of(&trace, 0)).await;
        assert_eq!(fake.requests()[0].header("authorization"), Some("Bearer hush"));
        let shown = format!("{:?} {answer:?}", rig.client);
        assert!(!shown.contains("hush"), "{shown}");
    });
    let client = |url: &str, value: &str| {
        let secrets = Secrets { headers: vec![("x-key".into(), value.into())], ca_pem: None };
        let (tell, _heard) = tokio::sync::mpsc::channel(1);
        let trace = two_turns();
        let target = Arc::new(Target { secrets, ..target(&[url]) });
        Client::new(&trace, target, Clock::start(1.0), tell).map(|_| ()).unwrap_err().to_string()
    };
    let message = client("http://127.0.0.1:1", "hu\nsh");
    assert!(message.contains("x-key") && !message.contains("sh\""), "{message}");
    let message = client("ftp://me:hush@host", "a");
    assert!(message.contains("ftp://host") && !message.contains("hush"), "{message}");
}

#[test]
fn secrets_that_a_server_says_back_are_masked_wherever_they_stand() {
    let error = |message: &str| format!("data: {{\"error\":{{\"message\":\"{message}\"}}}}\n\n");
    let abort = r#"{"type":"abort","message":"no Bearer SEKRET-1"}"#;
    let scripts = [
        Script::json(401, "bad key: Bearer SEKRET-1, team: team-SEKRET"),
        Script::json(401, r#"{"error":{"message":"who is \u0053EKRET-1","code":"SEKRET-1"}}"#),
        Script::json(429, "").header("retry-after", "SEKRET-1"),
        Script::json(307, "").header("location", "http://a/?key=SEKRET-1"),
        Script::json(503, "").header("x-smg-error-code", "team-SEKRET"),
        Script::json(200, r#"{"error":"SEKRET-1"}"#),
        Script::json(200, "SEKRET-1"),
        Script::json(200, "").header("content-type", "text/SEKRET-1"),
        Script::stream().then(0, &error("no SEKRET-1")),
        Script::stream().then(0, "data: SEKRET-1 {\n\n"),
        Script::stream().then(0, &generate_event(1, abort)).then(0, "data: [DONE]\n\n"),
    ];
    let secrets = || Secrets {
        headers: vec![("authorization".into(), "Bearer SEKRET-1".into()), ("x-team".into(), "team-SEKRET".into())],
        ca_pem: None,
    };
    for script in scripts {
        let shown = format!("{script:?}");
        let answer = block_on(answer_to(Dialect::Generate, |target| target.secrets = secrets(), script));
        assert!(!format!("{answer:?}").contains("SEKRET"), "{shown}\n{answer:?}");
        assert!(failure(&answer).1.contains("***"), "{shown}\n{answer:?}");
    }
    block_on(async {
        let trace = two_turns();
        let fake = Fake::start(|_| Script::json(200, r#"{"version":"SEKRET-1"}"#).header("server", "SEKRET-1")).await;
        let rig = Rig::new(&trace, Target { secrets: secrets(), ..target(&[&fake.url]) });
        let reply = rig.client.looker().http().get(&format!("{}/version", fake.url)).await.unwrap();
        assert_eq!((&reply.body[..], reply.header("server")), (&br#"{"version":"***"}"#[..], Some("***")));
    });
}

#[test]
fn a_server_that_asks_for_a_long_wait_is_not_asked_again() {
    block_on(async {
        let trace = two_turns();
        for wait in ["61", "99999999999999", "Sun, 06 Nov 2094 08:49:39 GMT"] {
            let fake = first_answers(vec![Script::json(429, "later").header("retry-after", wait)]).await;
            let answer = Rig::new(&trace, with_retries(&fake, 2)).finish(generate_of(&trace, 0)).await;
            let (class, message) = failure(&answer);
            assert_eq!((class, answer.attempts, answer.retry_wait), (ErrorClass::Overloaded, 1, Dur::ZERO));
            assert!(message.ends_with("longer than live.retry_wait_max_s = 60: not sent again"), "{message}");
        }
        // Doubled waits stop growing at the same bound.
        let fake = Fake::start(|_| Script::json(503, "later")).await;
        let mut target = with_retries(&fake, 5);
        target.retries.longest = Duration::from_millis(40);
        let answer = Rig::new(&trace, target).finish(generate_of(&trace, 0)).await;
        assert_eq!((answer.attempts, answer.retry_wait), (6, Dur::from_millis(30 + 4 * 40)));
    });
}

#[test]
fn a_proxy_that_is_not_there_is_named_and_not_the_target() {
    block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        let trace = two_turns();
        let with = |url: &str| Target { proxy: Some(proxy.clone()), ..target(&[url]) };
        // An address of documentation: nothing is sent there.
        let answer = Rig::new(&trace, with("http://192.0.2.1:80")).finish(generate_of(&trace, 0)).await;
        let (class, message) = failure(&answer);
        assert_eq!(class, ErrorClass::WorkerLost);
        let wanted = format!("the proxy {proxy} takes no connection; start it, or correct live.proxy");
        assert!(message.contains(&wanted), "{message}");
        let answer = Rig::new(&trace, with(&proxy)).finish(generate_of(&trace, 0)).await;
        assert!(failure(&answer).1.contains("connection refused by"), "loopback takes no proxy: {answer:?}");
    });
}
