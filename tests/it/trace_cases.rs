//! Areas A and B of the bug cases: what a trace file may look like, and what it means.
//!
//! Reads the case inputs of tests/data, and the real traces of `../shared` when they are there; says so when they are not.

use std::path::PathBuf;

use pdreplay::base::SessionIx;
use pdreplay::trace::{ReadOptions, TimeUnit, Trace, TraceError, TraceStats, ideal_hits, read_path, write_native};

use crate::run::case_path;

#[allow(clippy::print_stdout, reason = "a skipped test says so")]
fn shared(path: &str) -> Option<PathBuf> {
    let found = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared")).join(path);
    if !found.exists() {
        println!("skipped: ../shared/{path} is missing");
        return None;
    }
    Some(found)
}

fn case(path: &str, options: &ReadOptions) -> Option<Result<Trace, TraceError>> {
    Some(read_path(&case_path(path), options))
}

fn good(path: &str) -> Option<Trace> {
    case(path, &ReadOptions::default()).map(|read| read.expect("a good trace"))
}

fn refused(path: &str) -> Option<String> {
    case(path, &ReadOptions::default()).map(|read| read.expect_err("a bad trace").to_string())
}

fn seconds(trace: &Trace) -> Vec<f64> {
    trace.turns.iter().map(|turn| turn.timestamp.as_secs_f64()).collect()
}

fn notice<'t>(trace: &'t Trace, code: &str) -> &'t str {
    trace.notices.iter().find(|notice| notice.code == code).map_or("", |notice| notice.text.as_str())
}

#[test]
fn case_01_bom_and_02_line_endings() {
    for (path, last_line) in [("01-bom-first-line/trace.jsonl", 3), ("02-crlf-and-blank-lines/trace.jsonl", 5)] {
        let Some(trace) = good(path) else { return };
        assert_eq!((trace.turns.len(), trace.sessions.len()), (3, 2), "{path}");
        assert_eq!((trace.sessions[0].id.as_str(), trace.turns[0].turn_id), ("s1", 0));
        assert_eq!(trace.turns.iter().map(|turn| turn.line).max(), Some(last_line), "{path}");
    }
}

#[test]
fn case_04_nan_infinity_null() {
    let Some(error) = refused("04-nan-infinity-null-times/trace.jsonl") else { return };
    for words in [
        "trace.jsonl:2: `timestamp`: NaN is not a usable number",
        ":3: `timestamp`: Infinity",
        ":4: `timestamp`: 1e999",
        ":5: `timestamp`: is missing or null",
    ] {
        assert!(error.contains(words), "{words}\n{error}");
    }
}

#[test]
fn case_05_large_ids() {
    let Some(trace) = good("05-hash-ids-above-2-53-and-2-63/trace.jsonl") else { return };
    assert_eq!(ideal_hits(&trace), [0, 0, 64]);
    let mut written = Vec::new();
    write_native(&trace, &mut written).unwrap();
    let text = String::from_utf8(written).unwrap();
    for digits in
        ["[9007199254740992,18446744073709551615]", "[9007199254740993,18446744073709551614]", "18446744073709551613"]
    {
        assert!(text.contains(digits), "{digits}\n{text}");
    }
}

#[test]
fn case_07_units() {
    let millis = ReadOptions { timestamp_unit: Some(TimeUnit::Millis), ..ReadOptions::default() };
    let Some(ms) = case("07-milliseconds-or-seconds/ms.jsonl", &millis) else { return };
    let ms = ms.unwrap();
    let Some(s) = good("07-milliseconds-or-seconds/s.jsonl") else { return };
    let Some(taken_for_s) = good("07-milliseconds-or-seconds/ms.jsonl") else { return };
    assert_eq!(seconds(&ms), [0.0, 0.25, 1.5, 1.75, 4.0]);
    assert_eq!(seconds(&s), seconds(&ms));
    for trace in [&ms, &s] {
        assert!(notice(trace, "timestamp-unit").contains("span 4 s, mean arrival gap 1 s"));
    }
    assert!(notice(&taken_for_s, "timestamp-unit").contains("span 4000 s"));
    assert!(notice(&taken_for_s, "timestamp-unit-doubtful").contains("`--timestamp-unit ms`"));
}

#[test]
fn case_09_epochs() {
    let Some(trace) = good("09-absolute-epoch-times/trace.jsonl") else { return };
    assert_eq!(seconds(&trace), [0.0, 0.9, 1.5, 4.0]);
    assert_eq!((trace.meta.origin_ns, trace.meta.timestamp_unit.as_str()), (1_785_412_800_000_000_000, "ms"));
}

