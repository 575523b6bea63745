//! `events.jsonl` as a table: how often each kind of event happened, by detail.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use crate::base::{JsonFaultKind, from_json};
use crate::cli::exit::Failure;
use crate::cli::found::RESTORE;
use crate::record::{LedgerEvent, LedgerKind};
use crate::results::render::Table;

/// Longest detail that is a group of its own; longer ones are words of a server and differ each time.
const DETAIL_CHARS: usize = 60;

/// The events of a file, counted.
pub struct Ledger {
    /// By kind and detail.
    pub table: Table,
    /// What is wrong with the last line: it was cut off and is not counted.
    pub cut_off: Option<String>,
}

/// Counts the events of a file. A last line may be cut off, as a killed run or a full disk leaves it; no other.
pub fn count(path: &Path) -> Result<Ledger, Failure> {
    let at = |error: &dyn std::fmt::Display| Failure::input(format!("cannot read {}: {error}", path.display()));
    let mut counts: BTreeMap<(LedgerKind, String), (u64, u64)> = BTreeMap::new();
    let mut cut_off = None;
    for (ix, line) in BufReader::new(File::open(path).map_err(|error| at(&error))?).lines().enumerate() {
        let line = line.map_err(|error| at(&error))?;
        if let Some(text) = cut_off.take() {
            return Err(Failure::input(text).hint("the file was changed after the run"));
        }
        match from_json::<LedgerEvent>(line.as_bytes()) {
            Ok(event) => {
                let detail = event.detail.unwrap_or_default();
                let (count, _) = counts.entry((event.kind, short(&detail))).or_insert((0, event.at_ns));
                *count += 1;
            }
            Err(fault) if fault.kind == JsonFaultKind::Eof => {
                cut_off = Some(format!("{}: line {}: cut off after {} bytes", path.display(), ix + 1, line.len()));
            }
            Err(fault) => return Err(at(&format!("line {}: {}", ix + 1, fault.in_line())).hint(RESTORE)),
        }
    }
    let row = |((kind, detail), (count, first_ns)): (&(LedgerKind, String), &(u64, u64))| {
        vec![kind.as_str().to_owned(), detail.clone(), count.to_string(), format!("{:.3}", *first_ns as f64 / 1e9)]
    };
    let table = Table::plain(&["event", "detail", "count", "first_at_s"], counts.iter().map(row).collect())
        .titled("first_at_s", "first at, s");
    Ok(Ledger { table, cut_off })
}

/// The events of a file that [`count`] has read, up to its cut-off end; `None` when it is gone.
pub fn each(path: &Path) -> Option<impl Iterator<Item = LedgerEvent> + use<>> {
    let lines = BufReader::new(File::open(path).ok()?).lines();
    Some(lines.map_while(|line| serde_json::from_str(&line.ok()?).ok()))
}

/// What is cut off is seen to be.
fn short(detail: &str) -> String {
    let mut short: String = detail.chars().take(DETAIL_CHARS).collect();
    if short.len() < detail.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_detail_shows_that_it_was_cut() {
        assert_eq!(short("D0=1"), "D0=1");
        assert_eq!(short(&"é".repeat(61)), "é".repeat(60) + "…");
    }
}
