//! Clients that say nothing, or take for ever to say it, against the query server: nobody else waits for them.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use serde_json::json;

use crate::kv::query::request;
use crate::live::support::process::{Server, wait_for};
use crate::run::Scratch;

const QUERY: &str = "/v1/internal/kv-cache/query";

fn directory(scratch: &Scratch, more: &[&str]) -> Server {
    let away =
        json!({"instance_name": "away", "endpoint": "tcp://127.0.0.1:1", "replay_endpoint": "tcp://127.0.0.1:2"});
    let config = scratch.write("kv.json", &json!({ "streams": [away] }).to_string());
    let server = Server::index(&config, more);
    wait_for("it is ready", || (request(&server.url, "GET", "/health", &[], b"").0 == 200).then_some(()));
    server
}

fn open(server: &Server, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.url.strip_prefix("http://").unwrap()).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    stream
}

fn metric(page: &str, name: &str) -> u64 {
    let line = page.lines().find_map(|line| line.strip_prefix(&format!("pdreplay_kv_{name} ")));
    line.unwrap_or_else(|| panic!("no {name} in {page}")).parse().unwrap()
}

/// Asks until it is let in, as a caller does that is told to come again in a second; how long that took.
fn well_behaved(server: &Server) -> Duration {
    let began = Instant::now();
    wait_for("a well-behaved client is served", || {
        let address = server.url.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let body = r#"{"token_ids":[]}"#;
        let head =
            format!("POST {QUERY} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all((head + body).as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        // Of a crowd that is turned away only some are told so.
        let is_full = answer.is_empty() || answer.starts_with("HTTP/1.1 503") && answer.contains("retry-after: 1\r\n");
        assert!(is_full || answer.starts_with("HTTP/1.1 200"), "{answer}");
        (!is_full).then_some(())
    });
    began.elapsed()
}

#[test]
fn six_hundred_slow_bodies_and_idle_connections_hold_up_nobody() {
    let scratch = Scratch::new();
    let server = directory(&scratch, &["--max-connections", "100"]);
    let slow = format!("POST {QUERY} HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n{{");
    let mut held: Vec<TcpStream> = (0..600).map(|ix| open(&server, ["", "GET /hea", &slow][ix % 3])).collect();
    for stream in &mut held {
        // Byte by byte; those that had to go show it here.
        let _ = stream.write_all(b" ");
    }
    // Not a measurement: a wait of a whole time limit is what must not be.
    let took = well_behaved(&server);
    assert!(took < Duration::from_secs(8), "{took:?}");
    assert!(server.descriptors() < 100 + 60, "{} descriptors", server.descriptors());
    let page = wait_for("metrics are read", || {
        let (status, _, page) = request(&server.url, "GET", "/metrics", &[], b"");
        (status == 200).then_some(page)
    });
    assert!(metric(&page, "connections") <= 100 && metric(&page, "most_connections") == 100, "{page}");
    let gone = metric(&page, "refused_connections_total") + metric(&page, "evicted_connections_total");
    // 500 or so: some have ended by themselves meanwhile, or wait to be accepted.
    assert!(gone >= 400, "{gone} of 600 had no place");
    assert!(server.log.lock().unwrap().is_empty() || !server.log.lock().unwrap().contains("panic"));
}

#[test]
fn the_number_of_connections_follows_the_descriptors() {
    let scratch = Scratch::new();
    let server = directory(&scratch, &[]);
    let (_, _, page) = request(&server.url, "GET", "/metrics", &[], b"");
    let most = metric(&page, "most_connections");
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.id())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let soft =
        line.split_whitespace().nth(3).unwrap().parse().map_or(1024, |soft: u64| (soft / 2).min(soft - 58).min(1024));
    assert_eq!(most, soft, "{line}");
    let zero = scratch.run(&["index", "serve", "--config", "kv.json", "--max-connections", "0"]);
    zero.refused(&["--max-connections"]);
}

/// What it says that may open so many files and is started all the same.
fn too_few(scratch: &Scratch, files: u32, more: &str) -> String {
    let away = json!({"instance_name": "a", "endpoint": "tcp://127.0.0.1:1", "replay_endpoint": "tcp://127.0.0.1:2"});
    let config = scratch.write("few.json", &json!({ "streams": [away] }).to_string());
    let line = format!("ulimit -n {files}; exec \"$0\" index serve --config \"$1\" --listen 127.0.0.1:0 {more}");
    let program = env!("CARGO_BIN_EXE_pdreplay");
    let out = Command::new("sh").args(["-c", &line, program]).arg(config).output().unwrap();
    assert_eq!(out.status.code(), Some(2), "{out:?}");
    String::from_utf8(out.stderr).unwrap()
}

#[test]
fn what_does_not_fit_into_the_limit_of_files_is_refused_at_the_start() {
    let scratch = Scratch::new();
    let told = too_few(&scratch, 64, "--max-connections 1000");
    for words in ["1000 connections", "need 1058 open files", "limit is 64", "ulimit -n 1058", "--max-connections 6`"] {
        assert!(told.contains(words), "no `{words}` in {told}");
    }
    let told = too_few(&scratch, 16, "");
    assert!(told.contains("limit is 16") && told.contains("ulimit -n 59"), "{told}");
}

