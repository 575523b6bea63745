//! Turns given up in a live run: the record keeps what the client had received.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::support::fake::{Fake, Reply};
use super::support::run::{Api, LiveRun, ms_between, one};
use super::support::script::{End, Script};

const TOKEN: &str =
    "data: {\"id\":\"r\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":null}]}\n\n";

/// Two tokens, 20 ms apart, then nothing.
fn hangs() -> Fake {
    let script = Script::events(&[(1, TOKEN), (21, TOKEN)]).ending(End::Hang, 0);
    Fake::start("127.0.0.1:0", move |_| Reply::Answer(script.clone()))
}

fn until_asked(fake: &Fake) {
    let began = Instant::now();
    while fake.asked().is_empty() {
        assert!(began.elapsed() < Duration::from_secs(60), "nothing was sent");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[track_caller]
fn has_two_tokens(record: &Value) {
    assert_eq!((&record["output_tokens"], &record["http_status"]), (&2.into(), &200.into()), "{record:#}");
    assert!(ms_between(record, "sent_ns", "first_token_ns") >= 1.0, "{record:#}");
    assert!(ms_between(record, "first_token_ns", "last_token_ns") > 0.0, "{record:#}");
    assert!(ms_between(record, "last_token_ns", "ended_ns") > 0.0, "{record:#}");
    assert!(record["ttft_ms"].is_f64() && record["tpot_ms"].is_null(), "{record:#}");
    assert_eq!((&record["attempts"], &record["decode_worker_actual"]), (&1.into(), &"W0".into()), "{record:#}");
}

#[test]
fn a_total_time_out_keeps_the_tokens() {
    let fake = hangs();
    let played = LiveRun::against(&fake, Api::Chat, &one(8)).set("replay.request_timeout_s", "2").play();
    let record = played.record();
    assert_eq!((&record["outcome"], &record["error_class"]), (&"timeout".into(), &"total-timeout".into()));
    has_two_tokens(&record);
    assert!(record["e2e_ms"].as_f64().unwrap() >= 2000.0, "{record:#}");
    let summary = played.summary();
    assert_eq!((&summary["n_ttft"], &summary["n_excluded_ttft"]), (&0.into(), &1.into()), "no latency of an ok answer");
}

#[test]
fn a_stop_keeps_the_tokens() {
    let fake = hangs();
    let run = LiveRun::against(&fake, Api::Chat, &one(8)).set("live.drain_s", "2").start();
    until_asked(&fake);
    run.signal("INT");
    let played = run.wait().code(130);
    let record = played.record();
    assert_eq!(record["outcome"], "cancelled", "{record:#}");
    has_two_tokens(&record);
}

#[test]
fn a_wait_between_attempts_that_is_given_up_keeps_status_and_count() {
    let body = "{\"error\":{\"message\":\"too many\"}}";
    let refused = Script::plain(503, "application/json", body).header("retry-after", "30");
    let fake = Fake::always(refused);
    let run = LiveRun::against(&fake, Api::Chat, &one(8)).set("live.retries", "3");
    let record = run.set("replay.request_timeout_s", "2").play().record();
    assert_eq!((&record["outcome"], &record["error_class"]), (&"timeout".into(), &"total-timeout".into()));
    assert_eq!((&record["http_status"], &record["attempts"]), (&503.into(), &1.into()), "{record:#}");
    assert_eq!((&record["output_tokens"], &record["ttft_ms"]), (&0.into(), &Value::Null), "{record:#}");
    assert_eq!(fake.asked().len(), 1);
}
