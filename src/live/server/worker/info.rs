//! What a worker says of itself: health, models, arguments, loads, counters.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderName};
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

use super::front::Front;
use super::metrics;
use super::options::SglangVersion;
use super::owner::Look;
use crate::base::Role;
use crate::live::api::{
    DisaggregationLoad, EmulatedInfo, LoadEntry, LoadsReply, MemoryLoad, ModelCard, ModelList, QueueLoad, ServerInfo,
    StatsReply,
};
use crate::live::server::http::{self, Refused};

type Shared = State<Arc<Front>>;

/// Content type of Prometheus' text form.
const PROMETHEUS: [(HeaderName, &str); 1] = [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];

/// `GET /health`, `/health_generate`: an empty 200, or 503 while the model is loading.
pub(super) async fn health(State(front): Shared) -> StatusCode {
    if front.is_ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

/// `GET /ready`, of 0.5.23 only.
pub(super) async fn ready(state: Shared) -> Result<StatusCode, Refused> {
    match state.0.options.version {
        SglangVersion::V0_5_10 => Err(super::control::no_endpoint("GET", "/ready")),
        SglangVersion::V0_5_23 => Ok(health(state).await),
    }
}

/// `GET /v1/models`.
pub(super) async fn models(State(front): Shared) -> Response {
    let card = ModelCard {
        id: front.options.model.clone(),
        object: "model".into(),
        owned_by: "sglang".into(),
        max_model_len: Some(longest(&front)),
    };
    http::json(&ModelList { object: "list".into(), data: vec![card] })
}

/// `GET /model_info`, `/get_model_info`.
pub(super) async fn model_info(State(front): Shared) -> Response {
    let model = &front.options.model;
    http::json(&json!({
        "model_path": model, "tokenizer_path": model, "is_generation": true, "preferred_sampling_params": null,
        "weight_version": "default", "has_image_understanding": false, "has_audio_understanding": false,
    }))
}

/// `GET /server_info`, `/get_server_info`.
pub(super) async fn server_info(State(front): Shared) -> Response {
    let config = &front.config;
    let info = ServerInfo {
        version: front.options.version.as_str().into(),
        served_model_name: front.options.model.clone(),
        model_path: front.options.model.clone(),
        disaggregation_mode: mode(config.id.role).into(),
        disaggregation_bootstrap_port: (config.id.role == Role::Prefill).then_some(front.bootstrap_port),
        max_total_num_tokens: config.engine.kv_pool_tokens,
        max_req_input_len: longest(&front),
        page_size: config.engine.page_size,
        dp_size: 1,
        enable_streaming_session: front.options.streaming_sessions,
        emulated: Some(EmulatedInfo {
            worker: config.id.to_string(),
            incarnation: front.identity(),
            version: env!("CARGO_PKG_VERSION").into(),
            speed: front.options.clock.speed(),
            block_size: Some(config.block_size),
        }),
    };
    http::json(&info)
}

/// `null`, `prefill` or `decode`, as SGLang's argument has it.
fn mode(role: Role) -> &'static str {
    match role {
        Role::Prefill => "prefill",
        Role::Decode => "decode",
        Role::Colocated => "null",
    }
}

/// Longest prompt and answer, tokens.
fn longest(front: &Front) -> u64 {
    let engine = &front.config.engine;
    match engine.context_limit_tokens {
        0 => engine.kv_pool_tokens,
        limit => limit.min(engine.kv_pool_tokens),
    }
}

/// Query of `/v1/loads`.
#[derive(Debug, Default, Deserialize)]
pub(super) struct LoadsQuery {
    /// `core`, `memory`, `queues`, `disagg`, `all`, separated by commas; all by default.
    include: Option<String>,
    /// Only this rank; there is rank 0.
    dp_rank: Option<u32>,
    /// `json` or `prometheus`.
    format: Option<String>,
}

