//! Summaries over records: the published failures of reports, a run that must read well, and the files' schemas.
//!
//! The case records name their fields in their own way; [`adapt`] turns a line into a request record.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod cases;
mod causes;
mod diff;
mod hand_off;
mod index;
mod reading;
pub mod schema;
mod story;
mod table;

use std::path::PathBuf;

use pdreplay::record::{ExecutionMode, ModeReason, Outcome, RequestRecord, RunFacts, SCHEMA_VERSION, WorkerRecord};
use pdreplay::results::{Accumulator, Budgets, Percentiles, RunInfo, RunState, RunSummary, Slos};
use serde_json::Value;

/// A request of one turn that took `e2e_ms`, its first token after `ttft_ms`.
pub fn request(session: &str, turn: u32, at_ms: u64, ttft_ms: f64, e2e_ms: f64) -> RequestRecord {
    let ns = |ms: f64| (ms * 1e6).round() as u64;
    let at = at_ms * 1_000_000;
    RequestRecord {
        schema_version: SCHEMA_VERSION,
        run_id: "test".into(),
        session_id: session.into(),
        turn_id: turn,
        request_id: format!("{session}/{turn}"),
        trace_request_id: None,
        trace_line: 0,
        policy: "kv-aware".into(),
        mechanism: "kvc".into(),
        execution_mode: ExecutionMode::PdRouter,
        mode_reason: ModeReason::Mechanism,
        prefill_worker: None,
        decode_worker_intended: None,
        decode_worker_actual: None,
        route_mismatch: false,
        placements: 0,
        scheduled_ns: at,
        released_ns: Some(at),
        sent_ns: Some(at),
        first_token_ns: Some(at + ns(ttft_ms)),
        last_token_ns: Some(at + ns(e2e_ms)),
        ended_ns: at + ns(e2e_ms),
        ttft_ms: Some(ttft_ms),
        tpot_ms: None,
        e2e_ms: Some(e2e_ms),
        sched_ttft_ms: Some(ttft_ms),
        sched_e2e_ms: Some(e2e_ms),
        wait_previous_turn_ms: Some(0.0),
        queue_cap_wait_ms: Some(0.0),
        schedule_lag_ms: Some(0.0),
        admission_ms: None,
        prefill_queue_ms: None,
        prefill_ms: None,
        kv_transfer_ms: None,
        decode_queue_ms: None,
        input_tokens: 1000,
        append_tokens: 1000,
        output_tokens: 20,
        expected_output_tokens: 20,
        cached_tokens: Some(0),
        index_worker: None,
        index_hit_tokens_device: None,
        index_hit_tokens_host_only: None,
        index_blind: None,
        index_sight: None,
        assumed_hit_tokens: 0,
        ideal_hit_tokens: 0,
        outcome: Outcome::Ok,
        finish_reason: Some("length".into()),
        error_class: None,
        error_message: None,
        http_status: Some(200),
        attempts: 1,
        retry_wait_ms: None,
        retractions: 0,
    }
}

/// A plain run of one prefill and one decode worker in virtual time.
pub fn info(requests: u64, sessions: u64) -> RunInfo {
    RunInfo {
        name: "test".into(),
        trace: "case".into(),
        requests,
        sessions,
        topology: "1P1D".into(),
        mechanism: "pd".into(),
        policy: "default".into(),
        router_policy: "round_robin".into(),
        limits: String::new(),
        time_scale: Some(1.0),
        time_scale_text: "time-scale 1".into(),
        planned_s: None,
        seed: 42,
        driver: "virtual time".into(),
        speed: 1.0,
        state: RunState::Completed,
        rebuilt: false,
        budgets: Budgets { max_bad_share: 0.01, max_schedule_lag_p99_ms: 5.0, max_harness_pause_ms: Some(250.0) },
        slos: Slos::default(),
        workers: Vec::new(),
        slots: None,
        gaps: None,
        predicted_direct_share: None,
        predicted_direct_share_at_least: None,
        caches: None,
    }
}

/// Facts with these workers and nothing else.
pub fn facts(planned: u64, workers: &[(&str, &str)]) -> RunFacts {
    let worker = |(worker, role): &(&str, &str)| WorkerRecord {
        worker: (*worker).into(),
        role: (*role).into(),
        ..WorkerRecord::default()
    };
    RunFacts { planned, workers: workers.iter().map(worker).collect(), ..RunFacts::default() }
}

/// The summary of records on their own.
pub fn summarise(records: &[RequestRecord]) -> RunSummary {
    summarise_with(records, Percentiles::default(), &facts(records.len() as u64, &[]), &info(records.len() as u64, 0))
}

pub fn summarise_with(
    records: &[RequestRecord],
    percentiles: Percentiles,
    facts: &RunFacts,
    info: &RunInfo,
) -> RunSummary {
    let mut accumulator = Accumulator::new(percentiles);
    records.iter().for_each(|record| accumulator.push(record, &[]));
    accumulator.finish(facts, info).unwrap()
}

/// `summary.json` as a value.
pub fn json(summary: &RunSummary) -> Value {
    serde_json::to_value(summary).unwrap()
}

/// A case folder.
pub fn case(folder: &str) -> Option<PathBuf> {
    Some(crate::run::case_path(folder))
}

/// Records of a case file.
pub fn records(folder: &str, file: &str) -> Option<Vec<RequestRecord>> {
    let text = std::fs::read_to_string(case(folder)?.join(file)).unwrap();
    Some(text.lines().map(|line| adapt(&serde_json::from_str(line).unwrap())).collect())
}

fn adapt(line: &Value) -> RequestRecord {
    let text = |key: &str| line[key].as_str().map(String::from);
    let ms = |key: &str| line[key].as_f64().map(|seconds| seconds * 1e3);
    let (sent, end) = (ms("sent_s").unwrap(), ms("end_s").unwrap());
    let first = ms("first_token_s").map(|first| first - sent);
    let turn = line["turn_id"].as_u64().unwrap() as u32;
    let mut record = request(line["session_id"].as_str().unwrap(), turn, 0, 0.0, end - sent);
    let ns = |ms: f64| (ms * 1e6).round() as u64;
    record.request_id = text("request_id").unwrap();
    record.scheduled_ns = ns(ms("scheduled_s").unwrap());
    record.sent_ns = Some(ns(sent));
    record.first_token_ns = first.map(|first| ns(sent + first));
    record.last_token_ns = record.first_token_ns.map(|_| ns(end));
    record.ended_ns = ns(end);
    (record.ttft_ms, record.sched_ttft_ms) = (first, first);
    record.output_tokens = line["output_got"].as_u64().unwrap() as u32;
    record.expected_output_tokens = line["output_wanted"].as_u64().unwrap() as u32;
    record.input_tokens = line["input_length"].as_u64().unwrap_or(1000) as u32;
    record.decode_worker_actual = text("decode_worker");
    record.finish_reason = text("finish_reason");
    record.error_message = text("error");
    record.outcome = serde_json::from_value(line["outcome"].clone()).unwrap();
    record.execution_mode = match line["execution_mode"].as_str().unwrap() {
        "plain" => ExecutionMode::PdRouter,
        label => serde_json::from_value(label.into()).unwrap(),
    };
    record.mode_reason = match record.execution_mode {
        ExecutionMode::FallbackSessionCap => ModeReason::SessionCap,
        ExecutionMode::KvcacheDirectToDSession => ModeReason::Admitted,
        _ => ModeReason::Mechanism,
    };
    record
}
