//! Connections: slow ones, broken ones, many at once, and the end of a server.

use super::*;

#[test]
fn a_client_that_leaves_takes_its_request_along() {
    run(async {
        let server = start("W0").await;
        for stream in [true, false] {
            let mut call = server.begin_post("/generate", &ask(&prompt(0, 30), 60_000, stream)).await;
            if stream {
                call.until("output_ids").await;
            } else {
                while server.get("/v1/loads").await.json()["loads"][0]["num_running_reqs"] == 0 {}
            }
            drop(call);
            server.idle().await;
        }
        let stats = server.get("/pdreplay/v1/stats").await.json();
        assert_eq!(stats["worker"]["requests"], 2);
        assert!(stats["worker"]["output_tokens"].as_u64().unwrap() < 60_000);
    });
}

#[test]
fn a_request_may_come_in_pieces_and_a_connection_serve_many() {
    run(async {
        let server = start("W0").await;
        let body = ask(&[1, 2, 3], 2, false).to_string();
        let length = body.len();
        let request = format!(
            "POST /generate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        for _ in 0..2 {
            for piece in request.as_bytes().chunks(50) {
                stream.write_all(piece).await.unwrap();
                tokio::task::yield_now().await;
            }
            let mut call = Call { stream, got: Vec::new() };
            call.until("\"e2e_latency\"").await;
            stream = call.stream;
        }
    });
}

#[test]
fn a_half_closed_connection_is_a_client_that_left() {
    run(async {
        // As with uvicorn, whose end of file is a disconnect.
        let server = start("W0").await;
        let mut call = server.begin_post("/generate", &ask(&prompt(0, 30), 60_000, true)).await;
        call.until("output_ids").await;
        call.stream.shutdown().await.unwrap();
        assert!(call.try_reply().await.is_none());
        server.idle().await;
    });
}

#[test]
fn nonsense_on_a_connection_hurts_no_other() {
    run(async {
        let server = start("W0").await;
        let mut unfinished = TcpStream::connect(server.address).await.unwrap();
        unfinished.write_all(b"POST /generate HTTP/1.1\r\nhost: x\r\ncontent-le").await.unwrap();
        let mut short = server.begin("POST", "/generate", "", b"").await;
        short.stream.shutdown().await.unwrap();
        for nonsense in ["\x16\x03\x01\x02\x00", "GET\r\n\r\n", "GET / HTTP/9\r\n\r\n"] {
            let mut stream = TcpStream::connect(server.address).await.unwrap();
            stream.write_all(nonsense.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer).await;
            assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"), "{answer:?}");
        }
        server.post("/generate", &ask(&[1], 2, true)).await.ok();
    });
}

#[test]
fn a_slow_reader_delays_only_itself() {
    run(async {
        let server = start("W0").await;
        // Cumulative, this is about 40 MB: far more than sockets hold.
        let mut slow = server.begin_post("/generate", &ask(&prompt(0, 30), 2_500, true)).await;
        slow.until("output_ids").await;
        let mut others = Vec::new();
        for from in 1..4 {
            others.push(server.begin_post("/generate", &ask(&prompt(from * 1000, 30), 2_600, false)).await);
        }
        for other in others {
            assert_eq!(other.reply().await.ok().json()["meta_info"]["completion_tokens"], 2_600);
        }
        // The worker is done with the slow one as well; the reader finds all tokens, in fewer events.
        server.idle().await;
        let events = slow.reply().await.ok().events();
        let last = events.last().unwrap();
        assert_eq!(last["output_ids"].as_array().unwrap().len(), 2_500);
        assert!(events.len() < 2_500, "{}", events.len());
    });
}

#[test]
fn many_long_streams_run_side_by_side() {
    run(async {
        let server = start("W0").await;
        let mut calls = Vec::new();
        for from in 0..64 {
            calls.push(server.begin_post("/generate", &ask(&prompt(from * 100, 40), 200, true)).await);
        }
        for reply in futures_util::future::join_all(calls.into_iter().map(Call::reply)).await {
            let events = reply.ok().events();
            assert_eq!(events.last().unwrap()["meta_info"]["completion_tokens"], 200);
            assert_eq!(events.last().unwrap()["output_ids"].as_array().unwrap().len(), 200);
        }
    });
}

#[test]
fn a_stop_lets_answers_end_that_are_under_way() {
    run(async {
        let server = start("W0").await;
        let mut idle = server.begin("GET", "/health", "", b"").await;
        idle.until("\r\n\r\n").await;
        let mut call = server.begin_post("/generate", &ask(&prompt(0, 30), 60, true)).await;
        call.until("output_ids").await;
        let address = server.address;
        let (stopped, reply) = tokio::join!(server.stop(), call.reply());
        stopped.unwrap();
        assert_eq!(reply.ok().events().last().unwrap()["meta_info"]["completion_tokens"], 60);
        assert!(TcpStream::connect(address).await.is_err());
    });
}

#[test]
fn a_stop_does_not_wait_for_ever() {
    run(async {
        let options = WorkerServerOptions { grace: Duration::from_millis(30), ..options() };
        let server = start_with(config("W0"), options).await;
        let mut call = server.begin_post("/generate", &ask(&prompt(0, 30), 60_000, true)).await;
        call.until("output_ids").await;
        server.stop().await.unwrap();
        // The answer breaks off: no end mark that would make it look whole.
        assert!(call.try_reply().await.is_none());
    });
}

#[test]
fn a_stream_that_hangs_stays_open_until_its_client_leaves() {
    run(async {
        let mut config = config("W0");
        config.faults = vec![crate::cluster::FaultConfig {
            kind: crate::cluster::FaultKind::Hang,
            at_s: None,
            after_requests: None,
            worker: Some("W0".into()),
            to: None,
            session: Some("s".into()),
            turn: Some(1),
            times: Some(1),
            duration_s: None,
            factor: None,
            status: None,
            after_s: None,
            after_tokens: Some(3),
        }];
        let server = start_with(config, options()).await;
        let mut call = server.begin_post("/generate", &ask(&prompt(0, 30), 10, true)).await;
        call.until("\"completion_tokens\":3").await;
        let quiet = tokio::time::timeout(Duration::from_millis(50), call.stream.read_u8()).await;
        assert!(quiet.is_err(), "{quiet:?}");
        drop(call);
        server.idle().await;
        server.post("/generate", &ask(&prompt(0, 30), 10, true)).await.ok();
    });
}
