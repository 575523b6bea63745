//! [`ZmqError`]: why a connection could not be made, or ended.

use std::io;

use super::Endpoint;
use crate::live::kv::io_words::io_words;

/// Why a connection could not be made, or ended. After one of these nothing more comes from the connection.
#[derive(Debug, thiserror::Error)]
pub enum ZmqError {
    /// The address cannot be used so.
    #[error("endpoint `{endpoint}`: {problem}")]
    Endpoint {
        /// As it was written.
        endpoint: String,
        /// What is wrong, and what to write.
        problem: &'static str,
    },
    /// Nothing listens there, the name is not known, or the port is taken.
    #[error("{endpoint}: {}", io_words(source))]
    Unreachable {
        /// Where to.
        endpoint: String,
        /// What the system said.
        source: io::Error,
    },
    /// A step took longer than its limit.
    #[error("{step} took longer than {ms} ms")]
    Timeout {
        /// Which.
        step: &'static str,
        /// The limit.
        ms: u128,
    },
    /// The peer closed the connection.
    #[error("the peer closed the connection")]
    Closed,
    /// The connection broke.
    #[error("the connection broke: {}", io_words(.0))]
    Broken(#[from] io::Error),
    /// No answer to heartbeats.
    #[error("the peer answered no heartbeat for {ms} ms")]
    Silent {
        /// Without a byte.
        ms: u128,
    },
    /// Not what a peer may send.
    #[error("not ZMTP: {0}")]
    Malformed(&'static str),
    /// A version that is not spoken.
    #[error("the peer speaks ZMTP revision {revision}, needed is 2.0 or later")]
    Version {
        /// Of its greeting.
        revision: u8,
    },
    /// The peer wants another security mechanism.
    #[error("the peer wants the security mechanism {found}, only NULL is spoken: switch it off at the peer")]
    Mechanism {
        /// What it wants.
        found: String,
    },
    /// The port is of another kind of socket.
    #[error("a {found} socket is at the other end of this {own} socket: {}", compare(own))]
    SocketType {
        /// Ours.
        own: &'static str,
        /// The peer's.
        found: String,
    },
    /// The peer greeted, heard what we are, and closed.
    #[error("the peer closed on hearing of a {own} socket, so it is none of the kind: {}", compare(own))]
    HungUp {
        /// Ours.
        own: &'static str,
    },
    /// The peer refused with an ERROR command.
    #[error("the peer refused: {0}")]
    Refused(String),
    /// A message over the limit; none of it was kept.
    #[error("a message of {bytes} bytes or more, allowed are {limit}")]
    TooLarge {
        /// Its frames as far as they were announced.
        bytes: u64,
        /// The limit.
        limit: usize,
    },
    /// A message of more frames than any of ours has.
    #[error("a message of more than {limit} frames")]
    TooManyFrames {
        /// The limit.
        limit: usize,
    },
}

/// What to look at when the socket of a port is of another kind: the keys that say where a subscription goes.
fn compare(own: &str) -> &'static str {
    match own {
        "SUB" => "compare the port with the publisher's (`endpoint`, or `event_port_offset`)",
        "DEALER" => "compare the port with the publisher's (`replay_endpoint`, or `replay_port_offset`)",
        _ => "check the port",
    }
}

impl ZmqError {
    /// In words, with the address that was connected to.
    pub(super) fn at(&self, endpoint: &Endpoint) -> String {
        match self {
            // These have it.
            ZmqError::Endpoint { .. } | ZmqError::Unreachable { .. } => self.to_string(),
            _ => format!("{endpoint}: {self}"),
        }
    }
}
