//! Single bits that flip in the files of a run: no command gives other output without a word about the file.

use std::fs;
use std::path::Path;
use std::thread;

use crate::cli::{replay, with_trace};
use crate::run::{Ran, Scratch};
use pdreplay::base::Rng;

const FILES: [&str; 7] = [
    "run.json",
    "requests.jsonl",
    "requests.parquet",
    "events.jsonl",
    "sessions.jsonl",
    "workers.jsonl",
    "summary.json",
];

/// Flips in each file.
const FLIPS: u32 = 25;

/// All that commands make of the run `one`, and what they say of it.
#[derive(Debug, PartialEq)]
struct Made {
    output: Vec<Vec<u8>>,
    said: String,
}

impl Made {
    /// Every sentence on a file stands in the outputs that have notes, too: report as JSON, page, comparison.
    fn is_noted(&self, name: &str) -> bool {
        [0, 2, 3].iter().all(|ix| String::from_utf8_lossy(&self.output[*ix]).contains(name))
    }
}

fn made(scratch: &Scratch) -> Made {
    let outs = ["out.csv", "out.jsonl", "out.vllm.json", "out.trace.json"].map(|name| scratch.join(name));
    outs.iter().for_each(|out| drop(fs::remove_file(out)));
    let exports = ["csv=out.csv", "aiperf=out.jsonl", "vllm=out.vllm.json"].map(|export| ["--export", export]);
    let exports = [&exports.concat()[..], &["--perfetto", "out.trace.json"]].concat();
    let commands = [
        [&["report", "outputs/one", "--json"][..], &exports].concat(),
        vec!["report", "outputs/one", "--events", "--format", "csv"],
        vec!["report", "outputs/one", "--html", "-"],
        vec!["diff", "outputs/one", "outputs/two", "--json", "--no-replicas", "--resamples", "0"],
    ];
    let ran: Vec<Ran> = commands.iter().map(|command| scratch.run(command)).collect();
    let mut output: Vec<Vec<u8>> = ran.iter().map(|ran| ran.stdout.clone().into_bytes()).collect();
    output.extend(outs.iter().map(|out| fs::read(out).unwrap_or_default()));
    Made { output, said: ran.into_iter().map(|ran| ran.stderr).collect() }
}

/// Two runs of a small trace that differ.
fn with_runs() -> Scratch {
    let scratch = Scratch::new();
    scratch.run(&["trace", "generate", "--sessions", "3", "--requests", "12", "-o", "trace.jsonl"]).code(0);
    for (name, policy) in [("one", "kv-aware"), ("two", "sticky")] {
        let set = ["--name", name, "-q", "--policy", policy, "--mechanism", "kvc"];
        assert!(replay(&scratch, &set).code.is_some_and(|code| code < 2));
    }
    scratch
}

/// Flips `count` bits of `name`, one after another, and holds what comes of each against the whole run.
fn flip(scratch: &Scratch, name: &str, count: u32, whole: &Made) {
    let path = scratch.join("outputs/one").join(name);
    let content = fs::read(&path).unwrap();
    let mut rng = Rng::new(7, content.len() as u64);
    for _ in 0..count {
        let (at, bit) = (rng.below(content.len() as u64) as usize, rng.below(8) as u8);
        let mut flipped = content.clone();
        flipped[at] ^= 1 << bit;
        fs::write(&path, flipped).unwrap();
        let made = made(scratch);
        let is_same = made.output == whole.output;
        assert!(is_same || made.said.contains(name), "bit {bit} of byte {at} of {name}: {}", made.said);
        let is_refused = made.said.contains("error: ");
        assert!(is_same || is_refused || name == "events.jsonl" || made.is_noted(name), "{name}: {}", made.said);
        assert!(!made.said.contains("panicked"), "bit {bit} of byte {at} of {name}: {}", made.said);
    }
    fs::write(&path, content).unwrap();
}

#[test]
fn no_bit_that_flips_changes_an_output_unsaid() {
    thread::scope(|scope| {
        for name in FILES {
            scope.spawn(move || {
                let scratch = with_runs();
                let whole = made(&scratch);
                assert_eq!(whole.said.matches("warning").count(), 0, "{}", whole.said);
                flip(&scratch, name, FLIPS, &whole);
            });
        }
        // Without a table the lines are read, as they are in a run that was copied in part.
        scope.spawn(|| {
            let scratch = with_runs();
            let whole = made(&scratch);
            fs::remove_file(scratch.join("outputs/one/requests.parquet")).unwrap();
            let without = made(&scratch);
            assert!(without.said.contains("requests.parquet: missing"), "{}", without.said);
            assert!(without.is_noted("requests.parquet: missing"));
            assert!(
                [1, 4, 5, 6, 7].iter().all(|ix| without.output[*ix] == whole.output[*ix]),
                "the figures are the same"
            );
            flip(&scratch, "requests.jsonl", FLIPS, &without);
        });
    });
}

/// What is printed, without the notes where it is JSON.
pub fn without_notes(printed: &str) -> String {
    let Ok(mut summary) = serde_json::from_str::<serde_json::Value>(printed) else { return printed.to_owned() };
    summary["integrity"]["notes"].take();
    summary.to_string()
}

