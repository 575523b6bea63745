//! Sessions, admission, abort and flush.

use super::*;
use crate::cluster::{FaultConfig, FaultKind};
use crate::live::api::ADMIT_PATH;

fn open(id: &str) -> Value {
    json!({ "capacity_of_str_len": 1, "session_id": id, "streaming": true })
}

/// A turn of session `s` on a colocated worker, which needs no second leg.
async fn turn(server: &Server, ids: &[u32], tokens: u32) -> Value {
    let body = with(ask(ids, tokens, false), json!({ "session_params": { "id": "s" } }));
    server.post("/generate", &body).await.ok().json()["meta_info"].clone()
}

#[test]
fn a_session_is_opened_once_appended_to_and_closed() {
    run(async {
        let server = start("W0").await;
        assert_eq!(server.post("/open_session", &open("s")).await.ok().body, "\"s\"");
        let again = "Failed to open the session. Check if a session with the same id is still open.";
        server.post("/open_session", &open("s")).await.refused(400, again);
        assert_eq!(turn(&server, &prompt(0, 30), 10).await["prompt_tokens"], 30);
        let second = turn(&server, &prompt(100, 5), 4).await;
        assert_eq!((&second["prompt_tokens"], &second["completion_tokens"]), (&json!(45), &json!(4)));
        for id in ["s", "never there"] {
            assert_eq!(server.post("/close_session", &json!({ "session_id": id })).await.ok().body, "");
        }
        let body = with(ask(&[1], 1, false), json!({ "session_params": { "id": "s" } }));
        server.post("/generate", &body).await.refused(400, "session id s does not exist");
        let made = server.post("/open_session", &json!({ "capacity_of_str_len": 1, "streaming": true })).await.ok();
        assert!(made.json().as_str().unwrap().len() > 8, "{made:?}");
    });
}

#[test]
fn sessions_that_cannot_be_had_are_refused() {
    run(async {
        let options = WorkerServerOptions { streaming_sessions: false, ..options() };
        let server = start_with(config("D0"), options).await;
        server.post("/open_session", &open("s")).await.refused(400, "Please relaunch with --enable-streaming-session.");
        let tree = json!({ "capacity_of_str_len": 1, "session_id": "s" });
        server.post("/open_session", &tree).await.refused(400, "\"streaming\": true");
        server.post("/open_session", &json!({ "streaming": true })).await.refused(400, "capacity_of_str_len");
        server.post("/close_session", &json!({})).await.refused(400, "session_id");
    });
}

#[test]
fn a_session_answers_one_request_at_a_time() {
    run(async {
        let server = start("W0").await;
        server.post("/open_session", &open("s")).await.ok();
        let body = |stream| with(ask(&prompt(0, 30), 40_000, stream), json!({ "session_params": { "id": "s" } }));
        let mut first = server.begin_post("/generate", &body(true)).await;
        first.until("output_ids").await;
        server.post("/generate", &body(false)).await.refused(400, "already has an active request");
        drop(first);
        server.idle().await;
        assert_eq!(turn(&server, &prompt(0, 30), 2).await["completion_tokens"], 2);
    });
}

#[test]
fn admission_says_whether_there_is_room() {
    run(async {
        let mut config = config("D0");
        config.engine.kv_pool_tokens = 1000;
        let server = start_with(config.clone(), options()).await;
        let seed = |tokens: u32| json!({ "session_id": "s", "kind": "seed", "append_tokens": tokens });
        let fits = server.post(ADMIT_PATH, &seed(100)).await.ok().json();
        assert_eq!((&fits["can_admit"], &fits["reason"]), (&json!(true), &json!("fits")));
        assert_eq!(fits["capacity_tokens"], 1000);
        let full = server.post(ADMIT_PATH, &seed(5000)).await.ok().json();
        assert_eq!((&full["can_admit"], &full["reason"]), (&json!(false), &json!("no-capacity")));
        let append = json!({ "session_id": "s", "append_tokens": 10, "output_tokens": 5 });
        let missing = server.post(ADMIT_PATH, &append).await.ok().json();
        assert_eq!((&missing["can_admit"], &missing["reason"]), (&json!(false), &json!("session-not-found")));
        let odd = json!({ "session_id": "s", "kind": "sow", "append_tokens": 1 });
        server.post(ADMIT_PATH, &odd).await.refused(400, "send `append` or `seed`");
        let stock = start_with(config, WorkerServerOptions { admission: false, ..options() }).await;
        stock.post(ADMIT_PATH, &append).await.refused(404, ADMIT_PATH);
    });
}

