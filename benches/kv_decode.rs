//! Speed of decoding KV events, in MB/s of payload and blocks a second, one thread.
//!
//! Batches of 64 stored events, a block each, of token ids as a vocabulary of 150,000 spreads them. Prints the median of
//! several rounds for blocks of 16 and 128 tokens, for a form with maps and one with arrays of each dialect that has it:
//! `cargo bench --bench kv_decode`.

#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "a benchmark reads the clock and prints")]

use std::hint::black_box;
use std::time::Instant;

use pdreplay::kv::wire::{DecodeOptions, Decoder, EncodeForm, Encoder};
use pdreplay::kv::{BlockStored, EngineHash, EventBatch, KvEvent, Tier};

const EVENTS: u64 = 64;
const VOCABULARY: u64 = 150_000;
const ROUNDS: usize = 9;
const BLOCKS_A_ROUND: u64 = 200_000;

/// Numbers that look random and are the same each time.
fn spread(number: u64) -> u64 {
    let mixed = (number ^ number >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

fn stored(block: u64, block_size: u32) -> KvEvent {
    let tokens = (0..u64::from(block_size)).map(|at| ((spread(block << 16 | at) >> 20) % VOCABULARY) as u32);
    KvEvent::Stored(BlockStored {
        hashes: vec![EngineHash(spread(block))],
        parent: block.checked_sub(1).map(|before| EngineHash(spread(before))),
        tokens: tokens.collect(),
        block_size,
        tier: Tier::Device,
        bigram: false,
    })
}

fn measure(form: EncodeForm, block_size: u32) {
    let events = (0..EVENTS).map(|block| stored(block, block_size)).collect();
    let batch = EventBatch { timestamp: 1.5, events, dp_rank: Some(0), ignored: 0 };
    let payload = Encoder::new(form).batch(&batch);
    let options = DecodeOptions { dp_rank: Some(0), ..DecodeOptions::new(form.dialect(), block_size) };
    let mut decoder = Decoder::new(options);
    let batches = BLOCKS_A_ROUND / EVENTS;
    let mut samples = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..batches {
            let decoded = decoder.decode(black_box(&payload)).expect("our own bytes");
            assert_eq!(black_box(&decoded).events.len() as u64, EVENTS);
            decoder.reuse(decoded);
        }
        samples.push(start.elapsed().as_secs_f64());
    }
    samples.sort_by(f64::total_cmp);
    let seconds = samples[ROUNDS / 2];
    println!(
        "{:<14} {block_size:>4} tokens {:>5} bytes/event {:>7.0} MB/s {:>7.2} M blocks/s",
        form.name(),
        payload.len() as u64 / EVENTS,
        (payload.len() as u64 * batches) as f64 / 1e6 / seconds,
        (batches * EVENTS) as f64 / 1e6 / seconds
    );
}

fn main() {
    for block_size in [16, 128] {
        for form in [EncodeForm::XLLM, EncodeForm::VLLM_0_16, EncodeForm::VLLM_0_26, EncodeForm::SGLANG_0_5_22] {
            measure(form, block_size);
        }
    }
}
