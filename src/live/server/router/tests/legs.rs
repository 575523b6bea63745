//! A request of two legs: posted together, failing apart, sent again.

use super::*;

#[test]
fn both_legs_are_posted_at_once_and_chunks_pass_as_they_come() {
    run(async {
        let (bench, mut p, mut d) = Bench::pd().await;
        let headers = [
            ("authorization", "Bearer k"),
            ("x-request-id-a", "1"),
            ("traceparent", "t"),
            ("x-smg-routing-key", "s"),
            ("x-session-id", "no"),
        ];
        let call = bench.post_with(&headers, json!({"rid": "s/1", "input_ids": [1], "session_params": {"id": "s"}}));
        let (mut to_p, mut to_d) = (p.next().await, d.next().await);
        for part in ["authorization: bearer k", "x-request-id-a: 1", "traceparent: t", "x-smg-routing-key: s"] {
            assert!(to_p.head.contains(part) && to_d.head.contains(part), "{part}");
        }
        assert!(!to_d.head.contains("x-session-id"));
        assert_eq!(to_p.body["bootstrap_room"], to_d.body["bootstrap_room"]);
        assert_eq!((&to_p.body["bootstrap_port"], &to_p.body["bootstrap_host"]), (&8998.into(), &"127.0.0.1".into()));
        assert_eq!((to_p.body.get("session_params"), &to_d.body["session_params"]["id"]), (None, &"s".into()));
        to_d.send(CHUNKED).await;
        to_d.chunk("data: 1\n\n").await;
        let answer = call.await.unwrap();
        assert_eq!(
            (header(&answer, "x-smg-routed-worker-id"), header(&answer, "x-pdreplay-prefill-worker")),
            (&*d.url, &*p.url)
        );
        assert_eq!(
            (header(&answer, "x-pdreplay-worker"), header(&answer, "content-type")),
            ("D0", "text/event-stream")
        );
        let mut chunks = answer.into_body().into_data_stream();
        assert_eq!(next(&mut chunks).await, "data: 1\n\n");
        assert_eq!(bench.load().await, 2);
        to_p.answer(200, P_DONE).await;
        to_d.chunk("data: 2\n\n").await;
        assert_eq!(next(&mut chunks).await, "data: 2\n\n");
        to_d.chunk("data: [DONE]\n\n").await;
        to_d.send("0\r\n\r\n").await;
        assert_eq!(next(&mut chunks).await, "data: [DONE]\n\n");
        assert!(chunks.next().await.is_none());
        drop(chunks);
        while bench.load().await > 0 {}
    });
}

#[test]
fn a_prefill_that_fails_ends_the_request_and_d_is_let_go() {
    let abort =
        "data: {\"meta_info\":{\"finish_reason\":{\"type\":\"abort\",\"message\":\"x\",\"status_code\":400}}}\n\n";
    let cases = [(Some(400), "no", 400), (Some(503), "busy", 500), (Some(200), abort, 400), (None, "", 500)];
    for d_has_head in [false, true] {
        for (status, body, told) in cases {
            run(async {
                let (bench, mut p, mut d) = Bench::pd().await;
                let call = bench.post(json!({"input_ids": [1], "stream": true}));
                let (mut to_p, mut to_d) = (p.next().await, d.next().await);
                if d_has_head {
                    to_d.send(CHUNKED).await;
                }
                match status {
                    Some(status) => to_p.answer(status, body).await,
                    None => drop(to_p),
                }
                let answer = call.await.unwrap();
                assert_eq!(answer.status(), told, "{status:?} {d_has_head}");
                let code = if told == 400 { "prefill_bad_request" } else { "prefill_internal_error" };
                assert_eq!(header(&answer, "x-smg-error-code"), code);
                assert_eq!(header(&answer, "x-pdreplay-prefill-worker"), p.url);
                to_d.until_dropped().await;
                let error: Value = serde_json::from_str(&text(answer).await).unwrap();
                assert_eq!((&error["error"]["code"], &error["error"]["param"]), (&code.into(), &Value::Null));
                assert!(error["error"]["message"].as_str().unwrap().contains(&p.url), "{error}");
                assert_eq!(bench.load().await, 0);
            });
        }
    }
}

