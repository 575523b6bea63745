//! Cells on a live target, one after another: none may find in a cache what the one before left there.

use crate::base::words::plural;
use crate::cli::exit::Failure;
use crate::cli::live::TargetArg;
use crate::cli::terminal::Terminal;
use crate::live::{Flushed, flush_caches, read_secrets};
use crate::results::CacheReset;
use crate::results::sweep::SweepCell;
use crate::scenario::Scenario;

/// Why the cache of no worker was emptied.
const NOT_ASKED: &str = "--no-flush";

/// Refuses `--no-flush` where there is nothing to flush.
pub fn check_no_flush(target: TargetArg, scenario: &Scenario) -> Result<(), Failure> {
    let why = match target {
        TargetArg::Virtual => "the cells run in virtual time, each on a cluster of its own",
        TargetArg::Live if scenario.live.is_embedded() => {
            "each cell starts an embedded cluster of its own, which is cold"
        }
        TargetArg::Live => return Ok(()),
    };
    Err(Failure::input(format!("{NOT_ASKED} is about servers that outlive a cell, but {why}"))
        .hint("leave it out, or add --on live with --router, --prefill, --decode or --worker"))
}

/// Empties the caches of servers that outlive a cell, unless told not to `flush`, and says so. An embedded cluster is started
/// anew anyway.
pub fn make_cold(
    cell: &SweepCell,
    scenario: &Scenario,
    flush: bool,
    terminal: &Terminal,
) -> Result<Option<CacheReset>, Failure> {
    let number = cell.number;
    if scenario.live.is_embedded() {
        terminal.messages.note(format!("cell {number}: cold restart of the embedded cluster"));
        return Ok(None);
    }
    if !flush {
        return Ok(Some(CacheReset { flushed: 0, left: vec![NOT_ASKED.into()] }));
    }
    let found = read_secrets(&scenario.live)?;
    let Flushed { workers: flushed, refused: left } = flush_caches(scenario, found.secrets)?;
    if flushed > 0 {
        terminal.messages.note(format!("cell {number}: caches of {} flushed", plural(flushed.into(), "worker")));
    }
    for cause in &left {
        terminal
            .messages
            .warning(format!("cell {number}: cache not flushed, what the cell before left is still there: {cause}"));
    }
    Ok(Some(CacheReset { flushed, left }))
}
