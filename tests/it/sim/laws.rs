//! What holds for every run: nothing vanishes, nothing overlaps, nothing ends before it began.

use std::collections::BTreeSet;

use pdreplay::record::{ExecutionMode, Outcome, RequestRecord};
use pdreplay::replay::Schedule;
use pdreplay::scenario::Scenario;
use pdreplay::trace::Trace;

use super::Played;

pub fn check(trace: &Trace, scenario: &Scenario, played: &Played) {
    one_record_each(trace, played);
    played.records.iter().for_each(check_record);
    played.records.iter().zip(&played.tokens).for_each(|(record, runs)| {
        let count: u64 = runs.iter().map(|run| u64::from(run.count)).sum();
        assert_eq!(count, u64::from(record.output_tokens), "tokens of {}", record.request_id);
        assert_eq!(runs.first().map(|run| run.first.ns()), record.first_token_ns, "{}", record.request_id);
    });
    turns_follow_each_other(trace, scenario, played);
    workers(scenario, played);
    sessions(played);
    assert!(played.ledger.windows(2).all(|pair| pair[0].at_ns <= pair[1].at_ns), "the ledger is in order of time");
    assert!(played.records.windows(2).all(|pair| pair[0].ended_ns <= pair[1].ended_ns), "records are in order of ends");
}

fn one_record_each(trace: &Trace, played: &Played) {
    let planned = trace.turns.len();
    assert_eq!(played.end.facts.planned, planned as u64);
    let by_outcome: usize = Outcome::ALL.iter().map(|outcome| played.count(*outcome)).sum();
    assert_eq!((played.records.len(), by_outcome), (planned, planned), "planned = the sum of all outcomes");
    let ids: BTreeSet<&str> = played.records.iter().map(|record| record.request_id.as_str()).collect();
    assert_eq!(ids.len(), planned, "one record per request");
    let facts = &played.end.facts.sessions;
    assert_eq!(facts.len(), trace.sessions.len());
    assert!(facts.iter().zip(1..).all(|(session, rank)| session.arrival_rank == rank));
}

fn check_record(record: &RequestRecord) {
    let times = [
        Some(record.scheduled_ns),
        record.released_ns,
        record.sent_ns,
        record.first_token_ns,
        record.last_token_ns,
        Some(record.ended_ns),
    ];
    let known: Vec<u64> = times.into_iter().flatten().collect();
    // What was skipped or cancelled before it was due has a schedule in the future.
    let unsent = record.sent_ns.is_none();
    assert!(unsent || known.is_sorted(), "times run backwards: {record:#?}");
    // Cancelled while an admission or open call was on its way: sent, but no path was taken yet.
    let no_path = record.execution_mode == ExecutionMode::NotSent;
    assert!(no_path == unsent || (no_path && record.outcome == Outcome::Cancelled), "{record:#?}");
    assert_eq!(record.first_token_ns.is_some(), record.output_tokens > 0, "{record:#?}");
    assert_eq!(record.first_token_ns.is_some(), record.last_token_ns.is_some(), "{record:#?}");
    let phases = [
        record.admission_ms,
        record.prefill_queue_ms,
        record.prefill_ms,
        record.kv_transfer_ms,
        record.decode_queue_ms,
    ];
    let waits = [record.wait_previous_turn_ms, record.queue_cap_wait_ms, record.schedule_lag_ms];
    let latencies = [record.ttft_ms, record.tpot_ms, record.e2e_ms, record.sched_ttft_ms, record.sched_e2e_ms];
    for value in phases.iter().chain(&waits).chain(&latencies).flatten() {
        assert!(value.is_finite() && *value >= 0.0, "{value} in {record:#?}");
    }
    if let Some(ttft) = record.ttft_ms {
        let spent: f64 = phases.iter().flatten().sum();
        assert!(spent <= ttft + 1e-6, "phases take {spent} of {ttft} ms: {record:#?}");
    }
    assert!(record.schedule_lag_ms.is_none_or(|lag| lag == 0.0), "virtual time is never late: {record:#?}");
    match record.outcome {
        Outcome::Ok => {
            assert_eq!(record.output_tokens, record.expected_output_tokens, "{record:#?}");
            assert!(record.error_class.is_none() && record.error_message.is_none(), "{record:#?}");
        }
        Outcome::Truncated | Outcome::Aborted | Outcome::Error | Outcome::Timeout => {
            assert!(record.error_class.is_some() && record.error_message.is_some(), "no cause: {record:#?}");
        }
        Outcome::Skipped => assert!(unsent, "{record:#?}"),
        Outcome::Cancelled => {}
    }
    let differs = record.decode_worker_intended.is_some()
        && record.decode_worker_actual.is_some()
        && record.decode_worker_intended != record.decode_worker_actual;
    assert_eq!(record.route_mismatch, differs, "{record:#?}");
    if matches!(record.execution_mode, ExecutionMode::KvcacheDirectToDSession | ExecutionMode::DpColocated) {
        assert!(record.prefill_worker.is_none() && record.kv_transfer_ms.is_none(), "nothing moves: {record:#?}");
    }
    assert!(record.output_tokens <= record.expected_output_tokens, "{record:#?}");
    assert!(record.cached_tokens.unwrap_or(0) <= record.input_tokens, "{record:#?}");
    assert!(record.append_tokens <= record.input_tokens, "{record:#?}");
    assert!(record.attempts <= 1, "no hidden retries: {record:#?}");
}

