//! Why cells that are at their end are not those of this sweep: what of their scenario differs.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::base::words::plural;
use crate::cli::exit::Failure;
use crate::cli::folder::RUN;
use crate::cli::sweep::plan::Plan;
use crate::results::sweep::SweepCell;

/// Most keys named.
const NAMED: usize = 3;

/// The refusal of the folder `path`, in which the cells `others` are of other runs than those wanted; `set` are the `--set`s,
/// `goodput` says that objectives were given.
pub fn refuse(plan: &Plan, path: &Path, others: &[&SweepCell], set: &[String], goodput: bool) -> Failure {
    let first = others.first().map(|cell| cell.folder.as_str()).unwrap_or_default();
    let count = plural(others.len() as u64, "cell");
    let more = if others.len() > 1 { ", …" } else { "" };
    let changes = others.first().map(|cell| changes(plan, path, cell)).unwrap_or_default();
    let key_of = |assignment: &String| assignment.split('=').next().unwrap_or_default().trim().to_owned();
    let is_objective = |change: &Change| change.key.starts_with("slo.");
    let is_set = |change: &Change| {
        set.iter().any(|assignment| key_of(assignment) == change.key) || goodput && is_objective(change)
    };
    let by_set = !changes.is_empty() && changes.iter().all(is_set);
    let of = if by_set && goodput {
        "without this --set or --goodput"
    } else if by_set {
        "without this --set"
    } else {
        "of another sweep file, trace, target (--on) or version of pdreplay"
    };
    let failure = Failure::input(format!("{} holds {count} {of}: {first}{more}{}", path.display(), words(&changes)));
    let judges = !changes.is_empty() && changes.iter().all(is_objective);
    let judge = judges.then(|| format!("pdreplay report {} --goodput … judges them as they are", path.display()));
    judge
        .into_iter()
        .fold(failure, Failure::hint)
        .hint("--overwrite runs them again and keeps the cells that still fit")
        .hint("give another --name to keep both")
}

/// A key of a scenario with other values.
#[derive(Debug, PartialEq)]
struct Change {
    key: String,
    was: Value,
    is: Value,
}

/// Of the scenario of the run in the folder of `cell` and the one that is wanted.
fn changes(plan: &Plan, path: &Path, cell: &SweepCell) -> Vec<Change> {
    let text = fs::read(path.join(&cell.folder).join(RUN)).unwrap_or_default();
    let run: Value = serde_json::from_slice(&text).unwrap_or_default();
    let wanted = plan.scenario(cell).ok().and_then(|scenario| serde_json::to_value(scenario).ok());
    let mut found = Vec::new();
    if let (Some(was), Some(is)) = (run.get("scenario"), wanted) {
        compare("", was, &is, &mut found);
    }
    found
}

fn compare(key: &str, was: &Value, is: &Value, found: &mut Vec<Change>) {
    if let (Value::Object(was), Value::Object(is)) = (was, is) {
        let added = is.keys().filter(|name| !was.contains_key(*name));
        for name in was.keys().chain(added) {
            let inner = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
            let of = |object: &serde_json::Map<String, Value>| object.get(name).cloned().unwrap_or_default();
            compare(&inner, &of(was), &of(is), found);
        }
    } else if was != is {
        found.push(Change { key: key.into(), was: was.clone(), is: is.clone() });
    }
}

/// `; there slo.ttft_ms is unset, here 2000`.
fn words(changes: &[Change]) -> String {
    let shown = |value: &Value| match value {
        Value::Null => "unset".to_owned(),
        value => value.to_string(),
    };
    let word = |change: &Change| format!("{} is {}, here {}", change.key, shown(&change.was), shown(&change.is));
    let named: Vec<String> = changes.iter().take(NAMED).map(word).collect();
    match changes.len() {
        0 => String::new(),
        n if n > NAMED => format!("; there {}, and {} more", named.join("; "), plural((n - NAMED) as u64, "key")),
        _ => format!("; there {}", named.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_differs_is_named_by_its_key() {
        let mut found = Vec::new();
        let was = json!({ "seed": 42, "slo": {}, "engine": { "chunk_tokens": 8192, "gone": 1 } });
        let is = json!({ "seed": 42, "slo": { "ttft_ms": 2000 }, "engine": { "chunk_tokens": 4096 } });
        compare("", &was, &is, &mut found);
        let said = words(&found);
        for part in
            ["slo.ttft_ms is unset, here 2000", "engine.chunk_tokens is 8192, here 4096", "gone is 1, here unset"]
        {
            assert!(said.contains(part), "{said}");
        }
        found.push(Change { key: "seed".into(), was: json!(1), is: json!(2) });
        assert!(words(&found).ends_with(", and 1 key more"), "{}", words(&found));
        assert_eq!(words(&[]), "");
    }
}
