//! Frames of a message: live batches, requests for a replay and the replies to them.
//!
//! Live: `topic | sequence | payload`. Request at the ROUTER: `identity | empty | first sequence`. Reply at the DEALER:
//! `empty | sequence | payload`, from vLLM 0.26 and SGLang 0.5.22 on `empty | topic | sequence | payload`, in the end with
//! sequence `u64::MAX` and an empty payload. Sequences are 8 bytes, big-endian. Nothing here decodes a payload.

use thiserror::Error;

/// Sequence that marks the end of a replay, and is never one of a batch.
const END: u64 = u64::MAX;

/// A live message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveFrames<'a> {
    /// Topic, UTF-8 by convention; may be empty.
    pub topic: &'a [u8],
    /// Number of the batch.
    pub sequence: u64,
    /// The batch.
    pub payload: &'a [u8],
}

/// A reply to a request for a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayReply<'a> {
    /// A batch: of the past, or the snapshot as of its sequence.
    Batch {
        /// The publisher's topic; `None` from releases that do not name it.
        topic: Option<&'a [u8]>,
        /// Number of the batch, or the snapshot's watermark.
        sequence: u64,
        /// The batch.
        payload: &'a [u8],
    },
    /// Nothing follows.
    End,
}

/// A request for a replay, as a ROUTER receives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayRequest<'a> {
    /// Who asks: first frame of each reply.
    pub identity: &'a [u8],
    /// First sequence asked for.
    pub from: u64,
}

/// A message of another shape than the protocol has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FrameError {
    /// Another number of frames.
    #[error("expected {expected}, found {found} frames")]
    Count {
        /// The frames there should be.
        expected: &'static str,
        /// Number of frames there are.
        found: usize,
    },
    /// The frame between identity and content is not empty.
    #[error("expected an empty frame before the content, found one of {bytes} bytes")]
    Delimiter {
        /// Its length.
        bytes: usize,
    },
    /// A sequence that is not 8 bytes.
    #[error("expected a sequence number of 8 bytes, found {bytes} bytes")]
    Sequence {
        /// Length of the frame.
        bytes: usize,
    },
    /// The number that marks the end of a replay, on a batch.
    #[error("sequence number 18446744073709551615 marks the end of a replay and came with a batch of {bytes} bytes")]
    ReservedSequence {
        /// Length of the payload.
        bytes: usize,
    },
    /// A batch without a byte.
    #[error("the batch with sequence number {sequence} is empty")]
    EmptyPayload {
        /// Its number.
        sequence: u64,
    },
}

/// Parses a live message.
///
/// # Errors
/// It has not three frames, its sequence is not 8 bytes or is the mark of a replay's end, or its payload is empty.
pub fn parse_live<F: AsRef<[u8]>>(frames: &[F]) -> Result<LiveFrames<'_>, FrameError> {
    let [topic, sequence, payload] = frames else {
        return Err(FrameError::Count { expected: "3: topic, sequence number, batch", found: frames.len() });
    };
    let sequence = parse_sequence(sequence.as_ref())?;
    let payload = batch_payload(sequence, payload.as_ref())?;
    Ok(LiveFrames { topic: topic.as_ref(), sequence, payload })
}

/// Parses a reply to a request for a replay, as a DEALER receives it: the payload is the last frame, the sequence the one
/// before it, and a topic may stand before that.
///
/// # Errors
/// It has neither three nor four frames, does not begin with an empty one, its sequence is not 8 bytes, or only one half of
/// the mark of the end is there.
pub fn parse_replay<F: AsRef<[u8]>>(frames: &[F]) -> Result<ReplayReply<'_>, FrameError> {
    let (empty, topic, sequence, payload) = match frames {
        [empty, sequence, payload] => (empty.as_ref(), None, sequence.as_ref(), payload.as_ref()),
        [empty, topic, sequence, payload] => {
            (empty.as_ref(), Some(topic.as_ref()), sequence.as_ref(), payload.as_ref())
        }
        _ => {
            let expected = "3 or 4: empty, topic of later releases, sequence number, batch";
            return Err(FrameError::Count { expected, found: frames.len() });
        }
    };
    check_delimiter(empty)?;
    let sequence = parse_sequence(sequence)?;
    if sequence == END && payload.is_empty() {
        return Ok(ReplayReply::End);
    }
    Ok(ReplayReply::Batch { topic, sequence, payload: batch_payload(sequence, payload)? })
}

/// Parses a request for a replay.
///
/// # Errors
/// It has not three frames, the second is not empty, or the third is not 8 bytes.
pub fn parse_request<F: AsRef<[u8]>>(frames: &[F]) -> Result<ReplayRequest<'_>, FrameError> {
    let [identity, empty, from] = frames else {
        return Err(FrameError::Count { expected: "3: identity, empty, first sequence number", found: frames.len() });
    };
    check_delimiter(empty.as_ref())?;
    Ok(ReplayRequest { identity: identity.as_ref(), from: parse_sequence(from.as_ref())? })
}

/// A live message.
pub fn live_frames(topic: &str, sequence: u64, payload: Vec<u8>) -> Vec<Vec<u8>> {
    vec![topic.into(), sequence.to_be_bytes().into(), payload]
}

/// A request for a replay, as a DEALER sends it.
pub fn request_frames(from: u64) -> Vec<Vec<u8>> {
    vec![Vec::new(), from.to_be_bytes().into()]
}

/// A reply as a DEALER receives it; a ROUTER puts the identity before it. Releases without a topic in replies have `None`.
pub fn replay_frames(topic: Option<&str>, sequence: u64, payload: Vec<u8>) -> Vec<Vec<u8>> {
    let mut frames = vec![Vec::new()];
    frames.extend(topic.map(Vec::from));
    frames.extend([sequence.to_be_bytes().into(), payload]);
    frames
}

/// The reply behind the last; `topic` as in [`replay_frames`], but the frame of it is empty.
pub fn end_frames(topic: Option<&str>) -> Vec<Vec<u8>> {
    replay_frames(topic.map(|_| ""), END, Vec::new())
}

fn parse_sequence(frame: &[u8]) -> Result<u64, FrameError> {
    frame.try_into().map(u64::from_be_bytes).map_err(|_| FrameError::Sequence { bytes: frame.len() })
}

fn check_delimiter(frame: &[u8]) -> Result<(), FrameError> {
    if frame.is_empty() { Ok(()) } else { Err(FrameError::Delimiter { bytes: frame.len() }) }
}

fn batch_payload(sequence: u64, payload: &[u8]) -> Result<&[u8], FrameError> {
    if sequence == END {
        return Err(FrameError::ReservedSequence { bytes: payload.len() });
    }
    if payload.is_empty() { Err(FrameError::EmptyPayload { sequence }) } else { Ok(payload) }
}
