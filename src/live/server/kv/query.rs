//! `POST /v1/internal/kv-cache/query`: what each stream holds of a prompt.

use std::sync::Arc;

use axum::body::{Body, HttpBody};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use tokio::time::Instant;

use super::body::{Query, parse};
use super::{Front, later, refused};
use crate::kv::index::Match;
use crate::live::api::{KvMatch, KvQueryReply, MOST_KV_QUERY_BYTES};
use crate::live::server::http::{json, read_within};

pub(super) async fn query(State(front): State<Arc<Front>>, headers: HeaderMap, body: Body) -> Response {
    let answer = answer(&front, &headers, body).await;
    front.latencies.answered(answer.status().as_u16());
    answer
}

async fn answer(front: &Front, headers: &HeaderMap, body: Body) -> Response {
    if let Some(answer) = front.refusal(headers) {
        return answer;
    }
    if let Some(why) = front.board.unready() {
        return refused(StatusCode::SERVICE_UNAVAILABLE, &why);
    }
    let Ok(_room) = front.room.try_acquire_many(declared(&body)) else {
        return later("the bodies of other queries fill the memory set aside for them; ask again later");
    };
    let body = match read_within(body, MOST_KV_QUERY_BYTES, front.limits.body).await {
        Ok(body) => body,
        Err(why) => return refused(why.status, &why.message),
    };
    let began = Instant::now();
    let Query { token_ids } = match parse(&body) {
        Ok(query) => query,
        Err(why) => return refused(StatusCode::BAD_REQUEST, &why),
    };
    let matches = front.board.index().query(&token_ids).iter().map(reply).collect();
    let answer = json(&KvQueryReply { matches });
    front.latencies.took(began.elapsed());
    answer
}

/// Bytes that a body is going to hold: as its head says, or the most there may be. One that is too large holds none.
fn declared(body: &Body) -> u32 {
    let most = MOST_KV_QUERY_BYTES as u64;
    let bytes = HttpBody::size_hint(body).upper().unwrap_or(most);
    if bytes > most { 0 } else { bytes as u32 }
}

fn reply(found: &Match) -> KvMatch {
    let status = &found.stream;
    KvMatch {
        instance_name: status.spec.instance.clone(),
        dp_rank: status.spec.dp_rank,
        synchronized: status.synchronized,
        sequence: status.sequence,
        device_hit_tokens: found.device_hit_tokens,
        host_only_hit_tokens: found.host_only_hit_tokens,
        reusable_prefix_tokens: found.reusable_tokens(),
        device_blocks: status.device_blocks,
        host_blocks: status.host_blocks,
        error: status.error.as_deref().map(str::to_owned),
    }
}
