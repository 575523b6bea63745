//! Structure, held by a test: who may use whom, which crate may be named where, how large a file may grow.
//!
//! The tables below are the walls of this package (docs/architecture.md explains them). A change that needs another
//! edge changes the table and the document together. Code inside `#[cfg(test)]` is free.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use pdreplay::record::{ExecutionMode, LedgerKind, ModeReason, Outcome};

use crate::run::root;

/// Module, modules it may use. Reading order; nothing may use a later one except where it says so here.
const EDGES: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("kv", &["base"]),
    ("protocol", &["base", "kv"]),
    ("record", &["base"]),
    ("trace", &["base", "kv"]),
    ("policies", &["base", "kv", "protocol", "record", "trace"]),
    ("sessions", &["base", "kv", "protocol", "record", "trace"]),
    ("admission", &["base", "protocol", "record", "sessions", "trace"]),
    ("engine", &["base", "kv", "protocol", "record"]),
    ("cluster", &["base", "kv", "protocol", "record", "engine"]),
    ("replay", &["base", "kv", "protocol", "record", "trace", "policies", "sessions", "admission"]),
    ("scenario", &["base", "kv", "trace", "policies", "admission", "engine", "cluster", "replay"]),
    ("sim", &["base", "kv", "protocol", "record", "trace", "engine", "scenario", "replay", "cluster"]),
    ("node", &["base", "kv", "protocol", "record", "engine", "cluster"]),
    ("live", &["base", "kv", "protocol", "record", "trace", "engine", "cluster", "node", "replay", "scenario"]),
    ("results", &["base", "protocol", "record"]),
    (
        "cli",
        &[
            "base",
            "kv",
            "protocol",
            "record",
            "trace",
            "policies",
            "sessions",
            "admission",
            "engine",
            "cluster",
            "replay",
            "scenario",
            "sim",
            "node",
            "live",
            "results",
        ],
    ),
];

/// Dependency, modules (or single files) that may name it.
const CRATES: &[(&str, &[&str])] = &[
    ("clap", &["cli"]),
    ("clap_complete", &["cli"]),
    ("clap_mangen", &["cli"]),
    ("indicatif", &["cli"]),
    ("signal_hook", &["cli"]),
    ("jiff", &["cli", "live"]),
    ("terminal_size", &["cli"]),
    ("serde_json", &["base/json.rs", "trace", "record", "results", "scenario", "live", "cli"]),
    ("tokio", &["live"]),
    ("futures_util", &["live"]),
    ("http_body_util", &["live/client"]),
    ("bytes", &["live"]),
    ("reqwest", &["live/client"]),
    ("rustls", &["live/client"]),
    ("tower_layer", &["live/client"]),
    ("tower_service", &["live/client"]),
    ("axum", &["live/server"]),
    ("subtle", &["live/server/kv/token.rs"]),
    ("hyper_util", &["live/client/dial.rs", "live/server/listen.rs", "live/server/upstream.rs"]),
    ("httparse", &["live/client/wire"]),
    ("rustix", &["live", "cli/stdout.rs"]),
    ("xxhash_rust", &["kv", "node", "cli/folder/left.rs"]),
    ("rmp", &["kv/wire"]),
    ("hashbrown", &["kv/index", "results/vocabulary.rs"]),
    ("toml", &["scenario"]),
    ("strsim", &["base/nearest.rs"]),
    ("statrs", &["results/stats.rs"]),
    ("hdrhistogram", &["results", "live/driver/harness.rs"]),
    ("polars_arrow", &["results/frame"]),
    ("polars_parquet", &["results/frame"]),
    ("memchr", &["trace", "live"]),
    ("flate2", &["trace", "cli/trace/target.rs", "cli/outfile.rs"]),
    ("zstd", &["trace", "cli/trace/target.rs"]),
    ("sha2", &["trace", "cli"]),
    ("rand_chacha", &["base"]),
    ("thiserror", ANYWHERE),
    ("serde_path_to_error", &["base/json.rs"]),
    ("etcd_client", &["live/kv/registry/etcd.rs"]),
    ("serde", ANYWHERE),
    ("schemars", ANYWHERE),
];
const ANYWHERE: &[&str] = &[""];

/// Modules that are told everything: no clock, file, socket, thread, environment.
const CORE: &[&str] = &[
    "base",
    "kv",
    "protocol",
    "record",
    "trace",
    "policies",
    "sessions",
    "admission",
    "engine",
    "cluster",
    "replay",
    "scenario",
    "sim",
    "node",
];
const NOT_IN_CORE: &[&str] =
    &["std::fs", "std::net", "std::thread", "std::env", "std::process", "Instant", "SystemTime"];
