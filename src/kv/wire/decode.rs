//! [`Decoder`]: a payload to an [`EventBatch`], whatever the release that sent it.
//!
//! Owns the envelope of a batch, its rank, and what was learned of attention groups. A batch is decoded whole or not at
//! all. Sequence numbers are the frames'.

use super::error::{DecodeError, DecodeProblem};
use super::event::{Context, read_event};
use super::groups::Groups;
use super::read::{Head, Reader};
use super::spare::Spare;
use crate::kv::{Dialect, EventBatch};

/// Longest payload a receiver takes when nothing else is configured, bytes.
pub const DEFAULT_MAX_MESSAGE_BYTES: usize = 8 << 20;

/// What a stream is expected to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeOptions {
    /// Whose rules hold: which types and media are errors, and which are left out.
    pub dialect: Dialect,
    /// Tokens in a block of the stream; a vLLM block of fewer is a partial one.
    pub block_size: u32,
    /// Rank of the stream; a batch of another is refused, one without a rank is taken. `None` takes all.
    pub dp_rank: Option<u32>,
    /// Longest payload taken, bytes.
    pub max_message_bytes: usize,
}

/// Decodes the payloads of one stream, in order.
#[derive(Debug, Clone)]
pub struct Decoder {
    options: DecodeOptions,
    groups: Groups,
    spare: Spare,
}

/// Parts of a batch, by place or key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Timestamp,
    Events,
    Rank,
}

const PLACES: [Part; 3] = [Part::Timestamp, Part::Events, Part::Rank];

/// Fewest bytes of an event that is kept: an array of `BlockStored` and no hash.
const LEAST_EVENT_BYTES: usize = 14;

impl DecodeOptions {
    /// Any rank, and payloads up to [`DEFAULT_MAX_MESSAGE_BYTES`].
    pub fn new(dialect: Dialect, block_size: u32) -> DecodeOptions {
        DecodeOptions { dialect, block_size, dp_rank: None, max_message_bytes: DEFAULT_MAX_MESSAGE_BYTES }
    }
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Part::Timestamp => "ts",
            Part::Events => "events",
            Part::Rank => "data_parallel_rank",
        }
    }

    fn of_key(key: &[u8]) -> Option<Part> {
        match key {
            b"ts" => Some(Part::Timestamp),
            b"events" => Some(Part::Events),
            b"data_parallel_rank" | b"attn_dp_rank" | b"dp_rank" => Some(Part::Rank),
            _ => None,
        }
    }
}

impl Decoder {
    /// For a stream at its start.
    pub fn new(options: DecodeOptions) -> Decoder {
        Decoder { options, groups: Groups::default(), spare: Spare::default() }
    }

    /// Forgets what the stream taught: its publisher may be another process now.
    pub fn reset(&mut self) {
        self.groups = Groups::default();
    }

    /// Takes back a batch that is of no use any more: the next ones are made in its memory.
    pub fn reuse(&mut self, batch: EventBatch) {
        self.spare.take_back(batch);
    }

    /// Decodes the batch in `payload`.
    ///
    /// # Errors
    /// The payload is too long, no batch of events, goes on behind the batch, is of another rank, or names a type or medium
    /// that the dialect does not have. The stream is then not to be trusted until it has been recovered.
    pub fn decode(&mut self, payload: &[u8]) -> Result<EventBatch, DecodeError> {
        let mut reader = Reader::new(payload);
        self.batch(&mut reader, payload.len()).map_err(|problem| reader.error(problem))
    }

    fn batch(&mut self, reader: &mut Reader<'_>, bytes: usize) -> Result<EventBatch, DecodeProblem> {
        let limit = self.options.max_message_bytes;
        if bytes > limit {
            return Err(DecodeProblem::TooLarge { bytes, limit });
        }
        // Groups are learned by rank, and a batch says its rank last. The rank of a stream is known but in tools.
        let rank = self.options.dp_rank.or_else(|| find_rank(reader.clone()));
        let mut batch = EventBatch { timestamp: f64::NAN, events: Vec::new(), dp_rank: None, ignored: 0 };
        let mut missing = vec![Part::Timestamp, Part::Events];
        visit(reader, |part, reader| {
            missing.retain(|missing| *missing != part);
            self.part(part, reader, rank, &mut batch)
        })?;
        if let Some(part) = missing.first() {
            reader.field = part.name();
            return Err(DecodeProblem::Missing);
        }
        reader.field = "batch";
        reader.end()?;
        Ok(batch)
    }

    fn part(
        &mut self,
        part: Part,
        reader: &mut Reader<'_>,
        rank: Option<u32>,
        batch: &mut EventBatch,
    ) -> Result<(), DecodeProblem> {
        match part {
            Part::Timestamp => batch.timestamp = reader.seconds()?,
            Part::Events => self.events(reader, rank, batch)?,
            Part::Rank => {
                if reader.nil() {
                    return Ok(());
                }
                let found = reader.small()?;
                if let Some(expected) = self.options.dp_rank.filter(|expected| *expected != found) {
                    return Err(DecodeProblem::OtherRank { expected, found });
                }
                batch.dp_rank = Some(found);
            }
        }
        Ok(())
    }

    fn events(
        &mut self,
        reader: &mut Reader<'_>,
        rank: Option<u32>,
        batch: &mut EventBatch,
    ) -> Result<(), DecodeProblem> {
        let context = Context { dialect: self.options.dialect, block_size: self.options.block_size, rank };
        let count = reader.array()?;
        batch.events = self.spare.events(count.min(reader.left() / LEAST_EVENT_BYTES));
        for event in 0..count {
            reader.event = Some(event as u32);
            read_event(reader, context, &mut self.groups, &mut self.spare, batch)?;
        }
        reader.event = None;
        Ok(())
    }
}

/// Walks over the parts of a batch: an array, or the map that one unreleased vLLM had. More elements and unknown keys are
/// passed over.
fn visit<'a>(
    reader: &mut Reader<'a>,
    mut each: impl FnMut(Part, &mut Reader<'a>) -> Result<(), DecodeProblem>,
) -> Result<(), DecodeProblem> {
    let head = reader.head()?;
    let (Head::Array(count) | Head::Map(count)) = head;
    for place in 0..count {
        reader.field = "batch";
        let part = match head {
            Head::Array(_) => PLACES.get(place).copied(),
            Head::Map(_) => reader.key()?.and_then(Part::of_key),
        };
        match part {
            Some(part) => {
                reader.field = part.name();
                each(part, reader)?;
            }
            None => reader.skip()?,
        }
    }
    Ok(())
}

/// The rank a batch says it is of. What is wrong with the batch is found, and said, by the reading of it.
fn find_rank(mut reader: Reader<'_>) -> Option<u32> {
    let mut rank = None;
    let walked = visit(&mut reader, |part, reader| match part {
        Part::Rank if !reader.nil() => {
            rank = Some(reader.small()?);
            Ok(())
        }
        Part::Rank => Ok(()),
        Part::Timestamp | Part::Events => reader.skip(),
    });
    walked.ok().and(rank)
}
