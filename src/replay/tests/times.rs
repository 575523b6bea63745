//! Cases of areas B and C: when turns are sent, what they waited for, what follows a failure.

use super::fake::{Fake, Run, config, dur, run, run_watched, secs, trace};
use crate::base::RequestIx;
use crate::policies::PolicyName;
use crate::record::{ModeReason, Outcome, RequestRecord};
use crate::replay::{Mechanism, OnTurnFailure, ReplayerConfig, Schedule};

fn plain() -> ReplayerConfig {
    let mut plain = config(PolicyName::Default, 2);
    plain.replay.mechanism = Mechanism::Pd;
    plain
}

fn sent(records: &[RequestRecord]) -> Vec<(String, f64)> {
    let mut sent: Vec<_> = records.iter().filter_map(|r| Some((r.sent_ns?, r.session_id.clone()))).collect();
    sent.sort();
    sent.into_iter().map(|(at, id)| (id, at as f64 / 1e9)).collect()
}

fn starts(records: &[RequestRecord], session: &str) -> Vec<f64> {
    sent(records).into_iter().filter(|(id, _)| id == session).map(|(_, at)| at).collect()
}

#[test]
fn case_10_equal_times_keep_their_order() {
    let trace = trace(&[
        ("b", vec![(0, 0.0, 100, 10)]),
        ("c", vec![(0, 1.5, 100, 10)]),
        ("d", vec![(0, 1.5, 100, 10)]),
        ("a", vec![(0, 3.0, 100, 10)]),
    ]);
    let run = run(&trace, plain(), Fake::new(2, 0.05));
    let order: Vec<_> = sent(&run.records);
    assert_eq!(order, [("b".into(), 0.0), ("c".into(), 1.5), ("d".into(), 1.5), ("a".into(), 3.0)]);
    assert_eq!(run.outcomes()["ok"], 4);
}

#[test]
fn case_20_scale_and_gap_limit() {
    let trace = trace(&[("s", vec![(0, 0.0, 128, 10), (1, 120.0, 192, 10), (2, 240.0, 256, 10)])]);
    let mut scaled = plain();
    scaled.replay.arrival_scale = 10.0;
    scaled.replay.think_scale = 10.0;
    scaled.replay.request_timeout_s = 8.0;
    let whole = run(&trace, scaled.clone(), Fake::new(2, 0.5));
    assert_eq!(starts(&whole.records, "s"), [0.0, 12.0, 24.0]);
    assert_eq!(whole.outcomes()["ok"], 3);
    scaled.replay.max_gap_s = 5.0;
    let cut = run(&trace, scaled.clone(), Fake::new(2, 0.5));
    assert_eq!(starts(&cut.records, "s"), [0.0, 5.0, 10.0]);
    scaled.replay.request_timeout_s = 0.4;
    let timed_out = run(&trace, scaled, Fake::new(2, 0.5));
    assert_eq!(timed_out.outcomes()["timeout"], 3);
    let first = timed_out.of("s", 0);
    assert_eq!(first.error_class.as_deref(), Some("total-timeout"));
    assert_eq!(first.e2e_ms, Some(400.0));
}

#[test]
fn an_infinite_scale_leaves_causality_only() {
    let trace = trace(&[
        ("a", vec![(0, 0.0, 64, 10), (1, 100.0, 128, 10)]),
        ("b", vec![(0, 50.0, 64, 10), (1, 60.0, 128, 10)]),
    ]);
    let mut fast = plain();
    fast.replay.arrival_scale = f64::INFINITY;
    fast.replay.think_scale = f64::INFINITY;
    let run = run(&trace, fast, Fake::new(2, 0.5));
    assert_eq!(starts(&run.records, "a"), [0.0, 0.5]);
    assert_eq!(starts(&run.records, "b"), [0.0, 0.5]);
}

#[test]
fn case_21_no_drift() {
    let sessions: Vec<(String, f64)> = (0..200).map(|i| (format!("q{i:03}"), f64::from(i) * 0.005)).collect();
    let rows: Vec<_> = sessions.iter().map(|(id, at)| (id.as_str(), vec![(0, *at, 64, 10)])).collect();
    let run = run(&trace(&rows), plain(), Fake::new(2, 0.0));
    let last = sent(&run.records).pop().unwrap();
    assert_eq!(last, ("q199".into(), 0.995));
    assert!(run.records.iter().all(|record| record.schedule_lag_ms == Some(0.0)));
}

