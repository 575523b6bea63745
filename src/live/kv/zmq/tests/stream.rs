//! One subscription over its life: reconnects, replays, and what its machine hears of them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::pair::{loopback, until_subscribed};
use super::peer::{patient, soon};
use crate::live::kv::zmq::{
    Command, Endpoint, Frames, Input, Limits, PubSocket, QueueLimits, RouterSocket, StreamOptions, StreamSink, follow,
};

/// Tells the test every input, and says what the test wants said: commands by the input they answer.
struct Scripted {
    inputs: mpsc::UnboundedSender<Input>,
    on: fn(&Input) -> Option<Command>,
    commands: VecDeque<Command>,
    wake_at: Arc<Mutex<Option<Instant>>>,
}

impl StreamSink for Scripted {
    fn input(&mut self, input: Input) {
        self.commands.extend((self.on)(&input));
        if input == Input::Wake {
            *self.wake_at.lock().unwrap() = None;
        }
        let _ = self.inputs.send(input);
    }

    fn command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    fn wake_at(&self) -> Option<Instant> {
        *self.wake_at.lock().unwrap()
    }
}

/// A subscription that runs, and what it tells.
struct Running {
    told: mpsc::UnboundedReceiver<Input>,
    wake_at: Arc<Mutex<Option<Instant>>>,
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Running {
    fn start(options: StreamOptions, on: fn(&Input) -> Option<Command>) -> Running {
        let (inputs, told) = mpsc::unbounded_channel();
        let wake_at: Arc<Mutex<Option<Instant>>> = Arc::default();
        let mut sink = Scripted { inputs, on, commands: VecDeque::new(), wake_at: Arc::clone(&wake_at) };
        let task = tokio::spawn(async move { match follow(&options, &mut sink).await {} });
        Running { told, wake_at, task }
    }

    async fn next(&mut self) -> Input {
        soon(self.told.recv()).await.unwrap()
    }

    /// Passes over attempts that fail.
    async fn until_connected(&mut self) {
        loop {
            match self.next().await {
                Input::Connected => return,
                Input::Disconnected(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    async fn disconnected(&mut self) -> String {
        match self.next().await {
            Input::Disconnected(reason) => reason,
            other => panic!("{other:?}"),
        }
    }
}

fn options(endpoint: &Endpoint) -> StreamOptions {
    StreamOptions {
        endpoint: endpoint.clone(),
        replay_endpoint: None,
        topic: b"kv".to_vec(),
        limits: patient(),
        replay_timeout: Duration::from_secs(60),
        seed: 1,
    }
}

async fn publish(endpoint: &Endpoint) -> PubSocket {
    PubSocket::bind(endpoint, QueueLimits::default()).await.unwrap()
}

async fn send(publisher: &PubSocket, payload: &[u8]) {
    until_subscribed(publisher, b"kv", 1).await;
    publisher.send(&[b"kv", payload]);
}

fn live(payload: &[u8]) -> Input {
    Input::Live(vec![b"kv".to_vec(), payload.to_vec()])
}

/// A router that answers with two replies and END.
async fn router() -> RouterSocket {
    RouterSocket::bind(&loopback(), |request: Frames| {
        let from = request.into_iter().next_back().unwrap();
        Box::new([vec![vec![], from, b"batch".to_vec()], vec![vec![], vec![0xFF; 8], vec![]]].into_iter())
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn a_publisher_that_comes_late_goes_and_comes_back_is_followed() {
    let publisher = publish(&loopback()).await;
    let endpoint = publisher.endpoint().clone();
    publisher.close().await;
    let mut stream = Running::start(options(&endpoint), |_| None);
    assert!(stream.disconnected().await.contains("refused"));
    for round in 0..3u8 {
        let publisher = publish(&endpoint).await;
        stream.until_connected().await;
        send(&publisher, &[round]).await;
        assert_eq!(stream.next().await, live(&[round]));
        publisher.close().await;
        stream.disconnected().await;
    }
}

#[tokio::test]
async fn a_peer_that_accepts_and_stays_silent_does_not_stop_reconnects() {
    let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint: Endpoint = format!("tcp://{}", mute.local_addr().unwrap()).parse().unwrap();
    let limits = Limits { handshake: Duration::from_millis(50), ..patient() };
    let mut stream = Running::start(StreamOptions { limits, ..options(&endpoint) }, |_| None);
    for _ in 0..2 {
        let (mut accepted, _) = soon(mute.accept()).await.unwrap();
        assert_eq!(stream.disconnected().await, format!("{endpoint}: the handshake took longer than 50 ms"));
        let mut left = Vec::new();
        soon(accepted.read_to_end(&mut left)).await.unwrap();
        assert_eq!(left.len(), 11, "signature and version, and then it closed");
    }
    drop(mute);
    let publisher = publish(&endpoint).await;
    stream.until_connected().await;
    send(&publisher, b"at last").await;
    assert_eq!(stream.next().await, live(b"at last"));
}

#[tokio::test]
async fn a_message_over_the_limit_is_told_and_the_connection_made_anew() {
    let publisher = publish(&loopback()).await;
    let limits = Limits { max_message_bytes: 1000, ..patient() };
    let mut stream = Running::start(StreamOptions { limits, ..options(publisher.endpoint()) }, |_| None);
    stream.until_connected().await;
    send(&publisher, &[0; 999]).await;
    assert_eq!(stream.next().await, Input::TooLarge { bytes: 1001 });
    let wanted = format!("{}: a message of 1001 bytes or more, allowed are 1000", publisher.endpoint());
    assert_eq!(stream.disconnected().await, wanted);
    stream.until_connected().await;
    send(&publisher, &[0; 998]).await;
    assert_eq!(stream.next().await, live(&[0; 998]));
}

#[tokio::test]
async fn a_replay_is_asked_for_when_connected_and_dropped_at_its_end() {
    let (publisher, router) = (publish(&loopback()).await, router().await);
    let replay_endpoint = Some(router.endpoint().clone());
    let mut stream =
        Running::start(StreamOptions { replay_endpoint, ..options(publisher.endpoint()) }, |input| match input {
            Input::Connected => Some(Command::AskReplay { from: 7 }),
            Input::Replay(frames) if frames[2].is_empty() => Some(Command::DropReplay),
            _ => None,
        });
    stream.until_connected().await;
    let seven = 7u64.to_be_bytes().to_vec();
    assert_eq!(stream.next().await, Input::Replay(vec![vec![], seven, b"batch".to_vec()]));
    assert_eq!(stream.next().await, Input::Replay(vec![vec![], vec![0xFF; 8], vec![]]));
    // The router goes: nobody listens to it any more.
    router.close().await;
    send(&publisher, b"after").await;
    assert_eq!(stream.next().await, live(b"after"));
}

#[tokio::test]
async fn a_replay_that_fails_says_why_and_may_be_asked_for_again_without_a_busy_loop() {
    let publisher = publish(&loopback()).await;
    let again = |input: &Input| match input {
        Input::Connected | Input::ReplayFailed(_) => Some(Command::AskReplay { from: 0 }),
        _ => None,
    };
    let mut stream = Running::start(options(publisher.endpoint()), again);
    stream.until_connected().await;
    let began = Instant::now();
    for _ in 0..3 {
        let Input::ReplayFailed(reason) = stream.next().await else { panic!() };
        assert!(reason.contains("no replay endpoint is configured"), "{reason}");
    }
    // Two waits between three failures, of at least half of 100 and 200 ms.
    assert!(began.elapsed() >= Duration::from_millis(150));

    let router = router().await;
    let gone = router.endpoint().clone();
    router.close().await;
    let replay_endpoint = Some(gone.clone());
    let refused = StreamOptions { replay_endpoint, ..options(publisher.endpoint()) };
    let mut stream = Running::start(refused, again);
    stream.until_connected().await;
    let Input::ReplayFailed(reason) = stream.next().await else { panic!() };
    assert!(reason.starts_with(&gone.to_string()), "{reason}");
}

#[tokio::test]
async fn a_port_of_another_socket_is_named_with_the_key_that_led_there() {
    let (publisher, router) = (publish(&loopback()).await, router().await);
    let ask = |input: &Input| (*input == Input::Connected).then_some(Command::AskReplay { from: 0 });
    let mut mixed_up = Running::start(options(router.endpoint()), ask);
    let reason = mixed_up.disconnected().await;
    assert!(reason.starts_with(&format!("{}: ", router.endpoint())) && reason.contains("`endpoint`"), "{reason}");
    let replay_endpoint = Some(publisher.endpoint().clone());
    let mut mixed_up = Running::start(StreamOptions { replay_endpoint, ..options(publisher.endpoint()) }, ask);
    mixed_up.until_connected().await;
    let Input::ReplayFailed(reason) = mixed_up.next().await else { panic!() };
    assert!(reason.starts_with(&publisher.endpoint().to_string()) && reason.contains("`replay_endpoint`"), "{reason}");
}

#[tokio::test]
async fn a_replay_without_its_end_costs_its_time_limit() {
    let publisher = publish(&loopback()).await;
    let router = RouterSocket::bind(&loopback(), |_| Box::new(std::iter::empty())).await.unwrap();
    let replay_endpoint = Some(router.endpoint().clone());
    let replay_timeout = Duration::from_millis(100);
    let options = StreamOptions { replay_endpoint, replay_timeout, ..options(publisher.endpoint()) };
    let ask = |input: &Input| (*input == Input::Connected).then_some(Command::AskReplay { from: 0 });
    let mut stream = Running::start(options, ask);
    stream.until_connected().await;
    let wanted = format!("{}: the replay took longer than 100 ms", router.endpoint());
    assert_eq!(stream.next().await, Input::ReplayFailed(wanted));
    send(&publisher, b"still here").await;
    assert_eq!(stream.next().await, live(b"still here"));
}

#[tokio::test]
async fn a_disconnect_drops_the_replay_under_way() {
    let publisher = publish(&loopback()).await;
    let endpoint = publisher.endpoint().clone();
    let router = RouterSocket::bind(&loopback(), |_| Box::new([vec![vec![1]]].into_iter())).await.unwrap();
    let replay_endpoint = Some(router.endpoint().clone());
    let mut asked = Running::start(StreamOptions { replay_endpoint, ..options(&endpoint) }, |input| {
        (*input == Input::Connected).then_some(Command::AskReplay { from: 0 })
    });
    asked.until_connected().await;
    assert_eq!(asked.next().await, Input::Replay(vec![vec![1]]));
    publisher.close().await;
    asked.disconnected().await;
    let _publisher = publish(&endpoint).await;
    asked.until_connected().await;
    assert_eq!(asked.next().await, Input::Replay(vec![vec![1]]), "of the new request, after the new connection");
}

#[tokio::test]
async fn a_machine_may_ask_for_another_connection() {
    let publisher = publish(&loopback()).await;
    let mut stream =
        Running::start(options(publisher.endpoint()), |input| (*input == live(b"bad")).then_some(Command::Reconnect));
    stream.until_connected().await;
    send(&publisher, b"bad").await;
    assert_eq!(stream.next().await, live(b"bad"));
    assert_eq!(stream.next().await, Input::Closed);
    stream.until_connected().await;
    send(&publisher, b"good").await;
    assert_eq!(stream.next().await, live(b"good"));
}

#[tokio::test]
async fn a_machine_is_woken_when_it_said() {
    let publisher = publish(&loopback()).await;
    let mut stream = Running::start(options(publisher.endpoint()), |_| None);
    let at = Instant::now() + Duration::from_millis(50);
    *stream.wake_at.lock().unwrap() = Some(at);
    stream.until_connected().await;
    assert_eq!(stream.next().await, Input::Wake);
    assert!(Instant::now() >= at);
}
