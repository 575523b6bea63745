//! The query endpoint over a real server: cases QRY, tests/data/kv/query.json; and how tests ask.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::kv::peers::{Publisher, removed, stored};
use crate::live::support::process::{Server, wait_for};
use crate::run::{Scratch, root};

/// One request; status, headers in lower case, body.
pub fn request(
    url: &str,
    method: &str,
    path: &str,
    headers: &[(String, String)],
    body: &[u8],
) -> (u16, BTreeMap<String, String>, String) {
    let mut stream = TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n");
    if !headers.iter().any(|(name, _)| name == "content-length") {
        head += &format!("content-length: {}\r\n", body.len());
    }
    headers.iter().for_each(|(name, value)| head += &format!("{name}: {value}\r\n"));
    stream.write_all(&[head.as_bytes(), b"\r\n", body].concat()).unwrap();
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).unwrap();
    let reply = String::from_utf8(reply).unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers =
        lines.filter_map(|line| line.split_once(": ")).map(|(name, value)| (name.to_lowercase(), value.to_owned()));
    (status, headers.collect(), body.to_owned())
}

/// Matches of a query, by instance and rank.
pub fn query(url: &str, tokens: &[u32]) -> BTreeMap<String, Value> {
    let body = json!({ "token_ids": tokens }).to_string();
    let body = wait_for("the directory is ready", || {
        let (status, _, reply) = request(url, "POST", "/v1/internal/kv-cache/query", &[], body.as_bytes());
        (status != 503).then(|| {
            assert_eq!(status, 200, "{reply}");
            reply
        })
    });
    let reply: Value = serde_json::from_str(&body).unwrap();
    let matches = reply["matches"].as_array().unwrap().clone();
    matches
        .into_iter()
        .map(|one| (format!("{}/{}", one["instance_name"].as_str().unwrap(), one["dp_rank"]), one))
        .collect()
}

/// Device, host-only and reusable tokens, device and host blocks, once the stream is in step at least at `sequence`.
pub fn hits(url: &str, stream: &str, sequence: u64, tokens: &[u32]) -> [u64; 5] {
    wait_for(&format!("{stream} is in step at {sequence}"), || {
        let found = query(url, tokens).remove(stream)?;
        let is_there = found["synchronized"] == true && found["sequence"].as_u64() >= Some(sequence);
        is_there.then(|| numbers(&found))
    })
}

pub fn numbers(found: &Value) -> [u64; 5] {
    ["device_hit_tokens", "host_only_hit_tokens", "reusable_prefix_tokens", "device_blocks", "host_blocks"]
        .map(|name| found[name].as_u64().unwrap())
}

/// Asserts that all that is in `wanted` is in `found`.
fn holds(found: &Value, wanted: &Value, at: &str) {
    match wanted {
        Value::Object(fields) => {
            fields.iter().for_each(|(name, wanted)| holds(&found[name], wanted, &format!("{at}.{name}")))
        }
        Value::Array(items) => {
            assert_eq!(found.as_array().map(Vec::len), Some(items.len()), "{at}: {found}");
            items.iter().enumerate().for_each(|(ix, wanted)| holds(&found[ix], wanted, &format!("{at}[{ix}]")));
        }
        Value::String(text) if text.starts_with('~') => {
            assert!(found.as_str().is_some_and(|found| found.contains(&text[1..])), "{at}: {found} has no {text}");
        }
        _ => assert_eq!(found, wanted, "{at}"),
    }
}

#[test]
fn cases_of_the_query_endpoint() {
    let scratch = Scratch::new();
    let publisher = Publisher::start();
    let ids: Vec<u32> = (1..=12).collect();
    publisher.publish(&[stored(&[101, 102, 103], None, &ids, "gpu"), stored(&[101, 102], None, &[], "cpu")]);
    let last = publisher.publish(&[removed(&[101], "gpu")]);
    let away = json!({"instance_name": "away", "block_size": 4, "endpoint": "tcp://127.0.0.1:1", "replay_endpoint": "tcp://127.0.0.1:2"});
    let streams = json!({"streams": [publisher.stream("p0"), away]});
    let config = scratch.write("kv.json", &streams.to_string());
    let unread = json!({"discovery": {"enabled": true, "registry": {"file": "is-not-there.json"}}});
    let unread = scratch.write("unread.json", &unread.to_string());
    let token = scratch.write("token", "s3cret\n");
    let servers = BTreeMap::from([
        ("open", Server::index(&config, &[])),
        ("token", Server::index(&config, &["--token-file", token.to_str().unwrap()])),
        ("unread", Server::index(&unread, &[])),
    ]);
    hits(&servers["open"].url, "p0/0", last, &[]);
    wait_for("the server with a token follows", || {
        let (_, _, page) = request(&servers["token"].url, "GET", "/metrics", &[], b"");
        page.contains("pdreplay_kv_stream_synchronized{instance_name=\"p0\",dp_rank=\"0\"} 1").then_some(())
    });
    let cases = std::fs::read_to_string(root().join("tests/data/kv/query.json")).unwrap();
    let cases: Vec<Value> = serde_json::from_str(&cases).unwrap();
    assert!(cases.len() > 30);
    for case in &cases {
        let name = case["case"].as_str().unwrap();
        let text = |field: &str, default: &'static str| case[field].as_str().unwrap_or(default).to_owned();
        let headers: Vec<(String, String)> = case["headers"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()))
            .collect();
        let url = &servers[text("server", "open").as_str()].url;
        let path = text("path", "/v1/internal/kv-cache/query");
        let (status, replied, body) =
            request(url, &text("method", "POST"), &path, &headers, text("body", "").as_bytes());
        assert_eq!(u64::from(status), case["status"].as_u64().unwrap(), "{name}: {body}");
        if let Some(allow) = case["allow"].as_str() {
            assert!(replied["allow"].contains(allow), "{name}: {replied:?}");
        }
        if status != 200 || path != "/metrics" {
            assert_eq!(replied["content-type"], "application/json", "{name}");
            holds(&serde_json::from_str(&body).unwrap(), &case["json"], name);
        }
        assert!(!body.contains("s3cret"), "{name}");
    }
}

