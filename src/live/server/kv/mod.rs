//! The KV directory's query server: HTTP around a [`Board`].
//!
//! Owns who may ask and how a question is written; what is answered is the index's. Reading order: `token`, `body` (what a
//! query must look like), `query`, `status` (health, streams), `metrics`. Invariant: who has not the token learns nothing
//! of prompts or caches.

mod body;
mod metrics;
mod query;
mod status;
mod token;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::header::{ALLOW, RETRY_AFTER};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

pub use self::body::parse_kv_query;
use self::metrics::Latencies;
pub use self::token::InternalToken;
use crate::live::api::{KV_QUERY_PATH, KV_STREAMS_PATH};
use crate::live::kv::service::Board;
use crate::live::server::http::json_with;
use crate::live::server::listen::{Bounds, listen};
use crate::live::server::room::room;
use crate::live::server::seats::Seats;

/// Longest time an answer that is under way may go on after a stop.
const GRACE: Duration = Duration::from_secs(2);

/// What there is to tell a caller for whom there is no place.
const FULL: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n\
    connection: close\r\ncontent-length: 66\r\n\r\n\
    {\"error\":\"too many connections; close idle ones, ask again later\"}";

/// What a server bears of its callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvLimits {
    /// From the opening of a connection, or its last answer, to the end of the next request's head.
    pub head: Duration,
    /// From the end of a request's head to the end of its body.
    pub body: Duration,
    /// Connections at once; `None`: as many as there is [`room`] for beside one stream.
    pub connections: Option<usize>,
    /// Bytes of all bodies that are read or answered at once, as their heads declare them.
    pub bodies: usize,
}

impl Default for KvLimits {
    fn default() -> KvLimits {
        KvLimits { head: Duration::from_secs(20), body: Duration::from_secs(10), connections: None, bodies: 256 << 20 }
    }
}

/// What the server is built from.
#[derive(Debug, Clone)]
pub struct KvServerOptions {
    /// Whose knowledge is asked for.
    pub board: Arc<Board>,
    /// What who asks must bring; `None`: nothing.
    pub token: Option<InternalToken>,
    /// What it bears.
    pub limits: KvLimits,
}

/// What all handlers share.
#[derive(Debug)]
struct Front {
    board: Arc<Board>,
    token: Option<InternalToken>,
    limits: KvLimits,
    seats: Arc<Seats>,
    /// A permit for each byte that bodies may still hold.
    room: Semaphore,
    latencies: Latencies,
}

/// Serves until `stop` is ready, then lets answers that are under way end. Errors: the process may open too few
/// descriptors. A failed accept is tried again.
pub async fn serve_kv(
    listener: TcpListener,
    options: KvServerOptions,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let KvServerOptions { board, token, limits } = options;
    let most = limits.connections.map_or_else(|| room(None, 1), Ok).map_err(io::Error::other)?;
    let seats = Seats::new(most);
    let bounds = Bounds { head: limits.head, seats: Some(Arc::clone(&seats)), full: FULL };
    let room = Semaphore::new(limits.bodies);
    let front = Front { board, token, limits, seats, room, latencies: Latencies::default() };
    let (stopping, stopped) = watch::channel(false);
    let over = async {
        stop.await;
        // The server listens to it, or has ended.
        let _ = stopping.send(true);
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        () = listen(listener, app(front), bounds, stopped) => {}
        () = over => {}
    }
    Ok(())
}

fn app(front: Front) -> Router {
    Router::new()
        .route(KV_QUERY_PATH, post(query::query).fallback(async || wrong_method(&Method::POST)))
        .route(KV_STREAMS_PATH, get(status::streams).fallback(async || wrong_method(&Method::GET)))
        .route("/health", get(status::health).fallback(async || wrong_method(&Method::GET)))
        .route("/metrics", get(metrics::metrics).fallback(async || wrong_method(&Method::GET)))
        .fallback(async || refused(StatusCode::NOT_FOUND, "no such path; see `pdreplay index serve --help`"))
        .with_state(Arc::new(front))
}

impl Front {
    /// The answer to who has not brought the token.
    fn refusal(&self, headers: &HeaderMap) -> Option<Response> {
        let is_admitted = self.token.as_ref().is_none_or(|token| token.opens(headers));
        (!is_admitted).then(|| refused(StatusCode::UNAUTHORIZED, "invalid internal token"))
    }
}

/// A refusal in the form of the xLLM service's internal endpoints.
fn refused(status: StatusCode, why: &str) -> Response {
    json_with(status, &json!({ "error": why }))
}

/// There is no room for it now.
fn later(why: &str) -> Response {
    ([(RETRY_AFTER, "1")], refused(StatusCode::SERVICE_UNAVAILABLE, why)).into_response()
}

fn wrong_method(allowed: &Method) -> Response {
    let answer = refused(StatusCode::METHOD_NOT_ALLOWED, &format!("use {allowed}"));
    ([(ALLOW, allowed.to_string())], answer).into_response()
}
