//! `/generate`: streams, whole answers, verdicts and refusals.

use super::*;

#[test]
fn a_stream_repeats_everything_so_far() {
    run(async {
        let server = start("W0").await;
        let reply = server.post("/generate", &ask(&prompt(100, 40), 5, true)).await.ok();
        let events = reply.events();
        let mut before: Vec<Value> = Vec::new();
        for event in &events {
            let ids = event["output_ids"].as_array().unwrap();
            assert!(ids.starts_with(&before) && ids.len() > before.len(), "{event}");
            let text: String = ids.iter().map(|id| format!(" t{id}")).collect();
            assert_eq!(event["text"], text);
            let meta = &event["meta_info"];
            assert_eq!((&meta["completion_tokens"], &meta["id"]), (&json!(ids.len()), &json!("s/1")));
            assert_eq!(meta["prompt_tokens"], 40);
            assert_eq!(meta["finish_reason"].is_null(), ids.len() < 5);
            before.clone_from(ids);
        }
        let meta = &events.last().unwrap()["meta_info"];
        assert_eq!(meta["finish_reason"], json!({ "type": "length", "length": 5 }));
        assert_eq!((&meta["emulated"]["worker"], &meta["emulated"]["incarnation"]), (&json!("W0"), &json!(7)));
        assert!(meta["emulated"]["prefill_ns"].as_u64().unwrap() > 0);
        assert!(meta["e2e_latency"].as_f64().unwrap() > 0.0);
        assert_eq!(meta["num_retractions"], 0);
        assert_eq!((reply.header(WORKER_HEADER), reply.header(INCARNATION_HEADER)), (Some("w0"), Some("7")));
    });
}

#[test]
fn incremental_events_add_up_to_the_cumulative_answer() {
    run(async {
        let options = WorkerServerOptions { incremental_output: true, version: SglangVersion::V0_5_10, ..options() };
        let server = start_with(config("W0"), options).await;
        let whole = server.post("/generate", &ask(&prompt(0, 40), 30, false)).await.ok().json();
        let events = server.post("/generate", &ask(&prompt(0, 40), 30, true)).await.ok().events();
        let ids: Vec<&Value> = events.iter().flat_map(|event| event["output_ids"].as_array().unwrap()).collect();
        assert_eq!(ids, whole["output_ids"].as_array().unwrap().iter().collect::<Vec<_>>());
        let text: String = events.iter().map(|event| event["text"].as_str().unwrap()).collect();
        assert_eq!(whole["text"], text);
        assert_eq!(events.last().unwrap()["meta_info"]["completion_tokens"], 30);
        assert_eq!(events.last().unwrap()["meta_info"]["total_retractions"], 0);
    });
}

#[test]
fn an_answer_is_the_one_it_was_told_and_is_cached_with_its_prompt() {
    run(async {
        let server = start("W0").await;
        let mut body = ask(&prompt(0, 40), 24, false);
        body["sampling_params"]["custom_params"] = json!({ "output_ids": prompt(500, 24) });
        let first = server.post("/generate", &body).await.ok().json();
        assert_eq!(first["output_ids"], json!(prompt(500, 24)));
        assert_eq!(first["meta_info"]["cached_tokens"], 0);
        let next = [prompt(0, 40), prompt(500, 24), prompt(900, 16)].concat();
        let second = server.post("/generate", &ask(&next, 1, false)).await.ok().json();
        let cached = second["meta_info"]["cached_tokens"].as_u64().unwrap();
        assert!((48..=64).contains(&cached), "{cached}");
    });
}

#[test]
fn text_is_one_token_a_word() {
    run(async {
        let server = start("W0").await;
        let body = json!({ "text": "fix the bug", "sampling_params": { "max_new_tokens": 2 } });
        let answer = server.post("/generate", &body).await.ok().json();
        assert_eq!(answer["meta_info"]["prompt_tokens"], 3);
        assert_eq!(answer["meta_info"]["completion_tokens"], 2);
        assert!(answer["meta_info"]["id"].as_str().unwrap().starts_with("W0-7-"));
    });
}

#[test]
fn an_unknown_session_is_an_abort_inside_200_or_a_400() {
    run(async {
        let server = start("D0").await;
        let params = json!({ "session_params": { "id": "X" } });
        let words = "Invalid request: session id X does not exist";
        let stream = server.post("/generate", &with(ask(&[1], 5, true), params.clone())).await.ok();
        let events = stream.events();
        let meta = &events.last().unwrap()["meta_info"];
        let reason = json!({ "type": "abort", "message": words, "status_code": 400, "err_type": "BadRequestError" });
        assert_eq!(meta["finish_reason"], reason);
        assert_eq!((&meta["prompt_tokens"], &meta["completion_tokens"]), (&json!(1), &json!(1)));
        server.post("/generate", &with(ask(&[1], 5, false), params)).await.refused(400, words);
    });
}

