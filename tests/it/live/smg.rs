//! The real router `smg` before our workers: what a run makes of its index header, its workers that go, its overload
//! protection. Skips, with a plain line, where smg is not installed (scripts/test_tools.sh).

use super::support::process::{Server, Smg, get, wait_for};
use super::support::run::{LiveRun, Played, row};

/// Workers behind smg, with these further flags.
struct Rig {
    prefill: Vec<Server>,
    decode: Vec<Server>,
    smg: Smg,
}

/// How many times faster than real time it goes.
const SPEED: &str = "4";

impl Rig {
    fn start(decode: u16, workers: &[&str], router: &[&str]) -> Option<Rig> {
        let binary = Smg::binary()?;
        let of = |letter: char, count: u16| -> Vec<Server> {
            let flags = [&["--emulation-speed", SPEED], workers].concat();
            (0..count).map(|index| Server::worker(&format!("{letter}{index}"), &flags)).collect()
        };
        let (prefill, decode) = (of('P', 1), of('D', decode));
        let usual = ["--decode-policy", "consistent_hashing", "--disable-retries", "--load-monitor-interval", "1"];
        let (ps, ds): (Vec<&Server>, Vec<&Server>) = (prefill.iter().collect(), decode.iter().collect());
        let smg = Smg::start(&binary, &ps, &ds, &[&usual, router].concat());
        Some(Rig { prefill, decode, smg })
    }

    /// kv-aware over smg, plain P/D.
    fn run(&self, trace: &str) -> LiveRun {
        let list = |servers: &[Server]| {
            let quoted: Vec<String> = servers.iter().map(|server| format!("\"{}\"", server.url)).collect();
            format!("[{}]", quoted.join(","))
        };
        LiveRun::of(trace)
            .set("replay.mechanism", "pd")
            .set("policy.name", "kv-aware")
            .set("live.target", "sglang")
            .set("live.router", &self.smg.url)
            .set("live.prefill", &list(&self.prefill))
            .set("live.decode", &list(&self.decode))
            .set("live.emulation_speed", SPEED)
            .set("live.health_poll_ms", "400")
            .set("replay.stall_timeout_s", "20")
    }
}

/// Sessions of several turns, so many seconds apart.
fn trace(sessions: u32, turns: u32, every_s: f64, tokens: u32) -> String {
    let turn = |session: u32, turn: u32| {
        let at = f64::from(session) * 0.3 + f64::from(turn) * every_s;
        row(&format!("s{session:02}"), turn, at, 128 + 64 * turn, tokens)
    };
    (0..sessions).flat_map(|session| (0..turns).map(move |nth| turn(session, nth))).collect()
}

#[track_caller]
fn adds_up(played: &Played, planned: usize) {
    let records = played.records();
    assert_eq!(records.len(), planned);
    for record in &records {
        let is_whole = record["output_tokens"] == record["expected_output_tokens"];
        assert!(record["outcome"] != "ok" || is_whole, "counted ok: {record:#}");
    }
}

fn mismatches(played: &Played) -> usize {
    played.records().iter().filter(|record| record["route_mismatch"] == true).count()
}

fn ledger(played: &Played) -> String {
    played.scratch.read(&format!("{}/events.jsonl", super::support::run::FOLDER))
}

#[test]
fn kv_aware_over_smg_reaches_the_d_it_chose() {
    let off = ["--disable-worker-overload-protection"];
    let Some(rig) = Rig::start(3, &[], &off) else { return };
    let played = rig.run(&trace(6, 3, 3.0, 8)).play().code(0);
    adds_up(&played, 18);
    assert_eq!((played.count("ok"), mismatches(&played)), (18, 0), "{:#?}", played.records());
    let served: std::collections::BTreeSet<String> =
        played.records().iter().map(|record| record["decode_worker_actual"].to_string()).collect();
    assert!(served.len() > 1, "one D served everything: {served:?}");
    let target = &played.manifest()["target"];
    assert!(target.to_string().contains("1.13.0") && target.to_string().contains("smg"), "{target:#}");
    // The same sessions again after a D has died: its index is another's now, which the answers show.
    let doctor = doctor(&rig);
    assert!(doctor.contains("D0=") && doctor.contains("each tried three times"), "{doctor}");
    assert!(doctor.contains("smg 1.13.0") && doctor.contains("overload protection"), "{doctor}");
}

