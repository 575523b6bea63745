//! [`Assembler`]: takes rows in any order and lays them out as a [`Trace`].
//!
//! Owns order (sessions by first timestamp, turns by turn number, ties in file order), the rebased clock and the block
//! tree. What follows from neighbouring turns is in `derive`, ids for rows that have none in `mint`, remarks in
//! `notices`. Only full blocks enter the tree: a part-filled last block never matches anything.
//! Invariant: memory grows with turns and distinct blocks, never with the length of the prompts.

mod derive;
mod mint;
mod notices;

use std::collections::HashMap;

use crate::base::{Dur, SessionIx};
use crate::kv::{BlockPath, BlockTree};
use mint::MOST_MINTED;

use crate::trace::{Row, SessionTrace, Trace, TraceMeta, TurnTrace};

/// Longest prompt and longest answer, tokens: far above any model, and within what a run can time and keep.
pub const MOST_TOKENS: u32 = 100_000_000;

/// Why rows do not make a trace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AssembleError {
    /// A length of 0 tokens.
    #[error("line {line}, `{field}`: 0 tokens; a request has at least 1, remove the row")]
    ZeroLength {
        /// Line of the row, 0 when generated.
        line: u32,
        /// Field at fault.
        field: &'static str,
    },
    /// A length above [`MOST_TOKENS`].
    #[error("line {line}, `{field}`: above the limit of {MOST_TOKENS} tokens; correct the length")]
    TooLong {
        /// Line of the row.
        line: u32,
        /// Field at fault.
        field: &'static str,
    },
    /// More or fewer ids than the prompt has blocks.
    #[error(
        "line {line}, `hash_ids`: {} for {input_length} tokens in blocks of {block_size}; {accepted} would fit",
        counted(*ids as u64, "id", "ids")
    )]
    IdCount {
        /// Line of the row.
        line: u32,
        /// Ids given.
        ids: usize,
        /// Prompt tokens.
        input_length: u32,
        /// Tokens per block.
        block_size: u32,
        /// Counts that fit, such as `2 or 3`.
        accepted: String,
    },
    /// More turns than an index can name.
    #[error("more than 4294967295 rows; slice the trace")]
    TooManyRows,
    /// Some rows have no ids, and the others leave no range of 64-bit ids free for them.
    #[error(
        "rows without `hash_ids` need ids of their own, but the others use both ends of the 64-bit range; give every row its ids"
    )]
    NoFreeIds,
    /// Rows without ids that would need more blocks than fit into memory.
    #[error(
        "rows without `hash_ids` need more than {MOST_MINTED} blocks of their own; give them ids, a larger block size, or \
         slice the trace"
    )]
    TooManyBlocks,
    /// No row at all.
    #[error("the trace has no rows; give it at least one request")]
    Empty,
}

/// Builds a [`Trace`] row by row.
#[derive(Debug)]
pub struct Assembler {
    tree: BlockTree,
    rows: Vec<Pending>,
    sessions: Vec<Pile>,
    // Looked up only.
    by_id: HashMap<Box<str>, u32>,
    id_range: Option<(u64, u64)>,
}

/// A row in file order; its timestamp is still the file's own.
#[derive(Debug)]
struct Pending {
    turn: TurnTrace,
    cached_given: Option<u32>,
    has_ids: bool,
}

/// A session while rows still come.
#[derive(Debug)]
struct Pile {
    id: Box<str>,
    last: BlockPath,
    rows: Vec<u32>,
}

/// `1 row`, `2 rows`: a count with what it counts.
pub(crate) fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Hash id counts accepted for a prompt: full blocks only, or the part-filled last one too.
pub(crate) fn accepted_ids(input_length: u32, block_size: u32) -> (u32, u32) {
    (input_length / block_size, input_length.div_ceil(block_size))
}

/// The counts in words: `2 or 3`, or `2` for a prompt that fills its blocks.
pub(crate) fn accepted_text(input_length: u32, block_size: u32) -> String {
    let (floor, ceil) = accepted_ids(input_length, block_size);
    if floor == ceil { floor.to_string() } else { format!("{floor} or {ceil}") }
}

impl Assembler {
    /// For blocks of `block_size` tokens, at least 1.
    pub fn new(block_size: u32) -> Assembler {
        Assembler {
            tree: BlockTree::new(block_size),
            rows: Vec::new(),
            sessions: Vec::new(),
            by_id: HashMap::new(),
            id_range: None,
        }
    }