#[test]
fn case_10_order() {
    let Some(trace) = good("10-rows-out-of-order/trace.jsonl") else { return };
    let ids: Vec<&str> = trace.turns.iter().filter_map(|turn| turn.request_id.as_deref()).collect();
    assert_eq!((ids, seconds(&trace)), (vec!["r2", "r3", "r4", "r1"], vec![0.0, 1.5, 1.5, 3.0]));
    assert!(notice(&trace, "rows-sorted").starts_with("3 of 4 rows"));
}

#[test]
fn case_12_cut_off_sessions() {
    let Some(trace) = good("12-first-turn-missing/trace.jsonl") else { return };
    let found: Vec<(&str, bool)> =
        trace.sessions.iter().map(|session| (session.id.as_str(), session.incomplete)).collect();
    assert_eq!(found, [("A", false), ("B", false), ("C", true), ("D", true)]);
    let first = &trace.turns_of(SessionIx(2))[0];
    assert_eq!((first.turn_id, first.cached_tokens, first.extends_previous), (3, 0, false));
    assert!(notice(&trace, "sessions-incomplete").ends_with("C, D"));
}

#[test]
fn case_14_duplicate_request_ids() {
    let Some(trace) = good("14-duplicate-request-ids/trace.jsonl") else { return };
    let counts: Vec<usize> = [0, 1].map(|rank| trace.turns_of(SessionIx(rank)).len()).to_vec();
    assert_eq!(counts, [3, 2]);
    assert!(notice(&trace, "request-ids-repeated").contains("r-2 in lines 2 and 3"));
}

#[test]
fn case_15_id_counts() {
    let Some(error) = refused("15-hash-id-count-against-length/trace.jsonl") else { return };
    assert!(error.contains(":3: `hash_ids`: 5 ids for 130 tokens in blocks of 64; 2 or 3 would fit"), "{error}");
    assert!(error.contains(":4: `hash_ids`: 1 id for 130 tokens in blocks of 64; 2 or 3 would fit"), "{error}");
    assert!(error.contains("2 problems") && !error.contains("block size looks wrong"), "{error}");
    let wrong = ReadOptions { block_size: Some(16), ..ReadOptions::default() };
    let Some(read) = case("15-hash-id-count-against-length/trace.jsonl", &wrong) else { return };
    let error = read.unwrap_err().to_string();
    assert!(error.contains("the block size looks wrong; pass `--block-size 64`"), "{error}");
}

#[test]
fn case_17_zero_lengths() {
    let Some(error) = refused("17-zero-lengths/trace.jsonl") else { return };
    assert!(error.contains("1 problem in its rows") && error.contains(":3: `input_length`: is 0"), "{error}");
}

#[test]
fn missing_files_and_folders_are_named() {
    let read = |path: &str| read_path(path.as_ref(), &ReadOptions::default()).unwrap_err();
    assert!(matches!(read(env!("CARGO_MANIFEST_DIR")), TraceError::Directory { .. }));
    let missing = read("no-such-trace.jsonl");
    assert!(missing.to_string().starts_with("no-such-trace.jsonl: cannot be read"), "{missing}");
    if std::path::Path::new("/dev/zero").exists() {
        let endless = read("/dev/zero");
        assert!(endless.to_string().contains("looks like a binary file"), "{endless}");
    }
}

#[test]
fn the_real_slice_has_its_published_statistics() {
    let Some(path) = shared("traces/mini-swe-agent/verified-top52.jsonl.zst") else { return };
    let trace = read_path(&path, &ReadOptions::default()).unwrap();
    let stats = TraceStats::of(&trace);
    assert_eq!((stats.requests, stats.sessions, stats.span_s, stats.block_size), (4486, 52, 4428.0, 64));
    assert!((stats.infinite_cache_hit - 0.978).abs() < 0.0005, "{}", stats.infinite_cache_hit);
    assert!((stats.cross_session_hit - 0.003).abs() < 0.0005, "{}", stats.cross_session_hit);
    let gap = stats.gap_s.unwrap();
    assert_eq!((gap.p10, gap.p50, gap.p90, gap.max, stats.turns.max), (2.0, 4.0, 12.0, 97.0, 145.0));
    assert_eq!(stats.compactions, 0);
}

#[test]
fn the_mooncake_conversation_trace_has_its_published_statistics() {
    let Some(path) = shared("traces/mooncake/conversation_trace.jsonl") else { return };
    let trace = read_path(&path, &ReadOptions::default()).unwrap();
    let stats = TraceStats::of(&trace);
    assert_eq!((stats.requests, stats.sessions, trace.meta.block_size), (12_031, 12_031, 512));
    // The published 0.374 counts part-filled last blocks too; full blocks alone give 0.3734.
    assert!((stats.infinite_cache_hit - 0.3734).abs() < 0.00005, "{}", stats.infinite_cache_hit);
    assert!((stats.span_s - 3537.0).abs() < 1.0, "{}", stats.span_s);
}
