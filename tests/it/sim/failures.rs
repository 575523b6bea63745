//! Single failures, each contained: one turn, one stream, one open, one transfer, one prefill.

use pdreplay::record::{LedgerKind, ModeReason, Outcome};
use pdreplay::replay::RunStatus;
use pdreplay::sim::SimError;

use super::{EXACT, arrivals, case, conversations, interrupt, near, play, scenario, trace, try_play};

const CASE_25: &str = "
cluster.prefill = 1
cluster.decode = 2
replay.first_turn = 'seed'
fault = [{ kind = 'error-response', session = 's1', turn = 1, status = 500 }]";

#[test]
fn case_25_after_a_failed_turn_the_session_goes_on_or_is_skipped() {
    let text = case("25-after-a-failed-turn/trace.jsonl");
    let undisturbed = play(&trace(&text), &scenario(&[&CASE_25.replace("fault =", "# ")]));
    for policy in ["kv-aware", "sticky"] {
        let policy = format!("policy.name = '{policy}'");
        let played = play(&trace(&text), &scenario(&[CASE_25, &policy]));
        assert_eq!((played.count(Outcome::Ok), played.count(Outcome::Error)), (7, 1));
        assert_eq!((played.path("s1"), played.path("s2")), ("SD!RD".into(), "SDDD".into()));
        assert_eq!(played.reasons("s1")[2], ModeReason::PreviousTurnFailed);
        assert_eq!(played.of("s1", 1).http_status, Some(500));
        for (with, without) in played.session("s2").iter().zip(undisturbed.session("s2")) {
            assert_eq!((with.sent_ns, with.ended_ns), (without.sent_ns, without.ended_ns), "s2 notices nothing");
        }
    }
    let stop = play(&trace(&text), &scenario(&[CASE_25, "replay.on_turn_failure = 'stop-session'"]));
    let counts = [Outcome::Ok, Outcome::Error, Outcome::Skipped].map(|outcome| stop.count(outcome));
    assert_eq!(counts, [5, 1, 2]);
    assert_eq!((stop.path("s1"), stop.path("s2")), ("SD!--".into(), "SDDD".into()));
    assert_eq!(stop.reasons("s1")[2..], [ModeReason::SessionStopped; 2]);
    let run = play(&trace(&text), &scenario(&[CASE_25, "replay.on_turn_failure = 'stop-run'"]));
    assert_eq!(run.count(Outcome::Ok) + run.count(Outcome::Skipped) + run.count(Outcome::Error), 8);
    assert_eq!(run.reasons("s2")[2..], [ModeReason::RunStopped; 2]);
}

const STALL: &str = "
cluster.colocated = 3
replay.mechanism = 'dp'
policy.name = 'default'
replay.stall_timeout_s = 2
fault = [{ kind = 'hang', session = 'q01', after_tokens = 1 }]";

#[test]
fn case_27_a_stalled_stream_ends_after_the_idle_limit() {
    let exact = EXACT.replace("p0 = 50", "p0 = 40").replace("d0 = 50", "d0 = 20");
    let trace = arrivals(3, 0.0, 64, 4);
    let played = play(&trace, &scenario(&[&exact, STALL]));
    near(["q00", "q02"].map(|session| played.of(session, 0).e2e_ms.unwrap()), &[100.0; 2]);
    let stalled = played.of("q01", 0);
    assert_eq!((stalled.outcome, stalled.output_tokens), (Outcome::Timeout, 1));
    near([stalled.ttft_ms.unwrap(), stalled.ended_ns as f64 / 1e6], &[40.0, 2040.0]);
    assert_eq!(stalled.error_message.as_deref(), Some("no data for 2 s"));
    assert_eq!(played.end.facts.duration_ns, 2_040_000_000);
    assert_eq!(scenario(&[]).replay.stall_timeout_s, 120.0, "there is a limit without asking for one");
}

