//! Frames of ZMTP 2.0 to 3.1: written whole, read piece by piece under limits.
//!
//! A frame is flags, a length of 1 or 8 bytes, a body (RFC 23, "Framing"). [`Inbox`] keeps what arrived so far and
//! allocates for a frame only when its announced length is within the limits, so no peer can make it grow beyond one
//! message and one chunk.

use std::io;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::{Frames, Limits, ZmqError};

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;
/// Read at once where frames are small; all that is ever read ahead of the message under way.
const CHUNK: usize = 64 << 10;
/// Of a command: a READY with its metadata, a SUBSCRIBE with its topic.
const MAX_COMMAND_BYTES: usize = 16 << 10;

/// A message as it goes over the wire.
pub(super) fn encode_message(frames: &[impl AsRef<[u8]>]) -> Bytes {
    let bytes: usize = frames.iter().map(|frame| frame.as_ref().len() + 9).sum();
    let mut out = BytesMut::with_capacity(bytes);
    for (ix, frame) in frames.iter().enumerate() {
        let more = if ix + 1 < frames.len() { MORE } else { 0 };
        put_frame(&mut out, more, &[frame.as_ref()]);
    }
    out.freeze()
}

/// A command as it goes over the wire.
pub(super) fn encode_command(name: &str, data: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(data.len() + name.len() + 10);
    put_frame(&mut out, COMMAND, &[&[name.len() as u8], name.as_bytes(), data]);
    out.freeze()
}

fn put_frame(out: &mut BytesMut, flags: u8, body: &[&[u8]]) {
    let bytes: usize = body.iter().map(|part| part.len()).sum();
    match u8::try_from(bytes) {
        Ok(short) => out.put_slice(&[flags, short]),
        Err(_) => {
            out.put_u8(flags | LONG);
            out.put_u64(bytes as u64);
        }
    }
    body.iter().for_each(|part| out.put_slice(part));
}

/// What came whole.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// All frames of a message.
    Message(Frames),
    /// A command.
    Command(Command),
}

/// A command of the protocol itself.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Command {
    pub name: Vec<u8>,
    pub data: Vec<u8>,
}

impl Command {
    fn parse(mut body: Vec<u8>) -> Result<Command, ZmqError> {
        let end = body.first().map_or(0, |len| 1 + usize::from(*len));
        if end < 2 || body.len() < end {
            return Err(ZmqError::Malformed("a command without its name"));
        }
        let data = body.split_off(end);
        body.remove(0);
        Ok(Command { name: body, data })
    }
}

/// Bytes from a peer, and the message they make so far.
pub(super) struct Inbox {
    chunk: BytesMut,
    open: Option<OpenFrame>,
    frames: Frames,
    max_message_bytes: usize,
    max_frames: usize,
}

/// A frame whose body is under way.
struct OpenFrame {
    flags: u8,
    bytes: usize,
    body: Vec<u8>,
}

impl OpenFrame {
    fn missing(&self) -> usize {
        self.bytes - self.body.len()
    }
}

impl Inbox {
    pub fn new(limits: &Limits) -> Inbox {
        Inbox {
            chunk: BytesMut::new(),
            open: None,
            frames: Frames::new(),
            max_message_bytes: limits.max_message_bytes,
            max_frames: limits.max_frames,
        }
    }

    /// One read from the socket; 0: the peer closed. Loses nothing when dropped before it is done.
    pub async fn fill(&mut self, from: &mut (impl AsyncRead + Unpin)) -> io::Result<usize> {
        match &mut self.open {
            // A large body goes where it belongs, without a copy.
            Some(open) if self.chunk.is_empty() && open.missing() >= CHUNK => {
                from.take(open.missing() as u64).read_buf(&mut open.body).await
            }
            _ => {
                self.chunk.reserve(CHUNK.saturating_sub(self.chunk.len()));
                from.read_buf(&mut self.chunk).await
            }
        }
    }

    /// The next `bytes` as they are, when they are here: for what comes before the first frame.
    pub fn raw(&mut self, bytes: usize) -> Option<BytesMut> {
        (self.chunk.len() >= bytes).then(|| self.chunk.split_to(bytes))
    }

    /// The next message or command, when it is here whole.
    pub fn item(&mut self) -> Result<Option<Item>, ZmqError> {
        loop {
            if self.open.is_none() {
                self.open = self.header()?;
            }
            let Some(open) = &mut self.open else { return Ok(None) };
            let here = open.missing().min(self.chunk.len());
            open.body.extend_from_slice(&self.chunk[..here]);
            self.chunk.advance(here);
            if open.missing() > 0 {
                return Ok(None);
            }
            if let Some(item) = self.close()? {
                return Ok(Some(item));
            }
        }
    }

    /// Flags and length of the next frame, judged before its body gets room.
    fn header(&mut self) -> Result<Option<OpenFrame>, ZmqError> {
        let Some(&flags) = self.chunk.first() else { return Ok(None) };
        if flags & !(MORE | LONG | COMMAND) != 0 || flags & (MORE | COMMAND) == MORE | COMMAND {
            return Err(ZmqError::Malformed("a frame with flags that mean nothing"));
        }
        let long = flags & LONG != 0;
        let header = if long { 9 } else { 2 };
        if self.chunk.len() < header {
            return Ok(None);
        }
        let announced = if long { (&self.chunk[1..9]).get_u64() } else { u64::from(self.chunk[1]) };
        let bytes = if flags & COMMAND != 0 { command_bytes(announced)? } else { self.message_frame_bytes(announced)? };
        self.chunk.advance(header);
        Ok(Some(OpenFrame { flags, bytes, body: Vec::with_capacity(bytes) }))
    }

    /// Counts the frame towards its message.
    fn message_frame_bytes(&self, announced: u64) -> Result<usize, ZmqError> {
        if self.frames.len() == self.max_frames {
            return Err(ZmqError::TooManyFrames { limit: self.max_frames });
        }
        let before: usize = self.frames.iter().map(Vec::len).sum();
        let bytes = announced.saturating_add(before as u64);
        if bytes > self.max_message_bytes as u64 {
            return Err(ZmqError::TooLarge { bytes, limit: self.max_message_bytes });
        }
        Ok(announced as usize)
    }

    fn close(&mut self) -> Result<Option<Item>, ZmqError> {
        let Some(OpenFrame { flags, body, .. }) = self.open.take() else { return Ok(None) };
        if flags & COMMAND != 0 {
            return Ok(Some(Item::Command(Command::parse(body)?)));
        }
        self.frames.push(body);
        Ok((flags & MORE == 0).then(|| Item::Message(std::mem::take(&mut self.frames))))
    }
}

fn command_bytes(announced: u64) -> Result<usize, ZmqError> {
    if announced > MAX_COMMAND_BYTES as u64 {
        return Err(ZmqError::TooLarge { bytes: announced, limit: MAX_COMMAND_BYTES });
    }
    Ok(announced as usize)
}
