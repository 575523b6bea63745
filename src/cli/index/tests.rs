//! Arguments as they are typed, and lines as they are shown.

use super::failure;
use super::query::{self, parse, read};
use super::serve::{config, parse_registry};
use super::stamp;
use super::watch::{Lines, dated, shown};
use crate::cli::exit::Exit;
use crate::kv::directory::Registry;
use crate::live::api::{KvMatch, KvQueryReply, KvStream, KvStreamsReply};
use crate::live::kv::ask::{Ask, AskError};
use crate::results::render::{Format, Style};

#[test]
fn token_ids_are_read_in_every_common_form() {
    for text in ["1,2,3", "1 2 3", "[1, 2, 3]", "1\n2\n3\n", " [1,\n2,3] "] {
        assert_eq!(parse("x", text), Ok(vec![1, 2, 3]), "{text}");
    }
    assert_eq!(parse("x", "[]"), Ok(Vec::new()));
    assert_eq!(parse("x", "{\"token_ids\": [1, 2], \"model\": \"m\"}\n"), Ok(vec![1, 2]), "the body of a query");
    let body = parse("p.json", "{\"token_ids\": [1, -2]}").unwrap_err();
    assert!(body.causes[0].starts_with("p.json: token_ids[1] is no token id"), "{body:?}");
    assert!(parse("p.json", "{\"tokens\": [1]}").unwrap_err().causes[0].contains("token_ids"));
    for text in ["1,a", "1.5", "2147483648", "[1", "-1"] {
        let failure = parse("ids.txt", text).unwrap_err();
        assert!(failure.causes[0].starts_with("ids.txt: number "), "{failure:?}");
    }
}

#[test]
fn a_query_that_is_too_large_is_refused_before_it_is_sent() {
    // Nobody listens at port 1: what is sent gets no answer.
    let ask = Ask::new("http://127.0.0.1:1", None).unwrap();
    let refused = |count: usize| failure(ask.query(&vec![123_456; count]).unwrap_err());
    let large = refused(600_000);
    assert_eq!(large.exit, Exit::Usage);
    assert_eq!(large.causes, ["600000 token ids are a query of 4200015 bytes, and a KV directory takes 4 MiB"]);
    assert!(large.hints[0].contains("first tokens only"), "{large:?}");
    assert_eq!(refused(599_000).exit, Exit::Broke, "sent, to nobody");
    let told = failure(AskError::Refused { url: "u".into(), status: 413, why: "too large".into() });
    assert_eq!((told.exit, told.hints), (Exit::Broke, large.hints));
}

#[test]
fn a_configuration_is_read_up_to_a_limit() {
    let path = std::env::temp_dir().join(format!("pdreplay-config-{}.json", std::process::id()));
    let name = path.to_str().unwrap();
    let whole = r#"{"discovery":{"event_port_offset":1,"replay_port_offset":2}}"#;
    let padded = |bytes: usize| std::fs::write(&path, whole.to_owned() + &" ".repeat(bytes - whole.len())).unwrap();
    padded(16 << 20);
    assert!(config(name, None).is_ok());
    padded((16 << 20) + 1);
    assert_eq!(config(name, None).unwrap_err().causes, [format!("{name} is larger than 16777216 bytes")]);
    std::fs::remove_file(&path).unwrap();
    let absent = config(name, None).unwrap_err();
    assert!(absent.causes[0].starts_with(&format!("{name} cannot be read: No such file")), "{absent:?}");
}

#[test]
fn token_ids_are_read_up_to_a_limit() {
    let refused = read("/dev/zero").unwrap_err();
    assert_eq!(refused.causes, ["/dev/zero is larger than 16777216 bytes"]);
    assert_eq!(refused.exit, Exit::Usage);
    assert!(read("/is/not/there").unwrap_err().causes[0].starts_with("/is/not/there cannot be read: No such file"));
}