#[test]
fn metrics_tell_of_streams_and_queries() {
    let scratch = Scratch::new();
    let publisher = Publisher::start();
    let last = publisher.publish(&[stored(&[101, 102], None, &[1, 2, 3, 4, 5, 6, 7, 8], "gpu")]);
    let config = scratch.write("kv.json", &json!({"streams": [publisher.stream("p\"0")]}).to_string());
    let server = Server::index(&config, &[]);
    assert_eq!(hits(&server.url, "p\"0/0", last, &[1, 2, 3, 4, 5, 6, 7, 8, 9]), [8, 0, 8, 2, 0]);
    let (status, headers, page) = request(&server.url, "GET", "/metrics", &[], b"");
    assert_eq!((status, headers["content-type"].as_str()), (200, "text/plain; version=0.0.4; charset=utf-8"));
    let labels = "instance_name=\"p\\\"0\",dp_rank=\"0\"";
    for line in [
        "pdreplay_kv_ready 1".to_owned(),
        "pdreplay_kv_streams 1".into(),
        "pdreplay_kv_index_blocks 2".into(),
        format!("pdreplay_kv_stream_synchronized{{{labels}}} 1"),
        format!("pdreplay_kv_stream_sequence{{{labels}}} {last}"),
        format!("pdreplay_kv_stream_blocks{{{labels},tier=\"device\"}} 2"),
        format!("pdreplay_kv_stream_gaps_total{{{labels}}} 0"),
        format!("pdreplay_kv_stream_refused_batches_total{{{labels}}} 0"),
    ] {
        assert!(page.lines().any(|found| found == line), "no `{line}` in {page}");
    }
    let value = |name: &str| page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok()).unwrap();
    let queries = value("pdreplay_kv_queries_total{status=\"200\"}");
    assert!(queries >= 1.0);
    assert_eq!(value("pdreplay_kv_query_seconds_count"), queries);
    assert_eq!(value("pdreplay_kv_query_seconds_bucket{le=\"+Inf\"}"), queries);
    // Each family is declared once, before its samples.
    let heads: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let mut distinct = heads.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), heads.len());
}

#[test]
fn a_time_stamp_that_is_no_time_near_now_gives_no_lag_and_is_told_once() {
    let scratch = Scratch::new();
    let publisher = Publisher::start();
    let config = scratch.write("kv.json", &json!({"streams": [publisher.stream("p0")]}).to_string());
    let server = Server::index(&config, &[]);
    hits(&server.url, "p0/0", 0, &[]);
    let get = |path: &str| request(&server.url, "GET", path, &[], b"").2;
    let stream = || serde_json::from_str::<Value>(&get("/v1/internal/kv-cache/streams")).unwrap()["streams"][0].clone();
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    let lag = "pdreplay_kv_stream_lag_seconds{instance_name=\"p0\",dp_rank=\"0\"} ";
    // A publisher takes up a subscription a moment after it was made.
    wait_for("the subscription", || {
        publisher.publish_at(now(), &[]);
        stream()["batches"].as_u64().filter(|batches| *batches > 0)
    });
    hits(&server.url, "p0/0", 0, &[]);
    assert_eq!(stream()["odd_timestamps"], 0);
    assert!(stream()["lag_ms"].as_f64().unwrap().abs() < 60_000.0 && get("/metrics").contains(lag));
    for (count, stamp) in (1..).zip([f64::NAN, -1.0, 0.0, now() * 1e3, now() * 1e9, now() - 1e6, now() + 1e6]) {
        publisher.publish_at(stamp, &[]);
        let found = wait_for("the batch", || Some(stream()).filter(|stream| stream["odd_timestamps"] == count));
        assert!(found["lag_ms"].is_null() && found["synchronized"] == true, "{stamp}: {found:#}");
    }
    let page = get("/metrics");
    assert!(!page.contains(lag), "{page}");
    assert!(page.contains("pdreplay_kv_stream_odd_timestamps_total{instance_name=\"p0\",dp_rank=\"0\"} 7"), "{page}");
    let watched = scratch.run(&["index", "watch", "--once", "--url", &server.url]).code(0);
    assert!(watched.stdout.contains("no lag of p0/0: time stamps that are no time near now: 7"), "{}", watched.stdout);
    publisher.publish_at(now(), &[]);
    wait_for("a lag again", || stream()["lag_ms"].as_f64());
    let log = server.log.lock().unwrap().clone();
    let told: Vec<&str> = log.lines().filter(|line| line.contains("time stamp")).collect();
    assert!(told.len() == 1 && told[0].contains("stream p0/0: the time stamp NaN of a batch is no time"), "{log}");
}
