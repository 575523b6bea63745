//! `events.jsonl` as a table: how often each kind of event happened, by detail.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use crate::cli::exit::Failure;
use crate::record::{LedgerEvent, LedgerKind};
use crate::results::render::Table;

/// Longest detail that is a group of its own; longer ones are words of a server and differ each time.
const DETAIL_CHARS: usize = 60;

/// Counts the events of a file; a half last line, as a killed run leaves it, is passed over.
pub fn count(path: &Path) -> Result<Table, Failure> {
    let at = |error: &dyn std::fmt::Display| Failure::input(format!("cannot read {}: {error}", path.display()));
    let mut counts: BTreeMap<(LedgerKind, String), (u64, u64)> = BTreeMap::new();
    for line in BufReader::new(File::open(path).map_err(|error| at(&error))?).lines() {
        let line = line.map_err(|error| at(&error))?;
        match serde_json::from_str::<LedgerEvent>(&line) {
            Ok(event) => {
                let detail = event.detail.unwrap_or_default().chars().take(DETAIL_CHARS).collect();
                let (count, _) = counts.entry((event.kind, detail)).or_insert((0, event.at_ns));
                *count += 1;
            }
            Err(error) if error.is_eof() => {}
            Err(error) => return Err(at(&error)),
        }
    }
    let row = |((kind, detail), (count, first_ns)): (&(LedgerKind, String), &(u64, u64))| {
        vec![kind.as_str().to_owned(), detail.clone(), count.to_string(), format!("{:.3}", *first_ns as f64 / 1e9)]
    };
    Ok(Table::plain(&["event", "detail", "count", "first at s"], counts.iter().map(row).collect()))
}
