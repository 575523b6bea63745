//! Cells of a live sweep on servers that outlive them: each starts with empty caches, or says in its row why not.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use super::support::fake::Fake;
use super::support::process::Server;
use super::support::run::{UNTIMED, row};
use super::support::script::Script;
use crate::run::{Ran, Scratch};

/// A scenario with a worker of this kind.
const ONE: [&str; 2] = ["--set", "cluster.colocated=1"];

/// Two cells with the same three prompts of eight blocks.
fn sweep(base: &str, more: &[&str]) -> (Scratch, Ran) {
    let scratch = Scratch::new();
    let trace: String = (0..3).map(|nth| row(&format!("s{nth}"), 0, f64::from(nth) * 0.2, 512, 4)).collect();
    scratch.write("trace.jsonl", &trace);
    scratch.write("base.toml", base);
    scratch.write("two.toml", "[sweep]\nscenario = \"base.toml\"\n[axes]\nconcurrency = [1, 2]\n");
    let ran = scratch.run(&[&["sweep", "two.toml", "trace.jsonl", "--on", "live"], &UNTIMED[..], more].concat());
    (scratch, ran)
}

fn cells(scratch: &Scratch) -> Vec<Value> {
    scratch.json("outputs/two/sweep.json")["cells"].as_array().unwrap().clone()
}

/// What a cell's servers found cached, prompt by prompt; null where they do not tell.
fn cached(scratch: &Scratch, cell: &Value) -> Vec<Option<u64>> {
    let lines = scratch.read(&format!("outputs/two/{}/requests.jsonl", cell["folder"].as_str().unwrap()));
    lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["cached_tokens"].as_u64()).collect()
}

fn notes(scratch: &Scratch, cell: &Value) -> String {
    let summary = scratch.json(&format!("outputs/two/{}/summary.json", cell["folder"].as_str().unwrap()));
    summary["integrity"]["notes"].to_string()
}

fn colocated(url: &str) -> String {
    format!(
        "policy.name = \"default\"\nreplay.mechanism = \"dp\"\nlive.target = \"sglang\"\nlive.colocated = [\"{url}\"]\n"
    )
}

#[test]
fn the_second_cell_starts_as_cold_as_the_first() {
    let server = Server::worker("W0", &ONE);
    let (scratch, ran) = sweep(&colocated(&server.url), &[]);
    let ran = ran.code(0);
    assert!(ran.stderr.contains("cell 2: caches of 1 worker flushed"), "{}", ran.stderr);
    for cell in cells(&scratch) {
        assert_eq!((cell["state"].as_str(), cell["caches"].as_str()), (Some("done"), Some("1 flushed")), "{cell:#}");
        assert_eq!(cached(&scratch, &cell), [Some(0); 3]);
        assert!(!notes(&scratch, &cell).contains("caches were"), "neither warm nor left");
    }
    // The table is read from the runs, so a sweep that goes on says the same.
    let before = scratch.read("outputs/two/sweep.json");
    scratch.run(&[&["sweep", "two.toml", "trace.jsonl", "--on", "live"], &UNTIMED[..]].concat()).code(0);
    assert_eq!(scratch.read("outputs/two/sweep.json"), before);
}

#[test]
fn both_legs_of_a_cell_start_cold() {
    let (p, d) = (Server::worker("P0", &[]), Server::worker("D0", &[]));
    let keys = format!(
        "policy.name = \"default\"\nreplay.mechanism = \"pd\"\nlive.target = \"sglang\"\nlive.legs = \"direct\"\nlive.prefill = [\"{}\"]\n\
         live.decode = [\"{}\"]\n",
        p.url, d.url
    );
    let (scratch, ran) = sweep(&keys, &[]);
    ran.code(0);
    for cell in cells(&scratch) {
        assert_eq!(cell["caches"], "2 flushed", "{cell:#}");
        assert_eq!(cached(&scratch, &cell), [Some(0); 3]);
    }
}

#[test]
fn without_a_flush_the_second_cell_finds_what_the_first_left() {
    let server = Server::worker("W0", &ONE);
    let (scratch, ran) = sweep(&colocated(&server.url), &["--no-flush"]);
    ran.code(0);
    let cells = cells(&scratch);
    let found: Vec<_> = cells.iter().map(|cell| cached(&scratch, cell)).collect();
    assert_eq!(found[0], [Some(0); 3]);
    assert!(found[1].iter().all(|tokens| *tokens >= Some(448)), "all but the last block: {found:?}");
    assert_eq!(cells[1]["caches"], "left as they were: --no-flush");
    assert!(notes(&scratch, &cells[1]).contains("caches were not emptied before this cell: --no-flush"));
    let report = scratch.json("outputs/two/sweep.json");
    let between = "caches before each cell: left as they were: --no-flush";
    assert_eq!(report["sweep"]["between_cells"], between, "{report:#}");
    // Who looks at it later with another flag changes nothing of what was done.
    let before = scratch.read("outputs/two/sweep.json");
    scratch.run(&[&["sweep", "two.toml", "trace.jsonl", "--on", "live"], &UNTIMED[..]].concat()).code(0);
    assert_eq!(scratch.read("outputs/two/sweep.json"), before);
}

