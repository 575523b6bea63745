//! What a run makes of answers as servers really give them: the bug cases of areas D and E, byte for byte.
//!
//! Times are held from below (a token cannot be seen before its bytes), never tightly from above.

use std::time::Duration;

use serde_json::{Value, json};

use super::support::fake::{Asked, Fake, Reply};
use super::support::run::{Api, LiveRun, Played, ms_between, one, row};
use super::support::script::{End, Script};

/// One request for `tokens` against a server that answers as the case's file says.
fn play(path: &str, api: Api, tokens: u32) -> Played {
    LiveRun::against(&Fake::always(Script::of_case(path)), api, &one(tokens)).play()
}

#[track_caller]
fn ok(played: &Played, tokens: u64) -> Value {
    let record = played.record();
    assert_eq!(record["outcome"], "ok", "{record:#}");
    assert_eq!(record["output_tokens"], tokens, "{record:#}");
    assert_eq!(record["error_class"], Value::Null, "{record:#}");
    record
}

#[track_caller]
fn bad(played: &Played, outcome: &str, class: &str, words: &str) -> Value {
    let record = played.record();
    assert_eq!(
        (record["outcome"].as_str(), record["error_class"].as_str()),
        (Some(outcome), Some(class)),
        "{record:#}"
    );
    assert!(record["error_message"].as_str().unwrap_or_default().contains(words), "no `{words}` in {record:#}");
    assert_eq!(record["tpot_ms"], Value::Null, "{record:#}");
    record
}

#[track_caller]
fn first_token_from(record: &Value, ms: f64) {
    let first = ms_between(record, "sent_ns", "first_token_ns");
    assert!(first >= ms, "the first token after {first} ms, before its bytes: {record:#}");
}

#[track_caller]
fn last_token_from(record: &Value, ms: f64) {
    let last = ms_between(record, "sent_ns", "last_token_ns");
    assert!(last >= ms, "the last token after {last} ms, before its bytes: {record:#}");
}

