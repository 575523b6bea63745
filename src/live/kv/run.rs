//! [`RunIndex`]: the KV index of a live run, fed beside it.
//!
//! Owns the feed's threads and what a run wants of them: a lookup for the policy, lines for the ledger, facts at the end. No
//! request ever waits for a stream.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc::channel;

use super::coverage::{IndexFault, Uncovered, followed_faults, source_faults};
use super::service::{Board, Feed, FeedError, FeedOptions, Log, StreamView};
use super::whose::worker_of;
use crate::base::{Dur, WorkerId};
use crate::kv::directory::{Endpoint, KvEventsConfig, Source, StaticStream, StreamForm, StreamKey, StreamLimits};
use crate::kv::index::StreamSpec;
use crate::kv::sync::SyncState;
use crate::kv::{Followed, IndexLookup, Process, StreamOrigin, stream_name};
use crate::live::clock::Clock;
use crate::live::cluster::KvAddress;
use crate::live::{Addresses, Heard, Notices};
use crate::record::{LedgerKind, StreamFacts};
use crate::replay::{stream_facts, told_change};
use crate::scenario::{FollowSetup, IndexNeeds};

/// Words of streams that may wait; one that changes all the time is not told each time.
const WORDS: usize = 4096;
/// Between two looks whether streams are in step.
const LOOK: Duration = Duration::from_millis(2);

/// See the module. Dropping it ends its threads.
#[derive(Debug)]
pub struct RunIndex {
    feed: Feed,
    whose: Arc<WorkersOf>,
    setup: FollowSetup,
    speed: f64,
    /// Streams are found in a registry: there may be none yet.
    is_discovered: bool,
    /// Time that streams were not in step before the run.
    before: BTreeMap<StreamKey, Dur>,
    notices: Option<Notices>,
}

/// Which worker a stream is of.
#[derive(Debug)]
struct WorkersOf {
    addresses: Addresses,
    /// Once the feed has begun.
    board: OnceLock<Arc<Board>>,
    /// Nobody says which process a listed stream is of, unless all are the emulated cluster's.
    origin: StreamOrigin,
}

/// How the streams of the emulated cluster's workers are followed.
pub fn embedded_feed(kv: &BTreeMap<WorkerId, KvAddress>, setup: &FollowSetup, speed: f64) -> FeedOptions {
    let sync = &setup.sync;
    let form = StreamForm {
        block_size: setup.space.block_size,
        hash_seed: setup.space.hash_seed,
        topic: sync.topic.clone(),
        dialect: sync.dialect,
        recovery: sync.recovery,
    };
    let endpoint = |address: std::net::SocketAddr| Endpoint { host: address.ip().to_string(), port: address.port() };
    let stream = |(worker, at): (&WorkerId, &KvAddress)| StaticStream {
        instance: worker.to_string(),
        dp_rank: 0,
        form: form.clone(),
        events: endpoint(at.events),
        replay: Some(endpoint(at.replay)),
    };
    let wall_ms = |of_run: Dur| (of_run.as_secs_f64() / speed * 1e3).ceil() as u64;
    let config = KvEventsConfig {
        source: Source::Streams(kv.iter().filter(|(worker, _)| setup.reads(**worker)).map(stream).collect()),
        max_streams: kv.len() as u32,
        limits: StreamLimits {
            max_blocks_per_stream: u32::try_from(setup.max_blocks).unwrap_or(u32::MAX),
            replay_timeout_ms: wall_ms(sync.replay_timeout).max(200),
            // 0 of the scenario: none. Here so late that no run gets there.
            resync_interval_ms: match sync.resync_interval {
                Dur::ZERO => 1 << 40,
                every => wall_ms(every).max(1),
            },
            ..StreamLimits::default()
        },
    };
    FeedOptions { config, login: None, clock: Clock::start(1.0), log: Log::silent() }
}

