//! Runs that are broken off: SIGINT, SIGTERM and SIGHUP once and twice, kill -9, and what is left on the disk.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::cli::records;
use crate::run::{Ran, Scratch};

/// Case 93 asks for results within 3 s of the signal. A release build takes a fraction of one; these tests run an
/// unoptimised build, often many at once on two cores, so they hold what can be held without false alarms.
const END_WITHIN: Duration = Duration::from_secs(30);

/// A run long enough to be interrupted: it ends by itself only after many seconds.
fn long_run(scratch: &Scratch, more: &[&str]) -> Child {
    long_run_in(scratch, "long", more)
}

/// The same, until there are records in `folder` of `outputs/`.
fn long_run_in(scratch: &Scratch, folder: &str, more: &[&str]) -> Child {
    let trace = scratch.join("long.jsonl");
    if !trace.exists() {
        let made = ["trace", "generate", "--sessions", "200", "-o", "long.jsonl", "-q"];
        scratch.run(&made).code(0);
    }
    let args = [&["replay", "long.jsonl", "--name", "long"], more].concat();
    let child = scratch.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let began = Instant::now();
    let records = scratch.join(&format!("outputs/{folder}/requests.jsonl"));
    while fs::metadata(&records).map_or(0, |found| found.len()) == 0 {
        assert!(began.elapsed() < Duration::from_secs(120), "no record was written");
        std::thread::sleep(Duration::from_millis(20));
    }
    child
}

fn signal(child: &Child, name: &str) {
    assert!(send(child, name), "no {name} could be sent");
}

fn send(child: &Child, name: &str) -> bool {
    Command::new("kill")
        .args([format!("-{name}"), child.id().to_string()])
        .stderr(Stdio::null())
        .status()
        .unwrap()
        .success()
}

#[test]
fn an_interrupted_run_keeps_its_results() {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap_or("0").trim();
    let under_nohup = u64::from_str_radix(ignored, 16).unwrap() & 1 == 1;
    for (name, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        if name == "HUP" && under_nohup {
            println!("skipped: SIGHUP is ignored here, as under nohup");
            continue;
        }
        let scratch = Scratch::new();
        let child = long_run(&scratch, &[]);
        signal(&child, name);
        let began = Instant::now();
        let ran = Ran::of(child.wait_with_output().unwrap()).code(code);
        assert!(began.elapsed() < END_WITHIN, "took {:?}", began.elapsed());
        assert!(ran.stdout.contains("interrupted"), "{}", ran.stdout);
        let summary = scratch.json("outputs/long/summary.json");
        assert_eq!(summary["integrity"]["state"], "interrupted");
        assert_eq!(scratch.json("outputs/long/run.json")["state"], "interrupted");
        let records = records(&scratch, "outputs/long");
        assert_eq!(summary["integrity"]["planned"].as_u64(), Some(records.len() as u64));
        assert!(records.iter().any(|record| record["outcome"] == "ok"));
        assert!(records.iter().any(|record| record["outcome"] == "skipped"));
    }
}

#[test]
fn a_killed_run_can_be_reported() {
    let scratch = Scratch::new();
    let mut child = long_run(&scratch, &["-q"]);
    let under_way = scratch.run(&["report", "outputs/long"]).code(0);
    assert!(under_way.stderr.contains("still under way"), "{}", under_way.stderr);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!scratch.join("outputs/long/summary.json").exists());
    let file = scratch.join("outputs/long/requests.jsonl");
    let text = fs::read(&file).unwrap();
    fs::write(&file, &text[..text.len() - 20]).unwrap();
    let report = scratch.run(&["report", "outputs/long/requests.jsonl"]).code(0);
    assert!(report.stderr.contains("did not end properly") && report.stderr.contains("cut off"), "{}", report.stderr);
    assert!(report.stdout.contains("outcome"));
}

/// Every line so far is whole, and the report takes the folder for what it is.
#[track_caller]
fn assert_left_readable(scratch: &Scratch) {
    assert!(!records(scratch, "outputs/long").is_empty());
    assert!(!scratch.join("outputs/long/summary.json").exists());
    assert_eq!(scratch.json("outputs/long/run.json")["state"], "running");
    let report = scratch.run(&["report", "outputs/long"]).code(0);
    assert!(report.stderr.contains("did not end properly") && report.stdout.contains("outcome"), "{report:?}");
}

#[test]
fn a_second_signal_ends_the_program_at_once() {
    let scratch = Scratch::new();
    let child = long_run(&scratch, &["-q"]);
    // The first two wait for the stopped program, so the second is met before the run can have ended. Two threads may
    // take one each at the same moment, both as the first; the third settles that, and may find nobody.
    ["STOP", "INT", "TERM", "CONT"].into_iter().for_each(|name| signal(&child, name));
    send(&child, "INT");
    let began = Instant::now();
    let ran = Ran::of(child.wait_with_output().unwrap());
    assert!(matches!(ran.code, Some(130 | 143)), "{ran:?}");
    assert!(began.elapsed() < END_WITHIN, "took {:?}", began.elapsed());
    assert!(ran.stdout.is_empty(), "{}", ran.stdout);
    assert_left_readable(&scratch);
}

#[test]
fn ctrl_c_twice_is_130_whichever_came_first_the_second_or_the_end() {
    let scratch = Scratch::new();
    let mut child = long_run(&scratch, &["-q"]);
    signal(&child, "INT");
    std::thread::sleep(Duration::from_millis(100));
    let began = Instant::now();
    if child.try_wait().unwrap().is_none() {
        send(&child, "INT");
    }
    Ran::of(child.wait_with_output().unwrap()).code(130);
    assert!(began.elapsed() < END_WITHIN, "took {:?}", began.elapsed());
    if scratch.join("outputs/long/summary.json").exists() {
        assert_eq!(scratch.json("outputs/long/summary.json")["integrity"]["state"], "interrupted");
        assert!(!records(&scratch, "outputs/long").is_empty());
    } else {
        assert_left_readable(&scratch);
    }
}

#[test]
fn interrupted_replicas_say_how_many_are_missing() {
    for (name, code) in [("INT", 130), ("TERM", 143)] {
        let scratch = Scratch::new();
        let child = long_run_in(&scratch, "long/r01", &["--replicas", "3", "--jobs", "1"]);
        signal(&child, name);
        let ran = Ran::of(child.wait_with_output().unwrap()).code(code);
        assert!(ran.stderr.contains("warning: interrupted: 0 of 3 replicas ran to their end"), "{}", ran.stderr);
        assert_eq!(ran.stdout, "", "no table over nothing");
        let written = scratch.json("outputs/long/replicas.json");
        assert_eq!((written["asked"].as_u64(), written["finished"].as_u64()), (Some(3), Some(0)));
        assert_eq!(written["bands"].as_array().map(Vec::len), Some(0));
        let begun: Vec<_> = written["replicas"].as_array().unwrap().iter().map(|one| &one["exit_code"]).collect();
        assert_eq!(begun, [code]);
        assert!(scratch.join("outputs/long/r01/summary.json").exists() && !scratch.join("outputs/long/r02").exists());
        let report = scratch.run(&["report", "outputs/long"]).code(0);
        assert!(report.stderr.contains("0 of 3 replicas") && report.stdout.is_empty(), "{report:?}");
    }
}
