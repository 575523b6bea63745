//! The trace in memory: sessions in arrival order, turns grouped by session, block ids once each in a tree.

use std::ops::Range;

use crate::base::{Dur, RequestIx, SessionIx};
use crate::kv::{BlockPath, BlockTree};

/// A whole trace. `turns` is grouped by session, in turn order; a [`RequestIx`] indexes it.
#[derive(Debug)]
pub struct Trace {
    /// Where it came from and how it was read.
    pub meta: TraceMeta,
    /// Sessions by first timestamp, ties in file order: the index is the arrival rank, from 0.
    pub sessions: Vec<SessionTrace>,
    /// All turns, session after session.
    pub turns: Vec<TurnTrace>,
    /// Blocks of all prompts.
    pub tree: BlockTree,
    /// What the reader decided or found odd, in plain words.
    pub notices: Vec<Notice>,
}

/// Provenance and reading decisions; goes into `run.json`.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceMeta {
    /// Short name for headlines: the file stem, or the generator preset.
    pub name: String,
    /// Path as given, or `generated:<preset>`.
    pub source: String,
    /// Hex SHA-256 of the file's bytes as stored; of a generated trace, over generator version, knobs and every turn's
    /// id, start and lengths (its native text would take longer to write than to generate).
    pub sha256: String,
    /// `native`, `mooncake` or `generated`.
    pub format: String,
    /// Unit of the file's timestamps: `s`, `ms`, `us` or `ns`.
    pub timestamp_unit: String,
    /// Tokens per block.
    pub block_size: u32,
    /// How `block_size` was found: `header`, `flag`, `inferred`, `format` or `default` (no ids at all).
    pub block_size_source: String,
    /// Timestamp of the earliest row in the file's own clock, in nanoseconds; subtracted from all rows.
    pub origin_ns: u64,
}

/// One session: an agent's trajectory.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionTrace {
    /// Id as in the file (a JSON number is its decimal text).
    pub id: String,
    /// Its turns in [`Trace::turns`].
    pub turns: Range<u32>,
    /// The file lacks a turn: the first number is above 1, or the numbers have a hole.
    pub incomplete: bool,
}

/// One turn: one recorded request.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnTrace {
    /// Its session.
    pub session: SessionIx,
    /// Turn number of the file.
    pub turn_id: u32,
    /// Physical line in the file, from 1; 0 for a generated turn.
    pub line: u32,
    /// Request id of the file, if it has one. Not unique: never a key.
    pub request_id: Option<Box<str>>,
    /// Recorded start since the earliest row of the trace.
    pub timestamp: Dur,
    /// Prompt tokens, the whole context.
    pub input_length: u32,
    /// Answer tokens, at least 1.
    pub output_length: u32,
    /// Tokens of this prompt already present after the previous turn, given or derived.
    pub cached_tokens: u32,
    /// Full blocks of the prompt; a part-filled last block never matches and is left out.
    pub prompt: BlockPath,
    /// Full blocks of prompt and answer, as far as the next turn's ids name them; at least `prompt`.
    pub context: BlockPath,
    /// The prompt begins with the previous turn's prompt and answer: it can be appended to a session that holds them.
    /// False for the first turn present.
    pub extends_previous: bool,
    /// The file asked for 0 answer tokens; raised to 1.
    pub output_raised: bool,
}

/// Something the reader decided, or found odd but not wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Stable kebab-case label, such as `rows-sorted`.
    pub code: &'static str,
    /// One sentence for a person.
    pub text: String,
}

impl Trace {
    /// The turns of a session.
    pub fn turns_of(&self, session: SessionIx) -> &[TurnTrace] {
        let range = &self.sessions[session.ix()].turns;
        &self.turns[range.start as usize..range.end as usize]
    }

    /// A planned request.
    pub fn turn(&self, request: RequestIx) -> &TurnTrace {
        &self.turns[request.ix()]
    }

    /// Name of a planned request, unique in the trace: `<session>/<turn>`, with `#<line>` where the trace repeats a turn.
    pub fn request_id(&self, request: RequestIx) -> String {
        let planned = self.turn(request);
        let session = &self.sessions[planned.session.ix()];
        let same = |other: u32| session.turns.contains(&other) && self.turns[other as usize].turn_id == planned.turn_id;
        let repeated = request.0.checked_sub(1).is_some_and(same) || same(request.0 + 1);
        let suffix = if repeated { format!("#{}", planned.line) } else { String::new() };
        format!("{}/{}{suffix}", session.id, planned.turn_id)
    }

    /// Last timestamp of the trace: its span, since the first is zero.
    pub fn span(&self) -> Dur {
        self.turns.iter().map(|turn| turn.timestamp).max().unwrap_or(Dur::ZERO)
    }
}
