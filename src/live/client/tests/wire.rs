//! Plain connections: how answers are framed, when a connection is used again, answers that come before the request has left.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::fake::{End, Fake, Script, generate_event};
use super::support::{Rig, answer_to, block_on, failure, generate_of, target, trace_of, two_turns};
use crate::live::client::line::locked;
use crate::live::{Dialect, Target};
use crate::protocol::{Action, Answer, ErrorClass, Finish};
use crate::trace::Trace;

/// Ten tokens and the end mark.
fn events() -> String {
    generate_event(10, r#"{"type":"length"}"#) + "data: [DONE]\n\n"
}

fn with_length(version: &str, more: &str) -> String {
    let events = events();
    let length = events.len();
    format!(
        "HTTP/{version} 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {length}{more}\r\n\r\n{events}"
    )
}

/// The answers to so many requests, one after the other, and the connections they took.
async fn served(script: Script, requests: u32) -> (Vec<Answer>, usize) {
    let fake = Fake::start(move |_| script.clone()).await;
    let trace = two_turns();
    let mut rig = Rig::new(&trace, target(&[&fake.url]));
    let mut answers = Vec::new();
    for _ in 0..requests {
        answers.push(rig.finish(generate_of(&trace, 0)).await);
        // What the server does behind its answer is known before the next request.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let connections = locked(&fake.log).connections;
    (answers, connections)
}

fn assert_served(script: Script, connections: usize, what: &str) {
    let (answers, opened) = block_on(served(script, 3));
    for answer in answers {
        assert_eq!((&answer.finish, answer.output_tokens, answer.attempts), (&Finish::Length, 10, 1), "{what}");
    }
    assert_eq!(opened, connections, "{what}");
}

#[test]
fn an_answer_is_read_however_it_is_framed_and_its_connection_used_again_where_that_can_be() {
    let chunk = |text: &str| format!("{:X};a=b\r\n{text}\r\n", text.len());
    let chunked = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream\r\nTransfer-Encoding: chunked\r\n\r\n{}{}0\r\nx-trailer: 1\r\n\r\n",
        chunk(&events()[..40]),
        chunk(&events()[40..]),
    );
    let kept = [
        ("length", with_length("1.1", "")),
        ("HTTP/1.0 that keeps", with_length("1.0", "\r\nconnection: keep-alive")),
        ("chunks with extensions and trailers", chunked),
        ("100 Continue", format!("HTTP/1.1 100 Continue\r\n\r\n{}", with_length("1.1", ""))),
        ("103 Early Hints", format!("HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n{}", with_length("1.1", ""))),
    ];
    for (what, text) in &kept {
        assert_served(Script::raw(text), 1, what);
        let one_by_one = text.chars().fold(Script::raw(""), |script, letter| script.then(0, &letter.to_string()));
        assert_served(one_by_one, 1, what);
    }
    let closed = [
        ("HTTP/1.0", with_length("1.0", "")),
        ("connection: close", with_length("1.1", "\r\nConnection: Close")),
        ("neither length nor chunks", format!("HTTP/1.1 200 OK\r\n\r\n{}", events())),
    ];
    for (what, text) in &closed {
        assert_served(Script::raw(text).end(End::Leave), 3, what);
    }
    // Whoever closes all the same, or says more than its answer, is not asked again on that connection.
    assert_served(Script::tokens(10).end(End::Leave), 3, "closed while idle");
    assert_served(Script::raw(&with_length("1.1", "").repeat(2)), 3, "two answers to one request");
}

#[expect(clippy::disallowed_methods, reason = "a runtime that hears nothing meanwhile is what is tried")]
fn stand_still(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

/// A server in a thread, which sends its answer and then, in a piece of its own, this; the requests that came to it, and those
/// behind whose answers it has gone on.
fn that_goes_on(behind: &'static str, leaves: bool) -> (String, Arc<AtomicUsize>, Arc<AtomicUsize>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let requests = Arc::new(AtomicUsize::new(0));
    let gone_on = Arc::new(AtomicUsize::new(0));
    let (counted, went_on) = (Arc::clone(&requests), Arc::clone(&gone_on));
    let talk = move |stream: std::net::TcpStream| -> io::Result<()> {
        let mut lines = BufReader::new(stream);
        loop {
            let (mut length, mut line) = (0, String::new());
            while lines.read_line(&mut line)? > 0 && line != "\r\n" {
                let line = std::mem::take(&mut line).to_ascii_lowercase();
                length = line.strip_prefix("content-length:").map_or(length, |length| length.trim().parse().unwrap());
            }
            if line.is_empty() {
                return Ok(());
            }
            lines.read_exact(&mut vec![0; length])?;
            counted.fetch_add(1, Ordering::Relaxed);
            lines.get_mut().write_all(with_length("1.1", "").as_bytes())?;
            // The client has read the answer by then.
            stand_still(10);
            lines.get_mut().write_all(behind.as_bytes())?;
            if leaves {
                lines.get_ref().shutdown(std::net::Shutdown::Both)?;
            }
            went_on.fetch_add(1, Ordering::Release);
            if leaves {
                return Ok(());
            }
        }
    };
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (talk, stream) = (talk.clone(), stream.unwrap());
            // Clients go when they like.
            std::thread::spawn(move || talk(stream).unwrap_or_default());
        }
    });
    (url, requests, gone_on)
}

