//! The publishers of vLLM and SGLang, as released, behind the index: scripts/test_tools.sh brings their one file each.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::installed::{missing, python};
use crate::kv::peers::{Foreign, removed, stored};
use crate::kv::query::{hits, query};
use crate::live::support::process::{Server, free_ports, wait_for};
use crate::run::{Scratch, root};

const IDS: [u32; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];

/// Where the file of a pinned release is; `None`: it was not brought, which is said.
fn file(release: &str) -> Option<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let path = target.join("test-tools-publishers").join(format!("{release}.py"));
    if path.exists() { Some(path) } else { missing(&format!("the publisher of {release}")) }
}

fn config(dialect: &str, publisher: &Foreign) -> Value {
    json!({"streams": [{"instance_name": "e", "block_size": 4, "topic": "kv", "dialect": dialect,
        "endpoint": publisher.endpoint, "replay_endpoint": publisher.replay_endpoint}]})
}

/// Late join by history, live batches, a tier, a restart on the same ports, a history that is too short.
fn followed(dialect: &str, release: &str, hashes: [i64; 4]) {
    let (Some(python), Some(file)) = (python("zmq, msgpack"), file(release)) else { return };
    let scratch = Scratch::new();
    let ports = free_ports();
    let [a, b, c, d] = hashes;
    let mut publisher = Foreign::start(&python, dialect, &file, ports, 100);
    publisher.publish(&[stored(&[a], None, &IDS[..4], "gpu")]);
    let last = publisher.publish(&[stored(&[b], Some(a), &IDS[4..8], "gpu")]);
    let server = Server::index(&scratch.write("kv.json", &config(dialect, &publisher).to_string()), &[]);
    assert_eq!(hits(&server.url, "e/0", last, &IDS), [8, 0, 8, 2, 0], "late, by the history from 0");
    publisher.publish(&[stored(&[c], Some(b), &IDS[8..], "gpu")]);
    let last = publisher.publish(&[stored(&[b], Some(a), &IDS[4..8], "cpu"), removed(&[b], "gpu")]);
    assert_eq!(hits(&server.url, "e/0", last, &IDS), [8, 4, 12, 2, 1], "live, and the host tier");
    publisher.kill();
    let mut publisher = Foreign::start(&python, dialect, &file, ports, 100);
    publisher.publish(&[stored(&[d], None, &IDS[8..], "gpu")]);
    wait_for("the process before is forgotten", || {
        let found = query(&server.url, &IDS[8..]).remove("e/0").unwrap();
        (found["synchronized"] == true && found["device_hit_tokens"] == 4).then_some(())
    });
    assert_eq!(hits(&server.url, "e/0", 0, &IDS)[..3], [0, 0, 0]);
    let last = publisher.publish(&["cleared".into()]);
    assert_eq!(hits(&server.url, "e/0", last, &IDS[8..]), [0, 0, 0, 0, 0]);
    publisher.kill();
    drop(server);
    let mut publisher = Foreign::start(&python, dialect, &file, free_ports(), 2);
    for ((hash, parent), ids) in [a, b, c].into_iter().zip([None, Some(a), Some(b)]).zip(IDS.chunks(4)) {
        publisher.publish(&[stored(&[hash], parent, ids, "gpu")]);
    }
    let server = Server::index(&scratch.write("short.json", &config(dialect, &publisher).to_string()), &[]);
    wait_for("a history that begins too late is none", || {
        let found = query(&server.url, &IDS).remove("e/0")?;
        found["error"]
            .as_str()?
            .contains("partial: history truncated")
            .then(|| assert_eq!(found["device_hit_tokens"], 0))
    });
    let last = publisher.publish(&["cleared".into(), stored(&[a], None, &IDS[..4], "gpu")]);
    assert_eq!(hits(&server.url, "e/0", last, &IDS), [4, 0, 4, 1, 0], "until it clears its cache");
}

#[test]
fn vllm_is_followed() {
    followed("vllm", "vllm-0.33.0", [1_229_782_938_247_303_441, 7_744_543, 3, 4]);
}

#[test]
fn sglang_is_followed() {
    followed("sglang", "sglang-0.5.23", [-123, i64::MIN, 3, 4]);
}