/// The files of the core that read files, for the rest of their module.
const READERS: &[&str] = &["trace/read/file.rs", "scenario/load.rs"];

const WANTED_FILE_LINES: usize = 400;
const MOST_FILE_LINES: usize = 600;
const MOST_FUNCTION_LINES: usize = 70;

struct Source {
    /// Path from the repository's root.
    path: String,
    /// Module of `src/`; empty elsewhere.
    module: String,
    text: String,
}

impl Source {
    /// Path below `src/`.
    fn inner(&self) -> &str {
        self.path.strip_prefix("src/").unwrap_or(&self.path)
    }

    /// Tests and benches are free of the walls.
    fn is_test(&self) -> bool {
        !self.path.starts_with("src/") || self.path.ends_with("/tests.rs") || self.path.contains("/tests/")
    }

    /// Lines of code outside tests, comments cut off, with their numbers.
    fn code(&self) -> Vec<(usize, &str)> {
        if self.is_test() { Vec::new() } else { code_of(&self.text) }
    }
}

/// Where a line stands between test items.
enum Place {
    Code,
    /// Below `#[cfg(test)]`, before the body of its item.
    TestItem,
    /// In the body, up to this line.
    TestBody(String),
}

/// Leaves out the items marked `#[cfg(test)]`, and only them. Relies on rustfmt: an item ends with `;`, or with the first
/// `}` as far in as it began.
fn code_of(text: &str) -> Vec<(usize, &str)> {
    let mut place = Place::Code;
    let mut code = Vec::new();
    for (ix, line) in text.lines().enumerate() {
        let bare = line.split("//").next().unwrap_or_default().trim_end();
        let inner = bare.trim_start();
        place = match place {
            Place::Code if inner == "#[cfg(test)]" => Place::TestItem,
            Place::Code => {
                code.push((ix + 1, bare));
                Place::Code
            }
            Place::TestItem if inner.ends_with('{') => {
                Place::TestBody(format!("{}}}", &bare[..bare.len() - inner.len()]))
            }
            Place::TestItem if inner.ends_with([';', '}']) => Place::Code,
            Place::TestItem => Place::TestItem,
            Place::TestBody(end) if bare.trim_end_matches(';') == end => Place::Code,
            Place::TestBody(end) => Place::TestBody(end),
        };
    }
    code
}

fn sources() -> Vec<Source> {
    let mut found = Vec::new();
    for folder in ["src", "tests", "benches"] {
        for path in files_below(&root().join(folder)) {
            if path.extension().is_some_and(|ext| ext == "rs") {
                let relative = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
                let first = relative.strip_prefix("src/").and_then(|inner| inner.split('/').next()).unwrap_or_default();
                let module = first.trim_end_matches(".rs").to_owned();
                found.push(Source { path: relative, module, text: fs::read_to_string(&path).unwrap() });
            }
        }
    }
    assert!(found.len() > 20, "the sources were not found");
    found
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let Ok(entries) = fs::read_dir(folder) else { return files };
    for entry in entries.map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() { files.extend(files_below(&path)) } else { files.push(path) }
    }
    files.sort();
    files
}

/// Names that follow `prefix` in a line of code.
fn names_after<'a>(line: &'a str, prefix: &'a str) -> impl Iterator<Item = &'a str> {
    line.match_indices(prefix).map(move |(at, _)| {
        let rest = &line[at + prefix.len()..];
        rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default()
    })
}

/// Whether `line` uses the path `krate::…`.
fn names_crate(line: &str, krate: &str) -> bool {
    let path = format!("{krate}::");
    line.match_indices(&path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        before.is_none_or(|c| !c.is_ascii_alphanumeric() && c != '_' && c != ':')
    })
}

#[track_caller]
fn none(what: &str, found: Vec<String>) {
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}

#[test]
fn the_document_has_one_row_for_each_module_and_no_line_twice() {
    let text = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let table = text.split_once("\n## Modules\n").unwrap().1.split_once("\n## ").map_or("", |(own, _)| own);
    let cells =
        |line: &str| line.strip_prefix("| `").and_then(|rest| rest.split_once("` |")).map(|(name, _)| name.to_owned());
    let rows: Vec<String> = table.lines().filter(|line| line.starts_with("| `")).filter_map(cells).collect();
    let mut named: Vec<&str> = rows.iter().map(String::as_str).collect();
    named.sort_unstable();
    let mut wanted: Vec<&str> = EDGES.iter().map(|(module, _)| *module).collect();
    wanted.sort_unstable();
    assert_eq!(named, wanted, "modules of docs/architecture.md, against the table here");
    // A merge may keep a line twice. Frames of tables and code repeat by right.
    let mut doubled = Vec::new();
    for document in fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path()) {
        if document.extension().is_none_or(|ext| ext != "md") {
            continue;
        }
        let text = fs::read_to_string(&document).unwrap();
        let lines: Vec<&str> = text.lines().filter(|line| line.len() > 40 && !line.starts_with("| ---")).collect();
        let twice = lines.windows(2).filter(|pair| pair[0] == pair[1]);
        doubled.extend(twice.map(|pair| format!("{}: {}", document.display(), pair[0])));
    }
    assert_eq!(doubled, [""; 0]);
}

