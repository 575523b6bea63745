//! Our sockets and libzmq: an engine's publisher in Python that is killed, slow for us or has heartbeats; its clients at ours.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use pdreplay::live::kv::zmq::{
    self, DealerSocket, Endpoint, Frames, Input, Limits, PubSocket, QueueLimits, RouterSocket, StreamOptions,
    StreamSink, SubSocket, follow,
};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::installed::python;
use crate::run::root;

const TOPIC: &[u8] = b"xllm-kv";
const END: [u8; 8] = [0xFF; 8];

/// A Python process with libzmq; killed with this value.
struct Peer {
    child: Child,
    said: Lines<BufReader<ChildStdout>>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Peer {
    fn start(python: &Path, args: &[&str]) -> Peer {
        let mut command = Command::new(python);
        command.arg(root().join("tests/it/live/zmq_peer.py")).args(args);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        Peer { child, said }
    }

    fn publisher(python: &Path, endpoint: &str, more: &[&str]) -> (Peer, Endpoint, Endpoint) {
        let mut peer = Peer::start(python, &[&["publish", endpoint, "--topic", "xllm-kv"], more].concat());
        let said = peer.next();
        let endpoint = |name: &str| said[name].as_str().unwrap().parse().unwrap();
        let (live, replay) = (endpoint("endpoint"), endpoint("replay"));
        (peer, live, replay)
    }

    fn next(&mut self) -> Value {
        serde_json::from_str(&self.said.next().expect("it ended").unwrap()).unwrap()
    }

    fn frames(&mut self) -> Frames {
        let hex = |text: &Value| {
            let text = text.as_str().unwrap();
            (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap()).collect()
        };
        self.next()["frames"].as_array().unwrap().iter().map(hex).collect()
    }
}

/// Only a hang takes so long.
async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(120), work).await.expect("it hangs")
}

fn limits() -> Limits {
    Limits { connect: Duration::from_secs(60), handshake: Duration::from_secs(60), ..Limits::default() }
}

fn sequence(frames: &Frames) -> u64 {
    u64::from_be_bytes(frames[frames.len() - 2].as_slice().try_into().unwrap())
}

/// A sink that only tells, and asks for a replay whenever it is connected.
struct Told {
    inputs: mpsc::UnboundedSender<Input>,
    commands: VecDeque<zmq::Command>,
}

impl StreamSink for Told {
    fn input(&mut self, input: Input) {
        match &input {
            Input::Connected => self.commands.push_back(zmq::Command::AskReplay { from: 0 }),
            Input::Replay(frames) if frames[1] == END => self.commands.push_back(zmq::Command::DropReplay),
            _ => {}
        }
        let _ = self.inputs.send(input);
    }

    fn command(&mut self) -> Option<zmq::Command> {
        self.commands.pop_front()
    }

    fn wake_at(&self) -> Option<Instant> {
        None
    }
}

fn following(endpoint: &Endpoint, replay: &Endpoint, limits: Limits) -> mpsc::UnboundedReceiver<Input> {
    let options = StreamOptions {
        endpoint: endpoint.clone(),
        replay_endpoint: Some(replay.clone()),
        topic: TOPIC.to_vec(),
        limits,
        replay_timeout: Duration::from_secs(60),
        seed: 1,
    };
    let (inputs, told) = mpsc::unbounded_channel();
    tokio::spawn(async move { match follow(&options, &mut Told { inputs, commands: VecDeque::new() }).await {} });
    told
}

