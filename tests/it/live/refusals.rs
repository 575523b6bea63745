//! What a live run is refused for before it starts, with a remedy, and what it is warned of: `doctor` says the same.

use super::support::fake::{Fake, Reply};
use super::support::process::{Server, post};
use super::support::run::{Api, FOLDER, LiveRun, Played, row};
use super::support::script::Script;

fn list(servers: &[&Server]) -> String {
    let quoted: Vec<String> = servers.iter().map(|server| format!("\"{}\"", server.url)).collect();
    format!("[{}]", quoted.join(","))
}

/// Of three sessions, over SGLang workers at those addresses.
fn run(prefill: &str, decode: &[&Server]) -> LiveRun {
    let trace: String = (0..3).map(|nth| row(&format!("s{nth}"), 0, f64::from(nth) * 0.01, 256, 4)).collect();
    let run = LiveRun::of(&trace).set("live.target", "sglang").set("replay.mechanism", "pd");
    run.set("live.prefill", prefill).set("live.decode", &list(decode))
}

/// What doctor says of the same target.
#[track_caller]
fn doctor(run: &LiveRun, code: i32) -> String {
    let args = run.args_of("doctor");
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    run.scratch.run(&args).code(code).stdout
}

#[test]
fn a_router_that_does_not_read_the_header_is_refused_before_the_run() {
    let (p, d0, d1) = (Server::worker("P0", &[]), Server::worker("D0", &[]), Server::worker("D1", &[]));
    let ignores = Server::router(&[&p], &[&d0, &d1], &["--decode-policy", "round_robin"]);
    let kv =
        |router: &Server| run(&list(&[&p]), &[&d0, &d1]).set("policy.name", "kv-aware").set("live.router", &router.url);
    let refused = kv(&ignores);
    assert!(doctor(&refused, 1).contains("65535 is an index no list has"));
    let played = refused.play().code(2);
    let said = &played.ran.stderr;
    assert!(said.contains("65535 is an index no list has") && said.contains("consistent_hashing"), "{said}");
    // Without a word about policies it reads the header.
    let reads = Server::router(&[&p], &[&d0, &d1], &[]);
    assert_eq!(kv(&reads).play().code(0).count("ok"), 3);
}

#[test]
fn names_that_reach_others_are_refused_before_the_run() {
    let (p, d0, d1) = (Server::worker("P0", &[]), Server::worker("D0", &[]), Server::worker("D1", &[]));
    let router = Server::router(&[&p], &[&d0, &d1], &["--decode-policy", "consistent_hashing"]);
    let by_id = |decode: &[&Server]| {
        let run = run(&list(&[&p]), decode).set("policy.name", "kv-aware").set("live.router", &router.url);
        run.set("live.header.target_value", "id")
    };
    let played = by_id(&[&d0, &d1]).play().code(0);
    assert_eq!(played.count("ok"), 3);
    assert!(!played.ran.stderr.contains("target header"), "{}", played.ran.stderr);
    let swapped = by_id(&[&d1, &d0]);
    assert!(doctor(&swapped, 1).contains("D0: served by D1"));
    let played = swapped.play().code(2);
    assert!(played.ran.stderr.contains("D0: served by D1"), "{}", played.ran.stderr);
}

#[test]
fn a_d_that_the_router_knows_by_another_address_is_the_same_one() {
    let (p, d0, d1) = (Server::worker("P0", &[]), Server::worker("D0", &[]), Server::worker("D1", &[]));
    let router = Server::router(&[&p], &[&d0, &d1], &["--decode-policy", "consistent_hashing"]);
    let other = d0.url.replace("127.0.0.1", "localhost");
    assert_ne!(other, d0.url);
    let run = run(&list(&[&p]), &[&d0, &d1]).set("policy.name", "kv-aware").set("live.router", &router.url);
    let run = run.set("live.decode", &format!("[\"{other}\", \"{}\"]", d1.url));
    let table = doctor(&run, 0);
    assert!(table.contains("all ours") && table.contains("D0=0 D1=1"), "{table}");
    let played = run.play().code(0);
    assert_eq!(played.count("ok"), 3);
    assert!(played.records().iter().all(|record| !record["decode_worker_actual"].is_null()), "{:#?}", played.records());
}

