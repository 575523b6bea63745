//! Whose time the KV takes between P and D: to the nanosecond on small runs, and on the shipped ones by taking the cause away.

use pdreplay::record::WorkerRecord;
use serde_json::Value;

use super::published::{causes, shipped};
use super::{EXACT, Played, play, scenario, trace};
use crate::run::Scratch;

/// One P whose pool holds one prompt of 1,000 tokens.
const SMALL_P: &str = "
cluster.prefill = 1
replay.mechanism = 'pd'
policy.name = 'default'
engine.kv_pool_tokens = 1536
engine.reserved_decode_tokens = 1";

/// `count` sessions of one turn that come at once.
fn at_once(count: u32, output: u32) -> String {
    let row =
        |ix| format!("{{\"session_id\":\"s{ix}\",\"timestamp\":0,\"input_length\":1000,\"output_length\":{output}}}\n");
    (0..count).map(row).collect()
}

fn worker<'a>(played: &'a Played, name: &str) -> &'a WorkerRecord {
    played.end.facts.workers.iter().find(|worker| worker.worker == name).unwrap()
}

/// To a tenth of a microsecond, which is more than the end of a transfer is rounded by.
#[track_caller]
fn near<const N: usize>(found: [f64; N], wanted: [f64; N]) {
    let equal = found.iter().zip(&wanted).all(|(a, b)| (a - b).abs() < 1e-4);
    assert!(equal, "found {found:?}, wanted {wanted:?}");
}

/// A share of the run, in seconds.
fn seconds(played: &Played, share: Option<f64>) -> f64 {
    share.unwrap() * played.end.facts.duration_ns as f64 / 1e9
}

#[test]
fn p_stands_still_while_kv_on_the_link_fills_its_pool() {
    // 1,000 tokens of a byte take a second, each to a D of its own.
    let slow = EXACT.replace("gbytes_per_s = 1e9", "gbytes_per_s = 1e-6");
    let played = play(&trace(&at_once(2, 1)), &scenario(&[&slow, SMALL_P, "cluster.decode = 2"]));
    played.all_ok();
    near([played.of("s1", 1).prefill_queue_ms.unwrap()], [1050.0]);
    let p0 = worker(&played, "P0");
    let told = [p0.busy_share.into(), p0.link_busy_share, p0.stalled_by_link_share, p0.stalled_by_room_share];
    near(told.map(|share| seconds(&played, share)), [0.1, 2.0, 1.0, 0.0]);
    let ingress = ["D0", "D1"].map(|name| seconds(&played, worker(&played, name).link_busy_share));
    near(ingress, [1.0, 1.0]);
}

#[test]
fn p_stands_still_while_kv_that_waits_for_room_on_d_fills_its_pool() {
    // s0 decodes for 19 steps where s1 is to go, and s2 waits for the place of s1 on P.
    let played = play(&trace(&at_once(3, 20)), &scenario(&[EXACT, SMALL_P, "cluster.decode = 1"]));
    played.all_ok();
    let (s1, s2) = (played.of("s1", 1), played.of("s2", 1));
    let waited = s1.decode_queue_ms.unwrap();
    near([waited, s2.prefill_queue_ms.unwrap()], [900.0, 1000.0]);
    let p0 = worker(&played, "P0");
    let told = [p0.busy_share.into(), p0.stalled_by_link_share, p0.stalled_by_room_share];
    near(told.map(|share| seconds(&played, share)), [0.15, 0.0, 0.9]);
}

fn figure(summary: &Value, name: &str) -> f64 {
    summary[name].as_f64().unwrap_or_else(|| panic!("{name}: {}", summary[name]))
}

fn cause<'a>(summary: &'a Value, name: &str) -> Option<&'a Value> {
    summary["causes"].as_array().unwrap().iter().find(|line| line["cause"] == name)
}