#[test]
fn case_22_the_wait_for_a_slot_is_in_the_record() {
    let sessions: Vec<_> = (0..6).map(|i| format!("q{i}")).collect();
    let rows: Vec<_> =
        sessions.iter().enumerate().map(|(i, id)| (id.as_str(), vec![(0, 0.2 * i as f64, 64, 10)])).collect();
    let mut one = plain();
    one.replay.concurrency = 1;
    let run = run(&trace(&rows), one, Fake::new(2, 0.5));
    let field = |pick: fn(&RequestRecord) -> Option<f64>| -> Vec<f64> {
        sessions.iter().map(|id| pick(run.of(id, 0)).unwrap().round()).collect()
    };
    assert_eq!(field(|r| r.queue_cap_wait_ms), [0.0, 300.0, 600.0, 900.0, 1200.0, 1500.0]);
    assert_eq!(field(|r| r.e2e_ms), [500.0; 6]);
    assert_eq!(field(|r| r.sched_e2e_ms), [500.0, 800.0, 1100.0, 1400.0, 1700.0, 2000.0]);
    assert_eq!(field(|r| r.schedule_lag_ms), [0.0; 6]);
    assert_eq!(field(|r| r.wait_previous_turn_ms), [0.0; 6]);
}

#[test]
fn case_24_the_next_turn_waits_for_the_last() {
    let trace =
        trace(&[("A", vec![(0, 0.0, 64, 10), (1, 1.0, 128, 10), (2, 2.0, 192, 10)]), ("B", vec![(0, 0.5, 64, 10)])]);
    let mut fake = Fake::new(2, 1.7);
    fake.slow.insert(RequestIx(3), dur(0.1));
    let run = run(&trace, plain(), fake);
    assert_eq!(starts(&run.records, "A"), [0.0, 1.7, 3.4]);
    assert_eq!(starts(&run.records, "B"), [0.5]);
    let waits: Vec<_> = (0..3).map(|turn| run.of("A", turn).wait_previous_turn_ms.unwrap().round()).collect();
    assert_eq!(waits, [0.0, 700.0, 1400.0]);
    assert!(run.records.iter().all(|r| r.queue_cap_wait_ms == Some(0.0) && r.schedule_lag_ms == Some(0.0)));
}

#[test]
fn think_keeps_the_pause_and_strict_overlaps() {
    let trace = trace(&[("A", vec![(0, 0.0, 64, 85), (1, 4.0, 192, 85), (2, 5.0, 320, 10)])]);
    let mut think = plain();
    think.replay.schedule = Schedule::Think;
    // Recorded gaps 4 and 1 s, estimated service 0.8 + 85/85 = 1.8 s: pauses of 2.2 and 0 s.
    let paused = run(&trace, think, Fake::new(2, 0.5));
    assert_eq!(starts(&paused.records, "A"), [0.0, 2.7, 3.2]);
    let mut strict = plain();
    strict.replay.schedule = Schedule::OpenStrict;
    let overlapping = run(&trace, strict, Fake::new(2, 9.0));
    assert_eq!(starts(&overlapping.records, "A"), [0.0, 4.0, 5.0]);
    assert_eq!(overlapping.end, secs(14.0));
}

#[test]
fn sessions_wait_for_a_place_in_order() {
    let trace = trace(&[
        ("a", vec![(0, 0.0, 64, 10), (1, 3.0, 128, 10)]),
        ("b", vec![(0, 1.0, 64, 10)]),
        ("c", vec![(0, 1.5, 64, 10), (1, 2.0, 128, 10)]),
    ]);
    for schedule in [Schedule::Open, Schedule::OpenStrict] {
        let mut one = plain();
        one.replay.max_sessions = 1;
        one.replay.schedule = schedule;
        let run = run(&trace, one, Fake::new(2, 0.5));
        assert_eq!(starts(&run.records, "a"), [0.0, 3.0]);
        assert_eq!(starts(&run.records, "b"), [3.5]);
        assert_eq!(run.of("b", 0).queue_cap_wait_ms, Some(2500.0));
        assert_eq!(run.of("c", 0).queue_cap_wait_ms, Some(2500.0));
        assert_eq!(starts(&run.records, "c")[0], 4.0);
        assert!(run.records.iter().all(|record| record.schedule_lag_ms == Some(0.0)), "{schedule:?}");
    }
}

#[test]
fn jitter_moves_arrivals_by_the_seed_alone() {
    let trace = trace(&[("a", vec![(0, 0.0, 64, 10)]), ("b", vec![(0, 0.0, 64, 10)])]);
    let at = |seed| {
        let mut jittered = plain();
        jittered.replay.arrival_jitter_ms = 1.0;
        jittered.seed = seed;
        let mut starts = sent(&run(&trace, jittered, Fake::new(2, 0.5)).records);
        starts.sort_by(|a, b| a.0.cmp(&b.0));
        starts
    };
    assert_eq!(at(1), at(1));
    assert_ne!(at(1), at(2));
    assert_ne!(at(1)[0].1, at(1)[1].1);
    assert!(at(1).iter().all(|(_, at)| *at <= 0.001));
}

fn two_sessions_of_four() -> crate::trace::Trace {
    let rows = |offset: f64| (0..4).map(|k| (k, offset + 2.0 * f64::from(k), 64 * (k + 1), 10)).collect::<Vec<_>>();
    trace(&[("s1", rows(0.0)), ("s2", rows(0.1))])
}

