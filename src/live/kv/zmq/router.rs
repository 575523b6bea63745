//! [`RouterSocket`]: a bound ROUTER socket that answers each request with the replies a callback gives.

use std::collections::VecDeque;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::connection::Connection;
use super::endpoint::Stream;
use super::frame::Item;
use super::greeting::Role;
use super::limits::OF_LISTENERS;
use super::listen::Listening;
use super::{Endpoint, Frames, ZmqError};

/// Requests of one peer that wait while an earlier one is answered; a peer that sends more is let go.
const MAX_WAITING: usize = 16;

/// Replies to one request, made one by one as the peer takes them, so that a long history never lies in memory whole.
pub type Replies = Box<dyn Iterator<Item = Frames> + Send>;

/// A bound ROUTER socket. Its tasks end with it.
pub struct RouterSocket(Listening);

impl RouterSocket {
    /// Binds, and from now on answers what peers ask, each peer's requests in order. `answer` gets a request with the
    /// peer's identity before it, as a ROUTER's user does; replies have none, they go to the peer that asked.
    pub async fn bind(
        endpoint: &Endpoint,
        answer: impl Fn(Frames) -> Replies + Send + Sync + 'static,
    ) -> Result<RouterSocket, ZmqError> {
        RouterSocket::bind_slow(endpoint, move |request| ready(answer(request))).await
    }

    /// The same where finding an answer takes time; the peer's further requests wait for it.
    pub async fn bind_slow<F>(
        endpoint: &Endpoint,
        answer: impl Fn(Frames) -> F + Send + Sync + 'static,
    ) -> Result<RouterSocket, ZmqError>
    where
        F: Future<Output = Replies> + Send + 'static,
    {
        let answer = Arc::new(answer);
        let peers = AtomicU32::new(0);
        let serve = move |stream| {
            let answer = Arc::clone(&answer);
            let peer = peers.fetch_add(1, Ordering::Relaxed);
            async move {
                let answer = |request| answer(with_identity(peer, request));
                // A peer that breaks the protocol, or leaves, is gone; there is nobody to tell.
                let _ = serve(stream, answer).await;
            }
        };
        Listening::start(endpoint, serve).await.map(RouterSocket)
    }

    /// Where it listens, with the port that the system gave in place of 0.
    pub fn endpoint(&self) -> &Endpoint {
        self.0.endpoint()
    }

    /// Closes the port and every connection before it returns.
    pub async fn close(self) {
        self.0.close().await;
    }
}

/// Of five bytes beginning with a 0, as libzmq makes them for peers that name none.
fn with_identity(peer: u32, mut request: Frames) -> Frames {
    let mut identity = vec![0];
    identity.extend(peer.to_be_bytes());
    request.insert(0, identity);
    request
}

async fn serve<F>(stream: Stream, answer: impl Fn(Frames) -> F) -> Result<(), ZmqError>
where
    F: Future<Output = Replies>,
{
    let mut connection = Connection::shake_hands(stream, Role::Router, &OF_LISTENERS).await?;
    let mut requests = VecDeque::new();
    let mut replies: Option<Replies> = None;
    while requests.len() <= MAX_WAITING {
        if connection.is_idle() {
            if replies.is_none()
                && let Some(request) = requests.pop_front()
            {
                replies = Some(answer(request).await);
            }
            match replies.as_mut().map(Iterator::next) {
                Some(Some(reply)) => connection.queue_message(&reply),
                Some(None) => {
                    replies = None;
                    continue;
                }
                None => {}
            }
        }
        if let Some(Item::Message(request)) = connection.next().await? {
            requests.push_back(request);
        }
    }
    Ok(())
}