#[tokio::test]
async fn a_publisher_is_followed_through_kill_and_restart_on_its_port() {
    let Some(python) = python("zmq, msgpack") else { return };
    let (mut peer, endpoint, replay) = Peer::publisher(&python, "tcp://127.0.0.1:*", &[]);
    let mut told = following(&endpoint, &replay, limits());
    for restart in 0..3 {
        let mut replayed: Vec<Frames> = Vec::new();
        let mut live: Vec<Frames> = Vec::new();
        // Up to a live message after the replay's end.
        while replayed.last().is_none_or(|last| last[1] != END) || live.len() < 20 {
            match soon(told.recv()).await.unwrap() {
                Input::Live(frames) => live.push(frames),
                Input::Replay(frames) => replayed.push(frames),
                Input::Connected => assert!(replayed.is_empty() && live.is_empty()),
                Input::Disconnected(_) | Input::Closed => {
                    assert!(restart > 0 && replayed.is_empty() && live.is_empty())
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(live.windows(2).all(|two| sequence(&two[1]) == sequence(&two[0]) + 1));
        assert!(live.iter().all(|frames| frames.len() == 3 && frames[0] == TOPIC));
        replayed.pop();
        let numbers: Vec<u64> = replayed.iter().map(sequence).collect();
        assert!(numbers.iter().copied().eq(0..numbers.len() as u64), "all of this process's: {numbers:?}");
        let both = live.iter().filter(|frames| sequence(frames) < replayed.len() as u64);
        assert!(both.into_iter().all(|frames| replayed[sequence(frames) as usize][2] == frames[2]));
        // kill -9, and again on the same ports.
        drop(peer);
        let at = endpoint.to_string();
        peer = Peer::publisher(&python, &at, &["--replay-endpoint", &replay.to_string()]).0;
        while matches!(soon(told.recv()).await.unwrap(), Input::Live(_)) {}
    }
}

#[tokio::test]
async fn heartbeats_of_either_side_cut_no_quiet_connection() {
    let Some(python) = python("zmq, msgpack") else { return };
    // Unanswered, libzmq's would cut after 3 s, and ours after 2: between any two messages.
    let of_peer = ["--interval-ms", "4000", "--heartbeat-ms", "200"];
    for (more, heartbeat) in [(&of_peer[..], None), (&of_peer[..2], Some(Duration::from_millis(500)))] {
        let (_peer, endpoint, replay) = Peer::publisher(&python, "tcp://127.0.0.1:*", more);
        let mut told = following(&endpoint, &replay, Limits { heartbeat, ..limits() });
        assert_eq!(soon(told.recv()).await.unwrap(), Input::Connected);
        let mut live = Vec::new();
        while live.len() < 2 {
            match soon(told.recv()).await.unwrap() {
                Input::Live(frames) => live.push(sequence(&frames)),
                Input::Replay(_) => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(live[1], live[0] + 1);
    }
}

#[tokio::test]
async fn what_a_slow_subscriber_misses_shows_as_a_gap() {
    let Some(python) = python("zmq, msgpack") else { return };
    let burst = 3000;
    let count = burst.to_string();
    let more = ["--wait", "--burst", &count, "--padding", "100000", "--hwm", "50"];
    let (mut peer, endpoint, _) = Peer::publisher(&python, "tcp://127.0.0.1:*", &more);
    let mut sub = soon(SubSocket::connect(&endpoint, TOPIC, &limits())).await.unwrap();
    assert_eq!(peer.next()["burst"], burst, "300 MB were published, and none of it read");
    let mut numbers = Vec::new();
    while numbers.last().is_none_or(|last| *last < burst) {
        numbers.push(sequence(&soon(sub.recv()).await.unwrap()));
    }
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    assert!((numbers.len() as u64) < burst, "nothing was dropped");
    assert_eq!(numbers[0], 0);
}

#[tokio::test]
async fn libzmq_reads_our_publisher() {
    let Some(python) = python("zmq, msgpack") else { return };
    let folder = std::env::temp_dir().join(format!("pdreplay-zmq-it-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let ipc = format!("ipc://{}", folder.join("kv").display());
    let ipv6 = std::net::TcpListener::bind("[::1]:0").is_ok().then_some("tcp://[::1]:0");
    for bound in ["tcp://127.0.0.1:0", &ipc].into_iter().chain(ipv6) {
        let publisher = PubSocket::bind(&bound.parse().unwrap(), QueueLimits::default()).await.unwrap();
        let at = publisher.endpoint().to_string();
        let args = ["subscribe", &at, "--topic", "xllm", "--count", "3", "--heartbeat-ms", "200"];
        let mut peer = Peer::start(&python, &args);
        soon(subscribed(&publisher)).await;
        let reading = tokio::task::spawn_blocking(move || [peer.frames(), peer.frames(), peer.frames()]);
        let payloads = [vec![], vec![1; 300], vec![2; 1_000_000]];
        for (number, payload) in (0u64..).zip(&payloads) {
            if number == 2 && bound.contains("127.0.0.1") {
                // Heartbeats without an answer would cut the connection in this time.
                tokio::time::sleep(Duration::from_secs(4)).await;
            }
            assert_eq!(publisher.send(&[&b"other"[..], &[0; 8], payload]).queued, 0);
            assert_eq!(publisher.send(&[TOPIC, &number.to_be_bytes(), payload]).queued, 1);
        }
        for ((number, payload), read) in (0u64..).zip(payloads).zip(soon(reading).await.unwrap()) {
            assert!(read == [TOPIC.to_vec(), number.to_be_bytes().to_vec(), payload]);
        }
        publisher.close().await;
    }
    std::fs::remove_dir(&folder).unwrap();
}

async fn subscribed(publisher: &PubSocket) {
    while publisher.subscribers_of(TOPIC) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn libzmq_asks_our_router() {
    let Some(python) = python("zmq, msgpack") else { return };
    let router = RouterSocket::bind(&"tcp://127.0.0.1:0".parse().unwrap(), |request: Frames| {
        let [_, empty, from] = <[Vec<u8>; 3]>::try_from(request).unwrap();
        let from = u64::from_be_bytes(from.try_into().unwrap());
        let batch = |number: u64| vec![vec![], number.to_be_bytes().to_vec(), vec![7; 100_000]];
        Box::new((from..50).map(batch).chain([vec![empty, END.to_vec(), vec![]]]))
    })
    .await
    .unwrap();
    let at = router.endpoint().to_string();
    let asked = tokio::task::spawn_blocking(move || {
        let mut peer = Peer::start(&python, &["ask", &at, "--count", "3"]);
        let replies = (0..3u64).map(|from| (0..=50 - from).map(|_| peer.frames()).collect::<Vec<_>>());
        replies.collect::<Vec<_>>()
    });
    for (from, replies) in (0u64..).zip(soon(asked).await.unwrap()) {
        assert_eq!(replies.last().unwrap(), &[vec![], END.to_vec(), vec![]]);
        let numbers = replies[..replies.len() - 1].iter().map(sequence);
        assert!(numbers.eq(from..50));
    }
}

#[tokio::test]
async fn a_sub_at_a_router_or_a_dealer_at_a_publisher_is_told_so() {
    let Some(python) = python("zmq, msgpack") else { return };
    let (_peer, endpoint, replay) = Peer::publisher(&python, "tcp://127.0.0.1:*", &[]);
    let limits = limits();
    // libzmq may close before it says what it is.
    let swapped = soon(SubSocket::connect(&replay, TOPIC, &limits)).await.err().unwrap().to_string();
    assert!(swapped.contains("of a SUB socket, so it is none") || swapped.contains("a ROUTER socket is"), "{swapped}");
    let ask = DealerSocket::ask(&endpoint, &[b""], &limits, Duration::from_secs(60));
    let swapped = soon(ask).await.err().unwrap().to_string();
    assert!(swapped.contains("of a DEALER socket, so it is none") || swapped.contains("a XPUB socket is"), "{swapped}");
}
