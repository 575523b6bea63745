//! The index as a process: streams that come, go, break and come back; its commands.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::installed::python;
use crate::kv::peers::{Foreign, Publisher, removed, stored};
use crate::kv::query::{hits, numbers, query, request};
use crate::live::support::process::{Server, free_ports, wait_for};
use crate::run::{Ran, Scratch};

const IDS: [u32; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

fn streams(url: &str) -> Value {
    let (status, _, body) = request(url, "GET", "/v1/internal/kv-cache/streams", &[], b"");
    assert_eq!(status, 200);
    serde_json::from_str(&body).unwrap()
}

fn registry(path: &Path, instances: &Value) {
    // A rename is what a reader sees whole.
    let next = path.with_extension("next");
    fs::write(&next, json!({ "instances": instances }).to_string()).unwrap();
    fs::rename(next, path).unwrap();
}

fn port(endpoint: &str) -> u64 {
    endpoint.rsplit_once(':').unwrap().1.parse().unwrap()
}

/// A configuration whose rules lead from port 1 to this publisher.
fn discovery(publisher: &Publisher) -> Value {
    json!({"discovery": {"enabled": true, "block_size": 4, "topic": "xllm-kv", "refresh_interval_ms": 50,
        "event_port_offset": port(&publisher.endpoint) - 1, "replay_port_offset": port(&publisher.replay_endpoint) - 1}})
}

#[test]
fn a_stream_is_followed_through_changes_loss_and_restart() {
    let Some(python) = python("zmq, msgpack") else { return };
    let scratch = Scratch::new();
    let none = Path::new("-");
    let ports = free_ports();
    let mut publisher = Foreign::start(&python, "xllm", none, ports, 0);
    publisher.publish(&[stored(&[101], None, &[1, 2, 3, 4], "gpu")]);
    let config = json!({"streams": [{"instance_name": "p0", "block_size": 4, "topic": "xllm-kv",
        "endpoint": publisher.endpoint, "replay_endpoint": publisher.replay_endpoint}]});
    let server = Server::index(&scratch.write("kv.json", &config.to_string()), &[]);
    assert_eq!(hits(&server.url, "p0/0", 1, &IDS), [4, 0, 4, 1, 0], "joined late, by a snapshot");
    publisher.publish(&[stored(&[102], Some(101), &[5, 6, 7, 8], "gpu"), stored(&[101, 102], None, &[], "cpu")]);
    let last = publisher.publish(&[removed(&[101, 102], "gpu")]);
    assert_eq!(hits(&server.url, "p0/0", last, &IDS), [0, 8, 8, 0, 2], "live");
    publisher.lose(&[removed(&[102], "cpu")]);
    let last = publisher.publish(&[stored(&[201], None, &[9, 9, 9, 9], "gpu")]);
    assert_eq!(hits(&server.url, "p0/0", last, &IDS), [0, 4, 4, 1, 1], "a gap is mended by a snapshot");
    let before = streams(&server.url)["streams"][0].clone();
    assert_eq!((&before["gaps"], &before["resyncs"]), (&json!(1), &json!(1)), "{before}");
    publisher.kill();
    wait_for("hits are gone with the publisher", || {
        let found = query(&server.url, &IDS).remove("p0/0").unwrap();
        (found["synchronized"] == false).then(|| assert_eq!(numbers(&found)[..3], [0; 3]))
    });
    let mut publisher = Foreign::start(&python, "xllm", none, ports, 0);
    let last = publisher.publish(&[stored(&[7], None, &IDS[4..], "gpu")]);
    assert_eq!(hits(&server.url, "p0/0", last, &IDS[4..]), [4, 0, 4, 1, 0]);
    assert_eq!(hits(&server.url, "p0/0", last, &IDS), [0, 0, 0, 1, 0], "nothing of the process before");
    let log = server.log.lock().unwrap().clone();
    for words in [
        "ready; streams followed: 1",
        "p0/0: unsynced -> synced (snapshot) at sequence 1",
        "(gap)",
        "-> disconnected at",
    ] {
        assert!(log.contains(words), "no `{words}` in {log}");
    }
    assert!(log.lines().count() < 30, "{log}");
}

#[test]
fn a_registry_adds_streams_and_takes_them_away() {
    let scratch = Scratch::new();
    let publisher = Publisher::start();
    let last = publisher.publish(&[stored(&[101, 102], None, &IDS, "gpu")]);
    let config = scratch.write("kv.json", &discovery(&publisher).to_string());
    let list = scratch.join("instances.json");
    let one = |incarnation: &str, kind: &str| json!([{"name": "p0", "http_address": "127.0.0.1:1", "type": kind, "incarnation_id": incarnation}]);
    let server = Server::index(&config, &["--registry", &format!("file:{}", list.display())]);
    let (status, ..) = request(&server.url, "GET", "/health", &[], b"");
    assert_eq!(status, 503, "there is no file yet");
    let log = || server.log.lock().unwrap().clone();
    wait_for("that is told", || log().contains("nobody is followed").then_some(()));
    assert!(!log().contains("last good state"), "there is none: {}", log());
    registry(&list, &json!([]));
    wait_for("the empty registry is read", || {
        (request(&server.url, "GET", "/health", &[], b"").0 == 200).then_some(())
    });
    assert!(query(&server.url, &IDS).is_empty());
    registry(&list, &one("i1", "PREFILL"));
    wait_for("p0 is there", || query(&server.url, &[]).contains_key("p0/0").then_some(()));
    assert_eq!(hits(&server.url, "p0/0", last, &IDS), [8, 0, 8, 2, 0]);
    registry(&list, &one("i2", "PREFILL"));
    wait_for("another process is another stream", || {
        server.log.lock().unwrap().contains("is followed no longer: new process").then_some(())
    });
    assert_eq!(hits(&server.url, "p0/0", last, &IDS), [8, 0, 8, 2, 0]);
    registry(&list, &one("i2", "DECODE"));
    wait_for("one that decodes is let go", || query(&server.url, &IDS).is_empty().then_some(()));
    let far = json!([{"name": "far", "http_address": "127.0.0.1:65535", "type": "PREFILL"}]);
    registry(&list, &far);
    wait_for("one without a port is excluded", || {
        streams(&server.url)["excluded"]["far"].as_str()?.contains("above 65535").then_some(())
    });
    registry(&list, &one("i2", "DEFAULT"));
    assert_eq!(hits_once_there(&server.url, last), [8, 0, 8, 2, 0]);
    wait_for("it is excluded no longer", || (streams(&server.url)["excluded"] == json!({})).then_some(()));
    fs::write(&list, "{").unwrap();
    wait_for("a broken list is told", || {
        streams(&server.url)["notice"].as_str()?.contains("last good state").then_some(())
    });
    assert_eq!(hits(&server.url, "p0/0", last, &IDS), [8, 0, 8, 2, 0]);
    registry(&list, &one("i2", "DEFAULT"));
    wait_for("what is over is no notice", || (streams(&server.url)["notice"] == json!(null)).then_some(()));
    assert!(log().contains("is in use again"), "{}", log());
}

fn hits_once_there(url: &str, last: u64) -> [u64; 5] {
    wait_for("p0 is there", || query(url, &[]).contains_key("p0/0").then_some(()));
    hits(url, "p0/0", last, &IDS)
}

#[test]
fn a_stream_that_never_comes_harms_no_other() {
    let scratch = Scratch::new();
    let publisher = Publisher::start();
    let last = publisher.publish(&[stored(&[101, 102], None, &IDS, "gpu")]);
    let away = |rank: u16| {
        json!({"instance_name": "away", "dp_rank": rank, "block_size": 4,
            "endpoint": format!("tcp://127.0.0.1:{}", 2 * rank + 1), "replay_endpoint": format!("tcp://127.0.0.1:{}", 2 * rank + 2)})
    };
    let mut all: Vec<Value> = (0..40).map(away).collect();
    all.push(publisher.stream("p0"));
    let server = Server::index(&scratch.write("kv.json", &json!({"streams": all}).to_string()), &[]);
    wait_for("all are there", || (query(&server.url, &[]).len() == 41).then_some(()));
    assert_eq!(hits(&server.url, "p0/0", last, &IDS), [8, 0, 8, 2, 0]);
    thread::sleep(Duration::from_secs(3));
    let log = server.log.lock().unwrap().clone();
    let about_one = log.lines().filter(|line| line.contains("stream away/7:")).count();
    assert!((1..=4).contains(&about_one), "{about_one} lines for one that stays away: {log}");
    for rank in 0..40 {
        let first = log.lines().find(|line| line.contains(&format!("stream away/{rank}:"))).unwrap();
        assert!(first.contains("is followed at"), "before anything else: {first}");
        let (at, _) = first.split_once(' ').unwrap();
        assert!(at.len() == 24 && at.starts_with("20") && at.ends_with('Z'), "its time: {first}");
    }
    server.signal("INT");
    wait_for("it ends by itself", || (!Path::new(&format!("/proc/{}/fd/0", server.id())).exists()).then_some(()));
}

#[test]
fn the_commands_ask_show_and_watch() {
    let scratch = Scratch::new();
    let publisher = Publisher::start();
    let last = publisher.publish(&[stored(&[101, 102], None, &IDS, "gpu"), stored(&[101], None, &[], "cpu")]);
    let config = scratch.write("kv.json", &json!({"streams": [publisher.stream("p0")]}).to_string());
    scratch.write("token", "s3cret");
    let token = scratch.join("token");
    let server = Server::index(&config, &["--token-file", token.to_str().unwrap()]);
    let ask = |more: &[&str]| scratch.run(&[more, &["--url", &server.url, "--token-file", "token"]].concat());
    wait_for("in step", || ask(&["index", "query", "--format", "csv"]).stdout.contains(",yes,").then_some(()));
    let found = ask(&["index", "query", "--tokens", "1,2,3,4,5"]).code(0);
    let row: Vec<&str> = found.stdout.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row, ["p0", "0", "yes", &last.to_string(), "4", "0", "4", "2", "1"]);
    scratch.write("ids.json", "[1, 2, 3, 4,\n5, 6, 7, 8]");
    let found = ask(&["index", "query", "--tokens-file", "ids.json", "--json"]).code(0);
    let found: Value = serde_json::from_str(&found.stdout).unwrap();
    assert_eq!(numbers(&found["matches"][0]), [8, 0, 8, 2, 1]);
    let shown = ask(&["index", "watch", "--once"]).code(0);
    assert!(shown.stdout.contains("streams: 1, in step: 1") && shown.stdout.contains("synced"), "{}", shown.stdout);
    watch_tells_changes(&scratch, &server, &publisher);
    let url = server.url.clone();
    let bare = scratch.run(&["index", "query", "--url", &url]).code(1);
    assert!(
        bare.stderr.contains("without the internal token") && bare.stderr.contains("--token-env"),
        "{}",
        bare.stderr
    );
    scratch.write("other", "s3creT");
    let wrong = scratch.run(&["index", "watch", "--once", "--url", &url, "--token-file", "other"]).code(1);
    assert!(wrong.stderr.contains("compare it") && !wrong.stderr.contains("s3cre"), "{}", wrong.stderr);
    let zmq = publisher.endpoint.replace("tcp://", "http://");
    let other = scratch.run(&["index", "query", "--url", &zmq]).code(1);
    assert!(other.stderr.contains("HTTP") && !other.stderr.contains("unexpected message"), "{}", other.stderr);
    drop(server);
    let gone = scratch.run(&["index", "query", "--url", &url]).code(1);
    assert!(gone.stderr.contains("connection refused") && gone.stderr.contains("index serve"), "{}", gone.stderr);
}

