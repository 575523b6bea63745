//! [`Follower`]: the thread of the registry; it starts and ends the streams' threads.
//!
//! Invariant: a stream that is replaced has left the index before the next one comes into it.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use super::board::Board;
use super::feed::FeedOptions;
use super::log::Allowance;
use super::stream::{self, Sink, StreamThread};
use crate::kv::directory::{
    Directory, DirectoryOutput, DropReason, Exclusion, InstanceState, News, Registry, Source, StateChange, StreamKey,
    Subscription,
};
use crate::live::kv::registry::{self, DirectoryWord, Login};
use crate::live::kv::zmq::StreamOptions;

/// Words that may wait.
const WORDS: usize = 256;
/// Lines at once about instances and which of them are followed: room for the largest fleet's start.
const BURST: u32 = 512;
/// Between two attempts to start a stream that is listed.
const RETRY: Duration = Duration::from_secs(1);
/// Lines at once about one stream.
const STREAM_BURST: u32 = 8;

/// See the module.
pub(super) struct Follower {
    options: FeedOptions,
    board: Arc<Board>,
    log: Allowance,
    streams: BTreeMap<StreamKey, StreamThread>,
    /// What could not be started, and why: tried again.
    waiting: BTreeMap<StreamKey, (Subscription, String)>,
}

impl Follower {
    pub fn new(options: FeedOptions, board: Arc<Board>) -> Follower {
        let log = Allowance::new(options.log.clone(), BURST, options.clock.now());
        Follower { options, board, log, streams: BTreeMap::new(), waiting: BTreeMap::new() }
    }

