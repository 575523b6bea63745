//! Who chooses whom: shares under a shared prompt, the router's own policies, targets that are dead.

use std::collections::BTreeMap;

use pdreplay::record::{LedgerKind, Outcome};

use super::{Played, case, conversations, play, scenario, trace};
use crate::run::Scratch;

fn shares(played: &Played) -> BTreeMap<&str, usize> {
    let mut shares = BTreeMap::new();
    for record in &played.records {
        *shares.entry(record.decode_worker_actual.as_deref().unwrap()).or_insert(0) += 1;
    }
    shares
}

const CASE_63: &str = "
cluster.prefill = 1
cluster.decode = 4
replay.mechanism = 'pd'
policy.name = 'POLICY'";

#[test]
fn case_63_no_worker_gets_more_than_its_share_of_a_burst() {
    let text = case("63-pile-up-on-a-shared-prompt/trace.jsonl");
    for policy in ["default", "sticky"] {
        let played = play(&trace(&text), &scenario(&[&CASE_63.replace("POLICY", policy)]));
        played.all_ok();
        let shares = shares(&played);
        assert!(shares.len() == 4 && shares.values().all(|share| *share <= 24), "{policy}: {shares:?}");
    }
}

#[test]
fn case_63_car_spreads_the_burst_over_p_and_d() {
    let text = case("63-pile-up-on-a-shared-prompt/trace.jsonl");
    let topology = CASE_63.replace("POLICY", "car").replace("prefill = 1", "prefill = 4");
    let played = play(&trace(&text), &scenario(&[&topology, "kv_events.enabled = 'off'"]));
    played.all_ok();
    let mut prefills = BTreeMap::new();
    for record in &played.records {
        *prefills.entry(record.prefill_worker.as_deref().unwrap()).or_insert(0) += 1;
        assert!(!record.route_mismatch);
    }
    for shares in [shares(&played), prefills] {
        assert!(shares.len() == 4 && shares.values().all(|share| *share <= 24), "{shares:?}");
    }
    let choices = played.ledger.iter().filter(|line| line.kind == LedgerKind::CarChoice);
    for (choice, record) in choices.zip(&played.records) {
        assert_eq!((choice.candidates.len(), record.index_blind), (8, None), "no index, no promise");
    }
}

#[test]
fn case_63_car_with_publishers_spreads_the_burst_through_the_command_line() {
    let scratch = Scratch::new();
    scratch.write("trace.jsonl", &case("63-pile-up-on-a-shared-prompt/trace.jsonl"));
    // The burst comes at once, before a block is cached; a second one 20 s later finds the shared prompt everywhere.
    let again = scratch.read("trace.jsonl");
    let later = again.lines().map(|line| {
        let mut row: serde_json::Value = serde_json::from_str(line).unwrap();
        row["session_id"] = format!("{}-later", row["session_id"].as_str().unwrap()).into();
        row["timestamp"] = 20.0.into();
        row.to_string() + "\n"
    });
    scratch.write("twice.jsonl", &(again.clone() + &later.collect::<String>()));
    let topology = CASE_63.replace("POLICY", "car").replace("prefill = 1", "prefill = 4");
    scratch.write("scenario.toml", &(topology + "\nkv_events.enabled = 'on'"));
    for (trace, bursts) in [("trace.jsonl", 1), ("twice.jsonl", 2)] {
        scratch.run(&["replay", trace, "--scenario", "scenario.toml", "--name", trace]).code(0);
        let summary = scratch.json(&format!("outputs/{trace}/summary.json"));
        for role in ["prefill", "decode"] {
            let workers = summary["workers"].as_array().unwrap().iter();
            let shares: Vec<u64> =
                workers.filter(|row| row["role"] == role).map(|row| row["requests"].as_u64().unwrap()).collect();
            let fits = |share: &u64| *share <= 24 * bursts;
            assert!(shares.len() == 4 && shares.iter().all(fits), "{trace} {role}: {shares:?}");
            assert_eq!(shares.iter().sum::<u64>(), 64 * bursts);
        }
        let streams = summary["index"]["streams"].clone();
        let all = streams.as_array().unwrap_or_else(|| panic!("streams of a run with publishers: {streams}"));
        assert!(all.len() == 4 && all.iter().all(|stream| stream["synchronized"] == true), "{streams}");
    }
    let text = scratch.read("outputs/twice.jsonl/requests.jsonl");
    let records = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let promised = records.filter(|record| record["index_hit_tokens_device"].as_u64() > Some(0)).count();
    assert!(promised >= 60, "the index told of the shared prompt in the second burst: {promised}");
}