#[test]
fn case_25_after_a_failed_turn_the_session_goes_on() {
    let trace = two_sessions_of_four();
    let mut fake = Fake::new(2, 0.5);
    fake.failing.insert(RequestIx(1));
    let run = run(&trace, config(PolicyName::Sticky, 2), fake);
    assert_eq!((run.outcomes()["ok"], run.outcomes()["error"]), (7, 1));
    assert_eq!(run.modes("s1"), ["pd-router-turn1", "kvcache-seed", "kvcache-reseed", "kvcache-direct-to-d-session"]);
    assert_eq!(run.of("s1", 2).mode_reason, ModeReason::PreviousTurnFailed);
    assert_eq!(starts(&run.records, "s2"), [0.1, 2.1, 4.1, 6.1]);
}

#[test]
fn case_25_or_the_session_stops_or_the_run() {
    let trace = two_sessions_of_four();
    let mut fake = Fake::new(2, 0.5);
    fake.failing.insert(RequestIx(1));
    let mut stop = config(PolicyName::Sticky, 2);
    stop.replay.on_turn_failure = OnTurnFailure::StopSession;
    let stopped = run(&trace, stop.clone(), fake);
    assert_eq!(stopped.outcomes(), [("error", 1), ("ok", 5), ("skipped", 2)].into());
    assert_eq!(stopped.of("s1", 3).mode_reason, ModeReason::SessionStopped);
    let holds = &stopped.facts.sessions[0];
    assert!(holds.slot_hold_ns < 10_000_000, "its slot is free: {holds:?}");
    let mut fake = Fake::new(2, 0.5);
    fake.failing.insert(RequestIx(1));
    stop.replay.on_turn_failure = OnTurnFailure::StopRun;
    let stopped = run(&trace, stop, fake);
    // s1 and s2 have run their first turns; s1's second failed before s2's was due.
    assert_eq!(stopped.outcomes(), [("error", 1), ("ok", 2), ("skipped", 5)].into());
}

#[test]
fn case_27_a_stalled_stream_ends_at_the_limit() {
    let trace = trace(&[("a", vec![(0, 0.0, 64, 10)]), ("b", vec![(0, 0.0, 64, 10)]), ("c", vec![(0, 0.0, 64, 10)])]);
    let mut fake = Fake::new(2, 0.1);
    fake.hanging.insert(RequestIx(1));
    let mut limited = plain();
    limited.replay.stall_timeout_s = 2.0;
    let run = run(&trace, limited, fake);
    assert_eq!(run.end, secs(2.04));
    let stalled = run.of("b", 0);
    assert_eq!(stalled.outcome, Outcome::Timeout);
    assert_eq!(stalled.error_class.as_deref(), Some("stalled"));
    assert_eq!(stalled.error_message.as_deref(), Some("no data for 2 s"));
    assert_eq!((stalled.ttft_ms, stalled.output_tokens, stalled.tpot_ms), (Some(40.0), 1, None));
    assert_eq!(run.outcomes()["ok"], 2);
}

#[test]
fn case_93_an_interrupt_leaves_a_record_of_everything() {
    let trace = two_sessions_of_four();
    let mut at_most_one = config(PolicyName::Sticky, 2);
    at_most_one.replay.concurrency = 1;
    let mut done = false;
    let run = run_watched(&trace, at_most_one, Fake::new(2, 0.5), |now, replayer| {
        if now >= secs(4.1) && !done {
            done = true;
            replayer.interrupt(now);
        }
    });
    assert_eq!(run.outcomes(), [("cancelled", 1), ("ok", 4), ("skipped", 3)].into());
    assert!(run.fake.workers.iter().all(|worker| worker.sessions.is_empty()), "sessions are closed");
}

/// At 4.1 s both sessions have a turn in flight, or a call under way: nothing new leaves, and at most so long a wait
/// follows for what is on the wire.
fn drained(service_s: f64, longest_s: f64) -> (Run, usize) {
    let trace = two_sessions_of_four();
    let mut sent = 0;
    let mut sent_at_drain = None;
    let run = run_watched(&trace, config(PolicyName::Sticky, 2), Fake::new(2, service_s), |now, replayer| {
        sent = replayer.router_sends as usize;
        if now >= secs(4.1) {
            sent_at_drain.get_or_insert(sent);
            replayer.drain(now);
        }
        if now >= secs(4.1 + longest_s) {
            replayer.interrupt(now);
        }
    });
    (run, sent - sent_at_drain.unwrap())
}

#[test]
fn a_drain_lets_what_is_in_flight_end_and_sends_nothing_more() {
    let (run, sent_after) = drained(0.5, 10.0);
    assert_eq!(sent_after, 0);
    // The turn that still asked for admission is cancelled, the one on the wire ends by itself.
    assert_eq!(run.outcomes(), [("cancelled", 1), ("ok", 5), ("skipped", 2)].into());
    assert!(run.end > secs(4.1));
    assert!(run.fake.workers.iter().all(|worker| worker.sessions.is_empty()), "sessions are closed");
}

#[test]
fn what_outlasts_the_drain_is_cancelled() {
    let (run, _) = drained(100.0, 1.0);
    assert_eq!(run.outcomes(), [("cancelled", 2), ("skipped", 6)].into());
}