    /// Follows the registry for ever; or, when there is none, has the listed streams followed for ever.
    pub async fn run(&mut self) {
        let clock = self.options.clock;
        let directory = Directory::new(&self.options.config, clock.now());
        // One state waits at most: a registry that changes faster than it is taken in is read later, not put by.
        let (tell, news) = mpsc::channel(1);
        let (to, mut words) = mpsc::channel(WORDS);
        let running = tokio::spawn(registry::run(directory, clock, news, to));
        let following = tokio::spawn(follow(self.registry(), self.options.login.clone(), tell));
        tokio::pin!(following);
        let mut is_followed = true;
        let mut again = interval(self.registry().map_or(RETRY, |(_, every)| every));
        again.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                word = words.recv() => match word {
                    Some(word) => self.take(word).await,
                    None => break,
                },
                _ = again.tick(), if !self.waiting.is_empty() => self.try_again(),
                ended = &mut following, if is_followed => {
                    is_followed = false;
                    if let Ok(Err(why)) = ended {
                        self.say(&why);
                        self.board.fail(&why);
                    }
                }
            }
        }
        let why = match running.await {
            Ok(Ok(())) => "the directory ended".to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        self.say(&why);
        self.board.fail(&why);
        std::future::pending().await
    }

    /// Which registry is looked at, and how often; `None`: streams are listed.
    fn registry(&self) -> Option<(Registry, Duration)> {
        match &self.options.config.source {
            Source::Discovery(rules) => {
                Some((rules.registry.clone()?, Duration::from_millis(rules.refresh_interval_ms)))
            }
            Source::Streams(_) => None,
        }
    }

    /// Ends every stream.
    pub async fn stop(&mut self) {
        let streams = std::mem::take(&mut self.streams);
        futures_util::future::join_all(streams.into_values().map(StreamThread::stop)).await;
    }

    async fn take(&mut self, word: DirectoryWord) {
        match word {
            DirectoryWord::Output(output) => self.obey(output).await,
            DirectoryWord::Notice(text) => {
                self.say(&text);
                self.board.set_notice(&text);
            }
            DirectoryWord::Mended(text) => {
                self.say(&text);
                self.board.clear_notice();
            }
            DirectoryWord::Listed => {
                self.say(&format!("ready; streams followed: {}", self.streams.len()));
                self.board.set_ready();
            }
        }
    }

    async fn obey(&mut self, output: DirectoryOutput) {
        match output {
            DirectoryOutput::Subscribe(subscription) => self.subscribe(&subscription),
            DirectoryOutput::Unsubscribe { key, reason } => self.unsubscribe(&key, reason).await,
            DirectoryOutput::State(change) => self.say(&state_line(&change)),
            DirectoryOutput::Excluded { instance, exclusion } => {
                self.say(&format!("instance {instance} is not followed: {exclusion}"));
                self.board.exclude(&instance, exclusion);
            }
            DirectoryOutput::Readmitted { instance } => self.board.readmit(&instance),
            // `registry::run` makes them itself.
            DirectoryOutput::Probe { .. } => {}
        }
    }

    fn subscribe(&mut self, subscription: &Subscription) {
        let StreamKey { instance, dp_rank } = &subscription.key;
        let started = self.sink(subscription).and_then(|(sink, connections)| {
            StreamThread::start(sink, connections)
                .map_err(|error| format!("{error}; raise the limits on processes and open files"))
        });
        match started {
            Ok(thread) => {
                self.streams.insert(subscription.key.clone(), thread);
                if self.waiting.remove(&subscription.key).is_some() {
                    self.board.readmit(&format!("{instance}/{dp_rank}"));
                }
            }
            Err(why) => {
                self.board.remove(&subscription.key);
                self.board.exclude(&format!("{instance}/{dp_rank}"), Exclusion::Unstarted { why: why.clone() });
                let waiting = self.waiting.insert(subscription.key.clone(), (subscription.clone(), why.clone()));
                if waiting.is_none_or(|(_, before)| before != why) {
                    self.say(&format!("stream {instance}/{dp_rank}: cannot be followed: {why}; it is tried again"));
                }
            }
        }
    }

    fn sink(&self, subscription: &Subscription) -> Result<(Sink, StreamOptions), String> {
        let (clock, limits) = (self.options.clock, &self.options.config.limits);
        let seed = RandomState::new().hash_one(&subscription.key);
        let connections = stream::connections(subscription, limits, seed).map_err(|error| error.to_string())?;
        let spec = stream::spec(subscription, limits);
        let writer = self.board.index().add_stream(spec).map_err(|error| error.to_string())?;
        let sync = stream::sync(writer, subscription, limits, clock.now());
        let log = Allowance::new(self.options.log.clone(), STREAM_BURST, clock.now());
        Ok((Sink::new(subscription.key.clone(), sync, clock, self.board.add(subscription), log), connections))
    }

    /// What was missing may be there now: descriptors, threads.
    fn try_again(&mut self) {
        let waiting: Vec<Subscription> = self.waiting.values().map(|(subscription, _)| subscription.clone()).collect();
        waiting.iter().for_each(|subscription| self.subscribe(subscription));
    }

    async fn unsubscribe(&mut self, key: &StreamKey, reason: DropReason) {
        self.board.readmit(&format!("{}/{}", key.instance, key.dp_rank));
        self.waiting.remove(key);
        if let Some(thread) = self.streams.remove(key) {
            thread.stop().await;
            self.board.remove(key);
            self.say(&format!("stream {}/{}: is followed no longer: {}", key.instance, key.dp_rank, reason.as_str()));
        }
    }

    fn say(&mut self, line: &str) {
        self.log.line(self.options.clock.now(), line);
    }
}

/// Follows a registry for as long as it can be; the error says why it cannot.
async fn follow(
    registry: Option<(Registry, Duration)>,
    login: Option<Login>,
    tell: mpsc::Sender<Vec<News>>,
) -> Result<(), String> {
    let Some((registry, every)) = registry else {
        // What is listed is read. Nobody listens any more: the directory is being ended.
        let _ = tell.send(vec![News::Listed]).await;
        return Ok(());
    };
    let followed = registry::follow(&registry, every, login, tell).await;
    followed.map_err(|error| format!("the registry {} is not followed: {error}", name(&registry)))
}

fn state_line(change: &StateChange) -> String {
    let state = |state: Option<InstanceState>| state.map_or("gone", |state| state.as_str());
    let StateChange { instance, from, to, reason } = change;
    match from {
        None => format!("instance {instance}: {} ({})", state(*to), reason.as_str()),
        Some(_) => format!("instance {instance}: {} -> {} ({})", state(*from), state(*to), reason.as_str()),
    }
}

fn name(registry: &Registry) -> String {
    match registry {
        Registry::File(path) => path.clone(),
        Registry::Etcd { endpoints, .. } => format!("etcd {}", endpoints.join(", ")),
    }
}
