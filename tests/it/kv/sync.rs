//! The machine of a stream: cases SEQ 1 to 18 and more from tests/data/kv/sequence.json, and the bug cases that are frames.
//!
//! In `sequence.json` all is of one chain of blocks of 4 tokens: block `n` is number `100 + n`, behind block `n - 1`, of the
//! tokens `4n-3 ..= 4n`. `live` and `reply` are batches by sequence number; `raw` are frames behind the topic.

use std::fs;
use std::path::{Path, PathBuf};

use pdreplay::base::Dur;
use pdreplay::kv::sync::{SyncInput, SyncOptions, SyncReason, SyncState};
use pdreplay::kv::wire::{end_frames, live_frames, parse_live, replay_frames};
use pdreplay::kv::{Dialect, KvEvent, Tier};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::driver::{Driver, batch, payload, removed, reply_topic, spec, stored};
use crate::run::{case_path, root};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    case: String,
    what: String,
    #[serde(default)]
    dialect: Option<Dialect>,
    #[serde(default)]
    recovery: Option<String>,
    #[serde(default)]
    topic: String,
    #[serde(default)]
    max_blocks: Option<usize>,
    #[serde(default)]
    streams: Option<u32>,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    #[serde(default)]
    stream: usize,
    #[serde(flatten)]
    what: What,
    #[serde(default)]
    events: Vec<Event>,
    #[serde(default)]
    rank: u32,
    timestamp: Option<f64>,
    topic: Option<String>,
    /// Bytes of the payload, with an unknown field that fills it up.
    pad_to: Option<usize>,
    /// Of a reply; else as the stream's.
    reply_topic: Option<String>,
    /// Answers this request, not the last.
    attempt: Option<u32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum What {
    Connected(IgnoredAny),
    Disconnected(String),
    Closed(IgnoredAny),
    Live(u64),
    TooLarge(u64),
    Raw(Vec<String>),
    Reply(u64),
    RawReply(Vec<String>),
    ReplayFailed(String),
    End(IgnoredAny),
    WaitMs(u64),
    Expect(Box<Expect>),
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Event {
    Store(Vec<u64>),
    Remove(Vec<u64>),
    Clear,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    synced: Option<bool>,
    sequence: Option<u64>,
    hits: Option<u64>,
    reason: Option<String>,
    error: Option<String>,
    asks: Option<Vec<u64>>,
    news: Option<Vec<String>>,
    gaps: Option<u64>,
    restarts: Option<u64>,
    foreign: Option<u64>,
    notice: Option<String>,
    buffered: Option<usize>,
    reconnects: Option<u64>,
}

impl Case {
    fn options(&self) -> SyncOptions {
        let mut options = SyncOptions::new(self.dialect.unwrap_or(Dialect::Xllm));
        options.topic.clone_from(&self.topic);
        if let Some(recovery) = &self.recovery {
            options.recovery = serde_json::from_value(recovery.as_str().into()).unwrap();
        }
        options
    }
}

impl Step {
    fn payload(&self, options: &SyncOptions, sequence: u64) -> Vec<u8> {
        let timestamp = self.timestamp.unwrap_or(1.0 + sequence as f64 / 1e3);
        let bytes = payload(options, &batch(timestamp, self.rank, self.events.iter().map(event).collect()));
        let Some(wanted) = self.pad_to else { return bytes };
        // A fourth element of the batch, which readers pass over.
        let mut padded = vec![0x94];
        padded.extend(&bytes[1..]);
        let rest = wanted - padded.len() - 5;
        padded.push(0xc6);
        padded.extend((rest as u32).to_be_bytes());
        padded.resize(wanted, 0);
        padded
    }
}

fn event(event: &Event) -> KvEvent {
    let hashes = |blocks: &[u64]| blocks.iter().map(|block| 100 + block).collect::<Vec<_>>();
    match event {
        Event::Clear => KvEvent::Cleared,
        Event::Remove(blocks) => removed(&hashes(blocks), Tier::Device),
        Event::Store(blocks) => {
            let first = blocks[0];
            let tokens = (4 * first as u32 - 3..).take(4 * blocks.len()).collect();
            stored(&hashes(blocks), (first > 1).then_some(99 + first), tokens, Tier::Device)
        }
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn take(driver: &mut Driver, options: &SyncOptions, step: &Step, name: &str) {
    let stream = step.stream;
    match &step.what {
        What::Connected(_) => driver.input(stream, SyncInput::Connected),
        What::Disconnected(why) => driver.input(stream, SyncInput::Disconnected(why)),
        What::Closed(_) => driver.input(stream, SyncInput::Closed),
        What::TooLarge(bytes) => driver.input(stream, SyncInput::TooLarge { bytes: *bytes }),
        What::Live(sequence) => {
            let topic = step.topic.as_deref().unwrap_or(&options.topic);
            let frames = live_frames(topic, *sequence, step.payload(options, *sequence));
            driver.input(stream, SyncInput::Live(&frames));
        }
        What::Raw(frames) => {
            let frames: Vec<_> = frames.iter().map(|hex| bytes(hex)).collect();
            driver.input(stream, SyncInput::Live(&frames));
        }
        What::Reply(_) | What::RawReply(_) | What::End(_) => {
            let frames = match &step.what {
                What::Reply(sequence) => {
                    let topic = step.reply_topic.as_deref().or(reply_topic(options));
                    replay_frames(topic, *sequence, step.payload(options, *sequence))
                }
                What::RawReply(frames) => frames.iter().map(|hex| bytes(hex)).collect(),
                _ => end_frames(reply_topic(options)),
            };
            let attempt = step.attempt.unwrap_or(driver.said(stream).attempt);
            driver.input(stream, SyncInput::Replay { attempt, frames: &frames });
        }
        What::ReplayFailed(why) => {
            let attempt = driver.said(stream).attempt;
            driver.input(stream, SyncInput::ReplayFailed { attempt, why });
        }
        What::WaitMs(ms) => driver.wait(Dur::from_millis(*ms)),
        What::Expect(expect) => check(driver, stream, expect, name),
    }
}

fn check(driver: &mut Driver, stream: usize, expect: &Expect, name: &str) {
    let report = driver.report(stream);
    let found = driver.query(stream, &(1..=40).collect::<Vec<_>>());
    let said = driver.said(stream);
    let name = format!("{name}: {report:#?}\n{:#?}", said.changes);
    if let Some(synced) = expect.synced {
        assert_eq!(report.state == SyncState::Synced, synced, "{name}");
        assert_eq!(found.stream.synchronized, synced, "{name}");
        assert_eq!(found.stream.error.is_some(), !synced, "{name}");
    }
    if let Some(hits) = expect.hits {
        assert_eq!(found.reusable_tokens(), hits, "{name}");
    }
    if expect.sequence.is_some() {
        assert_eq!(found.stream.sequence, expect.sequence, "{name}");
    }
    if let Some(reason) = &expect.reason {
        assert_eq!(report.reason.as_str(), reason, "{name}");
    }
    if let Some(error) = &expect.error {
        assert!(found.stream.error.as_ref().is_some_and(|found| found.contains(error)), "{name}");
    }
    if let Some(gaps) = expect.gaps {
        assert_eq!(report.stats.gaps, gaps, "{name}");
    }
    if let Some(restarts) = expect.restarts {
        assert_eq!(report.stats.restarts, restarts, "{name}");
    }
    if let Some(foreign) = expect.foreign {
        assert_eq!(report.stats.foreign, foreign, "{name}");
    }
    if let Some(notice) = &expect.notice {
        assert!(report.notice.as_ref().is_some_and(|found| found.contains(notice)), "{name}");
    }
    if let Some(buffered) = expect.buffered {
        assert_eq!(report.stats.buffered_bytes, buffered, "{name}");
        assert!(report.stats.most_buffered_bytes > 8_000_000, "{name}");
    }
    if let Some(asks) = &expect.asks {
        assert_eq!(std::mem::take(&mut said.asks), *asks, "{name}");
    }
    if let Some(reconnects) = expect.reconnects {
        assert_eq!(std::mem::take(&mut said.reconnects), reconnects, "{name}");
    }
    if let Some(news) = &expect.news {
        let said = std::mem::take(&mut said.changes);
        let said: Vec<&str> = said.iter().filter(|change| !change.again).map(|change| change.reason.as_str()).collect();
        assert_eq!(said, *news, "{name}");
    }
}

#[test]
fn cases_seq_1_to_18_and_more() {
    let text = fs::read_to_string(root().join("tests/data/kv/sequence.json")).unwrap();
    let cases: Vec<Case> = serde_json::from_str(&text).unwrap();
    assert!(cases.len() > 50);
    for case in cases {
        let (mut driver, options) = (Driver::default(), case.options());
        for rank in 0..case.streams.unwrap_or(1) {
            driver.add(spec("w", rank, case.max_blocks.unwrap_or(1000)), options.clone());
        }
        for (at, step) in case.steps.iter().enumerate() {
            take(&mut driver, &options, step, &format!("{} ({}), step {at}", case.case, case.what));
        }
        let told: Vec<_> = driver.said(0).changes.iter().map(|change| (change.from, change.to)).collect();
        assert!(told.windows(2).all(|pair| pair[0].1 == pair[1].0), "{}: {told:?}", case.case);
    }
}

/// A bug case's frames as one stream of `driver`. The publisher answers the first request with its first batch, which
/// therefore arrives a second time, live.
fn play(driver: &mut Driver, file: &Path, max_blocks: usize) -> usize {
    let name = file.display().to_string();
    let stream = driver.add(spec(&name, 0, max_blocks), SyncOptions::new(Dialect::Xllm));
    driver.input(stream, SyncInput::Connected);
    let (begun, mut is_first) = (driver.now, true);
    for line in fs::read_to_string(file).unwrap().lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        if let Some(at) = line["at_ms"].as_u64() {
            driver.wait(Dur((begun + Dur::from_millis(at)).since(driver.now).ns()));
        }
        let frames = line["frames_hex"]
            .as_array()
            .map(|frames| frames.iter().map(|frame| bytes(frame.as_str().unwrap())).collect::<Vec<_>>());
        match (line["channel"].as_str(), line["publisher"].as_str(), frames) {
            (Some("live"), _, Some(frames)) => {
                if std::mem::take(&mut is_first) {
                    let first = parse_live(&frames).unwrap();
                    driver.reply(stream, &replay_frames(None, first.sequence, first.payload.to_vec()));
                    driver.reply(stream, &end_frames(None));
                }
                driver.input(stream, SyncInput::Live(&frames));
            }
            (Some("replay"), _, Some(frames)) => driver.reply(stream, &frames),
            (_, Some("closed"), _) => driver.input(stream, SyncInput::Disconnected("closed")),
            (_, Some(_), _) => driver.input(stream, SyncInput::Connected),
            _ => expect(driver, stream, &line, &name),
        }
    }
    stream
}

fn expect(driver: &Driver, stream: usize, line: &Value, name: &str) {
    let tokens: Vec<u32> = serde_json::from_value(line["query"]["token_ids"].clone()).unwrap();
    let found = driver.query(stream, &tokens);
    let expected = line["expect"].as_object().unwrap();
    for (key, value) in expected {
        let number = match key.as_str() {
            "synchronized" => {
                assert_eq!(Some(found.stream.synchronized), value.as_bool(), "{name}: {found:?}");
                continue;
            }
            "reason" => {
                let error = found.stream.error.as_ref().unwrap();
                assert!(error.contains(value.as_str().unwrap()), "{name}: {error}");
                continue;
            }
            "reusable" => found.reusable_tokens(),
            "device_hit" => found.device_hit_tokens,
            "host_only_hit" => found.host_only_hit_tokens,
            "device_blocks" => found.stream.device_blocks,
            "host_blocks" => found.stream.host_blocks,
            other => panic!("{name}: {other} is not known"),
        };
        assert_eq!(Some(number), value.as_u64(), "{name}: {key} of {found:?}");
    }
}

/// Plays all files of a case; what their streams are called.
fn play_case(case: &str) -> (Driver, Vec<usize>) {
    let folder = case_path(case);
    let mut files: Vec<PathBuf> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|ext| ext == "jsonl"));
    files.sort();
    assert!(!files.is_empty(), "{case} has no frames");
    let limits: Value =
        fs::read_to_string(folder.join("limits.json")).map_or(Value::Null, |text| serde_json::from_str(&text).unwrap());
    let max_blocks = limits["max_blocks_per_stream"].as_u64().unwrap_or(1000) as usize;
    let mut driver = Driver::default();
    let streams = files.iter().map(|file| play(&mut driver, file, max_blocks)).collect();
    (driver, streams)
}

