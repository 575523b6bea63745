//! Hostile servers behind legs that the client joins (`live.legs = "direct"`): whatever P or D answers, the request has
//! the outcome it deserves, the run ends by itself, and nothing counts as ok that is not.

use serde_json::{Value, json};

use super::support::fake::{Fake, Reply};
use super::support::run::{LiveRun, Played, row};
use super::support::script::{End, Script};

/// Tokens of the answer asked for.
const TOKENS: u32 = 4;

/// What a P or a D does with each request.
#[derive(Debug, Clone)]
enum Leg {
    Answers(Script),
    /// Closes the connection without a byte.
    Closes,
}

impl Leg {
    fn start(self) -> Fake {
        Fake::start("127.0.0.1:0", move |_| match &self {
            Leg::Answers(script) => Reply::Answer(script.clone()),
            Leg::Closes => Reply::Fin,
        })
    }

    /// Does not say a word, and keeps the connection.
    fn mute() -> Leg {
        Leg::Answers(Script::events(&[]).ending(End::Hang, 0))
    }

    fn garbage() -> Leg {
        Leg::Answers(Script::events(&[(1, "data: }{ no JSON\n\n")]))
    }

    fn page() -> Leg {
        Leg::Answers(Script::plain(200, "text/html", "<html><body>Please log in</body></html>"))
    }

    /// P as it should be: the end of its leg, without a token of its own.
    fn good_p() -> Leg {
        Leg::Answers(Script::generate(0))
    }

    fn good_d() -> Leg {
        Leg::Answers(Script::generate(TOKENS))
    }
}

/// One event of a `/generate` stream, with so many tokens so far and no end.
fn so_far(tokens: u32) -> String {
    let meta = json!({"completion_tokens": tokens, "finish_reason": Value::Null});
    format!("data: {}\n\n", json!({"text": "a", "meta_info": meta}))
}

/// Two requests, one after the other, to this P and this D; silence is borne for a second or two.
fn play(p: Leg, d: Leg) -> Played {
    let (p, d) = (p.start(), d.start());
    let trace = row("a", 0, 0.0, 64, TOKENS) + &row("b", 0, 0.1, 64, TOKENS);
    LiveRun::of(&trace)
        .set("replay.mechanism", "pd")
        .set("policy.name", "default")
        .set("live.target", "sglang")
        .set("live.legs", "direct")
        .set("live.prefill", &format!("[\"{} {}\"]", p.url(), p.port()))
        .set("live.decode", &format!("[\"{}\"]", d.url()))
        .set("live.first_token_timeout_s", "1.5")
        .set("replay.stall_timeout_s", "1")
        .set("live.health_poll_ms", "0")
        .play()
}

/// Both requests ended so, and the words say it.
#[track_caller]
fn bad(name: &str, (p, d): (Leg, Leg), outcome: &str, class: &str, words: &str) {
    let played = play(p, d).code(1);
    played.sound();
    for record in played.records() {
        let was = (record["outcome"].as_str(), record["error_class"].as_str());
        assert_eq!(was, (Some(outcome), Some(class)), "{name}: {record:#}");
        assert!(record["error_message"].as_str().unwrap_or_default().contains(words), "{name}, `{words}`: {record:#}");
    }
}

#[test]
fn good_legs_are_ok() {
    let played = play(Leg::good_p(), Leg::good_d()).code(0);
    assert_eq!(played.count("ok"), 2, "{:#?}", played.records());
}

#[test]
fn a_hostile_p_fails_the_request_in_its_own_name() {
    let cases = [
        ("garbage", Leg::garbage(), "error", "prefill-failed", "prefill failed on P0: "),
        ("web page", Leg::page(), "error", "prefill-failed", "prefill failed on P0: the answer is text/html"),
        ("closes unanswered", Leg::Closes, "error", "prefill-failed", "prefill failed on P0: "),
        (
            "closes in the middle",
            Leg::Answers(Script::events(&[(1, ": wait\n\n")]).ending(End::Fin, 5)),
            "error",
            "prefill-failed",
            "in the middle of the answer",
        ),
        (
            "resets in the middle",
            Leg::Answers(Script::events(&[(1, ": wait\n\n")]).ending(End::Rst, 5)),
            "error",
            "prefill-failed",
            "in the middle of the answer",
        ),
        (
            "500",
            Leg::Answers(Script::json(500, &json!({"error": {"message": "boom"}}))),
            "error",
            "prefill-failed",
            "HTTP 500: boom",
        ),
        ("never answers", Leg::mute(), "timeout", "first-token-timeout", ""),
    ];
    for (name, p, outcome, class, words) in cases {
        // D waits for the KV that never comes.
        bad(name, (p, Leg::mute()), outcome, class, words);
    }
}

#[test]
fn a_hostile_d_fails_the_request_though_p_is_good() {
    let cases = [
        ("garbage", Leg::garbage(), "error", "bad-answer", ""),
        ("web page", Leg::page(), "error", "bad-answer", "the answer is text/html"),
        ("closes unanswered", Leg::Closes, "error", "connection-closed", "before the answer"),
        (
            "500",
            Leg::Answers(Script::json(500, &json!({"error": {"message": "boom"}}))),
            "error",
            "server-error",
            "HTTP 500: boom",
        ),
        (
            "closes in the middle",
            Leg::Answers(Script::events(&[(1, &so_far(2))]).ending(End::Fin, 5)),
            "error",
            "connection-closed",
            "in the middle of the answer",
        ),
        ("ends too early", Leg::Answers(Script::events(&[(1, &so_far(2))])), "error", "connection-closed", ""),
        (
            "goes silent",
            Leg::Answers(Script::events(&[(1, &so_far(2))]).ending(End::Hang, 0)),
            "timeout",
            "stalled",
            "",
        ),
        (
            "streams without end",
            Leg::Answers(Script::events(&[(1, &(1..=3000).map(so_far).collect::<String>())]).ending(End::Hang, 0)),
            "error",
            "excess-output",
            "",
        ),
        ("end mark alone", Leg::Answers(Script::events(&[(1, "data: [DONE]\n\n")])), "error", "no-output", ""),
        ("never answers", Leg::mute(), "timeout", "first-token-timeout", ""),
    ];
    for (name, d, outcome, class, words) in cases {
        bad(name, (Leg::good_p(), d), outcome, class, words);
    }
}

#[test]
fn a_whole_answer_of_d_is_one_whatever_p_says_behind_it_but_not_whatever_it_said_before() {
    // P's leg never ends, as behind some routers: D's word is what counts.
    let played = play(Leg::mute(), Leg::good_d()).code(0);
    played.sound();
    assert_eq!(played.count("ok"), 2, "{:#?}", played.records());
    // D says that it has all, long after P said that it failed.
    let late = Script::generate(TOKENS);
    let late = Script { pieces: late.pieces.into_iter().map(|piece| piece.after(500)).collect(), ..late };
    bad(
        "P failed before",
        (Leg::Answers(Script::json(500, &json!({"error": {"message": "boom"}}))), Leg::Answers(late)),
        "error",
        "prefill-failed",
        "boom",
    );
}
