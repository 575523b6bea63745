//! [`Http`]: requests to the target, whichever way they go.
//!
//! Generate requests to a plain address go over connections of our own ([`super::wire`]); TLS, proxies and control calls are
//! the general client's, which is built here and nowhere else: no redirects, no hidden repeats, no proxy for loopback,
//! secrets as sensitive headers. The live probes use it too. Owns no endpoint and no reading of streams.

use std::borrow::Cow;
use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Body, Certificate, Client, ClientBuilder, NoProxy, Proxy, RequestBuilder, Url, redirect};
use tokio::time::timeout;

use crate::base::Time;
use crate::live::client::broken::{root_cause, silence_hint};
use crate::live::client::counts::Counts;
use crate::live::client::dial::{Dialler, loopbacks};
use crate::live::client::fault::Stage;
use crate::live::client::mask::Mask;
use crate::live::client::reply::Reply;
use crate::live::client::response::{Response, Trouble};
use crate::live::client::retry::calendar;
use crate::live::client::site::Site;
use crate::live::client::wire::{self, Limits};
use crate::live::clock::Clock;
use crate::live::{Secrets, Target};
use crate::protocol::{CallError, ErrorClass};

/// Hosts that never go through a proxy.
const LOOPBACK: &str = "localhost,127.0.0.0/8,::1";
/// Type of all bodies that are sent.
const JSON: &str = "application/json";
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

/// See the module. Cheap to clone; clones share connections and counters.
#[derive(Debug, Clone)]
pub struct Http {
    client: Client,
    dialler: Dialler,
    control: Duration,
    limits: Limits,
    /// Headers of every request.
    always: HeaderMap,
    proxy: Option<String>,
    /// What servers say passes through it before anybody reads it.
    pub(super) mask: Arc<Mask>,
    pub(super) counts: Arc<Counts>,
}

impl Http {
    /// For a target: its limits, pool, proxy, certificates and secret headers.
    pub fn new(target: &Target) -> Result<Http, ClientError> {
        let counts = Arc::new(Counts::default());
        let always = secret_headers(target)?;
        let setup = |error: reqwest::Error| ClientError::Setup(root_cause(&error));
        let mut builder = builder(target.limits.connect, &counts)
            .pool_max_idle_per_host(target.pool)
            .pool_idle_timeout(target.limits.pool_idle)
            .default_headers(always.clone());
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
        let limits = Limits {
            connect: target.limits.connect,
            idle: target.limits.pool_idle,
            most_idle: target.pool,
            clock: Clock::start(1.0),
        };
        Ok(Http {
            client,
            dialler: Dialler::new(&counts),
            control: target.limits.control,
            limits,
            always,
            proxy: target.proxy.clone(),
            mask: Arc::new(Mask::of(&target.secrets)),
            counts,
        })
    }

    /// For calls to whoever has a URL, each within `limit`: no proxy, no TLS of its own, no secrets, no kept connection.
    pub fn plain(limit: Duration) -> Result<Http, ClientError> {
        let counts = Arc::new(Counts::default());
        let built = builder(limit, &counts).pool_max_idle_per_host(0).tls_certs_only(Vec::new()).build();
        let client = built.map_err(|error| ClientError::Setup(root_cause(&error)))?;
        let limits = Limits { connect: limit, idle: Duration::ZERO, most_idle: 0, clock: Clock::start(1.0) };
        Ok(Http {
            client,
            dialler: Dialler::new(&counts),
            control: limit,
            limits,
            always: HeaderMap::new(),
            proxy: None,
            mask: Arc::new(Mask::of(&Secrets::default())),
            counts,
        })
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
        let request = self.client.post(url).header(CONTENT_TYPE, JSON).body(json);
        self.call(url, headers.iter().fold(request, |request, (name, value)| request.header(*name, *value)), size).await
    }

    async fn call(&self, url: &str, request: RequestBuilder, size: usize) -> Result<Reply, CallError> {
        let clock = Clock::start(1.0);
        let exchange = async {
            let words = |trouble: Trouble, stage| self.fault(&trouble, stage).1;
            let mut response = self.send(request, size).await.0.map_err(|trouble| words(trouble, Stage::Sending))?;
            let (status, headers) = (response.status(), self.head_of(&mut response));
            let body = self.body_of(response).await.map_err(|trouble| words(trouble, Stage::Reading))?;
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

    /// Where generate requests to a URL go, and how.
    pub(super) fn site(&self, url: Url) -> Site {
        Site::new(url, self.limits, &self.always, self.proxy.is_some())
    }

    /// POST of a generate leg; the answer's head. The body is dropped as soon as it is written: unlike plain bytes, one
    /// that is wrapped is not kept for a redirect. Beside it whether the connection was surely a kept one.
    pub(super) async fn begin(
        &self,
        site: &Arc<Site>,
        headers: &HeaderMap,
        json: Bytes,
    ) -> (Result<Response, Trouble>, bool) {
        if let Some(plain) = &site.plain {
            self.count(json.len());
            let head = plain.head(headers, json.len());
            let (answer, was_kept) = wire::post(&plain.place, &self.dialler, head, json).await;
            let answer = answer.map(|answer| Response::Plain(Box::new(answer), Arc::clone(site)));
            return (answer.map_err(|broken| Trouble::Plain(broken, Arc::clone(site))), was_kept);
        }
        let (size, body) = (json.len(), Body::wrap(Full::new(json)));
        let request = self.client.post(site.url.clone()).header(CONTENT_TYPE, JSON).headers(headers.clone());
        self.send(request.body(body), size).await
    }

    async fn send(&self, request: RequestBuilder, size: usize) -> (Result<Response, Trouble>, bool) {
        self.count(size);
        DIALLED
            .scope(Cell::new(false), async {
                let result = request.send().await;
                let result = result.map(|response| Response::General(Box::new(response))).map_err(Trouble::General);
                (result, !DIALLED.with(Cell::get))
            })
            .await
    }

    fn count(&self, size: usize) {
        Counts::add(&self.counts.requests, 1);
        Counts::add(&self.counts.bytes_sent, size as u64);
    }

    /// Class and words of what went wrong.
    pub(super) fn fault(&self, trouble: &Trouble, stage: Stage) -> (ErrorClass, String) {
        trouble.fault(stage, self.proxy.as_deref(), self.limits.connect)
    }

    /// The head of an answer, without secrets.
    pub(super) fn head_of(&self, response: &mut Response) -> HeaderMap {
        let mut head = std::mem::take(response.headers_mut());
        self.mask.head(&mut head);
        head
    }

    /// The body of an answer that is no stream, without secrets, up to a limit; to its end where it is shorter, so that
    /// the connection is kept.
    pub(super) async fn body_of(&self, mut response: Response) -> Result<Bytes, Trouble> {
        let mut body = Vec::new();
        while body.len() < MOST_BODY && response.read(|piece| body.extend_from_slice(piece)).await? {}
        let masked = match self.mask.data(&body) {
            Cow::Owned(masked) => Some(masked),
            Cow::Borrowed(_) => None,
        };
        Ok(masked.unwrap_or(body).into())
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