#[test]
fn cases_74_75_77_and_78_hold_for_every_file_of_frames() {
    for case in [
        "74-events-as-maps-and-as-arrays",
        "75-hash-values-in-every-integer-form",
        "77-publisher-restarts-at-zero",
        "78-device-and-host-copies",
    ] {
        let (driver, streams) = play_case(case);
        for stream in streams {
            assert_eq!(driver.report(stream).state, SyncState::Synced, "{case}: a trouble of one is no other's");
        }
    }
}

#[test]
fn case_72_a_gap_asks_for_one_snapshot_and_is_counted() {
    let (mut driver, streams) = play_case("72-gap-in-sequence-numbers");
    let report = driver.report(streams[0]);
    assert_eq!((report.stats.gaps, report.stats.resyncs), (1, 1));
    // The gap at 20 ms, the end of the snapshot at 41 ms; before the first batch there was nothing to be in step with.
    assert_eq!(report.stats.unsynced, Dur::from_millis(21));
    let said = driver.said(streams[0]);
    assert_eq!(said.asks, [0, 0], "one for the start, one for the gap");
    let reasons: Vec<SyncReason> = said.changes.iter().map(|change| change.reason).collect();
    assert_eq!(reasons, [SyncReason::Connected, SyncReason::Snapshot, SyncReason::Gap, SyncReason::Snapshot]);
}

