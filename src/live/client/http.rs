//! [`Http`]: connections to the target, and what a broken one means.
//!
//! The one place that builds an HTTP client: no redirects, no hidden repeats, no proxy for loopback, secrets as
//! sensitive headers. The live probes use it too. Owns no endpoint and no reading of streams.

use std::borrow::Cow;
use std::cell::Cell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Body, Certificate, Client, ClientBuilder, NoProxy, Proxy, RequestBuilder, Response, Url, redirect};
use tokio::time::timeout;

use crate::base::Time;
use crate::live::client::broken::{io_kind, is_loopback, root_cause, silence_hint, tls_words};
use crate::live::client::mask::Mask;
use crate::live::client::reply::Reply;
use crate::live::client::retry::calendar;
use crate::live::clock::Clock;
use crate::live::{Secrets, Target};
use crate::protocol::{CallError, ErrorClass};

/// Hosts that never go through a proxy.
const LOOPBACK: &str = "localhost,127.0.0.0/8,::1";
/// Words of a connection that nobody took.
pub(in crate::live) const REFUSED: &str = "connection refused";
/// Most bytes read of an answer that is no stream.
const MOST_BODY: usize = 8 << 20;

tokio::task_local! {
    /// This request has begun a connection of its own: it may not be on a kept one.
    static DIALLED: Cell<bool>;
}

/// The target cannot be spoken to as it is described.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// A base URL is none.
    #[error("`{url}` is not a base URL: {cause}; write http://HOST:PORT")]
    Url {
        /// As given, without user and password.
        url: String,
        /// Why.
        cause: String,
    },
    /// A secret header cannot be sent.
    #[error("header `{name}` has a name or value that HTTP does not allow; check live.headers_file and the API key")]
    Header {
        /// Its name.
        name: String,
    },
    /// Certificates, proxy or TLS.
    #[error("cannot set up the HTTP client: {0}; check live.ca_file and live.proxy")]
    Setup(String),
}

/// What the client did on the wire so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClientCounters {
    /// Connections opened, or tried.
    pub connections: u64,
    /// Requests sent: generate legs and control calls, repeats included.
    pub requests: u64,
    /// Bytes of their bodies.
    pub bytes_sent: u64,
    /// Generate requests that were sent again.
    pub retries: u64,
    /// Answers with status 429 or 503, those that a repeat made good included.
    pub throttled: u64,
}

/// Atomic [`ClientCounters`].
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub connections: AtomicU64,
    pub requests: AtomicU64,
    pub bytes_sent: AtomicU64,
    pub retries: AtomicU64,
    pub throttled: AtomicU64,
}

impl Counts {
    pub fn add(counter: &AtomicU64, by: u64) {
        counter.fetch_add(by, Ordering::Relaxed);
    }

    pub fn now(&self) -> ClientCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ClientCounters {
            connections: read(&self.connections),
            requests: read(&self.requests),
            bytes_sent: read(&self.bytes_sent),
            retries: read(&self.retries),
            throttled: read(&self.throttled),
        }
    }
}

/// See the module. Cheap to clone; clones share connections and counters.
#[derive(Debug, Clone)]
pub struct Http {
    client: Client,
    control: Duration,
    connect: Duration,
    proxy: Option<String>,
    /// What servers say passes through it before anybody reads it.
    pub(super) mask: Arc<Mask>,
    pub(super) counts: Arc<Counts>,
}

impl Http {
    /// For a target: its limits, pool, proxy, certificates and secret headers.
    pub fn new(target: &Target) -> Result<Http, ClientError> {
        let counts = Arc::new(Counts::default());
        let setup = |error: reqwest::Error| ClientError::Setup(root_cause(&error));
        let mut builder = builder(target.limits.connect, &counts)
            .pool_max_idle_per_host(target.pool)
            .pool_idle_timeout(target.limits.pool_idle)
            .default_headers(secret_headers(target)?);
        if let Some(proxy) = &target.proxy {
            builder = builder.proxy(Proxy::all(proxy).map_err(setup)?.no_proxy(NoProxy::from_string(LOOPBACK)));
        }
        let extra = match &target.secrets.ca_pem {
            Some(pem) => Certificate::from_pem_bundle(pem).map_err(setup)?,
            None => Vec::new(),
        };
        // The system's certificates take time to load and may be missing: only for who needs them.
        builder = if needs_tls(target) { builder.tls_certs_merge(extra) } else { builder.tls_certs_only(extra) };
        let client = builder.build().map_err(setup)?;
        let (control, connect) = (target.limits.control, target.limits.connect);
        let proxy = target.proxy.clone();
        Ok(Http { client, control, connect, proxy, mask: Arc::new(Mask::of(&target.secrets)), counts })
    }

