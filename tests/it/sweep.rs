//! Sweeps: a row a cell, the same bytes however they came about, and nothing that is done is done again.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use pdreplay::results::sweep::SweepReport;
use serde_json::Value;

use crate::cli::with_trace;
use crate::flips::flip_a_digit;
use crate::results::schema::problems;
use crate::run::{Ran, Scratch, root};

const SWEEP: &str =
    "[sweep]\nscenario = \"v3-1p7d\"\nrepeats = 2\n\n[axes]\npolicy = [\"sticky\", \"kv-aware\"]\ncap = [2, 4]\n";

fn sweeping(text: &str) -> Scratch {
    let scratch = with_trace();
    scratch.write("caps.toml", text);
    scratch
}

fn sweep(scratch: &Scratch, more: &[&str]) -> Ran {
    scratch.run(&[&["sweep", "caps.toml", "trace.jsonl"], more].concat())
}

/// Every file of a sweep by its path, without what tells the time: start, end and wall time of each run, and the digest of that.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    gather(folder, "", &mut found);
    for (name, bytes) in found.iter_mut().filter(|(name, _)| name.ends_with("run.json")) {
        let mut run: Value = serde_json::from_slice(bytes).unwrap();
        for key in ["started_at", "ended_at", "wall_seconds", "xxh3_128"] {
            assert!(run.as_object_mut().unwrap().remove(key).is_some_and(|value| !value.is_null()), "{name}: {key}");
        }
        *bytes = serde_json::to_vec(&run).unwrap();
    }
    found
}

fn gather(folder: &Path, prefix: &str, into: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
        if entry.path().is_dir() {
            gather(&entry.path(), &format!("{name}/"), into);
        } else {
            into.insert(name, fs::read(entry.path()).unwrap());
        }
    }
}

#[track_caller]
fn assert_same(one: &Path, other: &Path) {
    let (one, other) = (files(one), files(other));
    assert_eq!(one.keys().collect::<Vec<_>>(), other.keys().collect::<Vec<_>>());
    for (name, bytes) in &one {
        assert!(*bytes == other[name], "{name} differs");
    }
}

