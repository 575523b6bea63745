//! `report --export` and `--perfetto`: golden files of hand-made records, and what the readers of these forms rely on.
//!
//! `PDREPLAY_BLESS=1` rewrites the golden files in tests/data/exports.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;

use pdreplay::record::{ExecutionMode, Outcome, RequestRecord};
use serde_json::{Value, json};

use crate::cli::{replay, with_trace};
use crate::flips::without_notes;
use crate::results::request;
use crate::run::{Scratch, root};

/// A turn of each kind: direct, through P, truncated, refused with hostile words, never sent.
pub fn some_records() -> Vec<RequestRecord> {
    let mut direct = request("a", 2, 500, 12.5, 100.0);
    direct.execution_mode = ExecutionMode::KvcacheDirectToDSession;
    (direct.decode_worker_intended, direct.decode_worker_actual) = (Some("D0".into()), Some("D0".into()));
    (direct.tpot_ms, direct.cached_tokens, direct.prefill_ms) = (Some(4.605), Some(900), Some(10.000_001));
    let mut through = request("a", 1, 0, 250.0, 400.0);
    (through.prefill_worker, through.decode_worker_actual) = (Some("P0".into()), Some("D0".into()));
    (through.admission_ms, through.prefill_queue_ms, through.prefill_ms) = (Some(1.0), Some(20.0), Some(200.5));
    (through.kv_transfer_ms, through.decode_queue_ms) = (Some(8.25), Some(10.0));
    let mut cut = request("b", 1, 100, 300.0, 900.0);
    (cut.outcome, cut.output_tokens, cut.error_class) = (Outcome::Truncated, 7, Some("short-output".into()));
    (cut.prefill_worker, cut.decode_worker_actual) = (Some("P0".into()), Some("D1".into()));
    cut.prefill_ms = Some(290.0);
    let mut refused = request("c, \"d\"\u{1b}[31m", 1, 120, 0.0, 3.0);
    (refused.outcome, refused.output_tokens, refused.http_status) = (Outcome::Error, 0, Some(503));
    (refused.ttft_ms, refused.first_token_ns, refused.last_token_ns) = (None, None, None);
    (refused.error_class, refused.error_message) =
        (Some("no-worker".into()), Some("no \"worker\",\nsays </script> 日本".into()));
    let mut never = request("b", 2, 2000, 0.0, 0.0);
    (never.outcome, never.sent_ns, never.e2e_ms, never.ttft_ms) = (Outcome::Skipped, None, None, None);
    (never.first_token_ns, never.last_token_ns, never.trace_request_id) = (None, None, Some(String::new()));
    vec![through, refused, direct, cut, never]
}

pub fn with_records(records: &[RequestRecord]) -> Scratch {
    let scratch = Scratch::new();
    let lines = records.iter().map(|record| serde_json::to_string(record).unwrap() + "\n");
    scratch.write("records.jsonl", &lines.collect::<String>());
    scratch
}

fn exported(form: &str) -> String {
    let scratch = with_records(&some_records());
    let ran = scratch.run(&["report", "records.jsonl", "--export", &format!("{form}=out")]).code(0);
    assert!(ran.stdout.contains("outcome"), "the table is still printed: {}", ran.stdout);
    scratch.read("out")
}

fn golden(name: &str, text: &str) {
    let path = root().join("tests/data/exports").join(name);
    if std::env::var_os("PDREPLAY_BLESS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), text, "{name}; PDREPLAY_BLESS=1 rewrites it");
}

#[test]
fn aiperf_lines_have_the_keys_its_models_require() {
    let text = exported("aiperf");
    golden("aiperf.jsonl", &text);
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 4, "what was never sent has no start");
    for line in &lines {
        for key in ["session_num", "request_start_ns", "request_end_ns", "worker_id", "record_processor_id"] {
            assert!(!line["metadata"][key].is_null(), "{key}: {line}");
        }
        assert_eq!(line["metadata"]["benchmark_phase"], "profiling");
        let metrics = line["metrics"].as_object().unwrap();
        assert!(metrics.values().all(|metric| metric["value"].is_number() && metric["unit"].is_string()), "{line}");
        assert_eq!(line["error"].is_null(), metrics.contains_key("request_latency"), "{line}");
        assert!(line["error"].is_null() || line["error"]["message"].is_string());
    }
    assert_eq!(lines[1]["error"]["code"], 503);
}