    /// For calls to whoever has a URL, each within `limit`: no proxy, no TLS of its own, no secrets, no kept connection.
    pub fn plain(limit: Duration) -> Result<Http, ClientError> {
        let counts = Arc::new(Counts::default());
        let built = builder(limit, &counts).pool_max_idle_per_host(0).tls_certs_only(Vec::new()).build();
        let client = built.map_err(|error| ClientError::Setup(root_cause(&error)))?;
        let mask = Arc::new(Mask::of(&Secrets::default()));
        Ok(Http { client, control: limit, connect: limit, proxy: None, mask, counts })
    }

    /// GET within the limit of control calls.
    pub async fn get(&self, url: &str) -> Result<Reply, CallError> {
        self.call(url, self.client.get(url), 0).await
    }

    /// GET with headers, within the limit of control calls.
    pub async fn get_with(&self, url: &str, headers: &[(&str, &str)]) -> Result<Reply, CallError> {
        let request = self.client.get(url);
        self.call(url, headers.iter().fold(request, |request, (name, value)| request.header(*name, *value)), 0).await
    }

    /// POST of JSON within the limit of control calls.
    pub async fn post(&self, url: &str, json: Vec<u8>) -> Result<Reply, CallError> {
        self.post_with(url, &[], json).await
    }

    /// POST of JSON with headers, within the limit of control calls.
    pub async fn post_with(&self, url: &str, headers: &[(&str, &str)], json: Vec<u8>) -> Result<Reply, CallError> {
        let size = json.len();
        let request = self.client.post(url).header("content-type", "application/json").body(json);
        self.call(url, headers.iter().fold(request, |request, (name, value)| request.header(*name, *value)), size).await
    }

    async fn call(&self, url: &str, request: RequestBuilder, size: usize) -> Result<Reply, CallError> {
        let clock = Clock::start(1.0);
        let exchange = async {
            let mut response =
                self.send(request, size).await.0.map_err(|error| self.broken(&error, Stage::Sending).1)?;
            let (status, headers) = (response.status().as_u16(), self.head_of(&mut response));
            let body = self.body_of(response).await.map_err(|error| self.broken(&error, Stage::Reading).1)?;
            let took = Duration::from_nanos(clock.now().since(Time::ZERO).ns());
            Ok(Reply { status, headers, body, took, came: calendar() })
        };
        match timeout(self.control, exchange).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(message)) => Err(CallError { status: None, message }),
            Err(_) => {
                let message = format!("no answer within {:?}{}", self.control, silence_hint(url));
                Err(CallError { status: None, message })
            }
        }
    }

    /// POST of a generate leg; the answer's head. The body is dropped as soon as it is written: unlike plain bytes, one
    /// that is wrapped is not kept for a redirect. Beside it whether the connection was surely a kept one.
    pub(super) async fn begin(
        &self,
        url: &Url,
        headers: &HeaderMap,
        json: Bytes,
    ) -> (Result<Response, reqwest::Error>, bool) {
        let size = json.len();
        let request = self.client.post(url.clone()).headers(headers.clone()).body(Body::wrap(Full::new(json)));
        self.send(request, size).await
    }

    async fn send(&self, request: RequestBuilder, size: usize) -> (Result<Response, reqwest::Error>, bool) {
        Counts::add(&self.counts.requests, 1);
        Counts::add(&self.counts.bytes_sent, size as u64);
        DIALLED
            .scope(Cell::new(false), async {
                let result = request.send().await;
                (result, !DIALLED.with(Cell::get))
            })
            .await
    }

    /// The head of an answer, without secrets.
    pub(super) fn head_of(&self, response: &mut Response) -> HeaderMap {
        let mut head = std::mem::take(response.headers_mut());
        self.mask.head(&mut head);
        head
    }

    /// The body of an answer that is no stream, without secrets, up to a limit; to its end where it is shorter, so that
    /// the connection is kept.
    pub(super) async fn body_of(&self, mut response: Response) -> Result<Bytes, reqwest::Error> {
        let mut body = Vec::new();
        while body.len() < MOST_BODY {
            let Some(piece) = response.chunk().await? else { break };
            body.extend_from_slice(&piece);
        }
        let masked = match self.mask.data(&body) {
            Cow::Owned(masked) => Some(masked),
            Cow::Borrowed(_) => None,
        };
        Ok(masked.unwrap_or(body).into())
    }

    /// Class and words of a transport error.
    pub(super) fn broken(&self, error: &reqwest::Error, stage: Stage) -> (ErrorClass, String) {
        let host = error.url().and_then(authority).unwrap_or_else(|| "the target".into());
        let cause = tls_words(error).unwrap_or_else(|| root_cause(error));
        let proxy = self.proxy.as_ref().filter(|_| !error.url().is_some_and(is_loopback));
        let through = proxy.map_or(String::new(), |proxy| format!(" through the proxy {proxy} (live.proxy)"));
        if error.is_connect() && error.is_timeout() {
            let hint = error.url().map_or("", |url| silence_hint(url.as_str()));
            let message = format!("no connection to {host}{through} within {:?}{hint}", self.connect);
            return (ErrorClass::ConnectTimeout, message);
        }
        if error.is_connect() || error.is_dns() {
            let message = match (io_kind(error), proxy) {
                (Some(io::ErrorKind::ConnectionRefused), Some(proxy)) => {
                    format!("the proxy {proxy} takes no connection; start it, or correct live.proxy")
                }
                (Some(io::ErrorKind::ConnectionRefused), None) => format!("{REFUSED} by {host}"),
                _ => format!("cannot connect to {host}{through}: {cause}"),
            };
            return (ErrorClass::WorkerLost, message);
        }
        if cause.contains("invalid HTTP") && error.url().is_some_and(|url| url.scheme() == "http") {
            let message = format!("the answer of {host} is no HTTP ({cause}); if it speaks TLS, write https://");
            return (ErrorClass::BadAnswer, message);
        }
        let (class, words) = match stage {
            Stage::Sending => (ErrorClass::ConnectionClosed, "connection closed before the answer"),
            Stage::Reading => (ErrorClass::ConnectionClosed, "connection closed in the middle of the answer"),
        };
        (class, format!("{words} of {host} ({cause})"))
    }
}

