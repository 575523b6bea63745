//! Pages: what stands in them, where they may be written, and what a browser makes of them.
//!
//! The browser is a headless Chromium, driven by `browser.py` with python's standard library.

use std::process::Command;

use pdreplay::record::{ExecutionMode, Outcome, RequestRecord};

use crate::cli::with_trace;
use crate::installed::chromium;
use crate::results::request;
use crate::run::{Scratch, root};

/// Ids that would open a tag, end a script, leave an attribute, turn the writing or start a line.
const HOSTILE: [&str; 5] = [
    "</script><script>window.foreign=1</script>",
    "\"><img src=x onerror=window.foreign=1>",
    "'><b>bold</b><!--",
    "a\u{202e}drow\u{200b}ssap\u{2066}\u{feff}\u{e0041}\u{0}\n",
    "{{constructor}}\u{2028}${1}",
];

const SECTIONS: [&str; 14] = [
    "verdict",
    "outcome",
    "latency",
    "why",
    "starved",
    "modes",
    "cdf",
    "sessions",
    "workers",
    "transfers",
    "lag",
    "errors",
    "events",
    "facts",
];

fn lines(records: &[RequestRecord]) -> String {
    records.iter().map(|record| serde_json::to_string(record).unwrap() + "\n").collect()
}

#[test]
fn a_page_is_written_whole_and_says_where_and_how_large() {
    let scratch = with_trace();
    scratch.run(&["replay", "trace.jsonl", "--time-scale", "inf", "--name", "run"]).code(0);
    let ran = scratch.run(&["report", "outputs/run", "--html", "run.html"]).code(0);
    assert!(ran.stdout.is_empty() && ran.stderr.starts_with("page run.html (1,"), "{ran:#?}");
    let page = scratch.read("run.html");
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    for section in SECTIONS {
        assert!(page.contains(&format!("<section id=\"{section}\"")), "no section {section}");
    }
    // Another time it takes the place of the page; on stdout it is the same.
    scratch.run(&["report", "outputs/run", "--html", "run.html"]).code(0);
    assert!(scratch.run(&["report", "outputs/run", "--html", "-"]).code(0).stdout == page);
}

#[test]
fn a_page_takes_the_place_of_nothing_but_a_page() {
    let scratch = with_trace();
    scratch.run(&["replay", "trace.jsonl", "--time-scale", "inf", "--name", "run"]).code(0);
    let report = |target: &str| scratch.run(&["report", "outputs/run", "--html", target]);
    report("outputs").refused(&["outputs is a folder"]);
    report("none/page.html").refused(&["the folder none for the HTML page does not exist"]);
    report("trace.jsonl").refused(&["trace.jsonl exists and is no HTML page"]);
    report("/dev/null").code(0);
    scratch.run(&["report", "outputs/run", "--html", "a.html", "--sessions"]).code(2);
}

#[test]
fn odd_runs_have_a_page_too() {
    let scratch = Scratch::new();
    scratch.write("one.jsonl", &lines(&[request("s", 1, 0, 1.0, 2.0)]));
    let ran = scratch.run(&["report", "one.jsonl", "--html", "one.html"]).code(0);
    assert!(ran.stderr.ends_with("KB)\n"), "{}", ran.stderr);
    let page = scratch.read("one.html");
    assert!(page.contains("made from a file of records alone"));
    let mut skipped = request("s", 1, 0, 1.0, 2.0);
    (skipped.outcome, skipped.sent_ns, skipped.ttft_ms, skipped.e2e_ms) = (Outcome::Skipped, None, None, None);
    skipped.execution_mode = ExecutionMode::NotSent;
    scratch.write("unsent.jsonl", &lines(&[skipped]));
    scratch.run(&["report", "unsent.jsonl", "--html", "unsent.html"]).code(0);
    let page = scratch.read("unsent.html");
    assert!(page.contains("Headline withheld") && page.contains("no session sent a request"));
}

#[test]
fn hostile_ids_stay_words() {
    let page = hostile(&Scratch::new());
    assert!(page.contains("&lt;/script&gt;&lt;script&gt;window.foreign=1"));
    assert!(!page.contains("<script>window.foreign") && !page.contains("<img src=x") && !page.contains("<b>bold"));
    // The library behind them has such signs of its own, in its literals.
    let ours = page.split("<script>").next().unwrap();
    assert!(!ours.contains(['\u{202e}', '\u{2066}', '\u{0}', '\u{2028}', '\u{200b}', '\u{feff}', '\u{e0041}']));
}