/// A shipped scenario whose verdict or exit code is not the point.
fn run(scenario: &str, more: &[&str]) -> (Value, Scratch) {
    let code = i32::from(scenario.starts_with("v2"));
    let (_, summary, scratch) = shipped(scenario, &[more, &["--allow-conflict", "-q"]].concat(), code);
    (summary, scratch)
}

#[test]
fn a_link_that_binds_is_named_and_a_faster_one_gives_back_what_was_said() {
    for name in ["v3-1p7d", "v4-1p7d"] {
        let (before, _) = run(name, &[]);
        let link = cause(&before, "link-binds").unwrap_or_else(|| panic!("{name}: {:#?}", causes(&before)));
        let faster = format!("{}=25", link["remedy"].as_str().unwrap());
        let (after, _) = run(name, &["--set", &faster]);
        assert!(cause(&after, "link-binds").is_none(), "{name}: {:#?}", causes(&after));
        let gain = |of: &str| 1.0 - figure(&after, of) / figure(&before, of);
        let share = figure(link, "e2e_share");
        assert!((gain("mean_e2e_ms") - share).abs() < 0.06, "{name}: {} for {share}", gain("mean_e2e_ms"));
        // These runs last as long as their P works or stands still.
        let stalled = figure(link, "stalled_share");
        assert!((gain("duration") - stalled).abs() < 0.02, "{name}: {} for {stalled}", gain("duration"));
    }
}

#[test]
fn a_link_slow_to_set_up_is_named_by_that_and_kv_that_goes_to_one_d_asks_for_no_more_of_them() {
    let scratch = Scratch::new();
    let remedy = |trace: &str, code: i32, more: &[&str], name: &str| {
        let plain = ["replay", trace, "-q", "--allow-conflict", "--name", "run", "--overwrite"];
        scratch.run(&[&plain, more].concat()).code(code);
        let summary = scratch.json("outputs/run/summary.json");
        let line = cause(&summary, name).unwrap_or_else(|| panic!("{:#?}", causes(&summary)));
        line["remedy"].as_str().unwrap().to_owned()
    };
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/traces/sample-6.jsonl");
    for (value, wanted) in
        [("setup_us=2000000", "cluster.link.setup_us"), ("gbytes_per_s=0.1", "cluster.link.gbytes_per_s")]
    {
        let value = format!("cluster.link.{value}");
        assert_eq!(remedy(sample, 0, &["--set", &value], "link-binds"), wanted);
    }
    // The overlap of an empty D is nobody's, so all of it goes to the first one.
    scratch
        .run(&["trace", "generate", "--sessions", "12", "--requests", "300", "--seed", "3", "-o", "t.jsonl"])
        .code(0);
    let to_one = ["--mechanism", "pd", "--policy", "kv-aware", "--time-scale", "20"];
    let wanted = "engine.kv_pool_tokens, a policy that spreads over D";
    assert_eq!(remedy("t.jsonl", 1, &to_one, "decode-room-binds"), wanted);
}

#[test]
fn where_neither_links_nor_ended_sessions_bind_none_is_named() {
    for name in ["v2-1p7d", "dp8", "v4-1p7d-x1"] {
        let (summary, _) = run(name, &[]);
        for absent in ["link-binds", "decode-room-binds", "ended-sessions-hold-slots"] {
            assert!(cause(&summary, absent).is_none(), "{name}: {:#?}", causes(&summary));
        }
        if name == "v4-1p7d-x1" {
            let (after, _) = run(name, &["--set", "cluster.link.gbytes_per_s=25"]);
            let gain = 1.0 - figure(&after, "mean_e2e_ms") / figure(&summary, "mean_e2e_ms");
            assert!(gain < 0.02, "a faster link is of no use there: {gain}");
        }
    }
}

