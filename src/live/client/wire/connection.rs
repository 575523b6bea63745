//! [`Connection`]: a socket, what was read from it and not yet used, and the bytes that are on their way into it.
//!
//! Owns no protocol. Polled by the task that waits for the answer: nobody else is woken for it.

use std::fmt;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;

/// Bytes read at once at first. One that fills them reads more the next time.
const LEAST_READ: usize = 8 << 10;
/// Bytes read at once at most.
const MOST_READ: usize = 64 << 10;

/// See the module.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
    /// Bytes of it that were used.
    used: usize,
}

/// A request as far as no socket has taken it: head and body, which go out together.
pub(super) struct Unsent {
    head: Bytes,
    /// Let go of with its last byte: others wait for the room.
    body: Bytes,
}

impl Connection {
    pub fn new(stream: TcpStream) -> Connection {
        Connection { stream, read: Vec::new(), used: 0 }
    }

    /// Read and not yet used.
    pub fn unused(&self) -> &[u8] {
        &self.read[self.used..]
    }

    /// So many more bytes are used.
    pub fn advance(&mut self, bytes: usize) {
        self.used += bytes;
        if self.used == self.read.len() {
            self.read.clear();
            self.used = 0;
        }
    }

    /// Reads behind what was read before; how many bytes. 0: there will be no more.
    pub fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.read.capacity() == self.read.len() {
            self.read.reserve(self.read.capacity().clamp(LEAST_READ, MOST_READ));
        }
        pin!(self.stream.read_buf(&mut self.read)).poll(cx)
    }

    /// Sends as much as the socket takes; ready when that was all.
    pub fn poll_send(&mut self, cx: &mut Context<'_>, unsent: &mut Unsent) -> Poll<io::Result<()>> {
        while !unsent.is_empty() {
            let both = [IoSlice::new(&unsent.head), IoSlice::new(&unsent.body)];
            match ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, &both))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                taken => unsent.advance(taken),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Nobody has closed it, nor said anything, since it was last used. Asks the socket: the runtime answers from what it
    /// heard when it last looked, and a close or an answer that nobody asked for may have come since.
    pub fn is_silent(&self) -> bool {
        let waiting = recv(&self.stream, &mut [0], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        self.unused().is_empty() && waiting.is_err_and(|error| error == Errno::WOULDBLOCK)
    }

    /// Gives its memory back: hundreds may wait for their next request.
    pub fn shrink(&mut self) {
        self.read = Vec::new();
    }
}

/// Without the head, which holds secrets.
impl fmt::Debug for Unsent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Unsent({} + {} bytes)", self.head.len(), self.body.len())
    }
}

impl Unsent {
    pub fn new(head: Vec<u8>, body: Bytes) -> Unsent {
        Unsent { head: head.into(), body }
    }

    pub fn nothing() -> Unsent {
        Unsent { head: Bytes::new(), body: Bytes::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.head.is_empty() && self.body.is_empty()
    }

    fn advance(&mut self, taken: usize) {
        let of_head = taken.min(self.head.len());
        self.head.advance(of_head);
        self.body.advance(taken - of_head);
        if self.is_empty() {
            *self = Unsent::nothing();
        }
    }
}
