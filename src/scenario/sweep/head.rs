//! `[sweep]` of a sweep file: its keys, their defaults and refusals.

use std::path::Path;

use toml::{Table, Value};

use super::SweepHead;
use crate::base::nearest;
use crate::scenario::error::{Cause, Located, Problem, ScenarioError};
use crate::scenario::layer::{Layer, found};

const KEYS: [&str; 8] = ["name", "description", "scenario", "trace", "repeats", "jitter_ms", "jobs", "allow_conflict"];

/// Most repeats of a point.
const MOST_REPEATS: i64 = 1000;
/// Most threads.
const MOST_JOBS: i64 = 1024;
/// Widest jitter, ms: a day.
const MOST_JITTER_MS: f64 = 86_400_000.0;

/// Reads `[sweep]` of the file in `folder`; `name` is the sweep's where it gives none.
pub(super) fn head(layer: &Layer, folder: &Path, name: &str) -> Result<SweepHead, ScenarioError> {
    let empty = Table::new();
    let table = match layer.table.get("sweep") {
        None => &empty,
        Some(Value::Table(table)) => table,
        Some(other) => {
            let cause = Cause::WrongType { key: "sweep".into(), wanted: "a table".into(), found: found(other) };
            return Err(ScenarioError::one(layer.origin("sweep"), cause));
        }
    };
    let mut reader = Reader { layer, table, problems: Vec::new() };
    for key in table.keys().filter(|key| !KEYS.contains(&key.as_str())) {
        let known: Vec<String> = KEYS.map(String::from).to_vec();
        let near = nearest(key, &known);
        reader.blame(key, Cause::UnknownKey { key: key.clone(), table: "[sweep]".into(), near, known });
    }
    let head = SweepHead {
        name: reader.text("name").unwrap_or_else(|| name.into()),
        description: reader.text("description").unwrap_or_default(),
        scenario: reader.text("scenario").map(|given| scenario_from(folder, &given)),
        trace: reader.text("trace").map(|given| folder.join(given)),
        repeats: reader.whole("repeats", MOST_REPEATS).unwrap_or(1),
        jitter_ms: reader.jitter(),
        jobs: reader.whole("jobs", MOST_JOBS),
        allow_conflict: reader.flag("allow_conflict").unwrap_or(false),
    };
    if !is_folder_name(&head.name) {
        let cause = format!("is \"{}\", which cannot name a folder", head.name);
        let remedy = "use ASCII letters, digits, `-`, `_` and `.`, not `.` first".into();
        reader.blame("name", Cause::Impossible(Problem { key: "sweep.name".into(), cause, remedy }));
    }
    ScenarioError::check(reader.problems)?;
    Ok(head)
}

/// A scenario as a sweep file names it: a file beside it, or else what `--scenario` takes.
pub(super) fn scenario_from(folder: &Path, given: &str) -> String {
    let beside = folder.join(given);
    let is_path = given.ends_with(".toml") || given.contains('/');
    if is_path || beside.is_file() { beside.display().to_string() } else { given.into() }
}

fn is_folder_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    !name.is_empty() && !name.starts_with('.') && name.chars().all(fits)
}

struct Reader<'a> {
    layer: &'a Layer,
    table: &'a Table,
    problems: Vec<Located>,
}

impl Reader<'_> {
    fn blame(&mut self, key: &str, cause: Cause) {
        self.problems.push(Located { at: self.layer.origin(&format!("sweep.{key}")), cause });
    }

    fn wrong(&mut self, key: &str, wanted: &str, value: &Value) {
        let cause = Cause::WrongType { key: format!("sweep.{key}"), wanted: wanted.into(), found: found(value) };
        self.blame(key, cause);
    }

    fn text(&mut self, key: &str) -> Option<String> {
        match self.table.get(key)? {
            Value::String(text) if !text.is_empty() || key == "description" => Some(text.clone()),
            other => {
                self.wrong(key, "a string in quotes, not empty", other);
                None
            }
        }
    }

    fn whole(&mut self, key: &str, most: i64) -> Option<u32> {
        match self.table.get(key)? {
            Value::Integer(number) if (1..=most).contains(number) => Some(*number as u32),
            other => {
                self.wrong(key, &format!("a whole number from 1 to {most}, without quotes"), other);
                None
            }
        }
    }

    fn jitter(&mut self) -> Option<f64> {
        let value = self.table.get("jitter_ms")?;
        let number = value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64));
        let fits = number.filter(|number| (0.0..=MOST_JITTER_MS).contains(number));
        if fits.is_none() {
            self.wrong("jitter_ms", "a number from 0 to 86400000 (a day), without quotes", value);
        }
        fits
    }

    fn flag(&mut self, key: &str) -> Option<bool> {
        match self.table.get(key)? {
            Value::Boolean(flag) => Some(*flag),
            other => {
                self.wrong(key, "true or false", other);
                None
            }
        }
    }
}