/// Not a terminal: a line for each stream that changed.
fn watch_tells_changes(scratch: &Scratch, server: &Server, publisher: &Publisher) {
    let out = fs::File::create(scratch.join("watch.log")).unwrap();
    let args = ["index", "watch", "--url", &server.url, "--token-file", "token"];
    let child = scratch.command(&args).stdout(out).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let wait = |words: &str| wait_for(words, || scratch.read("watch.log").contains(words).then_some(()));
    wait("Z p0/0 synced sequence 1 device blocks 2 host blocks 1");
    publisher.publish(&[removed(&[101], "cpu")]);
    wait("Z p0/0 synced sequence 2 device blocks 2 host blocks 0");
    let sent = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    Ran::of(child.wait_with_output().unwrap()).code(0);
    let told = scratch.read("watch.log");
    assert_eq!(told.lines().count(), 2, "only what changed: {told}");
}

#[test]
fn doctor_says_which_publishers_answer_and_what_is_off_without_them() {
    let scratch = Scratch::new();
    let (publisher, other) = (Publisher::start(), Publisher::start());
    publisher.publish(&[stored(&[101, 102], None, &IDS, "gpu")]);
    let with = |name: &str, changes: Value| {
        let mut stream = publisher.stream(name);
        stream.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        stream
    };
    let streams = json!({"replay_timeout_ms": 500, "streams": [
        publisher.stream("p0"),
        with("no-replay", json!({"endpoint": other.endpoint, "replay_endpoint": "tcp://127.0.0.1:1"})),
        {"instance_name": "away", "block_size": 4, "endpoint": "tcp://127.0.0.1:2", "replay_endpoint": "tcp://127.0.0.1:3"},
        with("wrong", json!({"endpoint": other.replay_endpoint, "replay_endpoint": "tcp://127.0.0.1:4"})),
    ]});
    scratch.write("kv.json", &streams.to_string());
    let args = ["doctor", "--set", "live.emulation_speed=10", "--kv-events", "kv.json", "--json"];
    let ran = scratch.run(&args).code(0);
    let checks: Vec<Value> = serde_json::from_str(&ran.stdout).unwrap();
    let of = |name: &str| {
        let is_it =
            |check: &&Value| check["check"] == "KV streams" && check["detail"].as_str().unwrap().starts_with(name);
        checks.iter().find(is_it).unwrap_or_else(|| panic!("no {name}: {checks:#?}"))
    };
    let good = of("p0/0");
    assert!(good["result"] == "ok" && good["detail"].as_str().unwrap().contains("blocks: 2 device, 0 host"), "{good}");
    for (name, remedy) in [("no-replay/0", "the replay is not"), ("away/0", "start the engine")] {
        let check = of(name);
        assert_eq!(check["result"], "warn", "{check}");
        assert!(check["will_be_off"].as_str().unwrap().contains("count as 0"), "{check}");
        assert!(check["remedy"].as_str().unwrap().contains(remedy), "{check}");
    }
    assert!(of("away/0")["detail"].as_str().unwrap().matches("tcp://127.0.0.1:2").count() == 1, "the address once");
    let wrong = of("wrong/0")["detail"].as_str().unwrap();
    assert!(wrong.contains("`endpoint`, or `event_port_offset`") && wrong.matches("tcp://").count() == 1, "{wrong}");
    scratch.run(&["doctor", "--kv-events", "none.json"]).refused(&["none.json cannot be read"]);
}

