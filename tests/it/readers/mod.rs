//! Exports in the hands of the programs they are for: Perfetto and the importer of chrome://tracing, AIPerf's models, polars and
//! python's csv. Each reader compares what it read with the records, in python beside this file.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pdreplay::record::RequestRecord;

use crate::cli::replay;
use crate::exports::{some_records, with_records};
use crate::installed::{chromium, kept, python};
use crate::results::request;
use crate::run::{Scratch, root};

/// A run of twelve sessions with failures, `outputs/one`.
fn with_run(more: &[&str]) -> Scratch {
    let scratch = Scratch::new();
    scratch.run(&["trace", "generate", "--sessions", "12", "-o", "trace.jsonl"]).code(0);
    let ran = replay(&scratch, &[&["--name", "one", "-q"], more].concat());
    assert!(ran.code.is_some_and(|code| code < 2), "{ran:#?}");
    scratch
}

/// Runs a reader; it prints what is wrong.
#[track_caller]
fn finds_nothing_wrong(python: &Path, script: &str, args: &[PathBuf]) {
    let read = Command::new(python).arg(root().join("tests/it/readers").join(script)).args(args).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&read.stdout), String::from_utf8_lossy(&read.stderr));
    assert!(read.status.success(), "{out}{err}");
}

/// Records of which a CSV says everything: what steers a terminal is an escape there.
fn plain(mut records: Vec<RequestRecord>) -> Vec<RequestRecord> {
    records.iter_mut().for_each(|record| record.session_id.retain(|c| !c.is_control()));
    records
}

#[test]
fn csv_and_parquet_have_the_types_and_values_of_the_records() {
    let Some(python) = python("polars") else { return };
    let run = with_run(&[]);
    run.run(&["report", "outputs/one", "--export", "csv=out.csv"]).code(0);
    let files = ["out.csv", "outputs/one/requests.parquet", "outputs/one/requests.jsonl"].map(|file| run.join(file));
    finds_nothing_wrong(&python, "with_polars.py", &files);
    let odd = with_records(&plain(some_records()));
    odd.run(&["report", "records.jsonl", "--export", "csv=out.csv"]).code(0);
    finds_nothing_wrong(&python, "with_polars.py", &[odd.join("out.csv"), "-".into(), odd.join("records.jsonl")]);
}

#[test]
fn aiperf_reads_every_line_and_knows_every_key_metric_and_unit() {
    let Some(python) = python("aiperf.metrics.metric_registry") else { return };
    for (scratch, run, records) in [
        (with_run(&["--concurrency", "3"]), "outputs/one", "outputs/one/requests.jsonl"),
        (with_records(&some_records()), "records.jsonl", "records.jsonl"),
    ] {
        scratch.run(&["report", run, "--export", "aiperf=out.jsonl"]).code(0);
        finds_nothing_wrong(&python, "with_aiperf.py", &[scratch.join("out.jsonl"), scratch.join(records)]);
    }
}

/// The same records, that much later.
fn later(mut records: Vec<RequestRecord>, by_ns: u64) -> Vec<RequestRecord> {
    for record in &mut records {
        record.scheduled_ns += by_ns;
        record.ended_ns += by_ns;
        let times =
            [&mut record.released_ns, &mut record.sent_ns, &mut record.first_token_ns, &mut record.last_token_ns];
        times.into_iter().flatten().for_each(|time| *time += by_ns);
    }
    records
}

/// Turns side by side, each a nanosecond off the last.
fn side_by_side() -> Vec<RequestRecord> {
    let turn = |ix: u64| {
        let mut record = request(&format!("s{ix}"), 1, ix * 3, 100.0, 100.0 + ix as f64);
        (record.prefill_worker, record.decode_worker_actual) = (Some("P0".into()), Some("D0".into()));
        (record.prefill_ms, record.kv_transfer_ms) = (Some(33.333_333), Some(0.000_001));
        record
    };
    (0..40).map(turn).enumerate().flat_map(|(ix, record)| later(vec![record], ix as u64)).collect()
}

#[test]
fn perfetto_and_chrome_read_every_span_point_arrow_and_counter() {
    let (Some(chromium), Some(page)) = (chromium(), kept("test-tools-perfetto/web_dist")) else { return };
    let mut odd = request("</script>\"\\\n\u{202e}日本", 1, 0, 5.0, 9.0);
    odd.decode_worker_actual = Some("\"}]\u{7}".into());
    let scratch = with_run(&["--policy", "car", "--set", "kv_events.enabled=on"]);
    let mut args = vec![chromium, page];
    let mut trace = |kind: &str, name: &str, run: &str| {
        scratch.run(&["report", run, "--perfetto", name]).code(0);
        args.push(format!("{kind}={}", scratch.join(name).display()).into());
    };
    trace("good", "run.json.gz", "outputs/one");
    let days = |days: u64| days * 86_400_000_000_000 + 7;
    let sets = [
        ("some", some_records()),
        ("odd", vec![odd]),
        ("side-by-side", side_by_side()),
        ("late", later(side_by_side(), days(50))),
        ("too-late-for-nanoseconds", later(side_by_side(), days(300))),
    ];
    for (name, records) in sets {
        let lines = records.iter().map(|record| serde_json::to_string(record).unwrap() + "\n");
        scratch.write(&format!("{name}.jsonl"), &lines.collect::<String>());
        trace("good", &format!("{name}.json"), &format!("{name}.jsonl"));
    }
    // A phase that leaves its turn, as Perfetto cannot draw it.
    let broken = scratch.read("some.json").replacen("\"dur\":200500", "\"dur\":999999", 1);
    scratch.write("broken.json", &broken);
    args.push(format!("bad={}", scratch.join("broken.json").display()).into());
    assert!(fs::read_to_string(scratch.join("some.json")).unwrap() != broken);
    finds_nothing_wrong(Path::new("python3"), "with_perfetto.py", &args);
}