/// `GET /v1/loads`.
pub(super) async fn loads(
    State(front): Shared,
    query: Result<Query<LoadsQuery>, QueryRejection>,
) -> Result<Response, Refused> {
    let Query(query) = query.map_err(|error| Refused::bad(error.body_text()))?;
    let look = front.look().await?;
    match query.format.as_deref() {
        None | Some("json") => {}
        Some("prometheus") => {
            return Ok((PROMETHEUS, metrics::render_loads(&look, front.config.id.role)).into_response());
        }
        Some(other) => return Err(Refused::bad(format!("`format` is `{other}`; ask for `json` or `prometheus`"))),
    }
    let now = Timestamp::now();
    let entry = entry(&front, &look, now.as_millisecond() as f64 / 1e3);
    let reply = LoadsReply {
        timestamp: now.to_string(),
        version: front.options.version.as_str().into(),
        loads: if query.dp_rank.unwrap_or(0) == 0 { vec![entry] } else { Vec::new() },
    };
    let mut body = serde_json::to_value(&reply).expect("bodies have text keys only");
    let sections: Vec<&str> = query.include.as_deref().unwrap_or("all").split(',').map(str::trim).collect();
    for (section, key) in [("memory", "memory"), ("queues", "queues"), ("disagg", "disaggregation")] {
        if !sections.contains(&"all") && !sections.contains(&section) {
            let entries = body["loads"].as_array_mut().into_iter().flatten().filter_map(|entry| entry.as_object_mut());
            entries.for_each(|entry| drop(entry.remove(key)));
        }
    }
    Ok(http::json(&body))
}

fn entry(front: &Front, look: &Look, timestamp: f64) -> LoadEntry {
    let (load, config) = (&look.load, &front.config);
    let (counters, queues) = (&look.counters, &look.counters.queues);
    let prompt = counters.prefilled_tokens + counters.cached_tokens;
    let count = |requests: usize| u32::try_from(requests).unwrap_or(u32::MAX);
    LoadEntry {
        timestamp,
        dp_rank: 0,
        num_running_reqs: load.num_running,
        num_waiting_reqs: waiting(look),
        num_waiting_uncached_tokens: 0,
        num_used_tokens: queues.used_tokens,
        num_total_tokens: queues.used_tokens + queues.evictable_tokens,
        max_total_num_tokens: load.capacity_tokens,
        max_running_requests: config.engine.max_running,
        token_usage: load.token_usage,
        gen_throughput: 0.0,
        cache_hit_rate: if prompt == 0 { 0.0 } else { counters.cached_tokens as f64 / prompt as f64 },
        utilization: f64::from(load.num_running) / f64::from(config.engine.max_running.max(1)),
        memory: MemoryLoad {
            kv_cache_gb: (load.capacity_tokens * config.engine.kv_bytes_per_token) as f64 / 1e9,
            token_capacity: load.capacity_tokens,
            ..MemoryLoad::default()
        },
        queues: QueueLoad {
            waiting: count(queues.waiting),
            retracted: count(queues.retracted),
            prealloc_ready: count(queues.ready),
            ..QueueLoad::default()
        },
        disaggregation: DisaggregationLoad {
            mode: mode(config.id.role).into(),
            prefill_inflight_queue_reqs: count(queues.sending),
            decode_prealloc_queue_reqs: load.num_prealloc,
            decode_transfer_queue_reqs: load.num_transfer,
            decode_retracted_queue_reqs: count(queues.retracted),
            ..DisaggregationLoad::default()
        },
    }
}

fn waiting(look: &Look) -> u32 {
    look.load.num_waiting + look.load.num_prealloc + look.load.num_transfer
}

/// `GET /get_load`, of 0.5.10 only.
pub(super) async fn load(State(front): Shared) -> Result<Response, Refused> {
    if front.options.version == SglangVersion::V0_5_23 {
        let message = "this worker has GET /get_load only with --sglang-version 0.5.10; /v1/loads took its place";
        return Err(Refused::new(StatusCode::NOT_FOUND, message));
    }
    let look = front.look().await?;
    let waiting = waiting(&look);
    Ok(http::json(&json!([{
        "dp_rank": 0, "num_reqs": look.load.num_running + waiting, "num_waiting_reqs": waiting,
        "num_tokens": look.counters.queues.used_tokens, "ts_tic": front.options.clock.now().as_secs_f64(),
    }])))
}

/// `GET /metrics`.
pub(super) async fn metrics(State(front): Shared) -> Result<Response, Refused> {
    let look = front.look().await?;
    Ok((PROMETHEUS, metrics::render(&look, &front.options.model, front.config.id.role)).into_response())
}

/// `GET /pdreplay/v1/stats`.
pub(super) async fn stats(State(front): Shared) -> Result<Response, Refused> {
    let look = front.look().await?;
    Ok(http::json(&StatsReply { worker: look.record, transfers: look.transfers, up_ns: look.at.ns() }))
}
