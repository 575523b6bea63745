//! [`Follower`]: the run's subscriber to KV events, between the emulated workers and the index that the policy reads.
//!
//! Carries messages and time; which message is good for what is `kv::sync`'s. A process of a worker is one stream: it is
//! followed from the moment discovery names it, until discovery names another or sees the worker leave.

use std::collections::BTreeMap;

use crate::base::{Dur, Time, WorkerId};
use crate::cluster::{Cluster, KvWord};
use crate::engine::Cx;
use crate::kv::index::{StreamId, StreamSpec};
use crate::kv::sync::{Subscriber, SyncInput, SyncOutput};
use crate::kv::{Followed, IndexLookup, Process, StreamOrigin};
use crate::protocol::{Event, WorkerState};
use crate::record::{LedgerEvent, StreamFacts};
use crate::replay::{stream_facts, stream_line};
use crate::scenario::FollowSetup;

/// See the module.
#[derive(Debug)]
pub(super) struct Follower {
    setup: FollowSetup,
    subscriber: Subscriber,
    streams: BTreeMap<WorkerId, StreamId>,
    /// Of processes that are gone.
    past: BTreeMap<WorkerId, StreamFacts>,
    /// What streams want or say.
    told: Vec<(WorkerId, SyncOutput)>,
    ledger: Vec<LedgerEvent>,
}

impl Follower {
    /// Of a run, with nobody to follow yet. `can_lose`: what publishers say may get lost, so that it is to be checked now and
    /// then.
    pub fn new(mut setup: FollowSetup, can_lose: bool) -> Follower {
        if !can_lose {
            setup.sync.resync_interval = Dur::ZERO;
        }
        Follower {
            setup,
            subscriber: Subscriber::new(),
            streams: BTreeMap::new(),
            past: BTreeMap::new(),
            told: Vec::new(),
            ledger: Vec::new(),
        }
    }

    /// What the policy reads.
    pub fn lookup(&self) -> IndexLookup {
        IndexLookup::new(self.subscriber.index().clone(), Box::new(whose), self.setup.tokens)
    }

    /// Follows every worker that is there. A run begins once its streams had time to come in step.
    pub fn begin(&mut self, cx: Cx<'_>, cluster: &mut Cluster) {
        cluster.talk_at_once(true);
        for (worker, incarnation) in self.publishers(cluster) {
            self.follow(cx, cluster, worker, incarnation);
        }
        loop {
            cluster.handle_timeout(cx);
            let Some(word) = cluster.poll_kv() else { break };
            self.take(cx, cluster, word);
            self.handle_timeout(cx, cluster);
        }
        cluster.talk_at_once(false);
    }

    /// Those whose caches are read.
    fn publishers(&self, cluster: &Cluster) -> Vec<(WorkerId, u32)> {
        cluster.publishers().into_iter().filter(|(worker, _)| self.setup.reads(*worker)).collect()
    }

    /// Follows process `incarnation` of `worker`, in place of an earlier one.
    fn follow(&mut self, cx: Cx<'_>, cluster: &mut Cluster, worker: WorkerId, incarnation: u32) {
        self.forget(cx.now, worker);
        let spec = StreamSpec {
            instance: worker.to_string(),
            dp_rank: 0,
            space: self.setup.space,
            max_blocks: self.setup.max_blocks,
            incarnation: Some(incarnation.to_string()),
            register_ts_ms: None,
        };
        let options = self.setup.sync.clone();
        let stream = self.subscriber.add(spec, options, cx.now).expect("one stream a worker, of blocks with tokens");
        self.streams.insert(worker, stream);
        cluster.subscribe(cx, worker);
    }

