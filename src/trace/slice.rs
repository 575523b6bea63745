//! Cuts a part out of a trace: by sessions, by time, by turns. All given conditions must hold.
//!
//! The part is a trace of its own: its clock starts at its earliest row, and what followed from turns that were cut
//! away is derived anew. Turn and line numbers stay those of the file, so a session without its start is incomplete.

use crate::base::{Dur, SessionIx};
use crate::trace::{AssembleError, Assembler, Row, Trace, TraceMeta, native_digest};

/// What to keep; `None` keeps everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SliceOptions {
    /// Sessions of these ids.
    pub sessions: Option<Vec<String>>,
    /// The first sessions to arrive.
    pub first_sessions: Option<u32>,
    /// Turns at or after this time.
    pub from: Option<Dur>,
    /// Turns before this time.
    pub until: Option<Dur>,
    /// Turns numbered at least this.
    pub first_turn: Option<u32>,
    /// Turns numbered at most this.
    pub last_turn: Option<u32>,
}

/// Why a slice cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SliceError {
    /// No session of this id.
    #[error("the trace has no session `{0}`; ids are those of `session_id` in the file")]
    UnknownSession(String),
    /// No turn meets the conditions.
    #[error("no turn meets all conditions; the trace has {turns} turns in {sessions} sessions over {span_s} s")]
    NothingLeft {
        /// Turns of the whole trace.
        turns: usize,
        /// Sessions of the whole trace.
        sessions: usize,
        /// Whole seconds of the whole trace.
        span_s: u64,
    },
    /// The rows do not make a trace.
    #[error(transparent)]
    Assemble(#[from] AssembleError),
}

/// Cuts the part out.
///
/// # Errors
/// Refuses unknown session ids and a part without turns.
pub fn slice(trace: &Trace, options: &SliceOptions) -> Result<Trace, SliceError> {
    let chosen = chosen_sessions(trace, options)?;
    let mut assembler = Assembler::new(trace.tree.block_size());
    let mut opened = vec![false; trace.sessions.len()];
    let mut kept = false;
    for (turn, session) in trace.turns.iter().map(|turn| (turn, turn.session)) {
        let in_time = options.from.is_none_or(|from| turn.timestamp >= from)
            && options.until.is_none_or(|until| turn.timestamp < until);
        let in_turns = options.first_turn.is_none_or(|first| turn.turn_id >= first)
            && options.last_turn.is_none_or(|last| turn.turn_id <= last);
        if !(chosen[session.ix()] && in_time && in_turns) {
            continue;
        }
        kept = true;
        // Nothing is cached before the first turn that is left.
        let follows = std::mem::replace(&mut opened[session.ix()], true);
        assembler.push(Row {
            session_id: &trace.sessions[session.ix()].id,
            turn_id: turn.turn_id,
            line: turn.line,
            timestamp_ns: trace.meta.origin_ns.saturating_add(turn.timestamp.ns()),
            input_length: turn.input_length,
            output_length: turn.output_length,
            output_raised: turn.output_raised,
            cached_tokens: follows.then_some(turn.cached_tokens),
            hash_ids: Some(&trace.tree.ids(turn.prompt)),
            request_id: turn.request_id.as_deref(),
        })?;
    }
    if !kept {
        let (turns, sessions) = (trace.turns.len(), trace.sessions.len());
        return Err(SliceError::NothingLeft { turns, sessions, span_s: trace.span().ns() / 1_000_000_000 });
    }
    let name = format!("{}-slice", trace.meta.name);
    let mut part = assembler.finish(TraceMeta { name, ..trace.meta.clone() })?;
    // Rows were handed over session by session, so their order says nothing about the file.
    part.notices.retain(|notice| notice.code != "rows-sorted");
    part.meta.sha256 = native_digest(&part);
    Ok(part)
}

fn chosen_sessions(trace: &Trace, options: &SliceOptions) -> Result<Vec<bool>, SliceError> {
    let first = options.first_sessions.map_or(usize::MAX, |first| first as usize);
    let mut chosen: Vec<bool> = (0..trace.sessions.len()).map(|rank| rank < first).collect();
    let Some(ids) = &options.sessions else { return Ok(chosen) };
    let mut named = vec![false; trace.sessions.len()];
    for id in ids {
        let session = trace.session(id).ok_or_else(|| SliceError::UnknownSession(id.clone()))?;
        named[session.ix()] = true;
    }
    chosen.iter_mut().zip(named).for_each(|(chosen, named)| *chosen &= named);
    Ok(chosen)
}

impl Trace {
    /// The session of an id.
    pub fn session(&self, id: &str) -> Option<SessionIx> {
        self.sessions.iter().position(|session| session.id == id).map(|rank| SessionIx(rank as u32))
    }
}