#[test]
fn car_on_colocated_workers_and_with_sessions_keeps_the_laws() {
    let text = case("68-kv-aware-with-an-empty-index/trace.jsonl");
    let dp = "replay.mechanism = 'dp'\ncluster = { prefill = 0, decode = 0, colocated = 3 }\npolicy.name = 'car'";
    play(&trace(&text), &scenario(&[dp])).all_ok();
    let kvc = "replay.mechanism = 'kvc'\ncluster = { prefill = 2, decode = 3 }\npolicy.name = 'car'";
    play(&trace(&text), &scenario(&[kvc])).all_ok();
}

#[test]
fn case_68_a_run_without_an_index_says_that_it_went_by_load_alone() {
    let text = case("68-kv-aware-with-an-empty-index/trace.jsonl");
    let scratch = Scratch::new();
    scratch.write("trace.jsonl", &text);
    let set = ["--set", "kv_events.enabled=off", "--set", "cluster.prefill=2", "--set", "cluster.decode=2"];
    let args = ["replay", "trace.jsonl", "--policy", "car", "--mechanism", "pd", "--name", "run"];
    let done = scratch.run(&[&args[..], &set[..]].concat()).code(0);
    assert!(done.stderr.contains("there is no index, so its hits are 0"), "{}", done.stderr);
    assert!(done.stdout.contains("ran as load-only: policy car had no KV index to read"), "{}", done.stdout);
    let summary = scratch.json("outputs/run/summary.json");
    assert_eq!(summary["causes"][0]["cause"], "ran-as-load-only");
    assert_eq!(summary["index"], serde_json::Value::Null);
    let notes = summary["integrity"]["notes"].as_array().unwrap();
    assert!(notes.iter().any(|note| note.as_str().unwrap().starts_with("ran as load-only")), "{notes:?}");
    let ledger = scratch.read("outputs/run/events.jsonl");
    assert!(ledger.contains("car-choice") && !ledger.contains("hit_ratio"), "no index, no ratio");
}

#[test]
fn case_63_a_pile_up_of_kv_aware_is_marked() {
    let text = case("63-pile-up-on-a-shared-prompt/trace.jsonl");
    let scratch = Scratch::new();
    scratch.write("trace.jsonl", &text);
    scratch.write("scenario.toml", &CASE_63.replace("POLICY", "kv-aware"));
    let printed =
        scratch.run(&["replay", "trace.jsonl", "--scenario", "scenario.toml", "--name", "run"]).code(0).stdout;
    let summary = scratch.json("outputs/run/summary.json");
    let rows: Vec<_> = summary["workers"].as_array().unwrap().iter().filter(|row| row["role"] == "decode").collect();
    let requests = |row: &serde_json::Value| row["requests"].as_u64().unwrap();
    assert_eq!((rows.len(), rows.iter().map(|row| requests(row)).sum::<u64>()), (4, 64));
    for row in &rows {
        assert_eq!(row["hot"].as_bool().unwrap(), requests(row) > 24, "{row}");
    }
    let most = rows.iter().map(|row| requests(row)).max().unwrap();
    let spread = summary["spread"].as_array().unwrap().iter().find(|row| row["role"] == "decode").unwrap();
    assert_eq!(spread["max_over_mean"].as_f64().unwrap(), most as f64 / 16.0);
    assert_eq!(most, 64, "once the shared prompt was sent somewhere, overlap leads everybody there");
    assert!(printed.contains("D0"), "{printed}");
}

