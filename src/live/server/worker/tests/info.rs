//! What a worker says of itself, and the door.

use super::*;
use crate::base::Dur;
use crate::live::api::STATS_PATH;

#[test]
fn it_tells_who_it_is() {
    run(async {
        let server = start("P0").await;
        let models = server.get("/v1/models").await.ok().json();
        assert_eq!((&models["data"][0]["id"], &models["data"][0]["owned_by"]), (&json!("emulated"), &json!("sglang")));
        for path in ["/server_info", "/get_server_info"] {
            let info = server.get(path).await.ok().json();
            assert_eq!(info["disaggregation_mode"], "prefill");
            assert_eq!(info["disaggregation_bootstrap_port"], server.address.port());
            assert_eq!((&info["max_total_num_tokens"], &info["version"]), (&json!(83_000), &json!("0.5.23")));
            let emulated = json!({ "worker": "P0", "incarnation": 7, "version": env!("CARGO_PKG_VERSION"),
                                   "speed": SPEED, "block_size": 16 });
            assert_eq!(info["emulated"], emulated);
        }
        for path in ["/model_info", "/get_model_info"] {
            assert_eq!(server.get(path).await.ok().json()["is_generation"], true);
        }
        let stats = server.get(STATS_PATH).await.ok().json();
        assert_eq!((&stats["worker"]["worker"], &stats["transfers"]), (&json!("P0"), &json!([])));
    });
}

#[test]
fn versions_differ_where_sglang_does() {
    run(async {
        let old = WorkerServerOptions { version: SglangVersion::V0_5_10, ..options() };
        let old = start_with(config("D0"), old).await;
        let load = old.get("/get_load").await.ok().json();
        assert_eq!(
            (&load[0]["dp_rank"], &load[0]["num_reqs"], &load[0]["num_tokens"]),
            (&json!(0), &json!(0), &json!(0))
        );
        old.get("/ready").await.refused(404, "/ready");
        let new = start("D0").await;
        new.get("/get_load").await.refused(404, "/get_load only with --sglang-version 0.5.10");
        assert_eq!(new.get("/ready").await.ok().body, "");
    });
}

#[test]
fn loads_follow_what_runs() {
    run(async {
        let server = start("W0").await;
        let mut call = server.begin_post("/generate", &ask(&prompt(0, 500), 30_000, true)).await;
        call.until("output_ids").await;
        let loads = server.get("/v1/loads").await.ok().json();
        assert!(loads["timestamp"].as_str().unwrap().ends_with('Z'));
        let load = &loads["loads"][0];
        assert_eq!((&load["num_running_reqs"], &load["num_waiting_reqs"]), (&json!(1), &json!(0)));
        assert_eq!((&load["max_running_requests"], &load["memory"]["token_capacity"]), (&json!(64), &json!(83_000)));
        assert!(load["num_used_tokens"].as_u64().unwrap() >= 500 && load["token_usage"].as_f64().unwrap() > 0.0);
        assert_eq!(load["disaggregation"]["mode"], "null");
        let part = server.get("/v1/loads?include=core,queues").await.ok().json();
        let load = part["loads"][0].as_object().unwrap();
        assert!(load.contains_key("queues") && !load.contains_key("memory") && !load.contains_key("disaggregation"));
        assert_eq!(server.get("/v1/loads?dp_rank=1").await.ok().json()["loads"], json!([]));
        let text = server.get("/v1/loads?format=prometheus").await.ok().body;
        assert!(text.contains("\nsglang:num_running_reqs{dp_rank=\"0\"} 1\n"), "{text}");
        server.get("/v1/loads?format=xml").await.refused(400, "`json` or `prometheus`");
        server.get("/v1/loads?dp_rank=x").await.refused(400, "dp_rank");
    });
}