#[test]
fn case_27_one_stalled_stream_ends_and_the_others_go_on() {
    let stalled = Script::of_case("27-one-stalled-stream/wire.jsonl");
    let fake = Fake::start("127.0.0.1:0", move |asked: &Asked| {
        Reply::Answer(if asked.nth == 2 { stalled.clone() } else { Script::chat(2) })
    });
    let trace = row("a", 0, 0.0, 30, 2) + &row("b", 0, 0.05, 30, 2) + &row("c", 0, 0.1, 30, 2);
    let run = LiveRun::against(&fake, Api::Chat, &trace).set("replay.stall_timeout_s", "0.4");
    let played = run.play();
    let records = played.records();
    let outcomes: Vec<_> = records.iter().map(|record| record["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["ok", "timeout", "ok"], "{records:#?}");
    assert_eq!((records[1]["error_class"].as_str(), records[1]["output_tokens"].as_u64()), (Some("stalled"), Some(1)));
    assert!(records[1]["first_token_ns"].is_u64());
    assert!(played.summary()["integrity"]["state"].is_string());
    assert!(played.took < Duration::from_secs(20), "took {:?}", played.took);
}

#[test]
fn case_31_a_character_may_be_split_between_reads() {
    let record = ok(&play("31-character-split-between-reads/wire.jsonl", Api::Chat, 3), 3);
    first_token_from(&record, 90.0);
    last_token_from(&record, 200.0);
}

#[test]
fn case_32_events_may_be_merged_and_split() {
    let record = ok(&play("32-events-merged-and-split/wire.jsonl", Api::Chat, 4), 4);
    first_token_from(&record, 120.0);
    last_token_from(&record, 200.0);
}

#[test]
fn case_33_comments_and_odd_fields_are_no_tokens() {
    let record = ok(&play("33-comments-and-odd-fields/wire.jsonl", Api::Chat, 2), 2);
    first_token_from(&record, 500.0);
}

#[test]
fn case_35_line_separators_inside_text_end_no_line() {
    ok(&play("35-line-separators-inside-text/wire.jsonl", Api::Chat, 2), 2);
}

#[test]
fn case_36_a_usage_chunk_without_choices_is_no_token() {
    let record = ok(&play("36-usage-chunk-without-choices/wire.jsonl", Api::Chat, 3), 3);
    assert!(ms_between(&record, "sent_ns", "ended_ns") >= 85.0, "{record:#}");
    assert!(ms_between(&record, "last_token_ns", "ended_ns") > 0.0, "{record:#}");
}

#[test]
fn case_37_a_role_chunk_is_no_token() {
    for file in ["wire-empty", "wire-null"] {
        let record = ok(&play(&format!("37-role-chunk-is-not-a-token/{file}.jsonl"), Api::Chat, 2), 2);
        first_token_from(&record, 300.0);
        last_token_from(&record, 330.0);
    }
}

#[test]
fn case_39_a_chunk_may_hold_several_tokens() {
    for (file, api) in [("wire-chat", Api::Chat), ("wire-generate", Api::Generate)] {
        let record = ok(&play(&format!("39-several-tokens-per-chunk/{file}.jsonl"), api, 8), 8);
        let step = ms_between(&record, "first_token_ns", "last_token_ns") / 7.0;
        let tpot = record["tpot_ms"].as_f64().unwrap();
        assert!((tpot - step).abs() < 1e-3, "{tpot} is not a seventh of first to last ({step}): {record:#}");
    }
}

#[test]
fn case_41_an_error_event_after_200_is_an_error() {
    let played = play("41-error-event-after-200/wire.jsonl", Api::Chat, 64).code(1);
    let record = bad(&played, "error", "overloaded", "decode worker lost the cache");
    assert_eq!(record["output_tokens"], 2, "{record:#}");
    first_token_from(&record, 50.0);
}

#[test]
fn case_43_an_abort_in_a_200_answer_is_no_success() {
    let played = play("43-abort-in-a-200-answer/wire-generate.jsonl", Api::Generate, 120).code(1);
    let record = bad(&played, "truncated", "session-not-found", "session id 50400 does not exist");
    assert_eq!((record["output_tokens"].as_u64(), record["http_status"].as_u64()), (Some(1), Some(200)), "{record:#}");
    let chat = play("43-abort-in-a-200-answer/wire-chat.jsonl", Api::Chat, 120).code(1);
    assert_eq!(chat.record()["outcome"], "truncated", "{:#}", chat.record());
    assert_eq!(chat.record()["finish_reason"], "abort", "{:#}", chat.record());
}

#[test]
fn case_44_an_end_mark_alone_is_no_answer() {
    for file in ["wire", "wire-stop"] {
        let played = play(&format!("44-end-mark-only/{file}.jsonl"), Api::Chat, 5).code(1);
        let record = bad(&played, "error", "no-output", "");
        assert_eq!(record["first_token_ns"], Value::Null, "{record:#}");
    }
}

#[test]
fn an_end_mark_without_a_finish_reason_is_no_success() {
    let token = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":null}]}\n\n";
    let fake = Fake::always(Script::events(&[(5, token), (10, token), (15, "data: [DONE]\n\n")]));
    let played = LiveRun::against(&fake, Api::Chat, &one(2)).play().code(1);
    let record = bad(&played, "error", "bad-answer", "no finish reason");
    assert_eq!(record["output_tokens"], 2, "{record:#}");
}

#[test]
fn a_flood_ends_its_request_and_no_other() {
    let flood = "data: {\"text\":\"x\"}\n\n".repeat(3000);
    let flood = Script::events(&[(1, &flood)]).ending(End::Hang, 0);
    let fake = Fake::start("127.0.0.1:0", move |asked: &Asked| {
        Reply::Answer(if asked.nth == 1 { flood.clone() } else { Script::generate(8) })
    });
    let trace = row("s", 0, 0.0, 64, 8) + &row("s", 1, 0.05, 136, 8);
    let played = LiveRun::against(&fake, Api::Generate, &trace).set("replay.stall_timeout_s", "0").play().code(1);
    let records = played.records();
    assert_eq!((&records[0]["outcome"], &records[0]["error_class"]), (&json!("error"), &json!("excess-output")));
    assert_eq!((&records[0]["output_tokens"], &records[0]["http_status"]), (&json!(75), &json!(200)), "{records:#?}");
    assert_eq!(records[1]["outcome"], "ok", "{records:#?}");
    assert!(played.took < Duration::from_secs(20), "took {:?}", played.took);
}

#[test]
fn case_45_an_event_line_may_be_very_long() {
    let trace: String = (0..20).map(|nth| row(&format!("s{nth}"), 0, 0.0, 30, 2)).collect();
    let fake = Fake::always(Script::of_case("45-very-long-event-line/wire.jsonl"));
    let played = LiveRun::against(&fake, Api::Chat, &trace).play();
    assert_eq!(played.count("ok"), 20, "{:#?}", played.records());
    assert!(played.records().iter().all(|record| record["output_tokens"] == 2));
    assert!(played.took < Duration::from_secs(30), "took {:?}", played.took);
}

/// Two turns of one session; the server closes the kept connection when the second arrives on it.
fn closes_an_idle_connection() -> Fake {
    Fake::start("127.0.0.1:0", |asked: &Asked| {
        if asked.connection == 1 && asked.on_connection > 1 && asked.nth > 1 {
            return Reply::Fin;
        }
        Reply::Answer(Script::chat(2))
    })
}

#[test]
fn case_46_an_idle_connection_closed_under_us_is_told() {
    let trace = row("s", 0, 0.0, 30, 2) + &row("s", 1, 0.3, 40, 2);
    let fake = Fake::start(
        "127.0.0.1:0",
        |asked: &Asked| {
            if asked.nth == 2 { Reply::Fin } else { Reply::Answer(Script::chat(2)) }
        },
    );
    let played = LiveRun::against(&fake, Api::Chat, &trace).play();
    let records = played.records();
    let outcomes: Vec<_> = records.iter().map(|record| record["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["ok", "error"], "{records:#?}");
    assert_eq!(records[1]["error_class"], "connection-closed", "{records:#?}");
    assert!(records[1]["error_message"].as_str().unwrap().contains("before the answer"), "{records:#?}");
    assert_eq!(fake.asked().len(), 2, "nothing is repeated unasked");
}

#[test]
fn case_46_with_retries_it_is_repeated_once_and_marked() {
    let trace = row("s", 0, 0.0, 30, 2) + &row("s", 1, 0.3, 40, 2);
    let fake = closes_an_idle_connection();
    let played = LiveRun::against(&fake, Api::Chat, &trace).set("live.retries", "1").play();
    let records = played.records();
    assert_eq!(records.len(), 2);
    assert!(records.iter().all(|record| record["outcome"] == "ok"), "{records:#?}");
    if fake.asked()[1].connection == 1 {
        assert_eq!(records[1]["attempts"], 2, "{records:#?}");
    }
}

fn refused(status: u16, retry_after: Option<&str>) -> Script {
    let script = Script::plain(status, "application/json", "{\"error\":{\"message\":\"too many\"}}");
    match retry_after {
        Some(value) => script.header("retry-after", value),
        None => script,
    }
}

#[test]
fn case_47_a_refusal_is_an_error_and_is_not_repeated_unasked() {
    for (status, after) in [(429, Some("1")), (503, None), (429, Some("banana"))] {
        let fake = Fake::always(refused(status, after));
        let played = LiveRun::against(&fake, Api::Chat, &one(2)).play().code(1);
        let record = bad(&played, "error", "overloaded", "");
        assert_eq!(record["http_status"], status, "{record:#}");
        assert_eq!((record["attempts"].as_u64(), fake.asked().len()), (Some(1), 1), "{record:#}");
    }
}

#[test]
fn case_47_retries_wait_as_told_and_are_counted() {
    let cases = [
        (vec![refused(429, Some("1"))], 1000.0),
        (vec![refused(503, None), refused(503, None)], 150.0),
        (vec![refused(429, Some("banana"))], 50.0),
    ];
    for (refusals, least_ms) in cases {
        let attempts = refusals.len() + 1;
        let fake = Fake::in_order([refusals, vec![Script::chat(2)]].concat());
        let run = LiveRun::against(&fake, Api::Chat, &one(2));
        let played = run.set("live.retries", "3").set("live.retry_backoff_ms", "50").play();
        let record = ok(&played, 2);
        assert_eq!(record["attempts"], attempts, "{record:#}");
        assert!(record["retry_wait_ms"].as_f64().unwrap() >= least_ms, "{record:#}");
        first_token_from(&record, least_ms);
        assert_eq!(fake.asked().len(), attempts);
        let harness = &played.manifest()["facts"]["harness"];
        assert_eq!((&harness["retries"], &harness["throttled"]), (&json!(attempts - 1), &json!(attempts - 1)));
        assert!(played.ran.stdout.contains("with status 429 or 503"), "{}", played.ran.stdout);
    }
}

#[test]
fn case_49_a_body_cut_off_is_an_error_with_its_tokens() {
    for (file, tokens) in [("wire-fin", 2), ("wire-rst", 2), ("wire-short", 0)] {
        let played = play(&format!("49-body-cut-off/{file}.jsonl"), Api::Chat, 8).code(1);
        let record = bad(&played, "error", "connection-closed", "connection closed in the middle of the answer");
        assert_eq!(record["output_tokens"], tokens, "{file}: {record:#}");
    }
}

#[test]
fn a_cut_body_costs_the_others_nothing() {
    let trace = row("a", 0, 0.0, 30, 2) + &row("a", 1, 0.2, 40, 2) + &row("b", 0, 0.1, 30, 2);
    let cut = Script::of_case("49-body-cut-off/wire-rst.jsonl");
    let fake = Fake::start("127.0.0.1:0", move |asked: &Asked| {
        Reply::Answer(if asked.nth == 1 { cut.clone() } else { Script::chat(2) })
    });
    let played = LiveRun::against(&fake, Api::Chat, &trace).play();
    assert_eq!((played.count("error"), played.count("ok")), (1, 2), "{:#?}", played.records());
}

#[test]
fn a_web_page_with_200_is_no_answer() {
    let fake = Fake::always(Script::plain(200, "text/html", "<html><body>Please log in</body></html>"));
    let played = LiveRun::against(&fake, Api::Chat, &one(2)).play().code(1);
    bad(&played, "error", "bad-answer", "");
}

#[test]
fn an_error_object_with_200_is_an_error() {
    let fake = Fake::always(Script::plain(
        200,
        "application/json",
        "{\"error\":{\"message\":\"no such model\",\"code\":404}}",
    ));
    let played = LiveRun::against(&fake, Api::Chat, &one(2)).play().code(1);
    let record = played.record();
    assert_eq!(record["outcome"], "error", "{record:#}");
    assert!(record["error_message"].as_str().unwrap().contains("no such model"), "{record:#}");
}

#[test]
fn a_stream_closed_properly_but_too_early_is_no_success() {
    let token = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":null}]}\n\n";
    for (end, words) in [(End::Complete, ""), (End::Fin, "connection closed in the middle of the answer")] {
        let fake = Fake::always(Script::events(&[(5, token)]).ending(end, 10));
        let played = LiveRun::against(&fake, Api::Chat, &one(4)).play().code(1);
        let record = bad(&played, "error", "connection-closed", words);
        assert_eq!(record["output_tokens"], 1, "{record:#}");
    }
}

#[test]
fn completions_are_asked_with_a_token_array_of_the_traces_length() {
    let text = |text: &str, finish: &str| {
        format!("data: {{\"choices\":[{{\"index\":0,\"text\":\"{text}\",\"finish_reason\":{finish}}}]}}\n\n")
    };
    let usage = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":100,\"completion_tokens\":2,\"total_tokens\":102}}\n\ndata: [DONE]\n\n";
    let fake = Fake::always(Script::events(&[(5, &text("a", "null")), (10, &text("b", "\"length\"")), (15, usage)]));
    let played = LiveRun::against(&fake, Api::Completions, &row("s", 0, 0.0, 100, 2)).play();
    ok(&played, 2);
    let body = fake.asked()[0].json();
    assert_eq!(body["prompt"].as_array().map(Vec::len), Some(100), "{body}");
    assert_eq!((body["max_tokens"].as_u64(), body["stream"].as_bool()), (Some(2), Some(true)), "{body}");
    assert_eq!((body["model"].as_str(), body["ignore_eos"].as_bool()), (Some("emu"), Some(true)), "{body}");
    assert_eq!(fake.asked()[0].path, "/v1/completions");
}

/// A completion of two tokens whose prompt the server counts as so long.
fn counting(prompt_tokens: u32) -> Script {
    let token =
        |finish: &str| format!("data: {{\"choices\":[{{\"index\":0,\"text\":\"a\",\"finish_reason\":{finish}}}]}}\n\n");
    let usage = json!({"choices": [], "usage": {"prompt_tokens": prompt_tokens, "completion_tokens": 2}});
    Script::events(&[(1, &(token("null") + &token("\"length\"") + &format!("data: {usage}\n\ndata: [DONE]\n\n")))])
}

#[test]
fn prompts_of_another_length_than_was_sent_are_told_in_the_summary() {
    let trace = row("a", 0, 0.0, 100, 2) + &row("b", 0, 0.0, 100, 2) + &row("c", 0, 0.0, 100, 2);
    let fake = Fake::in_order(vec![counting(100), counting(164), counting(1)]);
    let played = LiveRun::against(&fake, Api::Completions, &trace).play().code(0);
    let prompts = json!({"compared": 3, "differing": 2, "sent_tokens": 200, "counted_tokens": 165, "untold": 0});
    assert_eq!(played.manifest()["facts"]["harness"]["prompts"], prompts);
    let told = "the server counted another length in 2 of 3 prompts: 165 tokens for 200 sent";
    let notes = played.summary()["integrity"]["notes"].to_string();
    assert_eq!(notes.matches(told).count(), 1, "{notes}");
    let stdout = played.ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(stdout.contains(told), "{stdout}");
    // Words are no tokens: a template of 64 is none of the run's business.
    let chat = LiveRun::against(&Fake::always(Script::chat(2)), Api::Chat, &one(2)).play().code(0);
    let prompts = json!({"compared": 1, "differing": 0, "sent_tokens": 0, "counted_tokens": 0, "untold": 0});
    assert_eq!(chat.manifest()["facts"]["harness"]["prompts"], prompts);
}

#[test]
fn case_51_proxy_settings_of_the_environment_are_ignored_for_loopback() {
    let proxy = "http://127.0.0.1:9";
    let settings: [&[(&str, &str)]; 5] = [
        &[("HTTP_PROXY", proxy)],
        &[("http_proxy", proxy)],
        &[("ALL_PROXY", "socks5://127.0.0.1:9")],
        &[("HTTP_PROXY", proxy), ("NO_PROXY", "localhost")],
        &[("HTTP_PROXY", proxy), ("REQUEST_METHOD", "GET")],
    ];
    for setting in settings {
        let fake = Fake::always(Script::chat(2));
        let run = LiveRun::against(&fake, Api::Chat, &one(2));
        let played = setting.iter().fold(run, |run, (name, value)| run.env(name, value)).play();
        ok(&played, 2);
    }
}

#[test]
fn case_52_localhost_and_ipv6_are_reached_either_way() {
    let ipv6 = std::net::TcpListener::bind("[::1]:0").is_ok();
    if !ipv6 {
        println!("skipped in part: this machine has no IPv6 loopback");
    }
    let hosts: &[(&str, &[&str])] =
        &[("127.0.0.1:0", &["localhost", "127.0.0.1"]), ("[::1]:0", &["localhost", "[::1]"])];
    for (bound, names) in hosts.iter().take(if ipv6 { 2 } else { 1 }) {
        for name in *names {
            let fake = Fake::start(bound, |_| Reply::Answer(Script::chat(2)));
            let url = format!("http://{name}:{}", fake.port());
            ok(&LiveRun::of(&one(2)).on(&url, Api::Chat).play(), 2);
        }
    }
}

#[test]
fn case_54_connections_are_kept() {
    const SLOTS: usize = 8;
    let trace: String = (0..300).map(|nth| row(&format!("s{nth}"), 0, 0.0, 30, 2)).collect();
    let fake = Fake::start("127.0.0.1:0", |asked: &Asked| {
        let refused = asked.nth.is_multiple_of(10);
        Reply::Answer(if refused { refused_500() } else { Script::chat(2) })
    });
    let played = LiveRun::against(&fake, Api::Chat, &trace).set("replay.concurrency", "8").play();
    assert_eq!((played.count("ok"), played.count("error")), (270, 30));
    let opened = fake.connections() as usize;
    assert!(opened <= 2 * SLOTS, "{opened} connections for {SLOTS} slots");
}

fn refused_500() -> Script {
    Script::plain(500, "application/json", "{\"error\":{\"message\":\"no luck\"}}")
}
