//! The OpenAI endpoints of colocated workers.

use super::*;

/// All texts of a stream, the finish reasons, and the counts.
fn read(events: &[Value], text: &str) -> (String, Vec<String>, Option<Value>) {
    let choices = || events.iter().filter_map(|event| event["choices"].get(0));
    let texts = choices().filter_map(|choice| choice.pointer(text)?.as_str()).collect();
    let reasons = choices().filter_map(|choice| Some(choice["finish_reason"].as_str()?.to_owned())).collect();
    let usage = events.last().filter(|event| event["choices"] == json!([])).map(|event| event["usage"].clone());
    (texts, reasons, usage)
}

#[test]
fn a_completion_streams_its_words_and_its_counts() {
    run(async {
        let server = start("W0").await;
        let body = json!({ "model": "m", "prompt": prompt(0, 40), "max_tokens": 6, "ignore_eos": true, "temperature": 0,
                           "stream": true, "stream_options": { "include_usage": true } });
        let events = server.post("/v1/completions", &body).await.ok().events();
        let (text, reasons, usage) = read(&events, "/text");
        assert_eq!((text.split(' ').skip(1).count(), reasons), (6, vec!["length".to_owned()]));
        let counts = json!({ "prompt_tokens": 40, "completion_tokens": 6, "total_tokens": 46,
                             "prompt_tokens_details": { "cached_tokens": 0 } });
        assert_eq!(usage, Some(counts));
        assert!(events.iter().all(|event| event["object"] == "text_completion" && event["model"] == "m"));
        let plain = with(body, json!({ "stream_options": null, "stream": false }));
        let whole = server.post("/v1/completions", &plain).await.ok().json();
        assert_eq!(whole["choices"][0]["text"], text);
        assert_eq!(
            (&whole["choices"][0]["finish_reason"], &whole["usage"]["total_tokens"]),
            (&json!("length"), &json!(46))
        );
    });
}

#[test]
fn a_chat_begins_with_its_role_and_repeats_itself_into_the_cache() {
    run(async {
        let server = start("W0").await;
        let words = (0..40).map(|word| format!("w{word}")).collect::<Vec<_>>().join(" ");
        let user = json!({ "role": "user", "content": words });
        let body = json!({ "messages": [user], "max_completion_tokens": 30, "stream": true });
        let events = server.post("/v1/chat/completions", &body).await.ok().events();
        assert_eq!(events[0]["choices"][0]["delta"], json!({ "role": "assistant", "content": "" }));
        let (text, reasons, usage) = read(&events, "/delta/content");
        assert_eq!((text.split(' ').skip(1).count(), reasons.len(), usage), (30, 1, None));
        let answer = json!({ "role": "assistant", "content": text });
        let next = json!({ "messages": [user, answer, { "role": "user", "content": "go on" }], "max_tokens": 2 });
        let whole = server.post("/v1/chat/completions", &next).await.ok().json();
        assert_eq!(whole["choices"][0]["message"]["role"], "assistant");
        assert_eq!(whole["usage"]["prompt_tokens"], 72);
        assert_eq!(whole["usage"]["prompt_tokens_details"]["cached_tokens"], 64);
    });
}

#[test]
fn refusals_have_openais_form() {
    run(async {
        let server = start("W0").await;
        for (path, body, words) in [
            ("/v1/completions", json!({}), "`prompt` is missing"),
            ("/v1/chat/completions", json!({ "prompt": "a" }), "`messages` is missing"),
            ("/v1/completions", json!({ "prompt": "a", "n": 2 }), "one answer a request"),
            ("/v1/completions", json!({ "prompt": "" }), "cannot be empty"),
            ("/v1/completions", json!({ "prompt": "a", "max_tokens": 0 }), "at least 1"),
            ("/v1/completions", json!({ "prompt": [1], "max_tokens": 90_000 }), "exceeds the maximum number of tokens"),
            ("/v1/completions", json!({ "prompt": [[1]] }), "not what is expected"),
        ] {
            let reply = server.post(path, &body).await;
            reply.refused(400, words);
            let error = &reply.json()["error"];
            assert_eq!(
                (&error["type"], &error["code"], &error["param"]),
                (&json!("BadRequestError"), &json!(400), &Value::Null)
            );
        }
    });
}

#[test]
fn legs_without_a_room_are_refused() {
    run(async {
        for name in ["P0", "D0"] {
            let server = start(name).await;
            for stream in [true, false] {
                let body = json!({ "prompt": [1, 2], "stream": stream });
                server.post("/v1/completions", &body).await.refused(400, "without bootstrap room id");
            }
        }
    });
}