#[test]
fn vllm_lists_are_of_one_length_and_in_seconds() {
    let text = exported("vllm");
    golden("vllm.json", &text);
    let result: Value = serde_json::from_str(&text).unwrap();
    let list = |key: &str| result[key].as_array().unwrap();
    for key in ["input_lens", "output_lens", "ttfts", "latencies", "start_times", "queue_times", "errors"] {
        assert_eq!(list(key).len(), 4, "{key}");
    }
    assert_eq!((&result["completed"], &result["failed"]), (&json!(2), &json!(2)));
    assert_eq!((&list("ttfts")[0], &list("start_times")[2]), (&json!(0.25), &json!(0.5)));
    assert_eq!(list("output_lens").iter().map(|n| n.as_u64().unwrap()).collect::<Vec<_>>(), [20, 0, 20, 0]);
    assert_eq!(list("errors")[0], "");
    assert_eq!(result["p99_e2el_ms"], 400.0);
    assert!(result.get("itls").is_none() && result.get("mean_itl_ms").is_none(), "what is not known is not invented");
    let statistics = |key: &str| {
        let parts: Vec<&str> = key.split('_').collect();
        let [statistic, metric, "ms"] = parts[..] else { return false };
        let is_percentile = statistic.strip_prefix('p').is_some_and(|number| number.parse::<f64>().is_ok());
        (is_percentile || ["mean", "median", "std"].contains(&statistic))
            && ["ttft", "tpot", "itl", "e2el"].contains(&metric)
    };
    for key in result.as_object().unwrap().keys() {
        assert!(VLLM_KEYS.contains(&key.as_str()) || statistics(key), "vLLM writes no {key}");
    }
}

/// Keys of vLLM's result, beside its statistics, that a run may have.
const VLLM_KEYS: [&str; 21] = [
    "date",
    "endpoint_type",
    "backend",
    "model_id",
    "num_prompts",
    "request_rate",
    "duration",
    "completed",
    "failed",
    "total_input_tokens",
    "total_output_tokens",
    "request_throughput",
    "output_throughput",
    "total_token_throughput",
    "input_lens",
    "output_lens",
    "ttfts",
    "latencies",
    "start_times",
    "queue_times",
    "errors",
];

#[test]
fn csv_reads_back_as_the_records() {
    let text = exported("csv");
    golden("requests.csv", &text);
    let rows = parsed(&text);
    let records: Vec<Value> = some_records().iter().map(|record| serde_json::to_value(record).unwrap()).collect();
    assert_eq!(rows.len(), records.len() + 1);
    for (row, record) in rows[1..].iter().zip(&records) {
        for (name, cell) in rows[0].iter().zip(row) {
            match &record[name] {
                Value::Null => assert_eq!(cell, "", "{name}"),
                Value::String(text) => assert_eq!(cell, &text.replace('\u{1b}', "\\u{1b}"), "{name}"),
                other => assert_eq!(cell, &other.to_string(), "{name}"),
            }
        }
    }
    assert!(text.contains(",\"\","), "an empty text is not null");
}

/// Rows of RFC 4180.
fn parsed(text: &str) -> Vec<Vec<String>> {
    let mut rows = vec![vec![String::new()]];
    let mut chars = text.chars().peekable();
    let mut quoted = false;
    while let Some(c) = chars.next() {
        let row = rows.last_mut().unwrap();
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => row.last_mut().unwrap().push(chars.next().unwrap()),
            '"' => quoted = !quoted,
            ',' if !quoted => row.push(String::new()),
            '\r' if !quoted => {
                assert_eq!(chars.next(), Some('\n'));
                rows.push(vec![String::new()]);
            }
            c => row.last_mut().unwrap().push(c),
        }
    }
    assert_eq!(rows.pop(), Some(vec![String::new()]), "the last line ends");
    rows
}

