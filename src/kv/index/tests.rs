//! Rules of the index, by name.

use crate::kv::index::{HashSpace, Mode, PrefixIndex, StreamSpec};
use crate::kv::{BlockStored, EngineHash, EventBatch, KvEvent, Tier};

#[test]
fn a_stored_prefix_is_a_hit() {
    let index = PrefixIndex::new();
    let space = HashSpace { block_size: 4, hash_seed: 1024 };
    let spec = StreamSpec {
        instance: "a".into(),
        dp_rank: 0,
        space,
        max_blocks: 8,
        incarnation: None,
        register_ts_ms: None,
    };
    let mut writer = index.add_stream(spec).unwrap();
    let mut shadow = writer.shadow();
    let stored = BlockStored {
        hashes: vec![EngineHash(101), EngineHash(102)],
        parent: None,
        tokens: (1..=8).collect(),
        block_size: 4,
        tier: Tier::Device,
    };
    let batch = EventBatch { timestamp: 0.0, events: vec![KvEvent::Stored(stored)], dp_rank: None, ignored: 0 };
    shadow.apply(&batch, Mode::Snapshot).unwrap();
    writer.replace_by(shadow, 3);
    let found = index.query(&(1..=12).collect::<Vec<_>>());
    assert_eq!((found[0].device_hit_tokens, found[0].host_only_hit_tokens), (8, 0));
    assert_eq!((found[0].stream.sequence, found[0].stream.device_blocks), (Some(3), 2));
}
