//! [`Ask`]: a client of a KV directory's query server, for callers without a runtime.

use std::io;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::runtime::{Builder, Runtime};

use crate::live::api::{
    INTERNAL_TOKEN_HEADER, KV_QUERY_PATH, KV_STREAMS_PATH, KvQueryBody, KvQueryReply, KvStreamsReply,
    MOST_KV_QUERY_BYTES,
};
use crate::live::client::{CLOSED, ClientError, Http, Reply};
use crate::protocol::CallError;

/// For one answer.
const LIMIT: Duration = Duration::from_secs(10);

/// See the module. Calls block, at most ten seconds each.
pub struct Ask {
    http: Http,
    runtime: Runtime,
    url: String,
    token: Option<String>,
}

/// A server that did not answer as asked.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Not an address of such a server.
    #[error("`{0}` is no address of a query server; write http://HOST:PORT")]
    Url(String),
    /// No client.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// No runtime.
    #[error("no connection can be made: {0}")]
    Start(io::Error),
    /// No answer.
    #[error("no answer from {url}: {why}")]
    Unreachable {
        /// Address.
        url: String,
        /// In words.
        why: String,
    },
    /// The token is missing or wrong.
    #[error("{url} does not accept {}: {why}", if *.had_token { "the internal token" } else { "a request without the internal token" })]
    Unauthorized {
        /// Address.
        url: String,
        /// The server's words.
        why: String,
        /// One was sent.
        had_token: bool,
    },
    /// It cannot answer yet.
    #[error("{url} is not ready: {why}")]
    NotReady {
        /// Address.
        url: String,
        /// The server's words.
        why: String,
    },
    /// More than a query may hold; it was not sent.
    #[error("{tokens} token ids are a query of {bytes} bytes, and a KV directory takes {} MiB", MOST_KV_QUERY_BYTES >> 20)]
    TooLarge {
        /// Of the prompt.
        tokens: usize,
        /// Of the body.
        bytes: usize,
    },
    /// It refused, or it is another kind of server.
    #[error("{url} answered {status}: {why}")]
    Refused {
        /// Address.
        url: String,
        /// HTTP status.
        status: u16,
        /// The server's words.
        why: String,
    },
    /// What it said is not what such a server says.
    #[error("{0} answered something else than a KV directory does; is it `pdreplay index serve`, or the xLLM service?")]
    Unknown(String),
}

impl AskError {
    /// An index is there, and may answer soon: it is full, not ready, or closed the connection.
    pub fn passes(&self) -> bool {
        match self {
            AskError::NotReady { .. } => true,
            AskError::Unreachable { why, .. } => why.starts_with(CLOSED),
            _ => false,
        }
    }
}

impl Ask {
    /// A client of the server at `url`, with the token it wants.
    pub fn new(url: &str, token: Option<String>) -> Result<Ask, AskError> {
        let url = url.trim_end_matches('/');
        let authority = url.strip_prefix("http://").filter(|authority| !authority.contains('/'));
        if authority.is_none_or(str::is_empty) {
            return Err(AskError::Url(url.to_owned()));
        }
        let runtime = Builder::new_current_thread().enable_all().build().map_err(AskError::Start)?;
        Ok(Ask { http: Http::plain(LIMIT)?, runtime, url: url.to_owned(), token })
    }

    /// What each stream holds of a prompt. One that is larger than a query may be is refused before it is sent.
    pub fn query(&self, token_ids: &[u32]) -> Result<KvQueryReply, AskError> {
        let body = serde_json::to_vec(&KvQueryBody { token_ids }).expect("numbers are JSON");
        if body.len() > MOST_KV_QUERY_BYTES {
            return Err(AskError::TooLarge { tokens: token_ids.len(), bytes: body.len() });
        }
        let url = format!("{}{KV_QUERY_PATH}", self.url);
        self.read(self.runtime.block_on(self.http.post_with(&url, &self.headers(), body)))
    }

    /// The state of every stream.
    pub fn streams(&self) -> Result<KvStreamsReply, AskError> {
        let url = format!("{}{KV_STREAMS_PATH}", self.url);
        self.read(self.runtime.block_on(self.http.get_with(&url, &self.headers())))
    }

    fn headers(&self) -> Vec<(&str, &str)> {
        self.token.iter().map(|token| (INTERNAL_TOKEN_HEADER, token.as_str())).collect()
    }

    fn read<T: DeserializeOwned>(&self, answer: Result<Reply, CallError>) -> Result<T, AskError> {
        let url = self.url.clone();
        let reply = answer.map_err(|error| AskError::Unreachable { url: url.clone(), why: error.message })?;
        let why = || {
            let told = reply.json().and_then(|told| Some(told.get("error")?.as_str()?.to_owned()));
            // The status is said before it.
            told.unwrap_or_else(|| {
                reply.refusal().split_once(": ").map_or("no reason given".into(), |(_, why)| why.into())
            })
        };
        match reply.status {
            200 => reply.read().ok_or(AskError::Unknown(url)),
            401 | 403 => Err(AskError::Unauthorized { url, why: why(), had_token: self.token.is_some() }),
            503 => Err(AskError::NotReady { url, why: why() }),
            status => Err(AskError::Refused { url, status, why: why() }),
        }
    }
}