    /// Takes what discovery says of a worker.
    pub fn hear(&mut self, cx: Cx<'_>, cluster: &mut Cluster, event: &Event) {
        match event {
            Event::WorkerChanged { worker, state: WorkerState::Up { incarnation } }
                if self.publishers(cluster).iter().any(|(publisher, _)| publisher == worker) =>
            {
                self.follow(cx, cluster, *worker, *incarnation);
            }
            Event::WorkerChanged { worker, state: WorkerState::Gone } => self.forget(cx.now, *worker),
            _ => {}
        }
    }

    /// Takes what a publisher says.
    pub fn take(&mut self, cx: Cx<'_>, cluster: &mut Cluster, (worker, word): (WorkerId, KvWord)) {
        let input = match &word {
            KvWord::Connected => SyncInput::Connected,
            KvWord::Disconnected(why) => SyncInput::Disconnected(why),
            KvWord::Live(frames) => SyncInput::Live(frames),
            KvWord::Replay { attempt, frames } => SyncInput::Replay { attempt: *attempt, frames },
        };
        self.tell(cx.now, worker, input);
        self.act(cx, cluster);
    }

    fn tell(&mut self, now: Time, worker: WorkerId, input: SyncInput<'_>) {
        if let Some(stream) = self.streams.get(&worker) {
            let told = &mut self.told;
            self.subscriber.input(now, *stream, input, |_, output| told.push((worker, output)));
        }
    }

    /// When a stream wants to be woken.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.subscriber.wake_at()
    }

    /// Call at the time of [`Follower::poll_timeout`].
    pub fn handle_timeout(&mut self, cx: Cx<'_>, cluster: &mut Cluster) {
        let (told, streams) = (&mut self.told, &self.streams);
        self.subscriber.wake(cx.now, |stream, output| {
            let worker = streams.iter().find(|(_, followed)| **followed == stream);
            told.extend(worker.map(|(worker, _)| (*worker, output)));
        });
        self.act(cx, cluster);
    }

    /// Lines for the ledger since the last call.
    pub fn take_ledger(&mut self) -> Vec<LedgerEvent> {
        std::mem::take(&mut self.ledger)
    }

    /// Every stream up to `now`, by worker.
    pub fn facts(&self, now: Time) -> Vec<StreamFacts> {
        let mut facts = self.past.clone();
        for report in self.subscriber.reports(now) {
            if let Some(Followed { worker, .. }) = whose(&report.status.spec) {
                facts.insert(worker, stream_facts(&worker.to_string(), &report, facts.get(&worker).cloned()));
            }
        }
        facts.into_values().collect()
    }

    fn forget(&mut self, now: Time, worker: WorkerId) {
        let Some(stream) = self.streams.remove(&worker) else { return };
        if let Some(report) = self.subscriber.remove(stream, now) {
            let facts = stream_facts(&worker.to_string(), &report, self.past.remove(&worker));
            self.past.insert(worker, StreamFacts { synchronized: false, ..facts });
        }
    }

    fn act(&mut self, cx: Cx<'_>, cluster: &mut Cluster) {
        while !self.told.is_empty() {
            for (worker, output) in std::mem::take(&mut self.told) {
                match output {
                    SyncOutput::AskReplay { from, attempt } => cluster.ask_replay(cx, worker, attempt, from),
                    // Replies that come all the same are told by their number.
                    SyncOutput::DropReplay => {}
                    SyncOutput::Reconnect => {
                        self.tell(cx.now, worker, SyncInput::Closed);
                        cluster.subscribe(cx, worker);
                    }
                    SyncOutput::Changed(change) => self.ledger.extend(stream_line(&worker.to_string(), &change)),
                }
            }
        }
    }
}

/// Streams are named after their workers, and know the process. In virtual time nothing has an address.
fn whose(spec: &StreamSpec) -> Option<Followed> {
    let worker = spec.instance.parse().ok()?;
    let incarnation = spec.incarnation.as_deref().and_then(|number| number.parse().ok());
    let origin = StreamOrigin::Discovered(Process { incarnation, register_ts_ms: None });
    Some(Followed { worker, origin, endpoint: String::new() })
}
