//! What follows from the turn before and after: cached tokens, whether a turn extends, what a cache may keep.
//!
//! Rule: a turn extends the previous one when its ids repeat all full blocks of the previous prompt and it is at least
//! as long as that prompt and its answer. The ids of an answer are not recorded, so the next prompt has to name them.

use crate::kv::{BlockPath, BlockTree};

use super::Pending;

/// Fills `cached_tokens`, `extends_previous` and `context` of one session, given in turn order.
pub(super) fn session(tree: &BlockTree, rows: &mut [Pending]) {
    for at in 0..rows.len() {
        let (before, from) = rows.split_at_mut(at);
        let row = &mut from[0];
        let Some(previous) = before.last_mut() else {
            row.turn.cached_tokens = row.cached_given.unwrap_or(0);
            continue;
        };
        let held = previous.turn.input_length + previous.turn.output_length;
        let common = tree.common_depth(previous.turn.prompt, row.turn.prompt);
        row.turn.extends_previous = common == previous.turn.prompt.depth && row.turn.input_length >= held;
        let derived = if row.turn.extends_previous {
            previous.turn.context = context(tree, row.turn.prompt, held);
            held
        } else {
            (common * tree.block_size()).min(held)
        };
        row.turn.cached_tokens = row.cached_given.unwrap_or(derived);
    }
}

/// The part of the next prompt that the previous prompt and answer, `held` tokens, fill.
fn context(tree: &BlockTree, next_prompt: BlockPath, held: u32) -> BlockPath {
    tree.truncate(next_prompt, held / tree.block_size())
}

/// Whether a session in turn order lacks a turn. Numbers from 0 and from 1 are both complete.
pub(super) fn incomplete(rows: &[Pending]) -> bool {
    let starts_late = rows.first().is_some_and(|row| row.turn.turn_id > 1);
    starts_late || rows.windows(2).any(|pair| pair[1].turn.turn_id - pair[0].turn.turn_id > 1)
}
