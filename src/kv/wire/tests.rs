//! Rules of the codec that no single vector shows: every form comes back as it went, and no input does harm.

use super::*;
use crate::kv::{BlockRemoved, BlockStored, Dialect, EngineHash, EventBatch, KvEvent, Tier};

fn stored(tier: Tier, tokens: &[u32]) -> KvEvent {
    KvEvent::Stored(BlockStored {
        hashes: vec![EngineHash(0x1111_1111_1111_1111), EngineHash(0xf222_2222_2222_2222)],
        parent: None,
        tokens: tokens.to_vec(),
        block_size: 4,
        tier,
        bigram: false,
    })
}

#[test]
fn every_form_comes_back_as_it_went() {
    let events = vec![
        stored(Tier::Device, &[1, 2, 3, 4, 5, 6, 7, 70_000]),
        KvEvent::Removed(BlockRemoved { hashes: vec![EngineHash(7)], tier: Tier::Device }),
        KvEvent::Cleared,
        KvEvent::Foreign { hashes: vec![EngineHash(9)] },
    ];
    for form in EncodeForm::ALL {
        let batch =
            EventBatch { timestamp: 1.5, events: events.clone(), dp_rank: form.has_rank().then_some(3), ignored: 0 };
        let payload = Encoder::new(form).batch(&batch);
        let decoded = Decoder::new(DecodeOptions::new(form.dialect(), 4)).decode(&payload);
        assert_eq!(decoded, Ok(batch), "{}", form.name());
    }
    assert_eq!(EncodeForm::current(Dialect::Vllm), EncodeForm::VLLM_0_26);
}