#[test]
fn case_67_workers_that_got_nothing_are_named() {
    let scratch = Scratch::new();
    let rows: Vec<String> = (0..3)
        .map(|k| {
            format!(r#"{{"session_id":"q{k}","turn_id":0,"timestamp":{k}.0,"input_length":64,"output_length":4}}"#)
        })
        .collect();
    scratch.write("trace.jsonl", &rows.join("\n"));
    let shape = ["--set", "cluster.prefill=1", "--set", "cluster.decode=5", "--mechanism", "pd", "--policy", "default"];
    let args = [&["replay", "trace.jsonl", "--name", "run"], &shape[..]].concat();
    let printed = scratch.run(&args).code(0).stdout;
    let summary = scratch.json("outputs/run/summary.json");
    let spread = summary["spread"].as_array().unwrap().iter().find(|row| row["role"] == "decode").unwrap();
    assert_eq!((spread["workers"].as_u64(), spread["idle_workers"].as_u64()), (Some(5), Some(2)));
    assert_eq!(spread["max_over_mean"].as_f64(), Some(1.0 / 0.6));
    assert!(printed.contains("2 of 5 decode workers got no request"), "{printed}");
}

#[test]
fn case_68_without_an_index_nothing_is_promised() {
    let text = case("68-kv-aware-with-an-empty-index/trace.jsonl");
    let played = play(&trace(&text), &scenario(&["cluster.prefill = 2\npolicy.name = 'kv-aware'"]));
    played.all_ok();
    for record in &played.records {
        assert_eq!((record.index_hit_tokens_device, record.index_hit_tokens_host_only), (None, None));
    }
    assert!((0..6).all(|k| played.of(&format!("s{k}"), 0).assumed_hit_tokens == 0), "nothing was sent before");
}

#[test]
fn manual_and_sticky_agree_and_no_session_leaves_a_worker_that_lives() {
    let cluster = "
cluster.prefill = 2
cluster.decode = 4
cluster.router.decode_policy = 'manual'
replay.mechanism = 'pd'
policy.name = 'sticky'";
    let played = play(&conversations(20, 0.02, &[0.0, 3.0, 6.0]), &scenario(&[cluster]));
    played.all_ok();
    for k in 0..20 {
        let session = format!("s{k}");
        assert!((1..3).all(|turn| played.worker(&session, turn) == played.worker(&session, 0)), "{session}");
    }
    assert!(played.noted(LedgerKind::RouteMismatch).is_empty());
    assert!(shares(&played).values().all(|share| *share == 15), "{:?}", shares(&played));
}

#[test]
fn a_target_that_is_dead_is_refused_until_discovery_tells() {
    let cluster = "
cluster.prefill = 1
cluster.decode = 2
cluster.discovery_delay_ms = 4000
cluster.router.decode_policy = 'consistent_hashing'
replay.mechanism = 'pd'
policy.name = 'kv-aware'
fault = [{ kind = 'kill', worker = 'D0', at_s = 8 }]";
    let played = play(&conversations(2, 0.5, &[0.0, 5.0, 10.0, 15.0]), &scenario(&[cluster]));
    let session = if played.worker("s0", 0) == "D0" { "s0" } else { "s1" };
    let early = played.of(session, 2);
    assert_eq!((early.outcome, early.decode_worker_intended.as_deref()), (Outcome::Error, Some("D0")), "{early:#?}");
    assert!(early.error_message.as_deref().unwrap().contains("connection refused by D0"));
    assert_eq!(
        (played.of(session, 3).outcome, played.worker(session, 3)),
        (Outcome::Ok, "D1"),
        "then it goes elsewhere"
    );
    let bad = played.records.iter().filter(|record| !record.outcome.is_ok()).count();
    assert_eq!(bad, 1, "nobody else notices");
}

#[test]
fn a_target_the_router_lost_before_the_replayer_is_refused_in_words() {
    // The policy keeps naming D0: it learns of the kill at the same time as the router, but the request was on its way.
    let cluster = "
cluster.prefill = 1
cluster.decode = 2
cluster.hop_us = 1_000_000
cluster.discovery_delay_ms = 0
replay.mechanism = 'pd'
policy.name = 'kv-aware'
fault = [{ kind = 'kill', worker = 'D0', at_s = 20.5 }]";
    let played = play(&conversations(1, 0.0, &[0.0, 20.0, 40.0]), &scenario(&[cluster]));
    let refused = played.of("s0", 1);
    assert_eq!((refused.outcome, refused.http_status), (Outcome::Error, Some(503)), "{refused:#?}");
    assert!(refused.error_message.as_deref().unwrap().contains("failed to select a decode worker"));
    assert_eq!(played.of("s0", 2).outcome, Outcome::Ok);
}
