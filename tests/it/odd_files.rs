//! `report` and `diff` on files that never end, wait or lie about time: refused at once, with the place of the fault.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use crate::cli::{replay, with_trace};
use crate::results::request;
use crate::run::Scratch;

fn with_run() -> Scratch {
    let scratch = with_trace();
    replay(&scratch, &["--name", "one", "-q"]).code(0);
    scratch
}

#[test]
fn a_file_without_end_is_refused() {
    let scratch = Scratch::new();
    let words = ["/dev/zero: line 1: longer than 64 MiB", "give a file of request records"];
    scratch.run(&["report", "/dev/zero"]).refused(&words);
    scratch.run(&["diff", "/dev/zero", "/dev/zero"]).refused(&["/dev/zero: line 1: longer than 64 MiB"]);
    scratch.write("trace.jsonl", "");
    scratch.run(&["replay", "trace.jsonl", "--scenario", "/dev/zero"]).refused(&["is larger than 16 MiB"]);
    scratch.run(&["sweep", "/dev/zero", "trace.jsonl"]).refused(&["is larger than 16 MiB"]);
}

#[test]
fn a_pipe_or_a_folder_in_a_run_is_refused_and_not_waited_for() {
    let scratch = with_run();
    for name in ["requests.jsonl", "requests.parquet", "summary.json", "events.jsonl", "run.json"] {
        let (path, kept) = (scratch.join(&format!("outputs/one/{name}")), scratch.join("kept"));
        fs::rename(&path, &kept).unwrap();
        let refused = || {
            scratch.run(&["report", "outputs/one"]).refused(&[&format!("outputs/one/{name} is no regular file")]);
        };
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        refused();
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        refused();
        fs::remove_dir(&path).unwrap();
        symlink("/dev/zero", &path).unwrap();
        refused();
        fs::remove_file(&path).unwrap();
        fs::rename(&kept, &path).unwrap();
    }
    scratch.run(&["report", "outputs/one"]).code(0);
}

#[test]
fn a_time_before_the_send_is_refused_by_line_and_by_row() {
    let scratch = Scratch::new();
    let good = request("a", 1, 500, 12.5, 100.0);
    for (name, wrong) in [("ended_ns", 7), ("first_token_ns", 8), ("last_token_ns", 9)] {
        let mut bad = serde_json::to_value(&good).unwrap();
        bad[name] = wrong.into();
        scratch.write("records.jsonl", &format!("{}\n{bad}\n", serde_json::to_string(&good).unwrap()));
        let words = format!("records.jsonl: line 2: {name} {wrong} is before sent_ns 500000000");
        for more in [&["--json"][..], &["--html", "page.html"], &["--export", "csv=out.csv"]] {
            scratch.run(&[&["report", "records.jsonl"], more].concat()).refused(&[&words]);
        }
    }
    assert!(!scratch.join("page.html").exists() && !scratch.join("out.csv").exists());
}

#[test]
fn the_end_of_time_has_a_page() {
    let scratch = Scratch::new();
    for ended in [u64::MAX, u64::MAX - 1] {
        let mut record = request("a", 1, 500, 12.5, 100.0);
        (record.ended_ns, record.decode_worker_actual) = (ended, Some("D0".into()));
        scratch.write("records.jsonl", &(serde_json::to_string(&record).unwrap() + "\n"));
        scratch.run(&["report", "records.jsonl", "--html", "page.html"]).code(0);
        assert!(scratch.read("page.html").ends_with("</html>\n"));
    }
}

/// Bytes that the summary does not need are damaged, so that only the export meets them.
#[test]
fn an_export_begins_anew_when_the_table_is_damaged() {
    let scratch = with_run();
    scratch.run(&["report", "outputs/one", "--export", "csv=whole.csv"]).code(0);
    let path = scratch.join("outputs/one/requests.parquet");
    let whole = fs::read(&path).unwrap();
    let mut restarted = 0;
    for at in (4..whole.len() * 3 / 4).step_by(64) {
        let mut bytes = whole.clone();
        let end = (at + 24).min(bytes.len() - 9);
        bytes[at..end].fill(0xAB);
        fs::write(&path, bytes).unwrap();
        let ran = scratch.run(&["report", "outputs/one", "--export", "csv=out.csv"]).code(0);
        if ran.stderr.contains("requests.parquet is not used") {
            restarted += 1;
            assert_eq!(scratch.read("out.csv"), scratch.read("whole.csv"), "{at}: {}", ran.stderr);
        }
    }
    assert!(restarted > 0);
}
