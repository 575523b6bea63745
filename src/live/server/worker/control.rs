//! Calls that control a worker: sessions, admission, abort, flush, and what other workers ask of a prefill worker.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::exchange::Step;
use super::front::Front;
use super::generate::refusal;
use crate::base::{Dur, Role, WorkerId};
use crate::live::api::{
    ADMIT_PATH, AbortBody, AdmitBody, AdmitReply, CloseBody, IngressBody, MOVING_HEADER, OpenBody, PullBody, PullReply,
};
use crate::live::server::http::{self, Refused};
use crate::node::{NodeInput, NodeOutput};
use crate::protocol::{AdmitKind, AdmitReason};

type Shared = State<Arc<Front>>;

/// Time of the emulation between two tries of a flush that waits.
const FLUSH_TRY: Dur = Dur::from_millis(50);

/// SGLang's words, whether it flushed or not.
const FLUSHED: &str = "Cache flushed.\nPlease check backend logs for more details. (When there are running or waiting \
                       requests, the operation will not be performed.)\n";

async fn body<T: DeserializeOwned>(front: &Front, request: Request) -> Result<T, Refused> {
    let (head, body) = request.into_parts();
    http::check_json(&head.headers)?;
    http::parse(&http::read(body, front.options.body_limit).await?)
}

/// The output that ends an exchange begun with `input`.
async fn exchange(
    front: &Front,
    input: impl FnOnce(crate::node::Exchange) -> NodeInput,
) -> Result<NodeOutput, Refused> {
    let output = front.begin(input).await?.end().await.ok_or_else(|| front.stopped())?;
    refusal(&output)?;
    Ok(output)
}

/// `POST|GET /open_session`: the id as a bare JSON string.
pub(super) async fn open(State(front): Shared, request: Request) -> Result<Response, Refused> {
    let body: OpenBody = body(&front, request).await?;
    front.check_ready()?;
    if !body.streaming {
        return Err(Refused::bad("emulated workers keep streaming sessions only; send \"streaming\": true"));
    }
    if !front.options.streaming_sessions {
        let text = "Streaming sessions are disabled. Please relaunch with --enable-streaming-session.";
        return Err(Refused::bad(text));
    }
    let (session, timeout) = (body.session_id, body.timeout);
    match exchange(&front, |exchange| NodeInput::Open { exchange, session, timeout }).await? {
        NodeOutput::Opened { session, .. } => Ok(http::json(&session)),
        other => unreachable!("not the answer to an open: {other:?}"),
    }
}

/// `POST /close_session`: 200, also for a session that is not there.
pub(super) async fn close(State(front): Shared, request: Request) -> Result<(), Refused> {
    let body: CloseBody = body(&front, request).await?;
    front.tell(NodeInput::Close(body.session_id)).await
}

/// `POST /abort_request`: 200, also when nothing has this id.
pub(super) async fn abort(State(front): Shared, request: Request) -> Result<(), Refused> {
    let body: AbortBody = body(&front, request).await?;
    match body {
        AbortBody { abort_all: true, .. } => front.tell(NodeInput::Abort(None)).await,
        // The empty prefix would be every request, which nobody asked for.
        AbortBody { rid, .. } if rid.is_empty() => Ok(()),
        AbortBody { rid, .. } => front.tell(NodeInput::Abort(Some(rid))).await,
    }
}

/// Query of a flush.
#[derive(Debug, Default, Deserialize)]
pub(super) struct FlushQuery {
    /// Seconds to wait until nothing runs.
    #[serde(default)]
    timeout: f64,
}

