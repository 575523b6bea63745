//! A run in a network namespace of its own, whose loopback goes down or loses packets in the middle. Skips, with a plain
//! line, where this machine allows no namespaces or has no packet loss to give.

use std::process::{Command, Stdio};

use super::support::run::{LiveRun, Played, row};

/// Runs `prepare` (shell) in a new namespace with its loopback up; whether that is possible here.
fn can(prepare: &str) -> bool {
    let script = format!("ip link set lo up && {prepare}");
    let status = Command::new("unshare").args(["-rn", "sh", "-c", &script]).stderr(Stdio::null()).status();
    let can = status.is_ok_and(|status| status.success());
    if !can {
        println!("skipped: `{script}` in a namespace is not possible here");
    }
    can
}

/// A run on the embedded cluster in a namespace, after `prepare`, which may leave work in the background.
fn play(prepare: &str, trace: &str) -> Played {
    LiveRun::of(trace)
        .set("replay.mechanism", "pd")
        .set("policy.name", "default")
        .set("cluster.decode", "2")
        .set("replay.stall_timeout_s", "2")
        .set("replay.request_timeout_s", "6")
        .set("live.control_timeout_s", "1")
        .set("live.connect_timeout_s", "1")
        .inside(&["unshare", "-rn", "sh", "-c", &format!("ip link set lo up && {prepare} exec \"$@\""), "sh"])
        .play()
}

/// Two requests a second.
fn trace(requests: u32) -> String {
    (0..requests).map(|nth| row(&format!("s{nth:02}"), 0, f64::from(nth) * 0.5, 128, 30)).collect()
}

#[track_caller]
fn sound(played: &Played, planned: usize) {
    let records = played.records();
    assert_eq!(records.len(), planned, "{:#?}", played.ran);
    for record in records {
        let is_whole = record["output_tokens"] == record["expected_output_tokens"];
        assert!(record["outcome"] != "ok" || is_whole, "counted ok: {record:#}");
    }
}

#[test]
fn a_network_that_goes_away_ends_in_time_outs_and_comes_back_for_the_rest() {
    if !can("true") {
        return;
    }
    let played = play("(sleep 3; ip link set lo down; sleep 2; ip link set lo up) &", &trace(17));
    sound(&played, 17);
    let records = played.records();
    assert_eq!(records[0]["outcome"], "ok", "{:#}", records[0]);
    assert!(played.count("ok") < 17, "the network was never away");
    assert_eq!(records[16]["outcome"], "ok", "it did not come back: {:#}", records[16]);
}

#[test]
fn lost_packets_cost_time_and_not_answers() {
    let loss = "tc qdisc add dev lo root netem loss 3%";
    if !can(loss) {
        return;
    }
    let played = play(&format!("{loss} &&"), &trace(12));
    sound(&played, 12);
    assert!(played.count("ok") >= 9, "{:#?}", played.records());
}
