//! When requests are due, what holds them back, and how both are told apart from the server's time.

use pdreplay::base::Dur;
use pdreplay::record::RequestRecord;

use super::{EXACT, arrivals, case, near, play, scenario, sent_s, trace};

const ONE: &str = "cluster.colocated = 1\nreplay.mechanism = 'dp'\npolicy.name = 'default'";

fn by_arrival(records: &[RequestRecord]) -> Vec<&RequestRecord> {
    let mut records: Vec<_> = records.iter().collect();
    records.sort_by_key(|record| (record.scheduled_ns, record.trace_line));
    records
}

#[test]
fn case_21_two_hundred_sends_are_all_on_time() {
    let text = case("21-schedule-drift/trace.jsonl");
    let played = play(&trace(&text), &scenario(&[ONE]));
    let records = by_arrival(&played.records);
    assert_eq!(records.len(), 200);
    for (k, record) in records.iter().enumerate() {
        assert_eq!((record.sent_ns, record.schedule_lag_ms), (Some(k as u64 * 5_000_000), Some(0.0)), "request {k}");
    }
}

#[test]
fn case_22_the_wait_before_sending_is_told_apart() {
    let text = case("22-wait-before-sending-left-out/trace.jsonl");
    let played = play(&trace(&text), &scenario(&[EXACT, ONE, "replay.concurrency = 1"]));
    played.all_ok();
    let records = by_arrival(&played.records);
    let all = |field: fn(&RequestRecord) -> Option<f64>| {
        records.iter().map(|record| field(record).unwrap()).collect::<Vec<_>>()
    };
    near(all(|record| record.queue_cap_wait_ms), &[0.0, 300.0, 600.0, 900.0, 1200.0, 1500.0]);
    near(all(|record| record.e2e_ms), &[500.0; 6]);
    near(all(|record| record.sched_e2e_ms), &[500.0, 800.0, 1100.0, 1400.0, 1700.0, 2000.0]);
    near(all(|record| record.sched_ttft_ms), &[50.0, 350.0, 650.0, 950.0, 1250.0, 1550.0]);
    near(all(|record| record.wait_previous_turn_ms), &[0.0; 6]);
    near(all(|record| record.schedule_lag_ms), &[0.0; 6]);
}

/// A's turns take 1.7 s on W0, B's one takes 0.1 s on W1.
const CASE_24: &str = "
cluster.colocated = 2
replay.mechanism = 'dp'
policy.name = 'sticky'
[[fault]]
kind = 'slow-worker'
worker = 'W0'
factor = 17";

#[test]
fn case_24_the_next_turn_waits_for_the_last() {
    let text = case("24-next-turn-waits-for-the-last/trace.jsonl");
    let exact = EXACT.replace("p0 = 50", "p0 = 10").replace("d0 = 50", "d0 = 10");
    let played = play(&trace(&text), &scenario(&[&exact, CASE_24]));
    near(played.session("A").into_iter().map(sent_s), &[0.0, 1.7, 3.4]);
    near(played.session("B").into_iter().map(sent_s), &[0.5]);
    near(played.session("A").iter().map(|record| record.wait_previous_turn_ms.unwrap()), &[0.0, 700.0, 1400.0]);
    for record in &played.records {
        assert_eq!((record.queue_cap_wait_ms, record.schedule_lag_ms), (Some(0.0), Some(0.0)));
        near([record.e2e_ms.unwrap()], &[if record.session_id == "A" { 1700.0 } else { 100.0 }]);
    }
    // Other rules, each by its name.
    let rule = |schedule: &str| {
        let played = play(&trace(&text), &scenario(&[&exact, &format!("replay.schedule = '{schedule}'"), CASE_24]));
        played.session("A").into_iter().map(sent_s).collect::<Vec<_>>()
    };
    near(rule("open-strict"), &[0.0, 1.0, 2.0]);
    // Thinks what is left of the recorded gap of 1 s beside an assumed service of 0.8 s + 10 tokens at 85 a second.
    let think = 1.0 - (0.8 + 10.0 / 85.0);
    near(rule("think"), &[0.0, 1.7 + think, 3.4 + 2.0 * think]);
}

#[test]
fn live_sessions_are_capped_and_the_wait_is_the_caps() {
    let played = play(&arrivals(3, 0.0, 64, 10), &scenario(&[EXACT, ONE, "replay.max_sessions = 1"]));
    near(by_arrival(&played.records).into_iter().map(sent_s), &[0.0, 0.5, 1.0]);
    near(by_arrival(&played.records).iter().map(|record| record.queue_cap_wait_ms.unwrap()), &[0.0, 500.0, 1000.0]);
}

#[test]
fn tokens_come_at_the_pace_of_the_decode_steps() {
    let played = play(&arrivals(1, 0.0, 64, 10), &scenario(&[EXACT, ONE]));
    let arrivals: Vec<u64> = played.tokens[0]
        .iter()
        .flat_map(|run| (0..u64::from(run.count)).map(|k| run.first.ns() + k * run.step.ns()))
        .collect();
    let wanted: Vec<u64> = (1..=10).map(|k| Dur::from_millis(50 * k).ns()).collect();
    assert_eq!(arrivals, wanted);
}
