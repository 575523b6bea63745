//! Emulated workers behind the index: what a worker caches is what the index finds, until it is killed, and again after.

use serde_json::{Value, json};

use crate::kv::query::{query, request};
use crate::live::support::process::{Server, free_ports, get, post, wait_for};
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

/// A colocated worker that publishes, and the entry of its stream.
fn publishing(dialect: &str) -> (Server, Value) {
    let ports = free_ports();
    let [events, replay] = ports.map(|port| port.to_string());
    let key = format!("kv_events.dialect={dialect}");
    let scenario = ["--set", "cluster.colocated=1", "--set", &key];
    let worker =
        Server::worker("W0", &[&scenario[..], &["--kv-events-port", &events, "--kv-replay-port", &replay]].concat());
    wait_for("it is up", || get(&worker.url, "/health")?.starts_with("HTTP/1.1 200").then_some(()));
    let stream = json!({"instance_name": "w", "block_size": 64, "dialect": dialect, "topic": "xllm-kv",
        "endpoint": format!("tcp://127.0.0.1:{events}"), "replay_endpoint": format!("tcp://127.0.0.1:{replay}")});
    (worker, stream)
}

fn stream_of(url: &str) -> Value {
    let (status, _, body) = request(url, "GET", "/v1/internal/kv-cache/streams", &[], b"");
    assert_eq!(status, 200, "{body}");
    serde_json::from_str::<Value>(&body).unwrap()["streams"][0].clone()
}

#[test]
fn a_wrong_topic_or_dialect_is_told_by_the_index_and_by_doctor() {
    let cases = [
        ("vllm", json!({"topic": "nope"}), "the publisher's topic is \"xllm-kv\""),
        ("sglang", json!({"topic": "nope"}), "`topic` is \"nope\""),
        ("vllm", json!({"dialect": "xllm"}), "is `dialect` the publisher's?"),
    ];
    for (dialect, wrong, words) in cases {
        let (worker, mut stream) = publishing(dialect);
        // The second batch of its history.
        let ids: Vec<u32> = (1..200).collect();
        post(&worker.url, "/generate", &json!({"input_ids": ids, "sampling_params": {"max_new_tokens": 2}})).unwrap();
        stream.as_object_mut().unwrap().extend(wrong.as_object().unwrap().clone());
        let scratch = Scratch::new();
        let config = scratch.write("kv.json", &json!({ "streams": [stream] }).to_string());
        let index = Server::index(&config, &[]);
        wait_for(words, || query(&index.url, &[]).remove("w/0")?["error"].as_str()?.contains(words).then_some(()));
        let args = ["doctor", "--set", "live.emulation_speed=10", "--kv-events", "kv.json", "--json"];
        let checks: Vec<Value> = serde_json::from_str(&scratch.run(&args).code(0).stdout).unwrap();
        let is_it = |check: &&Value| check["check"] == "KV streams";
        let check = checks.iter().find(is_it).unwrap();
        assert!(check["result"] == "warn" && check["detail"].as_str().unwrap().contains(words), "{check}");
    }
}

#[test]
fn an_idle_publisher_has_no_lag() {
    for dialect in ["xllm", "vllm", "sglang"] {
        let (_worker, stream) = publishing(dialect);
        let scratch = Scratch::new();
        let index = Server::index(&scratch.write("kv.json", &json!({ "streams": [stream] }).to_string()), &[]);
        wait_for("in step", || (query(&index.url, &[]).remove("w/0")?["synchronized"] == true).then_some(()));
        let shown = stream_of(&index.url);
        assert_eq!(
            (&shown["batches"], &shown["lag_ms"], &shown["quiet_ms"]),
            (&json!(0), &Value::Null, &Value::Null),
            "{shown}"
        );
    }
}