#[test]
fn modules_use_only_the_modules_before_them() {
    let mut wrong = Vec::new();
    for source in sources().iter().filter(|source| !source.is_test()) {
        if matches!(source.path.as_str(), "src/lib.rs" | "src/main.rs") {
            continue;
        }
        let Some((_, allowed)) = EDGES.iter().find(|(module, _)| *module == source.module) else {
            wrong.push(format!("{}: module `{}` is not in the table", source.path, source.module));
            continue;
        };
        for (line, code) in source.code() {
            for used in names_after(code, "crate::") {
                let is_module = EDGES.iter().any(|(module, _)| *module == used);
                if is_module && used != source.module && !allowed.contains(&used) {
                    wrong.push(format!("{}:{line}: `{}` uses `{used}`", source.path, source.module));
                }
            }
        }
    }
    none("edges that are not in the table", wrong);
}

#[test]
fn every_crate_stays_behind_its_wall() {
    let mut wrong = Vec::new();
    let sources = sources();
    for name in dependencies() {
        let Some((_, allowed)) = CRATES.iter().find(|(krate, _)| *krate == name) else {
            wrong.push(format!("Cargo.toml: `{name}` is not in the table"));
            continue;
        };
        for source in sources.iter().filter(|source| !source.is_test()) {
            let lives_in = |home: &str| {
                let rest = source.inner().strip_prefix(home);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '.']) || home.is_empty())
            };
            if allowed.iter().any(|home| lives_in(home)) {
                continue;
            }
            let used = source.code().into_iter().filter(|(_, code)| names_crate(code, &name));
            wrong.extend(used.map(|(line, _)| format!("{}:{line}: names `{name}`", source.path)));
        }
    }
    none("crates named outside their walls", wrong);
}

#[test]
fn the_chart_library_is_named_on_pages_alone() {
    let words = ["echarts", "charming"];
    let elsewhere = |source: &&Source| source.path.starts_with("src/") && !source.inner().starts_with("results/page/");
    let mut wrong = Vec::new();
    for source in sources().iter().filter(elsewhere) {
        let text = source.text.to_lowercase();
        wrong.extend(words.iter().filter(|word| text.contains(**word)).map(|word| format!("{}: {word}", source.path)));
    }
    none("the chart library is named outside results/page", wrong);
    let css = fs::read_to_string(root().join("src/results/page/page.css")).unwrap();
    assert!(!css.contains("url(") && !css.contains("@import"), "the style of a page asks for another file");
}

fn dependencies() -> BTreeSet<String> {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let section = manifest.split("[dependencies]").nth(1).unwrap().split("\n[").next().unwrap();
    let names = section.lines().filter_map(|line| line.split_once(" = "));
    let names: BTreeSet<String> = names.map(|(name, _)| name.trim().replace('-', "_")).collect();
    assert!(names.contains("serde"), "the dependencies were not found");
    names
}

#[test]
fn the_core_has_no_clock_file_thread_or_environment() {
    let mut wrong = Vec::new();
    for source in sources().iter().filter(|source| CORE.contains(&source.module.as_str())) {
        let may_read = |banned: &str| banned == "std::fs" && READERS.contains(&source.inner());
        for (line, code) in source.code() {
            let named = NOT_IN_CORE.iter().filter(|banned| code.contains(**banned) && !may_read(banned));
            wrong.extend(named.map(|banned| format!("{}:{line}: {banned}", source.path)));
        }
    }
    none("the core is told everything", wrong);
}

#[test]
fn files_and_functions_stay_small() {
    let mut wrong = Vec::new();
    for source in sources() {
        let lines = source.text.lines().count();
        if lines > MOST_FILE_LINES {
            wrong.push(format!("{}: {lines} lines", source.path));
        } else if lines > WANTED_FILE_LINES {
            println!("warning: {} has {lines} lines, more than {WANTED_FILE_LINES}", source.path);
        }
        wrong.extend(long_functions(&source));
    }
    none(&format!("over {MOST_FILE_LINES} lines a file or {MOST_FUNCTION_LINES} a function"), wrong);
}

