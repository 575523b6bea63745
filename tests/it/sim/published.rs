//! Published behaviour that must arise by itself: the v2 failure, starvation under a cap, what binds after it.

use pdreplay::record::{ExecutionMode, LedgerKind, Outcome};
use serde_json::Value;

use super::{conversations, play, scenario};
use crate::run::Scratch;

/// Runs a shipped scenario on the generated trace through the binary; returns what it printed and its summary.
pub fn shipped(name: &str, more: &[&str], code: i32) -> (String, Value, Scratch) {
    let scratch = Scratch::new();
    let args = [&["replay", "--scenario", name, "--name", "run"], more].concat();
    let printed = scratch.run(&args).code(code).stdout;
    let summary = scratch.json("outputs/run/summary.json");
    (printed, summary, scratch)
}

pub fn causes(summary: &Value) -> Vec<&str> {
    summary["causes"].as_array().unwrap().iter().map(|line| line["text"].as_str().unwrap()).collect()
}

#[test]
fn v2_arises_from_two_counters_and_the_report_says_so() {
    for name in ["v2-1p7d", "v2-2p6d"] {
        let (printed, summary, scratch) = shipped(name, &["--allow-conflict"], 1);
        let text = scratch.read("outputs/run/requests.jsonl");
        let (mut later, mut truncated) = (0u32, 0u32);
        for record in text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
            let cut = record["outcome"] == "truncated";
            if record["turn_id"] == 1 {
                assert!(!cut, "{name}: a first turn opens no session: {record}");
                continue;
            }
            later += 1;
            truncated += u32::from(cut);
            if cut {
                assert_eq!(record["output_tokens"], 1, "{name}: {record}");
                let words = record["error_message"].as_str().unwrap();
                assert!(words.contains("session id") && words.contains("does not exist"), "{name}: {words}");
            }
        }
        assert!(truncated * 2 > later, "{name}: {truncated} of {later} later turns are truncated");
        assert_eq!(summary["integrity"]["verdict"], "withheld");
        assert!(printed.contains("withheld: "), "{printed}");
        let counters = causes(&summary)
            .into_iter()
            .find(|line| line.contains("counters diverged after request"))
            .unwrap_or_else(|| panic!("{printed}"));
        assert!(counters.contains("policy default with kvc"), "{counters}");
    }
}

#[test]
fn v2_needs_two_counters_and_more_than_one_worker() {
    let trace = conversations(7, 1.7, &[0.0, 4.0, 9.0, 14.0, 16.0, 24.0, 28.0]);
    let of = |more: &str| play(&trace, &scenario(&["cluster.prefill = 1\nreplay.mechanism = 'kvc'", more]));
    let two = of("cluster.decode = 3\npolicy.name = 'default'");
    assert!(two.count(Outcome::Truncated) > 0 && two.end.facts.counters_diverged_after.is_some());
    assert!(
        two.records.iter().filter(|record| record.outcome == Outcome::Truncated).all(|record| record.route_mismatch)
    );
    // One decode worker: whatever two counters say, it is the same one.
    let one = of("cluster.decode = 1\npolicy.name = 'default'");
    one.all_ok();
    assert_eq!(one.end.facts.counters_diverged_after, None);
    assert!(one.noted(LedgerKind::RouteMismatch).is_empty());
    // The router obeys the policy: no truncation either.
    of("cluster.decode = 3\npolicy.name = 'kv-aware'").all_ok();
    // Without sessions the same two counters harm nobody.
    play(
        &trace,
        &scenario(&["cluster.prefill = 1\ncluster.decode = 3\nreplay.mechanism = 'pd'\npolicy.name = 'default'"]),
    )
    .all_ok();
}

#[test]
fn cap_4_on_7_workers_starves_24_of_52_sessions_that_arrive_together() {
    let (printed, summary, _scratch) = shipped("burst-cap4", &[], 0);
    let starved = &summary["fairness"]["starved"];
    assert_eq!(starved["count"], 24, "{printed}");
    assert_eq!(starved["slot_never_held"], 24);
    assert_eq!(starved["main_reason"], "session-cap");
    assert_eq!(summary["fairness"]["two_peaked"], true);
    let sessions = summary["sessions"].as_array().unwrap();
    let pattern = |session: &Value| session["pattern"].as_str().unwrap().to_owned();
    let (without, with): (Vec<_>, Vec<_>) = sessions.iter().partition(|session| session["starved"] == true);
    for session in &without {
        let pattern = pattern(session);
        assert!(pattern.starts_with('.') && !pattern.contains(['D', 'S', 'R']) && pattern.contains('F'), "{pattern}");
    }
    for session in &with {
        let pattern = pattern(session);
        assert!(pattern.starts_with(".S") && pattern.contains('D'), "{pattern}");
    }
    assert_eq!(with.len(), 28);
    let line = causes(&summary)
        .into_iter()
        .find(|line| line.contains("28 slots (7 D × cap 4) < 52 sessions"))
        .unwrap_or_else(|| panic!("{printed}"));
    assert!(line.contains("24"), "{line}");
    assert!(words(&printed).contains(line), "{printed}");
}

#[test]
fn cap_16_moves_the_bound_to_the_pool() {
    let (printed, summary, _scratch) = shipped("burst-cap4", &["--set", "admission.cap_max=16"], 0);
    let modes = summary["modes"].as_array().unwrap();
    assert!(
        modes.iter().all(|row| row["mode"] != ExecutionMode::FallbackSessionCap.as_str()),
        "112 slots are enough: {printed}"
    );
    let room = causes(&summary)
        .into_iter()
        .find(|line| line.contains("KV capacity binds before the cap"))
        .unwrap_or_else(|| panic!("{printed}"));
    assert!(room.contains("200K"), "{room}");
    assert!(words(&printed).contains(room), "{printed}");
}

/// A text without its line breaks.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