/// `GET|POST /flush_cache`: 400 when requests are in the way.
pub(super) async fn flush(
    State(front): Shared,
    query: Result<Query<FlushQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, Refused> {
    let Query(query) = query.map_err(|error| Refused::bad(error.body_text()))?;
    let clock = front.options.clock;
    let wait = Dur::from_secs_f64(query.timeout)
        .ok_or_else(|| Refused::bad("`timeout` is not a number of seconds; send 0 or more, or leave it out"))?;
    let deadline = clock.now() + wait;
    loop {
        match exchange(&front, NodeInput::Flush).await? {
            NodeOutput::Flushed { done: true, .. } => return Ok((StatusCode::OK, FLUSHED).into_response()),
            NodeOutput::Flushed { .. } if clock.now() >= deadline => {
                return Ok((StatusCode::BAD_REQUEST, FLUSHED).into_response());
            }
            NodeOutput::Flushed { .. } => {
                let rest = clock.until(deadline).min(clock.wall(FLUSH_TRY));
                tokio::time::sleep(rest).await;
            }
            other => unreachable!("not the answer to a flush: {other:?}"),
        }
    }
}

/// `POST /session_cache/admit_direct_append`.
pub(super) async fn admit(State(front): Shared, request: Request) -> Result<Response, Refused> {
    if !front.options.admission {
        return Err(no_endpoint("POST", ADMIT_PATH));
    }
    let body: AdmitBody = body(&front, request).await?;
    front.check_ready()?;
    let kind = match body.kind.as_str() {
        "append" => AdmitKind::Append,
        "seed" => AdmitKind::Seed,
        other => return Err(Refused::bad(format!("`kind` is `{other}`; send `append` or `seed`"))),
    };
    let output = exchange(&front, |exchange| NodeInput::Admit {
        exchange,
        session: body.session_id,
        kind,
        append_tokens: body.append_tokens,
        output_tokens: body.output_tokens,
    });
    match output.await? {
        NodeOutput::Admission { reason, available_tokens, capacity_tokens, evicted, .. } => {
            let can_admit = matches!(reason, AdmitReason::Fits | AdmitReason::FitsAfterTrim);
            let reason = reason.as_str().to_owned();
            Ok(http::json(&AdmitReply { can_admit, reason, available_tokens, capacity_tokens, evicted }))
        }
        other => unreachable!("not the answer to an admission: {other:?}"),
    }
}

/// `POST /pdreplay/v1/pull`: the head once the KV moves, the rest when it has arrived; the connection's close gives it up.
pub(super) async fn pull(State(front): Shared, request: Request) -> Result<Response, Refused> {
    let body: PullBody = body(&front, request).await?;
    let decode = check_pull(&front, &body.decode)?;
    let (room, tokens, ingress_flows) = (body.room, body.tokens, body.ingress_flows);
    let mut open = front.begin(|exchange| NodeInput::Pull { exchange, room, tokens, decode, ingress_flows }).await?;
    loop {
        match open.next().await {
            Step::Moves => break,
            Step::Tokens(_) | Step::Hangs => {}
            Step::End(output) => return pulled(*output),
            Step::Lost => return Err(front.stopped()),
        }
    }
    let rest = futures_util::stream::once(async move {
        let output = open.end().await.ok_or("the worker is stopping")?;
        // The head says 200 already: what went wrong since stands in the body.
        let whole = pulled(output).into_response().into_body();
        axum::body::to_bytes(whole, usize::MAX).await.map_err(|_| "the reply is in memory")
    });
    let head = [(HeaderName::from_static(MOVING_HEADER), HeaderValue::from_static("1"))];
    Ok((head, Body::from_stream(rest)).into_response())
}

fn pulled(output: NodeOutput) -> Result<Response, Refused> {
    refusal(&output)?;
    match output {
        NodeOutput::Pulled { over, .. } => Ok(http::json(&PullReply {
            prefill: over.worker,
            cached_tokens: over.cached_tokens,
            prefill_queue_ns: over.prefill_queue.ns(),
            prefill_ns: over.prefill.ns(),
            wait_ns: over.wait.ns(),
            transfer_ns: over.transfer.ns(),
        })),
        other => unreachable!("not the answer to a pull: {other:?}"),
    }
}

/// `POST /pdreplay/v1/ingress`.
pub(super) async fn ingress(State(front): Shared, request: Request) -> Result<(), Refused> {
    let body: IngressBody = body(&front, request).await?;
    let decode = check_pull(&front, &body.decode)?;
    front.tell(NodeInput::Ingress { decode, flows: body.flows }).await
}

/// The decode worker that asks; only a prefill worker can answer it.
fn check_pull(front: &Front, decode: &str) -> Result<WorkerId, Refused> {
    let own = front.config.id;
    if own.role != Role::Prefill {
        return Err(Refused::bad(format!("{own} is no prefill worker; ask the one that bootstrap_host names")));
    }
    decode.parse().map_err(Refused::bad)
}

/// 404 in the form of every other refusal.
pub(super) fn no_endpoint(method: &str, path: &str) -> Refused {
    Refused::new(StatusCode::NOT_FOUND, format!("this worker has no endpoint {method} {path}"))
}

/// Any path that is not there.
pub(super) async fn unknown(request: Request<Body>) -> Refused {
    no_endpoint(request.method().as_str(), request.uri().path())
}

/// Any method a path has not.
pub(super) async fn wrong_method(request: Request<Body>) -> Refused {
    let (method, path) = (request.method(), request.uri().path());
    Refused::new(StatusCode::METHOD_NOT_ALLOWED, format!("{path} does not take {method}"))
}
