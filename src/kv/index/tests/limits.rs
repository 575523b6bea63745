//! Memory: what is forgotten, what is kept, what is given back.

use super::{batch, one_stream, removed, show, spec, stored};
use crate::kv::Tier;
use crate::kv::index::{AddStreamError, ApplyError};

const DEVICE: Tier = Tier::Device;

#[test]
fn case_80_a_million_pairs_of_store_and_removal_under_the_limit_stay_flat() {
    let (index, mut writer) = one_stream(spec("a", 8));
    for pair in 0..1_000_000u32 {
        let name = u64::from(pair);
        let events = vec![stored(&[name], None, &[pair; 4], DEVICE), removed(&[name], DEVICE)];
        writer.apply(&batch(events), name).unwrap();
        if pair % 1000 == 0 {
            assert!(index.statuses()[0].mappings <= 8 && index.blocks() <= 8);
        }
    }
}

#[test]
fn many_pairs_in_one_batch_stay_under_the_limit_too() {
    let (index, mut writer) = one_stream(spec("a", 8));
    let pair = |pair: u32| [stored(&[u64::from(pair)], None, &[pair; 4], DEVICE), removed(&[pair.into()], DEVICE)];
    writer.apply(&batch((0..10_000).flat_map(pair).collect()), 1).unwrap();
    assert_eq!((index.statuses()[0].mappings, index.blocks()), (8, 8));
    // Every other prompt under an old name again: mappings of the batch that were forgotten left nothing behind.
    writer.apply(&batch((0..1000).flat_map(|old| pair(old * 2)).collect()), 2).unwrap();
    assert_eq!((index.statuses()[0].device_blocks, index.blocks()), (0, 8));
}

#[test]
fn a_removed_parent_is_kept_while_it_has_descendants() {
    let (_, mut writer) = one_stream(spec("a", 3));
    let chain = stored(&[1, 2], None, &[0; 8], DEVICE);
    writer.apply(&batch(vec![chain, removed(&[1], DEVICE)]), 1).unwrap();
    // Room for one more, again and again; 1 is the oldest that is resident nowhere, but 2 is behind it.
    for name in 10..20 {
        let events = vec![stored(&[name], None, &[name as u32; 4], DEVICE), removed(&[name], DEVICE)];
        writer.apply(&batch(events), name).unwrap();
    }
    writer.apply(&batch(vec![stored(&[3], Some(1), &[7; 4], DEVICE)]), 20).unwrap();
    let full = writer.apply(&batch(vec![stored(&[4], None, &[8; 4], DEVICE)]), 21);
    assert_eq!(full, Err(ApplyError::IndexLimit { event: 0, max_blocks: 3 }));
}

#[test]
fn the_last_descendant_that_goes_frees_its_parents() {
    let (index, mut writer) = one_stream(spec("a", 3));
    writer.apply(&batch(vec![stored(&[1, 2, 3], None, &[0; 12], DEVICE), removed(&[1, 2, 3], DEVICE)]), 1).unwrap();
    writer.apply(&batch(vec![stored(&[4, 5, 6], None, &[1; 12], DEVICE)]), 2).unwrap();
    assert_eq!((index.statuses()[0].mappings, index.blocks()), (3, 3));
}

#[test]
fn what_a_stream_held_goes_with_it() {
    let (index, mut writer) = one_stream(spec("a", 100));
    let events = || vec![stored(&[1, 2, 3], None, &[0; 12], DEVICE), stored(&[9], None, &[0; 4], Tier::Host)];
    writer.apply(&batch(events()), 1).unwrap();
    let mut other = index.add_stream(spec("b", 100)).unwrap();
    show(&mut other, events(), 1);
    assert_eq!(index.blocks(), 3);
    writer.invalidate("gap");
    assert_eq!((index.blocks(), index.query(&[0; 12])[1].device_hit_tokens), (3, 12));
    let refused = writer.apply(&batch(events()), 2);
    assert_eq!(refused, Err(ApplyError::NotSynchronized));
    drop(other);
    assert_eq!((index.blocks(), index.statuses().len()), (0, 1));
}

#[test]
fn a_refused_batch_leaves_nothing_behind() {
    let (index, mut writer) = one_stream(spec("a", 100));
    writer.apply(&batch(vec![stored(&[1], None, &[0; 4], DEVICE)]), 1).unwrap();
    // The second block of the run is refused when the whole run is hashed already.
    let conflict = stored(&[5, 1, 6], None, &[3; 12], DEVICE);
    let refused = writer.apply(&batch(vec![conflict]), 2);
    assert_eq!(refused, Err(ApplyError::Conflict { event: 0, block: crate::kv::EngineHash(1) }));
    assert_eq!(index.blocks(), 0);
}

#[test]
fn more_streams_than_a_word_has_bits_each_keep_their_own() {
    let (index, first) = one_stream(spec("first", 100));
    let mut writers = vec![first];
    for name in 0..200u32 {
        let mut writer = index.add_stream(spec(&format!("s{name:03}"), 100)).unwrap();
        show(&mut writer, vec![stored(&[1, 2], None, &[0, 0, 0, 0, name, 0, 0, 0], DEVICE)], 0);
        writers.push(writer);
    }
    let found = index.query(&[0, 0, 0, 0, 130, 0, 0, 0]);
    for found in &found {
        let expected = match found.stream.spec.instance.as_str() {
            "first" => 0,
            "s130" => 8,
            _ => 4,
        };
        assert_eq!(found.device_hit_tokens, expected, "{}", found.stream.spec);
    }
    drop(writers);
    assert_eq!(index.blocks(), 0);
}

#[test]
fn streams_are_refused_that_are_there_or_have_no_blocks() {
    let (index, _writer) = one_stream(spec("a", 8));
    assert!(matches!(index.add_stream(spec("a", 8)), Err(AddStreamError::Duplicate { dp_rank: 0, .. })));
    let mut empty = spec("b", 8);
    empty.space.block_size = 0;
    assert!(matches!(index.add_stream(empty), Err(AddStreamError::NoBlockSize { .. })));
}

#[test]
fn streams_of_another_block_size_or_seed_are_asked_in_their_own() {
    let (index, mut first) = one_stream(spec("a", 8));
    let mut other = spec("b", 8);
    other.space.block_size = 2;
    let mut other = index.add_stream(other).unwrap();
    first.apply(&batch(vec![stored(&[1], None, &[5; 4], DEVICE)]), 1).unwrap();
    let mut event = stored(&[1, 2, 3], None, &[5; 6], DEVICE);
    if let crate::kv::KvEvent::Stored(stored) = &mut event {
        stored.block_size = 2;
    }
    show(&mut other, vec![event], 1);
    let found: Vec<u64> = index.query(&[5; 7]).iter().map(|found| found.device_hit_tokens).collect();
    assert_eq!(found, [4, 6]);
}