fn checks(scratch: &Scratch, config: &Value) -> Vec<Value> {
    scratch.write("kv.json", &config.to_string());
    let ran = scratch.run(&["doctor", "--set", "live.emulation_speed=10", "--kv-events", "kv.json", "--json"]).code(0);
    let checks: Vec<Value> = serde_json::from_str(&ran.stdout).unwrap();
    checks.into_iter().filter(|check| check["check"] == "KV streams").collect()
}

/// It answers: nothing is wrong with its address.
#[test]
fn an_idle_publisher_is_said_to_be_idle_and_its_first_batch_brings_it_in_step() {
    let words = "it answers, and has published nothing yet: one request brings it in step";
    for (dialect, recovery) in [("xllm", "snapshot"), ("vllm", "history"), ("sglang", "history")] {
        let (scratch, publisher) = (Scratch::new(), Publisher::idle());
        let mut stream = publisher.stream("p0");
        stream["dialect"] = dialect.into();
        stream["recovery"] = recovery.into();
        let config = json!({"replay_timeout_ms": 500, "streams": [stream]});
        let [check] = &checks(&scratch, &config)[..] else { panic!("one stream, one row") };
        assert!(check["detail"].as_str().unwrap().contains(words), "{check}");
        assert!(check["remedy"].as_str().unwrap().contains("send it one request"), "{check}");
        assert!(check["will_be_off"].as_str().unwrap().contains("hits of p0 count as 0"), "{check}");
        if dialect != "xllm" {
            continue;
        }
        let server = Server::index(&scratch.join("kv.json"), &[]);
        wait_for("the index says so too", || {
            (streams(&server.url)["streams"][0]["error"].as_str()? == words).then_some(())
        });
        let watched = scratch.run(&["index", "watch", "--once", "--url", &server.url]).code(0);
        assert!(watched.stdout.contains(words), "{}", watched.stdout);
        let last = publisher.publish(&[stored(&[101, 102], None, &IDS, "gpu")]);
        assert_eq!(hits(&server.url, "p0/0", last, &IDS), [8, 0, 8, 2, 0]);
    }
}

