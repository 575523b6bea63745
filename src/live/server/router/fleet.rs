//! What concerns all workers, or none: health, lists, and calls passed on to one or to all.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::failure::Failure;
use super::front::Front;
use crate::base::{Role, WorkerId};
use crate::live::api::EmulatedInfo;
use crate::live::server::http;
use crate::live::server::upstream::read;

/// Largest answer of a worker to a call that is passed on.
const MOST: usize = 16 << 20;

/// `/health`, `/liveness`: the router itself is there.
pub(super) async fn alive() -> &'static str {
    "OK"
}

/// `/readiness`: each leg has a healthy worker.
pub(super) async fn readiness(State(front): State<Arc<Front>>) -> Response {
    let node = front.node();
    let healthy = |role: Role| node.places().iter().filter(|place| place.eligible && place.worker.role == role).count();
    let ready = if front.options.workers.prefill.is_empty() {
        healthy(Role::Colocated) > 0
    } else {
        healthy(Role::Prefill) > 0 && healthy(Role::Decode) > 0
    };
    let body = json!({
        "status": if ready { "ready" } else { "not ready" },
        "healthy_workers": node.places().iter().filter(|place| place.eligible).count(),
        "total_workers": node.places().len(),
    });
    http::json_with(if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, &body)
}

/// `/workers`.
pub(super) async fn workers(State(front): State<Arc<Front>>) -> Response {
    let node = front.node();
    let count = |role: Role| node.places().iter().filter(|place| place.worker.role == role).count();
    let list: Vec<Value> = node
        .places()
        .iter()
        .map(|place| {
            let at = front.address(place.worker);
            json!({
                "id": place.worker.to_string(),
                "url": at.url,
                "worker_type": kind(place.worker),
                "is_healthy": place.eligible,
                "load": place.in_flight,
                "bootstrap_port": at.bootstrap_port,
            })
        })
        .collect();
    let stats = json!({
        "prefill_count": count(Role::Prefill),
        "decode_count": count(Role::Decode),
        "regular_count": count(Role::Colocated),
    });
    http::json(&json!({ "workers": list, "total": list.len(), "stats": stats }))
}

fn kind(worker: WorkerId) -> &'static str {
    match worker.role {
        Role::Prefill => "prefill",
        Role::Decode => "decode",
        Role::Colocated => "regular",
    }
}

/// `/server_info`: what this is. `smg` has no such route; its `/get_server_info` asks a worker, as ours does.
pub(super) async fn server_info(State(front): State<Arc<Front>>) -> Response {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let emulated = EmulatedInfo {
        worker: "router".into(),
        incarnation: front.options.incarnation,
        version: version.clone(),
        speed: front.options.clock.speed(),
        block_size: None,
    };
    // What describes an engine is left out: a router has none.
    http::json(&json!({ "version": version, "emulated": emulated }))
}

/// `/v1/models`, `/get_server_info`, `/get_model_info`: the first healthy worker answers.
pub(super) async fn first_worker(State(front): State<Arc<Front>>, uri: Uri, headers: HeaderMap) -> Response {
    let first = front.node().places().iter().find(|place| place.eligible).map(|place| place.worker);
    let Some(worker) = first else {
        return Failure::no_worker("no worker is healthy".into()).into_response();
    };
    let path = uri.path_and_query().map_or(uri.path(), |path| path.as_str());
    match ask(&front, worker, Method::GET, path, &headers).await {
        Ok((status, body)) => {
            let json = [("content-type", "application/json")];
            (status, json, Body::from(body)).into_response()
        }
        Err(message) => Failure::of_leg("worker", StatusCode::BAD_GATEWAY, message).into_response(),
    }
}

/// `/flush_cache`: on every worker.
pub(super) async fn flush_cache(State(front): State<Arc<Front>>, uri: Uri, headers: HeaderMap) -> Response {
    let path = uri.path_and_query().map_or(uri.path(), |path| path.as_str());
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    for (worker, result) in ask_all(&front, Method::POST, path, &headers).await {
        let url = front.address(worker).url.clone();
        match result {
            Ok((status, _)) if status.is_success() => done.push(url),
            Ok((status, body)) => {
                failed.push(json!([url, format!("{} {}", status.as_u16(), String::from_utf8_lossy(&body))]));
            }
            Err(message) => failed.push(json!([url, message])),
        }
    }
    let status = if failed.is_empty() { StatusCode::OK } else { StatusCode::PARTIAL_CONTENT };
    let status = if done.is_empty() { StatusCode::SERVICE_UNAVAILABLE } else { status };
    let total = done.len() + failed.len();
    let message = format!("caches flushed on {} of {total} workers", done.len());
    http::json_with(
        status,
        &json!({ "successful": done, "failed": failed, "total_workers": total, "message": message }),
    )
}

/// `/get_loads`: `/v1/loads` of every worker.
pub(super) async fn loads(State(front): State<Arc<Front>>, headers: HeaderMap) -> Response {
    let answers = ask_all(&front, Method::GET, "/v1/loads", &headers).await;
    let list = answers.into_iter().map(|(worker, result)| {
        let load = match result {
            Ok((status, body)) if status.is_success() => serde_json::from_slice(&body).unwrap_or(Value::Null),
            Ok(_) | Err(_) => Value::Null,
        };
        json!({ "worker": front.address(worker).url, "worker_type": kind(worker), "load": load })
    });
    http::json(&json!({ "workers": list.collect::<Vec<_>>() }))
}

/// Any other path.
pub(super) async fn unknown(uri: Uri) -> Response {
    Failure::new(StatusCode::NOT_FOUND, "unknown_url", format!("no such path: {}", uri.path())).into_response()
}

/// A path that is there, by another method.
pub(super) async fn wrong_method(method: Method, uri: Uri) -> Response {
    let message = format!("{} does not take {method}", uri.path());
    Failure::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", message).into_response()
}

type Told = Result<(StatusCode, Bytes), String>;

async fn ask_all(front: &Front, method: Method, path: &str, headers: &HeaderMap) -> Vec<(WorkerId, Told)> {
    let all: Vec<WorkerId> = front.node().places().iter().map(|place| place.worker).collect();
    let asked = all.into_iter().map(async |worker| (worker, ask(front, worker, method.clone(), path, headers).await));
    join_all(asked).await
}

async fn ask(front: &Front, worker: WorkerId, method: Method, path: &str, headers: &HeaderMap) -> Told {
    let url = format!("{}{path}", front.address(worker).url);
    let key = headers.get("authorization").map(|key| (axum::http::header::AUTHORIZATION, key.clone()));
    let answer = async {
        let answer = front.upstream.send(method, &url, key.into_iter().collect(), None).await?;
        let status = answer.status();
        Ok((status, read(answer.into_body(), MOST).await?))
    };
    let limit = front.options.health_timeout;
    match tokio::time::timeout(limit, answer).await {
        Ok(answer) => answer.map_err(|error: crate::live::server::upstream::NoAnswer| error.to_string()),
        Err(_) => Err(format!("no answer within {:.1} s", limit.as_secs_f64())),
    }
}