impl RunIndex {
    /// Follows what `options` say; their log is replaced. Instances are workers of `addresses`, by their names or
    /// HTTP addresses. `is_own`: they are the emulated cluster's.
    pub fn start(
        options: FeedOptions,
        is_own: bool,
        setup: FollowSetup,
        addresses: Addresses,
        speed: f64,
    ) -> Result<RunIndex, FeedError> {
        let is_listed = matches!(options.config.source, Source::Streams(_));
        let origin = match is_listed && !is_own {
            true => StreamOrigin::Static,
            false => StreamOrigin::Discovered(Process::default()),
        };
        let whose = Arc::new(WorkersOf { addresses, board: OnceLock::new(), origin });
        let (told, notices) = channel(WORDS);
        let of = Arc::clone(&whose);
        let log = Log::silent().with_changes(move |key, change| {
            let (kind, worker) = (LedgerKind::KvStream, of.worker(key));
            let notice = told_change(change).map(|detail| Heard::Notice { kind, worker, detail });
            // A run that has ended hears no more, and one so far behind has lines enough.
            let _ = notice.map(|notice| told.try_send(notice));
        });
        let feed = Feed::start(FeedOptions { log, ..options })?;
        whose.board.get_or_init(|| Arc::clone(feed.board()));
        Ok(RunIndex {
            feed,
            whose,
            setup,
            speed,
            is_discovered: !is_listed,
            before: BTreeMap::new(),
            notices: Some(notices),
        })
    }

    /// Waits until every stream is in step, and of a registry there is one, at most so long, and counts from then on. Called before the run, so that its
    /// first choices are not blind.
    #[expect(clippy::disallowed_methods, reason = "the run has not begun: the caller's thread has nothing else to do")]
    pub fn settle(&mut self, longest: Duration) {
        let clock = Clock::start(1.0);
        while Duration::from_nanos(clock.now().ns()) < longest && !self.is_settled() {
            thread::sleep(LOOK);
        }
        let views = self.board().streams().into_iter();
        self.before = views.map(|view| (view.key, view.report.stats.unsynced)).collect();
    }

    /// What makes choices blind, as far as it shows before the run.
    ///
    /// # Errors
    /// No stream is of a worker whose cache is read, and one has to be.
    pub fn faults(&self, needs: &IndexNeeds) -> Result<Vec<IndexFault>, Uncovered> {
        let board = self.board();
        let of_source = source_faults(board.unready().as_deref(), &board.excluded(), Some(needs.role));
        let is_static = self.whose.origin == StreamOrigin::Static;
        let of_streams = followed_faults(&board.followed(), is_static, &self.whose.addresses, needs);
        let faults: Vec<IndexFault> = of_source.into_iter().chain(of_streams.faults).collect();
        if needs.require && !of_streams.covers && board.unready().is_none() {
            Err(Uncovered(faults))
        } else {
            Ok(faults)
        }
    }

    /// What the policy reads.
    pub fn lookup(&self) -> IndexLookup {
        let (whose, board, setup) = (Arc::clone(&self.whose), Arc::clone(self.board()), self.setup.clone());
        let followed = move |spec: &StreamSpec| {
            let key = StreamKey { instance: spec.instance.clone(), dp_rank: spec.dp_rank };
            let worker = whose.worker(&key).filter(|worker| setup.reads(*worker))?;
            Some(Followed { worker, origin: whose.origin, endpoint: board.endpoint_of(spec) })
        };
        IndexLookup::new(self.board().index().clone(), Box::new(followed), self.setup.tokens)
    }

    /// Words of the streams; once.
    pub fn notices(&mut self) -> Option<Notices> {
        self.notices.take()
    }

    /// Every stream as it is now, by name.
    pub fn facts(&self) -> Vec<StreamFacts> {
        let views = self.board().streams();
        views.iter().map(|view| self.fact(view, &views)).collect()
    }

    fn fact(&self, view: &StreamView, all: &[StreamView]) -> StreamFacts {
        let StreamKey { instance, dp_rank } = &view.key;
        let ranks = all.iter().filter(|other| other.key.instance == *instance).count() as u32;
        let name = match self.whose.worker(&view.key) {
            Some(worker) => stream_name(worker, *dp_rank, ranks),
            None => format!("{instance}/{dp_rank}"),
        };
        let facts = stream_facts(&name, &view.report, None);
        let before = self.before.get(&view.key).copied().unwrap_or(Dur::ZERO);
        let unsynced_ns = facts.unsynced_ns.saturating_sub(before.ns()) as f64 * self.speed;
        StreamFacts { unsynced_ns: unsynced_ns as u64, ..facts }
    }

    fn is_settled(&self) -> bool {
        let views = self.board().streams();
        let is_empty = self.is_discovered && views.is_empty();
        !is_empty && self.board().unready().is_none() && views.iter().all(|view| view.report.state == SyncState::Synced)
    }

    fn board(&self) -> &Arc<Board> {
        self.feed.board()
    }
}

impl WorkersOf {
    fn worker(&self, key: &StreamKey) -> Option<WorkerId> {
        let http = self.board.get().and_then(|board| board.http_of(key));
        worker_of(&self.addresses, &key.instance, http.as_ref())
    }
}
