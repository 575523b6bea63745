//! Cases of the shared list that virtual time has too, over real HTTP: by the emulated router as a process, by a client
//! that joins the legs, by an embedded cluster.

use serde_json::Value;

use super::support::process::{Server, load, wait_for};
use super::support::run::{LiveRun, Played};
use crate::cli::records;
use crate::run::case_path;

/// Times faster than real time: D's wait of 30 s is still longer than a slow machine is late.
const SPEED: &str = "4";

/// Half of D's wait: what takes longer has waited for KV that does not come.
const SOON_MS: f64 = 15_000.0;

const CASE_58: &str = "
cluster = { prefill = 1, decode = 1, transfer_timeout_s = 30.0 }
engine.max_running = 4
replay.mechanism = 'pd'
policy.name = 'default'
integrity.max_bad_share = 1.0
";

/// The emulated workers' own: a client of real servers is not told of it.
const FAULT_58: &str = "
fault = [{ kind = 'error-response', worker = 'P0', after_requests = 3, times = 4, status = 500, after_s = 0.02 }]
";

/// By the scenario with the fault, `case.toml`, or by `calm.toml` without it.
fn case_58(scenario: &str) -> LiveRun {
    let trace = std::fs::read_to_string(case_path("58-prefill-fails-while-decode-waits/trace.jsonl")).unwrap();
    let run = LiveRun::of(&trace);
    run.scratch.write("case.toml", &(CASE_58.to_owned() + FAULT_58));
    run.scratch.write("calm.toml", CASE_58);
    run.args(&["-s", scenario, "--emulation-speed", SPEED])
}

/// What is decided, request by request.
fn decided(records: &[Value]) -> Vec<Value> {
    const FIELDS: [&str; 7] =
        ["session_id", "outcome", "error_class", "http_status", "output_tokens", "prefill_worker", "execution_mode"];
    let of = |record: &Value| FIELDS.iter().map(|field| record[*field].clone()).collect();
    records.iter().map(of).collect()
}

/// The four fail at once by P0's doing; D's four slots are free for those behind them.
#[track_caller]
fn as_the_case_says(played: &Played) {
    played.sound();
    let records = played.records();
    assert_eq!((played.count("ok"), played.count("error")), (16, 4), "{records:#?}");
    for record in &records {
        assert!(record["e2e_ms"].as_f64().unwrap() < SOON_MS, "it waited: {record:#}");
        if record["outcome"] == "ok" {
            continue;
        }
        assert_eq!((&record["error_class"], &record["http_status"]), (&"prefill-failed".into(), &500.into()));
        assert_eq!((&record["prefill_worker"], &record["output_tokens"]), (&"P0".into(), &0.into()), "{record:#}");
        let words = record["error_message"].as_str().unwrap();
        assert!(words.contains("prefill failed on P0") && words.contains("500"), "{words}");
    }
    let failed: Vec<&Value> = records.iter().filter(|record| record["outcome"] == "error").collect();
    let failed: Vec<&str> = failed.iter().map(|record| record["session_id"].as_str().unwrap()).collect();
    assert_eq!(failed, ["q03", "q04", "q05", "q06"]);
    let sim = played.scratch.run(&["replay", "trace.jsonl", "-q", "-s", "case.toml", "--name", "sim"]).code(0);
    assert!(sim.stderr.is_empty(), "{sim:#?}");
    let mut virtual_time = records_of(played, "sim");
    virtual_time.sort_by_key(|record| record["session_id"].to_string());
    assert_eq!(decided(&virtual_time), decided(&records), "virtual and live differ");
}

fn records_of(played: &Played, name: &str) -> Vec<Value> {
    records(&played.scratch, &format!("outputs/{name}"))
}

#[test]
fn case_58_a_failed_prefill_frees_the_decode_leg_behind_a_router() {
    let run = case_58("calm.toml");
    let path = run.scratch.join("case.toml");
    let flags = ["-s", path.to_str().unwrap(), "--emulation-speed", SPEED];
    let (p, d) = (Server::worker("P0", &flags), Server::worker("D0", &flags));
    let router = Server::router(&[&p], &[&d], &[]);
    let at = format!("[\"{} {}\"]", p.url, p.port());
    let run = run.args(&["--router", &router.url, "--decode", &d.url]).set("live.prefill", &at);
    as_the_case_says(&run.play().code(0));
    wait_for("nothing is left on D", || {
        let load = load(&d)?;
        let queues = &load["disaggregation"];
        let left = [&load["num_running_reqs"], &load["num_waiting_reqs"], &queues["decode_transfer_queue_reqs"]];
        left.iter().all(|count| count.as_u64() == Some(0)).then_some(())
    });
}

#[test]
fn case_58_a_failed_prefill_frees_the_decode_leg_that_the_client_holds() {
    as_the_case_says(&case_58("case.toml").set("live.legs", "direct").play().code(0));
}

#[test]
fn case_58_a_failed_prefill_frees_the_decode_leg_of_an_embedded_cluster() {
    as_the_case_says(&case_58("case.toml").play().code(0));
}