#[test]
fn a_worker_that_never_answers_is_told_before_the_run_and_after_it() {
    let (p, d) = (Server::worker("P0", &[]), Server::worker("D0", &[]));
    let router = Server::router(&[&p], &[&d], &[]);
    let nobody = "http://127.0.0.1:9";
    let prefill = format!("[\"{}\", \"{nobody}\"]", p.url);
    let run = run(&prefill, &[&d]).set("policy.name", "default").set("live.router", &router.url);
    let played = run.play().code(0);
    let said = &played.ran.stderr;
    assert!(said.contains(&format!("warning: workers: P1 at {nobody}: ")), "{said}");
    assert_eq!(played.manifest()["facts"]["harness"]["never_answered"].to_string(), "[\"P1\"]");
    let notes = played.summary()["integrity"]["notes"].to_string();
    assert!(notes.contains("never answered, before the run or in it: P1;"), "{notes}");
}

#[test]
fn the_bootstrap_port_is_the_workers_own_word() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let p = Server::worker("P0", &["--bootstrap-port", &port.to_string()]);
    let d = Server::worker("D0", &[]);
    let direct = |prefill: &str| run(prefill, &[&d]).set("live.legs", "direct").set("policy.name", "default");
    let plain = direct(&list(&[&p]));
    assert!(doctor(&plain, 0).contains("servers of 1 P answer"));
    let played = plain.play().code(0);
    assert_eq!(played.count("ok"), 3, "{:#?}", played.records());
    assert!(played.manifest()["target"].to_string().contains(&format!("\"bootstrap_port\":{port}")));
    let wrong = direct(&format!("[\"{} {}\"]", p.url, d.port()));
    assert!(doctor(&wrong, 1).contains(&format!("it is at port {port}")));
    let played = wrong.play().code(2);
    assert!(played.ran.stderr.contains("or leave the port out"), "{}", played.ran.stderr);
}

#[test]
fn a_d_nobody_listed_and_warm_caches_are_told() {
    let (p, d0, d1) = (Server::worker("P0", &[]), Server::worker("D0", &[]), Server::worker("D1", &[]));
    let router = Server::router(&[&p], &[&d0, &d1], &["--decode-policy", "round_robin"]);
    let one = || run(&list(&[&p]), &[&d0]).set("policy.name", "default").set("live.router", &router.url);
    let first = one().play().code(0);
    let said = &first.ran.stderr;
    assert!(said.contains("1 D that are none of ours") && !said.contains("from before"), "{said}");
    let ledger = first.scratch.read(&format!("{FOLDER}/events.jsonl"));
    assert!(ledger.contains("unlisted-worker") && ledger.contains(&d1.url), "{ledger}");
    let unlisted = &first.manifest()["facts"]["harness"]["unlisted_workers"];
    let served = unlisted[&d1.url].as_u64().unwrap();
    let nameless = first.records().iter().filter(|record| record["decode_worker_actual"].is_null()).count() as u64;
    assert!(served > 0 && served == nameless, "{unlisted}, {nameless} without a worker");
    let notes = first.summary()["integrity"]["notes"].to_string();
    assert!(notes.contains(&format!("none of this run's: {} ({served} request", d1.url)), "{notes}");
    let second = one();
    assert!(doctor(&second, 0).contains("tokens from before"));
    let second = second.play().code(0);
    assert!(second.ran.stderr.contains("tokens from before"), "{}", second.ran.stderr);
    let warm = &second.manifest()["facts"]["harness"]["warm_caches"];
    let notes = second.summary()["integrity"]["notes"].to_string();
    assert!(
        warm["P0"].as_u64().is_some_and(|held| held > 0) && notes.contains("caches were warm: "),
        "{warm}: {notes}"
    );
    for server in [&p, &d0, &d1] {
        post(&server.url, "/flush_cache", &serde_json::json!({})).unwrap();
    }
    let third = one().play().code(0);
    assert!(!third.ran.stderr.contains("tokens from before"), "{}", third.ran.stderr);
    assert_eq!(third.manifest()["facts"]["harness"]["warm_caches"], serde_json::json!({}));
}