#[test]
fn what_came_behind_an_answer_is_seen_by_the_next_request_even_if_the_runtime_has_not_heard_of_it() {
    const SECOND: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nno";
    for (behind, leaves) in [(SECOND, false), ("", true), (SECOND, true)] {
        let (url, requests, gone_on) = that_goes_on(behind, leaves);
        let answers = block_on(async {
            let trace = two_turns();
            let mut rig = Rig::new(&trace, target(&[&url]));
            let mut answers = Vec::new();
            for served in 1..=20 {
                answers.push(rig.finish(generate_of(&trace, 0)).await);
                // The runtime stands still meanwhile, and hears nothing.
                while gone_on.load(Ordering::Acquire) < served {
                    stand_still(1);
                }
            }
            answers
        });
        for answer in answers {
            assert_eq!((&answer.finish, answer.output_tokens, answer.attempts), (&Finish::Length, 10, 1), "{leaves}");
        }
        assert_eq!(requests.load(Ordering::Relaxed), 20, "{behind}, {leaves}");
    }
}

#[test]
fn idle_connections_are_closed_after_a_while() {
    block_on(async {
        let trace = two_turns();
        let fake = Fake::start(|_| Script::tokens(10)).await;
        let mut target = target(&[&fake.url]);
        target.limits.pool_idle = Duration::from_millis(80);
        let mut rig = Rig::new(&trace, target);
        for _ in 0..2 {
            rig.finish(generate_of(&trace, 0)).await;
            assert!(!fake.is_left());
            while !fake.is_left() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        assert_eq!((locked(&fake.log).connections, rig.client.counters().connections), (2, 2));
    });
}

#[test]
fn no_more_connections_are_kept_than_there_may_be() {
    block_on(async {
        let trace = trace_of(&[0, 1, 2].map(|turn| {
            format!(r#"{{"session_id":"s{turn}","turn_id":0,"timestamp":0,"input_length":3,"output_length":10}}"#)
        }));
        let fake = Fake::start(|_| Script::stream().then(20, &events())).await;
        let mut rig = Rig::new(&trace, Target { pool: 1, ..target(&[&fake.url]) });
        (0..3).for_each(|turn| rig.client.perform(Action::Generate(generate_of(&trace, turn))));
        for _ in 0..3 {
            assert_eq!(rig.answer().await.finish, Finish::Length);
        }
        while locked(&fake.log).closed < 2 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        assert_eq!(locked(&fake.log).connections, 3);
    });
}

#[test]
fn what_is_no_answer_of_http_is_told_as_it_is() {
    let native = |text: &str, end| block_on(answer_to(Dialect::Generate, |_| {}, Script::raw(text).end(end)));
    let too_large = format!("HTTP/1.1 200 OK\r\nx-a: {}", "y".repeat(1 << 20));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x-a: b\r\n".repeat(200));
    let of_body = |lines: &str| format!("HTTP/1.1 200 OK\r\n{lines}\r\n\r\n");
    let half = format!("{}4\r\ndata", of_body("transfer-encoding: chunked"));
    let flood = of_body(&format!("transfer-encoding: chunked\r\n\r\n1;{}", "e".repeat(1 << 16)));
    let cases = [
        (too_large.as_str(), ErrorClass::BadAnswer, "(message head is too large: more than 256 KiB)"),
        (&many, ErrorClass::BadAnswer, "(message head is too large: more than 100 headers)"),
        (
            "SSH-2.0-OpenSSH_9.2\r\n",
            ErrorClass::BadAnswer,
            "is no HTTP (invalid HTTP version parsed); if it speaks TLS",
        ),
        (
            &of_body("content-length: x"),
            ErrorClass::BadAnswer,
            "breaks the rules of HTTP (invalid content-length parsed)",
        ),
        (&of_body("content-length: 3\r\ncontent-length: 4"), ErrorClass::BadAnswer, "(invalid content-length parsed)"),
        (&of_body("transfer-encoding: chunked\r\n\r\nx"), ErrorClass::BadAnswer, "missing size digit)"),
        (&flood, ErrorClass::BadAnswer, "(chunk extensions or trailers over limit: more than 16 KiB)"),
        (&half, ErrorClass::ConnectionClosed, "in the middle of the answer"),
        ("HTTP/1.1 200 OK\r\ncon", ErrorClass::ConnectionClosed, "before the answer"),
    ];
    for (text, class, words) in cases {
        let answer = native(text, End::Leave);
        let told = failure(&answer);
        assert_eq!(told.0, class, "{words}: {told:?}");
        assert!(told.1.contains(words), "{words}: {told:?}");
    }
}

/// A request that is larger than what the sockets between them hold.
fn large() -> Arc<Trace> {
    trace_of(&[r#"{"session_id":"s","turn_id":0,"timestamp":0,"input_length":700000,"output_length":10}"#.into()])
}

/// A server that reads no more than the head of a request and answers with this; the sockets it holds on to.
async fn hasty(answer: &'static str, leaves: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let mut open: Vec<TcpStream> = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            stream.read_exact(&mut [0; 1000]).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
            if leaves {
                // Beside what was not read: the other end is told by a reset.
                drop(stream);
            } else {
                open.push(stream);
            }
        }
    });
    url
}

#[test]
fn an_answer_that_comes_before_the_request_has_left_is_the_answer() {
    let trace = large();
    let refusal = "HTTP/1.1 413 Too Large\r\ncontent-length: 9\r\n\r\ntoo large";
    for leaves in [false, true] {
        block_on(async {
            let url = hasty(refusal, leaves).await;
            let mut rig = Rig::new(&trace, target(&[&url]));
            for connections in 1..3 {
                let answer = rig.finish(generate_of(&trace, 0)).await;
                assert_eq!(failure(&answer), (ErrorClass::BadRequest, "HTTP 413: too large"));
                assert_eq!(rig.client.counters().connections, connections, "it is of no more use");
            }
        });
    }
}

#[test]
fn tokens_for_a_request_that_the_server_has_not_read_are_no_success() {
    const EVENT: &str = r#"data: {"text":"a","meta_info":{"completion_tokens":10,"finish_reason":{"type":"length"}}}"#;
    let trace = large();
    // With the length of the body it ends by itself, without it the end mark ends it.
    for (ended, leaves) in [(true, false), (false, false), (true, true)] {
        let body = format!("{EVENT}\n\ndata: [DONE]\n\n");
        let length = if ended { format!("content-length: {}\r\n", body.len()) } else { String::new() };
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{length}\r\n{body}");
        block_on(async {
            let url = hasty(answer.leak(), leaves).await;
            let mut rig = Rig::new(&trace, target(&[&url]));
            for connections in 1..3 {
                let answer = rig.finish(generate_of(&trace, 0)).await;
                let (class, words) = failure(&answer);
                assert_eq!(class, ErrorClass::BadAnswer);
                assert!(words.contains("before the server had taken in the whole request"), "{words}");
                assert_eq!((answer.output_tokens, answer.http_status), (10, Some(200)), "what came is told");
                assert_eq!(rig.client.counters().connections, connections, "it is of no more use");
            }
        });
    }
}
