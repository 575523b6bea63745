//! Live runs as a whole: broken off, killed, with secrets, with faults, and what is refused before anything is sent.

use std::fs;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::support::fake::{Fake, Reply};
use super::support::run::{Api, FOLDER, LiveRun, Played, Playing, one, row};
use super::support::script::{End, Script};
use crate::run::Scratch;

/// So many sessions of two turns, 50 ms of the run apart.
fn many(sessions: u32) -> String {
    let turns = |session: u32| -> String {
        let at_s = f64::from(session) * 0.05;
        (0..2).map(|turn| row(&format!("s{session}"), turn, at_s + f64::from(turn), 128 + 64 * turn, 8)).collect()
    };
    (0..sessions).map(turns).collect()
}

fn embedded(trace: &str) -> LiveRun {
    LiveRun::of(trace).args(&["--emulation-speed", "10"]).set("cluster", "{prefill=1, decode=2}")
}

fn until_recorded(run: &Playing, lines: usize) {
    let began = Instant::now();
    while run.ended() < lines {
        assert!(began.elapsed() < Duration::from_secs(180), "no {lines} records were written");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn sum_of_outcomes(summary: &Value) -> u64 {
    summary["outcomes"].as_object().unwrap().values().filter_map(Value::as_u64).sum()
}

#[test]
fn an_embedded_run_says_what_it_was_sent_to_and_what_it_cost() {
    let played = embedded(&many(3)).play().code(0);
    assert_eq!(played.count("ok"), 6);
    let manifest = played.manifest();
    let target = &manifest["target"];
    assert_eq!((&target["kind"], &target["emulated"]), (&json!("embedded"), &json!(true)));
    assert_eq!((&target["router"]["kind"], &target["emulation_speed"]), (&json!("pdreplay"), &json!(10.0)));
    let names: Vec<&str> = target["workers"].as_array().unwrap().iter().filter_map(|w| w["worker"].as_str()).collect();
    assert_eq!(names, ["P0", "D0", "D1"]);
    assert!(manifest["info"]["driver"].as_str().unwrap().starts_with("real time × 10, embedded behind pdreplay"));
    let harness = &manifest["facts"]["harness"];
    assert!(harness["driver_cpu_s"].as_f64().unwrap() > 0.0 && harness["http_requests"].as_u64().unwrap() >= 6);
    assert!(harness["descriptors_limit"].as_u64() >= harness["descriptors_needed"].as_u64());
    assert!(played.ran.stdout.contains("\nharness   wall time: schedule lag p99 "), "{}", played.ran.stdout);
    let accounts = manifest["facts"]["workers"].as_array().unwrap();
    assert_eq!(accounts.len(), 3, "every worker told its counters");
    let taken: u64 = accounts.iter().map(|account| account["requests"].as_u64().unwrap()).sum();
    assert!(taken >= 6, "{accounts:#?}");
}

#[test]
fn decode_workers_may_be_named_by_url_or_id() {
    for value in ["url", "id"] {
        let run = embedded(&many(3)).args(&["--policy", "kv-aware", "--mechanism", "pd"]);
        let played = run.set("live.header.target_value", value).play().code(0);
        assert_eq!(played.count("ok"), 6, "{:#?}", played.records());
        assert!(played.records().iter().all(|record| record["route_mismatch"] != true), "{:#?}", played.records());
    }
}

#[test]
fn a_signal_drains_and_keeps_the_results() {
    for (name, code) in [("INT", 130), ("TERM", 143)] {
        let run = embedded(&many(600)).start();
        until_recorded(&run, 3);
        run.signal(name);
        let began = Instant::now();
        let played = run.wait().code(code);
        assert!(began.elapsed() < Duration::from_secs(25), "took {:?}", began.elapsed());
        let summary = played.summary();
        assert_eq!(summary["integrity"]["state"], "interrupted");
        assert!(played.ran.stderr.contains("warning: interrupted: nothing more is sent"), "{}", played.ran.stderr);
        assert_eq!(sum_of_outcomes(&summary), 1200);
        assert!(played.count("skipped") > 0 && played.count("ok") >= 3);
    }
}

#[test]
fn a_signal_during_the_first_probes_ends_the_program_at_once() {
    // Takes connections and says nothing.
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    mute.set_nonblocking(true).unwrap();
    // Started in the background by a shell, a program finds the signal ignored.
    let run = LiveRun::of(&many(1)).on(&format!("http://{}", mute.local_addr().unwrap()), Api::Chat);
    let run = run.inside(&["sh", "-c", "trap '' INT; exec \"$@\"", "sh"]).start();
    let began = Instant::now();
    let mut asked = Vec::new();
    while asked.is_empty() {
        asked.extend(mute.accept().ok());
        assert!(began.elapsed() < Duration::from_secs(60), "nothing was asked");
        std::thread::sleep(Duration::from_millis(5));
    }
    run.signal("INT");
    let played = run.wait().code(130);
    assert!(!played.scratch.join("outputs").exists(), "nothing was claimed yet");
}

#[test]
fn a_run_far_behind_its_schedule_stops_and_tells_what_was_really_sent() {
    let fake = Fake::always(Script::chat(2));
    // More than can be sent in time, and some that no machine is quick enough for.
    let at_s = |s: u32| if s < 1200 { f64::from(s) * 4e-4 } else { 600.0 };
    let trace: String = (0..1500).map(|s| row(&format!("s{s}"), 0, at_s(s), 20_000, 2)).collect();
    let run = LiveRun::against(&fake, Api::Chat, &trace).set("live.health_poll_ms", "0").start();
    until_recorded(&run, 10);
    run.signal("INT");
    let played = run.wait();
    let records = played.records();
    let sent = records.iter().filter(|record| !record["sent_ns"].is_null()).count();
    let skipped = played.count("skipped");
    assert_eq!(records.len(), 1500);
    assert!(skipped >= 300 && sent + skipped == 1500, "{sent} sent, {skipped} skipped");
    assert_eq!(played.manifest()["facts"]["harness"]["http_requests"], sent);
    assert_eq!(played.summary()["integrity"]["state"], "interrupted");
}

#[test]
fn a_second_signal_ends_a_drain_that_hangs() {
    let fake = Fake::start("127.0.0.1:0", |_| Reply::Answer(Script::events(&[]).ending(End::Hang, 0)));
    let mut run = LiveRun::against(&fake, Api::Chat, &many(2)).set("live.drain_s", "600").start();
    let began = Instant::now();
    while fake.asked().is_empty() {
        assert!(began.elapsed() < Duration::from_secs(60), "nothing was sent");
        std::thread::sleep(Duration::from_millis(5));
    }
    run.signal("INT");
    // Two that come before the first is taken are one.
    while !run.has_ended() {
        assert!(began.elapsed() < Duration::from_secs(60), "it drains on");
        std::thread::sleep(Duration::from_millis(300));
        run.signal("INT");
    }
    let played = run.wait().code(130);
    assert_eq!(played.manifest()["state"], "running", "at once: nothing more is written");
}

#[test]
fn a_run_that_is_killed_has_lost_only_what_had_not_ended() {
    let run = embedded(&many(600)).start();
    until_recorded(&run, 5);
    let before = run.ended();
    run.signal("KILL");
    let played = run.wait();
    let records = played.records();
    assert!(records.len() >= before && records.len() < 1200);
    let report = played.scratch.run(&["report", FOLDER, "--json"]).code(0);
    let summary: Value = serde_json::from_str(&report.stdout).unwrap();
    assert_eq!(summary["integrity"]["state"], "unfinished");
    assert_eq!(sum_of_outcomes(&summary), records.len() as u64);
}

#[test]
fn a_worker_that_dies_is_recorded_and_its_session_goes_on_elsewhere() {
    let fault = "[{kind=\"kill\", worker=\"D0\", at_s=2.5}]";
    let played = embedded(&many(60)).set("fault", fault).set("integrity.max_bad_share", "1").play().code(0);
    assert_eq!(sum_of_outcomes(&played.summary()), 120);
    let events = played.scratch.read(&format!("{FOLDER}/events.jsonl"));
    assert!(events.contains("\"kind\":\"fault\"") && events.contains("\"kind\":\"worker-down\""), "{events}");
    let lines: Vec<Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let struck = lines.iter().find(|line| line["kind"] == "fault").unwrap()["at_ns"].as_u64().unwrap();
    assert!(struck >= 2_490_000_000, "a fault goes by the clock of the run, not of the cluster before it: {struck} ns");
    let last = played.records().into_iter().max_by_key(|record| record["ended_ns"].as_u64()).unwrap();
    assert_eq!((&last["outcome"], &last["decode_worker_actual"]), (&json!("ok"), &json!("D1")), "{last:#}");
    let harness = &played.manifest()["facts"]["harness"];
    assert_eq!(harness["without_account"], json!(["D0"]), "what it counted died with it");
    assert!(played.ran.stdout.contains("since they are gone: D0"), "{}", played.ran.stdout);
}

/// Every file of the run folder and everything printed.
fn everything(played: &Played) -> String {
    let files = fs::read_dir(played.scratch.join(FOLDER)).unwrap().map(|entry| entry.unwrap().path());
    let files = files.map(|path| String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned());
    files.chain([played.ran.stdout.clone(), played.ran.stderr.clone()]).collect()
}

#[test]
fn a_secret_goes_to_the_server_and_nowhere_else() {
    let fake = Fake::always(Script::chat(2));
    let run = LiveRun::against(&fake, Api::Chat, &one(2)).env("PDREPLAY_TEST_KEY", "sk-very-secret");
    run.scratch.write("headers.txt", "X-Team: hidden-team\n");
    let played =
        run.set("live.headers_file", "headers.txt").args(&["--api-key-env", "PDREPLAY_TEST_KEY"]).play().code(0);
    let asked = fake.asked();
    assert_eq!(asked[0].headers["authorization"], "Bearer sk-very-secret");
    assert_eq!(asked[0].headers["x-team"], "hidden-team");
    assert_eq!(played.manifest()["target"]["secret_headers"], json!(["authorization", "x-team"]));
    let everything = everything(&played);
    assert!(everything.contains("PDREPLAY_TEST_KEY"), "where it comes from is no secret");
    assert!(!everything.contains("very-secret") && !everything.contains("hidden-team"));
}

#[test]
fn what_cannot_be_reached_or_done_is_refused_before_anything_is_written() {
    let refused = |args: &[&str], words: &[&str]| {
        let scratch = Scratch::new();
        scratch.write("trace.jsonl", &one(2));
        let args = [&["replay", "trace.jsonl", "--target", "live"], args].concat();
        scratch.run(&args).refused(words);
        assert!(!scratch.join("outputs").exists(), "nothing is written");
    };
    let dp = ["--mechanism", "dp", "--policy", "sticky"];
    let nobody = "http://127.0.0.1:9";
    refused(&[&dp[..], &["--worker", nobody]].concat(), &["no worker answers: http://127.0.0.1:9", "live.colocated"]);
    refused(&[&dp[..], &["--worker", "127.0.0.1:9"]].concat(), &["--worker", "no scheme"]);
    refused(&["--worker", nobody], &["`replay.mechanism` is `kvc`, but target \"openai\""]);
    refused(&["--prefill", nobody, "--decode", nobody], &["`live.router` is empty"]);
    refused(&["--api-key-env", "PDREPLAY_NO_SUCH"], &["no readable variable PDREPLAY_NO_SUCH", "export"]);
    refused(&["--emulation-speed", "-1"], &["--emulation-speed -1", "`live.emulation_speed` is -1"]);
    let fake = Fake::always(Script::chat(2));
    let speed = ["--set", "live.target=sglang", "--emulation-speed", "10", "--worker"];
    refused(&[&dp[..], &speed, &[&fake.url()]].concat(), &["runs in real time", "--emulation-speed 1"]);
}

#[test]
fn a_server_that_a_run_in_virtual_time_would_not_use_is_refused() {
    let scratch = Scratch::new();
    let nobody = "http://127.0.0.1:9";
    for flag in ["--router", "--prefill", "--decode", "--worker", "--api-key-env"] {
        let ran = scratch.run(&["replay", flag, nobody]).refused(&[flag, "virtual time", "hint: add --target live"]);
        assert!(!ran.stderr.contains("--name"), "{}", ran.stderr);
    }
    assert!(!scratch.join("outputs").exists(), "nothing is written");
    scratch.run(&["preflight", "--mechanism", "dp", "--policy", "default", "--worker", nobody]).code(0);
}

#[test]
fn replicas_of_a_live_run_go_one_after_another() {
    let played = embedded(&many(2)).args(&["--replicas", "2"]).play().code(0);
    let replicas = played.scratch.json(&format!("{FOLDER}/replicas.json"));
    assert_eq!(replicas["finished"], 2);
    for replica in ["r01", "r02"] {
        let manifest = played.scratch.json(&format!("{FOLDER}/{replica}/run.json"));
        assert_eq!(manifest["target"]["kind"], "embedded");
    }
}

#[test]
fn the_mark_that_session_ids_end_with_on_the_wire_is_in_the_manifest() {
    let answers = || Fake::always(Script::generate(4));
    let (router, prefill, decode) = (answers(), answers(), answers());
    let list = |fake: &Fake| format!("[\"{}\"]", fake.url());
    let run = LiveRun::of(&row("s17", 0, 0.0, 64, 4)).set("live.target", "sglang").set("replay.mechanism", "pd");
    let run = run.set("policy.name", "sticky").set("live.router", &router.url()).set("live.router_kind", "pdreplay");
    let played = run.set("live.prefill", &list(&prefill)).set("live.decode", &list(&decode)).play().code(0);
    let target = &played.manifest()["target"];
    let mark = target["session_mark"].as_str().unwrap();
    assert!(mark.len() == 7 && mark.starts_with('~'), "{target:#}");
    assert_eq!(router.asked()[0].headers["x-smg-routing-key"], format!("s17{mark}"));
    assert_eq!(played.record()["session_id"], "s17", "the trace's own");
    let embedded = embedded(&row("s17", 0, 0.0, 64, 4)).play().code(0);
    assert_eq!(embedded.manifest()["target"]["session_mark"], "");
}
