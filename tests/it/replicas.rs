//! Seeded replicas of a run: same bytes whatever the threads, jitter, bands over whole runs.

use serde_json::Value;

use crate::cli::{replay, with_trace};
use crate::run::Scratch;

#[test]
fn replicas_give_the_same_bytes_on_one_thread_and_on_many() {
    let scratch = with_trace();
    let one = replay(&scratch, &["--replicas", "3", "--jobs", "1", "--name", "one", "--json"]).code(0);
    let many = replay(&scratch, &["--replicas", "3", "--jobs", "3", "--name", "many", "--json"]).code(0);
    assert_eq!(one.stdout, many.stdout);
    for file in ["r01/requests.jsonl", "r02/summary.json", "r03/requests.jsonl"] {
        assert!(
            scratch.read(&format!("outputs/one/{file}")) == scratch.read(&format!("outputs/many/{file}")),
            "{file}"
        );
    }
    assert_ne!(scratch.read("outputs/one/r01/requests.jsonl"), scratch.read("outputs/one/r02/requests.jsonl"));
    let bands: Value = serde_json::from_str(&one.stdout).unwrap();
    assert_eq!((bands["asked"].as_u64(), bands["finished"].as_u64()), (Some(3), Some(3)));
    assert_eq!((bands["replicas"][2]["seed"].as_u64(), bands["bands"][0]["n"].as_u64()), (Some(44), Some(3)));
    assert!(scratch.run(&["report", "outputs/one"]).code(0).stdout.contains("p99_e2e_ms"));
}

#[test]
fn replicas_that_barely_differ_are_told_what_to_try() {
    let scratch = with_trace();
    let said = replay(&scratch, &["--replicas", "2", "--name", "alike"]).code(0).stderr;
    assert!(said.contains("barely differ under 1 ms of jitter: try --set replay.arrival_jitter_ms=1000\n"), "{said}");
    let built_in = ["replay", "-s", "v3-1p7d", "--replicas", "2", "--name"];
    let said = scratch.run(&[&built_in[..], &["narrow"]].concat()).code(0).stderr;
    assert!(said.contains("=1000, or another trace with --set trace.seed=N\n"), "{said}");
    let wide = [&built_in[..], &["wide", "--set", "replay.arrival_jitter_ms=1000"]].concat();
    let said = scratch.run(&wide).code(0).stderr;
    assert!(!said.contains("barely differ"), "{said}");
}

/// The jitter that the first of two replicas ran with, and whether it was said to be the replicas' own.
fn jitter(scratch: &Scratch, name: &str, more: &[&str]) -> (Option<f64>, bool) {
    let ran = replay(scratch, &[&["--replicas", "2", "--name", name], more].concat()).code(0);
    let run = scratch.json(&format!("outputs/{name}/r01/run.json"));
    (run["scenario"]["replay"]["arrival_jitter_ms"].as_f64(), ran.stderr.contains("jittered by up to 1 ms"))
}

#[test]
fn replicas_choose_a_jitter_where_there_is_none_unless_set_says_so() {
    let scratch = with_trace();
    // The shipped default, like every scenario that `scenario show` prints, states a jitter of 0.
    scratch.write("zero.toml", "[replay]\narrival_jitter_ms = 0.0\n");
    scratch.write("half.toml", "[replay]\narrival_jitter_ms = 0.5\n");
    assert_eq!(jitter(&scratch, "built-in", &[]), (Some(1.0), true));
    assert_eq!(jitter(&scratch, "default", &["-s", "default"]), (Some(1.0), true));
    assert_eq!(jitter(&scratch, "zero", &["-s", "zero.toml"]), (Some(1.0), true));
    assert_eq!(jitter(&scratch, "half", &["-s", "half.toml"]), (Some(0.5), false));
    assert_eq!(jitter(&scratch, "none", &["--set", "replay.arrival_jitter_ms=0"]), (Some(0.0), false));
    replay(&scratch, &["--name", "alone"]).code(0);
    assert_eq!(scratch.json("outputs/alone/run.json")["scenario"]["replay"]["arrival_jitter_ms"], 0.0);
}
