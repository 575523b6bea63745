//! Hand-off between two servers.

use super::*;
use crate::cluster::{FaultConfig, FaultKind};

/// Both legs' body.
fn leg(prefill: SocketAddr, room: u64, tokens: u32, stream: bool) -> Value {
    let bootstrap = json!({ "bootstrap_host": "127.0.0.1", "bootstrap_port": prefill.port(), "bootstrap_room": room });
    with(ask(&prompt(0, 400), tokens, stream), bootstrap)
}

#[test]
fn kv_goes_from_worker_to_worker() {
    run(async {
        let (prefill, decode) = (start("P0").await, start("D0").await);
        for (room, stream, cached) in [(1, true, 0), (2, false, 384)] {
            let body = leg(prefill.address, room, 8, stream);
            let (p, d) = tokio::join!(prefill.post("/generate", &body), decode.post("/generate", &body));
            let last = |reply: Reply| match stream {
                true => reply.ok().events().pop().unwrap(),
                false => reply.ok().json(),
            };
            let (p, d) = (last(p)["meta_info"].clone(), last(d)["meta_info"].clone());
            assert_eq!(p["finish_reason"], json!({ "type": "length", "length": 0 }));
            assert_eq!(d["finish_reason"], json!({ "type": "length", "length": 8 }));
            assert_eq!((&d["cached_tokens"], &d["prompt_tokens"]), (&json!(cached), &json!(400)));
            assert_eq!(d["emulated"]["prefill_worker"], "P0");
            for phase in ["prefill_queue_ns", "prefill_ns", "kv_transfer_ns", "decode_queue_ns"] {
                assert!(d["emulated"][phase].is_u64(), "no {phase} in {d}");
            }
        }
        let stats = prefill.get("/pdreplay/v1/stats").await.ok().json();
        let pair = &stats["transfers"][0];
        assert_eq!((&pair["decode_worker"], &pair["transfers"], &pair["errors"]), (&json!("D0"), &json!(2), &json!(0)));
    });
}

#[test]
fn pulls_from_two_workers_share_the_ingress() {
    run(async {
        // Alone, 400 tokens of 98,304 bytes take 3.1 s; together about twice as long.
        let mut slow = config("D0");
        slow.cluster.prefill = 2;
        slow.cluster.link.gbytes_per_s = 0.0125;
        let named = |name: &str| NodeConfig { id: name.parse().unwrap(), ..slow.clone() };
        let options = || WorkerServerOptions::new(Clock::start(SPEED / 2.0));
        let prefill = [start_with(named("P0"), options()).await, start_with(named("P1"), options()).await];
        let decode = start_with(slow.clone(), options()).await;
        let bodies = [1, 2].map(|room| leg(prefill[room as usize - 1].address, room, 1, false));
        let (_, _, first, second) = tokio::join!(
            prefill[0].post("/generate", &bodies[0]),
            prefill[1].post("/generate", &bodies[1]),
            decode.post("/generate", &bodies[0]),
            decode.post("/generate", &bodies[1]),
        );
        for reply in [first, second] {
            let meta = reply.ok().json()["meta_info"].clone();
            let took = meta["emulated"]["kv_transfer_ns"].as_u64().unwrap();
            assert!(took > 4_000_000_000, "{meta}");
        }
    });
}

#[test]
fn a_prefill_worker_that_dies_is_noticed_at_once() {
    run(async {
        let decode = start("D0").await;
        let (told, address) = std::sync::mpsc::channel();
        let (kill, killed) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                told.send(start("P0").await.address).unwrap();
                let _ = killed.await;
            });
            // Dropping it is the `kill -9`.
        });
        let prefill = address.recv().unwrap();
        // Only D's leg: P waits for its own in vain.
        let mut call = decode.begin_post("/generate", &leg(prefill, 5, 4, true)).await;
        loop {
            let load = decode.get("/v1/loads").await.json();
            if load["loads"][0]["disaggregation"]["decode_transfer_queue_reqs"] == 1 {
                break;
            }
        }
        kill.send(()).unwrap();
        thread.join().unwrap();
        call.until("[DONE]").await;
        let events = call.reply().await.ok().events();
        let reason = &events.last().unwrap()["meta_info"]["finish_reason"];
        let message = reason["message"].as_str().unwrap();
        assert!(message.starts_with("KVTransferError(bootstrap_room=5): prefill worker 127.0.0.1:"), "{message}");
        assert_eq!((&reason["type"], &reason["status_code"]), (&json!("abort"), &json!(500)));
        let gone = decode.post("/generate", &leg(prefill, 6, 4, false)).await;
        gone.refused(500, "cannot be reached");
        decode.idle().await;
    });
}

