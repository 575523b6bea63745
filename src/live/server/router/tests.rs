//! The router's server between a client and workers whose every byte a test decides.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Response};
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::*;
use crate::base::Dur;
use crate::cluster::{RouterConfig, RouterPolicy};
use crate::live::clock::Clock;
use crate::live::server::upstream::{Upstream, read};
use crate::live::{Addresses, Endpoint};
use crate::node::RetryRule;

const CHUNKED: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nx-pdreplay-worker: D0\r\ntransfer-encoding: \
                       chunked\r\n\r\n";
const P_DONE: &str = r#"{"meta_info":{"finish_reason":{"type":"length","length":0}}}"#;

/// A worker that does what the test says. Health checks it answers itself.
struct Fake {
    url: String,
    posts: UnboundedReceiver<Posted>,
    healthy: Arc<AtomicBool>,
}

/// A request that waits for what the test answers.
struct Posted {
    head: String,
    body: Value,
    stream: TcpStream,
}

impl Fake {
    async fn start() -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (found, posts) = unbounded_channel();
        let healthy = Arc::new(AtomicBool::new(true));
        let state = Arc::clone(&healthy);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(converse(stream, found.clone(), Arc::clone(&state)));
            }
        });
        Fake { url, posts, healthy }
    }

    async fn next(&mut self) -> Posted {
        self.posts.recv().await.unwrap()
    }

    fn endpoint(&self, bootstrap_port: Option<u16>) -> Endpoint {
        Endpoint { url: self.url.clone(), bootstrap_port }
    }
}

async fn converse(mut stream: TcpStream, found: UnboundedSender<Posted>, healthy: Arc<AtomicBool>) {
    let mut read = Vec::new();
    loop {
        let end = loop {
            if let Some(at) = memchr::memmem::find(&read, b"\r\n\r\n") {
                break at + 4;
            }
            if stream.read_buf(&mut read).await.unwrap_or(0) == 0 {
                return;
            }
        };
        let head = String::from_utf8(read[..end].to_vec()).unwrap().to_ascii_lowercase();
        let length =
            head.split("content-length: ").nth(1).map_or(0, |rest| rest.split('\r').next().unwrap().parse().unwrap());
        while read.len() < end + length {
            assert_ne!(stream.read_buf(&mut read).await.unwrap(), 0);
        }
        let body = read[end..end + length].to_vec();
        read.drain(..end + length);
        if head.starts_with("get /health ") {
            let status = if healthy.load(Ordering::Relaxed) { "200 OK" } else { "503 X" };
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
            stream.write_all(answer.as_bytes()).await.unwrap();
            continue;
        }
        let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
        let _ = found.send(Posted { head, body, stream });
        return;
    }
}

impl Posted {
    async fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    async fn chunk(&mut self, text: &str) {
        self.send(&format!("{:x}\r\n{text}\r\n", text.len())).await;
    }

    /// The whole answer.
    async fn answer(&mut self, status: u16, body: &str) {
        let head =
            format!("HTTP/1.1 {status} X\r\ncontent-type: application/json\r\nretry-after: 3\r\nconnection: close\r\n");
        self.send(&format!("{head}content-length: {}\r\n\r\n{body}", body.len())).await;
    }

    /// Waits until the router has closed the connection.
    async fn until_dropped(mut self) {
        let mut rest = Vec::new();
        let _ = self.stream.read_to_end(&mut rest).await;
    }
}

fn policies() -> RouterConfig {
    RouterConfig { decode_policy: RouterPolicy::RoundRobin, ..RouterConfig::default() }
}

struct Bench {
    url: String,
    client: Upstream,
    _stop: oneshot::Sender<()>,
}

impl Bench {
    async fn start(workers: Addresses, change: impl FnOnce(&mut RouterServerOptions)) -> Bench {
        let mut options = RouterServerOptions::new(Clock::start(1.0), workers, policies());
        options.health_every = Dur::from_millis(5);
        change(&mut options);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (stop, stopped) = oneshot::channel::<()>();
        tokio::spawn(serve_router(listener, options, async {
            let _ = stopped.await;
        }));
        Bench { url, client: Upstream::new(Duration::from_secs(5)), _stop: stop }
    }

    /// One P, one D.
    async fn pd() -> (Bench, Fake, Fake) {
        let (p, d) = (Fake::start().await, Fake::start().await);
        let workers =
            Addresses { prefill: vec![p.endpoint(Some(8998))], decode: vec![d.endpoint(None)], ..Addresses::default() };
        (Bench::start(workers, |_| {}).await, p, d)
    }

