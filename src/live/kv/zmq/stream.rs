//! [`follow`]: the connections of one subscription: live messages, replays on request, reconnects.
//!
//! Owns when to connect and how long to wait; what a message means and when to ask for a replay, the machine behind
//! [`StreamSink`] says. Its invariant: `Connected` and its end (`Disconnected`, `Closed`) alternate but for attempts that fail, and no live
//! message or reply is told outside a connection.

use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::backoff::{self, Backoff};
use crate::kv::wire::request_frames;

use super::{DealerSocket, Endpoint, Frames, Limits, SubSocket, ZmqError};

/// What a subscription is to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamOptions {
    /// PUB or XPUB of the publisher.
    pub endpoint: Endpoint,
    /// Its ROUTER; without one every replay fails.
    pub replay_endpoint: Option<Endpoint>,
    /// Prefix of the topics wanted.
    pub topic: Vec<u8>,
    /// Of both connections.
    pub limits: Limits,
    /// From the request to the last reply.
    pub replay_timeout: Duration,
    /// Of the random part of waits.
    pub seed: u64,
}

/// What a subscription tells its machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// The subscription was sent; messages may come from now on.
    Connected,
    /// The connection ended, or an attempt to make one failed. A replay under way is dropped with it.
    Disconnected(String),
    /// The connection was closed for another, as [`Command::Reconnect`] said. A replay under way is dropped with it.
    Closed,
    /// A live message.
    Live(Frames),
    /// A live message over the limit, of at least so many bytes. `Disconnected` follows.
    TooLarge {
        /// As far as they were announced.
        bytes: u64,
    },
    /// A reply of the replay asked for.
    Replay(Frames),
    /// The replay asked for ended without `DropReplay`: no connection, a reply over the limit, time up.
    ReplayFailed(String),
    /// The time that [`StreamSink::wake_at`] named has come.
    Wake,
}

/// What a machine wants of its subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Ask for a replay, in place of one under way. Means nothing without a connection: ask after `Connected`.
    AskReplay {
        /// First sequence number wanted.
        from: u64,
    },
    /// No more replies: the last one came, or the replay is not wanted any longer.
    DropReplay,
    /// Close the connection and make another.
    Reconnect,
}

/// The machine of one stream.
pub trait StreamSink {
    /// Takes what happened.
    fn input(&mut self, input: Input);
    /// What it wants now; asked until `None` after inputs.
    fn command(&mut self) -> Option<Command>;
    /// When it wants to be woken, whatever comes until then.
    fn wake_at(&self) -> Option<Instant>;
}

/// Follows a publisher for ever; dropping it closes everything. The sink runs in this task, so while it works nothing is
/// read: a publisher that is too fast drops at its own high-water mark, and memory here stays bounded.
pub async fn follow(options: &StreamOptions, sink: &mut impl StreamSink) -> std::convert::Infallible {
    let mut stream = Follower {
        options,
        sink,
        live: Live::connect(options),
        replay: Replay::None,
        live_backoff: Backoff::new(options.seed, 0),
        replay_backoff: Backoff::new(options.seed, 1),
        replay_not_before: Instant::now(),
    };
    loop {
        let happened = stream.next().await;
        stream.take(happened);
    }
}

type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, ZmqError>> + Send + 'a>>;

/// The live connection.
enum Live<'a> {
    Waiting { until: Instant },
    Connecting(Pending<'a, SubSocket>),
    Up { socket: Box<SubSocket>, since: Instant },
}

/// The replay connection.
enum Replay<'a> {
    None,
    Asking(Pending<'a, DealerSocket>),
    Reading(Box<DealerSocket>),
}

enum Happened {
    MayConnect,
    Connected(Result<SubSocket, ZmqError>),
    Live(Result<Frames, ZmqError>),
    Asked(Result<DealerSocket, ZmqError>),
    Replay(Result<Frames, ZmqError>),
    Wake,
}