/// Makes `outputs/one` a run of an earlier version, whose `run.json` has sizes alone.
pub fn take_digests(scratch: &Scratch) {
    let mut run = scratch.json("outputs/one/run.json");
    run.as_object_mut().unwrap().remove("xxh3_128");
    run["files"].as_object_mut().unwrap().values_mut().for_each(|file| *file = file["bytes"].take());
    scratch.write("outputs/one/run.json", &run.to_string());
}

/// Flips the lowest bit of the first digit behind `key`.
pub fn flip_a_digit(path: &Path, key: &str) {
    let text = fs::read_to_string(path).unwrap();
    let at = text.find(key).unwrap() + key.len();
    let at = at + text[at..].find(|c: char| c.is_ascii_digit()).unwrap();
    let mut bytes = text.into_bytes();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_run_tells_size_and_digest_of_its_files_once_it_ended() {
    let scratch = with_trace();
    replay(&scratch, &["--name", "one", "-q"]).code(0);
    let run = scratch.json("outputs/one/run.json");
    let files = run["files"].as_object().unwrap();
    assert_eq!(files.len(), FILES.len() - 1);
    for (name, file) in files {
        let bytes = fs::read(scratch.join("outputs/one").join(name)).unwrap();
        assert_eq!(file["bytes"], bytes.len(), "{name}");
        assert_eq!(file["xxh3_128"], format!("{:032x}", xxhash_rust::xxh3::xxh3_128(&bytes)), "{name}");
    }
    assert_eq!(run["xxh3_128"].as_str().map(str::len), Some(32));
}

#[test]
fn each_change_is_said_once_and_the_right_file_read() {
    let scratch = with_trace();
    replay(&scratch, &["--name", "one", "-q"]).code(0);
    let csv = || scratch.run(&["report", "outputs/one", "--export", "csv=-", "-q"]).code(0);
    let vllm = || scratch.run(&["report", "outputs/one", "--export", "vllm=out.json", "--json"]).code(0);
    let (whole_csv, whole) = (csv(), vllm());
    let folder = scratch.join("outputs/one");
    let table = fs::read(folder.join("requests.parquet")).unwrap();
    let mut flipped = table.clone();
    flipped[table.len() / 3] ^= 4;
    fs::write(folder.join("requests.parquet"), &flipped).unwrap();
    for (ran, whole) in [(csv(), &whole_csv), (vllm(), &whole)] {
        let without = without_notes(&ran.stdout);
        assert_eq!(
            without,
            without_notes(&whole.stdout),
            "a table with another digest is not read, not even to stdout"
        );
        assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
        assert!(ran.stderr.contains("requests.parquet is not used: its xxh3_128 is"), "{}", ran.stderr);
        assert!(ran.stderr.contains("requests.jsonl is read in its place"), "{}", ran.stderr);
    }
    let lines = fs::read_to_string(folder.join("requests.jsonl")).unwrap();
    flip_a_digit(&folder.join("requests.jsonl"), "\"trace_line\":");
    let ran = csv();
    assert!(ran.stdout != whole_csv.stdout && ran.stderr.lines().count() == 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("warning: outputs/one/requests.jsonl: its xxh3_128 is"), "{}", ran.stderr);
    // Cut lines leave the table alone, and that is damaged.
    scratch.write("outputs/one/requests.jsonl", &lines[..lines.len() - 5]);
    let ran = scratch.run(&["report", "outputs/one"]).code(2);
    assert!(ran.stderr.contains("requests.parquet: its xxh3_128") && ran.stderr.contains("move it away"), "{ran:?}");
    fs::write(folder.join("requests.parquet"), &table).unwrap();
    scratch.write("outputs/one/requests.jsonl", &lines);
    flip_a_digit(&folder.join("summary.json"), "\"mean_itl_ms\":");
    let ran = vllm();
    assert!(
        ran.stderr.contains("summary.json cannot be used: its xxh3_128") && ran.stdout.contains("\"rebuilt\": true")
    );
}

#[test]
fn a_run_of_an_earlier_version_has_no_digests_and_is_read() {
    let scratch = with_trace();
    replay(&scratch, &["--name", "one", "-q"]).code(0);
    let report = || scratch.run(&["report", "outputs/one", "--json"]);
    let whole = report().code(0);
    take_digests(&scratch);
    let ran = report().code(0);
    assert_eq!((&ran.stdout, ran.stderr.as_str()), (&whole.stdout, ""));
}

#[test]
fn files_that_tell_of_themselves_show_a_change() {
    let scratch = with_trace();
    replay(&scratch, &["--name", "one", "-q", "--replicas", "2"]).code(0);
    for name in ["outputs/one/replicas.json", "outputs/one/r01/run.json"] {
        let report = || scratch.run(&["report", name]).code(0);
        assert_eq!(report().stderr, "", "{name}");
        // Laid out anew, it is the same.
        let value = scratch.json(name);
        scratch.write(name, &value.to_string());
        assert_eq!(report().stderr, "", "{name}");
        flip_a_digit(&scratch.join(name), "\"seed\":");
        let ran = report();
        let words = format!("{name}: the xxh3_128 of its content is");
        assert!(ran.stderr.contains(&format!("warning: {words}")), "{}", ran.stderr);
        assert!(ran.stdout.contains(&words), "{}", ran.stdout);
        for form in [&["--json"][..], &["--html", "-"]] {
            assert!(
                scratch.run(&[&["report", name], form].concat()).code(0).stdout.contains(&words),
                "{name} {form:?}"
            );
        }
    }
}
