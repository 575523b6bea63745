//! Every input file in JSON, each of its values in turn replaced by one of another kind: the error says where, in words of JSON, and
//! never with a type of Rust's or of ours.

use std::io::Cursor;

use pdreplay::kv::directory::{KeyMirror, KvEventsConfig, Listing, News};
use pdreplay::live::server::parse_kv_query;
use pdreplay::record::LedgerEvent;
use pdreplay::results::read_requests;
use serde_json::{Value, json};

use crate::cli::{replay, with_trace};
use crate::results::request;
use crate::run::Scratch;

/// What a value is replaced by.
fn wrong() -> Vec<Value> {
    vec![
        json!(null),
        json!(true),
        json!(-1),
        json!(1.5),
        json!("word"),
        json!([]),
        json!({}),
        json!([[1]]),
        json!({"a": 1}),
    ]
}

/// The value with one of its parts replaced, each part by each; and with one key more, and one less.
fn spoiled(whole: &Value) -> Vec<Value> {
    let mut all = wrong();
    match whole {
        Value::Object(fields) => {
            for (key, value) in fields {
                let put = |part: Value| {
                    let mut fields = fields.clone();
                    fields[key] = part;
                    Value::Object(fields)
                };
                all.extend(spoiled(value).into_iter().map(put));
                let mut fewer = fields.clone();
                fewer.remove(key);
                all.push(Value::Object(fewer));
            }
            let mut more = fields.clone();
            more.insert("no_such_key".into(), json!(1));
            all.push(Value::Object(more));
        }
        Value::Array(items) => {
            for (ix, item) in items.iter().enumerate() {
                let put = |part: Value| {
                    let mut items = items.clone();
                    items[ix] = part;
                    Value::Array(items)
                };
                all.extend(spoiled(item).into_iter().map(put));
            }
        }
        _ => {}
    }
    all
}

/// No name of a type stands in an error, other than between quotes.
fn assert_plain(text: &str, error: &str) {
    let types = "struct enum tuple newtype variant untagged u8 u16 u32 u64 usize i8 i16 i32 i64 isize f32 f64";
    let said: String = error.split(['`', '"']).step_by(2).collect::<Vec<_>>().join(" ");
    for word in said.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
        let humps = word.chars().filter(char::is_ascii_uppercase).count();
        let is_camel = humps > 1 && word.starts_with(char::is_uppercase) && word.contains(char::is_lowercase);
        assert!(!is_camel && !types.split(' ').any(|name| name == word), "`{word}` in the error on {text}: {error}");
    }
}

/// How many of the spoiled texts are refused, with what every one of these errors has to name.
fn refused(whole: &Value, names: &str, read: impl Fn(&str) -> Option<String>) -> usize {
    let mut count = 0;
    for text in spoiled(whole).iter().map(Value::to_string).chain(["{".into(), "]".into(), whole.to_string() + "x"]) {
        let Some(error) = read(&text) else { continue };
        assert_plain(&text, &error);
        assert!(error.contains(names), "no {names} in the error on {text}: {error}");
        count += 1;
    }
    count
}

fn notice(news: &[News]) -> Option<String> {
    news.iter().find_map(|news| if let News::Notice(text) = news { Some(text.clone()) } else { None })
}

