//! Cells on a live target, one after another: none may find in a cache what the one before left there.

use crate::cli::exit::Failure;
use crate::cli::terminal::Terminal;
use crate::live::{flush_caches, read_secrets};
use crate::results::sweep::SweepCell;
use crate::scenario::Scenario;

/// What is done between two cells, in words.
pub fn between_cells(scenario: &Scenario) -> String {
    if scenario.live.is_embedded() {
        "cold restart: each cell starts an embedded cluster of its own".into()
    } else {
        "POST /flush_cache on every worker before each cell; one that does not take it is named on stderr, and stays warm".into()
    }
}

/// Empties the caches of servers that outlive a cell, and says so. An embedded cluster is started anew anyway.
pub fn make_cold(cell: &SweepCell, scenario: &Scenario, terminal: &Terminal) -> Result<(), Failure> {
    let number = cell.number;
    if scenario.live.is_embedded() {
        terminal.messages.note(format!("cell {number}: cold restart of the embedded cluster"));
        return Ok(());
    }
    let found = read_secrets(&scenario.live)?;
    let flushed = flush_caches(scenario, found.secrets)?;
    if flushed.workers > 0 {
        terminal.messages.note(format!("cell {number}: caches of {} workers flushed", flushed.workers));
    }
    for cause in &flushed.refused {
        terminal
            .messages
            .warning(format!("cell {number}: cache not flushed, what the cell before left is still there: {cause}"));
    }
    Ok(())
}
