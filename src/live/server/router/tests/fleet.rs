//! Workers that come and go, colocated ones, calls that are no requests, the end of the server.

use super::*;

#[test]
fn colocated_workers_get_the_body_as_it_is() {
    run(async {
        let mut w = Fake::start().await;
        let bench = Bench::start(Addresses { colocated: vec![w.endpoint(None)], ..Addresses::default() }, |_| {}).await;
        let body = json!({"prompt": [1, 2], "session_params": {"id": "s"}});
        let call = bench.post(body.clone());
        let mut posted = w.next().await;
        assert_eq!(posted.body, body);
        posted.answer(200, "{}").await;
        let answer = call.await.unwrap();
        assert_eq!(
            (header(&answer, "x-smg-routed-worker-id"), header(&answer, "x-pdreplay-prefill-worker")),
            (&*w.url, "")
        );
        assert_eq!(text(answer).await, "{}");
        let call = bench.post(json!({}));
        w.next().await.answer(500, "no").await;
        assert_eq!(header(&call.await.unwrap(), "x-smg-error-code"), "worker_internal_error");
    });
}

#[test]
fn a_worker_is_chosen_while_it_is_healthy() {
    run(async {
        let (bench, _p, mut d) = Bench::pd().await;
        d.healthy.store(false, Ordering::Relaxed);
        bench.wait_for("/readiness", 503).await;
        let answer = bench.post(json!({})).await.unwrap();
        assert_eq!((answer.status().as_u16(), header(&answer, "x-smg-error-code")), (503, "no_available_workers"));
        let ready: Value = serde_json::from_str(&bench.get("/readiness").await.1).unwrap();
        assert_eq!(ready, json!({"status": "not ready", "healthy_workers": 1, "total_workers": 2}));
        d.healthy.store(true, Ordering::Relaxed);
        bench.wait_for("/readiness", 200).await;
        let call = bench.post(json!({}));
        d.next().await.answer(200, "{}").await;
        assert_eq!(call.await.unwrap().status(), 200);
        assert!(bench.get("/metrics").await.1.contains("pdreplay_router_no_available_workers_total 1\n"));
    });
}

#[test]
fn calls_that_are_not_requests_are_answered_or_passed_on() {
    run(async {
        let (bench, mut p, mut d) = Bench::pd().await;
        for path in ["/health", "/liveness", "/readiness", "/health_generate"] {
            assert_eq!(bench.get(path).await.0, 200, "{path}");
        }
        let list: Value = serde_json::from_str(&bench.get("/workers").await.1).unwrap();
        assert_eq!((&list["total"], &list["workers"][1]["url"]), (&2.into(), &d.url.clone().into()));
        let info: Value = serde_json::from_str(&bench.get("/server_info").await.1).unwrap();
        assert_eq!((&info["emulated"]["worker"], &info["emulated"]["speed"]), (&"router".into(), &1.0.into()));
        let version = env!("CARGO_PKG_VERSION");
        let incarnation = &info["emulated"]["incarnation"];
        let emulated = json!({"worker": "router", "incarnation": incarnation, "version": version, "speed": 1.0});
        assert_eq!(info, json!({"version": version, "emulated": emulated}), "nothing of an engine");
        let (models, ()) = tokio::join!(bench.get("/v1/models?x=1"), async {
            let mut asked = p.next().await;
            assert!(asked.head.starts_with("get /v1/models?x=1 "), "{}", asked.head);
            asked.answer(200, r#"{"data":[]}"#).await;
        });
        assert_eq!(models, (200, r#"{"data":[]}"#.into()));
        let (flushed, ()) = tokio::join!(bench.get("/flush_cache"), async {
            p.next().await.answer(200, "Cache flushed").await;
            d.next().await.answer(400, "busy").await;
        });
        let told: Value = serde_json::from_str(&flushed.1).unwrap();
        assert_eq!((flushed.0, &told["successful"], &told["failed"][0][1]), (206, &json!([p.url]), &"400 busy".into()));
        let (loads, ()) = tokio::join!(bench.get("/get_loads"), async {
            p.next().await.answer(200, r#"{"loads":[]}"#).await;
            d.next().await.answer(404, "").await;
        });
        let told: Value = serde_json::from_str(&loads.1).unwrap();
        assert_eq!((&told["workers"][0]["load"], &told["workers"][1]["load"]), (&json!({"loads": []}), &Value::Null));
        assert_eq!((bench.get("/open_session").await.0, bench.get("/generate").await.0), (404, 405));
        let wrong = bench.client.post(&format!("{}/generate", bench.url), HeaderMap::new(), "[".into()).await.unwrap();
        assert_eq!(wrong.status(), 400);
    });
}

#[test]
fn a_stop_lets_what_is_under_way_end() {
    run(async {
        let (bench, _p, mut d) = Bench::pd().await;
        let call = bench.post(json!({}));
        let mut to_d = d.next().await;
        to_d.send(CHUNKED).await;
        to_d.chunk("a").await;
        let answer = call.await.unwrap();
        let Bench { url, client, _stop } = bench;
        drop(_stop);
        while client.send(Method::GET, &format!("{url}/health"), HeaderMap::new(), None).await.is_ok() {}
        to_d.chunk("b").await;
        to_d.send("0\r\n\r\n").await;
        assert_eq!(text(answer).await, "ab");
    });
}
