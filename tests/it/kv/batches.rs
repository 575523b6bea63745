//! Random batches that every release can say, and damage to their bytes.

use pdreplay::kv::wire::{EncodeForm, HashForm};
use pdreplay::kv::{BlockRemoved, BlockStored, EngineHash, EventBatch, KvEvent, Tier};
use proptest::collection::vec;
use proptest::prelude::*;

/// A release, naming blocks in any way.
pub fn form() -> impl Strategy<Value = EncodeForm> {
    let hashes = prop_oneof![Just(HashForm::Unsigned), Just(HashForm::Signed), Just(HashForm::Bytes)];
    (prop::sample::select(EncodeForm::ALL.to_vec()), hashes).prop_map(|(form, hashes)| form.with_hashes(hashes))
}

/// A batch; in forms without media or rank it has none.
pub fn batch(form: EncodeForm) -> impl Strategy<Value = EventBatch> {
    let rank = if form.has_rank() { prop::option::of(any::<u32>()).boxed() } else { Just(None).boxed() };
    let timestamp = any::<i32>().prop_map(|millis| f64::from(millis) / 1e3);
    (timestamp, vec(event(form), 0..20), rank).prop_map(|(timestamp, events, dp_rank)| EventBatch {
        timestamp,
        events,
        dp_rank,
        ignored: 0,
    })
}

fn event(form: EncodeForm) -> impl Strategy<Value = KvEvent> {
    let tier =
        if form.has_media() { prop::sample::select(Tier::ALL.to_vec()).boxed() } else { Just(Tier::Device).boxed() };
    prop_oneof![
        4 => stored(tier.clone()).prop_map(KvEvent::Stored),
        2 => (hashes(), tier).prop_map(|(hashes, tier)| KvEvent::Removed(BlockRemoved { hashes, tier })),
        1 => Just(KvEvent::Cleared),
        1 => hashes().prop_map(|hashes| KvEvent::Foreign { hashes }),
    ]
}

fn stored(tier: impl Strategy<Value = Tier>) -> impl Strategy<Value = BlockStored> {
    let tokens = (1u32..20).prop_flat_map(|size| {
        let count = (0..4usize).prop_map(move |blocks| blocks * size as usize);
        (Just(size), any::<bool>(), count.prop_flat_map(|count| vec(token(), count..=count)), token())
    });
    (hashes(), prop::option::of(hash()), tokens, tier).prop_map(
        |(hashes, parent, (block_size, bigram, mut tokens, beyond), tier)| {
            let bigram = bigram && !tokens.is_empty();
            tokens.extend(bigram.then_some(beyond));
            BlockStored { hashes, parent, tokens, block_size, tier, bigram }
        },
    )
}

fn hashes() -> impl Strategy<Value = Vec<EngineHash>> {
    vec(hash(), 0..6)
}

/// All lengths of numbers, of either sign.
fn hash() -> impl Strategy<Value = EngineHash> {
    (any::<i64>(), 0..64u32).prop_map(|(bits, shift)| EngineHash((bits >> shift).cast_unsigned()))
}

fn token() -> impl Strategy<Value = u32> {
    (any::<u32>(), 0..32u32).prop_map(|(bits, shift)| bits >> shift)
}

/// A change to bytes. Places are taken modulo their length.
#[derive(Debug, Clone)]
pub enum Damage {
    Set(usize, u8),
    Flip(usize, u8),
    Cut(usize),
    Insert(usize, Vec<u8>),
    Remove(usize),
    /// Repeats what stands before the place, behind it.
    Repeat(usize, usize),
}

/// Some damage, often with bytes that announce much.
pub fn damage() -> impl Strategy<Value = Damage> {
    let heads = prop::sample::select(vec![
        vec![0xdd, 0xff, 0xff, 0xff, 0xff],
        vec![0xdf, 0x7f, 0xff, 0xff, 0xff],
        vec![0xc6, 0xff, 0xff, 0xff, 0xf0],
        vec![0xdb, 0x00, 0xff, 0xff, 0xff],
        vec![0xdc, 0xff, 0xff],
        vec![0xde, 0xff, 0xff],
        vec![0xc9, 0xff, 0xff, 0xff, 0xff, 0x01],
        vec![0x91; 200],
        vec![0x81; 200],
    ]);
    let place = any::<usize>;
    prop_oneof![
        3 => (place(), any::<u8>()).prop_map(|(at, byte)| Damage::Set(at, byte)),
        2 => (place(), 0..8u8).prop_map(|(at, bit)| Damage::Flip(at, bit)),
        1 => place().prop_map(Damage::Cut),
        1 => (place(), vec(any::<u8>(), 1..12)).prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
        2 => (place(), heads).prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
        1 => place().prop_map(Damage::Remove),
        1 => (place(), 1..64usize).prop_map(|(at, length)| Damage::Repeat(at, length)),
    ]
}

impl Damage {
    pub fn apply(&self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let length = bytes.len();
        match self {
            Damage::Set(at, byte) => bytes[at % length] = *byte,
            Damage::Flip(at, bit) => bytes[at % length] ^= 1 << bit,
            Damage::Cut(at) => bytes.truncate(at % length),
            Damage::Insert(at, piece) => drop(bytes.splice(at % length..at % length, piece.iter().copied())),
            Damage::Remove(at) => drop(bytes.remove(at % length)),
            Damage::Repeat(at, count) => {
                let at = at % length;
                let piece = bytes[at.saturating_sub(*count)..at].to_vec();
                bytes.splice(at..at, piece);
            }
        }
    }
}
