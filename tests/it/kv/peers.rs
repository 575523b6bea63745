//! A publisher of the xLLM dialect in the test's own process, and the words tests have for events.

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use pdreplay::kv::wire::{EncodeForm, Encoder, end_frames, live_frames, replay_frames};
use pdreplay::kv::{BlockRemoved, BlockStored, EngineHash, EventBatch, KvEvent, Tier};
use pdreplay::live::kv::zmq::{Endpoint, Frames, PubSocket, QueueLimits, RouterSocket};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::run::root;

pub const TOPIC: &str = "xllm-kv";

/// `{"stored": {…}}`, `{"removed": {…}}` or `"cleared"`.
pub fn stored(hashes: &[i64], parent: Option<i64>, tokens: &[u32], medium: &str) -> Value {
    let block_size = if tokens.is_empty() { 0 } else { tokens.len() / hashes.len() };
    json!({"stored": {"hashes": hashes, "parent": parent, "tokens": tokens, "block_size": block_size, "medium": medium}})
}

pub fn removed(hashes: &[i64], medium: &str) -> Value {
    json!({"removed": {"hashes": hashes, "medium": medium}})
}

fn event(told: &Value) -> KvEvent {
    let hash = |value: &Value| EngineHash(value.as_i64().unwrap() as u64);
    let hashes = |of: &Value| of["hashes"].as_array().unwrap().iter().map(hash).collect();
    let tier = |of: &Value| if of["medium"] == "cpu" { Tier::Host } else { Tier::Device };
    if let Some(told) = told.get("removed") {
        return KvEvent::Removed(BlockRemoved { hashes: hashes(told), tier: tier(told) });
    }
    let Some(told) = told.get("stored") else { return KvEvent::Cleared };
    KvEvent::Stored(BlockStored {
        hashes: hashes(told),
        parent: told["parent"].as_i64().map(|parent| EngineHash(parent as u64)),
        tokens: told["tokens"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect(),
        block_size: told["block_size"].as_u64().unwrap() as u32,
        tier: tier(told),
        bigram: false,
    })
}

/// PUB and ROUTER on loopback; a replay is everything so far as one batch. Gone with this value.
pub struct Publisher {
    socket: Arc<PubSocket>,
    state: Arc<State>,
    pub endpoint: String,
    pub replay_endpoint: String,
    _stop: oneshot::Sender<()>,
}

struct State {
    events: Mutex<Vec<KvEvent>>,
    /// Of the last batch; the first one is 1.
    sequence: AtomicU64,
    /// Before the first batch a replay is its end mark alone.
    begins_mute: bool,
}

fn payload(timestamp: f64, events: Vec<KvEvent>) -> Vec<u8> {
    Encoder::new(EncodeForm::XLLM).batch(&EventBatch { timestamp, events, dp_rank: Some(0), ignored: 0 })
}

impl Publisher {
    pub fn start() -> Publisher {
        Publisher::start_at([0, 0])
    }

    /// An engine that has nothing to replay until it published something.
    pub fn idle() -> Publisher {
        Publisher::bound([0, 0], true)
    }

    pub fn start_at(ports: [u16; 2]) -> Publisher {
        Publisher::bound(ports, false)
    }

    fn bound(ports: [u16; 2], begins_mute: bool) -> Publisher {
        let state = Arc::new(State { events: Mutex::default(), sequence: AtomicU64::new(0), begins_mute });
        let (to, from) = std::sync::mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let answers = Arc::clone(&state);
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let [at, replay_at] = ports.map(|port| format!("tcp://127.0.0.1:{port}").parse::<Endpoint>().unwrap());
                let socket = Arc::new(PubSocket::bind(&at, QueueLimits::default()).await.unwrap());
                let answer = move |_: Frames| -> pdreplay::live::kv::zmq::Replies {
                    let events = answers.events.lock().unwrap().clone();
                    if answers.begins_mute && events.is_empty() {
                        return Box::new([end_frames(None)].into_iter());
                    }
                    let batch = replay_frames(None, answers.sequence.load(Ordering::SeqCst), payload(1.0, events));
                    Box::new([batch, end_frames(None)].into_iter())
                };
                let router = RouterSocket::bind(&replay_at, answer).await.unwrap();
                let ends = (socket.endpoint().to_string(), router.endpoint().to_string());
                to.send((Arc::clone(&socket), ends)).unwrap();
                let _ = stopped.await;
            });
        });
        let (socket, (endpoint, replay_endpoint)) = from.recv().unwrap();
        Publisher { socket, state, endpoint, replay_endpoint, _stop: stop }
    }

    /// Publishes a batch; its number.
    pub fn publish(&self, events: &[Value]) -> u64 {
        self.publish_at(1.0, events)
    }

    /// The same, with a time stamp, Unix seconds.
    pub fn publish_at(&self, timestamp: f64, events: &[Value]) -> u64 {
        let events: Vec<KvEvent> = events.iter().map(event).collect();
        let mut all = self.state.events.lock().unwrap();
        all.extend(events.clone());
        let sequence = self.state.sequence.fetch_add(1, Ordering::SeqCst) + 1;
        self.socket.send(&live_frames(TOPIC, sequence, payload(timestamp, events)));
        sequence
    }

    /// As an entry of `streams`.
    pub fn stream(&self, instance: &str) -> Value {
        json!({"instance_name": instance, "block_size": 4, "topic": TOPIC, "endpoint": self.endpoint,
               "replay_endpoint": self.replay_endpoint})
    }
}

/// A publisher over libzmq in a process of its own (tests/it/kv/publisher.py); killed with this value.
pub struct Foreign {
    child: Child,
    orders: ChildStdin,
    said: Lines<BufReader<ChildStdout>>,
    pub endpoint: String,
    pub replay_endpoint: String,
}

impl Foreign {
    /// `kind` is `xllm`, or an engine with the file of its publisher.
    pub fn start(python: &Path, kind: &str, file: &Path, ports: [u16; 2], steps: usize) -> Foreign {
        let mut command = Command::new(python);
        command.arg(root().join("tests/it/kv/publisher.py")).arg(kind).arg(file);
        command.args(ports.map(|port| port.to_string())).arg(steps.to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let orders = child.stdin.take().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        let (endpoint, replay_endpoint) = Default::default();
        let mut publisher = Foreign { child, orders, said, endpoint, replay_endpoint };
        let ends = publisher.next();
        let end = |name: &str| ends[name].as_str().unwrap().to_owned();
        (publisher.endpoint, publisher.replay_endpoint) = (end("endpoint"), end("replay_endpoint"));
        publisher
    }

    fn next(&mut self) -> Value {
        serde_json::from_str(&self.said.next().expect("it ended").unwrap()).unwrap()
    }

    /// Publishes a batch; its number.
    pub fn publish(&mut self, events: &[Value]) -> u64 {
        self.order(&json!({"events": events}))
    }

    /// Takes a batch in, uses its number up, and sends nothing.
    pub fn lose(&mut self, events: &[Value]) -> u64 {
        self.order(&json!({"events": events, "skip": true}))
    }

    fn order(&mut self, order: &Value) -> u64 {
        writeln!(self.orders, "{order}").unwrap();
        self.next()["sequence"].as_u64().unwrap()
    }

    /// kill -9, and gone when this returns.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