#[test]
fn stdout_is_for_one_output_alone() {
    let scratch = with_records(&some_records());
    let ran = scratch.run(&["report", "records.jsonl", "--export", "csv=-"]).code(0);
    assert_eq!(parsed(&ran.stdout).len(), 6);
    scratch
        .run(&["report", "records.jsonl", "--export", "csv=-", "--perfetto", "-"])
        .refused(&["two outputs are to be written to -"]);
}

#[test]
fn an_output_never_lies_over_the_run() {
    let scratch = with_trace();
    replay(&scratch, &["--name", "one", "-q"]).code(0);
    let before = scratch.read("outputs/one/requests.jsonl");
    for file in ["outputs/one/requests.jsonl", "outputs/one/summary.json", "outputs/one/../one/run.json"] {
        scratch
            .run(&["report", "outputs/one", "--export", &format!("csv={file}")])
            .refused(&["is a file of the run itself"]);
    }
    assert_eq!(scratch.read("outputs/one/requests.jsonl"), before);
    scratch.run(&["report", "outputs/one", "--export", "xml=a"]).code(2);
    scratch.run(&["report", "outputs/one", "--export", "csv"]).code(2);
    scratch
        .run(&["report", "outputs/one", "--export", "csv=no/such/file"])
        .refused(&["the folder no/such for the csv export does not exist"]);
}

#[test]
fn every_form_is_the_same_from_the_table_and_from_the_lines() {
    let scratch = with_trace();
    replay(&scratch, &["--name", "one", "-q"]).code(0);
    let write = |to: &str| {
        let to = |name: &str| format!("{to}.{name}");
        let (csv, aiperf, vllm) = (to("csv"), to("aiperf"), to("vllm"));
        let exports = [format!("csv={csv}"), format!("aiperf={aiperf}"), format!("vllm={vllm}")];
        let mut args = vec!["report", "outputs/one"];
        exports.iter().for_each(|export| args.extend(["--export", export.as_str()]));
        let trace = to("json");
        args.extend(["--perfetto", trace.as_str()]);
        let ran = scratch.run(&args).code(0);
        ([csv, aiperf, vllm, trace].map(|file| scratch.read(&file)), ran)
    };
    let (table, _) = write("table");
    let mut run = scratch.json("outputs/one/run.json");
    run["files"].as_object_mut().unwrap().remove("requests.parquet");
    scratch.write("outputs/one/run.json", &run.to_string());
    let (lines, _) = write("lines");
    assert_eq!(table, lines);
}

#[test]
fn a_damaged_table_is_said_and_the_lines_are_read() {
    let scratch = with_trace();
    replay(&scratch, &["--name", "one", "-q"]).code(0);
    let whole = scratch.run(&["report", "outputs/one", "--json", "--percentiles", "50,99"]).code(0);
    let path = scratch.join("outputs/one/requests.parquet");
    let mut bytes = fs::read(&path).unwrap();
    let last = bytes.len() - 9;
    bytes[4..last].fill(0xAB);
    fs::write(&path, bytes).unwrap();
    let ran = scratch.run(&["report", "outputs/one", "--json", "--percentiles", "50,99"]).code(0);
    assert_eq!(without_notes(&ran.stdout), without_notes(&whole.stdout));
    assert!(ran.stdout.contains("requests.parquet is not used"), "{}", ran.stdout);
    assert!(ran.stderr.contains("requests.parquet is not used") && !ran.stderr.contains("panicked"), "{}", ran.stderr);
}

#[test]
fn a_table_alone_is_read_like_lines_alone() {
    let scratch = with_trace();
    replay(&scratch, &["--name", "one", "-q"]).code(0);
    for name in ["requests.parquet", "requests.jsonl"] {
        fs::copy(scratch.join(&format!("outputs/one/{name}")), scratch.join(&format!("alone.{name}"))).unwrap();
    }
    let [table, lines] = ["alone.requests.parquet", "alone.requests.jsonl"].map(|file| {
        let ran = scratch.run(&["report", file, "--json"]).code(0);
        ran.stdout.replace("alone.requests", "alone")
    });
    assert_eq!(table, lines);
    scratch.write("odd.parquet", "PAR1 and nothing more");
    scratch.run(&["report", "odd.parquet"]).refused(&["odd.parquet: not a whole Parquet file"]);
}

