//! What can be wrong with a batch, where, and what was expected there.

use std::fmt;

use thiserror::Error;

/// Why a batch was refused. A refused batch says nothing: no event of it may be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeError {
    /// Event of the batch, from 0; `None` outside the events.
    pub event: Option<u32>,
    /// Field of the event, or of the batch.
    pub field: &'static str,
    /// Bytes of the payload before the value at fault; what only the whole event shows stands at its end.
    pub offset: usize,
    /// What is wrong.
    pub problem: DecodeProblem,
}

/// What is wrong with a value.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DecodeProblem {
    /// The message is longer than the receiver takes.
    #[error("{bytes} bytes, over the limit of {limit} (`max_message_bytes`)")]
    TooLarge {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The payload ends inside a value.
    #[error("the message ends here, in the middle of a value")]
    CutShort,
    /// A value of another type.
    #[error("expected {expected}, found {found}")]
    Unexpected {
        /// What may stand here.
        expected: &'static str,
        /// What stands here.
        found: &'static str,
    },
    /// A number outside its range.
    #[error("expected {expected}, found {value}")]
    OutOfRange {
        /// The range.
        expected: &'static str,
        /// The number.
        value: i128,
    },
    /// A block named by text, which no engine defines a folding for.
    #[error("a block is named by text; only integers and byte strings name blocks")]
    TextHash,
    /// A count of elements that the rest of the message cannot hold.
    #[error("{count} elements are announced, but only {left} bytes are left")]
    TooMany {
        /// Announced.
        count: usize,
        /// Bytes left.
        left: usize,
    },
    /// Containers inside containers.
    #[error("nested deeper than {limit} levels")]
    TooDeep {
        /// The limit.
        limit: u32,
    },
    /// A field without which the rest means nothing.
    #[error("missing")]
    Missing,
    /// An event of a type the dialect does not have.
    #[error(
        "unknown event type {tag:?}; xLLM has BlockStored, BlockRemoved and AllBlocksCleared: is `dialect` the publisher's?"
    )]
    UnknownType {
        /// Type as sent, cut to a printable length.
        tag: String,
    },
    /// A medium the dialect does not have.
    #[error("unknown medium {medium:?}; xLLM has gpu and cpu: is `dialect` the publisher's?")]
    UnknownMedium {
        /// Medium as sent, cut to a printable length.
        medium: String,
    },
    /// A batch of another data-parallel rank than the stream's.
    #[error("the batch is of rank {found}, the stream of rank {expected}: check the endpoint's port")]
    OtherRank {
        /// Rank of the stream.
        expected: u32,
        /// Rank in the batch.
        found: u32,
    },
    /// Pairs of tokens of which one does not begin with the token the last one ended with.
    #[error("pairs of tokens do not chain")]
    BrokenPairs,
    /// More attention groups than are remembered.
    #[error("more than {limit} attention groups")]
    TooManyGroups {
        /// The limit.
        limit: usize,
    },
    /// Bytes behind the batch.
    #[error("bytes behind the batch: {bytes}")]
    Trailing {
        /// How many.
        bytes: usize,
    },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.event {
            Some(event) => write!(f, "events[{event}].{}", self.field)?,
            None => write!(f, "{}", self.field)?,
        }
        write!(f, " (byte {}): {}", self.offset, self.problem)
    }
}

impl std::error::Error for DecodeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.problem)
    }
}

/// Longest piece of a foreign text in an error.
const SHOWN_CHARS: usize = 64;

/// A text from the wire, fit to be shown.
pub(super) fn shown(text: &[u8]) -> String {
    String::from_utf8_lossy(text).chars().take(SHOWN_CHARS).collect()
}