#[test]
fn what_was_done_before_each_cell_is_what_the_sweep_tells() {
    let server = Server::worker("W0", &ONE);
    let (scratch, ran) = sweep(&colocated(&server.url), &["--filter", "concurrency=1"]);
    ran.code(0);
    let command = [&["sweep", "two.toml", "trace.jsonl", "--on", "live", "--no-flush"], &UNTIMED[..]].concat();
    let ran = scratch.run(&command).code(0);
    let between = "caches before 1 of 2 cells: 1 flushed; before 1 of 2 cells: left as they were: --no-flush";
    assert_eq!(scratch.json("outputs/two/sweep.json")["sweep"]["between_cells"], between);
    assert!(ran.stderr.contains(between), "{}", ran.stderr);
    // In virtual time these are other runs.
    let elsewhere = scratch.run(&["sweep", "two.toml", "trace.jsonl"]);
    elsewhere.refused(&["2 cells of another sweep file, trace, target (--on)"]);
}

/// A server that is no worker of ours, with that answer to `path`.
fn answering(path: &str, script: Script) -> (String, Fake) {
    let fake = Fake::always(Script::chat(4)).answering(path, script);
    let keys = format!(
        "policy.name = \"default\"\nreplay.mechanism = \"dp\"\nlive.target = \"openai\"\nlive.api = \"chat\"\n\
         live.colocated = [\"{}\"]\n",
        fake.url()
    );
    (keys, fake)
}

#[test]
fn only_the_words_of_an_engine_say_that_a_cache_is_empty() {
    let (flush, reset) = ("/flush_cache", "/reset_prefix_cache");
    let done = "Cache flushed.\nPlease check backend logs for more details.\n";
    for (path, script) in [(flush, Script::plain(200, "text/plain", done)), (reset, Script::plain(200, "", ""))] {
        let (keys, _fake) = answering(path, script);
        let (scratch, ran) = sweep(&keys, &["--filter", "concurrency=1"]);
        ran.code(0);
        assert_eq!(cells(&scratch)[0]["caches"], "1 flushed", "{path}");
    }
    let page = "<!doctype html>\n<title>Sign in</title>";
    let refused = [
        (flush, Script::plain(200, "text/html", page), "HTTP 200 with `<!doctype html> <title>Sign in</title>`"),
        (
            flush,
            Script::json(200, &json!({"success": false, "message": "busy"})),
            "HTTP 200 with `{\"message\":\"busy\"",
        ),
        (flush, Script::json(200, &json!({"success": true})), "HTTP 200 with `{\"success\":true}`"),
        (flush, Script::plain(200, "text/plain", ""), "HTTP 200 with ``"),
        (flush, Script::plain(503, "text/plain", done), "/flush_cache answered HTTP 503"),
        (reset, Script::plain(200, "text/html", page), "/reset_prefix_cache answered HTTP 200 with `<!doctype"),
    ];
    for (path, script, words) in refused {
        let (keys, _fake) = answering(path, script);
        let (scratch, ran) = sweep(&keys, &["--filter", "concurrency=1"]);
        let ran = ran.code(0);
        assert!(ran.stderr.contains("cell 1: cache not flushed") && ran.stderr.contains(words), "{}", ran.stderr);
        let cell = &cells(&scratch)[0];
        assert!(cell["caches"].as_str().unwrap().starts_with("left as they were: W0: /"), "{cell:#}");
        assert!(notes(&scratch, cell).contains("not emptied before this cell"), "{words}");
    }
}

#[test]
fn a_server_without_a_flush_is_named_in_the_row() {
    let fake = Fake::always(Script::chat(4));
    let keys = format!(
        "policy.name = \"default\"\nreplay.mechanism = \"dp\"\nlive.target = \"openai\"\nlive.api = \"chat\"\n\
         live.colocated = [\"{}\"]\n",
        fake.url()
    );
    let (scratch, ran) = sweep(&keys, &[]);
    let ran = ran.code(0);
    assert!(ran.stderr.contains("cell 2: cache not flushed"), "{}", ran.stderr);
    for cell in cells(&scratch) {
        assert_eq!(
            cell["caches"], "left as they were: W0: has neither /flush_cache nor /reset_prefix_cache",
            "{cell:#}"
        );
        assert!(
            notes(&scratch, &cell)
                .contains("not emptied before this cell: W0: has neither /flush_cache nor /reset_prefix_cache")
        );
    }
}

#[test]
fn a_worker_with_requests_inside_keeps_its_cache_and_is_named() {
    let server = Server::worker("W0", &ONE);
    let body = json!({"input_ids": [1, 2, 3], "sampling_params": {"max_new_tokens": 60_000}, "stream": true});
    let mut stream = TcpStream::connect(server.url.strip_prefix("http://").unwrap()).unwrap();
    let body = body.to_string();
    let head = format!("POST /generate HTTP/1.1\r\nhost: test\r\ncontent-length: {}", body.len());
    write!(stream, "{head}\r\ncontent-type: application/json\r\n\r\n{body}").unwrap();
    stream.read_exact(&mut [0; 15]).unwrap();
    let (scratch, ran) = sweep(&colocated(&server.url), &["--filter", "concurrency=1"]);
    ran.code(0);
    let cell = &cells(&scratch)[0];
    assert_eq!(cell["caches"], "left as they were: W0: requests are still inside", "{cell:#}");
}

#[test]
fn there_is_nothing_to_leave_where_each_cell_has_a_cluster_of_its_own() {
    let (_, ran) = sweep("live.target = \"embedded\"\n", &["--no-flush", "--emulation-speed", "50"]);
    ran.refused(&["--no-flush", "an embedded cluster of its own", "leave it out"]);
    let scratch = Scratch::new();
    scratch.run(&["sweep", "cap-policy", "--no-flush"]).refused(&["--no-flush", "virtual time", "leave it out"]);
}