#[test]
fn case_80_the_limit_ends_one_stream_in_words_and_frees_its_memory() {
    let (driver, streams) = play_case("80-index-size-limit");
    let [first, second] = streams[..] else { panic!("two streams") };
    let report = driver.report(first);
    assert_eq!(report.reason, SyncReason::IndexLimit);
    assert!(report.stats.last_error.unwrap().contains("max_blocks_per_stream"));
    assert_eq!((report.status.device_blocks, report.status.mappings), (0, 0));
    assert_eq!(driver.query(second, &[1, 2, 3, 4, 5, 6, 7, 8]).reusable_tokens(), 8);
    assert_eq!(driver.subscriber.index().blocks(), 2, "of the second stream alone");
}

#[test]
fn a_million_stores_and_removals_under_the_limit_stay_flat() {
    let mut driver = Driver::default();
    let options = SyncOptions::new(Dialect::Xllm);
    let stream = driver.add(spec("w", 0, 64), options.clone());
    driver.input(stream, SyncInput::Connected);
    let empty = payload(&options, &batch(1.0, 0, Vec::new()));
    driver.reply(stream, &replay_frames(None, 0, empty));
    driver.reply(stream, &end_frames(None));
    for round in 1..=10_000_u64 {
        let pairs = (round * 100..round * 100 + 100).flat_map(|block| {
            [stored(&[block], None, vec![block as u32; 4], Tier::Device), removed(&[block], Tier::Device)]
        });
        let bytes = payload(&options, &batch(2.0, 0, pairs.collect()));
        driver.input(stream, SyncInput::Live(&live_frames("", round, bytes)));
    }
    let report = driver.report(stream);
    assert_eq!((report.state, report.status.sequence), (SyncState::Synced, Some(10_000)));
    assert_eq!((report.stats.events, report.stats.blocks), (2_000_000, 2_000_000));
    assert!(report.status.mappings <= 64 && driver.subscriber.index().blocks() <= 64, "{report:?}");
}

