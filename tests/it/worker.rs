//! `pdreplay worker`: the process, its line on stdout, its end. What it answers is tested beside its server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::run::{Ran, Scratch};

/// A worker that listens.
struct Worker {
    child: Child,
    /// What it said of itself.
    line: String,
}

impl Worker {
    fn start(scratch: &Scratch, args: &[&str]) -> Worker {
        Worker::of(scratch.command(&[&["worker"], args].concat()))
    }

    fn of(mut command: Command) -> Worker {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        // One byte at a time: what follows stays in the pipe.
        BufReader::with_capacity(1, child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        Worker { child, line: line.trim_end().to_owned() }
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.line).unwrap()
    }

    /// Sends a signal and waits for the end.
    fn end(self, signal: &str) -> Ran {
        let sent = Command::new("kill").args([format!("-{signal}"), self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        Ran::of(self.child.wait_with_output().unwrap())
    }
}

/// One request; the whole answer.
fn http(port: u16, request: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let length = body.len();
    write!(stream, "{request} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn port_of(worker: &Worker) -> u16 {
    u16::try_from(worker.json()["port"].as_u64().unwrap()).unwrap()
}

#[test]
fn it_says_where_it_listens_and_ends_when_asked() {
    let scratch = Scratch::new();
    for (args, signal) in [(&["--name", "D3"][..], "TERM"), (&["--role", "prefill", "--index", "1"], "INT")] {
        let worker = Worker::start(&scratch, args);
        let words: Vec<&str> = worker.line.split(' ').collect();
        let port: u16 = words[1].strip_prefix("http://127.0.0.1:").unwrap().parse().unwrap();
        let expected =
            if signal == "TERM" { vec!["D3", words[1]] } else { vec!["P1", words[1], "bootstrap", &words[1][17..]] };
        assert_eq!(words, expected);
        assert!(http(port, "GET /health", "").starts_with("HTTP/1.1 200 "));
        let ran = worker.end(signal).code(0);
        assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("", ""));
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    }
}

#[test]
fn an_address_that_means_any_is_told_as_one_that_can_be_asked() {
    let scratch = Scratch::new();
    for node in [&["worker", "--name", "P0"][..], &["router", "--worker", "http://127.0.0.1:9"]] {
        let node = Worker::of(scratch.command(&[node, &["--host", "0.0.0.0", "--json"]].concat()));
        assert_eq!(node.json()["url"], format!("http://127.0.0.1:{}", port_of(&node)));
        assert!(http(port_of(&node), "GET /liveness", "").starts_with("HTTP/1.1 "));
        node.end("TERM").code(0);
    }
}

#[test]
fn the_scenario_and_the_flags_reach_the_node() {
    let scratch = Scratch::new();
    let args = ["--name", "W0", "--json", "--set", "cluster.colocated=1", "--set", "engine.kv_pool_tokens=5000"];
    let more = ["--emulation-speed", "50", "--block-size", "32", "--sglang-version", "0.5.10", "--model", "m"];
    let worker = Worker::start(&scratch, &[&args[..], &more, &["--incarnation", "5", "--log-requests"]].concat());
    let line = worker.json();
    assert_eq!((&line["worker"], &line["role"], &line["incarnation"]), (&"W0".into(), &"colocated".into(), &5.into()));
    assert_eq!((&line["pid"], &line["bootstrap_port"]), (&worker.child.id().into(), &Value::Null));
    let info = http(port_of(&worker), "GET /server_info", "");
    for part in ["\"max_total_num_tokens\":5000", "\"block_size\":32", "\"speed\":50.0", "\"version\":\"0.5.10\""] {
        assert!(info.contains(part), "no {part} in {info}");
    }
    let body = r#"{"text": "fix the bug", "sampling_params": {"max_new_tokens": 3}, "stream": true}"#;
    let answer = http(port_of(&worker), "POST /generate", body);
    assert!(answer.contains("\"type\":\"length\"") && answer.contains("data: [DONE]"), "{answer}");
    let ran = worker.end("TERM").code(0);
    assert!(ran.stderr.contains("W0: POST /generate 200 after "), "{}", ran.stderr);
}

#[test]
fn a_restarted_process_is_another_incarnation() {
    let scratch = Scratch::new();
    let incarnation = || {
        let worker = Worker::start(&scratch, &["--name", "D0", "--json"]);
        let incarnation = worker.json()["incarnation"].as_u64().unwrap();
        worker.end("KILL");
        incarnation
    };
    let first = incarnation();
    std::thread::sleep(Duration::from_millis(110));
    assert!(incarnation() > first);
}

#[test]
fn what_cannot_be_served_is_said() {
    let scratch = Scratch::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let ran = scratch.run(&["worker", "--name", "D0", "--port", &port]).code(1);
    assert!(ran.stderr.contains(&format!("cannot listen on 127.0.0.1:{port}")), "{}", ran.stderr);
    assert!(ran.stderr.contains("--port 0"), "{}", ran.stderr);
    let refused = |args: &[&str], words: &[&str]| drop(scratch.run(&[&["worker"], args].concat()).refused(words));
    refused(&["--name", "D9"], &["D9 is not in the scenario, which has 6 decode workers", "--set cluster.decode=10"]);
    refused(&["--name", "X1"], &["write P0, D3 or W1"]);
    refused(&["--role", "decode"], &["--index"]);
    refused(&[], &["--name"]);
    refused(&["--name", "D0", "--emulation-speed", "0"], &["0.001 to 10000"]);
    refused(&["--name", "D0", "--loading-s", "-1"], &["--loading-s"]);
    refused(&["--name", "D0", "--api-key-env", "PDREPLAY_NO_SUCH_KEY"], &["PDREPLAY_NO_SUCH_KEY holds no API key"]);
    refused(&["--name", "D0", "--set", "engine.nonsense=1"], &["nonsense"]);
    refused(&["--name", "D0", "--sglang-version", "0.4"], &["0.5.10", "0.5.23"]);
}

#[test]
fn a_key_comes_from_the_environment_and_goes_nowhere() {
    let scratch = Scratch::new();
    let args = ["worker", "--name", "D0", "--json", "--api-key-env", "PDREPLAY_TEST_KEY", "--log-requests"];
    let mut command = scratch.command(&args);
    command.env("PDREPLAY_TEST_KEY", "sesame");
    let worker = Worker::of(command);
    let port = port_of(&worker);
    assert!(http(port, "GET /v1/models", "").starts_with("HTTP/1.1 401 "));
    assert!(http(port, "GET /health", "").starts_with("HTTP/1.1 200 "));
    let line = worker.line.clone();
    let ran = worker.end("TERM").code(0);
    assert!(![line, ran.stdout, ran.stderr].concat().contains("sesame"));
}
