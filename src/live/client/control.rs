//! Control calls: sessions, admission, loads, health. Each ends within the limit of control calls, in exactly one word.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde::Serialize;
use serde_json::Value;
use tokio::time::timeout;

use crate::base::{SessionIx, WorkerId};
use crate::live::Dialect;
use crate::live::api::{
    ADMIT_PATH, AdmitBody, AdmitReply, CloseBody, INCARNATION_HEADER, LoadEntry, LoadsReply, OpenBody,
};
use crate::live::client::line::Line;
use crate::live::client::reply::Reply;
use crate::live::client::words::{self, Words};
use crate::protocol::{AdmitAnswer, AdmitAsk, AdmitKind, AdmitReason, CallError, LoadReport, WorkerState};

/// SGLang requires the field and never looks at it.
const ANY_CAPACITY: u64 = 1 << 30;

/// Looks at workers beside the run. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Looker {
    line: Arc<Line>,
}

impl Looker {
    pub(super) fn new(line: Arc<Line>) -> Looker {
        Looker { line }
    }

    /// Whether a worker serves, and as which process. Legs that the client joins itself avoid a worker that does not.
    pub async fn look(&self, worker: WorkerId) -> WorkerState {
        let state = self.seen(worker).await;
        self.line.set_up(worker, matches!(state, WorkerState::Up { .. }));
        state
    }

    async fn seen(&self, worker: WorkerId) -> WorkerState {
        // SGLang's /health runs a token through an idle engine; /ready (0.5.23) does not.
        let paths: &[&str] = match (self.line.target.emulated, self.line.target.dialect) {
            (true, _) => &["/health"],
            (false, Dialect::Generate) => &["/ready", "/health"],
            (false, Dialect::OpenAi(_)) => &["/health", "/v1/models"],
        };
        for path in paths {
            match call(&self.line, worker, path, None).await {
                Err(_) => return WorkerState::Down,
                Ok(reply) if reply.status == 404 => {}
                Ok(reply) if reply.status < 500 => {
                    let incarnation = self.line.incarnation(worker, reply.header(INCARNATION_HEADER));
                    return WorkerState::Up { incarnation };
                }
                Ok(_) => return WorkerState::Down,
            }
        }
        // It answers, if only that it knows no such path.
        WorkerState::Up { incarnation: self.line.incarnation(worker, None) }
    }

    /// HTTP to the same target, for probes.
    pub fn http(&self) -> &super::Http {
        &self.line.http
    }
}

/// GET, or POST of a body, on a worker. A refused connection means that its process is gone.
async fn call(line: &Line, worker: WorkerId, path: &str, body: Option<Vec<u8>>) -> Result<Reply, CallError> {
    let missing = || CallError { status: None, message: format!("the target has no {worker}") };
    let url = line.url(worker, path).ok_or_else(missing)?;
    let result = match body {
        Some(body) => line.http.post(&url, body).await,
        None => line.http.get(&url).await,
    };
    result.map_err(|error| {
        line.failed_at(worker, &error.message);
        CallError { message: format!("{worker}: {}", error.message), ..error }
    })
}

/// A POST that must be answered with 200.
async fn post<B: Serialize>(line: &Line, worker: WorkerId, path: &str, body: &B) -> Result<Reply, CallError> {
    let json = serde_json::to_vec(body).expect("bodies of control calls are plain data");
    let reply = call(line, worker, path, Some(json)).await?;
    if reply.is_ok() {
        return Ok(reply);
    }
    let words = Words::of_body(&reply.body).message;
    let message = if words.is_empty() { format!("HTTP {} for {path}", reply.status) } else { words };
    Err(CallError { status: Some(reply.status), message: format!("{worker}: {message}") })
}

/// `/open_session`: the incarnation of the worker that holds it now.
pub(super) async fn open(line: &Line, worker: WorkerId, session: &str) -> Result<u32, CallError> {
    let body = OpenBody {
        capacity_of_str_len: ANY_CAPACITY,
        session_id: Some(session.to_owned()),
        streaming: true,
        timeout: None,
    };
    let reply = post(line, worker, "/open_session", &body).await?;
    let opened: Option<String> = serde_json::from_slice(&reply.body).ok();
    if opened.as_deref() != Some(session) {
        let got = words::short(&String::from_utf8_lossy(&reply.body));
        let message = format!("{worker}: open_session answered `{got}` instead of the session's id");
        return Err(CallError { status: Some(reply.status), message });
    }
    Ok(line.incarnation(worker, reply.header(INCARNATION_HEADER)))
}