/// Each way in which a batch that can be read cannot be applied, in step and behind a snapshot, and one that cannot be read.
#[test]
fn a_live_batch_that_cannot_be_read_or_applied_is_counted_once() {
    let options = SyncOptions::new(Dialect::Xllm);
    let with_size = |size: u32| {
        let KvEvent::Stored(event) = stored(&[102], Some(101), (5..9).collect(), Tier::Device) else { unreachable!() };
        KvEvent::Stored(pdreplay::kv::BlockStored { block_size: size, ..event })
    };
    let kinds = [
        ("block-shape", with_size(8)),
        ("block-shape", stored(&[102, 103], Some(101), (5..12).collect(), Tier::Device)),
        ("unknown-parent", stored(&[900], Some(899), (5..9).collect(), Tier::Device)),
        ("unknown-parent", stored(&[900], None, vec![], Tier::Host)),
        ("conflict", stored(&[101], None, (50..54).collect(), Tier::Device)),
        ("index-limit", stored(&[102, 103], Some(101), (5..13).collect(), Tier::Device)),
    ];
    let good = || batch(1.0, 0, vec![stored(&[101], None, (1..5).collect(), Tier::Device)]);
    for (reason, bad) in kinds {
        for is_in_step in [true, false] {
            let mut driver = Driver::default();
            let stream = driver.add(spec("w", 0, 2), options.clone());
            driver.input(stream, SyncInput::Connected);
            let live = |driver: &mut Driver, sequence| {
                let frames = live_frames("", sequence, payload(&options, &batch(1.0, 0, vec![bad.clone()])));
                driver.input(stream, SyncInput::Live(&frames));
            };
            if !is_in_step {
                live(&mut driver, 5);
                assert_eq!(driver.report(stream).stats.refused, 0, "it waits");
            }
            driver.reply(stream, &replay_frames(None, 4, payload(&options, &good())));
            driver.reply(stream, &end_frames(None));
            if is_in_step {
                assert_eq!(driver.report(stream).state, SyncState::Synced);
                live(&mut driver, 5);
            }
            let report = driver.report(stream);
            assert_eq!((report.reason.as_str(), report.stats.refused), (reason, 1), "in step: {is_in_step}");
            assert_eq!(report.state, SyncState::Unsynced);
        }
    }
    // Nothing is asked for, and the batch states all by itself but for its flaw.
    let none = SyncOptions { recovery: pdreplay::kv::Recovery::None, ..options.clone() };
    let mut driver = Driver::default();
    let stream = driver.add(spec("w", 0, 2), none);
    driver.input(stream, SyncInput::Connected);
    for (sequence, events) in [(7, vec![KvEvent::Cleared, with_size(8)]), (8, vec![with_size(4)])] {
        let frames = live_frames("", sequence, payload(&options, &batch(1.0, 0, events)));
        driver.input(stream, SyncInput::Live(&frames));
    }
    assert_eq!(driver.report(stream).stats.refused, 1, "the other one says nothing by itself");
}
