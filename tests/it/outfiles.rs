//! Files that `report` writes: what may be replaced, what is written into, and that no two outputs share a place.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, symlink};
use std::process::Command;
use std::thread;

use crate::cli::{replay, with_trace};
use crate::run::{Ran, Scratch};

/// Outputs: flag, what stands before the name, how the output begins.
const OUTPUTS: [(&str, &str, &str); 5] = [
    ("--html", "", "<!doctype html>"),
    ("--perfetto", "", "{\"displayTimeUnit\""),
    ("--export", "csv=", "schema_version,"),
    ("--export", "aiperf=", "{\"metadata\":"),
    ("--export", "vllm=", "{\"backend\":"),
];

fn with_run() -> Scratch {
    let scratch = with_trace();
    replay(&scratch, &["--name", "one", "-q"]).code(0);
    scratch
}

#[test]
fn links_stay_and_the_file_behind_them_is_replaced() {
    let scratch = with_run();
    fs::create_dir(scratch.join("far")).unwrap();
    symlink("far/target", scratch.join("link")).unwrap();
    for (flag, form, begin) in OUTPUTS {
        // Once to where nothing is yet, once over the first.
        for _ in 0..2 {
            scratch.run(&["report", "outputs/one", flag, &format!("{form}link")]).code(0);
            assert!(fs::symlink_metadata(scratch.join("link")).unwrap().is_symlink(), "{flag} {form}");
            assert!(scratch.read("far/target").starts_with(begin), "{flag} {form}");
        }
        fs::remove_file(scratch.join("far/target")).unwrap();
    }
    assert_eq!(fs::read_dir(scratch.join("far")).unwrap().count(), 0);
}

#[test]
fn pipes_are_written_into_and_stay() {
    let scratch = with_run();
    let pipe = scratch.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for (flag, form, begin) in OUTPUTS {
        let reader = thread::spawn({
            let pipe = pipe.clone();
            move || {
                let mut text = String::new();
                File::open(pipe).unwrap().read_to_string(&mut text).unwrap();
                text
            }
        });
        scratch.run(&["report", "outputs/one", flag, &format!("{form}pipe")]).code(0);
        assert!(fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo(), "{flag} {form}");
        assert!(reader.join().unwrap().starts_with(begin), "{flag} {form}");
    }
}

/// A node of the test's own: nothing of the machine is at stake.
#[test]
fn a_full_device_is_an_error_and_stays() {
    let scratch = with_run();
    let node = scratch.join("full");
    if !Command::new("mknod").arg(&node).args(["c", "1", "7"]).status().is_ok_and(|status| status.success())
        || File::options().write(true).open(&node).and_then(|mut file| file.write_all(b"x")).is_ok()
    {
        eprintln!("skipped: no device may be made here");
        return;
    }
    if File::options().write(true).open(&node).is_err() {
        eprintln!("skipped: no device may be opened here");
        return;
    }
    for (flag, form, _) in OUTPUTS {
        let ran = scratch.run(&["report", "outputs/one", flag, &format!("{form}full")]).code(1);
        assert!(ran.stderr.contains("full: No space left"), "{}", ran.stderr);
        assert!(fs::symlink_metadata(&node).unwrap().file_type().is_char_device(), "{flag} {form}");
        assert!(!scratch.join(".full.part").exists());
    }
}

#[test]
fn only_an_earlier_output_of_the_same_form_is_replaced() {
    let scratch = with_run();
    replay(&scratch, &["--name", "two", "-q"]).code(0);
    let notes = "schema_version of my notes\n";
    for (flag, form, _) in OUTPUTS {
        for file in ["notes", "outputs/two/requests.jsonl", "outputs/two/summary.json", "notes.gz"] {
            if file.starts_with("notes") {
                scratch.write(file, notes);
            }
            let before = fs::read(scratch.join(file)).unwrap();
            scratch
                .run(&["report", "outputs/one", flag, &format!("{form}{file}")])
                .refused(&["exists and is no ", "so it is not replaced"]);
            assert_eq!(fs::read(scratch.join(file)).unwrap(), before, "{flag} {form}{file}");
        }
        for file in ["empty", "again", "packed.gz"] {
            scratch.write(file, "");
            for _ in 0..2 {
                scratch.run(&["report", "outputs/one", flag, &format!("{form}{file}")]).code(0);
            }
        }
    }
}

