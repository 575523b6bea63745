//! Claims of run folders, and what `--overwrite` may remove.

use super::*;

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("pdreplay-folder-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Scratch(path)
    }

    fn claim(&self, name: Option<&str>, overwrite: bool) -> Result<RunFolder, Failure> {
        RunFolder::claim(&Wanted { output_dir: &self.0, name, default_name: "2026-11-30T21-04-10-x", overwrite })
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.0.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const OURS: &str = r#"{"tool":"pdreplay","schema_version":1}"#;

#[test]
fn a_default_name_that_is_taken_gets_a_number() {
    let scratch = Scratch::new("default");
    let folders: Vec<RunFolder> = (0..3).map(|_| scratch.claim(None, false).unwrap()).collect();
    let names: Vec<&str> = folders.iter().map(RunFolder::name).collect();
    assert_eq!(names, ["2026-11-30T21-04-10-x", "2026-11-30T21-04-10-x-2", "2026-11-30T21-04-10-x-3"]);
}

#[test]
fn a_given_name_that_is_taken_is_refused_with_the_ways_out() {
    let scratch = Scratch::new("taken");
    scratch.write("a/run.json", OURS);
    let refused = scratch.claim(Some("a"), false).unwrap_err();
    assert_eq!(refused.exit, crate::cli::exit::Exit::Usage);
    assert!(refused.to_string().ends_with("a exists") && refused.hints.iter().any(|hint| hint.contains("--overwrite")));
}

#[test]
fn overwrite_leaves_nothing_of_the_earlier_run() {
    let scratch = Scratch::new("overwrite");
    for file in ["run.json", "requests.jsonl", ".summary.json.part", "r01/run.json", "r12/requests.jsonl"] {
        scratch.write(&format!("a/{file}"), OURS);
    }
    let folder = scratch.claim(Some("a"), true).unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn overwrite_stops_at_a_foreign_file_and_removes_nothing() {
    for foreign in ["notes.txt", "cap-2/summary.json", "r01/notes.txt", "summary.json/x", "rx/run.json"] {
        let scratch = Scratch::new(&path_safe(foreign));
        scratch.write("a/run.json", OURS);
        scratch.write("a/requests.jsonl", "{}");
        scratch.write(&format!("a/{foreign}"), "mine");
        let refused = scratch.claim(Some("a"), true).unwrap_err();
        assert!(refused.to_string().contains("not written by pdreplay"), "{foreign}: {refused}");
        assert!(scratch.0.join("a/requests.jsonl").exists() && scratch.0.join("a").join(foreign).exists());
    }
}

#[test]
fn overwrite_wants_the_mark_of_a_run() {
    let scratch = Scratch::new("mark");
    scratch.write("a/summary.json", r#"{"cap":2,"complete":true}"#);
    let refused = scratch.claim(Some("a"), true).unwrap_err();
    assert!(refused.to_string().contains("no run of pdreplay"), "{refused}");
    assert!(scratch.0.join("a/summary.json").exists());
}

#[test]
fn a_folder_in_use_is_refused_also_with_overwrite() {
    let scratch = Scratch::new("locked");
    let held = scratch.claim(Some("a"), false).unwrap();
    let refused = scratch.claim(Some("a"), true).unwrap_err();
    assert!(refused.to_string().contains("another pdreplay"), "{refused}");
    drop(held);
    assert!(scratch.claim(Some("a"), true).is_ok());
}

#[test]
fn a_name_is_one_part_of_a_path() {
    let scratch = Scratch::new("names");
    for name in ["", ".", "..", "../a", "a/b", ".hidden", "a b"] {
        assert!(scratch.claim(Some(name), false).is_err(), "{name}");
    }
}

#[test]
fn secrets_do_not_reach_the_command_line_of_run_json() {
    let args = ["pdreplay", "--api-key", "k1", "--set", "target.token=t1", "http://me:pw@host/x", "--seed", "7"];
    let redacted = manifest::redact(args.iter().map(|arg| (*arg).to_owned()));
    let expected = ["pdreplay", "--api-key", "***", "--set", "target.token=***", "http://***@host/x", "--seed", "7"];
    assert_eq!(redacted, expected);
}
