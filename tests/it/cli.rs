//! The program as its users meet it: exit codes, streams, run folders, full disks, no terminal.

use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::run::{Ran, Scratch};

/// Two sessions, four turns, a second of run time.
const TRACE: &str = r#"{"format":"pdreplay-trace","version":1,"block_size":64}
{"session_id":"a","turn_id":1,"timestamp":0.0,"input_length":640,"output_length":20,"hash_ids":[1,2,3,4,5,6,7,8,9,10]}
{"session_id":"b","turn_id":1,"timestamp":0.5,"input_length":640,"output_length":20,"hash_ids":[1,2,3,4,5,6,7,8,9,30]}
{"session_id":"a","turn_id":2,"timestamp":8.0,"input_length":768,"output_length":20,"hash_ids":[1,2,3,4,5,6,7,8,9,10,11,12]}
{"session_id":"b","turn_id":2,"timestamp":9.0,"input_length":768,"output_length":20,"hash_ids":[1,2,3,4,5,6,7,8,9,30,31,32]}
"#;

pub fn with_trace() -> Scratch {
    let scratch = Scratch::new();
    scratch.write("trace.jsonl", TRACE);
    scratch
}

pub fn replay(scratch: &Scratch, more: &[&str]) -> Ran {
    scratch.run(&[&["replay", "trace.jsonl"], more].concat())
}