    /// Takes one row; rows may come in any order, sessions interleaved.
    ///
    /// # Errors
    /// Refuses lengths of 0, lengths above [`MOST_TOKENS`], and hash id counts that do not fit the prompt.
    pub fn push(&mut self, row: Row<'_>) -> Result<(), AssembleError> {
        check(&row, self.tree.block_size())?;
        let index = u32::try_from(self.rows.len()).map_err(|_| AssembleError::TooManyRows)?;
        let session = self.session(row.session_id);
        let pile = &mut self.sessions[session as usize];
        pile.rows.push(index);
        let mut prompt = BlockPath::EMPTY;
        if let Some(ids) = row.hash_ids {
            let full = &ids[..(row.input_length / self.tree.block_size()) as usize];
            prompt = self.tree.insert(full, pile.last);
            // The hint already matched: only what is new can widen the range.
            for &id in &full[self.tree.common_depth(prompt, pile.last) as usize..] {
                let (low, high) = self.id_range.unwrap_or((id, id));
                self.id_range = Some((low.min(id), high.max(id)));
            }
            pile.last = prompt;
        }
        let turn = TurnTrace {
            session: SessionIx(session),
            turn_id: row.turn_id,
            line: row.line,
            request_id: row.request_id.map(Box::from),
            timestamp: Dur(row.timestamp_ns),
            input_length: row.input_length,
            output_length: row.output_length,
            cached_tokens: 0,
            prompt,
            context: prompt,
            extends_previous: false,
            output_raised: row.output_raised,
        };
        self.rows.push(Pending { turn, cached_given: row.cached_tokens, has_ids: row.hash_ids.is_some() });
        Ok(())
    }

    /// Puts the rows in order. `meta.origin_ns` and `meta.block_size` are set here; the rest is kept.
    ///
    /// # Errors
    /// Refuses a trace without rows, and rows without ids when no 64-bit ids or no memory are left for them.
    pub fn finish(mut self, meta: TraceMeta) -> Result<Trace, AssembleError> {
        let origin = self.rows.iter().map(|row| row.turn.timestamp).min().ok_or(AssembleError::Empty)?;
        let mut notices = notices::of_rows(&self.rows, &self.sessions);
        let order = self.order();
        notices.extend(mint::missing_ids(&mut self.tree, &mut self.rows, &order, self.id_range)?);
        let mut sessions = Vec::with_capacity(order.len());
        let mut turns = Vec::with_capacity(self.rows.len());
        let mut slots: Vec<Option<Pending>> = self.rows.into_iter().map(Some).collect();
        for (rank, pile) in order.into_iter().enumerate() {
            let start = turns.len() as u32;
            let mut rows: Vec<Pending> = pile.rows.iter().filter_map(|&row| slots[row as usize].take()).collect();
            derive::session(&self.tree, &mut rows);
            let incomplete = derive::incomplete(&rows);
            turns.extend(rows.into_iter().map(|row| TurnTrace {
                session: SessionIx(rank as u32),
                timestamp: Dur(row.turn.timestamp.ns() - origin.ns()),
                ..row.turn
            }));
            sessions.push(SessionTrace { id: pile.id.into(), turns: start..turns.len() as u32, incomplete });
        }
        let meta = TraceMeta { origin_ns: origin.ns(), block_size: self.tree.block_size(), ..meta };
        let mut trace = Trace { meta, sessions, turns, tree: self.tree, notices };
        let more = notices::of_trace(&trace);
        trace.notices.extend(more);
        Ok(trace)
    }

    fn session(&mut self, id: &str) -> u32 {
        if let Some(&known) = self.by_id.get(id) {
            return known;
        }
        let new = self.sessions.len() as u32;
        self.sessions.push(Pile { id: id.into(), last: BlockPath::EMPTY, rows: Vec::new() });
        self.by_id.insert(id.into(), new);
        new
    }

    /// Takes the sessions out in arrival order, their rows in turn order.
    fn order(&mut self) -> Vec<Pile> {
        let mut piles = std::mem::take(&mut self.sessions);
        for pile in &mut piles {
            pile.rows.sort_by_key(|&row| {
                let turn = &self.rows[row as usize].turn;
                (turn.turn_id, turn.timestamp, row)
            });
        }
        piles.sort_by_key(|pile| (self.rows[pile.rows[0] as usize].turn.timestamp, pile.rows[0]));
        piles
    }
}

fn check(row: &Row<'_>, block_size: u32) -> Result<(), AssembleError> {
    let line = row.line;
    for (field, tokens) in [("input_length", row.input_length), ("output_length", row.output_length)] {
        if tokens == 0 {
            return Err(AssembleError::ZeroLength { line, field });
        }
        if tokens > MOST_TOKENS {
            return Err(AssembleError::TooLong { line, field });
        }
    }
    let (floor, ceil) = accepted_ids(row.input_length, block_size);
    match row.hash_ids {
        Some(ids) if ids.len() != floor as usize && ids.len() != ceil as usize => Err(AssembleError::IdCount {
            line,
            ids: ids.len(),
            input_length: row.input_length,
            block_size,
            accepted: accepted_text(row.input_length, block_size),
        }),
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
