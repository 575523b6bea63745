//! The router's server between a client and workers whose every byte a test decides.

mod fleet;
mod legs;

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