fn hostile(scratch: &Scratch) -> String {
    let record = |(ix, id): (usize, &&str)| {
        let mut record = request(id, 1, ix as u64 * 100, 10.0, 50.0);
        (record.outcome, record.error_class) = (Outcome::Error, Some((*id).to_owned()));
        record.error_message = Some((*id).to_owned());
        record.decode_worker_actual = Some(format!("D{id}"));
        record
    };
    let records: Vec<RequestRecord> = HOSTILE.iter().enumerate().map(record).collect();
    scratch.write("hostile.jsonl", &lines(&records));
    scratch.run(&["report", "hostile.jsonl", "--html", "hostile.html"]).code(0);
    scratch.read("hostile.html")
}

/// 5,000 sessions of three turns; the later half falls back.
fn many(scratch: &Scratch) {
    let mut records = Vec::new();
    for session in 0..5_000u64 {
        for turn in 0..3 {
            let mut record = request(&format!("s{session}"), turn, session * 20 + u64::from(turn) * 5_000, 40.0, 900.0);
            record.execution_mode = match (turn, session < 2_500) {
                (0, _) => ExecutionMode::PdRouterTurn1,
                (_, true) => ExecutionMode::KvcacheDirectToDSession,
                (_, false) => ExecutionMode::FallbackSessionCap,
            };
            record.decode_worker_actual = Some(format!("D{}", session % 8));
            records.push(record);
        }
    }
    records.sort_by_key(|record| record.ended_ns);
    scratch.write("many.jsonl", &lines(&records));
    scratch.run(&["report", "many.jsonl", "--html", "many.html"]).code(0);
}

#[test]
fn a_browser_draws_every_page_and_finds_nothing_wrong() {
    let Some(chromium) = chromium() else { return };
    let scratch = with_trace();
    let run = |args: &[&str]| scratch.run(args).code(0);
    let sample = root().join("traces/sample-6.jsonl").display().to_string();
    run(&["replay", "-s", "v3-1p7d", "--name", "v3", "-q"]);
    run(&["report", "outputs/v3", "--html", "run.html"]);
    let size = std::fs::metadata(scratch.join("run.html")).unwrap().len();
    assert!(size < 2_000_000, "the page of 4,449 requests has {size} bytes");
    run(&["replay", "-s", "v3-1p7d", "--set", "admission.cap_max=8", "--name", "cap8", "-q"]);
    run(&["diff", "outputs/v3", "outputs/cap8", "--no-replicas", "--resamples", "200", "--html", "diff.html"]);
    scratch.run(&["replay", &sample, "--set", "engine.context_limit_tokens=100", "--name", "none", "-q"]).code(1);
    run(&["report", "outputs/none", "--html", "none.html"]);
    run(&["replay", &sample, "--replicas", "3", "--name", "reps", "-q"]);
    run(&["report", "outputs/reps", "--html", "replicas.html"]);
    scratch.write("sweep.toml", SWEEP);
    run(&["trace", "generate", "--sessions", "16", "--requests", "160", "--seed", "7", "-o", "crowd.jsonl", "-q"]);
    scratch.run(&["sweep", "sweep.toml", "crowd.jsonl", "--html", "sweep.html", "-q"]).code(1);
    many(&scratch);
    hostile(&scratch);
    let kinds = ["run", "many", "none", "hostile", "sweep", "diff", "replicas"];
    let looked = Command::new("python3")
        .arg(root().join("tests/it/page/browser.py"))
        .arg(chromium)
        .arg(root().join("tests/data/page"))
        .args(kinds.map(|kind| format!("{kind}={}", scratch.join(&format!("{kind}.html")).display())))
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&looked.stdout), String::from_utf8_lossy(&looked.stderr));
    assert!(looked.status.success(), "{out}{err}");
}

/// Three policies by four caps, too few slots for all with the first; the cells of one policy are refused.
const SWEEP: &str = "\
[sweep]
name = \"caps\"
scenario = \"v3-1p7d\"
repeats = 2
[axes]
policy = [\"kv-aware\", \"sticky\", \"cache-aware\"]
cap = [1, 2, 4, 8]
\"replay.think_scale\" = [5.0, 10.0]
";