    fn post(&self, body: Value) -> tokio::task::JoinHandle<Response<Body>> {
        self.post_with(&[], body)
    }

    fn post_with(
        &self,
        headers: &[(&'static str, &'static str)],
        body: Value,
    ) -> tokio::task::JoinHandle<Response<Body>> {
        let (client, url) = (self.client.clone(), format!("{}/generate", self.url));
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        tokio::spawn(async move { client.post(&url, headers, body.to_string().into()).await.unwrap() })
    }

    async fn get(&self, path: &str) -> (u16, String) {
        let answer =
            self.client.send(Method::GET, &format!("{}{path}", self.url), HeaderMap::new(), None).await.unwrap();
        (answer.status().as_u16(), text(answer).await)
    }

    /// Requests under way, as `/workers` tells.
    async fn load(&self) -> u64 {
        let list: Value = serde_json::from_str(&self.get("/workers").await.1).unwrap();
        list["workers"].as_array().unwrap().iter().map(|worker| worker["load"].as_u64().unwrap()).sum()
    }

    async fn wait_for(&self, path: &str, status: u16) {
        while self.get(path).await.0 != status {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

async fn text(answer: Response<Body>) -> String {
    String::from_utf8(read(answer.into_body(), 1 << 20).await.unwrap().to_vec()).unwrap()
}

fn header<'a>(answer: &'a Response<Body>, name: &str) -> &'a str {
    answer.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

async fn next(chunks: &mut BodyDataStream) -> Bytes {
    chunks.next().await.unwrap().unwrap()
}

/// What a test does, within a bound that only a hang would reach.
fn run(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(20), work).await.expect("nothing hangs") });
}

#[test]
fn both_legs_are_posted_at_once_and_chunks_pass_as_they_come() {
    run(async {
        let (bench, mut p, mut d) = Bench::pd().await;
        let headers = [
            ("authorization", "Bearer k"),
            ("x-request-id-a", "1"),
            ("traceparent", "t"),
            ("x-smg-routing-key", "s"),
            ("x-session-id", "no"),
        ];
        let call = bench.post_with(&headers, json!({"rid": "s/1", "input_ids": [1], "session_params": {"id": "s"}}));
        let (mut to_p, mut to_d) = (p.next().await, d.next().await);
        for part in ["authorization: bearer k", "x-request-id-a: 1", "traceparent: t", "x-smg-routing-key: s"] {
            assert!(to_p.head.contains(part) && to_d.head.contains(part), "{part}");
        }
        assert!(!to_d.head.contains("x-session-id"));
        assert_eq!(to_p.body["bootstrap_room"], to_d.body["bootstrap_room"]);
        assert_eq!((&to_p.body["bootstrap_port"], &to_p.body["bootstrap_host"]), (&8998.into(), &"127.0.0.1".into()));
        assert_eq!((to_p.body.get("session_params"), &to_d.body["session_params"]["id"]), (None, &"s".into()));
        to_d.send(CHUNKED).await;
        to_d.chunk("data: 1\n\n").await;
        let answer = call.await.unwrap();
        assert_eq!(
            (header(&answer, "x-smg-routed-worker-id"), header(&answer, "x-pdreplay-prefill-worker")),
            (&*d.url, &*p.url)
        );
        assert_eq!(
            (header(&answer, "x-pdreplay-worker"), header(&answer, "content-type")),
            ("D0", "text/event-stream")
        );
        let mut chunks = answer.into_body().into_data_stream();
        assert_eq!(next(&mut chunks).await, "data: 1\n\n");
        assert_eq!(bench.load().await, 2);
        to_p.answer(200, P_DONE).await;
        to_d.chunk("data: 2\n\n").await;
        assert_eq!(next(&mut chunks).await, "data: 2\n\n");
        to_d.chunk("data: [DONE]\n\n").await;
        to_d.send("0\r\n\r\n").await;
        assert_eq!(next(&mut chunks).await, "data: [DONE]\n\n");
        assert!(chunks.next().await.is_none());
        drop(chunks);
        while bench.load().await > 0 {}
    });
}

