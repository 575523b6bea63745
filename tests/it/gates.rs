//! Sweeps, replicas and runs whose files were changed: what is not as it was is named, and no gate opens by it.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::cli::with_trace;
use crate::flips::flip_a_digit;
use crate::run::{Ran, Scratch, root};

const GATE: &str = "--fail-on-starvation";
const UNJUDGED: &str = "--fail-on-starvation cannot be judged: ";

/// A sweep of four caps on one D, and two replicas, of a trace that starves where the cap is 1.
fn starving() -> Scratch {
    let scratch = with_trace();
    fs::copy(root().join("traces/sample-6.jsonl"), scratch.join("trace.jsonl")).unwrap();
    let text = "[axes]\ncap = [1, 2, 32, 64]\n[set]\ncluster.decode = 1\n[sweep]\nscenario = \"v3-1p7d\"\n";
    scratch.write("caps.toml", text);
    scratch.run(&["sweep", "caps.toml", "trace.jsonl", "-q"]).code(0);
    for (name, cap, replicas) in [("reps", "1", "2"), ("starved", "1", "1"), ("other", "3", "1")] {
        let cap = format!("admission.cap_max={cap}");
        let set = ["--scenario", "v3-1p7d", "--set", "cluster.decode=1", "--set", &cap];
        let run = ["replay", "trace.jsonl", "-q", "--name", name, "--replicas", replicas];
        scratch.run(&[&run[..], &set].concat()).code(0);
    }
    scratch
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

/// Makes the folder `to` a copy of the run in `from`.
fn put(scratch: &Scratch, from: &str, to: &str) {
    let to = scratch.join(to);
    fs::remove_dir_all(&to).unwrap();
    copy(&scratch.join(from), &to);
}

fn cut(scratch: &Scratch, name: &str) {
    let text = fs::read(scratch.join(name)).unwrap();
    fs::write(scratch.join(name), &text[..text.len() - 7]).unwrap();
}

/// Sets every `key` in a JSON file, and leaves its digest.
fn set_all(scratch: &Scratch, name: &str, key: &str, to: &Value) {
    fn set(value: &mut Value, key: &str, to: &Value) {
        match value {
            Value::Object(map) => {
                map.iter_mut().for_each(|(k, v)| if k == key { *v = to.clone() } else { set(v, key, to) })
            }
            Value::Array(list) => list.iter_mut().for_each(|v| set(v, key, to)),
            _ => {}
        }
    }
    let mut file = scratch.json(name);
    set(&mut file, key, to);
    scratch.write(name, &file.to_string());
}

/// stderr, text, Markdown, JSON and page have each of `words`.
fn named_everywhere(scratch: &Scratch, place: &str, words: &[&str]) -> Ran {
    let table = scratch.run(&["report", place]).code(0);
    let visible = |text: &str| text.replace('\\', "").replace("&lt;", "<");
    for form in [&["--format", "table"][..], &["--json"], &["--format", "markdown"], &["--html", "-"]] {
        let ran = scratch.run(&[&["report", place], form].concat()).code(0);
        for words in words {
            assert!(ran.stderr.contains(words), "{words}: {}", ran.stderr);
            assert!(visible(&ran.stdout).contains(words), "{form:?}: {words}: {}", ran.stdout);
        }
    }
    table
}

#[test]
fn cells_that_are_gone_foreign_or_changed_are_named_and_not_offered() {
    let scratch = starving();
    let whole = scratch.run(&["report", "outputs/caps"]).code(0);
    assert!(!whole.stderr.contains("warning") && whole.stderr.contains("compare two: "), "{}", whole.stderr);
    let cell = |cap: u32| format!("outputs/caps/cells/cap-{cap}");
    fs::remove_dir_all(scratch.join(&cell(1))).unwrap();
    put(&scratch, "outputs/other", &cell(2));
    cut(&scratch, &format!("{}/summary.json", cell(32)));
    let words = [
        "outputs/caps/sweep.json: folders it lists are missing: cells/cap-1; their rows cannot be checked",
        "outputs/caps/sweep.json: folders hold another run than it lists: cells/cap-2",
        "runs it lists are not as they ended: outputs/caps/cells/cap-32/summary.json: has ",
    ];
    let ran = named_everywhere(&scratch, "outputs/caps", &words);
    assert!(ran.stderr.contains(&format!("pdreplay report {} --sessions", cell(64))), "{}", ran.stderr);
    assert!(!ran.stderr.contains("compare two"), "{}", ran.stderr);
    let one = || scratch.run(&["report", "outputs/caps", "--sessions"]).code(2).stderr;
    assert!(one().contains(&format!("give one of them, such as {}", cell(64))), "{}", one());
    for (name, what) in [("requests.jsonl", "has "), ("run.json", "run.json: the xxh3_128"), ("run.json", "no JSON")] {
        let file = format!("{}/{name}", cell(64));
        let before = fs::read(scratch.join(&file)).unwrap();
        match what {
            "has " | "no JSON" => cut(&scratch, &file),
            _ => flip_a_digit(&scratch.join(&file), "\"wall_seconds\":"),
        }
        let ran = scratch.run(&["report", "outputs/caps"]).code(0);
        assert!(ran.stderr.contains(&format!("{}/", cell(64))) && ran.stderr.contains(what), "{}", ran.stderr);
        assert!(!ran.stderr.contains("look into one"), "{}", ran.stderr);
        fs::write(scratch.join(&file), before).unwrap();
    }
    for cap in [2, 32, 64] {
        fs::remove_dir_all(scratch.join(&cell(cap))).unwrap();
    }
    let ran = scratch.run(&["report", "outputs/caps"]).code(0);
    assert!(ran.stderr.contains("cells/cap-1, cells/cap-2, cells/cap-32, cells/cap-64"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("look into one"), "{}", ran.stderr);
    assert!(one().contains("none of its runs is there as it ended"), "{}", one());
    scratch.run(&["diff", "outputs/caps", "outputs/other"]).refused(&["it is a sweep, and none of its cells has run"]);
}

#[test]
fn replicas_that_are_foreign_or_changed_are_named() {
    let scratch = starving();
    assert_eq!(scratch.run(&["report", "outputs/reps"]).code(0).stderr, "");
    let copies = ["swapped", "foreign", "cut"].map(|name| format!("outputs/{name}"));
    for to in &copies {
        fs::create_dir(scratch.join(to)).unwrap();
        fs::copy(scratch.join("outputs/reps/replicas.json"), scratch.join(to).join("replicas.json")).unwrap();
        for run in ["r01", "r02"] {
            copy(&scratch.join("outputs/reps").join(run), &scratch.join(to).join(run));
        }
    }
    put(&scratch, "outputs/reps/r02", "outputs/swapped/r01");
    put(&scratch, "outputs/reps/r01", "outputs/swapped/r02");
    named_everywhere(&scratch, "outputs/swapped", &["folders hold another run than it lists: r01, r02"]);
    // The seed is the same, the cap is not.
    put(&scratch, "outputs/other", "outputs/foreign/r01");
    named_everywhere(&scratch, "outputs/foreign", &["folders hold another run than it lists: r01"]);
    let one = scratch.run(&["report", "outputs/foreign", "--modes"]).code(2).stderr;
    assert!(one.contains("give one of them, such as outputs/foreign/r02"), "{one}");
    // A list of an earlier version has no ids: the seed tells.
    set_all(&scratch, "outputs/swapped/replicas.json", "run_id", &Value::Null);
    named_everywhere(&scratch, "outputs/swapped", &["folders hold another run than it lists: r01, r02"]);
    cut(&scratch, "outputs/cut/r02/requests.jsonl");
    let words =
        ["runs it lists are not as they ended: outputs/cut/r02/requests.jsonl: has ", "bands cannot be checked"];
    named_everywhere(&scratch, "outputs/cut", &words);
    fs::remove_dir_all(scratch.join("outputs/cut/r01")).unwrap();
    named_everywhere(&scratch, "outputs/cut", &["folders it lists are missing: r01; the bands cannot be checked"]);
}

#[test]
fn no_gate_on_starvation_opens_by_a_file_that_was_changed() {
    let scratch = starving();
    let gate = |place: &str| scratch.run(&["report", place, GATE]);
    for (place, file) in [("outputs/caps", "sweep.json"), ("outputs/reps", "replicas.json")] {
        assert!(gate(place).code(1).stderr.contains("sessions starve in "));
        let name = format!("{place}/{file}");
        set_all(&scratch, &name, "starved_sessions", &json!(0));
        let shut = gate(place).code(1);
        assert!(shut.stderr.contains(&format!("{UNJUDGED}{name}: the xxh3_128")), "{}", shut.stderr);
        scratch.run(&["report", place]).code(0);
    }
    // A cell or a replica that is gone takes nothing from the word of its list.
    scratch.run(&["sweep", "caps.toml", "trace.jsonl", "-q", "--fresh"]).code(0);
    fs::remove_dir_all(scratch.join("outputs/caps/cells/cap-64")).unwrap();
    let words = gate("outputs/caps").code(1).stderr;
    assert!(words.contains("sessions starve in ") && !words.contains(UNJUDGED), "{words}");
    // A run: the records that are read, and what run.json says of it.
    gate("outputs/starved").code(1);
    let run = scratch.read("outputs/starved/run.json");
    scratch.write("outputs/starved/run.json", &run.replace("\"mechanism\": \"kvc\"", "\"mechanism\": \"pd\""));
    for more in [&[][..], &["--sessions"], &["--events"], &["--html", "page.html"]] {
        let shut = scratch.run(&[&["report", "outputs/starved", GATE], more].concat()).code(1);
        assert!(shut.stderr.contains(&format!("{UNJUDGED}outputs/starved/run.json: ")), "{more:?}: {}", shut.stderr);
    }
    scratch.write("outputs/starved/run.json", &run);
    fs::remove_file(scratch.join("outputs/starved/requests.parquet")).unwrap();
    assert!(gate("outputs/starved").code(1).stderr.contains("sessions starve (direct"));
    let records = scratch.read("outputs/starved/requests.jsonl");
    let mode = "\"execution_mode\":\"";
    let (from, to) = ("pd-router-fallback-large-append-session-cap", "kvcache-direct-to-d-session");
    assert!(records.contains(&format!("{mode}{from}\"")), "{}", &records[..2000.min(records.len())]);
    scratch.write(
        "outputs/starved/requests.jsonl",
        &records.replace(&format!("{mode}{from}\""), &format!("{mode}{to}\"")),
    );
    let shut = gate("outputs/starved").code(1);
    assert!(shut.stderr.contains(&format!("{UNJUDGED}outputs/starved/requests.jsonl: ")), "{}", shut.stderr);
}

#[test]
fn no_condition_of_a_comparison_passes_by_a_file_that_was_changed() {
    let scratch = starving();
    let met = |b: &str, more: &[&str]| {
        let base = ["diff", "outputs/starved", b, "--no-replicas", "--fail-on", "p99_e2e_ms>+500%"];
        scratch.run(&[&base, more].concat())
    };
    let shut = |b: &str, words: &str| {
        let ran = met(b, &[]).code(1);
        assert!(ran.stdout.contains("p99_e2e_ms cannot be judged: ") && ran.stdout.contains(words), "{}", ran.stdout);
    };
    met("outputs/other", &[]).code(0);
    met("outputs/reps", &[]).code(0);
    set_all(&scratch, "outputs/reps/replicas.json", "exit_code", &json!(130));
    met("outputs/reps", &[]).code(2);
    set_all(&scratch, "outputs/reps/replicas.json", "exit_code", &json!(1));
    shut("outputs/reps", "replicas.json: the xxh3_128");
    // The table is as it was: what became of the lines, or of what nobody reads, opens and shuts nothing.
    let records = scratch.read("outputs/other/requests.jsonl");
    cut(&scratch, "outputs/other/requests.jsonl");
    cut(&scratch, "outputs/other/workers.jsonl");
    met("outputs/other", &[]).code(0);
    fs::remove_file(scratch.join("outputs/other/requests.jsonl")).unwrap();
    met("outputs/other", &[]).code(0);
    fs::remove_file(scratch.join("outputs/other/requests.parquet")).unwrap();
    scratch.write("outputs/other/requests.jsonl", &records.replacen("\"retractions\":0", "\"retractions\":1", 1));
    shut("outputs/other", "requests.jsonl: its xxh3_128");
    let json: Value = serde_json::from_str(&met("outputs/other", &["--json"]).code(1).stdout).unwrap();
    assert_eq!(json["thresholds"][0]["crossed"], true, "{json:#}");
    scratch.write("outputs/other/requests.jsonl", &records);
    met("outputs/other", &[]).code(0);
    flip_a_digit(&scratch.join("outputs/other/run.json"), "\"wall_seconds\":");
    shut("outputs/other", "run.json: the xxh3_128");
}

#[test]
fn a_comparison_says_over_how_many_runs_it_counts_and_where_the_runs_of_a_sweep_are() {
    let scratch = starving();
    let groups = scratch.run(&["diff", "outputs/reps", "outputs/other", "--no-replicas"]).code(0).stdout;
    assert!(groups.contains("over 2 runs of A, 1 of B: ok "), "{groups}");
    let singles = scratch.run(&["diff", "outputs/starved", "outputs/other", "--no-replicas"]).code(0).stdout;
    assert!(!singles.contains(" of A, 1 of B"), "{singles}");
    scratch
        .run(&["diff", "outputs/caps", "outputs/other"])
        .refused(&["outputs/caps holds no run.json", "give one of its cells, such as outputs/caps/cells/cap-1"]);
}
