//! The notebooks run from top to bottom on fresh runs; their own cells hold the figures against `summary.json`.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::installed::python;
use crate::run::{Scratch, root};

/// What they tell their reader to run first; of the sweep a part.
const RUNS: [&str; 3] = [
    "replay --scenario v3-1p7d --name v3",
    "replay --scenario v4-1p7d --name v4",
    "sweep cap-policy --filter topology=1p7d --filter time_scale=10 --filter seed=42",
];

fn notebooks() -> Vec<std::path::PathBuf> {
    let files = fs::read_dir(root().join("notebooks")).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> = files.filter(|path| path.extension().is_some_and(|kind| kind == "ipynb")).collect();
    found.sort();
    assert!(!found.is_empty());
    found
}

#[test]
fn every_notebook_runs_on_fresh_runs() {
    let Some(python) = python("polars, altair, nbclient, nbformat, ipykernel") else { return };
    let scratch = Scratch::new();
    for args in RUNS {
        scratch.run(&args.split(' ').collect::<Vec<&str>>()).code(0);
    }
    let mut command = Command::new(python);
    command.arg(root().join("tests/it/notebooks.py")).args(notebooks()).current_dir(root().join("notebooks"));
    command.env("PDREPLAY_OUTPUTS", scratch.join("outputs")).stdin(Stdio::null());
    let ran = command.output().unwrap();
    assert!(ran.status.success(), "{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
}

#[test]
fn notebooks_are_kept_without_outputs_and_tell_what_to_run() {
    for path in notebooks() {
        let notebook: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let cells = notebook["cells"].as_array().unwrap();
        for cell in cells.iter().filter(|cell| cell["cell_type"] == "code") {
            assert_eq!(cell["outputs"], Value::Array(Vec::new()), "{}: clear its outputs", path.display());
            assert_eq!(cell["execution_count"], Value::Null, "{}", path.display());
        }
        let first = cells[0]["source"].to_string();
        assert!(first.contains("```sh") && first.contains("pdreplay "), "{} tells nothing to run", path.display());
    }
}
