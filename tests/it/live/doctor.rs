//! `pdreplay doctor`: what it says of targets good and bad, and that it always ends.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::support::fake::Fake;
use super::support::process::Server;
use super::support::script::{End, Script};
use crate::run::{Ran, Scratch};

fn doctor(args: &[&str]) -> Ran {
    Scratch::new().run(&[&["doctor"], args].concat())
}

/// The check of that name in `--json`.
#[track_caller]
fn check(ran: &Ran, name: &str) -> Value {
    let checks: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:#?}"));
    let found = checks.as_array().unwrap().iter().find(|check| check["check"] == name);
    found.unwrap_or_else(|| panic!("no `{name}`: {checks:#}")).clone()
}

fn result(ran: &Ran, name: &str) -> String {
    check(ran, name)["result"].as_str().unwrap().to_owned()
}

#[test]
fn the_embedded_cluster_has_everything() {
    let ran = doctor(&["--policy", "kv-aware", "--set", "live.emulation_speed=10", "--json"]).code(0);
    for name in ["workers", "one token", "router", "target header", "sessions", "admission", "loads", "KV capacity"] {
        assert_eq!(result(&ran, name), "ok", "{:#}", check(&ran, name));
    }
    assert_eq!(result(&ran, "KV events"), "off");
}

#[test]
fn every_format_has_every_check() {
    let dp = ["--mechanism", "dp", "--policy", "default", "--set", "cluster.colocated=2"];
    let of = |format: &str| doctor(&[&dp[..], &["--format", format]].concat()).code(0).stdout;
    assert!(of("csv").starts_with("check,result,detail,will_be_off,remedy\n"));
    assert!(of("markdown").starts_with("| check | result | detail |"));
    let table = of("table");
    assert!(table.starts_with("check") && table.contains("\nKV events"), "{table}");
    assert!(table.contains("the workers do not say whether") && !table.contains("off KV events:"), "{table}");
    assert!(table.contains("answered 2 times") && !table.contains("router"), "{table}");
}

#[test]
fn a_stock_worker_lacks_admission_and_the_rest_is_said_too() {
    let prefill = Server::worker("P0", &[]);
    let decode = Server::worker("D0", &["--no-admission", "--no-streaming-session"]);
    let addresses =
        ["--prefill", &format!("{} {}", prefill.url, prefill.port()), "--decode", &decode.url].map(str::to_owned);
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    let direct = ["--policy", "sticky", "--set", "live.legs=direct", "--json"];
    let ran = doctor(&[&addresses[..], &direct].concat()).code(1);
    assert_eq!((result(&ran, "admission").as_str(), result(&ran, "sessions").as_str()), ("warn", "fail"));
    assert_eq!(result(&ran, "one token"), "ok", "{:#}", check(&ran, "one token"));
    let plain = doctor(&[&addresses[..], &direct, &["--mechanism", "pd"]].concat()).code(0);
    assert_eq!((result(&plain, "admission").as_str(), result(&plain, "sessions").as_str()), ("off", "off"));
}

#[test]
fn swapped_addresses_and_a_router_that_ignores_the_header_are_found_out() {
    let (prefill, first, second) = (Server::worker("P0", &[]), Server::worker("D0", &[]), Server::worker("D1", &[]));
    let router = Server::router(&[&prefill], &[&first, &second], &["--decode-policy", "round_robin"]);
    let kv = ["--policy", "kv-aware", "--mechanism", "pd", "--json", "--router", &router.url];
    let right = ["--prefill", &prefill.url, "--decode", &first.url, "--decode", &second.url];
    let ran = doctor(&[&kv[..], &right].concat()).code(1);
    let found = check(&ran, "target header");
    assert_eq!(found["result"], "fail");
    assert!(found["remedy"].as_str().unwrap().contains("consistent_hashing"), "{found:#}");
    let swapped = ["--prefill", &first.url, "--decode", &prefill.url, "--decode", &second.url];
    let found = check(&doctor(&[&kv[..], &swapped].concat()).code(1), "roles");
    assert_eq!(found["detail"], "P0 says decode, D0 says prefill");
}

#[test]
fn a_router_with_another_order_is_mapped() {
    let (prefill, first, second) = (Server::worker("P0", &[]), Server::worker("D0", &[]), Server::worker("D1", &[]));
    let router = Server::router(&[&prefill], &[&second, &first], &["--decode-policy", "consistent_hashing"]);
    let args = ["--policy", "kv-aware", "--mechanism", "pd", "--json", "--router", &router.url];
    let ours = ["--prefill", &prefill.url, "--decode", &first.url, "--decode", &second.url];
    let found = check(&doctor(&[&args[..], &ours].concat()).code(0), "target header");
    assert_eq!(found["detail"], "D0=1 D1=0, each tried three times");
}

