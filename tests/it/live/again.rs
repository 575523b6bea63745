//! Runs one after another on the same servers: what an earlier run left there is not the next one's.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::support::process::Server;
use super::support::run::{LiveRun, row};

/// Four sessions of three turns, each turn long after the one before.
fn trace() -> String {
    let turns = |session: u32| {
        (0..3).map(move |turn| {
            let at_s = f64::from(session) * 0.2 + f64::from(turn) * 3.0;
            row(&format!("s{session}"), turn, at_s, 192 + 128 * turn, 8)
        })
    };
    (0..4).flat_map(turns).collect()
}

fn run(router: &Server, prefill: &Server, decode: &Server) -> LiveRun {
    let addresses = ["--router", &router.url, "--prefill", &prefill.url, "--decode", &decode.url];
    let bootstrap = format!("[\"{} {}\"]", prefill.url, prefill.port());
    let run = LiveRun::of(&trace()).args(&addresses).args(&["--emulation-speed", "10"]);
    run.set("live.prefill", &bootstrap)
}

#[test]
fn a_killed_run_spoils_nothing_for_the_next_one_on_the_same_servers() {
    let speed = ["--emulation-speed", "10"];
    let (p, d) = (Server::worker("P0", &speed), Server::worker("D0", &speed));
    let router = Server::router(&[&p], &[&d], &["--decode-policy", "consistent_hashing"]);
    let killed = run(&router, &p, &d).start();
    let began = Instant::now();
    while killed.ended() < 9 {
        assert!(began.elapsed() < Duration::from_secs(60), "no 9 records were written");
        std::thread::sleep(Duration::from_millis(5));
    }
    // Its sessions are open on D0 and stay so.
    drop(killed);
    let played = run(&router, &p, &d).play().code(0);
    assert_eq!(played.count("ok"), 12, "{:#?}", played.ran);
    let direct = |record: &&Value| record["execution_mode"] == "kvcache-direct-to-d-session";
    let records = played.records();
    assert_eq!(records.iter().filter(direct).count(), 4, "every third turn finds its session: {records:#?}");
    let asks = records.iter().filter(|record| !record["execution_mode"].to_string().contains("open-failed"));
    assert_eq!(asks.count(), 12);

    // Accounts are of the run, whatever the workers did before.
    let again = run(&router, &p, &d).play().code(0);
    let accounts = again.manifest()["facts"]["workers"].clone();
    let of = |worker: &str, field: &str| -> f64 {
        let of_worker = accounts.as_array().unwrap().iter().find(|account| account["worker"] == worker).unwrap();
        of_worker[field].as_f64().unwrap()
    };
    assert_eq!((of("D0", "requests"), of("P0", "requests")), (12.0, 8.0), "{accounts:#}");
    assert_eq!(of("D0", "output_tokens"), 96.0, "{accounts:#}");
    assert!(of("D0", "busy_share") > 0.0 && of("D0", "busy_share") <= 1.0);
    let harness = &again.manifest()["facts"]["harness"];
    assert!(harness["older_peaks"].to_string().contains("D0"), "{harness:#}");
    assert!(again.ran.stdout.contains("may be older than the run"), "{}", again.ran.stdout);
}
