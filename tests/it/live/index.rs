//! The KV index of live runs: workers publish over TCP, the run follows beside its requests.

use serde_json::Value;

use super::support::process::{Server, free_ports};
use super::support::run::{Api, LiveRun, Played, row};
use crate::cli::records;
use crate::run::{Scratch, case_path};

/// Three sessions of four turns, every turn ended long before the next is due.
fn turns(apart_s: f64) -> String {
    let session = |name: &str, at_s: f64| -> String {
        (0..4).map(|turn| row(name, turn, at_s + 3.0 * apart_s * f64::from(turn), 700 + 320 * turn, 12)).collect()
    };
    ["a", "b", "c"].iter().zip([0.0, apart_s, 2.0 * apart_s]).map(|(name, at_s)| session(name, at_s)).collect()
}

fn promised(record: &Value) -> u64 {
    let tokens = |tier: &str| record[format!("index_hit_tokens_{tier}")].as_u64().unwrap();
    tokens("device") + tokens("host_only")
}

fn found(played: &Played) -> Vec<Value> {
    let mut found = records(&played.scratch, "outputs/live");
    found.sort_by_key(|record| record["sent_ns"].as_u64().unwrap_or(u64::MAX));
    found
}

fn streams(scratch: &Scratch) -> Vec<Value> {
    scratch.json("outputs/live/run.json")["facts"]["streams"].as_array().unwrap().clone()
}

#[test]
fn embedded_workers_publish_and_promises_are_kept() {
    for (dialect, host) in [("xllm", "0"), ("vllm", "0"), ("sglang", "0"), ("xllm", "65536")] {
        let run = LiveRun::of(&turns(2.0)).args(&["--emulation-speed", "10"]).set("replay.mechanism", "pd");
        let run = run.set("policy.name", "car").set("cluster", "{ prefill = 2, decode = 2 }");
        let run = run.set("kv_events.dialect", dialect).set("engine.host_pool_tokens", host);
        let played = run.set("engine.kv_pool_tokens", if host == "0" { "83000" } else { "2048" }).play();
        assert_eq!(played.ran.code, Some(0), "{}", played.ran.stderr);
        let records = found(&played);
        for record in &records {
            assert_eq!(record["index_blind"], false, "{record}");
            assert_eq!(promised(record), record["cached_tokens"].as_u64().unwrap(), "{dialect}: {record}");
        }
        let hits = records.iter().filter(|record| promised(record) > 0).count();
        assert_eq!(hits, 9, "every turn but the first of each session: {dialect}");
        for stream in streams(&played.scratch) {
            assert!(stream["synchronized"] == true && stream["events"].as_u64() > Some(0), "{stream}");
        }
    }
}

#[test]
fn embedded_workers_are_promised_what_can_be_reused_of_a_prompt_that_is_cached_whole() {
    let trace: String = (0..3).map(|turn| row("a", turn, 4.0 * f64::from(turn), 256, 12)).collect();
    for (mechanism, cluster) in
        [("pd", "{ prefill = 2, decode = 2 }"), ("dp", "{ colocated = 2, prefill = 0, decode = 0 }")]
    {
        let run = LiveRun::of(&trace).args(&["--emulation-speed", "10"]).set("replay.mechanism", mechanism);
        let played = run.set("policy.name", "car").set("cluster", cluster).play();
        assert_eq!(played.ran.code, Some(0), "{}", played.ran.stderr);
        let told: Vec<_> =
            found(&played).iter().map(|it| (promised(it), it["cached_tokens"].as_u64().unwrap())).collect();
        assert_eq!(told, [(0, 0), (192, 192), (192, 192)], "{mechanism}");
        let index = played.scratch.json("outputs/live/summary.json")["index"].clone();
        assert_eq!(
            (&index["over_promised_tokens"], &index["under_promised_tokens"]),
            (&0.into(), &0.into()),
            "{index}"
        );
    }
}

