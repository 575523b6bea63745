//! `summary.json` as a report finds it: usable or not, and whether it says what the records say.
//!
//! The records are the truth. The file is used for what they do not hold, the token gaps, and printed as it is when
//! nothing else was asked for. Invariant: a file that is no summary of ours, has another digest than the run left it
//! with, or contradicts the records, is not used.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value};

use crate::cli::folder::LeftFile;
use crate::results::{Figure, Metric, Percentile, Percentiles, RunSummary, SUMMARY_VERSION};

/// Contradictions named in a warning.
const NAMED: usize = 3;

/// Sums of floating-point numbers may differ in their last digits once they went through text.
const TOLERANCE: f64 = 1e-9;

/// A `summary.json` of ours.
#[derive(Debug)]
pub struct Stored {
    /// Its text.
    pub text: String,
    /// The same, read.
    pub summary: Value,
}

impl Stored {
    /// Reads the file, of which the run told this ([`crate::cli::folder::told`]). Error: why it cannot be used.
    pub fn read(path: &Path, told: Result<Option<&LeftFile>, String>) -> Result<Stored, String> {
        let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
        let summary: Value = serde_json::from_str(&text).map_err(|error| format!("no JSON: {error}"))?;
        match summary.get("schema_version").and_then(Value::as_u64) {
            Some(version) if version == u64::from(SUMMARY_VERSION) => {
                let change = told?.and_then(|left| left.change_of(text.as_bytes()));
                change.map_or(Ok(Stored { text, summary }), Err)
            }
            Some(version) => Err(format!("schema_version is {version}, but this pdreplay reads {SUMMARY_VERSION}")),
            None => Err("no summary of pdreplay: it has no schema_version".into()),
        }
    }

    /// The percentiles it gives; `None` when it gives none.
    pub fn percentiles(&self) -> Option<Percentiles> {
        let of = |key: &String| match key.strip_prefix('p')?.split_once('_')?.0.parse::<Percentile>() {
            Ok(percentile) => (Figure::percentile(Metric::Ttft, percentile).to_string() == *key).then_some(percentile),
            Err(_) => None,
        };
        let mut list = self.summary.as_object()?.keys().filter_map(of).peekable();
        list.peek()?;
        Some(list.collect())
    }

    /// Where it contradicts `anew`, the summary of the records: counts and statistics of the whole run.
    pub fn contradictions(&self, anew: &RunSummary) -> Option<String> {
        let anew = serde_json::to_value(anew).unwrap_or_default();
        let (Value::Object(stored), Value::Object(anew)) = (&self.summary, &anew) else { return None };
        let mut found = differences("", stored, anew);
        for part in ["outcomes", "lengths"] {
            if let (Some(Value::Object(stored)), Some(Value::Object(anew))) = (stored.get(part), anew.get(part)) {
                found.extend(differences(&format!("{part}."), stored, anew));
            }
        }
        let more = if found.len() > NAMED { format!(" and {} more", found.len() - NAMED) } else { String::new() };
        (!found.is_empty()).then(|| found[..found.len().min(NAMED)].join(", ") + &more)
    }
}

/// Numbers that are not the same on both sides. Percentiles may have been others.
fn differences(prefix: &str, stored: &Map<String, Value>, anew: &Map<String, Value>) -> Vec<String> {
    let is_percentile =
        |key: &str| key.strip_prefix('p').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let compared = anew.iter().filter(|(key, value)| {
        let is_known = stored.contains_key(*key) || !is_percentile(key);
        (value.is_number() || value.is_null()) && !is_asked(key) && is_known
    });
    let differs = |(key, anew): (&String, &Value)| {
        let stored = stored.get(key).unwrap_or(&Value::Null);
        (!is_same(stored, anew)).then(|| format!("{prefix}{key} {stored} instead of {anew}"))
    };
    compared.filter_map(differs).collect()
}

/// Of the token gaps, which the records do not hold, or of the objectives, which may have been others.
fn is_asked(key: &str) -> bool {
    key.split('_').any(|word| word == "itl") || key == "request_goodput"
}

fn is_same(a: &Value, b: &Value) -> bool {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => (a - b).abs() <= TOLERANCE * a.abs().max(b.abs()),
        (_, _) => a == b,
    }
}