#[test]
fn a_request_that_takes_too_long_keeps_the_tokens_it_had_received() {
    let exact = EXACT.replace("p0 = 50", "p0 = 40").replace("d0 = 50", "d0 = 20");
    let dp = "cluster.colocated = 1\nreplay.mechanism = 'dp'\npolicy.name = 'default'";
    // The first token after 40 ms, the next ones 20 ms apart; a token at the limit is one more.
    for (limit_ms, tokens, last_ms) in [(39, 0, None), (40, 1, Some(40)), (70, 2, Some(60)), (80, 3, Some(80))] {
        let limit = format!("replay.request_timeout_s = {}", f64::from(limit_ms) / 1e3);
        let played = play(&arrivals(1, 0.0, 64, 5), &scenario(&[&exact, dp, &limit]));
        let (record, heard) = (played.of("q00", 0), tokens > 0);
        assert_eq!((record.outcome, record.output_tokens), (Outcome::Timeout, tokens), "{limit}");
        assert_eq!(record.error_class.as_deref(), Some("total-timeout"));
        assert_eq!((record.ended_ns, record.tpot_ms), (limit_ms as u64 * 1_000_000, None), "as long as the limit");
        assert_eq!((record.ttft_ms, record.last_token_ns), (heard.then_some(40.0), last_ms.map(|ms| ms * 1_000_000)));
        assert_eq!((record.http_status, record.cached_tokens), (heard.then_some(200), heard.then_some(0)));
        assert_eq!((record.decode_worker_actual.as_deref(), record.attempts), (Some("W0"), 1));
        assert_eq!(played.end.facts.duration_ns, limit_ms as u64 * 1_000_000);
    }
}

#[test]
fn without_any_limit_a_stalled_stream_is_told_and_not_waited_for() {
    // Load polls would keep the clock running for ever.
    let polls = "policy.name = 'kv-aware'\npolicy.kv_aware.capacity_aware = true";
    for policy in ["policy.name = 'default'", polls] {
        let text =
            STALL.replace("policy.name = 'default'", policy).replace("stall_timeout_s = 2", "stall_timeout_s = 0");
        let error = try_play(&arrivals(3, 0.0, 64, 4), &scenario(&[EXACT, &text])).err().expect("it cannot end");
        assert!(matches!(error, SimError::Stalled { left: 1, planned: 3, .. }), "{error}");
        assert!(error.to_string().contains("replay.stall_timeout_s"), "{error}");
    }
}

#[test]
fn case_55_an_open_that_fails_leaves_nothing_behind() {
    let text = case("55-open-session-fails/trace.jsonl");
    let cluster = "
cluster.prefill = 1
cluster.decode = 2
replay.first_turn = 'seed'
policy.name = 'sticky'
fault = [{ kind = 'open-failure', worker = 'D1', times = 1, status = 503 }]";
    let played = play(&trace(&text), &scenario(&[cluster]));
    played.all_ok();
    assert_eq!(["s0", "s1", "s2", "s3"].map(|session| played.path(session)), ["SDD", "SDD", "SDD", "SDD"]);
    let placements: Vec<_> = ["s0", "s1", "s2", "s3"].map(|session| played.of(session, 0).placements).into();
    assert_eq!(placements, [1, 2, 1, 1]);
    assert_eq!(
        (played.noted(LedgerKind::SessionOpenFailed).len(), played.noted(LedgerKind::SessionOpened).len()),
        (1, 4)
    );
    // With a policy that may go elsewhere the second placement is on the other worker.
    let elsewhere = play(&trace(&text), &scenario(&[&cluster.replace("sticky", "kv-aware")]));
    elsewhere.all_ok();
    assert!(elsewhere.records.iter().any(|record| record.placements == 2));
}

#[test]
fn opens_that_fail_everywhere_fall_back_and_hold_no_slot() {
    let text = case("55-open-session-fails/trace.jsonl");
    let cluster = "
cluster.prefill = 1
cluster.decode = 2
replay.first_turn = 'seed'
fault = [{ kind = 'open-failure', worker = 'D0' }, { kind = 'open-failure', worker = 'D1', status = 500 }]";
    let played = play(&trace(&text), &scenario(&[cluster]));
    played.all_ok();
    for session in ["s0", "s1", "s2", "s3"] {
        assert_eq!(played.path(session), "FFF");
        assert_eq!(played.reasons(session), [ModeReason::OpenFailed; 3]);
        assert!(played.session(session).iter().all(|record| record.placements == 2));
    }
    // Each open takes a slot only while it is under way: two hops for each of the 24.
    let held: u64 = played.end.facts.sessions.iter().map(|session| session.slot_hold_ns).sum();
    assert!(held <= 24 * 20_000_000, "slots were held for {held} ns");
}