#[test]
fn a_worker_that_is_killed_and_comes_back_is_followed_again() {
    let run = LiveRun::of(&turns(2.0)).args(&["--emulation-speed", "10", "--allow-conflict"]);
    let run = run.set("replay.mechanism", "pd").set("policy.name", "car").set("cluster", "{ prefill = 2, decode = 2 }");
    let faults = "[{ kind = 'kill', worker = 'P0', at_s = 9, duration_s = 3 }, \
                   { kind = 'publisher-restart', worker = 'P1', at_s = 14 }]";
    let played = run.set("fault", faults).play();
    assert_eq!(played.ran.code, Some(0), "{}", played.ran.stderr);
    for record in found(&played).iter().filter(|record| record["outcome"] == "ok") {
        assert!(promised(record) <= record["cached_tokens"].as_u64().unwrap(), "{record}");
    }
    let [p0, p1] = <[Value; 2]>::try_from(streams(&played.scratch)).unwrap();
    assert!(p0["synchronized"] == true && p0["resyncs"].as_u64() >= Some(1) && p0["unsynced_ns"].as_u64() > Some(0));
    assert_eq!(p1["synchronized"], true, "{p1}");
    let ledger = played.scratch.read("outputs/live/events.jsonl");
    assert!(ledger.lines().any(|line| line.contains("kv-stream") && line.contains("\"P0\"")), "{ledger}");
}

/// Two workers as processes, and the file that lists their streams.
struct Listed {
    workers: [Server; 2],
    ports: [[u16; 2]; 2],
}

impl Listed {
    fn start() -> Listed {
        let ports = [free_ports(), free_ports()];
        let worker = |at: usize| {
            let [events, replay] = ports[at].map(|port| port.to_string());
            let publish = ["--kv-events-port", &events, "--kv-replay-port", &replay];
            let counts = ["--set", "cluster.colocated=2", "--emulation-speed", "10"];
            Server::worker(&format!("W{at}"), &[&publish[..], &counts[..]].concat())
        };
        Listed { workers: [worker(0), worker(1)], ports }
    }

    fn run(&self, trace: &str, config: &str) -> LiveRun {
        let urls: Vec<String> = self.workers.iter().map(|worker| format!("\"{}\"", worker.url)).collect();
        let run = LiveRun::of(trace).on(&self.workers[0].url, Api::Generate).args(&["--emulation-speed", "10"]);
        let run = run.set("policy.name", "car");
        let run = run.set("live.colocated", &format!("[{}]", urls.join(",")));
        run.scratch.write("kv_events.json", config);
        run.set("kv_events.config", "kv_events.json").set("policy.car.static_streams", "true")
    }

    /// Both streams, at these ports.
    fn config(&self, ports: [[u16; 2]; 2]) -> String {
        let stream = |at: usize| {
            let [events, replay] = ports[at];
            format!(
                r#"{{"instance_name": "W{at}", "block_size": 64, "topic": "xllm-kv",
                    "endpoint": "tcp://127.0.0.1:{}", "replay_endpoint": "tcp://127.0.0.1:{}"}}"#,
                events, replay
            )
        };
        format!(r#"{{"streams": [{}, {}]}}"#, stream(0), stream(1))
    }
}

#[test]
fn streams_of_servers_elsewhere_are_followed_by_their_list() {
    let listed = Listed::start();
    let played = listed.run(&turns(2.0), &listed.config(listed.ports)).play();
    assert_eq!(played.ran.code, Some(0), "{}", played.ran.stderr);
    let records = found(&played);
    for record in &records {
        assert_eq!(record["index_blind"], false, "{record}");
        assert_eq!(promised(record), record["cached_tokens"].as_u64().unwrap(), "{record}");
    }
    assert_eq!(records.iter().filter(|record| promised(record) > 0).count(), 9);
}

#[test]
fn a_publisher_killed_in_the_middle_of_a_run_is_believed_no_more() {
    let mut listed = Listed::start();
    let mut run = listed.run(&turns(4.0), &listed.config(listed.ports)).args(&["--allow-conflict"]).start();
    std::thread::sleep(std::time::Duration::from_millis(2000));
    listed.workers[0].kill();
    std::thread::sleep(std::time::Duration::from_millis(500));
    listed.workers[0].restart();
    assert!(!run.has_ended(), "it goes on");
    let played = run.wait();
    let ok: Vec<Value> = found(&played).into_iter().filter(|record| record["outcome"] == "ok").collect();
    assert!(ok.len() >= 6, "{} of 12", ok.len());
    for record in &ok {
        assert!(promised(record) <= record["cached_tokens"].as_u64().unwrap(), "{record}");
    }
    let w0 = &streams(&played.scratch)[0];
    assert!(w0["last_error"].is_string() && w0["unsynced_ns"].as_u64() > Some(0), "{w0}");
}