/// Relies on rustfmt: a function ends at the first `}` as far in as its `fn`.
fn long_functions(source: &Source) -> Vec<String> {
    let lines: Vec<&str> = source.text.lines().collect();
    let mut long = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let depth = line.len() - line.trim_start().len();
        let is_function = line.trim_start().split('(').next().unwrap_or_default().split(' ').any(|word| word == "fn");
        if !is_function || !line.trim_end().ends_with('{') || line.trim_start().starts_with("//") {
            continue;
        }
        let end = format!("{}}}", &line[..depth]);
        let Some(body) = lines[start..].iter().position(|line| *line == end) else { continue };
        let code = lines[start..start + body].iter().filter(|line| {
            let line = line.trim_start();
            !line.is_empty() && !line.starts_with("//")
        });
        let count = code.count() - 1;
        if count > MOST_FUNCTION_LINES {
            long.push(format!("{}:{}: {count} lines", source.path, start + 1));
        }
    }
    long
}

#[test]
fn only_test_items_are_left_out_of_the_checks() {
    let text = "use a; // why\n#[cfg(test)]\nmod tests;\nuse b;\nimpl T {\n    #[cfg(test)]\n    #[must_use]\n    fn \
                probe(\n        &self,\n    ) -> u32 {\n        if x {\n        }\n    }\n    fn real() {}\n}\n#[cfg(test)]\n\
                mod tests {\n    use c;\n}\n#[cfg(test)]\nuse d;\nfn last() {}\n";
    let lines: Vec<&str> = code_of(text).into_iter().map(|(_, line)| line).collect();
    assert_eq!(lines, ["use a;", "use b;", "impl T {", "    fn real() {}", "}", "fn last() {}"]);
    assert_eq!(code_of(text).last(), Some(&(22, "fn last() {}")));
}

#[test]
fn the_readers_of_the_core_exist_and_read() {
    let sources = sources();
    let reads = |reader: &&&str| {
        sources
            .iter()
            .any(|source| source.inner() == **reader && source.code().iter().any(|(_, code)| code.contains("std::fs")))
    };
    assert_eq!(READERS.iter().filter(reads).count(), READERS.len());
}

#[test]
fn every_file_opens_with_its_duty() {
    let silent = sources().into_iter().filter(|source| !source.text.starts_with("//! "));
    none("no `//!` header", silent.map(|source| source.path).collect());
}

#[test]
fn nothing_is_left_unfinished() {
    let banned = [concat!("to", "do!("), concat!("un", "implemented!("), concat!("db", "g!("), concat!("#[", "ignore")];
    let mut wrong = Vec::new();
    for source in sources() {
        for (ix, line) in source.text.lines().enumerate() {
            let found = banned.iter().filter(|word| line.contains(*word));
            wrong.extend(found.map(|word| format!("{}:{}: {word}", source.path, ix + 1)));
        }
    }
    none("unfinished", wrong);
}

#[test]
fn no_path_of_one_machine_is_written_down() {
    let banned = [concat!("/wo", "rk/"), concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/Us", "ers/")];
    let mut wrong = Vec::new();
    let folders = ["src", "tests", "benches", "docs", "scripts", "scenarios", "traces", "notebooks", ".ci"];
    let files = folders.iter().flat_map(|folder| files_below(&root().join(folder)));
    for path in files.chain([root().join("README.md"), root().join("Cargo.toml")]) {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        for (ix, line) in text.lines().enumerate().filter(|(_, line)| banned.iter().any(|word| line.contains(word))) {
            wrong.push(format!("{}:{}: {}", path.display(), ix + 1, line.trim()));
        }
    }
    none("paths of one machine", wrong);
}

#[test]
fn every_scenario_file_parses() {
    let files: Vec<PathBuf> =
        fs::read_dir(root().join("scenarios")).unwrap().map(|entry| entry.unwrap().path()).collect();
    let scenarios: Vec<&PathBuf> =
        files.iter().filter(|path| path.extension().is_some_and(|ext| ext == "toml")).collect();
    assert!(!scenarios.is_empty());
    let refused = scenarios.iter().filter_map(|path| pdreplay::scenario::load(path.to_str(), &[]).err());
    none("refused", refused.map(|error| error.to_string()).collect());
}

#[test]
fn every_label_is_in_the_format_description() {
    let formats = fs::read_to_string(root().join("docs/formats.md")).unwrap();
    let modes = ExecutionMode::ALL.iter().map(|mode| mode.as_str());
    let reasons = ModeReason::ALL.iter().map(|reason| reason.as_str());
    let outcomes = Outcome::ALL.iter().map(|outcome| outcome.as_str());
    let kinds = LedgerKind::ALL.iter().map(|kind| kind.as_str());
    let labels = modes.chain(reasons).chain(outcomes).chain(kinds);
    let missing = labels.filter(|label| !formats.contains(&format!("`{label}`")));
    none("labels that docs/formats.md does not name", missing.map(String::from).collect());
}