fn turns_follow_each_other(trace: &Trace, scenario: &Scenario, played: &Played) {
    match scenario.replay.schedule {
        Schedule::Open | Schedule::Think => {}
        Schedule::OpenStrict => return,
    }
    for session in &trace.sessions {
        let records = played.session(&session.id);
        assert_eq!(records.len(), session.turns.len(), "records of {}", session.id);
        let sent: Vec<_> = records.iter().filter(|record| record.sent_ns.is_some()).collect();
        for pair in sent.windows(2) {
            assert!(pair[1].sent_ns.unwrap() >= pair[0].ended_ns, "{} overtakes", pair[1].request_id);
            assert!(pair[1].released_ns.unwrap() >= pair[0].ended_ns, "{} is released early", pair[1].request_id);
        }
    }
}

fn workers(scenario: &Scenario, played: &Played) {
    let cluster = &scenario.cluster;
    let count = usize::from(cluster.prefill) + usize::from(cluster.decode) + usize::from(cluster.colocated);
    assert_eq!(played.end.facts.workers.len(), count, "every configured worker is accounted for");
    for worker in &played.end.facts.workers {
        for share in [worker.usage_mean, worker.usage_peak, worker.busy_share] {
            assert!((0.0..=1.0).contains(&share), "{share} in {worker:#?}");
        }
        assert!(worker.usage_mean <= worker.usage_peak, "{worker:#?}");
        let is_prefill = worker.role == "prefill";
        let stalled = [worker.stalled_by_link_share, worker.stalled_by_room_share];
        assert!(stalled.iter().all(|share| share.is_some() == is_prefill), "{worker:#?}");
        assert_eq!(worker.link_busy_share.is_none(), worker.role == "colocated", "{worker:#?}");
        let [by_link, by_room] = stalled.map(|share| share.unwrap_or(0.0));
        assert!(by_link <= worker.link_busy_share.unwrap_or(0.0) + 1e-9, "{worker:#?}");
        assert!(by_link + by_room + worker.busy_share <= 1.0 + 1e-9, "it computes or stands still: {worker:#?}");
    }
    let made: u64 = played.end.facts.workers.iter().map(|worker| worker.output_tokens).sum();
    let got: u64 = played.records.iter().filter(|r| r.outcome.is_ok()).map(|r| u64::from(r.output_tokens)).sum();
    assert!(got <= made, "{got} tokens were received, {made} made");
    for pair in &played.end.facts.transfers {
        assert!(pair.errors <= pair.transfers, "{pair:#?}");
    }
}

fn sessions(played: &Played) {
    for session in &played.end.facts.sessions {
        assert!(session.slot_hold_ns <= played.end.facts.duration_ns, "{session:#?}");
        assert!(session.migrations < session.planned_turns.max(1), "{session:#?}");
        assert!(session.seed_rejections <= session.seed_asks, "{session:#?}");
        assert!(session.slot_after_end_ns.unwrap() <= session.slot_hold_ns, "{session:#?}");
        assert!(session.refused_by_ended.unwrap() <= session.seed_rejections, "{session:#?}");
        assert!(session.usage_when_asked.is_none_or(|usage| usage.is_finite() && usage >= 0.0), "{session:#?}");
    }
}