/// `/close_session`. Nobody waits for what it says.
pub(super) async fn close(line: &Line, worker: WorkerId, session: &str) {
    let _ = post(line, worker, "/close_session", &CloseBody { session_id: session.to_owned() }).await;
}

/// Admission.
pub(super) async fn admit(
    line: &Line,
    worker: WorkerId,
    session: &str,
    ask: AdmitAsk,
) -> Result<AdmitAnswer, CallError> {
    let kind = match ask.kind {
        AdmitKind::Append => "append",
        AdmitKind::Seed => "seed",
    };
    let body = AdmitBody {
        session_id: session.to_owned(),
        kind: kind.to_owned(),
        append_tokens: ask.append_tokens,
        output_tokens: ask.output_tokens,
    };
    let reply = post(line, worker, ADMIT_PATH, &body).await?;
    let answer: AdmitReply = serde_json::from_slice(&reply.body).map_err(|error| CallError {
        status: Some(reply.status),
        message: format!("{worker}: the answer on admission cannot be read: {error}"),
    })?;
    let evicted: Vec<SessionIx> = answer.evicted.iter().filter_map(|id| line.session(id)).collect();
    Ok(AdmitAnswer {
        can_admit: answer.can_admit,
        reason: reason(&answer),
        available_tokens: answer.available_tokens,
        capacity_tokens: answer.capacity_tokens,
        evicted,
        incarnation: line.incarnation(worker, reply.header(INCARNATION_HEADER)),
    })
}

/// Our own labels, else what other servers' words come nearest to.
fn reason(answer: &AdmitReply) -> AdmitReason {
    let words = answer.reason.to_ascii_lowercase();
    let has = |text: &str| words.contains(text);
    match (answer.can_admit, answer.evicted.is_empty()) {
        (true, true) if !has("after-trim") => AdmitReason::Fits,
        (true, _) => AdmitReason::FitsAfterTrim,
        (false, _) if has("session") && (has("not-found") || has("not found") || has("not exist")) => {
            AdmitReason::SessionNotFound
        }
        (false, _) if has("busy") || has("active request") || has("in flight") => AdmitReason::SessionBusy,
        (false, _) => AdmitReason::NoCapacity,
    }
}

/// Loads of every worker that tells, at once.
pub(super) async fn loads(line: &Line) -> Vec<LoadReport> {
    let workers = line.target.addresses.workers().map(|(worker, _)| load(line, worker));
    join_all(workers).await.into_iter().flatten().collect()
}

/// Loads of every worker that tells within so long, at once.
pub(super) async fn loads_within(line: &Line, bound: Duration) -> Vec<LoadReport> {
    let workers = line.target.addresses.workers().map(|(worker, _)| timeout(bound, load(line, worker)));
    join_all(workers).await.into_iter().flatten().flatten().collect()
}

async fn load(line: &Line, worker: WorkerId) -> Option<LoadReport> {
    let reply = call(line, worker, "/v1/loads", None).await.ok()?;
    if reply.is_ok() {
        let loads: LoadsReply = serde_json::from_slice(&reply.body).ok()?;
        return report(worker, &loads.loads);
    }
    if reply.status != 404 {
        return None;
    }
    // SGLang 0.5.10.
    let reply = call(line, worker, "/get_load", None).await.ok().filter(Reply::is_ok)?;
    old_report(worker, &serde_json::from_slice(&reply.body).ok()?)
}