#[test]
fn a_stream_without_recovery_waits_for_a_batch_that_clears_and_doctor_says_so() {
    let (scratch, publisher) = (Scratch::new(), Publisher::start());
    let mut stream = publisher.stream("p0");
    (stream["recovery"], stream["dp_rank"]) = ("none".into(), 1.into());
    let [check] = &checks(&scratch, &json!({"replay_timeout_ms": 500, "streams": [stream]}))[..] else { panic!() };
    assert!(check["detail"].as_str().unwrap().contains("waits for a batch that clears everything"), "{check}");
    assert!(check["remedy"].as_str().unwrap().starts_with("flush the engine's cache once"), "{check}");
    assert!(check["will_be_off"].as_str().unwrap().contains("hits of p0 count as 0"), "all of its ranks: {check}");
}

#[test]
fn instances_left_out_by_rule_are_named_by_the_index_and_by_doctor() {
    let (scratch, publisher) = (Scratch::new(), Publisher::start());
    let list = scratch.join("instances.json");
    let one = |name: &str, port: u64, kind: &str, backend: &str| json!({"name": name, "http_address": format!("127.0.0.1:{port}"), "type": kind, "backend": backend});
    let left = [one("b", 2, "PREFILL", "sglang"), one("z", 3, "DECODE", "xllm")];
    registry(&list, &json!([one("p0", 1, "PREFILL", "xllm"), left[0], left[1]]));
    let mut config = discovery(&publisher);
    config["discovery"]["registry"] = json!({"file": list});
    let server = Server::index(&scratch.write("index.json", &config.to_string()), &[]);
    let why = "backend sglang, the dialect is xllm";
    let wanted = json!({"b": why, "z": "it decodes"});
    wait_for("both are named", || (streams(&server.url)["excluded"] == wanted).then_some(()));
    let log = server.log.lock().unwrap().clone();
    assert!(log.contains("instance z is not followed: it decodes") && log.contains(why), "{log}");
    let (_, _, metrics) = request(&server.url, "GET", "/metrics", &[], b"");
    assert!(metrics.contains("pdreplay_kv_excluded_instances 0"), "both are as the rules want it: {metrics}");
    let told = |instances: &Value| {
        registry(&list, instances);
        let row = |check: &Value| ["result", "detail", "remedy"].map(|key| check[key].as_str().unwrap().to_owned());
        checks(&scratch, &config).iter().map(row).collect::<Vec<_>>()
    };
    let all = told(&json!([one("p0", 1, "PREFILL", "xllm"), left[0], left[1]]));
    assert_eq!(all.len(), 3, "{all:?}");
    assert!(all[0][0] == "warn" && all[0][1] == format!("b is not followed: {why}"), "{all:?}");
    assert!(all[0][2].contains("the dialect of `discovery`"), "{all:?}");
    assert!(all[1][0] == "ok" && all[1][1].starts_with("p0/0"), "{all:?}");
    assert!(all[2][0] == "ok" && all[2][1] == "not followed, because they decode: z", "{all:?}");
    let none = told(&json!(left));
    assert!(none.iter().any(|row| row[1] == "the registry has no instance to follow"), "{none:?}");
    assert!(none.iter().all(|row| !row[2].contains("start engines")), "there are some: {none:?}");
    let empty = told(&json!([]));
    assert!(empty.len() == 1 && empty[0][2] == "start engines, or list streams", "{empty:?}");
}