#[test]
fn a_header_with_urls_or_ids_is_tried_as_the_run_sends_it() {
    let (prefill, first, second) = (Server::worker("P0", &[]), Server::worker("D0", &[]), Server::worker("D1", &[]));
    let router = |policy| Server::router(&[&prefill], &[&first, &second], &["--decode-policy", policy]);
    let ours = ["--prefill", &prefill.url, "--decode", &first.url, "--decode", &second.url];
    let (follows, ignores) = (router("consistent_hashing"), router("round_robin"));
    for value in ["url", "id"] {
        let set = format!("live.header.target_value={value}");
        let of = |router: &Server| {
            let args = ["--policy", "kv-aware", "--mechanism", "pd", "--json", "--router", &router.url, "--set", &set];
            doctor(&[&args[..], &ours].concat())
        };
        let ran = of(&follows).code(0);
        assert_eq!((result(&ran, "target header").as_str(), result(&ran, "one token").as_str()), ("ok", "ok"));
        assert_eq!(result(&of(&ignores).code(1), "target header"), "fail");
    }
}

#[test]
fn nobody_there_is_a_failure_and_no_crash() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let ran = doctor(&["--mechanism", "dp", "--policy", "default", "--worker", &format!("http://{gone}"), "--json"]);
    let found = check(&ran.code(1), "workers");
    assert!(found["detail"].as_str().unwrap().contains("connection refused"), "{found:#}");
}

#[test]
fn a_target_that_hangs_cannot_hang_the_doctor() {
    // They accept connections by their backlog and never read.
    let mute = [(); 4].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [router, prefill, first, second] = mute.each_ref().map(|it| format!("http://{}", it.local_addr().unwrap()));
    let all = ["--router", &router, "--prefill", &prefill, "--decode", &first, "--decode", &second];
    let began = Instant::now();
    let ran = doctor(&[&["--policy", "kv-aware", "--mechanism", "pd", "--json"], &all[..]].concat());
    assert!(began.elapsed() < Duration::from_secs(20), "took {:?}", began.elapsed());
    assert!(check(&ran.code(1), "workers")["detail"].as_str().unwrap().contains("no answer within"));
}

#[test]
fn an_openai_server_is_asked_for_one_token_of_its_own_model() {
    let fake =
        Fake::always(Script::json(200, &serde_json::json!({"choices": [{"text": "a", "finish_reason": "length"}]})));
    let ran = doctor(&["--mechanism", "dp", "--policy", "default", "--worker", &fake.url(), "--json"]).code(0);
    assert_eq!(result(&ran, "one token"), "ok");
    let asked = fake.asked();
    assert_eq!((asked.len(), asked[0].json()["model"].as_str()), (1, Some("emu")));
    let hangs = Fake::always(Script::events(&[]).ending(End::Hang, 0));
    let ran = doctor(&["--mechanism", "dp", "--policy", "default", "--worker", &hangs.url(), "--json"]).code(1);
    assert_eq!(result(&ran, "one token"), "fail");
}

#[test]
fn a_key_is_sent_and_never_shown() {
    let secret = "sk-doctor-4711";
    let scratch = Scratch::new();
    let fake = Fake::always(Script::json(401, &serde_json::json!({"error": {"message": "no"}})));
    let args = ["doctor", "--mechanism", "dp", "--policy", "default", "--worker", &fake.url(), "--api-key-env", "KEY"];
    let ran = Ran::of(scratch.command(&args).env("KEY", secret).output().unwrap()).code(1);
    assert!(ran.stdout.contains("authorization") && ran.stdout.contains("check the key"), "{ran:#?}");
    assert!(!ran.stdout.contains(secret) && !ran.stderr.contains(secret), "{ran:#?}");
    assert_eq!(fake.asked()[0].headers["authorization"], format!("Bearer {secret}"));
}

#[test]
fn bad_usage_is_refused_before_anything_is_asked() {
    doctor(&["--worker", "not a url"]).refused(&["not a url"]);
    doctor(&["--set", "live.nothing=1"]).refused(&["live.nothing"]);
    let scratch = Scratch::new();
    scratch.write("headers.txt", "X Team: spaced\n");
    scratch.write("ca.pem", "-----BEGIN CERTIFICATE-----\nno base64\n-----END CERTIFICATE-----\n");
    let worker = ["--mechanism", "dp", "--policy", "default", "--worker", "https://127.0.0.1:9"];
    for (file, key) in [("headers.txt", "headers_file"), ("ca.pem", "ca_file")] {
        scratch.run(&[&["doctor"], &worker[..], &["--set", &format!("live.{key}={file}")]].concat()).refused(&[key]);
    }
}
