//! The thread of one stream: a connection, and the machine that says what to do with it.
//!
//! Invariant: when the thread has ended, the stream is out of the index.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::board::Place;
use super::lag::Lag;
use super::log::Allowance;
use crate::base::{Dur, Time};
use crate::kv::directory::{Endpoint, Origin, StreamKey, StreamLimits, Subscription};
use crate::kv::index::{HashSpace, StreamSpec, StreamWriter};
use crate::kv::sync::{StreamSync, SyncInput, SyncOptions, SyncOutput};
use crate::live::clock::Clock;
use crate::live::kv::zmq::{self, Command, Input, Limits, StreamOptions, StreamSink, ZmqError};

/// A thread that follows a stream.
#[derive(Debug)]
pub(super) struct StreamThread {
    stop: oneshot::Sender<()>,
    ended: oneshot::Receiver<()>,
}

/// What of a machine's wishes and words goes where.
pub(super) struct Sink {
    key: StreamKey,
    sync: StreamSync,
    clock: Clock,
    /// Number of the replay that is asked for.
    attempt: u32,
    commands: VecDeque<Command>,
    place: Arc<Place>,
    log: Allowance,
    lag: Lag,
    /// That batches of another publisher arrive was told.
    is_noticed: bool,
}

impl StreamThread {
    /// Starts it. Errors: no runtime or thread can be had.
    pub fn start(mut sink: Sink, options: StreamOptions) -> io::Result<StreamThread> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        thread::Builder::new().name("kv-stream".into()).spawn(move || {
            sink.say_begun();
            runtime.block_on(async {
                tokio::select! {
                    never = zmq::follow(&options, &mut sink) => match never {},
                    // Either way: nobody wants the stream any more.
                    _ = stopped => {}
                }
            });
            drop(sink);
            drop(end);
        })?;
        Ok(StreamThread { stop, ended })
    }

    /// Ends it; the stream is out of the index when this is ready.
    pub async fn stop(self) {
        drop(self.stop);
        // An error is the end.
        let _ = self.ended.await;
    }
}

impl Sink {
    pub fn new(key: StreamKey, sync: StreamSync, clock: Clock, place: Arc<Place>, log: Allowance) -> Sink {
        place.show(clock.now(), sync.report(clock.now()), Lag::default());
        Sink {
            key,
            sync,
            clock,
            attempt: 0,
            commands: VecDeque::new(),
            place,
            log,
            lag: Lag::default(),
            is_noticed: false,
        }
    }

    fn say_begun(&mut self) {
        let now = self.clock.now();
        let (StreamKey { instance, dp_rank }, report) = (&self.key, self.sync.report(now));
        self.log.line(now, format!("stream {instance}/{dp_rank}: is followed at {}", report.endpoint));
    }

    fn obey(&mut self) {
        while let Some(output) = self.sync.next_output() {
            match output {
                SyncOutput::AskReplay { from, attempt } => {
                    self.attempt = attempt;
                    self.commands.push_back(Command::AskReplay { from });
                }
                SyncOutput::DropReplay => self.commands.push_back(Command::DropReplay),
                SyncOutput::Reconnect => self.commands.push_back(Command::Reconnect),
                SyncOutput::Changed(change) => self.log.change(&self.key, &change),
            }
        }
    }
}

impl StreamSink for Sink {
    fn input(&mut self, input: Input) {
        let now = self.clock.now();
        let (attempt, batches) = (self.attempt, self.sync.batches());
        self.sync.input(
            now,
            match &input {
                Input::Connected => SyncInput::Connected,
                Input::Disconnected(why) => SyncInput::Disconnected(why),
                Input::Closed => SyncInput::Closed,
                Input::Live(frames) => SyncInput::Live(frames),
                Input::TooLarge { bytes } => SyncInput::TooLarge { bytes: *bytes },
                Input::Replay(frames) => SyncInput::Replay { attempt, frames },
                Input::ReplayFailed(why) => SyncInput::ReplayFailed { attempt, why },
                Input::Wake => SyncInput::Wake,
            },
        );
        self.obey();
        self.log.pay(now);
        let report = self.sync.report(now);
        if let Some(notice) = report.notice.as_ref().filter(|_| !self.is_noticed) {
            let StreamKey { instance, dp_rank } = &self.key;
            self.log.line(now, format!("stream {instance}/{dp_rank}: {notice}"));
            self.is_noticed = true;
        }
        let stamp = report.stats.last_timestamp.filter(|_| report.stats.batches > batches);
        if let Some(odd) = stamp.and_then(|stamp| self.lag.arrived(stamp, unix_now().as_secs_f64())) {
            let StreamKey { instance, dp_rank } = &self.key;
            self.log.line(now, format!("stream {instance}/{dp_rank}: {odd}"));
        }
        self.place.show(now, report, self.lag);
    }

    fn command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    fn wake_at(&self) -> Option<Instant> {
        let at = [self.sync.wake_at(), self.log.due()].into_iter().flatten().min();
        at.map(|at| Instant::now() + self.clock.until(at))
    }
}

/// Which stream of the index a subscription is.
pub(super) fn spec(subscription: &Subscription, limits: &StreamLimits) -> StreamSpec {
    let identity = match &subscription.origin {
        Origin::Static => None,
        Origin::Discovered(identity) => Some(identity),
    };
    StreamSpec {
        instance: subscription.key.instance.clone(),
        dp_rank: subscription.key.dp_rank,
        space: HashSpace { block_size: subscription.form.block_size, hash_seed: subscription.form.hash_seed },
        max_blocks: limits.max_blocks_per_stream as usize,
        incarnation: identity.and_then(|identity| identity.incarnation()).map(str::to_owned),
        register_ts_ms: identity.and_then(|identity| identity.register_ts_ms()),
    }
}

/// How its machine follows it.
pub(super) fn sync(writer: StreamWriter, subscription: &Subscription, limits: &StreamLimits, now: Time) -> StreamSync {
    let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let options = SyncOptions {
        endpoint: subscription.events.to_string(),
        topic: subscription.form.topic.clone(),
        recovery: subscription.form.recovery,
        max_message_bytes: bytes(limits.max_message_bytes),
        max_buffered_bytes: bytes(limits.max_buffered_bytes),
        replay_timeout: Dur::from_millis(limits.replay_timeout_ms),
        resync_interval: Dur::from_millis(limits.resync_interval_ms),
        ..SyncOptions::new(subscription.form.dialect)
    };
    StreamSync::new(writer, options, now)
}

/// How its connections are made. `seed` is of the random part of waits.
pub(super) fn connections(
    subscription: &Subscription,
    limits: &StreamLimits,
    seed: u64,
) -> Result<StreamOptions, ZmqError> {
    let at = |endpoint: &Endpoint| endpoint.to_string().parse();
    Ok(StreamOptions {
        endpoint: at(&subscription.events)?,
        replay_endpoint: subscription.replay.as_ref().map(at).transpose()?,
        topic: subscription.form.topic.clone().into_bytes(),
        limits: Limits {
            // The payload's limit is the machine's; the topic and the number come on top of it.
            max_message_bytes: usize::try_from(limits.max_message_bytes).unwrap_or(usize::MAX).saturating_add(ENVELOPE),
            ..Limits::default()
        },
        replay_timeout: Duration::from_millis(limits.replay_timeout_ms),
        seed,
    })
}

/// Room for a message's other frames, bytes: SYNC's own limit then says which message was too large.
const ENVELOPE: usize = 64 << 10;

/// The calendar, which a publisher's time stamps are in.
#[expect(clippy::disallowed_methods, reason = "time stamps of publishers are points of the calendar")]
fn unix_now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