/// What doctor says of the rig.
fn doctor(rig: &Rig) -> String {
    let run = rig.run("");
    let args: Vec<String> = run.args_of("doctor");
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    run.scratch.run(&args).code(0).stdout
}

/// The D at index 0, by what doctor says.
fn first_in_list(doctor: &str) -> usize {
    let pair = doctor.split([' ', ',']).find(|word| word.starts_with('D') && word.ends_with("=0")).unwrap();
    pair[1..pair.len() - 2].parse().unwrap()
}

#[test]
fn a_worker_killed_behind_smg_is_seen_and_the_routes_are_found_anew() {
    let off = [
        "--disable-worker-overload-protection",
        "--health-check-interval-secs",
        "1",
        "--health-failure-threshold",
        "1",
    ];
    let Some(mut rig) = Rig::start(3, &[], &off) else { return };
    // The first of smg's own list: every other one's index moves.
    let first = first_in_list(&doctor(&rig));
    let playing = rig.run(&trace(6, 6, 5.0, 8)).start();
    wait_for("some requests have ended", || (playing.ended() >= 6).then_some(()));
    rig.decode[first].kill();
    let played = playing.wait();
    adds_up(&played, 36);
    let records = played.records();
    let ok = played.count("ok");
    assert!(ok >= 18, "only {ok} of 36: {records:#?}");
    assert!(ledger(&played).contains("route-map-changed"), "{}", ledger(&played));
    let late: Vec<_> = records.iter().filter(|record| record["turn_id"] == 5).collect();
    let settled = late.iter().filter(|record| record["outcome"] == "ok" && record["route_mismatch"] == false).count();
    assert!(settled >= late.len() / 2, "the routes were not found anew: {late:#?}");
}

/// One D that serves one request at a time, under a burst: smg sheds it while eight or more wait.
#[test]
fn overload_protection_of_smg_shows_as_mismatches_and_is_quiet_when_off() {
    let narrow = ["--set", "engine.max_running=1", "--set", "engine.timing.d0=40"];
    for (flags, is_on) in [(&[][..], true), (&["--disable-worker-overload-protection"][..], false)] {
        let Some(rig) = Rig::start(2, &narrow, flags) else { return };
        // One session's prefix draws all to one D, for longer than smg's look at the loads takes.
        let burst: String = (0..60).map(|nth| row("same", nth, f64::from(nth) * 0.25, 640, 20)).collect();
        let played = rig.run(&burst).set("replay.schedule", "open-strict").play();
        adds_up(&played, 60);
        let refused = played.records().iter().filter(|record| record["http_status"] == 503).count();
        let seen = mismatches(&played) + refused;
        assert_eq!(seen > 0, is_on, "{} mismatches, {refused} refused", mismatches(&played));
    }
}

#[test]
fn smg_counts_its_workers_anew_and_so_do_we() {
    let Some(mut rig) = Rig::start(3, &[], &["--health-check-interval-secs", "1", "--health-failure-threshold", "1"])
    else {
        return;
    };
    assert!(doctor(&rig).contains("target header"));
    rig.decode[1].kill();
    wait_for("smg has noticed", || {
        let reply = get(&rig.smg.url, "/readiness")?;
        reply.contains("\"healthy_workers\":3").then_some(())
    });
    let run = rig.run("");
    let args = run.args_of("doctor");
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let told = run.scratch.run(&args).code(1);
    assert!(told.stdout.contains("no index reaches D1"), "{}", told.stdout);
    assert!(told.stdout.contains("connection refused"), "{}", told.stdout);
}
