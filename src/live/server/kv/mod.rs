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
use axum::http::header::ALLOW;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;

pub use self::body::parse_kv_query;
use self::metrics::Latencies;
pub use self::token::InternalToken;
use crate::live::api::{KV_QUERY_PATH, KV_STREAMS_PATH};
use crate::live::kv::service::Board;
use crate::live::server::http::{json_with, listen};

/// Longest time an answer that is under way may go on after a stop.
const GRACE: Duration = Duration::from_secs(2);

/// What the server is built from.
#[derive(Debug, Clone)]
pub struct KvServerOptions {
    /// Whose knowledge is asked for.
    pub board: Arc<Board>,
    /// What who asks must bring; `None`: nothing.
    pub token: Option<InternalToken>,
}

/// What all handlers share.
#[derive(Debug)]
struct Front {
    board: Arc<Board>,
    token: Option<InternalToken>,
    latencies: Latencies,
}

/// Serves until `stop` is ready, then lets answers that are under way end. Errors: none as yet; a failed accept is tried
/// again.
pub async fn serve_kv(
    listener: TcpListener,
    options: KvServerOptions,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let (stopping, stopped) = watch::channel(false);
    let over = async {
        stop.await;
        // The server listens to it, or has ended.
        let _ = stopping.send(true);
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        () = listen(listener, app(options), stopped) => {}
        () = over => {}
    }
    Ok(())
}

fn app(options: KvServerOptions) -> Router {
    let KvServerOptions { board, token } = options;
    let front = Arc::new(Front { board, token, latencies: Latencies::default() });
    Router::new()
        .route(KV_QUERY_PATH, post(query::query).fallback(async || wrong_method(&Method::POST)))
        .route(KV_STREAMS_PATH, get(status::streams).fallback(async || wrong_method(&Method::GET)))
        .route("/health", get(status::health).fallback(async || wrong_method(&Method::GET)))
        .route("/metrics", get(metrics::metrics).fallback(async || wrong_method(&Method::GET)))
        .fallback(async || refused(StatusCode::NOT_FOUND, "no such path; see `pdreplay index serve --help`"))
        .with_state(front)
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

fn wrong_method(allowed: &Method) -> Response {
    let answer = refused(StatusCode::METHOD_NOT_ALLOWED, &format!("use {allowed}"));
    ([(ALLOW, allowed.to_string())], answer).into_response()
}