impl<'a> Live<'a> {
    fn connect(options: &'a StreamOptions) -> Live<'a> {
        Live::Connecting(Box::pin(SubSocket::connect(&options.endpoint, &options.topic, &options.limits)))
    }

    async fn next(&mut self) -> Happened {
        match self {
            Live::Waiting { until } => {
                sleep_until(*until).await;
                Happened::MayConnect
            }
            Live::Connecting(attempt) => Happened::Connected(attempt.await),
            Live::Up { socket, .. } => Happened::Live(socket.recv().await),
        }
    }
}

impl Replay<'_> {
    async fn next(&mut self) -> Happened {
        match self {
            Replay::None => std::future::pending().await,
            Replay::Asking(attempt) => Happened::Asked(attempt.await),
            Replay::Reading(socket) => Happened::Replay(socket.recv().await),
        }
    }
}

/// A sink may ask again the moment a replay fails; the wait before keeps that from being a busy loop.
async fn ask(options: &StreamOptions, from: u64, not_before: Instant) -> Result<DealerSocket, ZmqError> {
    sleep_until(not_before).await;
    let endpoint = options
        .replay_endpoint
        .as_ref()
        .ok_or_else(|| ZmqError::Endpoint { endpoint: String::new(), problem: "no replay endpoint is configured" })?;
    DealerSocket::ask(endpoint, &request_frames(from), &options.limits, options.replay_timeout).await
}

struct Follower<'a, S> {
    options: &'a StreamOptions,
    sink: &'a mut S,
    live: Live<'a>,
    replay: Replay<'a>,
    live_backoff: Backoff,
    replay_backoff: Backoff,
    replay_not_before: Instant,
}

impl<S: StreamSink> Follower<'_, S> {
    /// Every branch may be dropped half-way without loss.
    async fn next(&mut self) -> Happened {
        let wake_at = self.sink.wake_at();
        tokio::select! {
            happened = self.live.next() => happened,
            happened = self.replay.next() => happened,
            () = sleep_until(wake_at.unwrap_or_else(Instant::now)), if wake_at.is_some() => Happened::Wake,
        }
    }

    fn take(&mut self, happened: Happened) {
        match happened {
            Happened::MayConnect => self.live = Live::connect(self.options),
            Happened::Connected(Ok(socket)) => {
                self.live = Live::Up { socket: Box::new(socket), since: Instant::now() };
                self.tell(Input::Connected);
            }
            Happened::Live(Ok(frames)) => {
                self.live_backoff.reset();
                self.tell(Input::Live(frames));
            }
            Happened::Connected(Err(error)) => self.disconnected(&error),
            Happened::Live(Err(error)) => {
                if let ZmqError::TooLarge { bytes, .. } = error {
                    self.sink.input(Input::TooLarge { bytes });
                }
                self.disconnected(&error);
            }
            Happened::Asked(Ok(socket)) => self.replay = Replay::Reading(Box::new(socket)),
            Happened::Replay(Ok(frames)) => {
                self.replay_backoff.reset();
                self.tell(Input::Replay(frames));
            }
            Happened::Asked(Err(error)) | Happened::Replay(Err(error)) => {
                self.replay = Replay::None;
                self.replay_not_before = Instant::now() + self.replay_backoff.wait();
                let why = self.options.replay_endpoint.as_ref().map_or(error.to_string(), |at| error.at(at));
                self.tell(Input::ReplayFailed(why));
            }
            Happened::Wake => self.tell(Input::Wake),
        }
    }

    /// Passes on an input, then does what the machine wants.
    fn tell(&mut self, input: Input) {
        self.sink.input(input);
        while let Some(command) = self.sink.command() {
            match command {
                Command::AskReplay { from } if matches!(self.live, Live::Up { .. }) => {
                    self.replay = Replay::Asking(Box::pin(ask(self.options, from, self.replay_not_before)));
                }
                // Its answer would be older than the subscription to come: the machine asks again when connected.
                Command::AskReplay { .. } => {}
                Command::DropReplay => self.replay = Replay::None,
                Command::Reconnect => {
                    if matches!(self.live, Live::Up { .. }) {
                        self.close();
                        self.sink.input(Input::Closed);
                    }
                }
            }
        }
    }

    fn disconnected(&mut self, error: &ZmqError) {
        self.close();
        self.tell(Input::Disconnected(error.at(&self.options.endpoint)));
    }

    fn close(&mut self) {
        if let Live::Up { since, .. } = &self.live
            && since.elapsed() >= backoff::LONGEST
        {
            self.live_backoff.reset();
        }
        self.live = Live::Waiting { until: Instant::now() + self.live_backoff.wait() };
        self.replay = Replay::None;
    }
}
