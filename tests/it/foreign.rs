//! Results folders that hold what is not theirs: files of another run, lists of what lies elsewhere, digests taken away. What
//! is as the run left it wins, what is not is said in every output, and figures of two runs are never mixed.

use std::fs;

use serde_json::{Value, json};

use crate::cli::{replay, with_trace};
use crate::flips::{flip_a_digit, take_digests, without_notes};
use crate::run::{Ran, Scratch};

const FILES: [&str; 6] =
    ["events.jsonl", "requests.jsonl", "requests.parquet", "sessions.jsonl", "summary.json", "workers.jsonl"];

/// The run `one`, and `two` of another seed and policy.
fn with_runs() -> Scratch {
    let scratch = with_trace();
    replay(&scratch, &["--name", "one", "-q"]).code(0);
    replay(&scratch, &["--name", "two", "-q", "--seed", "7", "--policy", "sticky"]).code(0);
    scratch
}

fn report(scratch: &Scratch, more: &[&str]) -> Ran {
    scratch.run(&[&["report", "outputs/one"], more].concat())
}

/// Takes the file `name` of `two` for that of `one`.
fn exchange(scratch: &Scratch, name: &str) {
    fs::copy(scratch.join("outputs/two").join(name), scratch.join("outputs/one").join(name)).unwrap();
}

#[test]
fn a_table_that_is_as_the_run_left_it_wins_over_lines_that_are_not_and_every_output_says_so() {
    let scratch = with_runs();
    let whole = report(&scratch, &["--json"]).code(0).stdout;
    let lines = scratch.read("outputs/one/requests.jsonl");
    let foreign = scratch.read("outputs/two/requests.jsonl");
    let longer = format!("{lines}{lines}");
    let spaced = format!("{}\n", foreign.replace("\":", "\": "));
    for changed in [spaced.as_str(), longer.as_str(), &lines[..lines.len() / 2], "", "no JSON at all"] {
        scratch.write("outputs/one/requests.jsonl", changed);
        let words = "requests.jsonl: has ";
        let instead = "; outputs/one/requests.parquet is read in its place";
        let ran = report(&scratch, &["--json"]).code(0);
        assert_eq!(without_notes(&ran.stdout), without_notes(&whole));
        let noted: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert!(noted["integrity"]["notes"].to_string().contains(instead), "{noted:#}");
        let outputs: [&[&str]; 5] = [
            &["report", "outputs/one"],
            &["report", "outputs/one", "--format", "markdown"],
            &["report", "outputs/one", "--html", "-"],
            &["diff", "outputs/one", "outputs/one", "--no-replicas", "--format", "markdown"],
            &["diff", "outputs/one", "outputs/one", "--no-replicas", "--html", "-"],
        ];
        for output in outputs {
            let ran = scratch.run(output).code(0);
            assert!(ran.stdout.contains(words), "{output:?}: {}", ran.stdout);
            assert!(ran.stderr.contains(words) && ran.stderr.contains(instead), "{output:?}: {}", ran.stderr);
        }
    }
}

#[test]
fn figures_of_two_runs_are_refused() {
    let scratch = with_runs();
    let own = scratch.read("outputs/one/run.json");
    exchange(&scratch, "run.json");
    for view in [&[][..], &["--json"], &["--html", "-"], &["--sessions"], &["--export", "csv=-"]] {
        let ran = report(&scratch, view).code(2);
        assert!(ran.stdout.is_empty() && ran.stderr.contains("error: outputs/one"), "{view:?}: {ran:?}");
        let is_clear = ran.stderr.contains("run.json is of another run") || ran.stderr.contains("files of two runs");
        assert!(is_clear && ran.stderr.contains("hint: put the file of the run back"), "{view:?}: {}", ran.stderr);
    }
    scratch.run(&["diff", "outputs/one", "outputs/two"]).code(2);
    scratch.write("outputs/one/run.json", &own);
    report(&scratch, &[]).code(0);
    // The lines of another run alone, the table away.
    exchange(&scratch, "requests.jsonl");
    fs::remove_file(scratch.join("outputs/one/requests.parquet")).unwrap();
    let ran = report(&scratch, &[]).code(2);
    assert!(ran.stderr.contains("holds the files of two runs: its run.json is of run "), "{}", ran.stderr);
    // An earlier version told no digests; the ids tell.
    take_digests(&scratch);
    let ran = report(&scratch, &[]).code(2);
    assert!(ran.stderr.contains("holds the files of two runs"), "{}", ran.stderr);
}

