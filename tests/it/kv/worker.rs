//! Emulated workers behind the index: what a worker caches is what the index finds, until it is killed, and again after.

use serde_json::json;

use crate::kv::query::query;
use crate::live::support::process::{Server, free_ports, post, wait_for};
use crate::run::Scratch;

#[test]
fn the_index_finds_what_an_emulated_worker_caches() {
    for dialect in ["xllm", "vllm", "sglang"] {
        let scratch = Scratch::new();
        let ports = free_ports();
        let [events, replay] = ports.map(|port| port.to_string());
        let dialect_key = format!("kv_events.dialect={dialect}");
        let more = ["--set", "cluster.colocated=1", "--set", &dialect_key, "--block-size", "16"];
        let published = ["--kv-events-port", &events, "--kv-replay-port", &replay, "--emulation-speed", "100"];
        let mut worker = Server::worker("W0", &[&more[..], &published].concat());
        let config = json!({"streams": [{"instance_name": "w", "block_size": 16, "dialect": dialect,
            "endpoint": format!("tcp://127.0.0.1:{events}"), "replay_endpoint": format!("tcp://127.0.0.1:{replay}")}]});
        let index = Server::index(&scratch.write("kv.json", &config.to_string()), &[]);
        let ids: Vec<u32> = (1000..1070).collect();
        let device = |wanted: u64| {
            wait_for(&format!("{wanted} tokens of {dialect}"), || {
                let found = query(&index.url, &ids).remove("w/0")?;
                (found["synchronized"] == true && found["device_hit_tokens"] == wanted).then_some(())
            });
        };
        let generate = |worker: &Server| {
            let body = json!({"input_ids": ids, "sampling_params": {"max_new_tokens": 2}});
            let reply = post(&worker.url, "/generate", &body).unwrap();
            assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
        };
        generate(&worker);
        // Whole blocks: four of the prompt's seventy tokens.
        device(64);
        worker.kill();
        wait_for("hits are gone with the worker", || {
            let found = query(&index.url, &ids).remove("w/0")?;
            (found["synchronized"] == false && found["device_hit_tokens"] == 0).then_some(())
        });
        worker.restart();
        generate(&worker);
        device(64);
    }
}
