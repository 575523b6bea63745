//! Dynamo's index: `ConcurrentRadixTreeCompressed`, which its documentation calls the default of a router, on one thread.
//!
//! Its event loop runs on the calling thread over a queue that was filled before, so that nothing waits for another
//! thread. The loop alone knows what it stored: one pass stores and removes, another stores and is asked.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use dynamo_kv_router::indexer::WorkerTask;
use dynamo_kv_router::protocols::{
    BlockHashOptions, ExternalSequenceBlockHash, KvCacheEvent, KvCacheEventData, KvCacheRemoveData, KvCacheStoreData,
    KvCacheStoredBlockData, RouterEvent,
};
use dynamo_kv_router::{ConcurrentRadixTreeCompressed, LocalBlockHash, SyncIndexer, compute_block_hash_for_seq};
use pdreplay::kv::{BlockRemoved, BlockStored, EngineHash};
use tokio::sync::oneshot;

use crate::history::History;
use crate::{Outcome, Round, each_query};

pub fn round(history: &History) -> Outcome<Round> {
    let size = history.block_size;
    let began = Instant::now();
    let stores: Vec<RouterEvent> = history.stores.iter().map(stored).collect();
    let hashing = began.elapsed().as_secs_f64();
    let removals = history.removals.iter().map(removed).collect();
    let emptied = ConcurrentRadixTreeCompressed::new();
    let [store, remove] = apply(&emptied, [stores.clone(), removals])?;
    let asked = ConcurrentRadixTreeCompressed::new();
    apply(&asked, [stores])?;

    let local = hashes(&history.prompt, size);
    let found = asked.find_matches(&local, false).scores;
    let hits: BTreeMap<u64, u64> =
        found.iter().map(|(worker, blocks)| (worker.worker_id, u64::from(*blocks))).collect();
    let query = each_query(|| asked.find_matches(&hashes(&history.prompt, size), false).scores.len());
    let query_known = each_query(|| asked.find_matches(&local, false).scores.len());
    if emptied.find_matches(&local, false).scores.values().any(|blocks| *blocks > 0) {
        return Err("dynamo: hits of removed blocks".into());
    }
    Ok(Round { store: store + hashing, hashing: Some(hashing), remove, query, query_known, hits })
}

fn hashes(tokens: &[u32], block_size: u32) -> Vec<LocalBlockHash> {
    compute_block_hash_for_seq(tokens, block_size, BlockHashOptions::default())
}

/// As its own reader of an engine's events makes it: a hash of each block's tokens beside the engine's hash.
fn stored((worker, stored): &(u32, BlockStored)) -> RouterEvent {
    let local = hashes(&stored.tokens, stored.block_size);
    let block = |(hash, tokens_hash): (&EngineHash, LocalBlockHash)| KvCacheStoredBlockData {
        block_hash: ExternalSequenceBlockHash(hash.0),
        tokens_hash,
        mm_extra_info: None,
    };
    let data = KvCacheStoreData {
        parent_hash: stored.parent.map(|hash| ExternalSequenceBlockHash(hash.0)),
        start_position: None,
        blocks: stored.hashes.iter().zip(local).map(block).collect(),
    };
    event(*worker, KvCacheEventData::Stored(data))
}

fn removed((worker, removed): &(u32, BlockRemoved)) -> RouterEvent {
    let block_hashes = removed.hashes.iter().map(|hash| ExternalSequenceBlockHash(hash.0)).collect();
    event(*worker, KvCacheEventData::Removed(KvCacheRemoveData { block_hashes }))
}

fn event(worker: u32, data: KvCacheEventData) -> RouterEvent {
    RouterEvent::new(u64::from(worker), KvCacheEvent { event_id: 0, data, dp_rank: 0 })
}

/// Seconds that each part took.
fn apply<const N: usize>(tree: &ConcurrentRadixTreeCompressed, parts: [Vec<RouterEvent>; N]) -> Outcome<[f64; N]> {
    let (sender, receiver) = flume::unbounded();
    let mut ends = Vec::new();
    let mut answers = Vec::new();
    for events in parts {
        for event in events {
            sender.send(WorkerTask::Event(event))?;
        }
        let (done, answer) = oneshot::channel();
        sender.send(WorkerTask::Flush(done))?;
        let (end, answer) = stamped(answer);
        ends.push(end);
        answers.push(answer);
    }
    drop(sender);
    let mut began = Instant::now();
    tree.worker(receiver, None)?;
    let mut seconds = [0.0; N];
    for (seconds, end) in seconds.iter_mut().zip(ends) {
        let end = end.0.lock().unwrap_or_else(PoisonError::into_inner).ok_or("dynamo: no end of a part")?;
        *seconds = end.duration_since(began).as_secs_f64();
        began = end;
    }
    Ok(seconds)
}

/// When a part was done: answers wake on the thread that gives them.
struct Stamp(Mutex<Option<Instant>>);

impl Wake for Stamp {
    fn wake(self: Arc<Self>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }
}

fn stamped(mut answer: oneshot::Receiver<()>) -> (Arc<Stamp>, oneshot::Receiver<()>) {
    let stamp = Arc::new(Stamp(Mutex::new(None)));
    let waker = Waker::from(stamp.clone());
    let waiting: Poll<_> = pin!(&mut answer).poll(&mut Context::from_waker(&waker));
    assert!(waiting.is_pending(), "answered before it was asked");
    (stamp, answer)
}
