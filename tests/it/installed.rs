//! Software that scripts/test_tools.sh installs and a few tests run against.
//!
//! Where it is missing those tests say so in a plain line and pass. With `PDREPLAY_REQUIRE_TOOLS` set, as in CI, that is a
//! failure.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::run::root;

/// The program of that name; `None`: skip.
pub fn tool(name: &str) -> Option<PathBuf> {
    let path = target().join("test-tools/bin").join(name);
    if path.exists() { Some(path) } else { missing(name) }
}

/// Python with these modules, such as `zmq, msgpack`; `None`: skip.
pub fn python(modules: &str) -> Option<PathBuf> {
    let python = tool("python")?;
    let import = format!("import {modules}");
    let has_all = Command::new(&python).args(["-c", &import]).stderr(Stdio::null()).status();
    if has_all.is_ok_and(|status| status.success()) { Some(python) } else { missing(modules) }
}

/// Chromium as it is installed; `None`: skip.
pub fn chromium() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let named = ["chromium", "chromium-browser", "google-chrome"];
    let found = std::env::split_paths(&path).flat_map(|folder| named.map(|name| folder.join(name)));
    found.into_iter().find(|file| file.is_file()).or_else(|| missing("chromium"))
}

/// A file or folder that the script keeps under the target directory; `None`: skip.
pub fn kept(path: &str) -> Option<PathBuf> {
    let found = target().join(path);
    if found.exists() { Some(found) } else { missing(path) }
}

fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Says that `name` is missing, for a test that skips.
pub fn missing<T>(name: &str) -> Option<T> {
    assert!(std::env::var_os("PDREPLAY_REQUIRE_TOOLS").is_none(), "{name} is missing: run scripts/test_tools.sh");
    println!("skipped: {name} is missing; scripts/test_tools.sh installs it");
    None
}
