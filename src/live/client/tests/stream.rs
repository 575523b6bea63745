//! Streams as servers send them: cut anywhere, odd fields, counts, errors inside a 200 answer.

use std::time::Duration;

use proptest::prelude::*;

use super::fake::{End, Fake, Script, generate_event};
use super::support::{Rig, answer_to, block_on, failure, generate_of, target, two_turns};
use crate::base::Time;
use crate::live::Dialect;
use crate::live::client::sse::SseParser;
use crate::live::client::tally::Tally;
use crate::protocol::{Answer, ErrorClass, Finish};
use crate::scenario::OpenAiApi;

const CHAT: Dialect = Dialect::OpenAi(OpenAiApi::Chat);
const DONE: &str = "data: [DONE]\n\n";

/// A chat chunk; content, reason and usage as JSON.
fn chunk(delta: &str, reason: &str, usage: &str) -> String {
    format!(
        "data: {{\"id\":\"r\",\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{reason}}}],\"usage\":{usage}}}\n\n"
    )
}

fn token(text: &str) -> String {
    chunk(&format!("{{\"content\":\"{text}\"}}"), "null", "null")
}

fn last(text: &str, count: u32) -> String {
    let usage = format!(
        "{{\"prompt_tokens\":9,\"completion_tokens\":{count},\"prompt_tokens_details\":{{\"cached_tokens\":4}}}}"
    );
    chunk(&format!("{{\"content\":\"{text}\"}}"), "\"stop\"", &usage)
}

fn chat(script: Script) -> Answer {
    block_on(answer_to(CHAT, |_| {}, script))
}

fn native(script: Script) -> Answer {
    block_on(answer_to(Dialect::Generate, |_| {}, script))
}

/// Milliseconds from the first token to each run.
fn gaps(answer: &Answer) -> Vec<f64> {
    let first = answer.token_runs[0].first;
    answer.token_runs.iter().map(|run| run.first.since(first).as_millis_f64()).collect()
}

fn counts(answer: &Answer) -> Vec<u32> {
    answer.token_runs.iter().map(|run| run.count).collect()
}

#[test]
fn a_token_counts_when_its_event_is_complete_wherever_characters_are_cut() {
    let (first, second) = (token("测试"), token("🙂"));
    let (a, b) = (first.find('试').unwrap() + 1, second.find('🙂').unwrap() + 2);
    let script = Script::stream()
        .then_bytes(20, &first.as_bytes()[..a])
        .then_bytes(50, &first.as_bytes()[a..])
        .then_bytes(20, &second.as_bytes()[..b])
        .then_bytes(10, &second.as_bytes()[b..])
        .then(20, &last(" done", 3))
        .then(0, DONE);
    let answer = chat(script);
    assert_eq!((&answer.finish, answer.output_tokens, answer.cached_tokens), (&Finish::Stop, 3, Some(4)));
    assert!(answer.first_token_at.unwrap() >= Time(70_000_000), "not at its first bytes");
    assert_eq!(counts(&answer), [1, 1, 1]);
    assert!(gaps(&answer)[1] >= 25.0, "{:?}", gaps(&answer));
}

#[test]
fn events_of_one_read_share_its_time_and_one_in_pieces_ends_with_its_last() {
    let fourth = last("d", 4);
    let mut script = Script::stream().then(20, &[token("a"), token("b"), token("c")].concat());
    let (body, end) = fourth.split_at(fourth.len() - 1);
    for piece in [&body[..10], &body[10..60], &body[60..], end] {
        script = script.then(15, piece);
    }
    let answer = chat(script.then(5, DONE));
    assert_eq!((answer.output_tokens, counts(&answer)), (4, vec![1, 1, 1, 1]));
    let gaps = gaps(&answer);
    assert_eq!(gaps[..3], [0.0; 3]);
    assert!(gaps[3] >= 55.0, "{gaps:?}");
}

