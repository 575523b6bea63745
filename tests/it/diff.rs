//! `pdreplay diff` as its users meet it: exit codes, refusals, groups, repeats made for it, formats.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::installed::python;
use crate::run::{Ran, Scratch, root};

/// A small generated trace, replayed with two caps.
fn two_runs() -> Scratch {
    let scratch = Scratch::new();
    let trace = ["trace", "generate", "--sessions", "8", "--requests", "80", "--seed", "7", "-o", "trace.jsonl", "-q"];
    scratch.run(&trace).code(0);
    for (name, cap) in [("a", "1"), ("b", "4")] {
        replay(&scratch, name, &["--set", &format!("admission.cap_max={cap}")]);
    }
    scratch
}

fn replay(scratch: &Scratch, name: &str, more: &[&str]) {
    let base = ["replay", "trace.jsonl", "--set", "cluster.decode=3", "--name", name, "-q"];
    scratch.run(&[&base, more].concat()).code(0);
}

fn diff(scratch: &Scratch, args: &[&str]) -> Ran {
    scratch.run(&[&["diff"], args].concat())
}

fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {}", ran.stdout))
}

/// Held against `tests/data/diff/NAME`; `PDREPLAY_BLESS=1` rewrites it.
#[track_caller]
fn golden(name: &str, text: &str) {
    let path = root().join("tests/data/diff").join(name);
    if std::env::var_os("PDREPLAY_BLESS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == text, "{name} is not what is printed; PDREPLAY_BLESS=1 rewrites it:\n{text}");
}

#[test]
fn the_three_formats_are_as_they_were() {
    let scratch = two_runs();
    let args = ["outputs/a", "outputs/b", "--resamples", "200", "--fail-on", "p99_e2e_ms>+5%", "--format"];
    for (format, file) in [("table", "table.txt"), ("markdown", "report.md"), ("json", "report.json")] {
        let ran = diff(&scratch, &[&args[..], &[format]].concat()).code(0);
        golden(file, &ran.stdout);
        assert!(ran.stderr.contains("A: 3 repeats made in virtual time to learn the noise"), "{}", ran.stderr);
    }
}

#[test]
fn the_number_of_threads_changes_no_byte() {
    let scratch = two_runs();
    let one = diff(&scratch, &["outputs/a", "outputs/b", "--json", "--jobs", "1"]).code(0);
    let many = diff(&scratch, &["outputs/a", "outputs/b", "--json", "--jobs", "5"]).code(0);
    assert!(one.stdout == many.stdout);
    let other = diff(&scratch, &["outputs/a", "outputs/b", "--json", "--seed", "43"]).code(0);
    assert_ne!(json(&one)["metrics"], json(&other)["metrics"]);
}

#[test]
fn a_run_against_itself_has_no_difference_and_passes_every_gate() {
    let scratch = two_runs();
    let ran =
        diff(&scratch, &["outputs/a", "outputs/a/requests.jsonl", "--fail-on", "mean_e2e_ms>+0%", "--no-replicas"])
            .code(0);
    assert!(ran.stdout.contains("no difference") && ran.stdout.contains("ok mean_e2e_ms"), "{}", ran.stdout);
}

#[test]
fn a_condition_that_is_met_is_exit_1_and_one_that_is_none_shows_its_place() {
    let scratch = two_runs();
    let ran = diff(
        &scratch,
        &["outputs/a", "outputs/b", "--no-replicas", "--fail-on", "completed>0", "--fail-on", "bad_share>50%"],
    )
    .code(1);
    assert!(
        ran.stdout.contains("FAIL completed is 80 requests") && ran.stdout.contains("ok bad_share is"),
        "{}",
        ran.stdout
    );
    diff(&scratch, &["outputs/a", "outputs/b", "--fail-on", "p99_e2e>+5%"]).refused(&[
        "did you mean `p99_e2e_ms`?",
        "  p99_e2e>+5%\n  ^^^^^^^\n",
        "examples: p99_e2e_ms>+5%",
    ]);
}

#[test]
fn other_traces_populations_and_time_scales_are_refused_and_force_says_what_is_left_out() {
    let scratch = two_runs();
    replay(&scratch, "fast", &["--time-scale", "10"]);
    diff(&scratch, &["outputs/a", "outputs/fast"]).refused(&["the time scales differ: 1 in A, 10 in B", "--force"]);
    let forced = diff(&scratch, &["outputs/a", "outputs/fast", "--force", "--no-replicas"]).code(0);
    assert!(forced.stdout.contains("forced: the time scales differ") && !forced.stdout.contains("request_throughput"));
    scratch.run(&["replay", "-s", "default", "--name", "other", "-q", "--max-sessions", "2"]).code(0);
    diff(&scratch, &["outputs/a", "outputs/other"]).refused(&["the traces differ: SHA-256 "]);
    let lines = scratch.read("outputs/a/requests.jsonl");
    let some: String = lines.lines().take(70).map(|line| format!("{line}\n")).collect();
    scratch.write("some.jsonl", &some);
    diff(&scratch, &["outputs/a", "some.jsonl"]).refused(&["the populations differ: 10 requests in A alone"]);
}

#[test]
fn groups_are_folders_of_replicas_runs_joined_by_commas_and_further_runs() {
    let scratch = two_runs();
    let jitter = ["--set", "admission.cap_max=1", "--set", "replay.arrival_jitter_ms=500"];
    replay(&scratch, "many", &[&jitter[..], &["--replicas", "3"]].concat());
    let ran = diff(
        &scratch,
        &["outputs/many", "outputs/many/r01,outputs/many/r02", "--with-b", "outputs/many/r03", "--json"],
    )
    .code(0);
    let report = json(&ran);
    assert_eq!(
        (report["a"]["runs"].as_array().unwrap().len(), &report["comparison"]["kind"]),
        (3, &"identical".into())
    );
    assert_eq!((&report["noise"]["source"], &report["noise"]["repeats_b"]), (&"given".into(), &3.into()));
    let one = diff(&scratch, &["outputs/many", "outputs/a", "--json"]).code(0);
    assert_eq!(json(&one)["noise"]["repeats_a"], 3);
    assert!(one.stderr.is_empty(), "{}", one.stderr);
}

#[test]
fn files_of_records_without_a_request_in_common_are_parts_of_one_run() {
    let scratch = two_runs();
    let lines = scratch.read("outputs/a/requests.jsonl");
    let part = |from: usize| lines.lines().skip(from).step_by(2).map(|line| format!("{line}\n")).collect::<String>();
    scratch.write("odd.jsonl", &part(0));
    scratch.write("even.jsonl", &part(1));
    let ran = diff(&scratch, &["odd.jsonl,even.jsonl", "outputs/a"]).code(0);
    assert!(ran.stdout.contains("no difference") && ran.stderr.contains("parts of one run"), "{ran:?}");
}

#[test]
fn repeats_that_cannot_be_made_are_left_out_with_their_reason() {
    let scratch = two_runs();
    let trace = scratch.read("trace.jsonl");
    scratch.write("trace.jsonl", &trace.replacen("\"output_length\":", "\"output_length\":1", 1));
    let changed = diff(&scratch, &["outputs/a", "outputs/b"]).code(0);
    assert!(
        changed.stderr.contains("A: no repeats are made: the trace trace.jsonl has changed since"),
        "{}",
        changed.stderr
    );
    assert!(changed.stdout.contains("noise: unknown, there are no repeats"), "{}", changed.stdout);
    fs::remove_file(scratch.join("trace.jsonl")).unwrap();
    let gone = diff(&scratch, &["outputs/a", "outputs/b"]).code(0);
    assert!(gone.stderr.contains("B: no repeats are made: ") && gone.stderr.contains("trace.jsonl"), "{}", gone.stderr);
    let none = diff(&scratch, &["outputs/a", "outputs/b", "--no-replicas"]).code(0);
    assert!(none.stderr.is_empty(), "{}", none.stderr);
}

#[test]
fn files_of_another_version_and_no_runs_are_refused_by_name() {
    let scratch = two_runs();
    let run = scratch.read("outputs/b/run.json");
    scratch.write("outputs/b/run.json", &run.replacen("\"schema_version\": 1", "\"schema_version\": 9", 1));
    diff(&scratch, &["outputs/a", "outputs/b"]).refused(&["run.json: schema_version is 9, but this pdreplay reads 1"]);
    scratch.write("outputs/b/run.json", &run);
    let summary = scratch.read("outputs/b/summary.json");
    scratch.write("outputs/b/summary.json", &summary.replacen("\"schema_version\": 1", "\"schema_version\": 9", 1));
    let rebuilt = diff(&scratch, &["outputs/a", "outputs/b", "--no-replicas"]).code(0);
    assert!(rebuilt.stderr.contains("schema_version is 9"), "{}", rebuilt.stderr);
    diff(&scratch, &["outputs/a", "nowhere"]).refused(&["nowhere does not exist"]);
    diff(&scratch, &["outputs/a", ","]).refused(&["names no run"]);
    diff(&scratch, &["outputs/a", "outputs/a", "--confidence", "101"]).refused(&["per cent from 50 to below 100"]);
    diff(&scratch, &["outputs/a", "outputs/a", "--percentiles", "101"]).refused(&["from 0 to 100"]);
}

#[test]
fn a_run_that_was_killed_is_told_above_the_numbers() {
    let scratch = two_runs();
    let mut run = scratch.json("outputs/b/run.json");
    (run["state"], run["facts"]) = ("running".into(), Value::Null);
    scratch.write("outputs/b/run.json", &run.to_string());
    let lines = scratch.read("outputs/b/requests.jsonl");
    let cut: String = lines.lines().take(65).map(|line| format!("{line}\n")).collect();
    scratch.write("outputs/b/requests.jsonl", &cut);
    let ran = diff(&scratch, &["outputs/a", "outputs/b", "--no-replicas"]).code(0);
    let at = |word: &str| ran.stdout.find(word).unwrap_or_else(|| panic!("{word}: {}", ran.stdout));
    assert!(at("UNFINISHED") < at("Figures") && ran.stdout.contains("15 requests of A alone"), "{}", ran.stdout);
}

#[test]
fn starvation_is_an_exit_code_where_it_is_asked_for() {
    let scratch = two_runs();
    let starves = scratch.json("outputs/a/summary.json")["fairness"]["starved"].is_object();
    assert!(starves, "cap 1 on three D starves some of eight sessions");
    let report = scratch.run(&["report", "outputs/a", "--fail-on-starvation"]).code(1);
    assert!(!report.stdout.is_empty());
    told(&report.stderr, "sessions starve (direct share below 20 %): ", " in outputs/a (--fail-on-starvation)");
    scratch.run(&["report", "outputs/a"]).code(0);
    let base = [
        "replay",
        "trace.jsonl",
        "--set",
        "cluster.decode=3",
        "--set",
        "admission.cap_max=1",
        "-q",
        "--fail-on-starvation",
    ];
    let ran = scratch.run(&[&base[..], &["--name", "one"]].concat()).code(1);
    told(&ran.stderr, "sessions starve (direct share below 20 %): ", " in outputs/one (--fail-on-starvation)");
    let ran = scratch.run(&[&base[..], &["--replicas", "2", "--name", "reps"]].concat()).code(1);
    let read = scratch.run(&["report", "outputs/reps", "--fail-on-starvation"]).code(1);
    for stderr in [ran.stderr, read.stderr] {
        told(
            &stderr,
            "sessions starve in 2 of 2 replicas (direct share below 20 %): ",
            " in outputs/reps/r02 (--fail-",
        );
    }
}

/// The line of stderr that starts like this has this later.
fn told(stderr: &str, start: &str, later: &str) {
    let line = stderr.lines().find_map(|line| line.strip_prefix("warning: ")?.strip_prefix(start));
    assert!(line.is_some_and(|line| line.contains(later)), "{start} … {later}: {stderr}");
}

#[test]
fn the_statistics_are_those_of_numpy_and_scipy() {
    let Some(python) = python("numpy, scipy") else { return };
    let scratch = two_runs();
    let jitter = ["--set", "admission.cap_max=1", "--set", "replay.arrival_jitter_ms=500", "--replicas", "3"];
    replay(&scratch, "many", &jitter);
    for (name, cap) in [("goal-a", "1"), ("goal-b", "4")] {
        let slo = ["--set", "slo.ttft_ms=500", "--set", "slo.tpot_ms=5.5"];
        replay(&scratch, name, &[&["--set", &format!("admission.cap_max={cap}")][..], &slo].concat());
    }
    let groups = ["outputs/many/r01,outputs/many/r02,outputs/many/r03", "outputs/a"];
    let goal = Some("ttft:800,e2el:2000");
    let sets = [
        (["outputs/a", "outputs/b"], None),
        (groups, goal),
        (["outputs/goal-a", "outputs/goal-b"], None),
        (["outputs/goal-a", "outputs/goal-b"], goal),
    ];
    for (sides, goal) in sets {
        let asked: Vec<&str> = goal.into_iter().flat_map(|goal| ["--goodput", goal]).collect();
        let report = diff(&scratch, &[&sides[..], &["--json", "--resamples", "2000"], &asked].concat()).code(0);
        scratch.write("report.json", &report.stdout);
        let with_goodput = report.stdout.contains("\"key\": \"slo_attainment\"");
        assert_eq!(with_goodput, goal.is_some() || sides[0].contains("goal"), "{sides:?}");
        let checked = Command::new(&python)
            .arg(root().join("scripts/check_statistics.py"))
            .arg("report.json")
            .args(sides)
            .args(goal)
            .current_dir(scratch.path())
            .output()
            .unwrap();
        let checked = Ran::of(checked).code(0);
        assert!(checked.stdout.contains("agree with numpy and scipy"), "{checked:?}");
    }
}

#[test]
fn runs_of_a_side_that_are_of_other_scenarios_or_the_same_run_twice_are_refused() {
    let scratch = two_runs();
    let mixed = diff(&scratch, &["outputs/a", "outputs/a,outputs/b", "--no-replicas"]);
    mixed.refused(&[
        "the runs of B are no repeats of each other",
        "admission.cap_max is 1 in outputs/a and 4 in outputs/b",
    ]);
    let twice = diff(&scratch, &["outputs/a,outputs/a", "outputs/b", "--no-replicas"]);
    twice.refused(&["one and the same run"]);
    let forced = diff(&scratch, &["outputs/a", "outputs/a,outputs/b", "--no-replicas", "--force", "--json"]).code(0);
    assert_eq!(json(&forced)["forced"][0]["difference"], "repeats");
}

#[test]
fn resamples_are_none_or_enough_for_an_interval() {
    let scratch = two_runs();
    for few in ["1", "99", "-1", "x"] {
        let args = ["outputs/a", "outputs/b", &format!("--resamples={few}")];
        diff(&scratch, &args).refused(&["from 100 to 1000000"]);
    }
    let none = diff(&scratch, &["outputs/a", "outputs/b", "--no-replicas", "--resamples", "0", "--json"]).code(0);
    assert_eq!(json(&none)["bootstrap"], Value::Null);
}

/// Where the run as a whole is below a fifth, nobody is starved beside the others; a gate must not take that for health.
#[test]
fn a_run_that_starves_as_a_whole_frees_nobody_and_passes_no_gate() {
    let scratch = Scratch::new();
    let replay = |name: &str, more: &[&str]| {
        let base = ["replay", "--scenario", "v3-1p7d", "--name", name, "-q"];
        scratch.run(&[&base, more].concat())
    };
    replay("cap4", &[]).code(0);
    replay("cap1", &["--set", "admission.cap_max=1", "--fail-on-starvation"]).code(1);
    let report = json(&diff(&scratch, &["outputs/cap4", "outputs/cap1", "--no-replicas", "--json"]).code(0));
    assert_eq!(report["sessions"]["freed"].as_array().unwrap().len(), 0);
    assert!(report["sessions"]["became_starved"].as_array().unwrap().len() > 10);
    let gate = ["outputs/cap4", "outputs/cap1", "--no-replicas", "--fail-on", "starved_sessions>+0"];
    diff(&scratch, &gate).code(1);
    // Nothing can go direct without sessions on D: that is no starvation, and nobody is freed from it.
    scratch.run(&["replay", "--scenario", "dp8", "--name", "dp8", "-q", "--fail-on-starvation"]).code(0);
    let report = json(&diff(&scratch, &["outputs/dp8", "outputs/cap4", "--no-replicas", "--json"]).code(0));
    let metric = |key: &str| report["metrics"].as_array().unwrap().iter().find(|metric| metric["key"] == key).cloned();
    assert_eq!(metric("direct_share").unwrap()["verdict"], "not-comparable");
    assert_eq!(metric("became_starved").unwrap()["verdict"], "not-comparable");
    let sessions = &report["sessions"];
    assert!(["starved_a", "became_starved", "freed"].iter().all(|key| sessions[key].is_null()), "{sessions}");
    assert!(sessions["starved_b"].as_u64() > Some(10), "{sessions}");
}
