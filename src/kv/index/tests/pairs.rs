//! Blocks of overlapping pairs of tokens, as SGLang under EAGLE has them: a prompt hits one only with the token behind it.

use super::{batch, hits, one_stream, show, spec, stored};
use crate::base::WorkerId;
use crate::kv::index::{ApplyError, PrefixIndex};
use crate::kv::{BlockPath, BlockTokens, BlockTree, Followed, IndexLookup, KvEvent, PrefixLookup, StreamOrigin, Tier};

/// Blocks of pairs: of 4 tokens each, and one more.
fn pairs(hashes: &[u64], parent: Option<u64>, tokens: &[u32]) -> KvEvent {
    let mut event = stored(hashes, parent, tokens, Tier::Device);
    if let KvEvent::Stored(stored) = &mut event {
        stored.bigram = true;
    }
    event
}

fn device(index: &PrefixIndex, tokens: &[u32]) -> u64 {
    hits(&index.query(tokens)[0]).0
}

#[test]
fn a_block_is_hit_with_the_token_behind_it() {
    let (index, mut writer) = one_stream(spec("a", 1000));
    let prompt: Vec<u32> = (1..=9).collect();
    writer.apply(&batch(vec![pairs(&[1, 2], None, &prompt)]), 1).unwrap();
    assert!(index.statuses()[0].bigram);
    let found = [3, 4, 5, 8, 9].map(|length| device(&index, &prompt[..length]));
    assert_eq!(found, [0, 0, 4, 4, 8]);
    assert_eq!(device(&index, &[1, 2, 3, 4, 77]), 0, "the engine has no such pair");
    // Behind a block of another batch, and beyond a group.
    let long: Vec<u32> = (9..9 + 401).collect();
    let names: Vec<u64> = (3..103).collect();
    writer.apply(&batch(vec![pairs(&names, Some(2), &long)]), 2).unwrap();
    let whole: Vec<u32> = (1..9 + 401).collect();
    assert_eq!((device(&index, &whole), device(&index, &whole[..408])), (408, 404));
    // Two contents that differ in the token behind the block alone are two blocks.
    writer.apply(&batch(vec![pairs(&[200], None, &[1, 2, 3, 4, 6])]), 3).unwrap();
    assert_eq!(index.statuses()[0].device_blocks, 103);
    assert_eq!(device(&index, &[1, 2, 3, 4, 6]), 4);
}

#[test]
fn one_state_has_one_kind_and_the_next_may_have_another() {
    let (index, mut writer) = one_stream(spec("a", 1000));
    writer.apply(&batch(vec![pairs(&[1], None, &[1, 2, 3, 4, 5])]), 1).unwrap();
    let plain = || stored(&[2], None, &[1, 2, 3, 4], Tier::Device);
    assert_eq!(writer.apply(&batch(vec![plain()]), 2), Err(ApplyError::MixedTokens { event: 0 }));
    assert_eq!(index.blocks(), 0);
    show(&mut writer, vec![plain()], 3);
    assert_eq!((device(&index, &[1, 2, 3, 4]), index.statuses()[0].bigram), (4, false));
    writer.apply(&batch(vec![KvEvent::Cleared, pairs(&[1], None, &[1, 2, 3, 4, 5])]), 4).unwrap();
    assert_eq!((device(&index, &[1, 2, 3, 4]), device(&index, &[1, 2, 3, 4, 5])), (0, 4));
    let short = pairs(&[9], None, &[1, 2, 3, 4]);
    assert!(matches!(writer.apply(&batch(vec![short]), 5), Err(ApplyError::TokenCount { tokens: 4, blocks: 1, .. })));
}

#[test]
fn a_policy_sees_them_beside_streams_of_single_tokens() {
    let tokens = BlockTokens::new(1000, 30_000);
    let ids = [1, 2, 3];
    let prompt: Vec<u32> = ids.iter().flat_map(|id| tokens.of_block(*id, 4)).collect();
    let (index, mut plain) = one_stream(spec("0", 100));
    show(&mut plain, vec![stored(&[1, 2, 3], None, &prompt, Tier::Device)], 1);
    let mut paired = index.add_stream(spec("1", 100)).unwrap();
    show(&mut paired, vec![pairs(&[1, 2], None, &prompt[..9])], 1);
    let mut tree = BlockTree::new(4);
    let path = tree.insert(&ids, BlockPath::EMPTY);
    let whose = |spec: &crate::kv::index::StreamSpec| {
        let worker: WorkerId = format!("P{}", spec.instance).parse().unwrap();
        Some(Followed { worker, origin: StreamOrigin::Static, endpoint: String::new() })
    };
    let mut lookup = IndexLookup::new(index, Box::new(whose), tokens);
    let mut found = Vec::new();
    lookup.lookup(&tree, path, &mut found);
    assert_eq!(found.iter().map(|hit| hit.device_tokens).collect::<Vec<_>>(), [12, 8]);
}