#[test]
fn comments_and_odd_fields_are_no_tokens() {
    let script = Script::stream()
        .then(0, ": ping\n\n")
        .then(5, ":\n")
        .then(5, "event: ping\ndata:\n\nretry: 3000\nid: 9\n")
        .then(80, &token("a").replace("data: ", "data:"))
        .then(5, &last("b", 2))
        .then(0, "data:[DONE]\n\n");
    let answer = chat(script);
    assert_eq!((&answer.finish, answer.output_tokens), (&Finish::Stop, 2));
    assert!(answer.first_token_at.unwrap() >= Time(85_000_000));
}

#[test]
fn separators_of_unicode_end_no_line() {
    let answer =
        chat(Script::stream().then(0, &token("line\u{2028}sep\u{85}end")).then(0, &last(".", 2)).then(0, DONE));
    assert_eq!((&answer.finish, answer.output_tokens), (&Finish::Stop, 2));
}

#[test]
fn chunks_without_text_are_no_tokens() {
    let usage = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":2}}\n\n";
    for role in [r#"{"role":"assistant","content":""}"#, r#"{"role":"assistant","content":null}"#] {
        let script = Script::stream()
            .then(0, &chunk(role, "null", "null"))
            .then(40, &token("h"))
            .then(10, &chunk(r#"{"reasoning_content":"i"}"#, "null", "null"))
            .then(0, &chunk("{}", "\"length\"", "null"))
            .then(10, usage)
            .then(0, DONE);
        let answer = chat(script);
        assert_eq!((&answer.finish, answer.output_tokens, counts(&answer)), (&Finish::Length, 2, vec![1, 1]));
        assert!(answer.first_token_at.unwrap() >= Time(40_000_000));
    }
    let tools = chat(
        Script::stream().then(0, &chunk(r#"{"tool_calls":[{"index":0}]}"#, "\"tool_calls\"", "null")).then(0, DONE),
    );
    assert_eq!((&tools.finish, tools.output_tokens), (&Finish::Stop, 1));
}

#[test]
fn chunks_beyond_the_servers_count_were_no_arrivals() {
    let usage = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":2}}\n\n";
    let script = Script::stream().then(0, &token("a")).then(5, &token("b")).then(60, &token("")).then(0, &token("c"));
    let answer = chat(script.then(0, &chunk("{}", "\"stop\"", "null")).then(0, usage).then(0, DONE));
    assert_eq!((answer.output_tokens, counts(&answer)), (2, vec![1, 1]));
    assert_eq!(answer.last_token_at, answer.token_runs.last().map(|run| run.first));
}

#[test]
fn several_tokens_in_an_event_are_counted_as_the_server_counts_them() {
    let answer =
        chat(Script::stream().then(0, &token("A")).then(10, &token(" BCD")).then(10, &last(" EFGH", 8)).then(0, DONE));
    assert_eq!((answer.output_tokens, counts(&answer)), (8, vec![1, 1, 6]));
    let event = |count, reason| generate_event(count, reason);
    let script = Script::stream().then(0, &event(1, "null")).then(10, &event(4, "null"));
    let answer = native(script.then(10, &event(8, r#"{"type":"length","length":8}"#)).then(0, DONE));
    assert_eq!((&answer.finish, answer.output_tokens, counts(&answer)), (&Finish::Length, 8, vec![1, 3, 4]));
    assert_eq!(answer.cached_tokens, Some(3));
}

#[test]
fn an_error_inside_a_200_answer_is_an_error_with_its_tokens() {
    let error = r#"{"error":{"message":"decode worker lost the cache","type":"ServiceUnavailable","code":503}}"#;
    let script = Script::stream().then(0, &token("a")).then(5, &token("b")).then(5, &format!("data: {error}\n\n"));
    let answer = chat(script.then(0, DONE));
    let (class, message) = failure(&answer);
    assert_eq!((class, answer.output_tokens, answer.http_status), (ErrorClass::Overloaded, 2, Some(200)));
    assert!(message.contains("503") && message.contains("decode worker lost the cache"), "{message}");
    let error = r#"{"error":{"message":"Invalid request: session id s does not exist","code":400,"retryable":false}}"#;
    let answer = native(Script::stream().then(0, &format!("data: {error}\n\n")).then(0, DONE));
    assert_eq!(failure(&answer).0, ErrorClass::SessionNotFound);
}

#[test]
fn an_abort_inside_a_200_answer_is_no_success() {
    let reason = r#"{"type":"abort","message":"Invalid request: session id 50400 does not exist","status_code":400,"err_type":"BadRequestError"}"#;
    let answer = native(Script::stream().then(0, &generate_event(1, reason)).then(0, DONE));
    assert!(
        matches!(&answer.finish, Finish::Abort { class: ErrorClass::SessionNotFound, message } if message.contains("50400"))
    );
    assert_eq!(answer.output_tokens, 1);
    let answer = chat(Script::stream().then(0, &chunk(r#"{"content":"?"}"#, "\"abort\"", "null")).then(0, DONE));
    assert!(matches!(&answer.finish, Finish::Abort { class: ErrorClass::ServerError, .. }), "{answer:?}");
    let reason = r#"{"type":"abort","message":"KVTransferError(bootstrap_room=7): Decode instance could be dead","status_code":500}"#;
    let answer = native(Script::stream().then(0, &generate_event(0, reason)).then(0, DONE));
    assert_eq!(failure(&answer).0, ErrorClass::KvTransferTimeout);
}

#[test]
fn an_abort_after_a_finish_reason_and_tokens_after_it_are_no_success() {
    let ended = || Script::stream().then(0, &token("a")).then(0, &chunk("{}", "\"length\"", "null"));
    let aborted = chat(ended().then(0, &chunk("{}", "\"abort\"", "null")).then(0, DONE));
    assert!(matches!(&aborted.finish, Finish::Abort { .. }), "{aborted:?}");
    let more = chat(ended().then(0, &token("b")).then(0, DONE));
    assert_eq!(failure(&more), (ErrorClass::BadAnswer, "1 more tokens after the finish reason"));
    assert_eq!(more.output_tokens, 2);
    let native = native(
        Script::stream()
            .then(0, &generate_event(4, r#"{"type":"length"}"#))
            .then(0, &generate_event(10, "null"))
            .then(0, DONE),
    );
    assert_eq!(failure(&native), (ErrorClass::BadAnswer, "6 more tokens after the finish reason"));
}

#[test]
fn a_finish_reason_nobody_knows_is_named_and_an_empty_one_is_none() {
    let filtered =
        chat(Script::stream().then(0, &token("a")).then(0, &chunk("{}", "\"content_filter\"", "null")).then(0, DONE));
    let (class, message) = failure(&filtered);
    assert_eq!((class, filtered.output_tokens), (ErrorClass::BadAnswer, 1));
    assert!(message.contains("`content_filter`"), "{message}");
    let empty = chunk(r#"{"content":"a"}"#, "\"\"", "null");
    let answer = chat(Script::stream().then(0, &empty).then(0, &chunk("{}", "\"length\"", "null")).then(0, DONE));
    assert_eq!((&answer.finish, answer.output_tokens), (&Finish::Length, 1));
    let answer = chat(Script::stream().then(0, &empty));
    assert_eq!(failure(&answer).0, ErrorClass::ConnectionClosed);
}

#[test]
fn the_servers_last_count_is_the_count() {
    let counted =
        |tokens: u32, reason: &str| chunk(r#"{"content":"x"}"#, reason, &format!("{{\"completion_tokens\":{tokens}}}"));
    let script = Script::stream().then(0, &counted(3, "null")).then(0, &counted(1, "null"));
    let answer = chat(script.then(0, &counted(4, "\"length\"")).then(0, DONE));
    assert_eq!((&answer.finish, answer.output_tokens, counts(&answer)), (&Finish::Length, 4, vec![2, 1, 1]));
    assert_eq!(answer.last_token_at, answer.token_runs.last().map(|run| run.first));
    // A count that more text has overtaken is not the last word.
    let script = Script::stream().then(0, &counted(1, "null")).then(0, &token("y"));
    let answer = chat(script.then(0, &chunk("{}", "\"stop\"", "null")).then(0, DONE));
    assert_eq!((&answer.finish, answer.output_tokens), (&Finish::Stop, 2));
}

#[test]
fn an_end_without_a_token_is_no_output() {
    let stop = chunk("{}", "\"stop\"", "{\"completion_tokens\":0}");
    for script in [Script::stream().then(0, DONE), Script::stream().then(0, &stop).then(0, DONE)] {
        let answer = chat(script);
        assert_eq!((failure(&answer).0, answer.first_token_at), (ErrorClass::NoOutput, None));
    }
}

#[test]
fn an_end_after_the_finish_reason_needs_no_mark_and_one_before_it_is_too_early() {
    let answer = chat(Script::stream().then(0, &token("a")).then(0, &last("b", 2)));
    assert_eq!((&answer.finish, answer.output_tokens), (&Finish::Stop, 2));
    for script in [Script::stream(), Script::stream().until_close()] {
        let answer = chat(script.then(0, &token("a")));
        let (class, message) = failure(&answer);
        assert_eq!((class, answer.output_tokens), (ErrorClass::ConnectionClosed, 1));
        assert!(message.contains("closed too early"), "{message}");
    }
}

#[test]
fn an_end_mark_without_a_finish_reason_says_nothing_of_the_answer() {
    let counted = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":100,\"completion_tokens\":2}}\n\n";
    let unnamed = [
        chat(Script::stream().then(0, &token("a")).then(0, &token("b")).then(0, DONE)),
        chat(Script::stream().then(0, &token("a")).then(0, &token("b")).then(0, counted).then(0, DONE)),
        native(Script::stream().then(0, &generate_event(2, "null")).then(0, DONE)),
    ];
    for answer in unnamed {
        let (class, message) = failure(&answer);
        assert_eq!((class, answer.output_tokens), (ErrorClass::BadAnswer, 2));
        assert!(message.contains("no finish reason"), "{message}");
    }
    // Bare text has no place for one: its end mark is all the end there is.
    let bare = "data: {\"text\":\"x\"}\n\n";
    let answer = native(Script::stream().then(0, bare).then(0, bare).then(0, DONE));
    assert_eq!((&answer.finish, answer.output_tokens), (&Finish::Stop, 2));
}

#[test]
fn the_servers_count_of_a_served_prompt_is_compared_with_what_was_sent() {
    let told = |counted: u32, reason: &str| {
        generate_event(10, reason).replace("{\"completion", &format!("{{\"prompt_tokens\":{counted},\"completion"))
    };
    block_on(async {
        let length = r#"{"type":"length"}"#;
        let abort = r#"{"type":"abort","message":"session id s does not exist"}"#;
        let events = [told(100, length), told(101, length), told(1, abort), generate_event(10, length)];
        let next = std::sync::atomic::AtomicUsize::new(0);
        let fake = Fake::start(move |_| {
            let at = next.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            Script::stream().then(0, &events[at]).then(0, DONE)
        });
        let fake = fake.await;
        let trace = two_turns();
        let mut rig = Rig::new(&trace, target(&[&fake.url]));
        for _ in 0..4 {
            rig.finish(generate_of(&trace, 0)).await;
        }
        let prompts =
            crate::record::PromptFacts { compared: 2, differing: 1, sent_tokens: 100, counted_tokens: 101, untold: 1 };
        assert_eq!(
            rig.client.seen().prompts,
            prompts,
            "an abort tells of no prompt, nor does an answer without a count"
        );
    });
}

#[test]
fn a_server_that_says_nothing_of_its_cache_has_not_said_0() {
    block_on(async {
        let silent =
            r#"data: {"choices":[{"index":0,"text":"x","finish_reason":"length"}],"usage":{"completion_tokens":10}}"#;
        let script = Script::stream().then(0, &format!("{silent}\n\n")).then(0, DONE);
        for script in [script, Script::json(404, "{}"), Script::stream()] {
            let fake = Fake::start(move |_| script.clone()).await;
            let trace = two_turns();
            let dialect = Dialect::OpenAi(OpenAiApi::Completions);
            let mut rig = Rig::new(&trace, crate::live::Target { dialect, ..target(&[&fake.url]) });
            assert_eq!(rig.finish(generate_of(&trace, 0)).await.cached_tokens, None);
        }
    });
}

#[test]
fn an_answer_that_can_hold_no_event_says_why() {
    block_on(async {
        let gzip = Script::tokens(10).header("content-encoding", "gzip");
        let none = Script::json(204, "").header("content-type", "text/event-stream");
        for (script, words) in [(gzip, "the content encoding gzip"), (none, "HTTP 204: an answer without a body")] {
            let fake = Fake::start(move |_| script.clone()).await;
            let trace = two_turns();
            let answer = Rig::new(&trace, target(&[&fake.url])).finish(generate_of(&trace, 0)).await;
            let (class, message) = failure(&answer);
            assert_eq!(class, ErrorClass::BadAnswer);
            assert!(message.contains(words), "{message}");
        }
        let plain = Script::tokens(10).header("content-encoding", "identity");
        let fake = Fake::start(move |_| plain.clone()).await;
        let trace = two_turns();
        assert_eq!(Rig::new(&trace, target(&[&fake.url])).finish(generate_of(&trace, 0)).await.finish, Finish::Length);
    });
}

#[test]
fn a_flood_is_not_read_to_its_end() {
    // Ten are asked for; 76 are within the bound. Whoever read on would wait for ever.
    for (dialect, event) in [(CHAT, token("x")), (Dialect::Generate, "data: {\"text\":\"x\"}\n\n".to_owned())] {
        block_on(async {
            let script = Script::stream().then(0, &event.repeat(5000)).end(End::Hang);
            let fake = Fake::start(move |_| script.clone()).await;
            let trace = two_turns();
            let mut rig = Rig::new(&trace, crate::live::Target { dialect, ..target(&[&fake.url]) });
            let answer = rig.finish(generate_of(&trace, 0)).await;
            let (class, message) = failure(&answer);
            assert_eq!((class, answer.output_tokens), (ErrorClass::ExcessOutput, 77));
            assert_eq!(message, "a flood: 77 tokens for 10 asked for, and the rest was not read");
            assert_eq!(counts(&answer).iter().sum::<u32>(), 77, "what was seen is told");
            assert!(answer.first_token_at.is_some() && answer.last_token_at.is_some());
            while !fake.is_left() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
    }
    let some_more = (0..40).fold(Script::stream(), |script, _| script.then(0, &token("x")));
    let answer = chat(some_more.then(0, &chunk("{}", "\"length\"", "null")).then(0, DONE));
    assert_eq!(
        (&answer.finish, answer.output_tokens),
        (&Finish::Length, 40),
        "read to its end, and judged by its count"
    );
}

#[test]
fn twenty_very_long_events_are_read_in_no_time() {
    block_on(async {
        let long = format!(
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{}\"}},\"finish_reason\":null}}]}}\n\n",
            "x".repeat(1_500_000)
        );
        let script = Script::stream().then(0, &long[..70]).then(1, &long[70..]).then(5, &last(".", 2)).then(0, DONE);
        let answers = (0..20).map(|_| answer_to(CHAT, |_| {}, script.clone()));
        for answer in futures_util::future::join_all(answers).await {
            assert_eq!((&answer.finish, answer.output_tokens), (&Finish::Stop, 2));
        }
    });
}

#[test]
fn what_is_no_answer_is_named() {
    let html = Script::json(200, "<html><body>login</body></html>").header("content-type", "text/html");
    let answer = chat(html);
    let (class, message) = failure(&answer);
    assert_eq!(class, ErrorClass::BadAnswer);
    assert!(message.contains("text/html") && message.contains("login"), "{message}");
    let error = chat(Script::json(200, r#"{"error":{"message":"model not loaded","code":503}}"#));
    assert_eq!(failure(&error), (ErrorClass::Overloaded, "model not loaded"));
    let broken = chat(Script::stream().then(0, &token("a")).then(0, "data: {\"choices\":[{\n\n").then(0, DONE));
    assert_eq!((failure(&broken).0, broken.output_tokens), (ErrorClass::BadAnswer, 1));
    let other = chat(Script::stream().then(0, "data: {\"hello\":1}\n\n").then(0, DONE));
    assert_eq!(failure(&other).0, ErrorClass::BadAnswer);
    let huge = "x".repeat(17 << 20);
    let answer = chat(Script::stream().then(0, "data: ").then(0, &huge));
    assert!(failure(&answer).1.contains("longer than 16777216 bytes"), "{:?}", failure(&answer));
}

#[test]
fn a_silent_stream_is_stalled_and_keeps_its_tokens() {
    let stall = |target: &mut crate::live::Target| target.limits.stall = Some(Duration::from_millis(100));
    // Comments are signs of life.
    let script = Script::stream().then(0, &token("a")).then(70, ": ping\n\n").then(70, ": ping\n\n").end(End::Hang);
    let answer = block_on(answer_to(CHAT, stall, script));
    let (class, message) = failure(&answer);
    assert_eq!((class, answer.output_tokens), (ErrorClass::Stalled, 1));
    assert!(message.contains("no data for 0.1 s"), "{message}");
}

#[test]
fn the_first_token_has_its_own_limit() {
    let limit = |first_ms: u64| {
        move |target: &mut crate::live::Target| {
            target.limits.first_token = Some(Duration::from_millis(first_ms));
            target.limits.stall = Some(Duration::from_millis(60));
        }
    };
    // Silence before it is no stall: a queue is silent too.
    let waits = Script::stream().then(150, &token("a")).then(0, &last("b", 2)).then(0, DONE);
    assert_eq!(block_on(answer_to(CHAT, limit(10_000), waits)).finish, Finish::Stop);
    let late = Script::stream().then(60, ": ping\n\n").then(40, ": ping\n\n").then(60, ": ping\n\n").end(End::Hang);
    let answer = block_on(answer_to(CHAT, limit(120), late));
    assert_eq!(failure(&answer), (ErrorClass::FirstTokenTimeout, "no first token within 0.12 s"));
    // Nor does it matter whether the head has come.
    let headless = answer_to(CHAT, limit(100), Script::nothing().end(End::Mute));
    assert_eq!(failure(&block_on(headless)).0, ErrorClass::FirstTokenTimeout);
    let stall = |target: &mut crate::live::Target| target.limits.stall = Some(Duration::from_millis(60));
    let silent = answer_to(CHAT, stall, Script::nothing().end(End::Mute));
    assert_eq!(failure(&block_on(silent)), (ErrorClass::Stalled, "no data for 0.06 s"), "a server that never answers");
}

/// A whole answer of five tokens, with how many bytes of it hold all the verdict.
fn whole(native: bool) -> (Vec<u8>, usize) {
    let mut stream = String::from(": hi\n\n");
    for count in 1..=4 {
        stream.push_str(&if native { generate_event(count, "null") } else { token("é🙂") });
    }
    stream.push_str(&if native { generate_event(5, r#"{"type":"length"}"#) } else { last("x", 5) });
    let decided = stream.len();
    stream.push_str(DONE);
    (stream.into_bytes(), decided)
}

proptest! {
    #[test]
    fn a_stream_cut_anywhere_is_never_a_whole_answer(native: bool, cut in 0usize..2000, size in 1usize..90) {
        let (stream, decided) = whole(native);
        let cut = cut.min(stream.len());
        let (mut parser, mut tally) = (SseParser::new(1 << 20), Tally::default());
        for piece in stream[..cut].chunks(size) {
            parser.push(piece, |data| tally.take(Time(1), data).unwrap()).unwrap();
        }
        let is_whole = matches!(tally.verdict(), Finish::Length | Finish::Stop) && tally.tokens == 5;
        prop_assert_eq!(is_whole, cut >= decided);
        prop_assert_eq!(tally.runs.iter().map(|run| run.count).sum::<u32>(), tally.tokens);
    }

    #[test]
    fn noise_is_never_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), at in 0usize..500) {
        let (mut stream, _) = whole(true);
        let at = at.min(stream.len());
        stream.splice(at..at, bytes);
        let (mut parser, mut tally) = (SseParser::new(1 << 20), Tally::default());
        let mut wrong = false;
        let fed = parser.push(&stream, |data| wrong |= tally.take(Time(1), data).is_err());
        prop_assert!(fed.is_ok());
        let _ = (wrong, tally.verdict());
    }
}
