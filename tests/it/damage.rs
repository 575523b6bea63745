//! `report` on a folder that is not as the run left it: each file that is missing, cut or changed is named, and no
//! figure is printed that the records contradict.

use std::fs;

use serde_json::Value;

use crate::cli::{replay, with_trace};
use crate::flips::take_digests;
use crate::run::{Ran, Scratch};

/// A run in `outputs/one`.
fn with_run() -> Scratch {
    let scratch = with_trace();
    replay(&scratch, &["--name", "one", "-q"]).code(0);
    scratch
}

fn report(scratch: &Scratch, more: &[&str]) -> Ran {
    scratch.run(&[&["report", "outputs/one"], more].concat())
}

fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:#?}"))
}

#[test]
fn a_summary_that_is_none_is_rebuilt_and_said_so() {
    let scratch = with_run();
    let whole = scratch.read("outputs/one/summary.json");
    let newer = whole.replacen("\"schema_version\": 1", "\"schema_version\": 99", 1);
    for (text, words) in [
        (&whole[..whole.len() / 2], "no JSON"),
        ("", "no JSON"),
        ("[]", "no schema_version"),
        (newer.as_str(), "schema_version is 99"),
    ] {
        scratch.write("outputs/one/summary.json", text);
        let ran = report(&scratch, &["--json"]).code(0);
        assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
        assert!(ran.stderr.starts_with("warning: outputs/one/summary.json cannot be used"), "{}", ran.stderr);
        assert!(ran.stderr.contains(words), "{}", ran.stderr);
        let summary = json(&ran);
        assert_eq!((summary["completed"].as_u64(), summary["run"]["rebuilt"].as_bool()), (Some(4), Some(true)));
        assert!(summary["mean_itl_ms"].is_null());
        assert!(summary["integrity"]["notes"].to_string().contains("ITL"), "{summary}");
    }
    fs::remove_file(scratch.join("outputs/one/summary.json")).unwrap();
    let ran = report(&scratch, &[]).code(0);
    assert!(ran.stderr.contains("summary.json cannot be used") && ran.stdout.contains("rebuilt"), "{ran:#?}");
}

#[test]
fn a_summary_that_contradicts_the_records_is_not_used() {
    let scratch = with_run();
    // By its digest it would not be used in any case.
    take_digests(&scratch);
    let whole = scratch.read("outputs/one/summary.json");
    let p99 = json(&report(&scratch, &["--json"]))["p99_e2e_ms"].to_string();
    for (from, to, words) in [
        ("\"completed\": 4", "\"completed\": 9", "completed 9 instead of 4"),
        ("    \"ok\": 4", "    \"ok\": 5", "outcomes.ok 5 instead of 4"),
        (format!("\"p99_e2e_ms\": {p99}").as_str(), "\"p99_e2e_ms\": 1.5", "p99_e2e_ms 1.5 instead of"),
    ] {
        assert!(whole.contains(from), "{from} is not in {whole}");
        scratch.write("outputs/one/summary.json", &whole.replacen(from, to, 1));
        let ran = report(&scratch, &["--json"]).code(0);
        assert!(ran.stderr.contains("contradicts the records") && ran.stderr.contains(words), "{}", ran.stderr);
        assert_eq!(json(&ran)["completed"], 4);
    }
}

#[test]
fn each_file_that_is_missing_or_cut_is_named() {
    let scratch = with_run();
    assert_eq!(report(&scratch, &[]).code(0).stderr, "");
    fs::remove_file(scratch.join("outputs/one/workers.jsonl")).unwrap();
    scratch.write("outputs/one/sessions.jsonl", "");
    let events = scratch.read("outputs/one/events.jsonl");
    scratch.write("outputs/one/events.jsonl", &events[..events.len() - 10]);
    for table in [&[][..], &["--workers"], &["--json"], &["--events"]] {
        let ran = report(&scratch, table).code(0);
        for words in ["workers.jsonl: missing", "sessions.jsonl: has 0 bytes", "events.jsonl: has "] {
            assert!(ran.stderr.contains(&format!("warning: outputs/one/{words}")), "{table:?}: {}", ran.stderr);
        }
        assert!(!ran.stdout.is_empty());
    }
    assert!(report(&scratch, &["--events"]).stderr.contains("cut off after"));
    scratch.write("outputs/one/events.jsonl", &format!("{{\"at_ns\":\n{events}"));
    report(&scratch, &["--events"]).code(2);
}

