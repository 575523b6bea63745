//! Cost of the prefix index: from an engine's bytes to the index, applying stores and removals alone, asking for a long
//! prompt among 64 streams (idle, and while one of them changes at full speed), and memory per block.
//! `cargo bench --bench kv_index -- [bytes | apply | query | memory]… [FORM]… [BLOCK SIZE]…`, as in `bytes xllm 128`.
//!
//! Streams are of agents' sessions: a shared beginning, then blocks of their own. Throughput is the median of several runs
//! by the wall clock, and by the time of the processor, which other work on the machine touches less; percentiles for
//! queries, growth of the resident set for memory (Linux).

#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "a benchmark reads the clock and prints")]

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pdreplay::kv::index::{HashSpace, PrefixIndex, StreamSpec, StreamWriter};
use pdreplay::kv::wire::{DecodeOptions, Decoder, EncodeForm, Encoder};
use pdreplay::kv::{BlockRemoved, BlockStored, EngineHash, EventBatch, KvEvent, Tier};

type Outcome = Result<(), Box<dyn Error>>;

/// What may be asked for.
const PARTS: &[&str] = &["bytes", "apply", "query", "memory"];
/// Block sizes that may be asked for.
const SIZES: &[&str] = &["16", "128"];
/// Blocks in an event.
const RUN: usize = 16;
/// Blocks in a chain before a new one begins.
const CHAIN: usize = 512;
/// Blocks of the applying benchmarks.
const BLOCKS: usize = 200_000;
const ROUNDS: usize = 7;
/// Blocks in a message of bytes.
const MESSAGE: usize = 64;
const STREAMS: u32 = 64;
const PROMPT_TOKENS: usize = 100_000;
const QUERIES: usize = 3_000;
const MEMORY_BLOCKS: usize = 10_000_000;
const MEMORY_STREAMS: usize = 40;

fn main() -> Outcome {
    let asked: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    // Words narrow what is measured, each group for itself.
    let one_of = |group: &[&str], name: &str| {
        let mut named = asked.iter().filter(|arg| group.contains(&arg.as_str())).peekable();
        named.peek().is_none() || named.any(|arg| arg == name)
    };
    let forms = [EncodeForm::XLLM, EncodeForm::VLLM_0_16, EncodeForm::VLLM_0_26, EncodeForm::SGLANG_0_5_22];
    let names = forms.map(|form| form.name());
    if let Some(unknown) = asked.iter().find(|arg| ![PARTS, &names, SIZES].concat().contains(&arg.as_str())) {
        return Err(format!("unknown: {unknown}; one of {PARTS:?}, {names:?}, {SIZES:?}").into());
    }
    let wanted = |name: &str| one_of(PARTS, name);
    // First, while the resident set is small and holds nothing that could be used again.
    if wanted("memory") {
        memory()?;
    }
    for block_size in [16, 128] {
        if !one_of(SIZES, &block_size.to_string()) {
            continue;
        }
        if wanted("bytes") {
            for form in forms.into_iter().filter(|form| one_of(&names, form.name())) {
                bytes(form, block_size, 1)?;
                bytes(form, block_size, RUN)?;
            }
        }
        if wanted("apply") {
            apply(block_size)?;
        }
        if wanted("query") {
            query(block_size)?;
        }
    }
    Ok(())
}

fn spec(name: u32, block_size: u32) -> StreamSpec {
    StreamSpec {
        instance: format!("worker-{name:03}"),
        dp_rank: 0,
        space: HashSpace { block_size, hash_seed: 1024 },
        max_blocks: 1 << 20,
        incarnation: None,
        register_ts_ms: None,
    }
}

fn batch(events: Vec<KvEvent>) -> EventBatch {
    EventBatch { timestamp: 0.0, events, dp_rank: None, ignored: 0 }
}

/// A synchronised, empty stream.
fn stream(index: &PrefixIndex, name: u32, block_size: u32) -> Result<StreamWriter, Box<dyn Error>> {
    let mut writer = index.add_stream(spec(name, block_size))?;
    let shadow = writer.shadow();
    writer.replace_by(shadow, 0);
    Ok(writer)
}

