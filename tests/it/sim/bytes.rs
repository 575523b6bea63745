//! Same trace, scenario and seed: the same bytes, whatever the threads, the home, the clock's zone and the language.

use std::fs;

use serde_json::Value;

use super::{case, play, scenario, trace};
use crate::run::{Ran, Scratch};

/// Every file but `run.json`, which holds the clock, the host and the command line.
const FILES: [&str; 6] =
    ["requests.jsonl", "requests.parquet", "events.jsonl", "sessions.jsonl", "workers.jsonl", "summary.json"];

/// What `docs/formats.md` names as differing between equal runs, all of it in `run.json`.
const EXCLUDED: [&str; 7] = ["started_at", "ended_at", "wall_seconds", "name", "command_line", "host", "xxh3_128"];

const CASE_29: [&str; 9] = [
    "replay",
    "trace.jsonl",
    "--policy",
    "kv-aware",
    "--set",
    "cluster.decode=3",
    "--name",
    "same",
    "--allow-conflict",
];

fn with_trace(text: &str) -> Scratch {
    let scratch = Scratch::new();
    scratch.write("trace.jsonl", text);
    scratch
}

#[track_caller]
fn same_bytes(scratch: &Scratch, one: &str, other: &str) {
    for file in FILES {
        let bytes = |run: &str| fs::read(scratch.join(&format!("{run}/{file}"))).unwrap();
        assert!(bytes(one) == bytes(other), "{one}/{file} and {other}/{file} differ");
    }
}

#[test]
fn case_29_equal_runs_are_equal_in_every_environment() {
    let text = case("29-same-seed-same-bytes/trace.jsonl");
    let scratch = with_trace(&text);
    let environments = [
        ("plain", vec![]),
        ("again", vec![]),
        ("home", vec![("HOME", "/nonexistent")]),
        ("zone", vec![("TZ", "Pacific/Kiritimati")]),
        ("language", vec![("LANG", "tr_TR.UTF-8"), ("LC_ALL", "de_DE.UTF-8")]),
    ];
    for (folder, environment) in &environments {
        let mut command = scratch.command(&[&CASE_29[..], &["--output-dir", folder]].concat());
        Ran::of(command.envs(environment.iter().copied()).output().unwrap()).code(0);
        same_bytes(&scratch, "plain/same", &format!("{folder}/same"));
    }
    let mut manifests = [scratch.json("plain/same/run.json"), scratch.json("again/same/run.json")];
    for manifest in &mut manifests {
        let fields = manifest.as_object_mut().unwrap();
        EXCLUDED.iter().for_each(|field| drop(fields.remove(*field)));
    }
    assert_eq!(manifests[0], manifests[1], "run.json differs only where the documentation says so");
    let docs = fs::read_to_string(crate::run::root().join("docs/formats.md")).unwrap();
    let listed = docs.split("**Same bytes.**").nth(1).unwrap().split("\n\n").next().unwrap();
    assert!(EXCLUDED.iter().all(|field| listed.contains(&format!("`{field}`"))), "{listed}");
}

#[test]
fn case_29_replicas_are_the_same_on_one_thread_and_on_four() {
    let text = case("29-same-seed-same-bytes/trace.jsonl");
    let scratch = with_trace(&text);
    let run = |jobs: &str| {
        let more = ["--replicas", "4", "--jobs", jobs, "--output-dir", jobs, "--json"];
        scratch.run(&[&CASE_29[..], &more].concat()).code(0).stdout
    };
    let bands: [Value; 2] = [run("1"), run("4")].map(|text| serde_json::from_str(&text).unwrap());
    assert_eq!(bands[0], bands[1]);
    for replica in ["r01", "r02", "r03", "r04"] {
        same_bytes(&scratch, &format!("1/same/{replica}"), &format!("4/same/{replica}"));
    }
    assert_eq!(scratch.read("1/same/replicas.json"), scratch.read("4/same/replicas.json"));
}

#[test]
fn case_29_ties_are_broken_by_arrival_and_index() {
    let text = case("29-same-seed-same-bytes/trace.jsonl");
    let played = play(&trace(&text), &scenario(&["cluster.decode = 3\npolicy.name = 'kv-aware'"]));
    // Sixteen first turns at once: placed by the router in turn, in order of the file.
    for k in 0..16 {
        assert_eq!(played.worker(&format!("t{k:02}"), 0), format!("D{}", k % 3));
    }
}

#[test]
fn another_seed_may_differ_and_is_on_record() {
    let text = case("29-same-seed-same-bytes/trace.jsonl");
    let scratch = with_trace(&text);
    for seed in ["1", "2"] {
        let jitter = ["--seed", seed, "--set", "replay.arrival_jitter_ms=5", "--output-dir", seed];
        scratch.run(&[&CASE_29[..], &jitter].concat()).code(0);
        assert_eq!(scratch.json(&format!("{seed}/same/summary.json"))["run"]["seed"].to_string(), seed);
    }
    assert_ne!(scratch.read("1/same/requests.jsonl"), scratch.read("2/same/requests.jsonl"));
}
