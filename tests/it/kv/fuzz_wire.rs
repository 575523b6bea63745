//! Random and damaged bytes against the decoder and the framing: no panic, and no more memory than the bytes justify.
//!
//! Runs 2 seconds; `PDREPLAY_FUZZ_SECONDS` says how many otherwise.

use std::cell::Cell;
use std::time::{Duration, Instant};

use pdreplay::kv::wire::{DecodeOptions, Decoder, EncodeForm, Encoder, parse_live, parse_replay, parse_request};
use pdreplay::kv::{Dialect, EventBatch};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::batches;

/// Memory a decoded batch may hold a byte of payload: a hash of one byte takes 8 in a vector that may have doubled, an event
/// of 14 bytes takes 72, of which there may be room for twice as many.
const MOST_BYTES_A_BYTE: usize = 32;
const ROUND: u32 = 512;

/// How long to look.
fn fuzz_time() -> Duration {
    let seconds = std::env::var("PDREPLAY_FUZZ_SECONDS").ok();
    let seconds = seconds.map_or(2, |text| text.parse().expect("PDREPLAY_FUZZ_SECONDS is a number of seconds"));
    Duration::from_secs(seconds)
}

/// Payloads of all kinds: noise, batches of every release, and those damaged.
fn payload() -> impl Strategy<Value = Vec<u8>> {
    let whole = batches::form()
        .prop_flat_map(|form| batches::batch(form).prop_map(move |batch| Encoder::new(form).batch(&batch)));
    let damaged = (whole, vec(batches::damage(), 0..6)).prop_map(|(mut bytes, damages)| {
        damages.iter().for_each(|damage| damage.apply(&mut bytes));
        bytes
    });
    let noise = vec(any::<u8>(), 0..200);
    // Noise that begins as a batch does gets further.
    let headed = noise.clone().prop_map(|tail| {
        let mut bytes = vec![0x93, 0xcb, 0, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend(tail);
        bytes
    });
    prop_oneof![8 => damaged, 1 => noise, 1 => headed]
}

fn check(payloads: &[Vec<u8>], block_size: u32) -> Result<(), TestCaseError> {
    for dialect in [Dialect::Xllm, Dialect::Vllm, Dialect::Sglang] {
        let mut decoder = Decoder::new(DecodeOptions::new(dialect, block_size));
        for payload in payloads {
            match decoder.decode(payload) {
                Ok(batch) => sound(&batch, payload.len())?,
                Err(error) => {
                    prop_assert!(error.offset <= payload.len(), "{error}");
                    prop_assert!(error.to_string().len() < 500, "{error}");
                }
            }
        }
    }
    // What a socket hands over may be any number of frames.
    for count in 0..=payloads.len() {
        let _ = (parse_live(&payloads[..count]), parse_replay(&payloads[..count]), parse_request(&payloads[..count]));
    }
    Ok(())
}

/// What was decoded holds no more than its bytes justify, and is itself again after a way over the wire.
fn sound(batch: &EventBatch, length: usize) -> Result<(), TestCaseError> {
    prop_assert!(batch.memory_bytes() <= MOST_BYTES_A_BYTE * length, "{} bytes of {length}", batch.memory_bytes());
    prop_assert!(batch.events.len() + batch.ignored as usize <= length);
    let payload = Encoder::new(EncodeForm::XLLM).batch(batch);
    let again = Decoder::new(DecodeOptions::new(Dialect::Xllm, 1)).decode(&payload);
    prop_assert_eq!(again.map(|again| again.events), Ok(batch.events.clone()));
    Ok(())
}

/// Checks random values until the time is over.
pub fn fuzz<S: Strategy>(strategy: &S, check: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    let end = Instant::now() + fuzz_time();
    let config = ProptestConfig { cases: ROUND, failure_persistence: None, ..ProptestConfig::default() };
    let mut seeds = TestRunner::new(config.clone());
    let tried = Cell::new(0u64);
    let mut rounds = 0;
    while rounds == 0 || Instant::now() < end {
        // A runner that has run its cases runs no more: each round has one, and other random numbers.
        TestRunner::new_with_rng(config.clone(), seeds.new_rng())
            .run(strategy, |value| {
                tried.set(tried.get() + 1);
                check(value)
            })
            .unwrap_or_else(|failure| panic!("{failure}"));
        rounds += 1;
    }
    assert_eq!(tried.get(), rounds * u64::from(ROUND));
    println!("{} cases", tried.get());
}

#[test]
fn no_bytes_hurt_the_decoder() {
    fuzz(&(vec(payload(), 1..5), 0..20u32), |(payloads, block_size)| check(&payloads, block_size));
}