#[test]
fn doctor_refuses_what_a_replay_refuses() {
    let fast = ["--emulation-speed", "4"];
    let (p, d) = (Server::worker("P0", &fast), Server::worker("D0", &fast));
    let router = Server::router(&[&p], &[&d], &[]);
    let slow = run(&list(&[&p]), &[&d]).set("policy.name", "default").set("live.router", &router.url);
    assert!(doctor(&slow, 1).contains("--emulation-speed 4"));
    assert!(slow.play().code(2).ran.stderr.contains("--emulation-speed 4"));
}

/// The whole of stderr, lines that were broken put together.
fn said(played: &Played) -> String {
    played.ran.stderr.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn addresses_under_the_wrong_role_are_refused_before_the_run() {
    let (p, d) = (Server::worker("P0", &[]), Server::worker("D0", &[]));
    let direct = |prefill: &Server, decode: &Server| {
        let run = run(&list(&[prefill]), &[decode]);
        run.set("live.legs", "direct").set("policy.name", "default")
    };
    let swapped = direct(&d, &p);
    assert!(doctor(&swapped, 1).contains("P0 says decode, D0 says prefill"));
    let played = swapped.play().code(2);
    let told = said(&played);
    assert!(told.contains("P0 says decode, D0 says prefill; list each address under its own role"), "{told}");
    assert!(!played.scratch.join(FOLDER).exists(), "no run folder is claimed");
    let router = Server::router(&[&p], &[&d], &[]);
    let as_worker = direct(&p, &router);
    assert!(doctor(&as_worker, 1).contains("D0 is a router"));
    let told = said(&as_worker.play().code(2));
    assert!(told.contains("D0 is a router; list each address under its own role"), "{told}");
    assert_eq!(direct(&p, &d).play().code(0).count("ok"), 3);
}

#[test]
fn one_server_by_two_names_is_refused_before_the_run() {
    let fake = Fake::always(Script::chat(2));
    let trace = row("s", 0, 0.0, 30, 2);
    let urls = |second: &str| format!("[\"{}\", \"http://{second}:{}\"]", fake.url(), fake.port());
    for second in ["localhost", "[::ffff:127.0.0.1]", "0.0.0.0"] {
        let twice = || LiveRun::against(&fake, Api::Chat, &trace).set("live.colocated", &urls(second));
        assert!(doctor(&twice(), 1).contains("are one server"), "{second}");
        let played = twice().play().code(2);
        let told = said(&played);
        let port = fake.port();
        let wanted = format!(
            "W0 (http://127.0.0.1:{port}) and W1 (http://{second}:{port}) are one server, at 127.0.0.1:{port}; list each worker once"
        );
        assert!(told.contains(&wanted), "{told}");
    }
    assert!(fake.asked().iter().all(|asked| asked.json()["stream"] == false), "nothing of the run was sent");
    // Two addresses of this machine may be two servers.
    let both = LiveRun::against(&fake, Api::Chat, &trace).set("live.colocated", &urls("[::1]"));
    assert!(said(&both.play()).contains("warning: addresses: it seems that W0"));
}

#[test]
fn servers_that_answer_with_names_of_their_own_are_known_by_them() {
    const BY: &str = "x-served-by";
    let whole = |name: &str| {
        let meta = serde_json::json!({"completion_tokens": 1, "finish_reason": {"type": "length", "length": 1}});
        Script::json(200, &serde_json::json!({"text": "a", "meta_info": meta})).header(BY, name)
    };
    let (p, d0, d1) = (
        Fake::named(BY, "pod-p", whole("pod-p")),
        Fake::named(BY, "pod-a", whole("pod-a")),
        Fake::named(BY, "pod-b", whole("pod-b")),
    );
    // Its list is the other way round.
    let router = Fake::start("127.0.0.1:0", move |asked| {
        let name = match asked.headers.get("x-smg-target-worker").map(String::as_str) {
            Some("0") => "pod-b",
            Some("1") => "pod-a",
            _ => {
                let error = serde_json::json!({"error": {"code": "no_available_workers", "message": "nobody"}});
                return Reply::Answer(Script::json(503, &error));
            }
        };
        let streams = asked.json()["stream"] == true;
        Reply::Answer(if streams { Script::generate(4).header(BY, name) } else { whole(name) })
    });
    let list = |fakes: &[&Fake]| {
        let quoted: Vec<String> = fakes.iter().map(|fake| format!("\"{}\"", fake.url())).collect();
        format!("[{}]", quoted.join(","))
    };
    let run = run(&list(&[&p]), &[]).set("live.decode", &list(&[&d0, &d1])).set("live.served_by.header", BY);
    let run = run.set("policy.name", "kv-aware").set("live.router", &router.url()).set("live.router_kind", "smg");
    let found = doctor(&run, 0);
    assert!(found.contains("D0=1 D1=0, each tried three times"), "{found}");
    let played = run.play().code(0);
    assert_eq!(played.count("ok"), 3, "{:#?}", played.records());
    for record in played.records() {
        assert_eq!(record["decode_worker_actual"], record["decode_worker_intended"], "{record:#}");
    }
}

#[test]
fn a_200_without_a_token_reaches_no_worker() {
    let (p, d) = (Server::worker("P0", &[]), Server::worker("D0", &[]));
    let url = d.url.clone();
    let router = Fake::start("127.0.0.1:0", move |asked| {
        let is_listed = asked.headers.get("x-smg-target-worker").is_some_and(|index| index == "0");
        let error = serde_json::json!({"error": {"code": "no_available_workers", "message": "nobody"}});
        let abort = serde_json::json!({"meta_info": {"finish_reason": {"type": "abort", "message": "no room id"}}});
        Reply::Answer(if is_listed {
            Script::json(200, &abort).header("x-smg-routed-worker-id", &url)
        } else {
            Script::json(503, &error)
        })
    });
    let run = run(&list(&[&p]), &[&d]).set("policy.name", "kv-aware");
    let run = run.set("live.router", &router.url()).set("live.router_kind", "smg");
    assert!(doctor(&run, 1).contains("given up with 200: no room id"));
    let told = said(&run.play().code(2));
    assert!(told.contains("no index reaches D0; index 0: given up with 200: no room id"), "{told}");
}

#[test]
fn a_plain_server_asked_in_tls_is_said_to_be_one() {
    let (p, d) = (Server::worker("P0", &[]), Server::worker("D0", &[]));
    let tls = run(&list(&[&p]).replace("http:", "https:"), &[&d]);
    let tls = tls.set("live.legs", "direct").set("policy.name", "default");
    assert!(doctor(&tls, 1).contains("write http:// in its address"));
    assert!(tls.play().code(2).ran.stderr.contains("write http:// in its address"));
}

#[test]
fn a_limit_of_open_files_that_is_too_low_is_told_before_anything_starts() {
    let within = |files: u32| {
        let trace: String = (0..3).map(|nth| row(&format!("s{nth}"), 0, f64::from(nth) * 0.01, 256, 4)).collect();
        LiveRun::of(&trace).inside(&["sh", "-c", &format!("ulimit -n {files}; exec \"$0\" \"$@\"")])
    };
    let told = said(&within(40).play().code(2));
    assert!(told.contains("but the limit is 40; raise it"), "{told}");
    assert_eq!(within(1000).args(&["--concurrency", "5000"]).play().code(0).count("ok"), 3);
}

#[test]
fn a_d_that_is_down_is_named_before_the_router() {
    let (p, d0, mut d1) = (Server::worker("P0", &[]), Server::worker("D0", &[]), Server::worker("D1", &[]));
    let router = Server::router(&[&p], &[&d0, &d1], &["--decode-policy", "consistent_hashing"]);
    d1.kill();
    let run = run(&list(&[&p]), &[&d0, &d1]).set("policy.name", "kv-aware").set("live.router", &router.url);
    let cause = format!("D1 at {}: connection refused", d1.url);
    assert!(doctor(&run, 1).contains(&cause));
    let told = said(&run.play().code(2));
    assert!(told.contains(&format!("error: {cause}")), "{told}");
}