/// What all clients have in common.
fn builder(connect: Duration, counts: &Arc<Counts>) -> ClientBuilder {
    // Whoever was first has installed the same or another provider: both serve.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder()
        .no_proxy()
        .redirect(redirect::Policy::none())
        .retry(reqwest::retry::never())
        .http1_only()
        .tcp_nodelay(true)
        // The port is the URL's.
        .resolve_to_addrs("localhost", &loopbacks().map(|ip| SocketAddr::new(ip, 0)))
        .connect_timeout(connect)
        .connector_layer(CountConnections { counts: counts.clone() })
}

/// Where an exchange broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Before the head of the answer.
    Sending,
    /// After it.
    Reading,
}

/// The connection surely carried the request and closed without a byte of an answer.
pub(super) fn closed_unanswered(error: &reqwest::Error) -> bool {
    let closed = [io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe, io::ErrorKind::UnexpectedEof];
    let incomplete = root_cause(error).contains("connection closed before message completed");
    !error.is_connect() && (incomplete || io_kind(error).is_some_and(|kind| closed.contains(&kind)))
}

/// Parses a base URL.
pub(super) fn base_url(url: &str) -> Result<Url, ClientError> {
    let wrong = |cause: String| ClientError::Url { url: without_user(url), cause };
    let parsed = Url::parse(url).map_err(|error| wrong(error.to_string()))?;
    match parsed.scheme() {
        "http" | "https" if parsed.has_host() => Ok(parsed),
        other => Err(wrong(format!("scheme `{other}`"))),
    }
}

/// A URL without user and password, for messages.
fn without_user(url: &str) -> String {
    match (url.find("://"), url.rfind('@')) {
        (Some(scheme), Some(at)) if at > scheme => format!("{}{}", &url[..scheme + 3], &url[at + 1..]),
        _ => url.to_owned(),
    }
}

pub(super) fn authority(url: &Url) -> Option<String> {
    let host = url.host_str()?;
    Some(url.port_or_known_default().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")))
}

/// Addresses of `localhost`, which is either, whatever the system's tables say. The second's error is the one told, and a
/// machine without IPv6 has none of interest.
pub(in crate::live) fn loopbacks() -> [IpAddr; 2] {
    [Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()]
}

fn needs_tls(target: &Target) -> bool {
    let urls = target.addresses.workers().map(|(_, endpoint)| endpoint.url.as_str());
    urls.chain(target.addresses.router.as_deref()).chain(target.proxy.as_deref()).any(|url| url.starts_with("https:"))
}

fn secret_headers(target: &Target) -> Result<HeaderMap, ClientError> {
    let mut headers = HeaderMap::new();
    for (name, value) in &target.secrets.headers {
        let wrong = || ClientError::Header { name: name.clone() };
        let mut value = HeaderValue::from_str(value).map_err(|_| wrong())?;
        value.set_sensitive(true);
        headers.append(HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?, value);
    }
    Ok(headers)
}

/// Counts connections, and tells the request that begins one.
#[derive(Clone)]
struct CountConnections {
    counts: Arc<Counts>,
}

impl<S> tower_layer::Layer<S> for CountConnections {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        Counted { inner, counts: self.counts.clone() }
    }
}

#[derive(Clone)]
struct Counted<S> {
    inner: S,
    counts: Arc<Counts>,
}

impl<S: tower_service::Service<R>, R> tower_service::Service<R> for Counted<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> S::Future {
        Counts::add(&self.counts.connections, 1);
        // Outside a request there is nobody to tell.
        let _ = DIALLED.try_with(|dialled| dialled.set(true));
        self.inner.call(request)
    }
}
