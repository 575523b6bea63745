//! Numbered cases: tests/data/kv/index.json, and bug cases 78 and 80 from the meaning of their frames.
//!
//! An event is written as xLLM does: a map with `type`. A query expects device and host-only hit tokens, their sum, and
//! blocks of the device and of the host.

use serde::Deserialize;

use super::{batch, removed, spec, stored};
use crate::kv::index::{PrefixIndex, StreamWriter};
use crate::kv::{EngineHash, KvEvent, Tier};

#[derive(Deserialize)]
struct Case {
    case: String,
    what: String,
    #[serde(default = "seed")]
    seed: u64,
    #[serde(default = "max_blocks")]
    max_blocks: usize,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Step {
    Delta { delta: Vec<Event>, invalid: Option<String> },
    Snapshot { snapshot: Vec<Event> },
    Invalidate { invalidate: String },
    Query { query: Vec<u32>, expect: [u64; 5] },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Event {
    Wire(Wire),
    Foreign { foreign: Vec<u64> },
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum Wire {
    BlockStored {
        block_hashes: Vec<u64>,
        parent_block_hash: Option<u64>,
        token_ids: Vec<u32>,
        block_size: u32,
        medium: Medium,
    },
    BlockRemoved {
        block_hashes: Vec<u64>,
        medium: Medium,
    },
    AllBlocksCleared,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Medium {
    Gpu,
    Cpu,
}

fn seed() -> u64 {
    1024
}

fn max_blocks() -> usize {
    1024
}

fn events(events: &[Event]) -> Vec<KvEvent> {
    events.iter().map(event).collect()
}

fn event(event: &Event) -> KvEvent {
    let tier = |medium: &Medium| match medium {
        Medium::Gpu => Tier::Device,
        Medium::Cpu => Tier::Host,
    };
    match event {
        Event::Foreign { foreign } => KvEvent::Foreign { hashes: foreign.iter().copied().map(EngineHash).collect() },
        Event::Wire(Wire::AllBlocksCleared) => KvEvent::Cleared,
        Event::Wire(Wire::BlockRemoved { block_hashes, medium }) => removed(block_hashes, tier(medium)),
        Event::Wire(Wire::BlockStored { block_hashes, parent_block_hash, token_ids, block_size, medium }) => {
            let mut event = stored(block_hashes, *parent_block_hash, token_ids, tier(medium));
            if let KvEvent::Stored(stored) = &mut event {
                stored.block_size = *block_size;
            }
            event
        }
    }
}

/// A query's answer for the only stream, as the cases write it.
fn asked(index: &PrefixIndex, tokens: &[u32]) -> [u64; 5] {
    let found = &index.query(tokens)[0];
    let (device, host_only) = super::hits(found);
    [device, host_only, found.reusable_tokens(), found.stream.device_blocks, found.stream.host_blocks]
}

fn play(step: &Step, index: &PrefixIndex, writer: &mut StreamWriter, sequence: u64, what: &str) {
    match step {
        Step::Query { query, expect } => assert_eq!(asked(index, query), *expect, "{what}"),
        Step::Invalidate { invalidate } => writer.invalidate(invalidate),
        Step::Snapshot { snapshot } => super::show(writer, events(snapshot), sequence),
        Step::Delta { delta, invalid } => {
            let outcome = writer.apply(&batch(events(delta)), sequence).map_err(|error| error.to_string());
            let refused = outcome.err().unwrap_or_default();
            let wanted = invalid.as_deref().unwrap_or_default();
            assert!(refused.contains(wanted) && refused.is_empty() == wanted.is_empty(), "{what}: {refused}");
        }
    }
    let unsynced = matches!(step, Step::Invalidate { .. } | Step::Delta { invalid: Some(_), .. });
    let status = &index.statuses()[0];
    if unsynced {
        assert!(!status.synchronized && status.error.is_some(), "{what}: {status:?}");
    } else if !matches!(step, Step::Query { .. }) {
        assert!(status.synchronized && status.error.is_none(), "{what}: {status:?}");
        assert_eq!(status.sequence, Some(sequence), "{what}");
    }
}

#[test]
fn every_numbered_case_holds() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("../../../../tests/data/kv/index.json")).unwrap();
    for case in &cases {
        let mut spec = spec("a", case.max_blocks);
        spec.space.hash_seed = case.seed;
        let (index, mut writer) = super::one_stream(spec);
        for (at, step) in case.steps.iter().enumerate() {
            let what = format!("{}, {}, step {at}", case.case, case.what);
            play(step, &index, &mut writer, at as u64 + 1, &what);
        }
    }
    for number in 1..=25 {
        assert!(cases.iter().any(|case| case.case == format!("IDX {number}")), "IDX {number} is missing");
    }
}

/// A line of a file of frames: a batch, or a question.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Live { meaning: Meaning },
    Query { query: Query, expect: Expect },
}

#[derive(Deserialize)]
struct Meaning {
    seq: u64,
    batch: (f64, Vec<Event>, u32),
}

#[derive(Deserialize)]
struct Query {
    token_ids: Vec<u32>,
}

#[derive(Deserialize)]
struct Expect {
    synchronized: bool,
    device_hit: Option<u64>,
    host_only_hit: Option<u64>,
    reusable: u64,
    device_blocks: Option<u64>,
    host_blocks: Option<u64>,
    reason: Option<String>,
}

/// Feeds a stream of `index` and asks what the lines ask.
fn follow(lines: &str, index: &PrefixIndex, writer: &mut StreamWriter) -> u32 {
    let mut asked = 0;
    super::show(writer, Vec::new(), 0);
    for line in lines.lines() {
        match serde_json::from_str(line).unwrap() {
            Line::Live { meaning } => {
                // A refusal shows in what is asked later.
                let _ = writer.apply(&batch(events(&meaning.batch.1)), meaning.seq);
            }
            Line::Query { query, expect } => {
                asked += 1;
                let found = index.query(&query.token_ids);
                let found = found.iter().find(|found| found.stream.id == writer.id()).unwrap();
                let Expect { synchronized, device_hit, host_only_hit, reusable, device_blocks, host_blocks, reason } =
                    expect;
                assert_eq!((found.stream.synchronized, found.reusable_tokens()), (synchronized, reusable));
                assert_eq!(found.device_hit_tokens, device_hit.unwrap_or(reusable));
                assert_eq!(found.host_only_hit_tokens, host_only_hit.unwrap_or(0));
                assert_eq!(found.stream.device_blocks, device_blocks.unwrap_or(found.stream.device_blocks));
                assert_eq!(found.stream.host_blocks, host_blocks.unwrap_or(found.stream.host_blocks));
                let error = found.stream.error.as_deref().unwrap_or_default();
                assert!(error.contains(&reason.unwrap_or_default()), "{error}");
            }
        }
    }
    asked
}

#[test]
fn case_78_a_copy_in_host_memory_survives_the_removal_from_the_device() {
    let (index, mut writer) = super::one_stream(spec("a", 1024));
    let lines = include_str!("../../../../tests/data/cases/78-device-and-host-copies/frames.jsonl");
    assert_eq!(follow(lines, &index, &mut writer), 2);
}

#[test]
fn case_80_a_stream_over_its_limit_says_so_and_leaves_the_others_alone() {
    let (index, mut first) = super::one_stream(spec("one", 8));
    let mut second = index.add_stream(spec("two", 8)).unwrap();
    let [lines_1, lines_2] = [
        include_str!("../../../../tests/data/cases/80-index-size-limit/frames-1.jsonl"),
        include_str!("../../../../tests/data/cases/80-index-size-limit/frames-2.jsonl"),
    ];
    assert_eq!(follow(lines_1, &index, &mut first), 1);
    assert_eq!(follow(lines_2, &index, &mut second), 1);
    assert_eq!(first.status().mappings, 0);
    assert_eq!(index.blocks(), 2, "the memory of the first stream is released");
}