/// A span in nanoseconds.
#[derive(Debug, Clone, PartialEq)]
struct Span {
    start: u64,
    end: u64,
    name: String,
}

struct Trace {
    events: Vec<Value>,
}

impl Trace {
    fn of(text: &str) -> Trace {
        let mut trace: Value = serde_json::from_str(text).unwrap();
        let Value::Array(events) = trace["traceEvents"].take() else { panic!("no events") };
        Trace { events }
    }

    fn of_phase(&self, phase: &str) -> impl Iterator<Item = &Value> {
        self.events.iter().filter(move |event| event["ph"] == phase)
    }

    /// Spans of each track, parents first.
    fn tracks(&self) -> BTreeMap<(u64, u64), Vec<Span>> {
        let ns = |value: &Value| (value.as_f64().unwrap() * 1e3).round() as u64;
        let mut tracks: BTreeMap<(u64, u64), Vec<Span>> = BTreeMap::new();
        for event in self.of_phase("X") {
            let start = ns(&event["ts"]);
            let span = Span { start, end: start + ns(&event["dur"]), name: event["name"].as_str().unwrap().into() };
            tracks.entry((event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap())).or_default().push(span);
        }
        tracks.values_mut().for_each(|spans| spans.sort_by_key(|span| (span.start, std::cmp::Reverse(span.end))));
        tracks
    }

    fn name_of(&self, key: &str, pid: u64, tid: u64) -> Option<&str> {
        let named = |event: &&Value| event["name"] == key && event["pid"] == pid && event["tid"] == tid;
        self.of_phase("M").find(named).and_then(|event| event["args"]["name"].as_str())
    }

    /// Spans nest or follow each other, every track has a name and a place, and arrows begin and end in spans.
    fn check(&self) {
        for ((pid, tid), spans) in self.tracks() {
            assert!(
                self.name_of("process_name", pid, pid).is_some() && self.name_of("thread_name", pid, tid).is_some()
            );
            let mut open: Vec<&Span> = Vec::new();
            for span in &spans {
                open.retain(|outer| outer.end > span.start || outer == &span);
                assert!(open.last().is_none_or(|outer| span.end <= outer.end), "{span:?} leaves {open:?}");
                open.push(span);
            }
        }
        let tracks = self.tracks();
        for arrow in self.of_phase("s").chain(self.of_phase("f")) {
            let spans = &tracks[&(arrow["pid"].as_u64().unwrap(), arrow["tid"].as_u64().unwrap())];
            let at = (arrow["ts"].as_f64().unwrap() * 1e3).round() as u64;
            assert!(spans.iter().any(|span| (span.start..=span.end).contains(&at)), "{arrow}");
        }
    }
}

fn trace_of(records: &[RequestRecord]) -> Trace {
    let scratch = with_records(records);
    scratch.run(&["report", "records.jsonl", "--perfetto", "trace.json"]).code(0);
    Trace::of(&scratch.read("trace.json"))
}