fn states(scratch: &Scratch, name: &str) -> Vec<String> {
    let report = scratch.json(&format!("outputs/{name}/sweep.json"));
    let cells = report["cells"].as_array().unwrap();
    cells.iter().map(|cell| cell["state"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_sweep_is_a_run_folder_a_cell_and_one_table_whatever_the_threads() {
    let (one, many) = (sweeping(SWEEP), sweeping(SWEEP));
    let ran = sweep(&one, &["--jobs", "1"]).code(0);
    assert!(
        ran.stdout.starts_with("caps · 8 cells: 4 points × 2 seeds · v3-1p7d · trace · virtual time\n"),
        "{}",
        ran.stdout
    );
    assert!(ran.stdout.contains("kv-aware    4     2  valid"), "{}", ran.stdout);
    assert!(ran.stderr.contains("pdreplay report outputs/caps/cells/"), "{}", ran.stderr);
    // The command line in run.json is not the same.
    sweep(&many, &["--jobs", "4"]).code(0);
    let strip = |mut found: BTreeMap<String, Vec<u8>>| {
        found.retain(|name, _| !name.ends_with("run.json"));
        found
    };
    assert!(strip(files(&one.join("outputs/caps"))) == strip(files(&many.join("outputs/caps"))));
    let cell = "outputs/caps/cells/kv-aware_cap-4_s43";
    let alone = one.run(&["report", cell]).code(0);
    assert!(alone.stdout.contains("seed 43"), "{}", alone.stdout);
    let report = one.json("outputs/caps/sweep.json");
    let schema = SweepReport::schema().to_value();
    assert_eq!(problems(&report, &schema, &schema, ""), Vec::<String>::new());
    assert_eq!(report["cells"][7]["folder"], "cells/kv-aware_cap-4_s43");
    let summary = one.json(&format!("{cell}/summary.json"));
    assert_eq!(report["cells"][7]["figures"]["p99_e2e_ms"], summary["p99_e2e_ms"]);
    assert!(fs::read(one.join("outputs/caps/sweep.parquet")).unwrap().starts_with(b"PAR1"));
}

#[test]
fn a_report_of_a_sweep_is_its_table() {
    let scratch = sweeping(SWEEP);
    let ran = sweep(&scratch, &[]).code(0);
    for place in ["outputs/caps", "outputs/caps/sweep.json"] {
        assert_eq!(scratch.run(&["report", place]).code(0).stdout, ran.stdout);
    }
    let json = scratch.run(&["report", "outputs/caps", "--json"]).code(0).stdout;
    assert_eq!(json, scratch.read("outputs/caps/sweep.json"));
    let csv = scratch.run(&["report", "outputs/caps", "--format", "csv"]).code(0).stdout;
    assert!(csv.starts_with("policy,cap,runs,verdict,") && csv.lines().count() == 5, "{csv}");
    scratch
        .run(&["report", "outputs/caps", "--sessions"])
        .refused(&["--sessions is for one run", "cells/sticky_cap-2_s42"]);
}

#[test]
fn starvation_is_judged_of_the_cells_that_are_chosen() {
    let text = "[axes]\ncap = [1, 64]\n[set]\ncluster.decode = 1\n[sweep]\nscenario = \"v3-1p7d\"\n";
    let scratch = sweeping(text);
    fs::copy(root().join("traces/sample-6.jsonl"), scratch.join("trace.jsonl")).unwrap();
    sweep(&scratch, &[]).code(0);
    let report = scratch.json("outputs/caps/sweep.json");
    let starved = |ix: usize| report["cells"][ix]["figures"]["starved_sessions"].as_f64().unwrap();
    assert!(starved(0) > 0.0 && starved(1) == 0.0, "{report:#}");
    let all = sweep(&scratch, &["--fail-on-starvation"]).code(1);
    let words = format!(
        "sessions starve in 1 of 2 cells (direct share below 20 %): {} in outputs/caps/cells/cap-1 (--fail-on-starvation)",
        starved(0)
    );
    assert!(all.stderr.contains(&words), "{}", all.stderr);
    // `report` of the folder names the cell in the same words.
    let read = scratch.run(&["report", "outputs/caps", "--fail-on-starvation"]).code(1);
    assert!(read.stderr.contains(&words), "{}", read.stderr);
    sweep(&scratch, &["--fail-on-starvation", "--filter", "cap=1"]).code(1);
    sweep(&scratch, &["--fail-on-starvation", "--filter", "cap=64"]).code(0);
}

#[test]
fn a_table_in_a_pipe_is_whole_and_markdown_has_its_columns() {
    let more = "\"engine.kv_pool_tokens\" = [80000, 90000]\n\"engine.chunk_tokens\" = [4096, 8192]\n\
        \"replay.think_scale\" = [1, 10]\n";
    let scratch = sweeping(&format!("{SWEEP}{more}"));
    fs::copy(root().join("traces/sample-6.jsonl"), scratch.join("trace.jsonl")).unwrap();
    let ran = sweep(&scratch, &["--set", "slo.ttft_ms=2000"]).code(0);
    let widest = ran.stdout.lines().map(|line| line.chars().count()).max();
    assert!(widest > Some(160), "{widest:?}: not wide enough to tell");
    assert!(
        !ran.stdout.contains('…') && ran.stdout.contains("predicted") && !ran.stdout.contains("left out"),
        "{ran:?}"
    );
    let markdown = scratch.run(&["report", "outputs/caps", "--format", "markdown"]).code(0).stdout;
    let head = markdown.lines().next().unwrap();
    assert!(head.ends_with("| in SLO | bad | predicted | direct | starved |") && !head.contains("_ms"), "{markdown}");
}

#[test]
fn what_is_done_is_kept_and_what_was_damaged_is_run_again() {
    let scratch = sweeping(SWEEP);
    sweep(&scratch, &[]).code(0);
    let before = files(&scratch.join("outputs/caps"));
    let started = |cell: &str| scratch.json(&format!("outputs/caps/cells/{cell}/run.json"))["started_at"].clone();
    let (kept, cut) = ("sticky_cap-2_s42", "kv-aware_cap-2_s42");
    let kept_at = started(kept);
    let path = |name: &str| scratch.join(&format!("outputs/caps/cells/{cut}/{name}"));
    let damages: [&dyn Fn(); 3] = [
        &|| fs::remove_file(path("summary.json")).unwrap(),
        &|| flip_a_digit(&path("summary.json"), "\"mean_ttft_ms\":"),
        &|| flip_a_digit(&path("run.json"), "\"seed\":"),
    ];
    for damage in damages {
        let cut_at = started(cut);
        damage();
        let ran = sweep(&scratch, &[]).code(0);
        assert!(ran.stderr.contains("7 of 8 cells are done already"), "{}", ran.stderr);
        assert_eq!(started(kept), kept_at);
        assert_ne!(started(cut), cut_at);
        assert!(before == files(&scratch.join("outputs/caps")));
    }
    assert!(sweep(&scratch, &["--fresh"]).code(0).stderr.contains("8 cells to run on"));
    assert_ne!(started(kept), kept_at);
}

#[test]
fn a_changed_sweep_keeps_the_cells_that_still_fit() {
    let scratch = sweeping(SWEEP);
    sweep(&scratch, &[]).code(0);
    scratch.write("caps.toml", &SWEEP.replace("[2, 4]", "[1, 2, 4]"));
    let ran = sweep(&scratch, &[]).code(0);
    assert!(ran.stderr.contains("8 of 12 cells are done already"), "{}", ran.stderr);
    let pools = SWEEP.replace("[axes]", "[set]\nengine.kv_pool_tokens = 90000\n[axes]");
    scratch.write("caps.toml", &pools);
    sweep(&scratch, &[]).refused(&[
        "8 cells of another sweep file, trace, target (--on) or version",
        "--overwrite",
        "--name",
    ]);
    sweep(&scratch, &[]).refused(&["engine.kv_pool_tokens is ", ", here 90000"]);
    let set = ["--set", "slo.ttft_ms=2000", "--set", "engine.kv_pool_tokens=90000"];
    scratch.write("caps.toml", SWEEP);
    let refused =
        ["8 cells without this --set: cells/sticky_cap-2_s42", "slo.ttft_ms is ", ", here 2000", "--overwrite"];
    sweep(&scratch, &set).refused(&refused);
    scratch.write("caps.toml", &pools);
    assert_eq!(states(&scratch, "caps").len(), 12, "nothing was touched");
    let ran = sweep(&scratch, &["--overwrite"]).code(0);
    assert!(ran.stderr.contains("4 folders in cells/ belong to no cell of this sweep"), "{}", ran.stderr);
    assert_eq!(
        scratch.json("outputs/caps/cells/sticky_cap-2_s42/run.json")["scenario"]["engine"]["kv_pool_tokens"],
        90_000
    );
}

#[test]
fn a_cell_that_is_refused_is_a_row_and_the_rest_is_run() {
    let scratch = sweeping(
        "[sweep]\nscenario = \"v3-1p7d\"\n[axes]\npolicy = [\"kv-aware\", \"default\"]\n\"engine.chunk_tokens\" = [8192, 0]\n",
    );
    let ran = sweep(&scratch, &[]).code(1);
    assert_eq!(states(&scratch, "caps"), ["done", "refused", "refused", "refused"]);
    assert!(
        ran.stdout.contains("default        8192  0/1  refused") || ran.stdout.contains("refused"),
        "{}",
        ran.stdout
    );
    assert!(ran.stderr.contains("caps.toml:5:32: `engine.chunk_tokens` is 0"), "{}", ran.stderr);
    assert!(ran.stderr.contains("policy default with kvc"), "{}", ran.stderr);
    assert_eq!(
        sweep(&scratch, &["--allow-conflict", "--filter", "chunk_tokens=8192", "--name", "all"]).code(0).code,
        Some(0)
    );
    assert_eq!(states(&scratch, "all"), ["done", "refused", "done", "refused"]);
    // Nothing but refused cells is bad input.
    sweep(&scratch, &["--filter", "engine.chunk_tokens=0", "--name", "none"])
        .refused(&["`engine.chunk_tokens` is 0", "every cell is refused"]);
    assert!(!scratch.join("outputs/none").exists());
}

#[test]
fn a_cell_that_fails_is_a_row_with_its_error() {
    let scratch = sweeping("[sweep]\nscenario = \"dp8\"\n[axes]\nconcurrency = [1, 2]\n[set]\ncluster.colocated = 1\n");
    let ran = sweep(&scratch, &["--on", "live", "--worker", "http://127.0.0.1:9"]).code(1);
    assert_eq!(states(&scratch, "caps"), ["failed", "failed"]);
    let report = scratch.json("outputs/caps/sweep.json");
    assert!(report["cells"][1]["error"].as_str().unwrap().contains("127.0.0.1:9"), "{report:#}");
    assert!(ran.stdout.contains("failed") && ran.stderr.contains("cache not flushed"), "{ran:#?}");
}

#[test]
fn live_cells_run_one_after_another_each_on_a_cold_cluster() {
    let scratch = sweeping("[sweep]\nscenario = \"v3-1p7d\"\n[axes]\ncap = [2, 4]\n");
    let ran = sweep(&scratch, &["--on", "live", "--emulation-speed", "50"]).code(0);
    assert!(ran.stderr.contains("cell 2: cold restart of the embedded cluster"), "{}", ran.stderr);
    let report = scratch.json("outputs/caps/sweep.json");
    assert!(
        report["sweep"]["between_cells"].as_str().unwrap().starts_with("caches before each cell: a cluster of"),
        "{report:#}"
    );
    assert_eq!(states(&scratch, "caps"), ["done", "done"]);
}

#[test]
fn a_dry_run_prints_the_cells_and_writes_nothing() {
    let scratch = sweeping(SWEEP);
    let ran = sweep(&scratch, &["--dry-run"]).code(0);
    assert_eq!(ran.stdout.lines().filter(|line| line.ends_with("planned")).count(), 8, "{}", ran.stdout);
    assert!(
        ran.stdout.contains("8 cells to run on ") && ran.stdout.contains("(cell 1 was simulated in "),
        "{}",
        ran.stdout
    );
    assert!(ran.stdout.contains("on disk: about 0.1 MB a cell") && !ran.stdout.contains("error"), "{}", ran.stdout);
    assert!(!scratch.join("outputs").exists());
    let json: Value =
        serde_json::from_str(&sweep(&scratch, &["--dry-run", "--format", "json"]).code(0).stdout).unwrap();
    assert!(json["estimate"]["expected_s"].as_f64().is_some() && json["cells"].as_array().unwrap().len() == 8);
    sweep(&scratch, &["--filter", "seed=43", "--filter", "cap=2"]).code(0);
    assert_eq!(states(&scratch, "caps").iter().filter(|state| *state == "done").count(), 2);
    let done = sweep(&scratch, &["--filter", "seed=43", "--filter", "cap=2"]).code(0);
    assert!(done.stderr.contains("the same command without --filter runs them"), "{}", done.stderr);
    let ran = sweep(&scratch, &["--dry-run"]).code(0);
    assert!(ran.stdout.contains("6 cells to run on"), "{}", ran.stdout);
    sweep(&scratch, &["--filter", "cap=3"]).refused(&["--filter cap=3: the axis has no such value", "values: 2, 4"]);
    sweep(&scratch, &["--filter", "caps=2"]).refused(&["no axis is called `caps`", "policy, cap, seed"]);
}

#[test]
fn a_sweep_of_one_cell_is_a_sweep() {
    let scratch = sweeping("[axes]\ncap = [4]\n");
    let ran = sweep(&scratch, &[]).code(0);
    assert!(ran.stdout.starts_with("caps · 1 cell · default · trace · virtual time · cap 4\n"), "{}", ran.stdout);
    assert!(scratch.join("outputs/caps/cells/cap-4/summary.json").exists());
}

#[test]
fn one_folder_is_one_sweep_at_a_time_and_no_other_run() {
    let scratch = sweeping(SWEEP);
    sweep(&scratch, &[]).code(0);
    let held = File::open(scratch.join("outputs/caps")).unwrap();
    held.lock().unwrap();
    sweep(&scratch, &[]).refused(&["another pdreplay is writing to outputs/caps"]);
    drop(held);
    scratch.run(&["replay", "trace.jsonl", "--name", "run"]).code(0);
    sweep(&scratch, &["--name", "run"]).refused(&["outputs/run holds", "it is no folder of a sweep"]);
    scratch.write("outputs/caps/cells/sticky_cap-2_s42/notes.txt", "mine");
    let ran = sweep(&scratch, &["--fresh"]).code(2);
    assert!(ran.stderr.contains("notes.txt was not written by pdreplay"), "{}", ran.stderr);
    scratch.write("file", "x");
    sweep(&scratch, &["--output-dir", "file"]).refused(&["cannot create file"]);
}

#[test]
fn a_full_disk_is_told_once_and_stops_the_sweep() {
    let scratch = sweeping(SWEEP);
    let big = ["trace", "generate", "--sessions", "20", "-o", "trace.jsonl", "-q"];
    scratch.run(&[&big[..], &["--force"]].concat());
    if !scratch.join("trace.jsonl").metadata().is_ok_and(|meta| meta.len() > 10_000) {
        fs::remove_file(scratch.join("trace.jsonl")).unwrap();
        scratch.run(&big).code(0);
    }
    let line = format!("ulimit -f 64; exec {} sweep caps.toml trace.jsonl --jobs 2 -q", env!("CARGO_BIN_EXE_pdreplay"));
    let ran = Ran::of(Command::new("bash").args(["-c", &line]).current_dir(scratch.path()).output().unwrap()).code(1);
    assert_eq!(ran.stderr.matches("error: ").count(), 1, "{}", ran.stderr);
    assert!(
        ran.stderr.contains("ulimit -f") && ran.stderr.contains("the same command goes on with the 8 cells"),
        "{}",
        ran.stderr
    );
    sweep(&scratch, &["-q"]).code(0);
    assert_eq!(states(&scratch, "caps"), vec!["done"; 8]);
}

/// A sweep whose cells take a moment each.
fn slow() -> Scratch {
    let scratch = sweeping(SWEEP);
    fs::copy(root().join("traces/sample-6.jsonl"), scratch.join("trace.jsonl")).unwrap();
    scratch
}

#[test]
fn ctrl_c_keeps_what_is_done_and_the_same_command_goes_on() {
    let scratch = sweeping(SWEEP);
    fs::remove_file(scratch.join("trace.jsonl")).unwrap();
    scratch.run(&["trace", "generate", "--sessions", "20", "-o", "trace.jsonl", "-q"]).code(0);
    let args = ["sweep", "caps.toml", "trace.jsonl", "--jobs", "1"];
    let child = scratch.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let began = Instant::now();
    while !scratch.join("outputs/caps/cells/sticky_cap-2_s43").exists() {
        assert!(began.elapsed() < Duration::from_secs(120), "no second cell was begun");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let ran = Ran::of(child.wait_with_output().unwrap()).code(130);
    assert!(
        ran.stderr.contains("interrupted: ")
            && ran.stderr.contains("cells have not run to their end: the same command"),
        "{}",
        ran.stderr
    );
    // The first point has a row, whole or not; the trace is short, so its run may be one without a headline.
    assert!(ran.stdout.lines().any(|line| line.starts_with("sticky    2 ")), "{}", ran.stdout);
    let done = states(&scratch, "caps").iter().filter(|state| *state == "done").count();
    assert!((1..8).contains(&done), "{done}");
    let report = scratch.run(&["report", "outputs/caps"]).code(0);
    assert_eq!(report.stdout, ran.stdout);
    let ran = scratch.run(&args).code(0);
    assert!(ran.stderr.contains(&format!("{done} of 8 cells are done already")), "{}", ran.stderr);
    let whole = sweeping(SWEEP);
    fs::copy(scratch.join("trace.jsonl"), whole.join("trace.jsonl")).unwrap();
    whole.run(&args).code(0);
    assert_same(&scratch.join("outputs/caps"), &whole.join("outputs/caps"));
}

#[test]
fn killed_twenty_times_at_random_a_sweep_is_the_same_in_the_end() {
    const KILLS: u32 = 20;
    let args = ["sweep", "caps.toml", "trace.jsonl", "-q"];
    let whole = slow();
    let began = Instant::now();
    whole.run(&args).code(0);
    let takes = began.elapsed();
    let mut random = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64 | 1;
    println!("seed {random}");
    let mut kills = 0;
    while kills < KILLS {
        let scratch = slow();
        loop {
            if kills == KILLS {
                scratch.run(&args).code(0);
                break;
            }
            let mut child = scratch.command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            // xorshift64: up to half of what the whole takes.
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            std::thread::sleep(takes / 2 * (random % 1000) as u32 / 1000);
            if let Some(status) = child.try_wait().unwrap() {
                assert!(status.success(), "{status}");
                break;
            }
            child.kill().unwrap();
            child.wait().unwrap();
            kills += 1;
            if scratch.join("outputs/caps/sweep.json").exists() {
                scratch.run(&["report", "outputs/caps"]).code(0);
            }
        }
        assert_same(&scratch.join("outputs/caps"), &whole.join("outputs/caps"));
    }
}