/// Sums the DP ranks of a worker. A D counts what waits for KV among what waits; here those are apart.
fn report(worker: WorkerId, ranks: &[LoadEntry]) -> Option<LoadReport> {
    let sum = |of: fn(&LoadEntry) -> u64| ranks.iter().map(of).sum::<u64>();
    let count = |of: fn(&LoadEntry) -> u64| u32::try_from(sum(of)).unwrap_or(u32::MAX);
    let capacity = sum(|rank| rank.max_total_num_tokens);
    let weigh = |rank: &LoadEntry| rank.token_usage * rank.max_total_num_tokens.max(1) as f64;
    let weights = ranks.iter().map(|rank| rank.max_total_num_tokens.max(1)).sum::<u64>();
    let prealloc = count(|rank| rank.disaggregation.decode_prealloc_queue_reqs.into());
    let transfer = count(|rank| rank.disaggregation.decode_transfer_queue_reqs.into());
    (!ranks.is_empty()).then(|| LoadReport {
        worker,
        token_usage: ranks.iter().map(weigh).sum::<f64>() / weights as f64,
        capacity_tokens: capacity,
        num_running: count(|rank| rank.num_running_reqs.into()),
        num_waiting: count(|rank| rank.num_waiting_reqs.into()).saturating_sub(prealloc.saturating_add(transfer)),
        num_prealloc: prealloc,
        num_transfer: transfer,
    })
}

/// `/get_load` of SGLang 0.5.10: counts alone, `num_reqs` with those that wait; it names no capacity, so no use either.
fn old_report(worker: WorkerId, ranks: &Value) -> Option<LoadReport> {
    let ranks = ranks.as_array().filter(|ranks| !ranks.is_empty())?;
    let sum = |name: &str| ranks.iter().filter_map(|rank| rank.get(name)?.as_u64()).sum::<u64>();
    let count = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let waiting = sum("num_waiting_reqs");
    Some(LoadReport {
        worker,
        token_usage: 0.0,
        capacity_tokens: 0,
        num_running: count(sum("num_reqs").saturating_sub(waiting)),
        num_waiting: count(waiting),
        num_prealloc: 0,
        num_transfer: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::api::DisaggregationLoad;

    #[test]
    fn ranks_add_up_and_what_waits_for_kv_is_apart() {
        let rank = |usage: f64, max, waiting, prealloc, transfer| LoadEntry {
            num_running_reqs: 3,
            num_waiting_reqs: waiting,
            token_usage: usage,
            max_total_num_tokens: max,
            disaggregation: DisaggregationLoad {
                decode_prealloc_queue_reqs: prealloc,
                decode_transfer_queue_reqs: transfer,
                ..DisaggregationLoad::default()
            },
            ..LoadEntry::default()
        };
        let d0 = "D0".parse().unwrap();
        let report = report(d0, &[rank(0.5, 1000, 7, 2, 1), rank(1.0, 3000, 0, 0, 0)]).unwrap();
        assert_eq!((report.num_running, report.num_waiting, report.num_prealloc, report.num_transfer), (6, 4, 2, 1));
        assert_eq!((report.token_usage, report.capacity_tokens), (0.875, 4000));
        let old = old_report(d0, &serde_json::json!([{"dp_rank":0,"num_reqs":9,"num_waiting_reqs":4,"num_tokens":1}]));
        let old = old.unwrap();
        assert_eq!((old.num_running, old.num_waiting, old.capacity_tokens), (5, 4, 0));
    }

    #[test]
    fn an_answer_without_a_verdict_is_no_admission() {
        let read = serde_json::from_str::<AdmitReply>;
        assert!(read("{\"can_admit\":false}").is_ok());
        assert!(read("{}").is_err() && read("{\"admit\":\"yes\"}").is_err());
    }

    #[test]
    fn reasons_of_other_servers_find_their_nearest() {
        let of = |can_admit, reason: &str, evicted: &[&str]| {
            let evicted = evicted.iter().map(|id| (*id).to_owned()).collect();
            super::reason(&AdmitReply { can_admit, reason: reason.into(), evicted, ..AdmitReply::default() })
        };
        assert_eq!(of(true, "ok", &[]), AdmitReason::Fits);
        assert_eq!(of(true, "fits-after-trim", &[]), AdmitReason::FitsAfterTrim);
        assert_eq!(of(true, "", &["s"]), AdmitReason::FitsAfterTrim);
        assert_eq!(of(false, "session-not-found", &[]), AdmitReason::SessionNotFound);
        assert_eq!(of(false, "session-busy", &[]), AdmitReason::SessionBusy);
        assert_eq!(of(false, "no-capacity", &[]), AdmitReason::NoCapacity);
        assert_eq!(of(false, "pool full", &[]), AdmitReason::NoCapacity);
    }
}
