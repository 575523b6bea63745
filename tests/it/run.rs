//! Running the `pdreplay` binary in a directory of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

use crate::turn::{Beside, beside};

/// A temporary working directory; removed when dropped. No test is alone on the machine while it is there.
pub struct Scratch {
    path: PathBuf,
    _beside: Beside,
}

impl Scratch {
    pub fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("pdreplay-it-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Scratch { path, _beside: beside() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub fn json(&self, name: &str) -> Value {
        serde_json::from_str(&self.read(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// The binary, in this directory, with nothing of the test's environment that changes what it prints.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pdreplay"));
        command.current_dir(&self.path).args(args).stdin(Stdio::null()).env_remove("NO_COLOR").env("TERM", "xterm");
        command
    }

    /// Runs it to its end.
    pub fn run(&self, args: &[&str]) -> Ran {
        Ran::of(self.command(args).output().unwrap())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// What a run of the binary left.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    pub fn of(output: Output) -> Ran {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ran { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Ended with `code`; shows everything when it did not.
    #[track_caller]
    pub fn code(self, code: i32) -> Ran {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    /// Refused before anything ran: exit 2, an `error:` line that contains `words`, nothing on stdout.
    #[track_caller]
    pub fn refused(self, words: &[&str]) -> Ran {
        let ran = self.code(2);
        assert!(ran.stdout.is_empty() && ran.stderr.starts_with("error: "), "{ran:#?}");
        for word in words {
            assert!(ran.stderr.contains(word), "no `{word}` in {}", ran.stderr);
        }
        ran
    }
}

/// An input of a bug case, such as `01-bom-first-line/trace.jsonl`.
pub fn case_path(path: &str) -> PathBuf {
    let found = root().join("tests/data/cases").join(path);
    assert!(found.exists(), "{} is missing", found.display());
    found
}

/// The repository's root.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