#[test]
fn with_few_files_idle_connections_hold_up_nobody() {
    let scratch = Scratch::new();
    let away = json!({"instance_name": "a", "endpoint": "tcp://127.0.0.1:1", "replay_endpoint": "tcp://127.0.0.1:2"});
    let config = scratch.write("kv.json", &json!({ "streams": [away] }).to_string());
    let server = Server::index_within(64, &config);
    let idle: Vec<TcpStream> = (0..200).map(|_| open(&server, "")).collect();
    let took = well_behaved(&server);
    assert!(took < Duration::from_secs(10), "held up like an idle caller: {took:?}");
    drop(idle);
}

#[test]
fn out_of_files_an_old_connection_is_closed_for_the_next_caller() {
    let scratch = Scratch::new();
    let server = directory(&scratch, &[]);
    let pid = Pid::from_raw(server.id().try_into().unwrap()).unwrap();
    let limit = getrlimit(Resource::Nofile);
    let few = Rlimit { current: Some(server.descriptors() as u64 + 6), ..limit };
    prlimit(Some(pid), Resource::Nofile, few).unwrap();
    let idle: Vec<TcpStream> = (0..60).map(|_| open(&server, "")).collect();
    let took = well_behaved(&server);
    assert!(took < Duration::from_secs(10), "held up like an idle caller: {took:?}");
    drop(idle);
    let page = request(&server.url, "GET", "/metrics", &[], b"").2;
    assert!(metric(&page, "evicted_connections_total") > 0, "{page}");
}

#[test]
fn a_watch_whose_first_question_is_not_answered_goes_on_asking() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut watch = Command::new(env!("CARGO_BIN_EXE_pdreplay"))
        .args(["index", "watch", "--url", &url])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let full = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 16\r\n\r\n{\"error\":\"full\"}";
    for answer in [full, "", full] {
        let (mut stream, _) = wait_for("it asks again", || listener.accept().ok());
        stream.set_nonblocking(false).unwrap();
        let mut asked = [0; 4096];
        assert!(stream.read(&mut asked).unwrap() > 0);
        stream.write_all(answer.as_bytes()).unwrap();
    }
    assert_eq!(watch.try_wait().unwrap(), None, "it has not ended");
    watch.kill().unwrap();
    let said = String::from_utf8(watch.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("not ready: full; it is waited for"), "{said}");
}

/// Bodies that are declared and do not come would take gigabytes if they did.
#[test]
fn bodies_have_one_room_and_the_next_is_told_to_come_later() {
    let scratch = Scratch::new();
    let server = directory(&scratch, &["--max-connections", "200"]);
    let largest = format!("POST {QUERY} HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n", 4 << 20);
    let held: Vec<TcpStream> = (0..64).map(|_| open(&server, &largest)).collect();
    let ask = || request(&server.url, "POST", QUERY, &[], br#"{"token_ids":[1]}"#);
    let (headers, body) = wait_for("there is no room for another body", || {
        let (status, headers, body) = ask();
        (status == 503).then_some((headers, body))
    });
    assert_eq!(headers["retry-after"], "1");
    assert!(body.contains("fill the memory"), "{body}");
    // Others are answered, and a body that is too large is so whatever the room is.
    assert_eq!(request(&server.url, "GET", "/health", &[], b"").0, 200);
    let too_large = [("content-length".to_owned(), ((4 << 20) + 1).to_string())];
    assert_eq!(request(&server.url, "POST", QUERY, &too_large, b"").0, 413);
    drop(held);
    wait_for("the room is given back", || (ask().0 == 200).then_some(()));
}

#[test]
fn a_stream_that_found_no_files_is_followed_when_there_are_some() {
    let scratch = Scratch::new();
    let listing = |instances: &str| scratch.write("instances.json", &format!(r#"{{"instances":[{instances}]}}"#));
    let registry = listing("");
    let config = json!({"discovery": {"refresh_interval_ms": 50, "registry": {"file": registry}}});
    let server = Server::index(&scratch.write("kv.json", &config.to_string()), &["--max-connections", "50"]);
    let said = |words: &str| server.log.lock().unwrap().matches(words).count();
    // Nobody asks, so that no connection is among its descriptors; the file of the registry is now and then.
    wait_for("it is ready", || (said("ready; streams followed: 0") > 0).then_some(()));
    let open = (0..100).map(|_| server.descriptors()).min().unwrap() as u64;
    let pid = Pid::from_raw(server.id().try_into().unwrap()).unwrap();
    let limit = getrlimit(Resource::Nofile);
    // One for the file of the registry, which a stream needs more than.
    prlimit(Some(pid), Resource::Nofile, Rlimit { current: Some(open + 1), ..limit }).unwrap();
    listing(r#"{"name":"a","http_address":"127.0.0.1:1","type":"PREFILL"}"#);
    wait_for("it cannot be followed", || (said("cannot be followed") > 0).then_some(()));
    prlimit(Some(pid), Resource::Nofile, limit).unwrap();
    wait_for("it is followed", || (said("stream a/0: is followed at") > 0).then_some(()));
    let (_, _, streams) = request(&server.url, "GET", "/v1/internal/kv-cache/streams", &[], b"");
    assert!(streams.contains("127.0.0.1:10001") && !streams.contains("cannot be followed"), "{streams}");
}