#[test]
fn what_cannot_be_served_is_refused_with_a_way_out() {
    let scratch = Scratch::new();
    let stream = json!({"instance_name": "p0", "endpoint": "tcp://h:1", "replay_endpoint": "tcp://h:2"});
    scratch.write("streams.json", &json!({ "streams": [stream] }).to_string());
    scratch.write("discovery.json", r#"{"discovery":{"enabled":true}}"#);
    scratch.write("bad.json", r#"{"discovery":{"enabled":true,"refresh_interval_ms":49}}"#);
    scratch.write("empty", "\n");
    let [a, b] = ["127.0.0.1", "localhost"]
        .map(|host| json!({"instance_name": host, "recovery": "none", "endpoint": format!("tcp://{host}:9")}));
    scratch.write("twice.json", &json!({ "streams": [a, b] }).to_string());
    let serve = |config: &str, more: &[&str]| {
        let ran = scratch.run(&[&["index", "serve", "--config", config], more].concat());
        assert!(!ran.stdout.contains("index http"), "{ran:?}");
        ran
    };
    serve("none.json", &[]).refused(&["none.json cannot be read", "docs/kv-events.md#the-file"]);
    serve("bad.json", &[]).refused(&["bad.json", "refresh_interval_ms", "from 50 to 60000"]);
    serve("twice.json", &[]).refused(&["`streams[1].endpoint`: tcp://localhost:9 is streams[0].endpoint already"]);
    serve("streams.json", &["--listen", "0.0.0.0:0"]).refused(&["without a token", "--token-env"]);
    serve("streams.json", &["--listen", "[::]:0"]).refused(&["without a token", "--token-env"]);
    serve("streams.json", &["--listen", "nowhere"]).refused(&["no address to listen on", "HOST:PORT"]);
    serve("streams.json", &["--token-env", "PDREPLAY_NO_SUCH"]).refused(&["PDREPLAY_NO_SUCH", "export"]);
    serve("streams.json", &["--token-file", "empty"]).refused(&["empty holds no token", "one line"]);
    serve("streams.json", &["--registry", "file:x.json"]).refused(&["lists its streams", "leave `--registry` out"]);
    serve("discovery.json", &[]).refused(&["has no registry", "--registry"]);
    serve("discovery.json", &["--registry", "zk:x"]).refused(&["`zk:x` is no registry", "file:PATH"]);
    serve("discovery.json", &["--registry", "etcd:prod"]).refused(&["names no member", "etcd:http://"]);
    if cfg!(feature = "etcd") {
        serve("discovery.json", &["--registry", "etcd:https://h:1"]).refused(&["TLS", "http://HOST:PORT"]);
    } else {
        serve("discovery.json", &["--registry", "etcd:http://h:1"]).refused(&["no etcd client", "--features etcd"]);
    }
    scratch.run(&["index", "query", "--tokens", "1,-2"]).refused(&["number 2, `-2`", "2147483647"]);
    scratch.run(&["index", "query", "--url", "h:1"]).refused(&["`h:1` is no address", "http://HOST:PORT"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap().to_string();
    let ran = serve("streams.json", &["--listen", &at]).code(1);
    assert!(ran.stderr.contains("cannot listen") && ran.stderr.contains("127.0.0.1:0"), "{}", ran.stderr);
}
