//! Streams against the workers of a run: instances of a registry are known by their HTTP servers, and what makes choices blind is
//! told before the run, in its summary, and by `doctor`, in the same words.

use serde_json::{Value, json};

use super::support::process::{Server, free_ports};
use super::support::run::{UNTIMED, row};
use crate::cli::records;
use crate::cluster::Up;
use crate::docs::free_base;
use crate::run::{Ran, Scratch};

/// A cluster whose workers publish where the rules of discovery look for them, and how a run or `doctor` is sent there.
struct Cluster {
    scratch: Scratch,
    up: Option<Up>,
    base: u16,
}

impl Cluster {
    /// With a registry of these instances: a name, and how far above the base port its HTTP server is.
    fn start(instances: &[(&str, u16)]) -> Cluster {
        let scratch = Scratch::new();
        let base = free_base();
        let port = base.to_string();
        let shape = ["--policy", "car", "--mechanism", "pd", "--set", "cluster.decode=2", "--emulation-speed", "10"];
        let up = Up::start(&scratch, &[&shape[..], &["--base-port", &port, "--json"]].concat());
        let trace: String = (0..4).map(|turn| row("a", turn, 6.0 * f64::from(turn), 700 + 320 * turn, 12)).collect();
        scratch.write("trace.jsonl", &trace);
        let cluster = Cluster { scratch, up: Some(up), base };
        cluster.register(instances);
        let rules =
            json!({"enabled": true, "block_size": 64, "topic": "xllm-kv", "registry": {"file": "registry.json"}});
        cluster.scratch.write("kv.json", &json!({ "discovery": rules }).to_string());
        cluster
    }

    fn register(&self, instances: &[(&str, u16)]) {
        let instance = |(name, above): &(&str, u16)| json!({"name": name, "http_address": format!("127.0.0.1:{}", self.base + above), "type": "PREFILL"});
        let instances: Vec<Value> = instances.iter().map(instance).collect();
        self.scratch.write("registry.json", &json!({ "instances": instances }).to_string());
    }

    fn run(&self, command: &[&str], more: &[&str]) -> Ran {
        // One of them as another writes it.
        let url = |at: u16| format!("http://{}:{}", if at == 1 { "localhost" } else { "127.0.0.1" }, self.base + at);
        let addresses = [("--router", 0), ("--prefill", 1), ("--prefill", 2), ("--decode", 3), ("--decode", 4)];
        let addresses: Vec<String> = addresses.iter().flat_map(|(flag, at)| [(*flag).to_owned(), url(*at)]).collect();
        let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
        let how =
            ["--policy", "car", "--mechanism", "pd", "--emulation-speed", "10", "--set", "kv_events.config=kv.json"];
        self.scratch.run(&[command, &addresses, &how, more].concat())
    }

    fn replay(&self, more: &[&str]) -> Ran {
        let command = ["replay", "trace.jsonl", "--target", "live", "--name", "live", "--overwrite"];
        self.run(&[&command[..], &UNTIMED].concat(), more)
    }

    fn doctor(&self) -> Ran {
        self.run(&["doctor"], &[])
    }

    fn summary(&self) -> Value {
        self.scratch.json("outputs/live/summary.json")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.up.take().map(|up| up.end("KILL"));
    }
}

#[test]
fn an_instance_is_the_worker_at_its_http_address_whatever_its_name() {
    let cluster = Cluster::start(&[("prefill-0", 1), ("prefill-1", 2)]);
    let ran = cluster.replay(&[]).code(0);
    assert!(!ran.stderr.contains("by load alone") && !ran.stderr.contains("names no worker"), "{}", ran.stderr);
    let index = cluster.summary()["index"].clone();
    assert!(index["blind"] == 0 && index["with_hits"] == 3 && index["unknown_streams"] == json!([]), "{index:#}");
    let names: Vec<&str> = index["streams"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["P0", "P1"]);
    for record in records(&cluster.scratch, "outputs/live") {
        assert_eq!(record["index_hit_tokens_device"], record["cached_tokens"], "{record}");
        assert_eq!(record["index_worker"], record["prefill_worker"], "{record}");
    }
    let looked = cluster.doctor().code(0);
    assert!(looked.stdout.contains("every P has its stream; policy car reads them"), "{}", looked.stdout);
}

#[test]
fn instances_of_nobody_are_told_by_the_run_by_doctor_and_in_the_summary() {
    // A decode worker's address, registered as a P: nothing is published there.
    let cluster = Cluster::start(&[("prefill-0", 1), ("prefill-1", 7)]);
    let at = format!("127.0.0.1:{}", cluster.base + 7);
    let strange =
        format!("stream prefill-1 at {at} names no worker; names are P0, P1, D0, D1, or a worker's HTTP address");
    let bare = "no stream is of P1: hits of P1 count as 0";
    let ran = cluster.replay(&[]).code(0);
    assert!(ran.stderr.contains(&strange) && ran.stderr.contains(bare), "{}", ran.stderr);
    assert!(ran.stderr.contains("correct its name or http_address in the registry"), "{}", ran.stderr);
    let index = cluster.summary()["index"].clone();
    assert_eq!(index["unknown_streams"], json!(["prefill-1/0"]));
    assert!(
        ran.stdout.contains("1 of 1 stream in step") && ran.stdout.contains("1 stream of no worker"),
        "{}",
        ran.stdout
    );
    let looked = cluster.doctor().code(0);
    assert!(looked.stdout.contains(&strange) && looked.stdout.contains("no stream is of P1"), "{}", looked.stdout);

    cluster.register(&[("prefill-0", 7), ("prefill-1", 8)]);
    let ran = cluster.replay(&[]).code(0);
    assert!(ran.stderr.contains("no stream is of P0, P1: policy car chooses by load alone"), "{}", ran.stderr);
    let why = "no stream is of P0, P1; streams prefill-0/0, prefill-1/0 are of no worker of the run";
    assert!(flat(&ran.stdout).contains("ran as load-only") && flat(&ran.stdout).contains(why), "{}", ran.stdout);
    let refused = cluster.replay(&["--set", "kv_events.require=true"]).code(2);
    assert!(refused.stderr.contains("correct its name or http_address in the registry"), "{}", refused.stderr);
    assert!(!refused.stderr.contains("correct the addresses of the streams"), "{}", refused.stderr);
    let looked = cluster.run(&["doctor"], &["--set", "kv_events.require=true"]).code(1);
    assert!(looked.stdout.contains("no stream is of P0, P1"), "{}", looked.stdout);
}