#[test]
fn a_run_json_of_a_repeat_is_known_by_its_digests() {
    let scratch = with_runs();
    replay(&scratch, &["--name", "again", "-q"]).code(0);
    // As a repeat in real time would: the same id, no file the same.
    for name in FILES {
        let path = scratch.join("outputs/one").join(name);
        let mut content = fs::read(&path).unwrap();
        content.extend(b"\n");
        fs::write(&path, content).unwrap();
    }
    let ran = report(&scratch, &[]).code(2);
    assert!(
        ran.stderr.contains("none of its 6 files has the size and digest that its run.json tells"),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_summary_of_another_run_is_not_used_and_noted() {
    let scratch = with_runs();
    let own = report(&scratch, &["--json"]).code(0).stdout;
    exchange(&scratch, "summary.json");
    let ran = report(&scratch, &["--json"]).code(0);
    let shown: Value = serde_json::from_str(&ran.stdout).unwrap();
    let whole: Value = serde_json::from_str(&own).unwrap();
    assert_eq!((&shown["run"]["seed"], &shown["p99_e2e_ms"]), (&whole["run"]["seed"], &whole["p99_e2e_ms"]));
    assert!(shown["integrity"]["notes"].to_string().contains("summary.json cannot be used: "), "{shown:#}");
    assert!(report(&scratch, &[]).code(0).stdout.contains("summary.json cannot be used: "));
}

#[test]
fn a_digest_that_is_taken_away_is_damage_of_its_file() {
    let scratch = with_runs();
    let whole = report(&scratch, &["--json"]).code(0).stdout;
    let run = scratch.json("outputs/one/run.json");
    for name in FILES {
        for takes_entry in [false, true] {
            let mut changed = run.clone();
            changed.as_object_mut().unwrap().remove("xxh3_128");
            let files = changed["files"].as_object_mut().unwrap();
            if takes_entry {
                files.remove(name);
            } else {
                files[name].as_object_mut().unwrap().remove("xxh3_128");
            }
            scratch.write("outputs/one/run.json", &changed.to_string());
            let ran = report(&scratch, &["--json"]).code(0);
            let words = "run.json tells no xxh3_128 of it";
            let line = ran.stderr.lines().find(|line| line.contains(words)).unwrap_or_default();
            assert!(line.contains(&format!("outputs/one/{name}")), "{name}: {}", ran.stderr);
            let [shown, whole] = [&ran.stdout, &whole].map(|text| serde_json::from_str::<Value>(text).unwrap());
            assert!(shown["integrity"]["notes"].to_string().contains(words), "{name}: {shown:#}");
            assert_eq!(shown["p99_e2e_ms"], whole["p99_e2e_ms"], "{name}");
        }
    }
    // Without its digest a changed table is not read.
    let mut changed = run;
    changed.as_object_mut().unwrap().remove("xxh3_128");
    changed["files"]["requests.parquet"].as_object_mut().unwrap().remove("xxh3_128");
    scratch.write("outputs/one/run.json", &changed.to_string());
    let path = scratch.join("outputs/one/requests.parquet");
    let mut table = fs::read(&path).unwrap();
    let at = table.len() / 3;
    table[at] ^= 4;
    fs::write(&path, table).unwrap();
    let ran = report(&scratch, &["--json"]).code(0);
    assert_eq!(without_notes(&ran.stdout).len(), without_notes(&whole).len());
    assert!(ran.stderr.contains("requests.parquet is not used: run.json tells no xxh3_128"), "{}", ran.stderr);
}

#[test]
fn a_list_of_replicas_names_nothing_but_its_own() {
    let scratch = with_trace();
    replay(&scratch, &["--name", "set", "-q", "--replicas", "2"]).code(0);
    let list = "outputs/set/replicas.json";
    let own = scratch.json(list);
    let elsewhere = scratch.join("outputs/set/r01").display().to_string();
    for (folder, words) in [
        ("../set/r02", "replicas[1].folder is `../set/r02`"),
        ("..", "replicas[1].folder is `..`"),
        ("", "replicas[1].folder is ``"),
        (elsewhere.as_str(), "but replicas are in r01, r02 … beside the file"),
        ("r01/../r02", "replicas[1].folder is `r01/../r02`"),
        ("r01", "replicas[1].folder is `r01`, which is listed before"),
    ] {
        let mut changed = own.clone();
        changed["replicas"][1]["folder"] = folder.into();
        changed.as_object_mut().unwrap().remove("xxh3_128");
        scratch.write(list, &changed.to_string());
        let commands: [&[&str]; 3] =
            [&["report", "outputs/set"], &["report", list, "--html", "-"], &["diff", "outputs/set", "outputs/set"]];
        for command in commands {
            scratch.run(command).refused(&[list, words, "hint: take the file from a copy"]);
        }
    }
    let mut more = own.clone();
    more["finished"] = 9.into();
    more.as_object_mut().unwrap().remove("xxh3_128");
    scratch.write(list, &more.to_string());
    scratch.run(&["report", "outputs/set"]).refused(&["9 finished of 2 listed of 2 asked for"]);
    scratch.write(list, &own.to_string());
    fs::remove_dir_all(scratch.join("outputs/set/r02")).unwrap();
    let words = "folders it lists are missing: r02";
    for form in [&[][..], &["--json"], &["--format", "markdown"], &["--html", "-"]] {
        let ran = scratch.run(&[&["report", "outputs/set"], form].concat()).code(0);
        assert!(ran.stdout.contains(words) && ran.stderr.contains(words), "{form:?}: {ran:?}");
    }
    let ran = scratch.run(&["diff", "outputs/set", "outputs/set"]).code(2);
    assert!(ran.stderr.contains("outputs/set/r02 does not exist"), "{}", ran.stderr);
}

/// A sweep of two cells in `outputs/caps`.
fn with_sweep() -> Scratch {
    let scratch = with_trace();
    scratch.write("caps.toml", "[sweep]\nscenario = \"v3-1p7d\"\n[axes]\ncap = [2, 4]\n");
    scratch.run(&["sweep", "caps.toml", "trace.jsonl", "-q"]).code(0);
    scratch
}

#[test]
fn a_sweep_is_sealed_and_lists_nothing_but_its_own() {
    let scratch = with_sweep();
    let file = "outputs/caps/sweep.json";
    let own = scratch.json(file);
    assert_eq!(own["xxh3_128"].as_str().map(str::len), Some(32));
    assert_eq!(scratch.run(&["report", file]).code(0).stderr.matches("warning").count(), 0);
    flip_a_digit(&scratch.join(file), "\"planned\":");
    let words = "outputs/caps/sweep.json: the xxh3_128 of its content is";
    for form in [&[][..], &["--json"], &["--format", "markdown"], &["--html", "-"]] {
        let ran = scratch.run(&[&["report", file], form].concat()).code(0);
        let shown = ran.stdout.replace('\\', "");
        assert!(shown.contains(words) && ran.stderr.contains(words), "{form:?}: {ran:?}");
    }
    // The cells tell the truth, and the next sweep writes it.
    scratch.run(&["sweep", "caps.toml", "trace.jsonl", "-q"]).code(0);
    assert_eq!(scratch.json(file), own);
    // An earlier version has no seal.
    let mut earlier = own.clone();
    earlier.as_object_mut().unwrap().remove("xxh3_128");
    scratch.write(file, &earlier.to_string());
    assert_eq!(scratch.run(&["report", file]).code(0).stderr.matches("warning").count(), 0);
    for folder in ["../caps/cells/cap-2", "/tmp", "cells/..", "cells/a/b", "cells/", "cells/cap-4"] {
        earlier["cells"][0]["folder"] = folder.into();
        scratch.write(file, &earlier.to_string());
        scratch.run(&["report", file]).refused(&[file, &format!("cells[0].folder is `{folder}`")][..1]);
    }
}

#[test]
fn a_cell_whose_digests_were_taken_away_is_run_again() {
    let scratch = with_sweep();
    let run = "outputs/caps/cells/cap-2/run.json";
    let own = scratch.json(run);
    for name in FILES {
        let mut changed = own.clone();
        changed.as_object_mut().unwrap().remove("xxh3_128");
        changed["files"][name].as_object_mut().unwrap().remove("xxh3_128");
        scratch.write(run, &changed.to_string());
        let ran = scratch.run(&["sweep", "caps.toml", "trace.jsonl"]).code(0);
        assert!(ran.stderr.contains("1 of 2 cells are done already"), "{name}: {}", ran.stderr);
    }
}

#[test]
fn a_sweep_is_judged_by_objectives_before_and_after() {
    let scratch = with_sweep();
    let judge = |more: &[&str]| scratch.run(&[&["report", "outputs/caps", "--goodput", "ttft:100000"], more].concat());
    let figure = |ran: &Ran, ix: usize| {
        serde_json::from_str::<Value>(&ran.stdout).unwrap()["cells"][ix]["figures"]["slo_attainment"].clone()
    };
    let file = scratch.read("outputs/caps/sweep.json");
    let ran = judge(&["--json"]).code(0);
    assert_eq!([0, 1].map(|ix| figure(&ran, ix)), [json!(1.0), json!(1.0)]);
    assert!(judge(&[]).code(0).stdout.contains("in SLO"));
    assert_eq!(scratch.read("outputs/caps/sweep.json"), file, "nothing is written");
    // The same sweep with them from the start has the same figures.
    let sweep = ["sweep", "caps.toml", "trace.jsonl", "--goodput", "ttft:100000"];
    let other = ["2 cells without this --set or --goodput", "pdreplay report outputs/caps --goodput", "slo.ttft_ms is"];
    scratch.run(&sweep).refused(&other);
    let named = scratch.run(&[&sweep[..], &["--name", "good", "--format", "json"]].concat()).code(0);
    let report = |ran: &Ran| serde_json::from_str::<Value>(&ran.stdout).unwrap();
    assert_eq!(report(&named)["groups"], report(&ran)["groups"]);
    let cell = scratch.json("outputs/good/cells/cap-2/run.json");
    assert_eq!(cell["scenario"]["slo"]["ttft_ms"].as_f64(), Some(100_000.0));
    // A cell without its records is said to be, and has no goodput.
    for file in ["requests.jsonl", "requests.parquet"] {
        fs::remove_file(scratch.join("outputs/caps/cells/cap-2").join(file)).unwrap();
    }
    let ran = judge(&["--json"]).code(0);
    assert_eq!([0, 1].map(|ix| figure(&ran, ix)), [Value::Null, json!(1.0)]);
    let words = "cells/cap-2: its goodput is not known: ";
    assert!(ran.stdout.contains(words) && ran.stderr.contains(words), "{ran:?}");
    // The cell is named before, and the one that is whole is offered.
    let ran = scratch.run(&["report", "outputs/caps", "--percentiles", "50"]).code(2);
    for words in ["cap-2/requests.jsonl: missing", "--percentiles is for one run", "such as outputs/caps/cells/cap-4"] {
        assert!(ran.stderr.contains(words), "{words}: {}", ran.stderr);
    }
}