#[test]
fn a_prefill_that_fails_ends_the_request_and_d_is_let_go() {
    let abort =
        "data: {\"meta_info\":{\"finish_reason\":{\"type\":\"abort\",\"message\":\"x\",\"status_code\":400}}}\n\n";
    let cases = [(Some(400), "no", 400), (Some(503), "busy", 500), (Some(200), abort, 400), (None, "", 500)];
    for d_has_head in [false, true] {
        for (status, body, told) in cases {
            run(async {
                let (bench, mut p, mut d) = Bench::pd().await;
                let call = bench.post(json!({"input_ids": [1], "stream": true}));
                let (mut to_p, mut to_d) = (p.next().await, d.next().await);
                if d_has_head {
                    to_d.send(CHUNKED).await;
                }
                match status {
                    Some(status) => to_p.answer(status, body).await,
                    None => drop(to_p),
                }
                let answer = call.await.unwrap();
                assert_eq!(answer.status(), told, "{status:?} {d_has_head}");
                let code = if told == 400 { "prefill_bad_request" } else { "prefill_internal_error" };
                assert_eq!(header(&answer, "x-smg-error-code"), code);
                assert_eq!(header(&answer, "x-pdreplay-prefill-worker"), p.url);
                to_d.until_dropped().await;
                let error: Value = serde_json::from_str(&text(answer).await).unwrap();
                assert_eq!((&error["error"]["code"], &error["error"]["param"]), (&code.into(), &Value::Null));
                assert!(error["error"]["message"].as_str().unwrap().contains(&p.url), "{error}");
                assert_eq!(bench.load().await, 0);
            });
        }
    }
}

#[test]
fn a_prefill_that_fails_late_changes_nothing() {
    run(async {
        let (bench, mut p, mut d) = Bench::pd().await;
        let call = bench.post(json!({"stream": true}));
        let (mut to_p, mut to_d) = (p.next().await, d.next().await);
        to_d.send(CHUNKED).await;
        to_d.chunk("a").await;
        let mut chunks = call.await.unwrap().into_body().into_data_stream();
        assert_eq!(next(&mut chunks).await, "a");
        to_p.answer(500, "died").await;
        to_d.chunk("b").await;
        assert_eq!(next(&mut chunks).await, "b");
    });
}

