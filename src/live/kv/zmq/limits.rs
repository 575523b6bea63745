//! [`Limits`]: what a peer may cost, and how long it may take.

use std::time::Duration;

/// What one connection may cost, held before anything is allocated, and how long its steps may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all frames of a message together.
    pub max_message_bytes: usize,
    /// Frames of a message.
    pub max_frames: usize,
    /// To look up the name and connect.
    pub connect: Duration,
    /// From connected to ready: greeting, READY, subscription.
    pub handshake: Duration,
    /// A peer that has been silent for this long is asked for a sign of life; after three of them it counts as dead.
    /// Only peers that greet as ZMTP 3.1 or later are asked. `None`: none is.
    pub heartbeat: Option<Duration>,
}

impl Default for Limits {
    /// 8 MiB a message (live batch or snapshot reply), 16 frames (a live message has 3, a reply at most 4), 2 s to connect
    /// and to shake hands, a heartbeat every 5 s.
    fn default() -> Limits {
        Limits {
            max_message_bytes: 8 << 20,
            max_frames: 16,
            connect: Duration::from_secs(2),
            handshake: Duration::from_secs(2),
            heartbeat: Some(Duration::from_secs(5)),
        }
    }
}

/// What a peer of a listening socket may send: subscriptions and replay requests are small.
pub(super) const OF_LISTENERS: Limits = Limits {
    max_message_bytes: 64 << 10,
    max_frames: 16,
    connect: Duration::from_secs(10),
    handshake: Duration::from_secs(10),
    heartbeat: None,
};
