//! [`SubSocket`]: one connection to a publisher, subscribed to one topic prefix.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::connection::{Connection, within};
use super::frame::{Item, encode_message};
use super::greeting::Role;
use super::{Endpoint, Frames, Limits, ZmqError};

/// Heartbeats left without any byte from the peer before it counts as dead.
const MISSED_BEATS: u32 = 3;

/// One connection to a PUB or XPUB. When it fails it is over: make another.
pub struct SubSocket {
    connection: Connection,
    pulse: Option<Pulse>,
}

/// Watches whether a peer lives.
struct Pulse {
    every: Duration,
    next: Instant,
    /// Beats since the last byte.
    missed: u32,
    /// Bytes received by the last beat.
    received: u64,
}

impl SubSocket {
    /// Connects, shakes hands and subscribes to all messages whose first frame begins with `topic`. When this returns the
    /// subscription has been sent; the publisher may take it up a moment later, and what it publishes until then is missed.
    pub async fn connect(endpoint: &Endpoint, topic: &[u8], limits: &Limits) -> Result<SubSocket, ZmqError> {
        let stream = within("to connect", limits.connect, endpoint.connect()).await?;
        let mut connection = Connection::shake_hands(stream, Role::Sub, limits).await?;
        connection.queue(encode_message(&[[&[1], topic].concat()]));
        within("to subscribe", limits.handshake, connection.flush()).await?;
        let pulse = limits.heartbeat.map(|every| Pulse::new(every, connection.received()));
        Ok(SubSocket { connection, pulse })
    }

    /// The next message. May be dropped before it is done; the next call goes on where this one was.
    pub async fn recv(&mut self) -> Result<Frames, ZmqError> {
        loop {
            let SubSocket { connection, pulse } = self;
            tokio::select! {
                // What has arrived counts before the silence that it ends.
                biased;
                item = connection.next() => match item? {
                    Some(Item::Message(frames)) => return Ok(frames),
                    // A command of a later version, or all is written.
                    Some(Item::Command(_)) | None => {}
                },
                pulse = beat(pulse) => pulse.check(connection)?,
            }
        }
    }
}

/// Waits for the next beat; for ever when there is none.
async fn beat(pulse: &mut Option<Pulse>) -> &mut Pulse {
    match pulse {
        Some(pulse) => {
            sleep_until(pulse.next).await;
            pulse
        }
        None => std::future::pending().await,
    }
}

impl Pulse {
    fn new(every: Duration, received: u64) -> Pulse {
        Pulse { every, next: Instant::now() + every, missed: 0, received }
    }

    /// Counts beats, not time: a reader that was away for long finds one beat due, asks, and reads what lies there.
    fn check(&mut self, connection: &mut Connection) -> Result<(), ZmqError> {
        self.next = Instant::now() + self.every;
        let heard = connection.received() != self.received;
        self.received = connection.received();
        self.missed = if heard { 0 } else { self.missed + 1 };
        if self.missed == 0 || !connection.ping() {
            self.missed = 0;
        } else if self.missed > MISSED_BEATS {
            return Err(ZmqError::Silent { ms: (self.every * self.missed).as_millis() });
        }
        Ok(())
    }
}
