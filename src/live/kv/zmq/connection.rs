//! [`Connection`]: one connection after its handshake: messages in, messages out, PING answered.
//!
//! Reads while it writes, so that two peers who both write never wait for each other. Everything here may be dropped
//! half-way and asked again: what arrived and what is to be written stays in the connection.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::endpoint::Stream;
use super::frame::{Command, Inbox, Item, encode_command, encode_message};
use super::greeting::{self, Generation, Role};
use super::{Limits, ZmqError};

/// Answers to heartbeats that wait to be written. A peer that sends more without reading loses the rest.
const MAX_WAITING: usize = 64;
/// Of a PING: time to live (2 bytes), then up to 16 bytes that the PONG repeats (RFC 37).
const PING_CONTEXT: std::ops::Range<usize> = 2..18;

/// A connection that is ready for messages.
pub(super) struct Connection {
    read: Box<dyn AsyncRead + Send + Unpin>,
    write: Box<dyn AsyncWrite + Send + Unpin>,
    inbox: Inbox,
    out: VecDeque<Bytes>,
    answers_ping: bool,
    received: u64,
}

impl Connection {
    /// Greets, agrees on NULL, and makes sure that the peer is of a kind that `role` speaks with.
    pub async fn shake_hands(stream: Stream, role: Role, limits: &Limits) -> Result<Connection, ZmqError> {
        let Stream { read, write } = stream;
        let inbox = Inbox::new(limits);
        let mut connection = Connection { read, write, inbox, out: VecDeque::new(), answers_ping: false, received: 0 };
        within("the handshake", limits.handshake, connection.greet(role)).await?;
        Ok(connection)
    }

    async fn greet(&mut self, role: Role) -> Result<(), ZmqError> {
        self.write.write_all(&greeting::OPENING).await?;
        let opening = self.raw(greeting::OPENING.len()).await?;
        match greeting::judge_opening(&opening)? {
            Generation::Two => {
                self.write.write_all(&role.hello()).await?;
                role.judge_byte(self.raw(1).await?[0])?;
                // The peer's identity: a message of one frame.
                self.item().await?;
            }
            Generation::Three => {
                self.write.write_all(&greeting::rest()).await?;
                let rest = self.raw(greeting::REST_BYTES).await?;
                self.answers_ping = greeting::judge_rest(opening[10], &rest)?;
                match self.exchange_ready(role).await? {
                    Item::Command(command) => role.judge_ready(&command)?,
                    Item::Message(_) => return Err(ZmqError::Malformed("a message before READY")),
                }
            }
        }
        Ok(())
    }

    /// libzmq closes without a word when it reads a READY of a kind that it does not speak with, often before its own is out.
    async fn exchange_ready(&mut self, role: Role) -> Result<Item, ZmqError> {
        let exchange = async {
            self.write.write_all(&encode_command("READY", &role.ready())).await?;
            self.item().await
        };
        exchange.await.map_err(|error| match error {
            ZmqError::Closed | ZmqError::Broken(_) => ZmqError::HungUp { own: role.name() },
            other => other,
        })
    }

    async fn raw(&mut self, bytes: usize) -> Result<bytes::BytesMut, ZmqError> {
        loop {
            if let Some(raw) = self.inbox.raw(bytes) {
                return Ok(raw);
            }
            self.fill().await?;
        }
    }

    async fn item(&mut self) -> Result<Item, ZmqError> {
        loop {
            if let Some(item) = self.inbox.item()? {
                return Ok(item);
            }
            self.fill().await?;
        }
    }

    async fn fill(&mut self) -> Result<(), ZmqError> {
        match self.inbox.fill(&mut self.read).await? {
            0 => Err(ZmqError::Closed),
            bytes => {
                self.received += bytes as u64;
                Ok(())
            }
        }
    }

    /// Appends to what is to be written.
    pub fn queue(&mut self, bytes: Bytes) {
        self.out.push_back(bytes);
    }

    /// Asks for a sign of life. Whether the peer is of a kind that gives one.
    pub fn ping(&mut self) -> bool {
        if self.answers_ping && self.out.len() < MAX_WAITING {
            // Time to live 0: the peer need not watch us.
            self.queue(encode_command("PING", &[0, 0]));
        }
        self.answers_ping
    }

    /// Whether everything queued is written.
    pub fn is_idle(&self) -> bool {
        self.out.is_empty()
    }

    /// Bytes that the peer has sent so far.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Writes all that is queued, without reading.
    pub async fn flush(&mut self) -> Result<(), ZmqError> {
        while !self.is_idle() {
            write_front(&mut self.write, &mut self.out).await?;
        }
        Ok(())
    }

    /// What the peer says next; `None`: nothing yet, but everything queued is written. Heartbeats are seen to here.
    pub async fn next(&mut self) -> Result<Option<Item>, ZmqError> {
        loop {
            match self.inbox.item()? {
                Some(Item::Command(command)) => {
                    if let Some(command) = self.beat(command)? {
                        return Ok(Some(Item::Command(command)));
                    }
                }
                Some(message) => return Ok(Some(message)),
                None => {
                    if self.read_or_write().await? {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Whether the last queued byte was written.
    async fn read_or_write(&mut self) -> Result<bool, ZmqError> {
        tokio::select! {
            written = write_front(&mut self.write, &mut self.out), if !self.out.is_empty() => {
                written?;
                Ok(self.is_idle())
            }
            read = self.inbox.fill(&mut self.read) => match read? {
                0 => Err(ZmqError::Closed),
                bytes => {
                    self.received += bytes as u64;
                    Ok(false)
                }
            },
        }
    }

    /// Sees to the commands that every socket treats alike; gives back the others.
    fn beat(&mut self, command: Command) -> Result<Option<Command>, ZmqError> {
        match command.name.as_slice() {
            b"PING" => {
                let context = command.data.get(PING_CONTEXT.start..).unwrap_or_default();
                if self.out.len() < MAX_WAITING {
                    self.queue(encode_command("PONG", &context[..context.len().min(PING_CONTEXT.len())]));
                }
                Ok(None)
            }
            b"PONG" => Ok(None),
            b"ERROR" => Err(greeting::refused(&command.data)),
            _ => Ok(Some(command)),
        }
    }

    /// Queues a message.
    pub fn queue_message(&mut self, frames: &[impl AsRef<[u8]>]) {
        self.queue(encode_message(frames));
    }
}

async fn write_front(write: &mut (impl AsyncWrite + Unpin), out: &mut VecDeque<Bytes>) -> Result<(), ZmqError> {
    let Some(front) = out.front_mut() else { return Ok(()) };
    if write.write_buf(front).await? == 0 {
        return Err(ZmqError::Closed);
    }
    if !front.has_remaining() {
        out.pop_front();
    }
    Ok(())
}

/// Holds a step to its limit.
pub(super) async fn within<T>(
    step: &'static str,
    limit: Duration,
    work: impl Future<Output = Result<T, ZmqError>>,
) -> Result<T, ZmqError> {
    match timeout(limit, work).await {
        Ok(done) => done,
        Err(_) => Err(ZmqError::Timeout { step, ms: limit.as_millis() }),
    }
}