#[test]
fn metrics_count_what_was_served() {
    run(async {
        let server = start("W0").await;
        for _ in 0..2 {
            server.post("/generate", &ask(&prompt(0, 40), 5, true)).await.ok();
        }
        let reply = server.get("/metrics").await.ok();
        assert!(reply.header("content-type").unwrap().starts_with("text/plain; version=0.0.4"));
        let labels = "model_name=\"emulated\",engine_type=\"unified\",tp_rank=\"0\",pp_rank=\"0\",dp_rank=\"0\"";
        for (name, more, value) in [
            ("num_requests_total", "", "2"),
            ("prompt_tokens_total", "", "80"),
            ("generation_tokens_total", "", "10"),
            ("cached_tokens_total", ",cache_source=\"device\"", "32"),
            ("time_to_first_token_seconds_count", "", "2"),
            ("inter_token_latency_seconds_count", "", "8"),
            ("e2e_request_latency_seconds_bucket", ",le=\"+Inf\"", "2"),
            ("queue_time_seconds_count", "", "2"),
            ("num_running_reqs", "", "0"),
        ] {
            let line = format!("\nsglang:{name}{{{labels}{more}}} {value}\n");
            assert!(reply.body.contains(&line), "no {line} in {}", reply.body);
        }
        let kinds = reply.body.lines().filter(|line| line.starts_with("# TYPE ")).count();
        let helps = reply.body.lines().filter(|line| line.starts_with("# HELP ")).count();
        assert_eq!(kinds, helps);
    });
}

#[test]
fn a_model_that_loads_is_not_healthy_yet() {
    run(async {
        let options = WorkerServerOptions { loading: Dur::from_millis(5_000), ..options() };
        let server = start_with(config("W0"), options).await;
        assert_eq!(server.get("/health").await.status, 503);
        server.post("/generate", &ask(&[1], 1, true)).await.refused(503, "loading");
        server.post("/v1/completions", &json!({ "prompt": [1] })).await.refused(503, "loading");
        server.get("/server_info").await.ok();
        while server.get("/health").await.status == 503 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        for path in ["/health", "/health_generate", "/ready"] {
            assert_eq!(server.get(path).await.ok().body, "");
        }
        server.post("/generate", &ask(&[1], 1, true)).await.ok();
    });
}

#[test]
fn a_key_is_asked_for_where_sglang_asks() {
    run(async {
        let options = WorkerServerOptions { api_key: Some(ApiKey::new("sesame")), ..options() };
        assert!(!format!("{options:?}").contains("sesame"));
        let server = start_with(config("P0"), options).await;
        for headers in ["", "authorization: Bearer wrong\r\n", "authorization: sesame\r\n"] {
            let reply = server.send("GET", "/v1/models", headers, b"").await;
            assert_eq!((reply.status, &reply.json()), (401, &json!({ "error": "Unauthorized" })));
            assert_eq!(reply.header(WORKER_HEADER), Some("p0"));
        }
        server.send("GET", "/v1/models", "authorization: Bearer sesame\r\n", b"").await.ok();
        server.get("/health").await.ok();
        server.get("/metrics").await.ok();
        server.post("/pdreplay/v1/ingress", &json!({ "decode": "D0", "flows": 1 })).await.ok();
    });
}

#[test]
fn paths_and_methods_that_are_not_there_are_refused_in_json() {
    run(async {
        let server = start("W0").await;
        server.get("/nothing").await.refused(404, "GET /nothing");
        server.get("/generate").await.refused(405, "/generate does not take GET");
        server.send("DELETE", "/health", "", b"").await.refused(405, "DELETE");
        assert_eq!(server.get("/nothing").await.header(INCARNATION_HEADER), Some("7"));
    });
}

#[test]
fn each_request_is_a_line_of_the_log() {
    run(async {
        let (lines, log) = std::sync::mpsc::channel();
        let options = WorkerServerOptions {
            log: Some(RequestLog::new(move |line| lines.send(line).unwrap())),
            identity: Some(99),
            ..options()
        };
        let server = start_with(config("D1"), options).await;
        assert_eq!(server.get("/health").await.header(INCARNATION_HEADER), Some("99"));
        server.get("/nothing").await;
        let lines: Vec<String> = log.try_iter().collect();
        assert!(lines[0].starts_with("D1: GET /health 200 after "), "{lines:?}");
        assert!(lines[1].starts_with("D1: GET /nothing 404 after ") && lines.len() == 2, "{lines:?}");
    });
}