pub fn records(scratch: &Scratch, folder: &str) -> Vec<Value> {
    let text = scratch.read(&format!("{folder}/requests.jsonl"));
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

#[test]
fn a_run_leaves_a_whole_folder_and_prints_its_summary() {
    let scratch = with_trace();
    let ran = replay(&scratch, &["--name", "one"]).code(0);
    assert!(ran.stdout.contains("4 requests, 2 sessions") && ran.stdout.contains("run valid"), "{}", ran.stdout);
    let mut names: Vec<String> = fs::read_dir(scratch.join("outputs/one"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let wanted = [
        "events.jsonl",
        "requests.jsonl",
        "requests.parquet",
        "run.json",
        "sessions.jsonl",
        "summary.json",
        "workers.jsonl",
    ];
    assert_eq!(names, wanted);
    let run = scratch.json("outputs/one/run.json");
    assert_eq!((run["state"].as_str(), run["exit_code"].as_u64()), (Some("completed"), Some(0)));
    assert_eq!(run["trace"]["sha256"].as_str().map(str::len), Some(64));
    assert_eq!(run["scenario"]["admission"]["cap_max"], 4);
    assert_eq!(records(&scratch, "outputs/one").len(), 4);
    assert_eq!(scratch.json("outputs/one/summary.json")["completed"], 4);
}

#[test]
fn json_on_stdout_is_the_summary_and_nothing_else() {
    let scratch = with_trace();
    let ran = replay(&scratch, &["--json", "--name", "one"]).code(0);
    let printed: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(printed, scratch.json("outputs/one/summary.json"));
    let again = scratch.run(&["report", "outputs/one", "--json"]).code(0);
    assert_eq!(again.stdout, ran.stdout);
}

#[test]
fn the_same_run_twice_gives_the_same_bytes() {
    let scratch = with_trace();
    replay(&scratch, &["--name", "one"]).code(0);
    replay(&scratch, &["--name", "two"]).code(0);
    for file in
        ["requests.jsonl", "events.jsonl", "sessions.jsonl", "workers.jsonl", "summary.json", "requests.parquet"]
    {
        let bytes = |run: &str| fs::read(scratch.join(&format!("outputs/{run}/{file}"))).unwrap();
        assert!(bytes("one") == bytes("two"), "{file} differs");
    }
}

#[test]
fn bad_usage_and_bad_input_leave_no_folder() {
    let scratch = with_trace();
    scratch.write(
        "bad.jsonl",
        "{\"session_id\":\"a\",\"turn_id\":1,\"timestamp\":\"x\",\"input_length\":1,\"output_length\":1}\n",
    );
    scratch.write("empty.jsonl", "");
    scratch.run(&["replay", "bad.jsonl"]).refused(&["bad.jsonl:1", "timestamp"]);
    scratch.run(&["replay", "empty.jsonl"]).refused(&["empty.jsonl"]);
    scratch.run(&["replay", "missing.jsonl"]).refused(&["missing.jsonl"]);
    scratch.run(&["replay", "."]).refused(&["."]);
    replay(&scratch, &["--set", "admission.cap_maxx=3"]).refused(&["cap_maxx", "cap_max"]);
    let zero = replay(&scratch, &["--time-scale", "0"]).refused(&["error: --time-scale 0: `replay.time_scale` is 0;"]);
    assert_eq!(zero.stderr.lines().count(), 1, "{}", zero.stderr);
    replay(&scratch, &["--time-scale", "fast"]).refused(&["fast"]);
    replay(&scratch, &["-s", "v3-1p7dd"]).refused(&["v3-1p7d"]);
    replay(&scratch, &["--polcy", "sticky"]).refused(&["--polcy", "--policy"]);
    replay(&scratch, &["--name", "../x"]).refused(&["../x"]);
    assert!(!scratch.join("outputs").exists());
}

#[test]
fn each_problem_is_a_line_that_says_error() {
    let scratch = with_trace();
    scratch.write("bad.toml", "[admission]\ncap_max = 0\nopen_attempts = 0\n");
    let refused = replay(&scratch, &["-s", "bad.toml"]).refused(&["bad.toml:2:1: ", "bad.toml:3:1: "]);
    assert!(refused.stderr.lines().all(|line| line.starts_with("error: ")), "{}", refused.stderr);
}

#[test]
fn a_fault_is_looked_up_in_the_trace_before_an_earlier_run_is_replaced() {
    let scratch = with_trace();
    replay(&scratch, &["--name", "one"]).code(0);
    let before = scratch.read("outputs/one/requests.jsonl");
    for (fault, words) in [
        ("{kind=\"hang\", session=\"zzz\"}", ["fault[0].session", "no such session"]),
        ("{kind=\"hang\", session=\"a\", turn=9}", ["fault[0].turn", "turn from 1 to 2"]),
    ] {
        let faulty = format!("fault=[{fault}]");
        replay(&scratch, &["--name", "one", "--overwrite", "--set", &faulty]).refused(&words);
        replay(&scratch, &["--name", "two", "--replicas", "2", "--set", &faulty]).refused(&words);
        scratch.run(&["preflight", "trace.jsonl", "--set", &faulty]).refused(&words);
    }
    assert_eq!(scratch.read("outputs/one/requests.jsonl"), before);
    assert!(!scratch.join("outputs/two").exists());
    let struck =
        ["--name", "one", "--overwrite", "--set", "fault=[{kind=\"error-response\", status=500, session=\"a\"}]"];
    replay(&scratch, &struck).code(1);
    assert_eq!(records(&scratch, "outputs/one").iter().filter(|record| record["outcome"] == "error").count(), 2);
}

#[test]
fn percentiles_are_percentages() {
    let scratch = with_trace();
    for list in ["101", "-1", "abc", ""] {
        let refused = replay(&scratch, &["--percentiles", list]).refused(&[]);
        assert!(refused.stderr.contains("0 to 100"), "{list}: {}", refused.stderr);
    }
    replay(&scratch, &["--name", "one"]).code(0);
    let report = scratch.run(&["report", "outputs/one", "--percentiles", "0.5, 50 ,50", "--json"]).code(0);
    assert!(report.stderr.contains("did you mean 50?"), "{}", report.stderr);
    let summary: Value = serde_json::from_str(&report.stdout).unwrap();
    assert!(summary["p0.5_ttft_ms"].is_number() && summary["p50_ttft_ms"].is_number());
}

#[test]
fn a_conflict_is_refused_unless_it_is_wanted() {
    let scratch = with_trace();
    replay(&scratch, &["--policy", "default"]).refused(&["default", "hint: --allow-conflict"]);
    let preflight = scratch.run(&["preflight", "trace.jsonl", "--policy", "default"]).code(1);
    assert!(preflight.stdout.contains("--allow-conflict"));
    let ran = replay(&scratch, &["--policy", "default", "--allow-conflict", "--name", "v2"]);
    assert!(matches!(ran.code, Some(0 | 1)) && scratch.join("outputs/v2/summary.json").exists(), "{ran:#?}");
}

#[test]
fn a_run_that_breaks_its_budget_exits_with_1() {
    let scratch = with_trace();
    scratch.write("refuse.toml", "[[fault]]\nkind = \"error-response\"\nworker = \"D0\"\nstatus = 500\n");
    let ran = replay(&scratch, &["-s", "refuse.toml", "--set", "cluster.decode=1", "--name", "bad"]).code(1);
    assert!(ran.stdout.contains("withheld"), "{}", ran.stdout);
    assert_eq!(scratch.json("outputs/bad/run.json")["exit_code"], 1);
}

#[test]
fn a_folder_that_exists_is_kept_and_overwrite_is_careful() {
    let scratch = with_trace();
    replay(&scratch, &["--name", "one"]).code(0);
    let before = scratch.read("outputs/one/run.json");
    replay(&scratch, &["--name", "one"]).refused(&["one exists", "--name", "--overwrite"]);
    assert_eq!(scratch.read("outputs/one/run.json"), before);
    scratch.write("outputs/one/notes.txt", "mine");
    replay(&scratch, &["--name", "one", "--overwrite"]).refused(&["notes.txt"]);
    assert_eq!(scratch.read("outputs/one/run.json"), before);
    fs::remove_file(scratch.join("outputs/one/notes.txt")).unwrap();
    replay(&scratch, &["--name", "one", "--overwrite", "--replicas", "3"]).code(0);
    replay(&scratch, &["--name", "one", "--overwrite"]).code(0);
    assert!(!scratch.join("outputs/one/r01").exists() && scratch.join("outputs/one/requests.jsonl").exists());
}

#[test]
fn two_runs_at_once_with_one_name_do_not_mix() {
    let scratch = with_trace();
    let start = || {
        scratch
            .command(&["replay", "trace.jsonl", "--name", "one", "-q"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    let mut children = [start(), start(), start(), start()];
    let codes: Vec<Option<i32>> = children.iter_mut().map(|child| child.wait().unwrap().code()).collect();
    assert_eq!(codes.iter().filter(|code| **code == Some(0)).count(), 1, "{codes:?}");
    assert_eq!(codes.iter().filter(|code| **code == Some(2)).count(), 3, "{codes:?}");
    assert_eq!(records(&scratch, "outputs/one").len(), 4);
}

#[test]
fn default_names_never_collide() {
    let scratch = with_trace();
    (0..3).for_each(|_| drop(replay(&scratch, &["-q"]).code(0)));
    assert_eq!(fs::read_dir(scratch.join("outputs")).unwrap().count(), 3);
}

#[test]
fn report_refuses_what_is_no_run_and_what_is_newer() {
    let scratch = with_trace();
    replay(&scratch, &["--name", "one"]).code(0);
    scratch.run(&["report", "nowhere"]).refused(&["nowhere"]);
    scratch.run(&["report", "."]).refused(&["run.json"]);
    let newer = scratch.read("outputs/one/run.json").replace("\"schema_version\": 1", "\"schema_version\": 9");
    fs::write(scratch.join("outputs/one/run.json"), newer).unwrap();
    scratch.run(&["report", "outputs/one"]).refused(&["schema_version is 9"]);
}

#[test]
fn every_table_comes_in_every_format() {
    let scratch = with_trace();
    replay(&scratch, &["--name", "one"]).code(0);
    for table in ["--modes", "--sessions", "--workers", "--transfers", "--events"] {
        for format in ["table", "json", "csv", "markdown"] {
            let ran = scratch.run(&["report", "outputs/one", table, "--format", format]).code(0);
            assert!(!ran.stdout.is_empty() && ran.stderr.is_empty(), "{table} {format}: {ran:?}");
            if format == "json" {
                assert!(serde_json::from_str::<Value>(&ran.stdout).unwrap().is_array(), "{table}");
            }
        }
    }
}

#[test]
fn a_full_disk_stops_the_run() {
    let scratch = Scratch::new();
    let made = ["trace", "generate", "--sessions", "20", "-o", "trace.jsonl", "-q"];
    scratch.run(&made).code(0);
    // A limit on file size is met as an error of the write, as on a full disk.
    let ran = limited(&scratch, "ulimit -f 64", "replay trace.jsonl --name full -q").code(1);
    assert!(ran.stderr.starts_with("error: cannot write outputs/full/"), "{}", ran.stderr);
    assert!(ran.stderr.contains("hint: raise the limit") && ran.stdout.is_empty(), "{ran:?}");
    assert!(!scratch.join("outputs/full/summary.json").exists());
    let run = scratch.json("outputs/full/run.json");
    assert_eq!(run["state"], "failed");
    assert!(
        run["failure"].as_str().unwrap().contains("requests.jsonl")
            || run["failure"].as_str().unwrap().contains("parquet")
    );
}

#[test]
fn a_disk_that_is_full_from_the_first_byte_leaves_no_folder_in_the_way() {
    let scratch = with_trace();
    let attempts = ["--name full", "--name full --replicas 2", "--name full --overwrite"];
    for args in attempts {
        let ran = limited(&scratch, "ulimit -f 0", &format!("replay trace.jsonl -q {args}")).code(1);
        assert!(ran.stderr.starts_with("error: cannot write outputs/full/"), "{}", ran.stderr);
        assert!(ran.stderr.contains("hint: raise the limit") && ran.stdout.is_empty(), "{ran:?}");
        assert!(!scratch.join("outputs/full").exists(), "{args}");
    }
    // Of a run that was killed before it wrote anything.
    fs::create_dir_all(scratch.join("outputs/full")).unwrap();
    replay(&scratch, &["--name", "full"]).code(0);
    let ran = replay(&scratch, &["--name", "full"]).code(2);
    assert!(ran.stderr.contains("the run folder outputs/full exists"), "{}", ran.stderr);
}

/// The binary under a limit of the shell.
fn limited(scratch: &Scratch, limit: &str, args: &str) -> Ran {
    let script = format!("{limit}; exec \"$0\" {args}");
    let shell = Command::new("bash")
        .args(["-c", &script, env!("CARGO_BIN_EXE_pdreplay")])
        .current_dir(scratch.path())
        .output()
        .unwrap();
    Ran::of(shell)
}

#[test]
fn a_limit_is_told_by_its_name() {
    let scratch = with_trace();
    let files = limited(&scratch, "ulimit -f 20", "trace generate -o big.jsonl").code(1);
    assert!(files.stderr.starts_with("error: cannot write big.jsonl: File too large"), "{}", files.stderr);
    assert!(!scratch.join("big.jsonl").exists());
    let open = limited(&scratch, "ulimit -n 6", "replay trace.jsonl --name one -q").code(1);
    assert!(open.stderr.contains("hint: raise the limit on open files (`ulimit -n`)"), "{}", open.stderr);
    assert!(!open.stderr.contains("make room"), "{}", open.stderr);
}

#[test]
fn a_name_that_is_taken_is_refused_before_the_trace_is_read() {
    let scratch = with_trace();
    replay(&scratch, &["--name", "one", "-q"]).code(0);
    scratch.run(&["replay", "missing.jsonl", "--name", "one"]).refused(&["one exists", "--overwrite"]);
    scratch.run(&["replay", "missing.jsonl", "--name", "ünï"]).refused(&["ünï", "ASCII letters"]);
    scratch.write("outputs/one/notes.txt", "mine");
    scratch.run(&["replay", "missing.jsonl", "--name", "one", "--overwrite"]).refused(&["notes.txt"]);
}

#[test]
fn columns_of_a_csv_are_named_like_keys() {
    let scratch = with_trace();
    replay(&scratch, &["--name", "one"]).code(0);
    replay(&scratch, &["--name", "many", "--replicas", "2"]).code(0);
    for args in [&["outputs/one", "--events"][..], &["outputs/one", "--sessions"], &["outputs/many"]] {
        let ran = scratch.run(&[&["report"], args, &["--format", "csv"]].concat()).code(0);
        let is_key = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | ',');
        assert!(ran.stdout.lines().next().unwrap().chars().all(is_key), "{}", ran.stdout);
    }
}

#[test]
fn a_slow_run_has_a_rate() {
    let scratch = with_trace();
    let ran = replay(&scratch, &["--name", "one", "--time-scale", "0.001"]).code(0);
    assert!(ran.stdout.contains(" 0.00044 requests/s, 0.0089 answer tokens/s"), "{}", ran.stdout);
}

#[test]
fn a_session_that_goes_direct_has_no_reason_against_it() {
    let scratch = with_trace();
    replay(&scratch, &["--name", "one"]).code(0);
    let rows = scratch.json("outputs/one/summary.json");
    assert!(rows["sessions"].as_array().unwrap().iter().all(|row| row["seeds"] == 1 && row["main_reason"].is_null()));
}

#[test]
fn a_full_stdout_is_an_error_and_a_closed_one_is_not() {
    let scratch = with_trace();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let ran = Ran::of(scratch.command(&["trace", "inspect", "trace.jsonl"]).stdout(full).output().unwrap()).code(1);
    assert!(ran.stderr.contains("standard output") && ran.stderr.contains("space"), "{}", ran.stderr);
    let mut child = scratch
        .command(&["trace", "generate", "--sessions", "20"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut [0; 64]).unwrap();
    drop(out);
    let ran = Ran::of(child.wait_with_output().unwrap()).code(0);
    assert!(!ran.stderr.contains("panic") && !ran.stderr.contains("error"), "{}", ran.stderr);
}

#[test]
fn an_output_directory_that_cannot_be_made_is_told_before_the_run() {
    let scratch = with_trace();
    scratch.write("file", "");
    replay(&scratch, &["--output-dir", "file/outputs"]).refused(&["file/outputs", "--output-dir"]);
    if fs::create_dir("/proc/pdreplay").is_err() {
        replay(&scratch, &["--output-dir", "/proc/pdreplay"]).refused(&["/proc/pdreplay"]);
    }
}

#[test]
fn without_a_terminal_progress_is_a_few_plain_lines() {
    let scratch = with_trace();
    let ran = replay(&scratch, &["--name", "one"]).code(0);
    assert!(!ran.stderr.contains(['\r', '\x1b']) && ran.stderr.len() < 4096, "{}", ran.stderr);
    assert!(ran.stderr.contains("4 requests"), "{}", ran.stderr);
    let quiet = replay(&scratch, &["--name", "two", "--quiet"]).code(0);
    assert_eq!(quiet.stderr, "");
    let colored = replay(&scratch, &["--name", "one", "--color", "always"]).code(2);
    assert!(colored.stderr.contains("\x1b[1;31merror:"), "{}", colored.stderr);
    let plain = scratch.command(&["replay", "trace.jsonl", "--name", "one"]).env("NO_COLOR", "1").output().unwrap();
    assert!(!Ran::of(plain).code(2).stderr.contains('\x1b'));
}

#[test]
fn a_reader_that_does_not_read_holds_nothing_up() {
    let scratch = with_trace();
    // The pipe is full before the run begins, and nobody reads it until the end.
    let script =
        "mkfifo pipe; exec 8<>pipe; head -c 65536 /dev/zero >&8; exec \"$0\" replay trace.jsonl --name one 2>pipe";
    let began = Instant::now();
    let output = Command::new("bash")
        .args(["-c", script, env!("CARGO_BIN_EXE_pdreplay")])
        .current_dir(scratch.path())
        .output()
        .unwrap();
    Ran::of(output).code(0);
    assert!(began.elapsed() < Duration::from_secs(60));
}

#[test]
fn a_list_of_addresses_behind_one_flag_is_told_to_repeat_it() {
    let scratch = Scratch::new();
    let doctor = scratch.run(&["doctor", "--decode", "http://a:1", "http://b:1"]).code(2);
    assert!(doctor.stderr.contains("repeat the flag for each address"), "{}", doctor.stderr);
    let replay = scratch.run(&["replay", "--target", "live", "--decode", "http://a:1", "http://b:1"]);
    replay.refused(&["http://b:1 is an address, not a trace file", "repeat the flag for each address"]);
}

#[test]
fn a_missing_file_of_kv_events_is_told_where_one_is_described() {
    let missing = Scratch::new().run(&["index", "serve", "--config", "kv-events.json"]);
    missing.refused(&["kv-events.json cannot be read", "write one: docs/kv-events.md#the-file"]);
}
