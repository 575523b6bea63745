//! `traces/sample-6.jsonl` is made by the rule below, and this test holds it to the rule.
//!
//! Six small coding-agent-like sessions: a shared opening of 4 blocks, prompts that append answer and tool output, one
//! session that compacts its context once. To make the file anew, write what `sample()` gives.

use pdreplay::base::Rng;
use pdreplay::trace::{Assembler, ReadOptions, Row, Trace, TraceMeta, TraceStats, read_path, write_native};

const BLOCK: u32 = 64;
const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/traces/sample-6.jsonl");

fn sample() -> Trace {
    let mut assembler = Assembler::new(BLOCK);
    let mut fresh = 4u64;
    for session in 0..6u64 {
        let mut rng = Rng::new(6, session);
        let mut draw = |low: u64, high: u64| low + rng.below(high - low);
        let mut ids: Vec<u64> = (0..4).collect();
        let mut time_ms = session * 2_500 + draw(0, 1000);
        let mut input = draw(700, 1_400) as u32;
        for turn in 1..=draw(7, 12) as u32 {
            // Session 3 drops the middle of its context at turn 6.
            if (session, turn) == (3, 6) {
                input = 900 + input % 100;
                ids.truncate(4);
            }
            let output = draw(20, 200) as u32;
            while ids.len() < (input / BLOCK) as usize {
                ids.push(fresh);
                fresh += 1;
            }
            let row = Row {
                session_id: &format!("agent-{session}"),
                turn_id: turn,
                line: 0,
                timestamp_ns: time_ms * 1_000_000,
                input_length: input,
                output_length: output,
                output_raised: false,
                cached_tokens: None,
                hash_ids: Some(&ids),
                request_id: None,
            };
            assembler.push(row).expect("a good row");
            input += output + draw(60, 500) as u32;
            time_ms += 400 + u64::from(output) * 12 + draw(200, 4_000);
        }
    }
    let meta = TraceMeta {
        name: "sample-6".into(),
        source: "rule".into(),
        sha256: String::new(),
        format: "generated".into(),
        timestamp_unit: "s".into(),
        block_size: BLOCK,
        block_size_source: "format".into(),
        origin_ns: 0,
    };
    assembler.finish(meta).expect("a good trace")
}

#[test]
fn the_committed_sample_follows_its_rule() {
    let mut made = Vec::new();
    write_native(&sample(), &mut made).unwrap();
    let committed = std::fs::read(PATH).unwrap();
    assert!(made == committed, "traces/sample-6.jsonl differs from what its rule makes");
    assert!(committed.len() <= 40_000, "{}", committed.len());
}

#[test]
fn the_sample_reads_as_six_sessions() {
    let trace = read_path(PATH.as_ref(), &ReadOptions::default()).unwrap();
    let stats = TraceStats::of(&trace);
    assert_eq!((stats.sessions, stats.compactions, stats.incomplete_sessions), (6, 1, 0));
    assert_eq!(trace.meta.name, "sample-6");
}
