//! Block ids for rows that have none: unique per session, so sessions never share.
//!
//! A turn extends the previous one when it is at least as long as that prompt and its answer; then it repeats their
//! blocks. Invariant: a minted id differs from every id of the file and from every other minted one.

use std::ops::Range;

use crate::kv::{BlockPath, BlockTree};
use crate::trace::Notice;

use super::{AssembleError, Pending, Pile, counted};

/// Most blocks minted for a trace; they take 8 bytes each.
pub(super) const MOST_MINTED: u64 = 1 << 28;

/// Gives every row without ids a prompt; `order` holds the sessions, their rows in turn order.
pub(super) fn missing_ids(
    tree: &mut BlockTree,
    rows: &mut [Pending],
    order: &[Pile],
    used: Option<(u64, u64)>,
) -> Result<Option<Notice>, AssembleError> {
    let without = rows.iter().filter(|row| !row.has_ids);
    let (count, blocks) = without
        .fold((0u64, 0u64), |(count, blocks), row| (count + 1, blocks + u64::from(held(row) / tree.block_size())));
    if count == 0 {
        return Ok(None);
    }
    let first = free_range(used, blocks).ok_or(AssembleError::NoFreeIds)?;
    let mut fresh = first..first.saturating_add(MOST_MINTED);
    for pile in order {
        session(tree, rows, &pile.rows, &mut fresh)?;
    }
    let total = rows.len();
    let text = format!(
        "{count} of {} no `hash_ids`: unique blocks were minted per session, so sessions share nothing; \
         a turn repeats the previous one when it is at least as long as that prompt and its answer",
        counted(total as u64, "row has", "rows have")
    );
    Ok(Some(Notice { code: "ids-minted", text }))
}

/// First of `blocks` ids in a row that the file does not use.
fn free_range(used: Option<(u64, u64)>, blocks: u64) -> Option<u64> {
    let Some((low, high)) = used else { return Some(0) };
    let above = high.checked_add(1).filter(|first| first.checked_add(blocks).is_some());
    above.or_else(|| low.checked_sub(blocks))
}

fn held(row: &Pending) -> u32 {
    row.turn.input_length + row.turn.output_length
}

fn session(
    tree: &mut BlockTree,
    rows: &mut [Pending],
    order: &[u32],
    fresh: &mut Range<u64>,
) -> Result<(), AssembleError> {
    let block_size = tree.block_size();
    // Blocks of the turn before, its answer included when they were minted.
    let mut chain: Vec<u64> = Vec::new();
    let mut chain_is_of_previous = false;
    let mut previous: Option<(u32, BlockPath)> = None;
    for &at in order {
        let row = &mut rows[at as usize];
        if row.has_ids {
            chain_is_of_previous = false;
        } else {
            let extended = previous.filter(|(held, _)| row.turn.input_length >= *held);
            match extended {
                Some((_, path)) if !chain_is_of_previous => chain = tree.ids(path),
                Some(_) => {}
                None => chain.clear(),
            }
            let blocks = (held(row) / block_size) as usize;
            let missing = blocks.saturating_sub(chain.len()) as u64;
            if missing > fresh.end - fresh.start {
                return Err(AssembleError::TooManyBlocks);
            }
            chain.extend(fresh.by_ref().take(missing as usize));
            let hint = previous.map_or(BlockPath::EMPTY, |(_, path)| path);
            row.turn.prompt = tree.insert(&chain[..(row.turn.input_length / block_size) as usize], hint);
            row.turn.context = row.turn.prompt;
            chain_is_of_previous = true;
        }
        previous = Some((held(row), row.turn.prompt));
    }
    Ok(())
}
