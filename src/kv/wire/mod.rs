//! The wire of KV events: bytes of a publisher to [`EventBatch`](super::EventBatch)es and back.
//!
//! One tolerant [`Decoder`] reads what every release of xLLM, vLLM and SGLang sends; an [`Encoder`] writes any release's
//! form. The envelope (frames of a message, replies of a replay) is `frames`. Nothing here keeps a cache or a sequence.
//! Invariants: no input panics; nothing is allocated for a count that the rest of the message could not hold.
//!
//! Formats: docs/kv-events.md, section Wire.

mod decode;
mod dialect;
mod encode;
mod error;
mod event;
mod fields;
mod form;
mod frames;
mod groups;
mod read;
mod spare;
#[cfg(test)]
mod tests;
mod tokens;

pub use decode::{DEFAULT_MAX_MESSAGE_BYTES, DecodeOptions, Decoder};
pub use encode::Encoder;
pub use error::{DecodeError, DecodeProblem};
pub use form::{EncodeForm, HashForm, Shape};
pub use frames::{
    FrameError, LiveFrames, ReplayReply, ReplayRequest, end_frames, live_frames, parse_live, parse_replay,
    parse_request, replay_frames, request_frames,
};