#[test]
fn errors_of_what_a_kv_index_reads_are_in_words_of_json() {
    let stream = json!({"instance_name": "p", "dp_rank": 0, "block_size": 64, "endpoint": "tcp://h:1", "replay_endpoint": "tcp://h:2",
        "topic": "", "hash_seed": 1, "dialect": "xllm", "recovery": "snapshot"});
    let rules = json!({"enabled": true, "block_size": 64, "topic": "", "event_port_offset": 1, "replay_port_offset": 2,
        "refresh_interval_ms": 100, "registry": {"etcd": {"endpoints": ["h:1"], "namespace": ""}}});
    for whole in [json!({"streams": [stream], "max_streams": 2, "replay_timeout_ms": 5}), json!({"discovery": rules})] {
        let config =
            |text: &str| KvEventsConfig::parse(text.as_bytes(), "kv.json").err().map(|error| error.to_string());
        assert_eq!(config(&whole.to_string()), None);
        assert!(refused(&whole, "kv.json", config) > 50);
    }
    let load = json!({"waiting_requests_num": 1, "gpu_cache_usage_perc": 0.5});
    let record = json!({"name": "h:1", "http_address": "h:1", "type": "MIX", "current_type": "PREFILL", "backend": "xllm", "dp_size": 2,
        "incarnation_id": "a", "register_ts_ms": 5, "load": load});
    let whole = json!({"instances": [{"name": "g:1", "type": 0}, record]});
    let listing = |text: &str| notice(&Listing::new("r.json").look(Ok(text.into())));
    assert_eq!(listing(&whole.to_string()), None);
    assert!(refused(&whole, "r.json: ", listing) > 50);
    for (whole, name) in [(&record, "XLLM:MIX:h:1"), (&load, "XLLM:LOADMETRICS:h:1")] {
        let put = |text: &str| notice(&KeyMirror::new("").put(name, text.as_bytes()));
        assert_eq!(put(&whole.to_string()), None);
        assert!(refused(whole, name, put) > 10);
    }
    let query = |text: &str| parse_kv_query(text.as_bytes()).err();
    assert!(refused(&json!({"token_ids": [1, 2]}), "", query) > 10);
    // The place of a value in words, of each kind of fault.
    let said = listing(r#"{"instances":[{"name":"h:1","type":0},{"name":"h:2","type":0,"dp_size":"2"}]}"#).unwrap();
    let wanted = "r.json: instances[1].dp_size: invalid type: string \"2\", expected a whole number at line 1 column 74; write a value of that kind";
    assert!(said.starts_with(wanted), "{said}");
}

#[test]
fn errors_of_records_are_in_words_of_json() {
    let whole = serde_json::to_value(request("a", 1, 500, 12.5, 100.0)).unwrap();
    let read = |text: &str| {
        let text = format!("{text}\n");
        read_requests(Cursor::new(text.into_bytes())).find_map(Result::err).map(|error| error.to_string())
    };
    assert_eq!(read(&whole.to_string()), None);
    assert!(refused(&whole, "line 1", read) > 100);
    let event = json!({"at_ns": 1, "kind": "kv-stream", "session_id": null, "turn_id": 1, "worker": "P0", "detail": "d",
        "candidates": [{"worker": "P0"}]});
    let read =
        |text: &str| pdreplay::base::from_json::<LedgerEvent>(text.as_bytes()).err().map(|fault| fault.to_string());
    assert!(refused(&event, "at line 1", read) > 20);
}

/// By the program: a few faults of each file, the whole way to the user.
#[test]
fn errors_of_files_of_a_run_and_of_scenarios_and_traces_are_in_words_of_json() {
    let scratch = with_trace();
    replay(&scratch, &["--name", "one", "-q"]).code(0);
    for (name, more) in [("run.json", &[][..]), ("summary.json", &[]), ("events.jsonl", &["--events"])] {
        let whole = scratch.read(&format!("outputs/one/{name}"));
        let line = if name.ends_with('l') { whole.lines().next().unwrap() } else { &whole };
        let parts: Value = serde_json::from_str(line).unwrap();
        for key in parts.as_object().unwrap().keys().step_by(3) {
            let mut spoiled = parts.clone();
            spoiled[key] = json!([[1]]);
            scratch.write(&format!("outputs/one/{name}"), &format!("{spoiled}\n"));
            assert_plain(&spoiled.to_string(), &scratch.run(&[&["report", "outputs/one"], more].concat()).stderr);
        }
        scratch.write(&format!("outputs/one/{name}"), &whole);
    }
    let scenarios =
        ["seed = []", "policy = 1", "policy.name = 1", "fault = [1]", "fault = [{kind = 1}]", "engine.timing = 1.5"];
    for text in scenarios {
        scratch.write("s.toml", text);
        let ran = scratch.run(&["replay", "trace.jsonl", "--scenario", "s.toml"]).refused(&["s.toml"]);
        assert_plain(text, &ran.stderr);
    }
    let rows = [
        "[]",
        "5",
        r#"{"session_id":[]}"#,
        r#"{"session_id":"a","turn_id":"x","timestamp":0,"input_length":1,"output_length":1}"#,
        r#"{"format":"pdreplay-trace","version":"x"}"#,
        r#"{"format":"pdreplay-trace","version":1,"block_size":[]}"#,
        r#"{"format":"pdreplay-trace","version":1,"timestamp_unit":5}"#,
    ];
    for text in rows {
        let scratch = Scratch::new();
        scratch.write("t.jsonl", &format!("{text}\n"));
        let ran = scratch.run(&["trace", "validate", "t.jsonl"]);
        assert!(ran.code != Some(0), "{text}: {ran:#?}");
        assert_plain(text, &ran.stderr);
    }
}
