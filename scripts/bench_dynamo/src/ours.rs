//! pdreplay's index: a writer a worker, decoded events in, all on one thread.

use std::collections::BTreeMap;
use std::time::Instant;

use pdreplay::kv::index::{HashSpace, Match, PrefixIndex, PromptHashes, StreamSpec, StreamWriter};
use pdreplay::kv::{DEFAULT_HASH_SEED, EventBatch, HashChain, KvEvent};

use crate::history::{History, WORKERS};
use crate::{Outcome, Round, each_query};

pub fn round(history: &History) -> Outcome<Round> {
    let stores = batches(history.stores.iter().map(|(worker, event)| (*worker, KvEvent::Stored(event.clone()))));
    let removals = batches(history.removals.iter().map(|(worker, event)| (*worker, KvEvent::Removed(event.clone()))));
    let space = HashSpace { block_size: history.block_size, hash_seed: DEFAULT_HASH_SEED };
    let index = PrefixIndex::new();
    let mut writers = (0..WORKERS).map(|worker| writer(&index, worker, space)).collect::<Outcome<Vec<_>>>()?;

    let store = apply(&mut writers, &stores)?;
    let hits = hits(&index.query(&history.prompt), history.block_size)?;
    let query = each_query(|| index.query(&history.prompt).len());
    let mut chain = HashChain::new(space.hash_seed);
    let hashes: Vec<_> =
        history.prompt.chunks_exact(history.block_size as usize).map(|block| chain.push(block)).collect();
    let known = [PromptHashes { space, hashes: &hashes }];
    let query_known = each_query(|| index.query_hashes(&known).len());
    let remove = apply(&mut writers, &removals)?;

    let left: u64 = index.query(&history.prompt).iter().map(Match::reusable_tokens).sum();
    if left > 0 {
        return Err("pdreplay: hits of removed blocks".into());
    }
    Ok(Round { store, hashing: None, remove, query, query_known, hits })
}

fn writer(index: &PrefixIndex, worker: u32, space: HashSpace) -> Outcome<StreamWriter> {
    let mut writer = index.add_stream(StreamSpec {
        instance: worker.to_string(),
        dp_rank: 0,
        space,
        max_blocks: 1 << 20,
        incarnation: None,
        register_ts_ms: None,
    })?;
    let shadow = writer.shadow();
    writer.replace_by(shadow, 0);
    Ok(writer)
}

fn batches(events: impl Iterator<Item = (u32, KvEvent)>) -> Vec<(u32, EventBatch)> {
    events
        .map(|(worker, event)| (worker, EventBatch { timestamp: 0.0, events: vec![event], dp_rank: None, ignored: 0 }))
        .collect()
}

fn apply(writers: &mut [StreamWriter], batches: &[(u32, EventBatch)]) -> Outcome<f64> {
    let began = Instant::now();
    for (sequence, (worker, batch)) in (1..).zip(batches) {
        writers[*worker as usize].apply(batch, sequence)?;
    }
    Ok(began.elapsed().as_secs_f64())
}

fn hits(matches: &[Match], block_size: u32) -> Outcome<BTreeMap<u64, u64>> {
    let hit =
        |found: &Match| Ok((found.stream.spec.instance.parse()?, found.reusable_tokens() / u64::from(block_size)));
    matches.iter().map(hit).collect()
}
