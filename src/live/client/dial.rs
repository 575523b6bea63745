//! [`Dialler`]: plain connections to a host, whatever its name leads to.
//!
//! Names, several addresses and which of them answers first are hyper's connector's. Owns what `localhost` is.

use std::error::Error;
use std::future::{poll_fn, ready};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::vec;

use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use reqwest::Url;
use tokio::net::TcpStream;
use tower_service::Service;

use super::counts::Counts;

/// Addresses of `localhost`, which is either, whatever the system's tables say. The second's error is the one told, and a
/// machine without IPv6 has none of interest.
pub(in crate::live) fn loopbacks() -> [IpAddr; 2] {
    [Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()]
}

/// See the module. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Dialler {
    connector: HttpConnector<Names>,
    counts: Arc<Counts>,
}

impl Dialler {
    pub fn new(counts: &Arc<Counts>) -> Dialler {
        let mut connector = HttpConnector::new_with_resolver(Names(GaiResolver::new()));
        connector.set_nodelay(true);
        Dialler { connector, counts: Arc::clone(counts) }
    }

    /// A connection to the host and port of a URL, counted.
    pub async fn dial(&self, url: &Url) -> Result<TcpStream, Box<dyn Error + Send + Sync>> {
        Counts::add(&self.counts.connections, 1);
        let mut connector = self.connector.clone();
        let uri = url.as_str().parse()?;
        poll_fn(|cx| connector.poll_ready(cx)).await?;
        Ok(connector.call(uri).await?.into_inner())
    }
}

/// Addresses of names.
#[derive(Debug, Clone)]
struct Names(GaiResolver);

impl Service<Name> for Names {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        if name.as_str() == "localhost" {
            // The port is the URL's.
            let both: Vec<SocketAddr> = loopbacks().map(|ip| SocketAddr::new(ip, 0)).into();
            return Box::pin(ready(Ok(both.into_iter())));
        }
        let found = self.0.call(name);
        Box::pin(async { Ok(found.await?.collect::<Vec<_>>().into_iter()) })
    }
}