#[test]
fn a_record_that_is_gone_is_no_bug_of_the_program() {
    let scratch = with_run();
    let records = scratch.read("outputs/one/requests.jsonl");
    let whole = report(&scratch, &[]).code(0);
    scratch.write("outputs/one/requests.jsonl", records.split_once('\n').unwrap().1);
    let ran = report(&scratch, &[]).code(0);
    let words = "outputs/one/requests.parquet is read in its place";
    let lines = |text: &str| text.lines().filter(|line| !line.contains(words)).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(lines(&ran.stdout), lines(&whole.stdout));
    assert!(ran.stdout.contains(words) && ran.stderr.contains(words), "{ran:?}");
    fs::remove_file(scratch.join("outputs/one/requests.parquet")).unwrap();
    let ran = report(&scratch, &[]).code(2);
    assert!(ran.stderr.contains("4 requests were planned but 3 have an outcome"), "{}", ran.stderr);
    assert!(ran.stderr.contains("cut or changed after the run") && !ran.stderr.contains("bug"), "{}", ran.stderr);
}

#[test]
fn token_gaps_outlive_a_choice_of_percentiles() {
    let scratch = with_run();
    let written = scratch.json("outputs/one/summary.json");
    let ran = report(&scratch, &["--percentiles", "0,50,75,99,100", "--json"]).code(0);
    let summary = json(&ran);
    for key in ["n_itl", "n_excluded_itl", "mean_itl_ms", "median_itl_ms", "std_itl_ms", "p50_itl_ms", "p99_itl_ms"] {
        assert!(written[key].is_number() && summary[key] == written[key], "{key}: {}", summary[key]);
    }
    assert_eq!((&summary["p0_itl_ms"], &summary["p100_itl_ms"]), (&written["min_itl_ms"], &written["max_itl_ms"]));
    assert!(summary["p75_itl_ms"].is_null() && summary["p75_e2e_ms"].is_number());
    assert!(ran.stderr.contains("summary.json has no p75 of them"), "{}", ran.stderr);
    assert!(summary["percentile_notes"][0].as_str().unwrap().contains("p75"), "{}", summary["percentile_notes"]);
    assert_eq!(report(&scratch, &["--percentiles", "50,99", "--json"]).code(0).stderr, "");
}

#[test]
fn what_holds_no_record_is_nothing_to_report() {
    let scratch = with_trace();
    scratch.write("empty.jsonl", "\n");
    for path in ["/dev/null", "empty.jsonl"] {
        scratch.run(&["report", path]).refused(&[path, "nothing to report"]);
    }
}

#[test]
fn a_run_that_did_not_end_says_how_it_stands() {
    let scratch = with_run();
    let run = scratch.json("outputs/one/run.json");
    let stands = |state: &str, failure: Value| {
        let mut run = run.clone();
        (run["state"], run["failure"], run["facts"], run["files"]) = (state.into(), failure, Value::Null, Value::Null);
        run.as_object_mut().unwrap().remove("files");
        scratch.write("outputs/one/run.json", &run.to_string());
        report(&scratch, &["--json"]).code(0)
    };
    let failed = stands("failed", "no space".into());
    assert!(failed.stderr.contains("the run failed: no space"), "{}", failed.stderr);
    let died = stands("running", Value::Null);
    assert!(
        died.stderr.contains("did not end properly (ended by a second signal, killed, crashed, or the disk was full)"),
        "{}",
        died.stderr
    );
    assert_eq!(json(&died)["integrity"]["state"], "unfinished");
    let lock = fs::File::open(scratch.join("outputs/one")).unwrap();
    lock.try_lock().unwrap();
    assert!(stands("running", Value::Null).stderr.contains("is still under way"));
}

#[test]
fn every_view_says_that_the_run_did_not_end() {
    let scratch = with_run();
    let mut run = scratch.json("outputs/one/run.json");
    (run["state"], run["facts"]) = ("running".into(), Value::Null);
    for key in ["files", "xxh3_128"] {
        run.as_object_mut().unwrap().remove(key);
    }
    scratch.write("outputs/one/run.json", &run.to_string());
    let views: [&[&str]; 11] = [
        &[],
        &["--json"],
        &["--format", "markdown"],
        &["--modes"],
        &["--sessions"],
        &["--workers"],
        &["--transfers"],
        &["--events"],
        &["--html", "-"],
        &["--export", "csv=-"],
        &["--perfetto", "-"],
    ];
    for view in views {
        let ran = report(&scratch, view).code(0);
        assert_eq!(ran.stderr.matches("warning: the run did not end properly").count(), 1, "{view:?}: {}", ran.stderr);
    }
    let ran = scratch.run(&["diff", "outputs/one", "outputs/one", "--no-replicas"]);
    assert!(ran.stderr.contains("warning: the run did not end properly"), "{}", ran.stderr);
}

