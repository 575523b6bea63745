//! A disk that has room for everything but the last file of a run.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::run::Scratch;

/// Bytes of a page: what a file takes on a file system in memory is a multiple of it.
const PAGE: u64 = 4096;

/// A file system of its own in `folder`, as long as it lives; `None` where this user may not mount.
struct Small<'a>(&'a Path);

impl<'a> Small<'a> {
    fn mount(folder: &'a Path, bytes: u64) -> Option<Small<'a>> {
        fs::create_dir_all(folder).unwrap();
        let size = format!("size={bytes}");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(folder).output();
        mounted.is_ok_and(|ran| ran.status.success()).then_some(Small(folder))
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

#[test]
fn a_disk_that_is_full_for_the_last_file_is_told_in_it() {
    let scratch = Scratch::new();
    scratch.run(&["trace", "generate", "--sessions", "400", "-o", "trace.jsonl", "-q"]).code(0);
    let run = |folder: &str| {
        let args = ["replay", "trace.jsonl", "--time-scale", "inf", "--name", "a", "-q", "--output-dir", folder];
        scratch.run(&args)
    };
    run("whole").code(0);
    let sizes = fs::read_dir(scratch.join("whole/a")).unwrap().map(|entry| {
        let entry = entry.unwrap();
        (entry.file_name(), entry.metadata().unwrap().len().div_ceil(PAGE) * PAGE)
    });
    let (last, others): (Vec<_>, Vec<_>) = sizes.partition(|(name, _)| name == "run.json");
    let others: u64 = others.iter().map(|(_, size)| size).sum();
    assert!(last[0].1 > 24 * PAGE, "the file is larger than the room there will be for it");
    let folder = scratch.join("small");
    // Room for the folder, the first run.json, and one that tells of a failure.
    let Some(_disk) = Small::mount(&folder, others + 12 * PAGE) else {
        println!("skipped: a file system cannot be mounted here");
        return;
    };
    let ran = run("small").code(1);
    assert!(ran.stderr.starts_with("error: cannot write small/a/run.json: "), "{}", ran.stderr);
    let told = scratch.json("small/a/run.json");
    assert_eq!((told["state"].as_str(), told["exit_code"].as_i64()), (Some("failed"), Some(1)));
    assert!(told["failure"].as_str().unwrap().contains("run.json"), "{told}");
    let report = scratch.run(&["report", "small/a"]).code(0);
    assert!(report.stderr.contains("failed"), "{}", report.stderr);
}