#[test]
fn a_decode_client_that_leaves_ends_the_prefill_leg() {
    run(async {
        let mut slow = config("P0");
        slow.cluster.link.gbytes_per_s = 0.001;
        let (prefill, decode) = (start_with(slow, options()).await, start("D0").await);
        let body = leg(prefill.address, 9, 4, true);
        let p = prefill.begin_post("/generate", &body).await;
        let d = decode.begin_post("/generate", &body).await;
        loop {
            // The transfer takes 39 s of the emulation: long enough to be met under way.
            let load = prefill.get("/v1/loads").await.json();
            if load["loads"][0]["disaggregation"]["prefill_inflight_queue_reqs"] == 1 {
                break;
            }
        }
        drop(d);
        let events = p.reply().await.ok().events();
        let reason = &events.last().unwrap()["meta_info"]["finish_reason"];
        assert!(reason["message"].as_str().unwrap().contains("Decode instance could be dead"), "{reason}");
        decode.idle().await;
        prefill.idle().await;
    });
}

#[test]
fn a_transfer_that_fails_ends_both_legs() {
    run(async {
        let mut faulty = config("P0");
        faulty.faults = vec![FaultConfig {
            kind: FaultKind::TransferFailure,
            at_s: None,
            after_requests: None,
            worker: Some("P0".into()),
            to: Some("D0".into()),
            session: None,
            turn: None,
            times: None,
            duration_s: None,
            factor: None,
            status: None,
            after_s: Some(0.5),
            after_tokens: None,
        }];
        let (prefill, decode) = (start_with(faulty, options()).await, start("D0").await);
        let body = leg(prefill.address, 3, 4, false);
        let (p, d) = tokio::join!(prefill.post("/generate", &body), decode.post("/generate", &body));
        p.refused(500, "KVTransferError(bootstrap_room=3)");
        d.refused(500, "KVTransferError(bootstrap_room=3)");
    });
}

#[test]
fn only_a_prefill_worker_is_pulled_from() {
    run(async {
        let decode = start("D0").await;
        let pull = json!({ "room": 1, "tokens": 5, "decode": "D1", "ingress_flows": 0 });
        decode.post("/pdreplay/v1/pull", &pull).await.refused(400, "D0 is no prefill worker");
        let prefill = start("P0").await;
        let unknown = with(pull.clone(), json!({ "decode": "D9" }));
        prefill.post("/pdreplay/v1/pull", &unknown).await.refused(400, "D9");
        prefill.post("/pdreplay/v1/pull", &with(pull, json!({ "decode": "x" }))).await.refused(400, "write P0, D3");
    });
}

#[test]
fn a_bootstrap_port_of_its_own_serves_pulls() {
    run(async {
        let (http, own) =
            (TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let (address, port) = (http.local_addr().unwrap(), own.local_addr().unwrap());
        let (stop, stopped) = oneshot::channel();
        let stopped = async {
            let _ = stopped.await;
        };
        let listeners = Listeners { http, bootstrap: Some(own) };
        let task = tokio::spawn(serve_worker(listeners, config("P0"), options(), stopped));
        let prefill = Server { address, stop, task };
        let decode = start("D0").await;
        let info = prefill.get("/server_info").await.ok().json();
        assert_eq!(info["disaggregation_bootstrap_port"], port.port());
        let body = leg(port, 1, 2, false);
        let (p, d) = tokio::join!(prefill.post("/generate", &body), decode.post("/generate", &body));
        assert_eq!((p.ok().status, d.ok().json()["meta_info"]["completion_tokens"].as_u64()), (200, Some(2)));
        prefill.stop().await.unwrap();
        assert!(TcpStream::connect(port).await.is_err() && TcpStream::connect(address).await.is_err());
    });
}
