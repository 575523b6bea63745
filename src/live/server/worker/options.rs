//! How a worker's server behaves beside its node: which SGLang it resembles, what it lets in, where it listens.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;

use super::kv::KvPublishing;
use super::triggers::Triggers;
use crate::base::Dur;
use crate::live::clock::Clock;

/// Largest request body taken in, bytes, unless the options say otherwise.
const BODY_LIMIT: usize = 64 << 20;

/// Longest time an answer that is under way may go on after a stop.
const GRACE: Duration = Duration::from_secs(2);

/// The version of SGLang whose bodies a worker answers with, where the two known ones differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SglangVersion {
    /// 0.5.10: `/get_load`, `total_retractions`.
    V0_5_10,
    /// 0.5.23: `/ready`, `num_retractions`.
    #[default]
    V0_5_23,
}

impl SglangVersion {
    /// Every version.
    pub const ALL: [SglangVersion; 2] = [SglangVersion::V0_5_10, SglangVersion::V0_5_23];

    /// As SGLang writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            SglangVersion::V0_5_10 => "0.5.10",
            SglangVersion::V0_5_23 => "0.5.23",
        }
    }
}

/// Key that requests must bring as `Authorization: Bearer …`. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    /// A key.
    pub fn new(key: impl Into<String>) -> ApiKey {
        ApiKey(key.into())
    }

    /// Whether this is the value of an `authorization` header with the key.
    pub(super) fn opens(&self, authorization: Option<&[u8]>) -> bool {
        authorization.and_then(|value| value.strip_prefix(b"Bearer ")) == Some(self.0.as_bytes())
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(…)")
    }
}

/// Takes one line for each request.
#[derive(Clone)]
pub struct RequestLog(Arc<dyn Fn(String) + Send + Sync>);

impl RequestLog {
    /// `write` gets the lines, without a line feed; it must not wait long.
    pub fn new(write: impl Fn(String) + Send + Sync + 'static) -> RequestLog {
        RequestLog(Arc::new(write))
    }

    pub(in crate::live::server) fn line(&self, line: String) {
        (self.0)(line);
    }
}

impl fmt::Debug for RequestLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RequestLog")
    }
}

/// See the module.
#[derive(Debug, Clone)]
pub struct WorkerServerOptions {
    /// Time of the emulation; the nodes of one cluster share it, also those that restart.
    pub clock: Clock,
    /// Process identity told in answers; the node's incarnation where there is none. A process of its own does not know how
    /// often it was started, only that it is another one.
    pub identity: Option<u32>,
    /// Name of the model in answers.
    pub model: String,
    /// SGLang's version.
    pub version: SglangVersion,
    /// Events hold what is new instead of everything so far (SGLang's `--incremental-streaming-output`).
    pub incremental_output: bool,
    /// Sessions may be opened (SGLang's `--enable-streaming-session`).
    pub streaming_sessions: bool,
    /// The admission endpoint is there, as in the patched SGLang; without it 404.
    pub admission: bool,
    /// Time of the emulation from the start of the server until the model is loaded; 503 until then.
    pub loading: Dur,
    /// Requests without it are answered 401.
    pub api_key: Option<ApiKey>,
    /// Largest request body, bytes.
    pub body_limit: usize,
    /// Longest time an answer that is under way may go on after a stop.
    pub grace: Duration,
    /// Log of requests.
    pub log: Option<RequestLog>,
    /// Counts generate requests for the faults that wait for so many: those of all workers that share it. `None`: this
    /// worker's alone.
    pub triggers: Option<Arc<Triggers>>,
    /// Where KV events are published; `None`: nowhere.
    pub kv: Option<KvPublishing>,
}

impl WorkerServerOptions {
    /// A patched SGLang 0.5.23 that is ready at once and open to all.
    pub fn new(clock: Clock) -> WorkerServerOptions {
        WorkerServerOptions {
            clock,
            identity: None,
            model: "emulated".into(),
            version: SglangVersion::default(),
            incremental_output: false,
            streaming_sessions: true,
            admission: true,
            loading: Dur::ZERO,
            api_key: None,
            body_limit: BODY_LIMIT,
            grace: GRACE,
            log: None,
            triggers: None,
            kv: None,
        }
    }
}

/// Where a worker listens. A lone listener is also the one other workers pull from.
#[derive(Debug)]
pub struct Listeners {
    /// Every endpoint.
    pub http: TcpListener,
    /// The same once more under the port of the bootstrap server.
    pub bootstrap: Option<TcpListener>,
}

impl From<TcpListener> for Listeners {
    fn from(http: TcpListener) -> Listeners {
        Listeners { http, bootstrap: None }
    }
}
