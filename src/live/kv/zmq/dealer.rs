//! [`DealerSocket`]: one replay request and its replies, within one time limit.
//!
//! A new connection for each request: replies of an earlier one can never be taken for those of this one.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::connection::Connection;
use super::frame::Item;
use super::greeting::Role;
use super::{Endpoint, Frames, Limits, ZmqError};

/// A request that has been sent.
pub struct DealerSocket {
    connection: Connection,
    within: Duration,
    until: Instant,
}

impl DealerSocket {
    /// Connects to a ROUTER and sends the request, whose frames go out as they are (an engine's replay socket wants
    /// an empty one first). `within` holds for all of it: connecting, sending, every reply.
    pub async fn ask(
        endpoint: &Endpoint,
        request: &[impl AsRef<[u8]>],
        limits: &Limits,
        within: Duration,
    ) -> Result<DealerSocket, ZmqError> {
        let until = Instant::now() + within;
        let asked = async {
            let stream = super::connection::within("to connect", limits.connect, endpoint.connect()).await?;
            let mut connection = Connection::shake_hands(stream, Role::Dealer, limits).await?;
            connection.queue_message(request);
            connection.flush().await?;
            Ok(DealerSocket { connection, within, until })
        };
        timeout_at(until, asked).await.unwrap_or_else(|_| Err(too_late(within)))
    }

    /// The next reply. May be dropped before it is done. Which reply is the last, the caller knows.
    pub async fn recv(&mut self) -> Result<Frames, ZmqError> {
        let DealerSocket { connection, within, until } = self;
        let reply = async {
            loop {
                if let Some(Item::Message(frames)) = connection.next().await? {
                    return Ok(frames);
                }
            }
        };
        timeout_at(*until, reply).await.unwrap_or_else(|_| Err(too_late(*within)))
    }
}

fn too_late(within: Duration) -> ZmqError {
    ZmqError::Timeout { step: "the replay", ms: within.as_millis() }
}