#[test]
fn listed_streams_of_nobody_and_streams_that_do_not_count_are_told_at_the_start() {
    let listed = Listed::start();
    let config = listed.config(listed.ports);
    let strange = config.replace("\"W", "\"XW");
    let refused = listed.run(&turns(2.0), &strange).set("kv_events.require", "true").play();
    assert_eq!(refused.ran.code, Some(2), "{}", refused.ran.stderr);
    assert!(refused.ran.stderr.contains("stream XW0 names no worker; names are "), "{}", refused.ran.stderr);
    let blind = listed.run(&turns(2.0), &config).set("policy.car.static_streams", "false").play();
    assert_eq!(blind.ran.code, Some(0), "{}", blind.ran.stderr);
    assert!(blind.ran.stderr.contains("policy.car.static_streams = true"), "{}", blind.ran.stderr);
}

/// Case 68: nothing arrives from the addresses in the file.
#[test]
fn case_68_wrong_addresses_are_named_and_the_run_is_no_normal_one() {
    let listed = Listed::start();
    let trace = std::fs::read_to_string(case_path("68-kv-aware-with-an-empty-index/trace.jsonl")).unwrap();
    let closed = [free_ports(), free_ports()];
    let wrong = listed.config(closed);
    let fast = |run: LiveRun| run.set("kv_events.warn_after_s", "1");
    let played = fast(listed.run(&trace, &wrong)).play();
    assert_eq!(played.ran.code, Some(0), "{}", played.ran.stderr);
    assert!(played.ran.stdout.contains("load-only"), "{}", played.ran.stdout);
    let ledger = played.scratch.read("outputs/live/events.jsonl");
    let warned = ledger.lines().find(|line| line.contains("index-not-in-step")).expect("a warning in the ledger");
    assert!(warned.contains("tcp://127.0.0.1:"), "{warned}");
    let refused = fast(listed.run(&trace, &wrong)).set("kv_events.require", "true").play();
    assert_eq!(refused.ran.code, Some(2), "{}", refused.ran.stderr);
    assert!(refused.ran.stderr.contains("tcp://127.0.0.1:"), "{}", refused.ran.stderr);
}

/// Case 68 in virtual time, through the command line.
#[test]
fn case_68_in_virtual_time() {
    let scratch = Scratch::new();
    let trace = case_path("68-kv-aware-with-an-empty-index/trace.jsonl");
    let args = |more: &[&'static str], name: &'static str| -> Vec<String> {
        let base = ["replay", trace.to_str().unwrap(), "--name", name, "--allow-conflict"];
        let sets = ["policy.name=car", "replay.mechanism=pd", "cluster={ prefill = 2, decode = 2 }"];
        let sets = sets.iter().chain(more).flat_map(|set| ["--set", *set]);
        base.into_iter().chain(sets).map(str::to_owned).collect()
    };
    let run = |args: Vec<String>| scratch.run(&args.iter().map(String::as_str).collect::<Vec<_>>());
    let good = run(args(&[], "good")).code(0);
    assert!(!good.stdout.contains("load-only"), "{}", good.stdout);
    let wrong = "fault=[{ kind = 'kv-endpoint-wrong' }]";
    let bad = run(args(&[wrong], "bad")).code(0);
    assert!(bad.stdout.contains("load-only"), "{}", bad.stdout);
    let facts = &scratch.json("outputs/bad/run.json")["facts"]["streams"];
    assert!(facts.as_array().unwrap().iter().all(|stream| stream["events"] == 0 && stream["synchronized"] == false));
    let required = run(args(&[wrong, "kv_events.require=true"], "required")).code(2);
    assert!(required.stderr.contains(": P0: connection refused"), "{}", required.stderr);
}