#[test]
fn no_two_outputs_share_a_place() {
    let scratch = with_run();
    fs::create_dir(scratch.join("real")).unwrap();
    symlink("real", scratch.join("alias")).unwrap();
    symlink("real/x", scratch.join("link")).unwrap();
    for (a, b) in [("x", "x"), ("x", "./x"), ("real/x", "alias/x"), ("link", "real/x"), ("real/../x", "x"), ("-", "-")]
    {
        let csv = format!("csv={a}");
        for pair in
            [["--perfetto", a, "--html", b], ["--export", &csv, "--html", b], ["--export", &csv, "--perfetto", b]]
        {
            let args = [&["report", "outputs/one"], pair.as_slice()].concat();
            scratch.run(&args).refused(&["two outputs are to be written to"]);
        }
    }
    assert!(!scratch.join("x").exists() && !scratch.join("real/x").exists());
}

/// What is left after a full disk took what lies beside a run: the table, the run, the way on, exit 1.
fn whole_all_the_same(ran: &Ran, table: &str, way_on: &str) {
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stdout.contains(table), "{ran:?}");
    assert!(ran.stderr.contains("error: ") && ran.stderr.contains("No space left on device"), "{ran:?}");
    assert!(ran.stderr.contains(way_on), "{ran:?}");
}

#[test]
fn a_disk_that_is_full_for_a_page_or_an_export_leaves_the_run_whole_and_shown() {
    let scratch = with_trace();
    let outputs: [&[&str]; 4] = [
        &["--html", "/dev/full"],
        &["--perfetto", "/dev/full"],
        &["--export", "csv=/dev/full"],
        &["--html", "page.html", "--export", "vllm=/dev/full"],
    ];
    for (ix, output) in outputs.into_iter().enumerate() {
        let name = format!("run-{ix}");
        let ran = replay(&scratch, &[&["--name", &name], output].concat());
        whole_all_the_same(&ran, "4 requests, 2 sessions", &format!("the run itself is whole, in outputs/{name}/"));
        let report = scratch.run(&["report", &format!("outputs/{name}")]).code(0);
        assert!(report.stdout.contains("run valid") && report.stderr.is_empty(), "{report:?}");
    }
    // Made of it later, it is the same.
    for output in outputs {
        let ran = scratch.run(&[&["report", "outputs/run-0"], output].concat());
        whole_all_the_same(&ran, "4 requests, 2 sessions", "the run itself is whole, in outputs/run-0/");
    }
    let sessions = ["report", "outputs/run-0", "--sessions", "--export", "csv=/dev/full"];
    whole_all_the_same(&scratch.run(&sessions), "session", "pdreplay report outputs/run-0 shows it");
    let events = ["report", "outputs/run-0", "--events", "--export", "csv=/dev/full"];
    whole_all_the_same(&scratch.run(&events), "session-opened", "the run itself is whole, in outputs/run-0/");
    let records = ["report", "outputs/run-0/summary.json", "--html", "/dev/full"];
    whole_all_the_same(&scratch.run(&records), "4 requests, 2 sessions", "the run itself is whole");
    scratch.write("outputs/run-1/events.jsonl", "");
    let cut = scratch.run(&["report", "outputs/run-1", "--html", "/dev/full"]);
    whole_all_the_same(&cut, "4 requests, 2 sessions", "the run itself is as it was, in outputs/run-1/");
    let ran = replay(&scratch, &["--name", "set", "--replicas", "2", "--html", "/dev/full"]);
    whole_all_the_same(&ran, "p99_e2e_ms", "the run itself is whole, in outputs/set/");
    scratch.write("caps.toml", "[sweep]\nscenario = \"v3-1p7d\"\n[axes]\ncap = [2, 4]\n");
    let ran = scratch.run(&["sweep", "caps.toml", "trace.jsonl", "--html", "/dev/full"]);
    whole_all_the_same(&ran, "caps · 2 cells", "pdreplay report outputs/caps --html FILE");
    let compared = ["diff", "outputs/run-0", "outputs/run-1", "--no-replicas", "--html", "/dev/full"];
    whole_all_the_same(&scratch.run(&compared), "outputs/run-0", "the runs are as they were");
    let set = scratch.run(&["report", "outputs/set", "--html", "/dev/full"]);
    whole_all_the_same(&set, "p99_e2e_ms", "the replicas are as they were, in outputs/set/");
}