#[test]
fn a_registry_is_a_file_or_members_and_a_namespace() {
    assert_eq!(parse_registry("file:a:b.json"), Ok(Registry::File("a:b.json".into())));
    let etcd = |endpoints: &[&str], namespace: &str| {
        let endpoints = endpoints.iter().map(|endpoint| (*endpoint).to_owned()).collect();
        Ok(Registry::Etcd { endpoints, namespace: namespace.into() })
    };
    assert_eq!(parse_registry("etcd:http://a:2379"), etcd(&["http://a:2379"], ""));
    assert_eq!(parse_registry("etcd:http://a:1,b:2,prod"), etcd(&["http://a:1", "b:2"], "prod"));
    for text in ["file:", "etcd:", "etcd:prod", "etcd:a:1,x,y", "etcd:x,a:1", "x"] {
        assert!(parse_registry(text).is_err(), "{text}");
    }
}

fn stream(instance: &str, sequence: u64) -> KvStream {
    let stream = serde_json::json!({
        "instance_name": instance, "dp_rank": 0, "endpoint": "tcp://h:1", "replay_endpoint": null, "state": "synced",
        "reason": "snapshot", "synchronized": true, "sequence": sequence, "lag_ms": null, "odd_timestamps": 0, "quiet_ms": null,
        "device_blocks": 1, "host_blocks": 0, "mappings": 1, "batches": 1, "refused": 0, "events": 1, "ignored": 0,
        "gaps": 0, "restarts": 0, "resyncs": 0, "refreshes": 0, "failed_replays": 0, "buffered_bytes": 0,
        "unsynced_ms": 0, "error": null,
    });
    serde_json::from_value(stream).unwrap()
}

#[test]
fn only_streams_that_changed_are_told() {
    let reply =
        |streams: Vec<KvStream>| KvStreamsReply { unready: None, streams, excluded: Default::default(), notice: None };
    let mut lines = Lines::default();
    let both = lines.changed(&reply(vec![stream("a\u{1b}", 1), stream("b", 1)]));
    assert_eq!(both.lines().count(), 2);
    assert!(!both.contains('\u{1b}'), "{both}");
    assert_eq!(lines.changed(&reply(vec![stream("a\u{1b}", 1), stream("b", 1)])), "");
    let moved = lines.changed(&reply(vec![stream("a\u{1b}", 2)]));
    let moved: Vec<&str> = moved.lines().collect();
    assert!(
        moved.len() == 2 && moved[0].contains("sequence 2") && moved[1] == "b/0 is followed no longer",
        "{moved:?}"
    );
    assert!(lines.away("gone").contains("waited for"));
    assert_eq!(lines.away("gone"), "");
    assert_eq!(lines.changed(&reply(vec![stream("a\u{1b}", 2)])), "the index answers again\n");
    assert_eq!(lines.changed(&reply(vec![stream("a\u{1b}", 2)])), "", "once");
}

#[test]
fn why_a_stream_is_out_of_step_is_seen_at_80_columns() {
    let error = "127.0.0.1:5557 refused the connection, and has for all of the last four minutes, five seconds";
    let lost = KvStream {
        state: "disconnected".into(),
        reason: "disconnected".into(),
        synchronized: false,
        gaps: 1,
        error: Some(error.into()),
        ..stream("p1", 12_345)
    };
    let streams = vec![stream("p0", 7), lost];
    let reply = KvStreamsReply { unready: None, streams, excluded: Default::default(), notice: None };
    let narrow = shown(&reply, Style { color: false, width: 80 });
    let lines: Vec<&str> = narrow.lines().collect();
    assert_eq!(lines.len(), 5, "{narrow}");
    assert!(lines[1].contains("gaps") && !lines[1].contains("restarts"), "{narrow}");
    assert!(lines[2].starts_with("p0 ") && lines[3].starts_with("p1 "), "in step there is no reason: {narrow}");
    assert_eq!(lines[4].trim_start(), error, "uncut");
    assert!(shown(&reply, Style { color: false, width: 160 }).contains("restarts"));
}

#[test]
fn time_stamps_that_give_no_lag_are_counted_above_the_table() {
    let odd = KvStream { odd_timestamps: 12, ..stream("p0", 7) };
    // One that sent some and is right now has a lag.
    let mended = KvStream { odd_timestamps: 3, lag_ms: Some(2.0), ..stream("p1", 7) };
    let streams = vec![odd, mended];
    let reply = KvStreamsReply { unready: None, streams, excluded: Default::default(), notice: None };
    let shown = shown(&reply, Style { color: false, width: 160 });
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines[1], "no lag of p0/0: time stamps that are no time near now: 12");
    assert!(lines.len() == 5 && lines[4].contains("2 ms"), "{shown}");
}