#[test]
fn a_prefill_that_fails_late_changes_nothing() {
    run(async {
        let (bench, mut p, mut d) = Bench::pd().await;
        let call = bench.post(json!({"stream": true}));
        let (mut to_p, mut to_d) = (p.next().await, d.next().await);
        to_d.send(CHUNKED).await;
        to_d.chunk("a").await;
        let mut chunks = call.await.unwrap().into_body().into_data_stream();
        assert_eq!(next(&mut chunks).await, "a");
        to_p.answer(500, "died").await;
        to_d.chunk("b").await;
        assert_eq!(next(&mut chunks).await, "b");
    });
}

#[test]
fn when_d_fails_too_p_is_named_if_it_was_the_cause() {
    run(async {
        let (bench, mut p, mut d) = Bench::pd().await;
        let words = "KVTransferError(bootstrap_room=1): transfer failed";
        let abort = format!(r#"{{"meta_info":{{"finish_reason":{{"type":"abort","message":"{words}"}}}}}}"#);
        let event = format!("data: {abort}\n\n");
        let call = bench.post(json!({"stream": true}));
        let (to_p, mut to_d) = (p.next().await, d.next().await);
        to_d.send(CHUNKED).await;
        to_d.chunk(&event).await;
        drop(to_p);
        assert_eq!(header(&call.await.unwrap(), "x-smg-error-code"), "prefill_internal_error");
        // Both speak of the hand-off alone: D's words pass, whoever is first.
        let call = bench.post(json!({"stream": true}));
        let (mut to_p, mut to_d) = (p.next().await, d.next().await);
        to_p.answer(200, &abort).await;
        to_d.send(CHUNKED).await;
        to_d.chunk(&event).await;
        assert_eq!(call.await.unwrap().status(), 200);
        // P has lost D, which says so by a connection that breaks.
        let call = bench.post(json!({"stream": true}));
        let (mut to_p, to_d) = (p.next().await, d.next().await);
        to_p.answer(200, &abort).await;
        drop(to_d);
        let answer = call.await.unwrap();
        assert_eq!((answer.status().as_u16(), header(&answer, "x-smg-error-code")), (502, "decode_unavailable"));
        // D says nothing: P's word stands.
        let call = bench.post(json!({"stream": true}));
        let (mut to_p, _to_d) = (p.next().await, d.next().await);
        to_p.answer(200, &abort).await;
        assert_eq!(header(&call.await.unwrap(), "x-smg-error-code"), "prefill_internal_error");
        // P has nothing to say: D's own words pass.
        let call = bench.post(json!({"stream": true}));
        let (_to_p, mut to_d) = (p.next().await, d.next().await);
        to_d.send(CHUNKED).await;
        to_d.chunk("data: {\"meta_info\":{\"finish_reason\":{\"type\":\"abort\"}}}\n\n").await;
        assert_eq!(call.await.unwrap().status(), 200);
    });
}

#[test]
fn what_d_refuses_is_told_with_its_status_and_p_is_let_go() {
    run(async {
        let (bench, mut p, mut d) = Bench::pd().await;
        for (status, code) in [(400, "bad_request"), (503, "unavailable"), (500, "internal_error")] {
            let call = bench.post(json!({}));
            let (to_p, mut to_d) = (p.next().await, d.next().await);
            to_d.answer(status, r#"{"error":{"message":"session id s does not exist"}}"#).await;
            let answer = call.await.unwrap();
            assert_eq!(
                (answer.status().as_u16(), header(&answer, "x-smg-error-code")),
                (status, &*format!("decode_{code}"))
            );
            assert_eq!((header(&answer, "retry-after"), header(&answer, "x-smg-routed-worker-id")), ("3", &*d.url));
            let error: Value = serde_json::from_str(&text(answer).await).unwrap();
            assert!(error["error"]["message"].as_str().unwrap().contains("session id s does not exist"));
            to_p.until_dropped().await;
        }
        let call = bench.post(json!({}));
        let (to_p, to_d) = (p.next().await, d.next().await);
        drop(to_d);
        assert_eq!(call.await.unwrap().status(), 502);
        to_p.until_dropped().await;
    });
}

#[test]
fn a_worker_that_does_not_listen_is_unavailable() {
    run(async {
        let (alive, reserved) = (Fake::start().await, tokio::net::TcpSocket::new_v4().unwrap());
        // Bound and not listening: connections are refused, and nobody else gets the port.
        reserved.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let dead = Endpoint { url: format!("http://{}", reserved.local_addr().unwrap()), bootstrap_port: None };
        for (prefill, decode, code) in [
            (dead.clone(), alive.endpoint(None), "prefill_unavailable"),
            (alive.endpoint(None), dead.clone(), "decode_unavailable"),
        ] {
            let workers = Addresses { prefill: vec![prefill], decode: vec![decode], ..Addresses::default() };
            let front = Arc::new(Front::new(RouterServerOptions::new(Clock::start(1.0), workers, policies())));
            // As if the last look had found everybody well.
            for (worker, _) in front.options.workers.workers() {
                front.node().heard(worker, true);
            }
            let post = relay::generate(State(front), "/generate".parse().unwrap(), HeaderMap::new(), Body::from("{}"));
            let answer = post.await;
            assert_eq!((answer.status().as_u16(), header(&answer, "x-smg-error-code")), (502, code));
        }
    });
}

#[test]
fn a_client_that_leaves_lets_both_legs_go() {
    run(async {
        let (bench, mut p, mut d) = Bench::pd().await;
        let call = bench.post(json!({"stream": true}));
        let (to_p, to_d) = (p.next().await, d.next().await);
        call.abort();
        to_p.until_dropped().await;
        to_d.until_dropped().await;
        let call = bench.post(json!({"stream": true}));
        let (to_p, mut to_d) = (p.next().await, d.next().await);
        to_d.send(CHUNKED).await;
        to_d.chunk("a").await;
        let mut chunks = call.await.unwrap().into_body().into_data_stream();
        next(&mut chunks).await;
        drop(chunks);
        to_p.until_dropped().await;
        to_d.until_dropped().await;
        while bench.load().await > 0 {}
    });
}

#[test]
fn a_stream_that_breaks_off_breaks_off_for_the_client() {
    run(async {
        let (bench, _p, mut d) = Bench::pd().await;
        let call = bench.post(json!({"stream": true}));
        let mut to_d = d.next().await;
        to_d.send(CHUNKED).await;
        to_d.chunk("a").await;
        let mut chunks = call.await.unwrap().into_body().into_data_stream();
        assert_eq!(next(&mut chunks).await, "a");
        drop(to_d);
        assert!(chunks.next().await.unwrap().is_err(), "no end that looks like one");
    });
}

#[test]
fn retries_choose_and_meet_anew() {
    run(async {
        let (mut p, mut d) = (Fake::start().await, Fake::start().await);
        let (prefill, decode) = (vec![p.endpoint(None)], vec![d.endpoint(None)]);
        let bench = Bench::start(Addresses { prefill, decode, ..Addresses::default() }, |options| {
            options.clock = Clock::start(20.0);
            options.retry = Some(RetryRule::SMG);
        });
        let bench = bench.await;
        let call = bench.post(json!({}));
        let (mut rooms, mut held) = (Vec::new(), Vec::new());
        for _ in 0..5 {
            let mut to_d = d.next().await;
            held.push(p.next().await);
            rooms.push(to_d.body["bootstrap_room"].as_u64().unwrap());
            to_d.answer(503, "busy").await;
        }
        assert_eq!(call.await.unwrap().status(), 503);
        rooms.sort_unstable();
        rooms.dedup();
        assert_eq!(rooms.len(), 5);
        let call = bench.post(json!({}));
        d.next().await.answer(400, "bad").await;
        assert_eq!(call.await.unwrap().status(), 400, "the client's own mistake is not sent again");
    });
}
