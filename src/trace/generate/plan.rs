//! [`Plan`]: a generated trace as columns of numbers, before block ids are written out.
//!
//! A session's own full blocks are one range of ids and its part-filled last blocks another, so any row can be written
//! without its predecessors, and a plan costs 12 bytes a turn however long the prompts are.
//! Invariant: the ranges of different sessions and the shared blocks never overlap.

use sha2::{Digest, Sha256};

use super::arrivals::draw_starts;
use super::inputs::draw_inputs;
use super::sessions::{Session, draw_sessions};
use super::spec::{GenerateError, GenerateSpec};
use super::turns::{Pace, draw_pace};
use super::{GENERATOR_VERSION, sessions};
use crate::trace::Row;

/// Sessions and turns of a generated trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub(super) spec: GenerateSpec,
    /// In id order.
    pub(super) sessions: Vec<Planned>,
    pub(super) pace: Pace,
    /// Prompt tokens.
    pub(super) input: Vec<u32>,
    /// Milliseconds since the start of the trace.
    pub(super) start_ms: Vec<u64>,
}

/// A session with its block ids.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Planned {
    pub session: Session,
    /// Id of its first own full block; the blocks before are shared.
    first_block: u64,
    /// Id of the part-filled last block of its first turn; the next turn has the next.
    first_tail: u64,
}

impl Plan {
    /// Draws everything.
    ///
    /// # Errors
    /// As [`super::generate`].
    pub fn new(spec: &GenerateSpec) -> Result<Plan, GenerateError> {
        spec.validate()?;
        let sessions = draw_sessions(spec);
        let pace = draw_pace(spec, &sessions);
        let input = draw_inputs(spec, &sessions, &pace.output);
        let lasts: Vec<u64> =
            sessions.iter().map(|s| pace.gap_ms[s.turns.clone()].iter().map(|&gap| u64::from(gap)).sum()).collect();
        let mut start_ms = Vec::with_capacity(input.len());
        for (session, start) in sessions.iter().zip(draw_starts(spec, &lasts)?) {
            let mut now = start;
            for gap in &pace.gap_ms[session.turns.clone()] {
                start_ms.push(now);
                now += u64::from(*gap);
            }
        }
        let sessions = number_blocks(spec, sessions, &input);
        Ok(Plan { spec: spec.clone(), sessions, pace, input, start_ms })
    }

    /// Requests.
    pub fn request_count(&self) -> usize {
        self.input.len()
    }

    /// Gives `each` all rows in time order, ties in session-id order, as a trace file would have them: timestamps from
    /// 0, `cached_tokens` set, the id of a part-filled last block included.
    ///
    /// # Errors
    /// The first error of `each`.
    pub fn each_row<E>(&self, mut each: impl FnMut(Row<'_>) -> Result<(), E>) -> Result<(), E> {
        let names: Vec<String> = self.sessions.iter().map(|planned| planned.session.id.to_string()).collect();
        let mut ids = Vec::new();
        for (session, turn) in self.in_time_order() {
            let planned = &self.sessions[session as usize];
            let at = turn as usize;
            let first = planned.session.turns.start;
            let cached = if at == first { 0 } else { self.input[at - 1] + self.pace.output[at - 1] };
            self.write_ids(planned, at, &mut ids);
            each(Row {
                session_id: &names[session as usize],
                turn_id: (at - first) as u32 + 1,
                line: 0,
                timestamp_ns: self.start_ms[at] * 1_000_000,
                input_length: self.input[at],
                output_length: self.pace.output[at],
                output_raised: false,
                cached_tokens: Some(cached),
                hash_ids: Some(&ids),
                request_id: None,
            })?;
        }
        Ok(())
    }

    /// Hex SHA-256 over the generator's version, the spec as JSON, and id, start, prompt and answer of every turn.
    /// Block ids follow from these. The text a file would have is not hashed: writing it takes longer than the draw.
    pub fn sha256(&self) -> String {
        let spec = serde_json::to_string(&self.spec).expect("a struct of numbers and labels is JSON");
        let mut digest = Sha256::new();
        digest.update(format!("pdreplay generator {GENERATOR_VERSION}\n{spec}\n"));
        for planned in &self.sessions {
            digest.update(planned.session.id.to_le_bytes());
            for at in planned.session.turns.clone() {
                let mut turn = [0; 16];
                turn[..8].copy_from_slice(&self.start_ms[at].to_le_bytes());
                turn[8..12].copy_from_slice(&self.input[at].to_le_bytes());
                turn[12..].copy_from_slice(&self.pace.output[at].to_le_bytes());
                digest.update(turn);
            }
        }
        digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// (Session, turn) indices by start; the session sorts before the turn, so ties keep both orders.
    fn in_time_order(&self) -> Vec<(u32, u32)> {
        let mut order: Vec<(u32, u32)> = self
            .sessions
            .iter()
            .enumerate()
            .flat_map(|(i, planned)| planned.session.turns.clone().map(move |turn| (i as u32, turn as u32)))
            .collect();
        order.sort_unstable_by_key(|&(session, turn)| (self.start_ms[turn as usize], session, turn));
        order
    }

    /// Replaces `ids` by the block ids of turn `at`.
    fn write_ids(&self, planned: &Planned, at: usize, ids: &mut Vec<u64>) {
        let (block, shared) = (self.spec.block_size, shared_blocks(&self.spec));
        let own = u64::from(self.input[at] / block) - shared;
        ids.clear();
        ids.extend(0..shared);
        ids.extend(planned.first_block..planned.first_block + own);
        if !self.input[at].is_multiple_of(block) {
            ids.push(planned.first_tail + (at - planned.session.turns.start) as u64);
        }
    }
}

/// Full blocks that begin every prompt: a first prompt is never shorter than the shared prefix.
pub(super) fn shared_blocks(spec: &GenerateSpec) -> u64 {
    u64::from(spec.shared_prefix / spec.block_size)
}

fn number_blocks(spec: &GenerateSpec, sessions: Vec<sessions::Session>, input: &[u32]) -> Vec<Planned> {
    let shared = shared_blocks(spec);
    let mut next = shared;
    sessions
        .into_iter()
        .map(|session| {
            let first_block = next;
            let longest = input[session.turns.end - 1];
            let first_tail = first_block + u64::from(longest / spec.block_size) - shared;
            next = first_tail + session.turns.len() as u64;
            Planned { session, first_block, first_tail }
        })
        .collect()
}