/// Engine hashes as engines make them: anywhere in 64 bits.
fn engine_hash(stream: u32, block: usize) -> EngineHash {
    let seed = (u64::from(stream) << 40 | block as u64).wrapping_add(1);
    EngineHash(
        (seed ^ seed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(31).wrapping_mul(0x94d0_49bb_1331_11eb),
    )
}

/// Blocks `blocks` of a stream as stores of [`RUN`]; `tokens` names the tokens of a block.
fn stores(
    stream: u32,
    blocks: std::ops::Range<usize>,
    block_size: u32,
    tokens: impl Fn(usize) -> u32,
) -> Vec<EventBatch> {
    stored(stream, blocks, block_size, RUN, tokens).map(|event| batch(vec![event])).collect()
}

fn stored(
    stream: u32,
    blocks: std::ops::Range<usize>,
    block_size: u32,
    run: usize,
    tokens: impl Fn(usize) -> u32,
) -> impl Iterator<Item = KvEvent> {
    let starts = blocks.clone().step_by(run);
    let event = move |start: usize| {
        let run = start..(start + run).min(blocks.end);
        KvEvent::Stored(BlockStored {
            hashes: run.clone().map(|block| engine_hash(stream, block)).collect(),
            parent: (!start.is_multiple_of(CHAIN)).then(|| engine_hash(stream, start - 1)),
            tokens: run.flat_map(|block| tokens_from(tokens(block), block_size)).collect(),
            block_size,
            tier: Tier::Device,
            bigram: false,
        })
    };
    starts.map(event)
}

fn tokens_from(first: u32, block_size: u32) -> impl Iterator<Item = u32> {
    (0..block_size).map(move |at| first.wrapping_add(at))
}

fn removals(stream: u32, blocks: std::ops::Range<usize>) -> Vec<EventBatch> {
    let all: Vec<EngineHash> = blocks.rev().map(|block| engine_hash(stream, block)).collect();
    let event = |run: &[EngineHash]| BlockRemoved { hashes: run.to_vec(), tier: Tier::Device };
    all.chunks(RUN).map(|run| batch(vec![KvEvent::Removed(event(run))])).collect()
}

fn own_tokens(stream: u32) -> impl Fn(usize) -> u32 {
    move |block| (block as u32).wrapping_mul(131).wrapping_add(stream << 24)
}

fn feed(writer: &mut StreamWriter, batches: &[EventBatch], sequence: &mut u64) -> Outcome {
    for batch in batches {
        *sequence += 1;
        writer.apply(batch, *sequence)?;
    }
    Ok(())
}

/// The whole path of one stream on one thread: a message decoded, then applied. Token ids as large as a vocabulary's.
fn bytes(form: EncodeForm, block_size: u32, run: usize) -> Outcome {
    let tokens = |block: usize| engine_hash(0, block).0 as u32 % 150_000;
    let events: Vec<KvEvent> = stored(0, 0..BLOCKS, block_size, run, tokens).collect();
    let encoder = Encoder::new(form);
    let messages: Vec<Vec<u8>> =
        events.chunks(MESSAGE / run).map(|some| encoder.batch(&batch(some.to_vec()))).collect();
    let mut seconds = Vec::new();
    for _ in 0..ROUNDS {
        let index = PrefixIndex::new();
        let mut writer = stream(&index, 0, block_size)?;
        let options = DecodeOptions { dp_rank: Some(0), ..DecodeOptions::new(form.dialect(), block_size) };
        let mut decoder = Decoder::new(options);
        let began = Start::now();
        for (sequence, message) in (1..).zip(&messages) {
            let batch = decoder.decode(message)?;
            writer.apply(&batch, sequence)?;
            decoder.reuse(batch);
        }
        seconds.push(began.elapsed());
        assert_eq!(index.statuses()[0].device_blocks, BLOCKS as u64);
    }
    println!(
        "bytes to index, {:<14} blocks of {block_size:3} tokens, {run:2} an event: {} million blocks/s",
        form.name(),
        rate(seconds)
    );
    Ok(())
}

fn apply(block_size: u32) -> Outcome {
    let stores = stores(0, 0..BLOCKS, block_size, own_tokens(0));
    let removals = removals(0, 0..BLOCKS);
    let (mut store, mut again, mut remove) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let index = PrefixIndex::new();
        let mut writer = stream(&index, 0, block_size)?;
        let mut sequence = 0;
        for (batches, seconds) in [(&stores, &mut store), (&stores, &mut again), (&removals, &mut remove)] {
            let began = Start::now();
            feed(&mut writer, batches, &mut sequence)?;
            seconds.push(began.elapsed());
        }
    }
    println!(
        "apply, blocks of {block_size:3} tokens, {RUN} an event: store {}, store again {}, remove {} million blocks/s",
        rate(store),
        rate(again),
        rate(remove)
    );
    Ok(())
}

/// When something began, on both clocks.
struct Start {
    wall: Instant,
    processor: f64,
}

impl Start {
    fn now() -> Start {
        Start { wall: Instant::now(), processor: processor_seconds() }
    }

    /// Seconds since then: wall, processor.
    fn elapsed(self) -> [f64; 2] {
        [self.wall.elapsed().as_secs_f64(), processor_seconds() - self.processor]
    }
}

/// Processor time of this process so far.
fn processor_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Million blocks a second of the round in the middle, by each clock.
fn rate(rounds: Vec<[f64; 2]>) -> String {
    let [wall, processor] = [0, 1].map(|clock| {
        let mut seconds: Vec<f64> = rounds.iter().map(|round| round[clock]).collect();
        seconds.sort_by(f64::total_cmp);
        BLOCKS as f64 / seconds[seconds.len() / 2] / 1e6
    });
    format!("{wall:.2} ({processor:.2} by processor time)")
}

