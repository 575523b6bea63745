//! `pdreplay cluster up` and `pdreplay router` as processes: what they print, how they end, what becomes of requests
//! when a worker is killed. What the router answers otherwise is tested beside its server.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;

use serde_json::{Value, json};

use crate::live::support::process::{Server, get, post, wait_for};
use crate::live::support::run::row;
use crate::run::{Ran, Scratch};

/// A cluster that is up, and the first line it said.
pub struct Up {
    child: Child,
    line: String,
}

impl Up {
    pub fn start(scratch: &Scratch, args: &[&str]) -> Up {
        let mut command = scratch.command(&[&["cluster", "up"], args].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        // One byte at a time: what follows stays in the pipe.
        BufReader::with_capacity(1, child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        Up { child, line }
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.line).unwrap_or_else(|_| panic!("{}", self.line))
    }

    /// Threads and descriptors it has.
    fn holds(&self) -> [usize; 2] {
        ["task", "fd"].map(|what| fs::read_dir(format!("/proc/{}/{what}", self.child.id())).unwrap().count())
    }

    pub fn end(self, signal: &str) -> Ran {
        let sent = Command::new("kill").args([format!("-{signal}"), self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        Ran::of(self.child.wait_with_output().unwrap())
    }
}

fn ask(tokens: u32, answer: u32) -> Value {
    let ids: Vec<u32> = (0..tokens).collect();
    json!({"input_ids": ids, "sampling_params": {"max_new_tokens": answer, "ignore_eos": true}, "stream": true})
}

#[test]
fn a_cluster_answers_outlives_its_faults_and_ends_cleanly() {
    let scratch = Scratch::new();
    let restart = |worker: &str, at: f64| format!(r#"{{kind="restart", worker="{worker}", at_s={at}}}"#);
    let faults: Vec<String> = (0..10).map(|nth| restart(["D0", "D1", "P0"][nth % 3], 40.0 + nth as f64)).collect();
    let faults = format!("fault=[{}, {{kind=\"router-restart\", at_s=50}}]", faults.join(", "));
    let shape = ["--set", "cluster.prefill=1", "--set", "cluster.decode=2", "--emulation-speed", "40"];
    let up = Up::start(&scratch, &[&shape[..], &["--set", &faults, "--json"]].concat());
    let told = up.json();
    let router = told["router"].as_str().unwrap().to_owned();
    let workers: Vec<(&str, &str)> = told["workers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|worker| (worker["worker"].as_str().unwrap(), worker["url"].as_str().unwrap()))
        .collect();
    assert_eq!(workers.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["P0", "D0", "D1"]);
    let answered = || post(&router, "/generate", &ask(200, 3)).filter(|answer| answer.contains("data: [DONE]"));
    wait_for("an answer before the faults", answered);
    let before = up.holds();
    // D0 is hit four times, the others three times.
    for ((_, url), wanted) in workers.iter().zip([3, 4, 3]).chain([(&("router", &*router), 1)]) {
        let incarnation = || {
            let info = get(url, "/server_info")?;
            let info: Value = serde_json::from_str(info.split_once("\r\n\r\n")?.1).ok()?;
            (info["emulated"]["incarnation"] == wanted).then_some(())
        };
        wait_for("the last restart", incarnation);
    }
    wait_for("an answer after the faults", answered);
    wait_for("as many threads and descriptors as before", || {
        let [threads, descriptors] = up.holds();
        // The router's connections to its workers come and go.
        (threads <= before[0] && descriptors <= before[1] + 12).then_some(())
    });
    let ran = up.end("TERM").code(0);
    assert_eq!(ran.stderr.matches("fault: restart").count(), 10, "{}", ran.stderr);
    assert!(ran.stderr.contains("fault: router-restart"), "{}", ran.stderr);
}

#[test]
fn the_table_names_every_node_and_how_to_use_it() {
    let scratch = Scratch::new();
    let up = Up::start(&scratch, &["dp8", "--set", "cluster.colocated=2"]);
    assert_eq!(up.line.split_whitespace().collect::<Vec<_>>(), ["NAME", "ROLE", "URL", "BOOTSTRAP", "PORT"]);
    let ran = up.end("INT").code(0);
    let names: Vec<&str> = ran.stdout.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, ["router", "W0", "W1"]);
    assert!(ran.stderr.contains("curl -N http://127.0.0.1:") && ran.stderr.contains("--target live"), "{}", ran.stderr);
}

#[test]
fn the_printed_command_lines_work_as_they_are() {
    let fault = "fault=[{kind=\"kill\", worker=\"D1\", at_s=1e6}]";
    let cases: [&[&str]; 5] = [
        &["v3-1p7d", "--set", "cluster.decode=2", "--policy", "kv-aware", "--set", fault],
        &["-s", "dp8", "--set", "cluster.colocated=2", "--set", "name='two words'"],
        // With an index: of P, of D, of colocated workers.
        &["--policy", "car", "--mechanism", "pd", "--set", "cluster.decode=2"],
        &[
            "--policy",
            "kv-aware",
            "--mechanism",
            "pd",
            "--set",
            "policy.kv_aware.overlap=index",
            "--set",
            "engine.decode_radix_cache=true",
        ],
        &["-s", "dp8", "--policy", "car", "--set", "cluster.colocated=2", "--kv-config", "my streams.json"],
    ];
    for args in cases {
        let scratch = Scratch::new();
        scratch.write("trace.jsonl", &(row("a", 0, 0.0, 128, 4) + &row("a", 1, 4.0, 320, 4)));
        let mut up = Up::start(&scratch, &[args, &["--emulation-speed", "5"]].concat());
        let mut said = BufReader::new(up.child.stderr.take().unwrap());
        let mut line_of = |begin: &str| {
            let mut line = String::new();
            while !line.starts_with(begin) {
                line.clear();
                assert!(said.read_line(&mut line).unwrap() > 0, "no line begins with `{begin}`");
            }
            line[begin.len()..].trim().to_owned()
        };
        let doctor = line_of("check it:");
        let lag = "--set integrity.max_schedule_lag_p99_ms=1e6 --set integrity.max_harness_pause_ms=1e9";
        let replay = format!("{} trace.jsonl --name again {lag}", line_of("replay on:"));
        for command in [doctor, replay] {
            let command = command.replacen("pdreplay", env!("CARGO_BIN_EXE_pdreplay"), 1);
            let mut shell = Command::new("sh");
            let shell = shell.args(["-c", &command]).current_dir(scratch.path()).stdin(Stdio::null());
            let ran = Ran::of(shell.output().unwrap());
            assert_eq!(ran.code, Some(0), "{command}: {ran:#?}");
            assert!(
                !ran.stderr.contains("by load alone") && !ran.stdout.contains("by load alone"),
                "{command}: {ran:#?}"
            );
        }
        assert_eq!(scratch.json("outputs/again/run.json")["target"]["kind"], "sglang");
        let index = scratch.json("outputs/again/summary.json")["index"].clone();
        if args.iter().any(|arg| arg.contains("car") || arg.contains("overlap=index")) {
            assert!(index["blind"] == 0 && index["with_hits"] == 1, "{args:?}: {index:#}");
        }
        up.end("INT").code(0);
    }
}

#[test]
fn the_file_of_streams_is_written_where_it_is_wanted_and_refused_where_nobody_publishes() {
    let scratch = Scratch::new();
    let up = Up::start(&scratch, &["--policy", "car", "--kv-config", "kv.json", "--json"]);
    let worker = &up.json()["workers"][0];
    wait_for("the file", || scratch.join("kv.json").is_file().then_some(()));
    let stream = scratch.json("kv.json")["streams"][0].clone();
    assert_eq!((&stream["instance_name"], &stream["endpoint"]), (&worker["worker"], &worker["kv_events"]));
    assert_eq!(stream["replay_endpoint"], worker["kv_replay"]);
    up.end("INT").code(0);
    assert!(scratch.join("kv.json").is_file(), "who asked for it keeps it");
    let earlier = scratch.read("kv.json");
    let up = Up::start(&scratch, &["--policy", "car", "--kv-config", "kv.json", "--json"]);
    wait_for("another file", || (scratch.read("kv.json") != earlier).then_some(()));
    up.end("INT").code(0);
    // By hand, and in nobody's form; nothing is started for it.
    let by_hand = r#"{"streams": [{"instance_name": "P0", "block_size": 64, "endpoint": "tcp://10.0.0.1:5557"}]}"#;
    let sorted = format!("{:#}\n", scratch.json("kv.json"));
    for text in [
        by_hand,
        sorted.as_str(),
        "{\n  \"streams\": [\n    {\n      \"instance_name\": \"P0\"\n    }\n  ]\n}\n",
        "notes",
    ] {
        scratch.write("mine.json", text);
        let refused = scratch.run(&["cluster", "up", "--policy", "car", "--kv-config", "mine.json"]);
        refused.refused(&["mine.json exists and is no file of KV streams", "so it is not replaced", "another file"]);
        assert_eq!(scratch.read("mine.json"), text);
    }
    for (place, why) in
        [("-", "can be read again"), ("/dev/null", "can be read again"), ("no/kv.json", "the folder no")]
    {
        scratch.run(&["cluster", "up", "--policy", "car", "--kv-config", place]).refused(&[why]);
    }
    let refused = scratch.run(&["cluster", "up", "--policy", "sticky", "--kv-config", "no.json"]);
    refused.refused(&["no worker publishes any", "--policy car"]);
    assert!(!scratch.join("no.json").exists());
}

#[test]
fn flags_without_effect_are_not_taken() {
    let scratch = Scratch::new();
    for flag in ["--router=http://x", "--concurrency=3", "--schedule=open", "--api-key-env=A", "--time-scale=2"] {
        scratch.run(&["cluster", "up", flag]).refused(&["unexpected argument"]);
    }
    for flag in ["--concurrency=3", "--on-turn-failure=continue", "--schedule=open", "--seed=1"] {
        scratch.run(&["doctor", flag]).refused(&["unexpected argument"]);
    }
}

#[test]
fn what_cannot_be_served_is_refused_with_a_way_out() {
    let scratch = Scratch::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let ran = scratch.run(&["cluster", "up", "--base-port", &port]).code(1);
    assert!(ran.stderr.contains(&port) && ran.stderr.contains("hint: "), "{}", ran.stderr);
    let url = "http://127.0.0.1:1";
    let ran = scratch.run(&["router", "--worker", url, "--port", &port]).code(1);
    assert!(ran.stderr.contains(&port) && ran.stderr.contains("hint: "), "{}", ran.stderr);
    scratch.run(&["cluster", "up", "--emulation-speed", "0"]).refused(&["emulation_speed"]);
    scratch.run(&["cluster", "up", "--base-port", "65535"]).refused(&["65535"]);
    scratch.run(&["router", "--worker", "127.0.0.1:9"]).refused(&["--worker", "no scheme", "http://127.0.0.1:9"]);
    scratch.run(&["router", "--prefill", "8998", "--decode", "https://x"]).refused(&["--prefill", "--decode", "https"]);
    scratch
        .run(&["router", "--prefill", "http://a 8998", "--decode", "http://b 8998"])
        .refused(&["--decode", "only prefill"]);
    let told =
        scratch.run(&["router", "--worker", "http://me:secret@a"]).refused(&["--worker", "it holds a user"]).stderr;
    assert!(!told.contains("secret"), "{told}");
    for wrong in [&["router"][..], &["router", "--prefill", url], &["router", "--worker", url, "--prefill", url]] {
        assert_eq!(scratch.run(wrong).code, Some(2), "{wrong:?}");
    }
}

#[test]
fn a_prefill_worker_that_is_killed_is_named_at_once() {
    // A prefill takes longer than anyone waits here.
    let (mut p, d) = (Server::worker("P0", &["--set", "engine.timing.p0=90000"]), Server::worker("D0", &[]));
    let router = Server::router(&[&p], &[&d], &[]);
    let url = router.url.clone();
    let call = thread::spawn(move || post(&url, "/generate", &ask(100, 5)).unwrap());
    wait_for("the request at P", || get(&router.url, "/metrics")?.contains("active{worker=\"P0\"").then_some(()));
    wait_for("the request under way", || load_of(&router, "P0").filter(|load| *load == 1));
    p.kill();
    let answer = call.join().unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 500") && answer.contains("x-smg-error-code: prefill_internal_error"),
        "{answer}"
    );
    assert!(answer.contains(&format!("x-pdreplay-prefill-worker: {}", p.url)), "{answer}");
    wait_for("the legs let go", || load_of(&router, "D0").filter(|load| *load == 0));
    wait_for("P out of the choice", || get(&router.url, "/readiness")?.starts_with("HTTP/1.1 503").then_some(()));
    assert!(post(&router.url, "/generate", &ask(10, 1)).unwrap().contains("no_available_workers"));
    p.restart_as(&["--set", "engine.timing.p0=20"]);
    wait_for("P back", || get(&router.url, "/readiness")?.starts_with("HTTP/1.1 200").then_some(()));
    assert!(post(&router.url, "/generate", &ask(10, 1)).unwrap().contains("data: [DONE]"));
}

#[test]
fn a_decode_worker_that_is_killed_breaks_its_streams() {
    let (p, mut d) = (Server::worker("P0", &[]), Server::worker("D0", &[]));
    let router = Server::router(&[&p], &[&d], &[]);
    let mut stream = TcpStream::connect(&router.url["http://".len()..]).unwrap();
    let body = ask(100, 5000).to_string();
    let head = format!("content-type: application/json\r\ncontent-length: {}", body.len());
    write!(stream, "POST /generate HTTP/1.1\r\nhost: x\r\n{head}\r\n\r\n{body}").unwrap();
    let mut read = Vec::new();
    while !String::from_utf8_lossy(&read).contains("data: ") {
        let mut some = [0; 4096];
        let count = stream.read(&mut some).unwrap();
        assert!(count > 0, "{}", String::from_utf8_lossy(&read));
        read.extend_from_slice(&some[..count]);
    }
    d.kill();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    let all = String::from_utf8_lossy(&rest).into_owned();
    assert!(!all.contains("[DONE]") && !all.ends_with("0\r\n\r\n"), "it does not look complete");
    wait_for("P let go", || load_of(&router, "P0").filter(|load| *load == 0));
}

fn load_of(router: &Server, name: &str) -> Option<u64> {
    let list = get(&router.url, "/workers")?;
    let list: Value = serde_json::from_str(list.split_once("\r\n\r\n")?.1).ok()?;
    list["workers"].as_array()?.iter().find(|worker| worker["id"] == name)?["load"].as_u64()
}

/// What the workers of a cluster hold is known to an index that follows them.
#[test]
fn a_cluster_publishes_what_its_workers_cache() {
    let scratch = Scratch::new();
    let shape = ["--set", "cluster.prefill=1", "--set", "cluster.decode=1", "--emulation-speed", "40"];
    let up = Up::start(&scratch, &[&shape[..], &["--set", "kv_events.enabled=\"on\"", "--json"]].concat());
    let told = up.json();
    let [p, d] = [&told["workers"][0], &told["workers"][1]];
    assert!(d["kv_events"].is_null(), "a decode worker without a cache has nothing to say");
    let stream = json!({
        "instance_name": "P0", "block_size": 64, "topic": "xllm-kv",
        "endpoint": p["kv_events"], "replay_endpoint": p["kv_replay"],
    });
    let config = scratch.write("kv_events.json", &json!({"streams": [stream]}).to_string());
    let index = Server::index(&config, &[]);
    let router = told["router"].as_str().unwrap();
    wait_for("an answer", || post(router, "/generate", &ask(200, 3)).filter(|answer| answer.contains("data: [DONE]")));
    let tokens: Vec<String> = (0..200).map(|token: u32| token.to_string()).collect();
    wait_for("a hit", || {
        let ran = scratch.run(&["index", "query", "--url", &index.url, "--tokens", &tokens.join(","), "--json"]);
        let found: Value = serde_json::from_str(&ran.stdout).ok()?;
        (found["matches"][0]["device_hit_tokens"] == 192).then_some(())
    });
    assert_eq!(up.end("TERM").code, Some(0));
}

#[test]
fn the_table_of_a_cluster_that_publishes_has_the_addresses() {
    let scratch = Scratch::new();
    let up = Up::start(&scratch, &["--set", "policy.name=car"]);
    let heads = ["NAME", "ROLE", "URL", "BOOTSTRAP", "PORT", "KV", "EVENTS", "KV", "REPLAY"];
    assert_eq!(up.line.split_whitespace().collect::<Vec<_>>(), heads);
    let ran = up.end("INT").code(0);
    let p0 = ran.stdout.lines().find(|line| line.starts_with("P0")).unwrap();
    assert_eq!(p0.matches("tcp://127.0.0.1:").count(), 2, "{p0}");
}

#[test]
fn a_worker_says_where_it_publishes() {
    let scratch = Scratch::new();
    scratch.run(&["worker", "--name", "P0", "--kv-replay-port", "0"]).refused(&["--kv-events-port"]);
    let own = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = own.local_addr().unwrap().port().to_string();
    let with = |more: &[&str]| scratch.run(&[&["worker", "--name", "P0"], more].concat());
    for (flag, other) in [("--kv-events-port", "--port"), ("--bootstrap-port", "--port")] {
        with(&[other, &port, flag, &port]).refused(&[&format!("`{flag} {port}` is the port of `{other}` too")]);
    }
    let both = ["--kv-events-port", &port, "--kv-replay-port", &port];
    with(&both).refused(&["`--kv-replay-port", "is the port of `--kv-events-port` too"]);
    let taken = with(&["--kv-events-port", &port]).code(1);
    assert!(taken.stdout.is_empty() && taken.stderr.contains("give `--kv-events-port 0`"), "{taken:?}");
    let mut command = scratch.command(&["worker", "--name", "P0", "--kv-events-port", "0", "--json"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let told: Value = serde_json::from_str(&line).unwrap();
    for key in ["kv_events", "kv_replay"] {
        let address = told[key].as_str().unwrap().strip_prefix("tcp://").unwrap().to_owned();
        wait_for("the port", || TcpStream::connect(&address).ok());
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_worker_without_a_cache_says_that_it_publishes_nothing() {
    let scratch = Scratch::new();
    let mut command = scratch.command(&["worker", "--name", "D0", "--kv-events-port", "0"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut line, mut warning) = (String::new(), String::new());
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut warning).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(line.starts_with("D0 http://") && !line.contains("kv events"), "{line}");
    assert!(
        warning.contains("keeps no prefix cache") && warning.contains("engine.decode_radix_cache=true"),
        "{warning}"
    );
}