#[test]
fn spans_of_a_trace_nest_and_its_phases_add_up() {
    let trace = trace_of(&some_records());
    trace.check();
    let tracks = trace.tracks();
    let sessions: Vec<&Vec<Span>> = tracks.iter().filter(|((pid, _), _)| *pid == 2).map(|(_, spans)| spans).collect();
    let phases: Vec<(&str, u64)> = sessions[0].iter().map(|span| (span.name.as_str(), span.end - span.start)).collect();
    assert_eq!(
        phases,
        [
            ("pd-router", 400_000_000),
            ("admission", 1_000_000),
            ("prefill queue", 20_000_000),
            ("prefill", 200_500_000),
            ("kv transfer", 8_250_000),
            ("decode queue", 10_000_000),
            ("other", 10_250_000),
            ("decode", 150_000_000),
            ("kvcache-direct-to-d-session", 100_000_000),
            ("prefill", 10_000_001),
            ("other", 2_499_999),
            ("decode", 87_500_000)
        ]
    );
    let names: Vec<&str> = trace
        .of_phase("M")
        .filter(|event| event["name"] == "process_name")
        .map(|event| event["args"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["run", "sessions", "P0", "D0", "D1", "links"]);
    assert_eq!(trace.name_of("thread_name", 2, 4), Some("b"));
}

#[test]
fn requests_side_by_side_take_lanes() {
    let turn = |session: &str, at_ms: u64| {
        let mut record = request(session, 1, at_ms, 100.0, 1000.0);
        (record.prefill_worker, record.decode_worker_actual) = (Some("P0".into()), Some("D0".into()));
        (record.prefill_ms, record.kv_transfer_ms) = (Some(50.0), Some(40.0));
        record
    };
    let records: Vec<RequestRecord> = (0..20).map(|ix| turn(&format!("s{ix}"), ix * 30)).collect();
    let trace = trace_of(&records);
    trace.check();
    let lanes = |pid: u64| trace.tracks().keys().filter(|(found, _)| *found == pid).count();
    assert_eq!((lanes(4), lanes(5), lanes(3)), (2, 20, 2));
    let most = trace.of_phase("C").filter_map(|event| event["args"]["value"].as_u64()).max();
    assert_eq!(most, Some(20));
}

#[test]
fn a_run_of_the_emulator_is_a_trace_with_its_ledger() {
    let scratch = Scratch::new();
    scratch.run(&["trace", "generate", "--sessions", "12", "-o", "trace.jsonl"]).code(0);
    // Some prompts are larger than the default's pool, so that the run has failures, too.
    replay(&scratch, &["--name", "one", "-q"]).code(1);
    scratch.run(&["report", "outputs/one", "--perfetto", "trace.json.gz"]).code(0);
    let mut text = String::new();
    flate2::read::GzDecoder::new(fs::File::open(scratch.join("trace.json.gz")).unwrap())
        .read_to_string(&mut text)
        .unwrap();
    let trace = Trace::of(&text);
    trace.check();
    let points = scratch.read("outputs/one/events.jsonl").lines().count();
    assert_eq!(trace.of_phase("i").count(), points);
    let counters: Vec<&Value> = trace.of_phase("C").collect();
    assert!(
        counters.iter().any(|event| event["name"] == "resident sessions" && event["args"]["value"].as_u64() > Some(0))
    );
    let requests = scratch.read("outputs/one/requests.jsonl").lines().count();
    assert!(text.len() < requests * 2247, "4,449 requests may take 10 MB: {} for {requests}", text.len());
}

#[test]
fn hostile_names_and_no_record_at_all_are_traces() {
    let mut odd = request("</script>\u{0}\"\\\n\u{202e}", 1, 0, 5.0, 9.0);
    odd.decode_worker_actual = Some("\"}]\u{7}".into());
    (odd.scheduled_ns, odd.first_token_ns, odd.prefill_ms) = (u64::MAX, Some(u64::MAX), Some(1e300));
    let trace = trace_of(&[odd]);
    trace.check();
    assert_eq!(trace.name_of("thread_name", 2, 3), Some("</script>\u{0}\"\\\n\u{202e}"));
    let scratch = with_trace();
    replay(&scratch, &["--name", "one", "-q"]).code(0);
    let mut run = scratch.json("outputs/one/run.json");
    (run["state"], run["facts"], run["files"]) = ("running".into(), Value::Null, json!({}));
    scratch.write("outputs/one/run.json", &run.to_string());
    scratch.write("outputs/one/requests.jsonl", "");
    scratch.write("outputs/one/events.jsonl", "");
    scratch.run(&["report", "outputs/one", "--perfetto", "empty.json"]).code(0);
    let empty = Trace::of(&scratch.read("empty.json"));
    assert_eq!((empty.of_phase("X").count(), empty.of_phase("i").count()), (0, 0));
}
