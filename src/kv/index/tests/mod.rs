//! Rules of the index: numbered cases from tests/data, random histories against a naive model, readers beside a writer.

mod cases;
mod concurrent;
mod dropped;
mod limits;
mod model;
mod pairs;

use crate::kv::index::{HashSpace, Match, Mode, PrefixIndex, StreamSpec, StreamWriter};
use crate::kv::{BlockRemoved, BlockStored, EngineHash, EventBatch, KvEvent, Tier};

const BLOCK_SIZE: u32 = 4;

fn spec(instance: &str, max_blocks: usize) -> StreamSpec {
    StreamSpec {
        instance: instance.into(),
        dp_rank: 0,
        space: HashSpace { block_size: BLOCK_SIZE, hash_seed: 1024 },
        max_blocks,
        incarnation: None,
        register_ts_ms: None,
    }
}

fn batch(events: Vec<KvEvent>) -> EventBatch {
    EventBatch { timestamp: 0.0, events, dp_rank: None, ignored: 0 }
}

fn stored(hashes: &[u64], parent: Option<u64>, tokens: &[u32], tier: Tier) -> KvEvent {
    KvEvent::Stored(BlockStored {
        hashes: hashes.iter().copied().map(EngineHash).collect(),
        parent: parent.map(EngineHash),
        tokens: tokens.to_vec(),
        block_size: BLOCK_SIZE,
        tier,
        bigram: false,
    })
}

fn removed(hashes: &[u64], tier: Tier) -> KvEvent {
    KvEvent::Removed(BlockRemoved { hashes: hashes.iter().copied().map(EngineHash).collect(), tier })
}

/// A state of these events, from nothing.
fn show(writer: &mut StreamWriter, events: Vec<KvEvent>, sequence: u64) {
    let mut shadow = writer.shadow();
    shadow.apply(&batch(events), Mode::Snapshot).unwrap();
    writer.replace_by(shadow, sequence);
}

/// An index of one stream with an empty state.
fn one_stream(spec: StreamSpec) -> (PrefixIndex, StreamWriter) {
    let index = PrefixIndex::new();
    let mut writer = index.add_stream(spec).unwrap();
    show(&mut writer, Vec::new(), 0);
    (index, writer)
}

/// Hits in tokens: device, host only.
fn hits(found: &Match) -> (u64, u64) {
    (found.device_hit_tokens, found.host_only_hit_tokens)
}