#[test]
fn ids_have_no_power_over_markdown() {
    const ID: &str = "a|b`c`<script>*d*_e_[f](g)~h~&lt;\\";
    let escaped = "a\\|b\\`c\\`\\<script\\>\\*d\\*\\_e\\_\\[f\\](g)\\~h\\~\\&lt;\\\\";
    let scratch = Scratch::new();
    let row = |turn: u32, at: u32| {
        let row = serde_json::json!({
            "session_id": ID, "turn_id": turn, "timestamp": at, "input_length": 64, "output_length": 4
        });
        format!("{row}\n")
    };
    scratch.write("trace.jsonl", &(row(1, 0) + &row(2, 5)));
    for name in ["one", "two"] {
        replay(&scratch, &["--name", name, "--set", "cluster.decode=1"]).code(0);
    }
    let tables: [&[&str]; 2] =
        [&["report", "outputs/one", "--sessions"], &["trace", "inspect", "trace.jsonl", "--sessions"]];
    for table in tables {
        let ran = scratch.run(&[table, &["--format", "markdown"]].concat()).code(0);
        assert!(ran.stdout.contains(escaped) && !ran.stdout.contains(ID), "{table:?}: {}", ran.stdout);
        let bars = |line: &str| line.replace("\\\\", "").replace("\\|", "").matches('|').count();
        let counts: Vec<usize> = ran.stdout.lines().map(bars).collect();
        assert!(counts.iter().all(|count| *count == counts[0]), "{}", ran.stdout);
    }
    for all in [&["report", "outputs/one"][..], &["diff", "outputs/one", "outputs/two", "--no-replicas", "--all"]] {
        let ran = scratch.run(&[all, &["--format", "markdown"]].concat()).code(0);
        assert!(!ran.stdout.contains("<script>") && !ran.stdout.contains(ID), "{all:?}: {}", ran.stdout);
    }
}

#[test]
fn an_id_is_no_link_and_nobody_is_mentioned() {
    let ids = ["http://ev.il/x", "www.ev.il", "[l](http://e)", "@user", "a@b.c", "o/r#1"];
    let scratch = Scratch::new();
    let row = |id: &str, turn: u32, at: u32| {
        let row = serde_json::json!({
            "session_id": id, "turn_id": turn, "timestamp": at, "input_length": 64, "output_length": 4
        });
        format!("{row}\n")
    };
    let rows: Vec<String> = (1..3).flat_map(|turn| ids.map(|id| row(id, turn, turn))).collect();
    scratch.write("trace.jsonl", &rows.concat());
    for (name, cap) in [("one", "1"), ("two", "64")] {
        let cap = format!("admission.cap_max={cap}");
        replay(&scratch, &["--name", name, "--set", "cluster.decode=1", "--set", &cap]).code(0);
    }
    let sessions = scratch.run(&["report", "outputs/one", "--sessions", "--format", "markdown"]).code(0).stdout;
    let diff = ["diff", "outputs/one", "outputs/two", "--no-replicas", "--all", "--format", "markdown"];
    let diff = scratch.run(&diff).code(0).stdout;
    for id in ids {
        assert!(sessions.contains(&format!("| `{id}` |")), "{id}: {sessions}");
        for text in [&sessions, &diff] {
            let outside: String = text.split('`').step_by(2).collect();
            assert!(!outside.contains(id), "{id}: {text}");
        }
    }
}

#[test]
fn ids_cannot_steer_the_terminal() {
    let scratch = Scratch::new();
    let row = |turn: u32, at: u32| {
        format!(
            "{{\"session_id\":\"a\\u001b[2J\\nb\\u202ec\",\"turn_id\":{turn},\"timestamp\":{at},\"input_length\":64,\
             \"output_length\":4}}\n"
        )
    };
    scratch.write("trace.jsonl", &(row(1, 0) + &row(2, 5)));
    replay(&scratch, &["--name", "one"]).code(0);
    let tables = [&["report", "outputs/one", "--sessions"][..], &["trace", "inspect", "trace.jsonl", "--sessions"]];
    for table in tables {
        for format in ["table", "markdown", "csv"] {
            let ran = scratch.run(&[table, &["--format", format]].concat()).code(0);
            assert!(!ran.stdout.contains(['\u{1b}', '\u{202e}']), "{format}: {:?}", ran.stdout);
            let plain = ran.stdout.replace("\\\\", "\\").replace("\\[", "[");
            assert!(plain.contains("a\\u{1b}[2J") && plain.contains("b\\u{202e}c"), "{}", ran.stdout);
        }
    }
    let json = json(&report(&scratch, &["--sessions", "--format", "json"]));
    assert_eq!(json[0]["session_id"], "a\u{1b}[2J\nb\u{202e}c");
}
