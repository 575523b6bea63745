//! `GET /health` and `GET /v1/internal/kv-cache/streams`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde_json::json;

use super::{Front, refused};
use crate::live::api::{KvStream, KvStreamsReply};
use crate::live::kv::service::StreamView;
use crate::live::server::http::json as answer;

/// 200 once queries are answered, 503 with the reason before.
pub(super) async fn health(State(front): State<Arc<Front>>) -> Response {
    match front.board.unready() {
        None => answer(&json!({ "status": "ok" })),
        Some(why) => refused(StatusCode::SERVICE_UNAVAILABLE, &why),
    }
}

/// All that is known of the streams.
pub(super) async fn streams(State(front): State<Arc<Front>>, headers: HeaderMap) -> Response {
    if let Some(answer) = front.refusal(&headers) {
        return answer;
    }
    let board = &front.board;
    answer(&KvStreamsReply {
        unready: board.unready(),
        streams: board.streams().into_iter().map(stream).collect(),
        excluded: board.excluded().iter().map(|(name, why)| (name.clone(), why.to_string())).collect(),
        notice: board.notice(),
    })
}

fn stream(view: StreamView) -> KvStream {
    let StreamView { key, replay, report, lag, quiet } = view;
    let (status, stats) = (report.status, report.stats);
    KvStream {
        instance_name: key.instance,
        dp_rank: key.dp_rank,
        endpoint: report.endpoint,
        replay_endpoint: replay,
        state: report.state.as_str().to_owned(),
        reason: report.reason.as_str().to_owned(),
        synchronized: status.synchronized,
        sequence: status.sequence,
        lag_ms: lag.last_s.map(|lag| lag * 1e3),
        odd_timestamps: lag.odd,
        quiet_ms: quiet.map(|quiet| quiet.ns() / 1_000_000),
        device_blocks: status.device_blocks,
        host_blocks: status.host_blocks,
        mappings: status.mappings,
        batches: stats.batches,
        refused: stats.refused,
        foreign: stats.foreign,
        notice: report.notice,
        events: stats.events,
        ignored: stats.ignored,
        gaps: stats.gaps,
        restarts: stats.restarts,
        resyncs: stats.resyncs,
        refreshes: stats.refreshes,
        failed_replays: stats.failed_replays,
        buffered_bytes: stats.buffered_bytes as u64,
        unsynced_ms: stats.unsynced.ns() / 1_000_000,
        error: status.error.as_deref().map(str::to_owned),
    }
}