#[test]
fn a_decode_worker_without_a_room_aborts() {
    run(async {
        let server = start("D0").await;
        let words = "Disaggregated request received without bootstrap room id.";
        let events = server.post("/generate", &ask(&[1, 2], 5, true)).await.ok().events();
        let reason = &events.last().unwrap()["meta_info"]["finish_reason"];
        assert_eq!((&reason["type"], &reason["message"]), (&json!("abort"), &json!(words)));
        server.post("/generate", &ask(&[1, 2], 5, false)).await.refused(400, words);
        let no_host = with(ask(&[1], 5, false), json!({ "bootstrap_room": 5 }));
        server.post("/generate", &no_host).await.refused(400, "bootstrap_host");
    });
}

#[test]
fn what_streaming_sessions_do_not_support_is_aborted() {
    run(async {
        let server = start("D0").await;
        for (key, value) in [("replace", json!(true)), ("offset", json!(3)), ("drop_previous_output", json!(true))] {
            let params = json!({ "session_params": { "id": "X", "rid": null, key: value } });
            let words = format!("Streaming sessions do not support {key}.");
            server.post("/generate", &with(ask(&[1], 5, false), params.clone())).await.refused(400, &words);
            let events = server.post("/generate", &with(ask(&[1], 5, true), params)).await.ok().events();
            assert_eq!(events[0]["meta_info"]["finish_reason"]["message"], words);
        }
    });
}

#[test]
fn a_prompt_beyond_the_limit_is_refused() {
    run(async {
        let mut config = config("W0");
        config.engine.context_limit_tokens = 100;
        let server = start_with(config, options()).await;
        let reply = server.post("/generate", &ask(&prompt(0, 90), 20, false)).await;
        reply.refused(400, "exceeds the maximum number of tokens: 110 > 100");
    });
}

#[test]
fn every_bad_body_is_refused_in_json_and_hurts_nobody() {
    run(async {
        let options = WorkerServerOptions { body_limit: 10_000, ..options() };
        let server = start_with(config("W0"), options).await;
        let sampling = |key: &str, value: Value| {
            let mut body = ask(&[1], 1, true);
            body["sampling_params"][key] = value;
            body
        };
        let bodies = [
            (sampling("max_tokenz", json!(3)), "unexpected keyword argument 'max_tokenz'"),
            (sampling("n", json!(2)), "one answer a request"),
            (sampling("max_new_tokens", json!(0)), "must be at least 1"),
            (json!({ "stream": true }), "Either text, input_ids or input_embeds should be provided."),
            (json!({ "text": "a", "input_ids": [1] }), "Either text"),
            (json!({ "input_ids": [] }), "input_ids cannot be empty."),
            (json!({ "input_ids": [[1], [2]] }), "no batches"),
            (json!({ "text": ["a", "b"] }), "no batches"),
            (json!({ "input_ids": [-1] }), "not what is expected"),
            (json!([1, 2]), "not what is expected"),
        ];
        for (body, words) in bodies {
            server.post("/generate", &body).await.refused(400, words);
        }
        let json = "content-type: application/json\r\n";
        for (headers, body, status, words) in [
            (json, &b"{\"input_ids\": [1"[..], 400, "not what is expected"),
            (json, b"\xff\xfe", 400, "not what is expected"),
            (json, b"", 400, "empty"),
            ("content-type: text/plain\r\n", b"{}", 415, "content-type: application/json"),
            (json, &[b' '; 10_001], 413, "larger than 10000 bytes"),
        ] {
            server.send("POST", "/generate", headers, body).await.refused(status, words);
        }
        // Without a declared length it is seen only while it comes.
        let chunked = "POST /generate HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(chunked.as_bytes()).await.unwrap();
        stream.write_all(&[b"2ee0\r\n", &[b' '; 12_000][..], b"\r\n0\r\n\r\n"].concat()).await.unwrap();
        Call { stream, got: Vec::new() }.reply().await.refused(413, "larger than 10000 bytes");
        server.post("/generate", &ask(&[1], 1, true)).await.ok();
    });
}

#[test]
fn what_routers_write_as_null_is_read_as_left_out() {
    run(async {
        let server = start("W0").await;
        let body = with(
            ask(&[1, 2], 2, false),
            json!({ "text": null, "model": null, "stream": null, "bootstrap_room": null, "return_bytes": false,
                    "sampling_params": { "max_new_tokens": 2, "ignore_eos": null, "stop": null, "custom_params": null } }),
        );
        let answer = server.post("/generate", &body).await.ok().json();
        assert_eq!(answer["meta_info"]["completion_tokens"], 2);
    });
}
