//! The commands around a run: traces through files and stdout, help, manual, completions, scenarios.

use crate::cli::with_trace;
use crate::run::Scratch;

#[test]
fn traces_go_round_through_files_and_stdout() {
    let scratch = with_trace();
    for file in ["a.jsonl", "b.jsonl.gz", "c.jsonl.zst"] {
        scratch.run(&["trace", "convert", "trace.jsonl", "-o", file, "-q"]).code(0);
        let again = scratch.run(&["trace", "convert", file]).code(0);
        assert_eq!(again.stdout, scratch.read("a.jsonl"), "{file}");
    }
    scratch.run(&["trace", "convert", "trace.jsonl", "-o", "a.jsonl"]).refused(&["a.jsonl exists", "--overwrite"]);
    let slice = scratch.run(&["trace", "slice", "trace.jsonl", "--sessions", "b", "--last-turn", "1"]).code(0);
    assert_eq!(slice.stdout.lines().count(), 2);
    scratch.run(&["trace", "slice", "trace.jsonl", "--sessions", "zzz"]).refused(&["zzz"]);
    scratch.run(&["trace", "slice", "trace.jsonl", "--from", "-3"]).refused(&["seconds"]);
    let valid = scratch.run(&["trace", "validate", "trace.jsonl"]).code(0);
    assert!(valid.stdout.contains("valid; 4 requests in 2 sessions"), "{}", valid.stdout);
    let sessions = scratch.run(&["trace", "inspect", "trace.jsonl", "--sessions", "--format", "csv"]).code(0);
    assert_eq!(sessions.stdout.lines().count(), 3);
}

#[test]
fn help_version_man_and_completions_print_to_stdout() {
    let scratch = Scratch::new();
    for args in [&["--help"][..], &["replay", "--help"], &["trace", "slice", "-h"], &["--version"], &["man"]] {
        let ran = scratch.run(args).code(0);
        assert!(!ran.stdout.is_empty() && ran.stderr.is_empty(), "{args:?}");
    }
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(scratch.run(&["completions", shell]).code(0).stdout.contains("pdreplay"), "{shell}");
    }
    assert!(scratch.run(&["man"]).code(0).stdout.contains("\\-\\-time\\-scale"));
    scratch.run(&[]).code(2);
}

#[test]
fn a_shown_scenario_loads_to_itself() {
    let scratch = Scratch::new();
    let shown = scratch.run(&["scenario", "show", "-s", "v3-1p7d", "--time-scale", "inf"]).code(0);
    scratch.write("shown.toml", &shown.stdout);
    let again = scratch.run(&["scenario", "show", "shown.toml"]).code(0);
    scratch.run(&["scenario", "show", "shown.toml", "-s", "default"]).refused(&["cannot be used with"]);
    assert_eq!(again.stdout, shown.stdout);
    let listed = scratch.run(&["scenario", "list"]).code(0);
    assert!(listed.stdout.starts_with("default") && listed.stdout.lines().count() > 10, "{}", listed.stdout);
}