#[test]
fn room_on_d_that_binds_is_named_and_more_d_give_it_back() {
    let with = |decode: &str| {
        let decode = format!("cluster.decode={decode}");
        let plain = ["--mechanism", "pd", "--policy", "default", "--set", "cluster.link.gbytes_per_s=25"];
        run("v3-2p6d", &[&plain[..], &["--set", &decode]].concat()).0
    };
    let (two, six) = (with("2"), with("6"));
    let room = cause(&two, "decode-room-binds").unwrap_or_else(|| panic!("{:#?}", causes(&two)));
    assert!(room["remedy"].as_str().unwrap().starts_with("cluster.decode"), "{room:#?}");
    assert!(cause(&six, "decode-room-binds").is_none(), "{:#?}", causes(&six));
    let gain = 1.0 - figure(&six, "mean_e2e_ms") / figure(&two, "mean_e2e_ms");
    assert!(gain > figure(room, "e2e_share"), "{gain}: {room:#?}");
}

#[test]
fn slots_kept_by_ended_sessions_are_named_and_giving_them_back_frees_the_starved() {
    let starved = |summary: &Value| summary["fairness"]["starved"]["count"].as_u64().unwrap_or(0);
    for name in ["v3-1p7d", "burst-cap4"] {
        let (before, scratch) = run(name, &[]);
        let ended = cause(&before, "ended-sessions-hold-slots").unwrap_or_else(|| panic!("{:#?}", causes(&before)));
        assert!(figure(ended, "share") > 0.5 && ended["starved"].as_u64() > Some(20), "{ended:#?}");
        let given_back = format!("{}=session-end", ended["remedy"].as_str().unwrap());
        let (after, _) = run(name, &["--set", &given_back]);
        assert!(cause(&after, "ended-sessions-hold-slots").is_none(), "{name}: {:#?}", causes(&after));
        assert!(starved(&after) * 4 < starved(&before), "{name}: {} of {}", starved(&after), starved(&before));
        assert!(figure(&after, "mean_e2e_ms") < figure(&before, "mean_e2e_ms"));
        if name == "v3-1p7d" {
            told_on_both_sides(&scratch, &before, &given_back);
        }
    }
    // Sixteen slots a D are enough for all.
    let (summary, _) = run("v4-1p7d", &[]);
    assert!(cause(&summary, "ended-sessions-hold-slots").is_none(), "{:#?}", causes(&summary));
}

/// `diff` says on which side a cause holds, and the page of a run says it, too.
fn told_on_both_sides(scratch: &Scratch, before: &Value, given_back: &str) {
    scratch.run(&["replay", "--scenario", "v3-1p7d", "--set", given_back, "--name", "release", "-q"]).code(0);
    let diff = scratch.run(&["diff", "outputs/run", "outputs/release", "--no-replicas", "--json"]).code(0);
    let diff: Value = serde_json::from_str(&diff.stdout).unwrap();
    let has =
        |side: &str, name: &str| diff[side]["causes"].as_array().unwrap().iter().any(|line| line["cause"] == name);
    assert!(
        has("a", "ended-sessions-hold-slots") && !has("b", "ended-sessions-hold-slots"),
        "{:#?}",
        diff["b"]["causes"]
    );
    assert!(has("a", "link-binds") && has("b", "link-binds"), "the link binds on either side");
    let table = scratch.run(&["diff", "outputs/run", "outputs/release", "--no-replicas"]).code(0).stdout;
    let (a, b) = table.split_once("why A").unwrap().1.split_once("why B").unwrap();
    assert!(a.contains("sessions that have ended hold slots") && !b.contains("sessions that have ended"), "{table}");
    assert!(a.contains("KV transfer holds") && b.contains("KV transfer holds"), "{table}");
    scratch.run(&["report", "outputs/run", "--html", "run.html"]).code(0);
    let page = scratch.read("run.html");
    for name in ["link-binds", "ended-sessions-hold-slots"] {
        let text = cause(before, name).unwrap()["text"].as_str().unwrap();
        let words = text.split(['"', '\'']).next().unwrap();
        assert!(page.contains(words), "{words}");
    }
}
