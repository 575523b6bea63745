//! [`Listening`]: a bound socket whose peers are each served by a task, all of which end with it.

use std::time::Duration;

use tokio::task::{JoinHandle, JoinSet};

use super::endpoint::{Listener, Stream};
use super::{Endpoint, ZmqError};

/// Connections served at once; further ones are closed at once.
const MAX_PEERS: usize = 1024;
/// Pause when the system cannot accept, most often for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A bound socket and its peers' tasks. Dropping it ends them soon; [`close`](Listening::close) waits for that.
pub(super) struct Listening {
    endpoint: Endpoint,
    accepting: JoinHandle<()>,
}

impl Listening {
    /// Binds, and runs what `serve` makes of each connection.
    pub async fn start<S, F>(endpoint: &Endpoint, serve: S) -> Result<Listening, ZmqError>
    where
        S: Fn(Stream) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = endpoint.bind().await?;
        let endpoint = listener.endpoint()?;
        Ok(Listening { endpoint, accepting: tokio::spawn(accept(listener, serve)) })
    }

    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Closes the port and every connection before it returns.
    pub async fn close(mut self) {
        self.accepting.abort();
        // It was cancelled, as asked.
        let _ = (&mut self.accepting).await;
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept<S, F>(listener: Listener, serve: S)
where
    S: Fn(Stream) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    let mut peers = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(stream) if peers.len() < MAX_PEERS => drop(peers.spawn(serve(stream))),
                Ok(_) => {}
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
            Some(_) = peers.join_next() => {}
        }
    }
}