#[test]
fn when_d_fails_too_p_is_named_if_it_was_the_cause() {
    run(async {
        let (bench, mut p, mut d) = Bench::pd().await;
        let words = "KVTransferError(bootstrap_room=1): transfer failed";
        let abort = format!(r#"{{"meta_info":{{"finish_reason":{{"type":"abort","message":"{words}"}}}}}}"#);
        let event = format!("data: {abort}\n\n");
        let call = bench.post(json!({"stream": true}));
        let (to_p, mut to_d) = (p.next().await, d.next().await);
        to_d.send(CHUNKED).await;
        to_d.chunk(&event).await;
        drop(to_p);
        assert_eq!(header(&call.await.unwrap(), "x-smg-error-code"), "prefill_internal_error");
        // Both speak of the hand-off alone: D's words pass, whoever is first.
        let call = bench.post(json!({"stream": true}));
        let (mut to_p, mut to_d) = (p.next().await, d.next().await);
        to_p.answer(200, &abort).await;
        to_d.send(CHUNKED).await;
        to_d.chunk(&event).await;
        assert_eq!(call.await.unwrap().status(), 200);
        // P has lost D, which says so by a connection that breaks.
        let call = bench.post(json!({"stream": true}));
        let (mut to_p, to_d) = (p.next().await, d.next().await);
        to_p.answer(200, &abort).await;
        drop(to_d);
        let answer = call.await.unwrap();
        assert_eq!((answer.status().as_u16(), header(&answer, "x-smg-error-code")), (502, "decode_unavailable"));
        // D says nothing: P's word stands.
        let call = bench.post(json!({"stream": true}));
        let (mut to_p, _to_d) = (p.next().await, d.next().await);
        to_p.answer(200, &abort).await;
        assert_eq!(header(&call.await.unwrap(), "x-smg-error-code"), "prefill_internal_error");
        // P has nothing to say: D's own words pass.
        let call = bench.post(json!({"stream": true}));
        let (_to_p, mut to_d) = (p.next().await, d.next().await);
        to_d.send(CHUNKED).await;
        to_d.chunk("data: {\"meta_info\":{\"finish_reason\":{\"type\":\"abort\"}}}\n\n").await;
        assert_eq!(call.await.unwrap().status(), 200);
    });
}

#[test]
fn what_d_refuses_is_told_with_its_status_and_p_is_let_go() {
    run(async {
        let (bench, mut p, mut d) = Bench::pd().await;
        for (status, code) in [(400, "bad_request"), (503, "unavailable"), (500, "internal_error")] {
            let call = bench.post(json!({}));
            let (to_p, mut to_d) = (p.next().await, d.next().await);
            to_d.answer(status, r#"{"error":{"message":"session id s does not exist"}}"#).await;
            let answer = call.await.unwrap();
            assert_eq!(
                (answer.status().as_u16(), header(&answer, "x-smg-error-code")),
                (status, &*format!("decode_{code}"))
            );
            assert_eq!((header(&answer, "retry-after"), header(&answer, "x-smg-routed-worker-id")), ("3", &*d.url));
            let error: Value = serde_json::from_str(&text(answer).await).unwrap();
            assert!(error["error"]["message"].as_str().unwrap().contains("session id s does not exist"));
            to_p.until_dropped().await;
        }
        let call = bench.post(json!({}));
        let (to_p, to_d) = (p.next().await, d.next().await);
        drop(to_d);
        assert_eq!(call.await.unwrap().status(), 502);
        to_p.until_dropped().await;
    });
}

#[test]
fn a_worker_that_does_not_listen_is_unavailable() {
    run(async {
        let (alive, reserved) = (Fake::start().await, tokio::net::TcpSocket::new_v4().unwrap());
        // Bound and not listening: connections are refused, and nobody else gets the port.
        reserved.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let dead = Endpoint { url: format!("http://{}", reserved.local_addr().unwrap()), bootstrap_port: None };
        for (prefill, decode, code) in [
            (dead.clone(), alive.endpoint(None), "prefill_unavailable"),
            (alive.endpoint(None), dead.clone(), "decode_unavailable"),
        ] {
            let workers = Addresses { prefill: vec![prefill], decode: vec![decode], ..Addresses::default() };
            let front = Arc::new(Front::new(RouterServerOptions::new(Clock::start(1.0), workers, policies())));
            // As if the last look had found everybody well.
            for (worker, _) in front.options.workers.workers() {
                front.node().heard(worker, true);
            }
            let post = relay::generate(State(front), "/generate".parse().unwrap(), HeaderMap::new(), Body::from("{}"));
            let answer = post.await;
            assert_eq!((answer.status().as_u16(), header(&answer, "x-smg-error-code")), (502, code));
        }
    });
}

#[test]
fn a_client_that_leaves_lets_both_legs_go() {
    run(async {
        let (bench, mut p, mut d) = Bench::pd().await;
        let call = bench.post(json!({"stream": true}));
        let (to_p, to_d) = (p.next().await, d.next().await);
        call.abort();
        to_p.until_dropped().await;
        to_d.until_dropped().await;
        let call = bench.post(json!({"stream": true}));
        let (to_p, mut to_d) = (p.next().await, d.next().await);
        to_d.send(CHUNKED).await;
        to_d.chunk("a").await;
        let mut chunks = call.await.unwrap().into_body().into_data_stream();
        next(&mut chunks).await;
        drop(chunks);
        to_p.until_dropped().await;
        to_d.until_dropped().await;
        while bench.load().await > 0 {}
    });
}

#[test]
fn a_stream_that_breaks_off_breaks_off_for_the_client() {
    run(async {
        let (bench, _p, mut d) = Bench::pd().await;
        let call = bench.post(json!({"stream": true}));
        let mut to_d = d.next().await;
        to_d.send(CHUNKED).await;
        to_d.chunk("a").await;
        let mut chunks = call.await.unwrap().into_body().into_data_stream();
        assert_eq!(next(&mut chunks).await, "a");
        drop(to_d);
        assert!(chunks.next().await.unwrap().is_err(), "no end that looks like one");
    });
}

#[test]
fn retries_choose_and_meet_anew() {
    run(async {
        let (mut p, mut d) = (Fake::start().await, Fake::start().await);
        let (prefill, decode) = (vec![p.endpoint(None)], vec![d.endpoint(None)]);
        let bench = Bench::start(Addresses { prefill, decode, ..Addresses::default() }, |options| {
            options.clock = Clock::start(20.0);
            options.retry = Some(RetryRule::SMG);
        });
        let bench = bench.await;
        let call = bench.post(json!({}));
        let (mut rooms, mut held) = (Vec::new(), Vec::new());
        for _ in 0..5 {
            let mut to_d = d.next().await;
            held.push(p.next().await);
            rooms.push(to_d.body["bootstrap_room"].as_u64().unwrap());
            to_d.answer(503, "busy").await;
        }
        assert_eq!(call.await.unwrap().status(), 503);
        rooms.sort_unstable();
        rooms.dedup();
        assert_eq!(rooms.len(), 5);
        let call = bench.post(json!({}));
        d.next().await.answer(400, "bad").await;
        assert_eq!(call.await.unwrap().status(), 400, "the client's own mistake is not sent again");
    });
}

#[test]
fn colocated_workers_get_the_body_as_it_is() {
    run(async {
        let mut w = Fake::start().await;
        let bench = Bench::start(Addresses { colocated: vec![w.endpoint(None)], ..Addresses::default() }, |_| {}).await;
        let body = json!({"prompt": [1, 2], "session_params": {"id": "s"}});
        let call = bench.post(body.clone());
        let mut posted = w.next().await;
        assert_eq!(posted.body, body);
        posted.answer(200, "{}").await;
        let answer = call.await.unwrap();
        assert_eq!(
            (header(&answer, "x-smg-routed-worker-id"), header(&answer, "x-pdreplay-prefill-worker")),
            (&*w.url, "")
        );
        assert_eq!(text(answer).await, "{}");
        let call = bench.post(json!({}));
        w.next().await.answer(500, "no").await;
        assert_eq!(header(&call.await.unwrap(), "x-smg-error-code"), "worker_internal_error");
    });
}

#[test]
fn a_worker_is_chosen_while_it_is_healthy() {
    run(async {
        let (bench, _p, mut d) = Bench::pd().await;
        d.healthy.store(false, Ordering::Relaxed);
        bench.wait_for("/readiness", 503).await;
        let answer = bench.post(json!({})).await.unwrap();
        assert_eq!((answer.status().as_u16(), header(&answer, "x-smg-error-code")), (503, "no_available_workers"));
        let ready: Value = serde_json::from_str(&bench.get("/readiness").await.1).unwrap();
        assert_eq!(ready, json!({"status": "not ready", "healthy_workers": 1, "total_workers": 2}));
        d.healthy.store(true, Ordering::Relaxed);
        bench.wait_for("/readiness", 200).await;
        let call = bench.post(json!({}));
        d.next().await.answer(200, "{}").await;
        assert_eq!(call.await.unwrap().status(), 200);
        assert!(bench.get("/metrics").await.1.contains("pdreplay_router_no_available_workers_total 1\n"));
    });
}

#[test]
fn calls_that_are_not_requests_are_answered_or_passed_on() {
    run(async {
        let (bench, mut p, mut d) = Bench::pd().await;
        for path in ["/health", "/liveness", "/readiness", "/health_generate"] {
            assert_eq!(bench.get(path).await.0, 200, "{path}");
        }
        let list: Value = serde_json::from_str(&bench.get("/workers").await.1).unwrap();
        assert_eq!((&list["total"], &list["workers"][1]["url"]), (&2.into(), &d.url.clone().into()));
        let info: Value = serde_json::from_str(&bench.get("/server_info").await.1).unwrap();
        assert_eq!((&info["emulated"]["worker"], &info["emulated"]["speed"]), (&"router".into(), &1.0.into()));
        let (models, ()) = tokio::join!(bench.get("/v1/models?x=1"), async {
            let mut asked = p.next().await;
            assert!(asked.head.starts_with("get /v1/models?x=1 "), "{}", asked.head);
            asked.answer(200, r#"{"data":[]}"#).await;
        });
        assert_eq!(models, (200, r#"{"data":[]}"#.into()));
        let (flushed, ()) = tokio::join!(bench.get("/flush_cache"), async {
            p.next().await.answer(200, "Cache flushed").await;
            d.next().await.answer(400, "busy").await;
        });
        let told: Value = serde_json::from_str(&flushed.1).unwrap();
        assert_eq!((flushed.0, &told["successful"], &told["failed"][0][1]), (206, &json!([p.url]), &"400 busy".into()));
        let (loads, ()) = tokio::join!(bench.get("/get_loads"), async {
            p.next().await.answer(200, r#"{"loads":[]}"#).await;
            d.next().await.answer(404, "").await;
        });
        let told: Value = serde_json::from_str(&loads.1).unwrap();
        assert_eq!((&told["workers"][0]["load"], &told["workers"][1]["load"]), (&json!({"loads": []}), &Value::Null));
        assert_eq!((bench.get("/open_session").await.0, bench.get("/generate").await.0), (404, 405));
        let wrong = bench.client.post(&format!("{}/generate", bench.url), HeaderMap::new(), "[".into()).await.unwrap();
        assert_eq!(wrong.status(), 400);
    });
}

#[test]
fn a_stop_lets_what_is_under_way_end() {
    run(async {
        let (bench, _p, mut d) = Bench::pd().await;
        let call = bench.post(json!({}));
        let mut to_d = d.next().await;
        to_d.send(CHUNKED).await;
        to_d.chunk("a").await;
        let answer = call.await.unwrap();
        let Bench { url, client, _stop } = bench;
        drop(_stop);
        while client.send(Method::GET, &format!("{url}/health"), HeaderMap::new(), None).await.is_ok() {}
        to_d.chunk("b").await;
        to_d.send("0\r\n\r\n").await;
        assert_eq!(text(answer).await, "ab");
    });
}