#[test]
fn case_57_a_failed_transfer_is_one_error_of_one_pair() {
    let text = case("57-one-failed-transfer/trace.jsonl");
    let cluster = "
cluster.prefill = 2
cluster.decode = 3
replay.mechanism = 'pd'
policy.name = 'default'
fault = [{ kind = 'transfer-failure', worker = 'P0', to = 'D2', at_s = 5, times = 1, after_s = 1 }]";
    let played = play(&trace(&text), &scenario(&[cluster]));
    assert_eq!((played.count(Outcome::Ok), played.count(Outcome::Error)), (59, 1));
    let failed = played.records.iter().find(|record| record.outcome == Outcome::Error).unwrap();
    let pair = |record: &pdreplay::record::RequestRecord| {
        (record.prefill_worker.as_deref() == Some("P0")) && record.decode_worker_actual.as_deref() == Some("D2")
    };
    assert!(pair(failed) && failed.sent_ns.unwrap() >= 5_000_000_000, "{failed:#?}");
    assert!(failed.error_message.as_deref().unwrap().contains("KVTransferError from P0 to D2"));
    let next = played
        .records
        .iter()
        .filter(|record| pair(record) && record.sent_ns > failed.sent_ns)
        .map(|record| record.ended_ns);
    assert!(next.min().unwrap() < failed.ended_ns + 10_000_000_000, "the pair is used again");
    for transfer in &played.end.facts.transfers {
        let is_pair = (transfer.prefill_worker.as_str(), transfer.decode_worker.as_str()) == ("P0", "D2");
        assert_eq!((transfer.transfers, transfer.errors), (10, u64::from(is_pair)), "{transfer:?}");
    }
}

#[test]
fn case_58_a_failed_prefill_frees_the_decode_leg_at_once() {
    let text = case("58-prefill-fails-while-decode-waits/trace.jsonl");
    let cluster = "
cluster.prefill = 1
cluster.decode = 1
cluster.transfer_timeout_s = 30
engine.max_running = 4
replay.mechanism = 'pd'
policy.name = 'default'
fault = [{ kind = 'error-response', worker = 'P0', after_requests = 3, times = 4, status = 500, after_s = 0.02 }]";
    let read = trace(&text);
    let played = play(&read, &scenario(&[cluster]));
    let calm = play(&read, &scenario(&[&cluster.replace("fault =", "# ")]));
    assert_eq!((played.count(Outcome::Ok), played.count(Outcome::Error)), (16, 4));
    for (k, record) in ["q03", "q04", "q05", "q06"].map(|session| played.of(session, 0)).iter().enumerate() {
        assert_eq!((record.http_status, record.output_tokens), (Some(500), 0), "request {}", k + 3);
        assert!(record.e2e_ms.unwrap() < 1000.0, "{record:#?}");
        let words = record.error_message.as_deref().unwrap();
        assert!(words.contains("prefill failed on P0") && words.contains("500"), "{words}");
    }
    for record in played.records.iter().filter(|record| record.outcome.is_ok()) {
        assert_eq!(record.e2e_ms, calm.of(&record.session_id, 0).e2e_ms, "{} is as fast as ever", record.session_id);
    }
    assert!(played.end.facts.workers.iter().all(|worker| worker.queue_peak <= 1 && worker.transfer_errors == 0));
}

#[test]
fn a_run_broken_off_accounts_for_every_request() {
    let trace = conversations(40, 0.01, &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    let mut partial = 0;
    for mechanism in ["dp", "pd", "kvc"] {
        let scenario = scenario(&[&format!("cluster.colocated = 2\nreplay.mechanism = '{mechanism}'")]);
        let whole = play(&trace, &scenario);
        for last in [1, 2, 3] {
            let cut = interrupt(&trace, &scenario, last);
            assert_eq!(cut.end.status, RunStatus::Interrupted, "{mechanism} at look {last}");
            let ended = cut.records.iter().filter(|record| record.outcome.is_ok()).count();
            assert!(ended < 240 && cut.count(Outcome::Skipped) > 0, "{mechanism}: {ended} of 240 were already done");
            assert_eq!(cut.records[..ended], whole.records[..ended], "{mechanism}: up to there it is the same run");
            for record in cut.records.iter().filter(|record| record.outcome == Outcome::Skipped) {
                assert_eq!((record.mode_reason, record.sent_ns), (ModeReason::RunStopped, None));
            }
            for record in cut.records.iter().filter(|record| record.outcome == Outcome::Cancelled) {
                let undisturbed = whole.of(&record.session_id, record.turn_id);
                assert!(record.output_tokens < undisturbed.output_tokens, "{record:#?}");
                if record.output_tokens > 0 {
                    assert_eq!(record.first_token_ns, undisturbed.first_token_ns, "{record:#?}");
                    assert_eq!(record.decode_worker_actual, undisturbed.decode_worker_actual, "{record:#?}");
                    partial += 1;
                }
            }
        }
    }
    assert!(partial > 0, "some were broken off in the middle of their answers");
}
