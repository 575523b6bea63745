//! The commands in README.md, docs/, traces/README.md and notebooks/README.md run as they are written, and the sample in README.md is what they print.
//!
//! Every line of a `sh` block that begins with `pdreplay` is run by a shell, in a directory that has the
//! repository's scenarios and traces; the blocks of one document share it. A line must exit with 0, or with the code
//! its comment names (`# exit 1`). Lines of `cargo` are run by `.ci/run`.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::run::{Ran, Scratch, root};

#[test]
fn commands_in_the_documents_run() {
    let mut documents = ["README.md", "traces/README.md", "notebooks/README.md"].map(|path| root().join(path)).to_vec();
    documents.extend(fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path()));
    documents.sort();
    let mut count = 0;
    for document in documents.iter().filter(|path| path.extension().is_some_and(|ext| ext == "md")) {
        let commands = commands_of(&fs::read_to_string(document).unwrap());
        count += commands.len();
        run_all(document, &commands);
    }
    assert!(count >= 5, "only {count} commands were found");
}

#[test]
fn the_sample_in_the_readme_is_what_the_program_prints() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let sample = readme.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let ran = Scratch::new().run(&["replay"]).code(0);
    assert_eq!(timeless(sample), timeless(&ran.stdout));
}

/// The summary without what differs from run to run: the wall time, and the time stamp in the name of the folder.
fn timeless(summary: &str) -> String {
    let (headline, rest) = summary.split_once('\n').unwrap();
    let (headline, wall) = headline.rsplit_once(", ").unwrap();
    assert!(wall.ends_with(" s") && wall.parse::<f64>().is_err(), "no wall time at the end of {headline}");
    let stamp = rest.split_once("outputs/").unwrap().1.split_once("-default").unwrap().0;
    assert_eq!(stamp.len(), "2026-11-30T21-04-10".len(), "{stamp}");
    format!("{headline}\n{}", rest.replace(stamp, "…"))
}

fn commands_of(text: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut in_block = false;
    for line in text.lines() {
        if line.starts_with("```") {
            in_block = line == "```sh";
        } else if in_block && line.starts_with("pdreplay ") {
            commands.push(line.to_owned());
        }
    }
    commands
}

fn run_all(document: &Path, commands: &[String]) {
    let scratch = Scratch::new();
    for shared in ["scenarios", "traces"] {
        std::os::unix::fs::symlink(root().join(shared), scratch.join(shared)).unwrap();
    }
    let bin = Path::new(env!("CARGO_BIN_EXE_pdreplay")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    for command in commands {
        let wanted = command.split_once("# exit ").map_or(0, |(_, code)| code.trim().parse().unwrap());
        let shell = Command::new("bash")
            .args(["-c", &format!("set -o pipefail\n{command}")])
            .current_dir(scratch.path())
            .env("PATH", &path)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let ran = Ran::of(shell);
        // On a machine busy with other tests a run in real time may send late, and says so.
        let is_late = command.contains("--target live") && ran.stdout.contains("schedule lag p99");
        if is_late && wanted == 0 && ran.code == Some(1) {
            continue;
        }
        assert_eq!(ran.code, Some(wanted), "{}: {command}\n{ran:#?}", document.display());
    }
}