#[test]
fn faults_of_the_worker_reach_its_clients() {
    run(async {
        let fault = |kind, status| FaultConfig {
            kind,
            at_s: None,
            after_requests: None,
            worker: Some("D0".into()),
            to: None,
            session: None,
            turn: None,
            times: Some(1),
            duration_s: None,
            factor: None,
            status,
            after_s: Some(0.1),
            after_tokens: None,
        };
        let mut config = config("D0");
        config.faults = vec![
            fault(FaultKind::ErrorResponse, Some(503)),
            fault(FaultKind::AdmissionTimeout, None),
            fault(FaultKind::OpenFailure, Some(500)),
        ];
        let server = start_with(config, options()).await;
        let body = with(ask(&[1], 1, true), json!({ "bootstrap_host": "127.0.0.1", "bootstrap_room": 1 }));
        server.post("/generate", &body).await.refused(503, "server answered 503");
        let seed = json!({ "session_id": "s", "kind": "seed", "append_tokens": 1 });
        server.post(ADMIT_PATH, &seed).await.refused(504, "timed out");
        server.post(ADMIT_PATH, &seed).await.ok();
        server.post("/open_session", &open("s")).await.refused(500, "open_session failed");
        server.post("/open_session", &open("s")).await.ok();
    });
}

#[test]
fn an_abort_ends_what_its_id_names() {
    run(async {
        let server = start("W0").await;
        let mut call = server.begin_post("/generate", &ask(&prompt(0, 30), 30_000, true)).await;
        call.until("output_ids").await;
        // Nothing has an empty id.
        assert_eq!(server.post("/abort_request", &json!({ "rid": "" })).await.ok().body, "");
        server.post("/abort_request", &json!({ "rid": "other" })).await.ok();
        server.post("/abort_request", &json!({ "rid": "s/" })).await.ok();
        let events = call.reply().await.ok().events();
        let reason = &events.last().unwrap()["meta_info"]["finish_reason"];
        assert_eq!((&reason["type"], &reason["status_code"]), (&json!("abort"), &Value::Null));
        let mut call = server.begin_post("/generate", &ask(&prompt(0, 30), 30_000, true)).await;
        call.until("output_ids").await;
        server.post("/abort_request", &json!({ "rid": "", "abort_all": true })).await.ok();
        call.reply().await.ok();
        server.idle().await;
    });
}

#[test]
fn a_flush_waits_as_long_as_it_is_told() {
    run(async {
        let server = start("W0").await;
        let body = ask(&prompt(0, 64), 1, false);
        let whole = || server.post("/generate", &body);
        whole().await.ok();
        assert_eq!(whole().await.ok().json()["meta_info"]["cached_tokens"], 48);
        let mut call = server.begin_post("/generate", &ask(&prompt(500, 30), 60_000, true)).await;
        call.until("output_ids").await;
        assert_eq!(server.get("/flush_cache").await.status, 400);
        let mut flush = server.begin("GET", "/flush_cache?timeout=100000", "", b"").await;
        let early = tokio::time::timeout(Duration::from_millis(20), flush.stream.read_buf(&mut flush.got)).await;
        assert!(early.is_err(), "{early:?}");
        drop(call);
        assert!(flush.reply().await.ok().body.starts_with("Cache flushed."));
        assert_eq!(whole().await.ok().json()["meta_info"]["cached_tokens"], 0);
        server.send("POST", "/flush_cache?timeout=nan", "", b"").await.refused(400, "timeout");
        server.send("POST", "/flush_cache?timeout=x", "", b"").await.refused(400, "timeout");
    });
}
