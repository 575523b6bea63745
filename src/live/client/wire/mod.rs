//! HTTP/1.1 of generate requests on a plain connection: a POST, its answer as it comes, connections that are kept.
//!
//! One task sends, reads and counts: a general client hands every event of an answer from the task of its connection to
//! that of the request, which costs more than all that is done with it here. TLS and proxies are such a client's
//! ([`super::http`]), and so are control calls. No redirects, no repeats, no content codings. Owns no meaning of an
//! answer, and no time-out but that of connecting.

mod answer;
mod connection;
mod framing;
mod head;
mod place;

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;

use super::dial::Dialler;
use crate::live::clock::Clock;

pub(super) use answer::Answer;
pub(super) use place::Place;

use connection::Connection;

/// How long and how many connections are kept, and how long one may take to come.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub connect: Duration,
    pub idle: Duration,
    pub most_idle: usize,
    pub clock: Clock,
}

/// Why there is no answer, or no more of it.
#[derive(Debug)]
pub(super) enum Broken {
    /// No connection in time.
    ConnectTimeout,
    /// No connection.
    NoConnection(Box<dyn Error + Send + Sync>),
    /// An answer that breaks the rules, in words.
    Unreadable(&'static str),
    /// The connection broke or ended.
    Closed {
        /// Why.
        cause: io::Error,
        /// Before the first byte of an answer.
        unanswered: bool,
    },
}

/// Posts a request, head and body as they are; beside the answer whether the connection was a kept one.
pub(super) async fn post(
    place: &Arc<Place>,
    dialler: &Dialler,
    head: Vec<u8>,
    body: Bytes,
) -> (Result<Answer, Broken>, bool) {
    let (connection, was_kept) = match place.take() {
        Some(kept) => (kept, true),
        None => match dial(place, dialler).await {
            Ok(new) => (new, false),
            Err(broken) => return (Err(broken), false),
        },
    };
    (answer::exchange(place, connection, head, body).await, was_kept)
}

async fn dial(place: &Place, dialler: &Dialler) -> Result<Connection, Broken> {
    let dialled = timeout(place.limits.connect, dialler.dial(&place.url)).await;
    dialled.map_err(|_| Broken::ConnectTimeout)?.map(Connection::new).map_err(Broken::NoConnection)
}

impl Broken {
    /// The connection ended by itself.
    fn ended(words: &'static str, unanswered: bool) -> Broken {
        Broken::Closed { cause: io::Error::new(io::ErrorKind::UnexpectedEof, words), unanswered }
    }
}