#[test]
fn batches_of_another_publisher_are_told_though_a_stream_is_in_step() {
    let notice = "batches of \"kv@pod-10\" arrive";
    let streams = vec![KvStream { notice: Some(notice.into()), ..stream("p0", 7) }];
    let reply = KvStreamsReply { unready: None, streams, excluded: Default::default(), notice: None };
    let shown = shown(&reply, Style { color: false, width: 80 });
    assert_eq!(shown.lines().nth(1), Some(format!("p0/0: {notice}").as_str()), "{shown}");
    assert!(Lines::default().changed(&reply).trim_end().ends_with(&format!("; {notice}")));
}

#[test]
fn the_reason_of_a_query_is_never_cut() {
    let error = "batch 1 follows the snapshot, where its end mark was expected: vLLM and SGLang answer with batches of the past; \
                 is `dialect` the publisher's?";
    let found = |instance: &str, error: Option<&str>| KvMatch {
        instance_name: instance.into(),
        dp_rank: 0,
        synchronized: error.is_none(),
        sequence: Some(7),
        device_hit_tokens: 123_456,
        host_only_hit_tokens: 0,
        reusable_prefix_tokens: 123_456,
        device_blocks: 1,
        host_blocks: 99_999,
        error: error.map(str::to_owned),
    };
    let reply = KvQueryReply { matches: vec![found("p0", None), found("p1", Some(error)), found("p2", None)] };
    let shown = |format, width| query::shown(&reply, format, Style { color: false, width });
    let piped = shown(Format::Table, usize::MAX);
    assert_eq!(piped.lines().count(), 4, "{piped}");
    assert!(piped.lines().nth(2).unwrap().ends_with(error), "{piped}");
    let narrow = shown(Format::Table, 80);
    let lines: Vec<&str> = narrow.lines().collect();
    assert!(lines.len() == 5 && lines[3].trim_start() == error && !lines[0].contains("error"), "{narrow}");
    assert!(lines[1].starts_with("p0 ") && lines[1].ends_with("99999") && lines[4].starts_with("p2 "), "{narrow}");
    assert!(
        ["device tokens", "host-only tokens", "device blocks"].iter().all(|unit| lines[0].contains(unit)),
        "{narrow}"
    );
    for format in [Format::Csv, Format::Json, Format::Markdown] {
        let text = shown(format, 80).replace("\\`", "`");
        assert!(text.contains("is `dialect` the publisher's?"), "{format:?}: {text}");
    }
}

#[test]
fn lines_of_a_log_have_their_time() {
    let at = stamp("2026-01-02T03:04:05.0678Z".parse().unwrap());
    assert_eq!(at, "2026-01-02T03:04:05.067Z");
    assert_eq!(dated("a\nb\n", &at), format!("{at} a\n{at} b\n"));
    assert_eq!(dated("", &at), "");
}

#[test]
fn a_folder_in_place_of_a_configuration_is_told_to_be_one() {
    let folder = std::env::temp_dir();
    let refused = config(folder.to_str().unwrap(), None).unwrap_err();
    assert!(refused.hints[0].contains("folder"), "{refused:?}");
}

#[test]
fn lines_tell_why_nothing_is_followed_once() {
    let excluded = [("z".to_owned(), "it decodes".to_owned())].into();
    let reply = KvStreamsReply { unready: None, streams: Vec::new(), excluded, notice: Some("gone".into()) };
    let unready =
        KvStreamsReply { unready: Some("not read yet".into()), excluded: Default::default(), ..reply.clone() };
    let mut lines = Lines::default();
    assert_eq!(lines.changed(&unready), "not ready: not read yet\nregistry: gone\n");
    assert_eq!(lines.changed(&unready), "");
    assert_eq!(lines.changed(&reply), "not followed: z: it decodes\n");
    assert_eq!(lines.changed(&reply), "");
}

#[test]
fn no_tokens_at_all_are_an_error_and_an_empty_list_is_a_question() {
    for text in ["", " \n"] {
        let refused = parse("standard input", text).unwrap_err();
        assert_eq!(refused.causes, ["standard input: there is no token id"]);
    }
    for text in ["[]", "{\"token_ids\": []}"] {
        assert_eq!(parse("f", text).unwrap(), Vec::<u32>::new());
    }
}