#[test]
fn two_streams_of_one_worker_and_a_name_that_is_another_workers_are_told_by_the_run_and_by_doctor() {
    // The first goes by its name alone; at the port of its server nobody publishes.
    let cluster = Cluster::start(&[("P0", 7), ("prefill-0", 1)]);
    let doubled = "streams P0/0 and prefill-0/0 are of one worker and rank, P0 rank 0: hits of P0 count as the fewest of theirs, and as 0 \
                   while one of them is not in step; keep one of their registrations";
    let ran = cluster.replay(&[]).code(0);
    assert!(ran.stderr.contains(doubled), "{}", ran.stderr);
    let looked = cluster.doctor().code(0);
    let part = doubled.split(": ").next().unwrap();
    assert!(flat(&looked.stdout).contains(part), "{}", looked.stdout);

    // Names swapped: the address is the worker.
    cluster.register(&[("P1", 1), ("P0", 2)]);
    let at = format!("127.0.0.1:{}", cluster.base + 1);
    let swapped =
        format!("instance P1 at {at} is P1 by its name and P0 by its HTTP address: its streams count as those of P0");
    let ran = cluster.replay(&[]).code(0);
    assert!(ran.stderr.contains(&swapped), "{}", ran.stderr);
    let index = cluster.summary()["index"].clone();
    assert!(index["blind"] == 0 && index["with_hits"].as_u64() >= Some(3), "{index:#}");
    for record in records(&cluster.scratch, "outputs/live") {
        assert_eq!(record["index_hit_tokens_device"], record["cached_tokens"], "{record}");
    }
    let looked = cluster.doctor().code(0);
    assert!(flat(&looked.stdout).contains(swapped.split(": its").next().unwrap()), "{}", looked.stdout);

    // Listed by hand: the second is P1's, named as P0's server.
    let stream = |name: &str, above: u16| {
        let at = |offset: u16| format!("tcp://127.0.0.1:{}", cluster.base + above + offset);
        json!({"instance_name": name, "block_size": 64, "topic": "xllm-kv", "endpoint": at(10_000), "replay_endpoint": at(30_000)})
    };
    let streams = [stream("P0", 1), stream(&at, 2)];
    cluster.scratch.write("kv.json", &json!({ "streams": streams }).to_string());
    let ran = cluster.replay(&["--set", "policy.car.static_streams=true"]).code(0);
    let doubled = format!("streams {at}/0 and P0/0 are of one worker and rank, P0 rank 0");
    assert!(ran.stderr.contains(&doubled) && ran.stderr.contains("correct its instance_name"), "{}", ran.stderr);
    assert!(ran.stderr.contains("no stream is of P1: hits of P1 count as 0"), "{}", ran.stderr);
}

#[test]
fn a_run_that_is_told_of_no_streams_says_so_before_it_begins_and_doctor_does() {
    let cluster = Cluster::start(&[]);
    let none = ["--set", "kv_events.config="];
    let why = "kv_events.config names no file, so the index has no stream";
    let ran = cluster.replay(&none).code(0);
    assert!(ran.stderr.contains(&format!("{why}: policy car chooses by load alone")), "{}", ran.stderr);
    let looked = cluster.run(&["doctor"], &none).code(0);
    assert!(looked.stdout.contains(why), "{}", looked.stdout);
}

#[test]
fn doctor_warns_of_listed_streams_in_the_words_of_the_run() {
    let [events, replay] = free_ports();
    let [e, r] = [events, replay].map(|port| port.to_string());
    let worker =
        Server::worker("W0", &["--kv-events-port", &e, "--kv-replay-port", &r, "--set", "cluster.colocated=1"]);
    let scratch = Scratch::new();
    let stream = json!({
        "instance_name": "W0", "block_size": 64, "topic": "xllm-kv",
        "endpoint": format!("tcp://127.0.0.1:{events}"), "replay_endpoint": format!("tcp://127.0.0.1:{replay}"),
    });
    scratch.write("kv.json", &json!({ "streams": [stream] }).to_string());
    scratch.write("trace.jsonl", &row("a", 0, 0.0, 128, 4));
    let how = ["--worker", &worker.url, "--set", "live.target=sglang", "--mechanism", "dp", "--policy", "car"];
    let how = [&how[..], &["--set", "kv_events.config=kv.json"]].concat();
    let doctor = scratch.run(&[&["doctor"], &how[..]].concat()).code(0);
    let replay = [&["replay", "trace.jsonl", "--target", "live"], &UNTIMED[..], &how].concat();
    let replay = scratch.run(&replay).code(0);
    for said in [&doctor.stdout, &replay.stderr] {
        let said = flat(said);
        for part in ["listed by hand, and policy car counts no hits of such", "set policy.car.static_streams = true"] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
    let why = "streams listed by hand count only with policy.car.static_streams = true, and those of W0 are";
    assert!(flat(&replay.stdout).contains(why), "{}", replay.stdout);
}

/// Lines that were cut for the terminal, in one.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