/// Each of 64 streams holds a part of one prompt of 100,000 tokens, the last ones all of it, and a session of its own.
fn query(block_size: u32) -> Outcome {
    let index = PrefixIndex::new();
    let whole = PROMPT_TOKENS / block_size as usize;
    let prompt_tokens = |block: usize| block as u32 * 977;
    let prompt: Vec<u32> =
        (0..whole).flat_map(|block| (0..block_size).map(move |at| prompt_tokens(block).wrapping_add(at))).collect();
    let mut writers = Vec::new();
    for name in 0..STREAMS {
        let mut writer = stream(&index, name, block_size)?;
        let held = whole * (name as usize + 1) / STREAMS as usize;
        let mut sequence = 0;
        let mut parent = None;
        for start in (0..held).step_by(RUN) {
            let run = start..(start + RUN).min(held);
            let stored = BlockStored {
                hashes: run.clone().map(|block| engine_hash(1000, block)).collect(),
                parent,
                tokens: prompt[run.start * block_size as usize..run.end * block_size as usize].to_vec(),
                block_size,
                tier: Tier::Device,
                bigram: false,
            };
            parent = stored.hashes.last().copied();
            feed(&mut writer, &[batch(vec![KvEvent::Stored(stored)])], &mut sequence)?;
        }
        feed(&mut writer, &stores(name, 0..2 * whole, block_size, own_tokens(name)), &mut sequence)?;
        writers.push((writer, sequence));
    }
    let idle = percentiles(&index, &prompt);
    let stop = AtomicBool::new(false);
    let (busy, changed) = std::thread::scope(|scope| -> Result<_, Box<dyn Error>> {
        let (writer, sequence) = writers.last_mut().ok_or("no stream")?;
        let stop = &stop;
        let writing = scope.spawn(move || churn(writer, sequence, block_size, stop));
        let busy = percentiles(&index, &prompt);
        stop.store(true, Ordering::Relaxed);
        Ok((busy, writing.join().map_err(|_| "the writer died")??))
    })?;
    println!(
        "query of {PROMPT_TOKENS} tokens, {STREAMS} streams, blocks of {block_size:3}: p50 {:?}, p99 {:?}; while one stream \
         changes ({changed:.2} million blocks/s): p50 {:?}, p99 {:?}",
        idle[0], idle[1], busy[0], busy[1]
    );
    Ok(())
}

/// Stores and removes sessions until told to stop; million blocks a second.
fn churn(writer: &mut StreamWriter, sequence: &mut u64, block_size: u32, stop: &AtomicBool) -> Result<f64, String> {
    let fresh = 2048 * CHAIN..2080 * CHAIN;
    let rounds = [stores(63, fresh.clone(), block_size, own_tokens(63)), removals(63, fresh.clone())];
    let (mut blocks, began) = (0, Instant::now());
    while !stop.load(Ordering::Relaxed) {
        for batches in &rounds {
            feed(writer, batches, sequence).map_err(|error| error.to_string())?;
            blocks += fresh.len();
        }
    }
    Ok(blocks as f64 / began.elapsed().as_secs_f64() / 1e6)
}

fn percentiles(index: &PrefixIndex, prompt: &[u32]) -> [Duration; 2] {
    let mut times: Vec<Duration> = (0..QUERIES)
        .map(|_| {
            let began = Instant::now();
            let found = index.query(prompt);
            let took = began.elapsed();
            assert_eq!(found.len(), STREAMS as usize);
            assert!(found[STREAMS as usize - 1].reusable_tokens() as usize + 128 > PROMPT_TOKENS);
            took
        })
        .collect();
    times.sort_unstable();
    [times[QUERIES / 2], times[QUERIES * 99 / 100]]
}

fn memory() -> Outcome {
    let index = PrefixIndex::new();
    let before = resident_bytes()?;
    let mut writers = Vec::new();
    let each = MEMORY_BLOCKS / MEMORY_STREAMS;
    for name in 0..MEMORY_STREAMS as u32 {
        let mut writer = stream(&index, name, 1)?;
        let mut sequence = 0;
        for start in (0..each).step_by(CHAIN) {
            let some = start..(start + CHAIN).min(each);
            feed(&mut writer, &stores(name, some, 1, own_tokens(name)), &mut sequence)?;
        }
        writers.push(writer);
    }
    let blocks: u64 = index.statuses().iter().map(|status| status.device_blocks).sum();
    assert_eq!(blocks, MEMORY_BLOCKS as u64);
    let each = (resident_bytes()? - before) / blocks as f64;
    println!(
        "memory, {blocks} blocks in {MEMORY_STREAMS} streams: {each:.1} bytes a block, {:.1} beyond the keys",
        each - 24.0
    );
    Ok(())
}

fn resident_bytes() -> Result<f64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").trim().parse::<f64>()? * 1024.0)
}
