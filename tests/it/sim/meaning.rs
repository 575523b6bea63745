//! What a trace means, seen in the times that requests are sent: units, epochs, order, numbering, ids, lengths, scale.
//!
//! How these files are read and refused is `trace_cases.rs`'s.

use pdreplay::record::{LedgerKind, Outcome};
use pdreplay::trace::{ReadOptions, TimeUnit};

use super::{EXACT, Played, arrivals, case, near, play, scenario, sent_s, trace, trace_with};

/// One colocated worker for each of four requests.
const DP: &str = "cluster.colocated = 4\nreplay.mechanism = 'dp'\npolicy.name = 'default'";

fn sent(played: &Played) -> Vec<f64> {
    let mut sent: Vec<f64> = played.records.iter().map(sent_s).collect();
    sent.sort_by(f64::total_cmp);
    sent
}

#[test]
fn case_07_milliseconds_and_seconds_give_the_same_run() {
    let row = |(k, at): (usize, &str)| {
        format!(r#"{{"session_id":"q{k}","turn_id":0,"timestamp":{at},"input_length":100,"output_length":10}}"#)
    };
    let rows = |times: [&str; 5]| times.into_iter().enumerate().map(row).collect::<Vec<_>>().join("\n");
    let ms = ReadOptions { timestamp_unit: Some(TimeUnit::Millis), ..ReadOptions::default() };
    let scenario = scenario(&[EXACT, DP]);
    let in_ms = play(&trace_with(&rows(["0", "250", "1500", "1750", "4000"]), &ms), &scenario);
    let in_s = play(&trace(&rows(["0.0", "0.25", "1.5", "1.75", "4.0"])), &scenario);
    assert_eq!(sent(&in_ms), [0.0, 0.25, 1.5, 1.75, 4.0]);
    assert_eq!(in_ms.records, in_s.records);
}

#[test]
fn case_09_epoch_times_start_at_once_and_meet_no_deadline() {
    let text = case("09-absolute-epoch-times/trace.jsonl");

    let exact = EXACT.replace("d0 = 50", "d0 = 0");
    let played = play(&trace(&text), &scenario(&[&exact, DP, "replay.request_timeout_s = 3"]));
    played.all_ok();
    assert_eq!(sent(&played), [0.0, 0.9, 1.5, 4.0]);
    near(played.records.iter().map(|record| record.e2e_ms.unwrap()), &[50.0; 4]);
}

#[test]
fn case_10_rows_out_of_order_are_sent_in_order_of_time() {
    let text = case("10-rows-out-of-order/trace.jsonl");
    let read = trace(&text);
    assert!(read.notices.iter().any(|notice| notice.code == "rows-sorted"));
    let played = play(&read, &scenario(&[EXACT, DP]));
    let order: Vec<_> =
        played.records.iter().map(|record| (record.trace_request_id.as_deref().unwrap(), sent_s(record))).collect();
    assert_eq!(order, [("r2", 0.0), ("r3", 1.5), ("r4", 1.5), ("r1", 3.0)]);
}

#[test]
fn case_12_the_first_row_there_is_opens_the_session() {
    let text = case("12-first-turn-missing/trace.jsonl");
    let cluster = "cluster.prefill = 1\ncluster.decode = 2\nreplay.first_turn = 'seed'\npolicy.name = 'sticky'";
    let played = play(&trace(&text), &scenario(&[cluster]));
    played.all_ok();
    assert_eq!((played.records.len(), played.noted(LedgerKind::SessionOpened).len()), (9, 4));
    assert_eq!(["A", "B", "C", "D"].map(|session| played.path(session)), ["SD", "SD", "SD", "SDD"]);
    let numbers = |session| played.session(session).iter().map(|record| record.turn_id).collect::<Vec<_>>();
    assert_eq!([numbers("A"), numbers("C"), numbers("D")], [vec![1, 2], vec![3, 4], vec![0, 1, 3]]);
    let incomplete: Vec<_> = played.end.facts.sessions.iter().filter(|session| session.incomplete).collect();
    assert_eq!(incomplete.iter().map(|session| session.session_id.as_str()).collect::<Vec<_>>(), ["C", "D"]);
    let first = played.of("C", 3);
    assert_eq!((first.cached_tokens, first.append_tokens, first.ideal_hit_tokens), (Some(0), 320, 0));
    // On the plain path, too, no first row is a continuation.
    let plain = play(&trace(&text), &scenario(&[&cluster.replace("'seed'", "'plain'")]));
    plain.all_ok();
    assert_eq!(["A", "B", "C", "D"].map(|session| plain.path(session)), ["1S", "1S", "1S", "1SD"]);
}

#[test]
fn case_14_two_requests_of_one_id_are_two_records() {
    let text = case("14-duplicate-request-ids/trace.jsonl");
    let played = play(&trace(&text), &scenario(&["cluster.decode = 2"]));
    played.all_ok();
    assert_eq!((played.session("s1").len(), played.session("s2").len()), (3, 2));
    let (one, other) = (played.of("s1", 1), played.of("s2", 0));
    assert_eq!((&one.trace_request_id, one.sent_ns), (&other.trace_request_id, other.sent_ns), "they overlap");
    assert_ne!((one.request_id.as_str(), one.trace_line), (other.request_id.as_str(), other.trace_line));
    assert!(one.ended_ns > one.sent_ns.unwrap() && other.ended_ns > other.sent_ns.unwrap());
}

#[test]
fn case_17_one_token_has_a_first_token_and_an_end_but_no_rate() {
    // The row without a prompt is refused by the reader; without it the answer of 0 tokens is sent as 1.
    let read = trace(
        r#"{"session_id":"a","turn_id":0,"timestamp":0.0,"input_length":100,"output_length":10}
{"session_id":"b","turn_id":0,"timestamp":0.1,"input_length":100,"output_length":0}
{"session_id":"d","turn_id":0,"timestamp":0.3,"input_length":100,"output_length":1}"#,
    );
    let played = play(&read, &scenario(&[EXACT, DP]));
    played.all_ok();
    near([played.of("a", 0).ttft_ms.unwrap(), played.of("a", 0).tpot_ms.unwrap()], &[50.0, 50.0]);
    for session in ["b", "d"] {
        let record = played.of(session, 0);
        assert_eq!((record.output_tokens, record.expected_output_tokens, record.tpot_ms), (1, 1, None));
        near([record.ttft_ms.unwrap(), record.e2e_ms.unwrap()], &[50.0, 50.0]);
    }
    assert!(read.notices.iter().any(|notice| notice.code == "zero-outputs-raised"));
}

#[test]
fn case_19_a_prompt_over_the_limit_is_refused_and_nobody_else_suffers() {
    let text = case("19-request-over-the-context-limit/trace.jsonl");
    for mechanism in ["pd", "kvc"] {
        let cluster = "cluster.prefill = 1\ncluster.decode = 1\nengine.context_limit_tokens = 8192";
        let played = play(&trace(&text), &scenario(&[cluster, &format!("replay.mechanism = '{mechanism}'")]));
        assert!(played.session("s2").iter().all(|record| record.outcome == Outcome::Ok), "{mechanism}");
        assert_eq!(played.of("s1", 0).outcome, Outcome::Ok);
        for turn in 1..4 {
            let refused = played.of("s1", turn);
            assert_eq!(
                (refused.outcome, refused.http_status, refused.attempts),
                (Outcome::Error, Some(400), 1),
                "{refused:#?}"
            );
            assert_eq!(refused.error_class, played.of("s1", 1).error_class, "one cause for all three");
            let wanted = refused.input_tokens + refused.expected_output_tokens;
            let words = refused.error_message.as_deref().unwrap();
            assert!(words.contains(&format!("{wanted} > 8192")), "{words}");
            assert_eq!(refused.output_tokens, 0);
        }
        assert!(played.noted(LedgerKind::WorkerDown).is_empty());
    }
}

#[test]
fn case_20_a_time_scale_divides_gaps_and_nothing_else() {
    let text = case("20-speed-factor-and-limits/trace.jsonl");
    let scaled = "
cluster.prefill = 1
cluster.decode = 1
replay.first_turn = 'seed'
replay.time_scale = 10
replay.request_timeout_s = 8
engine.session_idle_timeout_s = 30";
    let played = play(&trace(&text), &scenario(&[EXACT, scaled]));
    played.all_ok();
    assert_eq!(sent(&played), [0.0, 12.0, 24.0]);
    near(played.session("s").iter().map(|record| record.e2e_ms.unwrap()), &[500.0; 3]);
    assert_eq!(played.path("s"), "SDD", "30 s of the worker's own time have not passed");
    let capped = play(&trace(&text), &scenario(&[EXACT, scaled, "replay.max_gap_s = 5"]));
    assert_eq!(sent(&capped), [0.0, 5.0, 10.0]);
    // The limit of 8 s is 8 s of the run.
    let hang = "[[fault]]\nkind = 'hang'\nsession = 's'\nturn = 1\nafter_tokens = 1";
    let stuck = play(&trace(&text), &scenario(&[EXACT, scaled, "replay.stall_timeout_s = 0", hang]));
    let late = stuck.of("s", 1);
    assert_eq!((late.outcome, late.e2e_ms), (Outcome::Timeout, Some(8000.0)));
    assert_eq!(sent(&stuck), [0.0, 12.0, 24.0]);
}

#[test]
fn an_infinite_scale_keeps_only_causality() {
    let scale = "replay.time_scale = inf";
    let text = arrivals(4, 100.0, 64, 10);
    let played = play(&text, &scenario(&[EXACT, DP, scale]));
    assert_eq!(sent(&played), [0.0; 4]);
}
