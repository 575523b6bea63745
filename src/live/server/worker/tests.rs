//! Workers on loopback ports, spoken to in raw HTTP.

mod connections;
mod control;
mod generate;
mod info;
mod openai;
mod pd;

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::*;
use crate::cluster::ClusterConfig;
use crate::engine::EngineConfig;
use crate::live::api::{INCARNATION_HEADER, WORKER_HEADER};
use crate::live::clock::Clock;

/// Longest wait for anything in these tests; only a failure takes as long.
const PATIENCE: Duration = Duration::from_secs(20);

/// How many times faster than real time the workers go.
const SPEED: f64 = 50.0;

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, test).await.expect("the test hangs") })
}

fn config(name: &str) -> NodeConfig {
    NodeConfig {
        id: name.parse().unwrap(),
        incarnation: 7,
        engine: EngineConfig { page_size: 1, ..EngineConfig::default() },
        cluster: ClusterConfig { prefill: 1, decode: 2, colocated: 1, ..ClusterConfig::default() },
        block_size: 16,
        faults: Vec::new(),
        strikes: None,
    }
}

fn options() -> WorkerServerOptions {
    WorkerServerOptions::new(Clock::start(SPEED))
}

struct Server {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<io::Result<()>>,
}

async fn start(name: &str) -> Server {
    start_with(config(name), options()).await
}

async fn start_with(config: NodeConfig, options: WorkerServerOptions) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let stopped = async {
        let _ = stopped.await;
    };
    Server { address, stop, task: tokio::spawn(serve_worker(listener, config, options, stopped)) }
}

impl Server {
    async fn get(&self, path: &str) -> Reply {
        self.send("GET", path, "", b"").await
    }

    async fn post(&self, path: &str, body: &Value) -> Reply {
        self.send("POST", path, "content-type: application/json\r\n", body.to_string().as_bytes()).await
    }

    async fn send(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Reply {
        self.begin(method, path, headers, body).await.reply().await
    }

    /// Sends a request and reads nothing yet.
    async fn begin(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Call {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        // A server may refuse a long body before it has read all of it.
        let _ = stream.write_all(body).await;
        Call { stream, got: Vec::new() }
    }

    async fn begin_post(&self, path: &str, body: &Value) -> Call {
        self.begin("POST", path, "content-type: application/json\r\n", body.to_string().as_bytes()).await
    }

    async fn stop(self) -> io::Result<()> {
        let _ = self.stop.send(());
        self.task.await.unwrap()
    }

    /// Waits until the worker has no request any more.
    async fn idle(&self) {
        loop {
            let loads = self.get("/v1/loads").await.json();
            let load = &loads["loads"][0];
            if load["num_running_reqs"] == 0 && load["num_waiting_reqs"] == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// A request under way.
struct Call {
    stream: TcpStream,
    got: Vec<u8>,
}

impl Call {
    /// Reads until what was read contains `text`.
    async fn until(&mut self, text: &str) {
        while !String::from_utf8_lossy(&self.got).contains(text) {
            assert_ne!(self.stream.read_buf(&mut self.got).await.unwrap(), 0, "ends before `{text}`");
        }
    }

    /// Everything up to the end of the connection, or to its break.
    async fn reply(self) -> Reply {
        self.try_reply().await.expect("the answer breaks off")
    }

    async fn try_reply(mut self) -> Option<Reply> {
        while self.stream.read_buf(&mut self.got).await.is_ok_and(|read| read > 0) {}
        Reply::parse(&self.got)
    }
}

#[derive(Debug)]
struct Reply {
    status: u16,
    head: String,
    body: String,
}

impl Reply {
    /// `None` for an answer that is not whole.
    fn parse(bytes: &[u8]) -> Option<Reply> {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap().to_ascii_lowercase();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let rest = &bytes[end + 4..];
        let body = if head.contains("transfer-encoding: chunked") {
            unchunk(rest)?
        } else {
            let length =
                head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
            (rest.len() == length).then(|| rest.to_vec())?
        };
        Some(Reply { status, head, body: String::from_utf8(body).unwrap() })
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    #[track_caller]
    fn ok(self) -> Reply {
        assert_eq!(self.status, 200, "{self:?}");
        self
    }

    /// Events of a whole stream, without the end mark.
    #[track_caller]
    fn events(&self) -> Vec<Value> {
        assert!(self.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream")), "{self:?}");
        let mut events: Vec<&str> = self.body.split_terminator("\n\n").collect();
        assert_eq!(events.pop(), Some("data: [DONE]"), "{self:?}");
        events.iter().map(|event| serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap()).collect()
    }

    #[track_caller]
    fn refused(&self, status: u16, words: &str) {
        assert_eq!(self.status, status, "{self:?}");
        let body = self.json();
        let message = body["error"]["message"].as_str().unwrap_or_else(|| panic!("{self:?}"));
        assert!(message.contains(words), "no `{words}` in {message}");
    }
}

fn unchunk(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = rest.windows(2).position(|window| window == b"\r\n")?;
        let length = usize::from_str_radix(std::str::from_utf8(&rest[..line]).unwrap(), 16).unwrap();
        rest = &rest[line + 2..];
        if length == 0 {
            return Some(body);
        }
        body.extend_from_slice(rest.get(..length)?);
        rest = rest.get(length + 2..)?;
    }
}

/// A prompt of `length` tokens that begin with `from`.
fn prompt(from: u32, length: u32) -> Vec<u32> {
    (from..from + length).collect()
}

/// A body of `/generate`.
fn ask(ids: &[u32], tokens: u32, stream: bool) -> Value {
    let sampling = json!({ "max_new_tokens": tokens, "ignore_eos": true, "temperature": 0 });
    json!({ "rid": "s/1", "input_ids": ids, "sampling_params": sampling, "stream": stream })
}

/// `body` with further fields.
fn with(mut body: Value, more: Value) -> Value {
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}
