//! [`Answer`]: a request on its connection, from the first byte sent to the last one read.
//!
//! Invariants: a connection is kept for the next request only when the request has left whole, the body has come to its
//! end, nothing came behind it, and the other end keeps it too; dropped before that, it is closed.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use reqwest::header::HeaderMap;

use super::Broken;
use super::connection::{Connection, Unsent};
use super::framing::Framing;
use super::head::{self, Head};
use super::place::Place;
use crate::live::client::fault::UNANSWERED;

/// See the module.
#[derive(Debug)]
pub(in crate::live::client) struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Headers.
    pub headers: HeaderMap,
    framing: Framing,
    keeps: bool,
    exchange: Exchange,
}

/// A request under way.
#[derive(Debug)]
struct Exchange {
    place: Arc<Place>,
    /// `None`: it has gone back.
    connection: Option<Connection>,
    unsent: Unsent,
    /// The other end takes no more, and may still have something to say.
    refused: Option<io::Error>,
}

/// Sends a request; the head of its answer, which may come before the request has left.
pub(super) async fn exchange(
    place: &Arc<Place>,
    connection: Connection,
    request: Vec<u8>,
    body: Bytes,
) -> Result<Answer, Broken> {
    let unsent = Unsent::new(request, body);
    let mut exchange = Exchange { place: Arc::clone(place), connection: Some(connection), unsent, refused: None };
    let Head { status, headers, framing, keeps } = poll_fn(|cx| exchange.poll_head(cx)).await?;
    let mut answer = Answer { status, headers, framing, keeps, exchange };
    answer.go_back();
    Ok(answer)
}

impl Answer {
    /// Its body has come to its end.
    pub fn is_over(&self) -> bool {
        self.exchange.connection.is_none()
    }

    /// The request has left whole: what is told before that answers another one, or none.
    pub fn request_has_left(&self) -> bool {
        self.exchange.unsent.is_empty() && self.exchange.refused.is_none()
    }

    /// Hands what comes next of the body to `each`, in pieces; whether more is to come.
    pub async fn read(&mut self, mut each: impl FnMut(&[u8])) -> Result<bool, Broken> {
        poll_fn(|cx| self.poll_pieces(cx, &mut each)).await
    }

    fn poll_pieces(&mut self, cx: &mut Context<'_>, each: &mut impl FnMut(&[u8])) -> Poll<Result<bool, Broken>> {
        self.exchange.send(cx);
        let Some(connection) = &mut self.exchange.connection else { return Poll::Ready(Ok(false)) };
        if connection.unused().is_empty() {
            let is_end = match ready!(connection.poll_read(cx)) {
                Ok(read) => read == 0,
                Err(cause) => return Poll::Ready(Err(Broken::Closed { cause, unanswered: false })),
            };
            if is_end {
                self.exchange.connection = None;
                return Poll::Ready(self.framing.end().map(|()| false).map_err(|words| Broken::ended(words, false)));
            }
        }
        match self.framing.take(connection.unused(), each) {
            Ok(taken) => connection.advance(taken),
            Err(words) => return Poll::Ready(Err(Broken::Unreadable(words))),
        }
        self.go_back();
        Poll::Ready(Ok(!self.is_over()))
    }

    /// After the end of the body the connection is free, or of no more use.
    fn go_back(&mut self) {
        if !self.framing.is_over() {
            return;
        }
        let Exchange { place, connection, unsent, refused } = &mut self.exchange;
        let connection = connection.take();
        if self.keeps && unsent.is_empty() && refused.is_none() {
            connection.into_iter().for_each(|connection| place.keep(connection));
        }
    }
}

impl Exchange {
    /// Sends what can be sent now.
    fn send(&mut self, cx: &mut Context<'_>) {
        let Some(connection) = &mut self.connection else { return };
        if let Poll::Ready(Err(error)) = connection.poll_send(cx, &mut self.unsent) {
            // Many servers say why they read no further; if this one does not, its end is heard.
            (self.refused, self.unsent) = (Some(error), Unsent::nothing());
        }
    }

    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<Head, Broken>> {
        self.send(cx);
        let Exchange { connection, refused, .. } = self;
        let connection = connection.as_mut().expect("it is given back behind the head");
        loop {
            match (ready!(connection.poll_read(cx)), refused.take()) {
                (Ok(read), before) if read > 0 => *refused = before,
                (Ok(_), None) => return Poll::Ready(Err(Broken::ended(UNANSWERED, connection.unused().is_empty()))),
                (Ok(_), Some(cause)) | (Err(_), Some(cause)) | (Err(cause), None) => {
                    return Poll::Ready(Err(Broken::Closed { cause, unanswered: connection.unused().is_empty() }));
                }
            }
            match head::parse(connection.unused()) {
                Ok(Some((head, length))) => {
                    connection.advance(length);
                    return Poll::Ready(Ok(head));
                }
                Ok(None) => {}
                Err(words) => return Poll::Ready(Err(Broken::Unreadable(words))),
            }
        }
    }
}
