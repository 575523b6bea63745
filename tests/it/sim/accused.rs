//! Who is accused of failed transfers, of slowness, of held slots: emulated faults, the same without them, and loads that only
//! look like them.

use serde_json::{Value, json};

use super::published::causes;
use crate::run::Scratch;

/// 3 P and 4 D: neither counts as the other does, so that every pair meets. Sessions on D make the transfers uneven.
const CLUSTER: [&str; 6] = ["--scenario", "v3-2p6d", "--set", "cluster.prefill=3", "--set", "cluster.decode=4"];

/// A run whose failures are the point; its summary.
fn run(args: &[&str]) -> Value {
    run_in(&Scratch::new(), args)
}

fn run_in(scratch: &Scratch, args: &[&str]) -> Value {
    let any_end = ["--allow-conflict", "--set", "integrity.max_bad_share=1"];
    let plain = ["replay", "-q", "--no-preflight", "--name", "run", "--overwrite"];
    scratch.run(&[&plain, &any_end[..], args].concat()).code(0);
    scratch.json("outputs/run/summary.json")
}

fn with_faults(faults: &[String]) -> Value {
    let faults = format!("fault=[{}]", faults.join(","));
    run(&[&CLUSTER[..], &["--set", &faults]].concat())
}

/// Transfers over this pair fail at once, with more keys.
fn failing(p: usize, d: usize, more: &str) -> String {
    format!("{{kind='transfer-failure',worker='P{p}',to='D{d}'{more}}}")
}

fn cause<'a>(summary: &'a Value, name: &str) -> Option<&'a Value> {
    summary["causes"].as_array().unwrap().iter().find(|line| line["cause"] == name)
}

/// What the errors are said to sit on: `link P1 D2`, `prefill P1`, `decode D2`.
fn accused(summary: &Value) -> Vec<String> {
    let Some(line) = cause(summary, "transfer-errors-concentrated") else { return Vec::new() };
    let words = |found: &Value| {
        let ends = ["on", "prefill_worker", "decode_worker"].map(|key| found[key].as_str().unwrap_or_default());
        ends.join(" ").split_whitespace().collect::<Vec<_>>().join(" ")
    };
    line["found"].as_array().unwrap().iter().map(words).collect()
}

#[test]
fn failing_transfers_accuse_the_link_the_p_or_the_d_that_fails_and_nobody_where_all_do() {
    for few in ["", ",times=8"] {
        let link = vec![failing(1, 2, few)];
        let prefill = (0..4).map(|d| failing(1, d, &few.replace('8', "3"))).collect::<Vec<_>>();
        let decode = (0..3).map(|p| failing(p, 2, &few.replace('8', "4"))).collect::<Vec<_>>();
        for (faults, guilty) in [(link, "link P1 D2"), (prefill, "prefill P1"), (decode, "decode D2")] {
            let summary = with_faults(&faults);
            assert_eq!(accused(&summary), [guilty], "few: `{few}`: {:#?}", causes(&summary));
            let failed = &summary["transfers"]["errors"];
            assert_eq!(cause(&summary, "transfer-errors-concentrated").unwrap()["all_errors"], *failed);
        }
    }
    let both = with_faults(&[failing(0, 3, ""), failing(2, 1, ",times=20")]);
    assert_eq!(accused(&both), ["link P0 D3", "link P2 D1"], "{:#?}", causes(&both));
}

#[test]
fn without_a_fault_or_with_the_same_one_on_all_pairs_nobody_is_accused() {
    let calm = run(&CLUSTER);
    assert!(accused(&calm).is_empty(), "{:#?}", causes(&calm));
    // Every pair fails for half a second in every forty: the busy ones more often.
    let pairs = || (0..3).flat_map(|p| (0..4).map(move |d| (p, d)));
    let every =
        |(p, d): (usize, usize)| (1..60).map(move |k| failing(p, d, &format!(",at_s={},duration_s=0.5", k * 40)));
    let same = with_faults(&pairs().flat_map(every).collect::<Vec<_>>());
    assert!(same["transfers"]["errors"].as_u64().unwrap() >= 20, "{}", same["transfers"]["errors"]);
    assert!(accused(&same).is_empty(), "{:#?}", causes(&same));
}

#[test]
fn time_outs_accuse_who_has_most_of_them_far_more_than_others_and_load_accuses_nobody() {
    let slow = |kind: &str, worker: &str, more: &str| vec![format!("{{kind='{kind}',worker='{worker}'{more}}}")];
    let late = |p: usize| (0..4).map(|d| failing(p, d, ",after_s=40")).collect::<Vec<_>>();
    for (faults, guilty) in [
        (late(1), "prefill P1"),
        (vec![failing(1, 2, ",after_s=40")], "link P1 D2"),
        (slow("slow-link", "D2", ",factor=50"), "decode D2"),
        (slow("slow-link", "P1", ",to='D2',factor=400"), "link P1 D2"),
    ] {
        let summary = with_faults(&faults);
        assert_eq!(accused(&summary), [guilty], "{faults:?}: {:#?}", causes(&summary));
        let found = &cause(&summary, "transfer-errors-concentrated").unwrap()["found"][0];
        assert_eq!((&found["failed_by"], &found["p_value"]), (&"time-out".into(), &Value::Null));
    }
    // P1 breaks off and makes others late: it alone is accused.
    let breaks = with_faults(&(0..4).map(|d| failing(1, d, ",after_s=20")).collect::<Vec<_>>());
    assert_eq!(accused(&breaks), ["prefill P1"], "{:#?}", causes(&breaks));
    // A P that is slow makes others late, on any link; so does a burst.
    let four = ["--scenario", "v3-2p6d", "--set", "cluster.prefill=2", "--set", "cluster.decode=4"];
    let slow_p = "fault=[{kind='slow-worker',worker='P1',factor=3}]";
    let more = ["--set", "replay.time_scale=3", "--set", "trace.seed=2639", "--set", slow_p];
    let burst = ["--set", "replay.time_scale=30", "--set", "cluster.transfer_timeout_s=3"];
    for args in [more.as_slice(), &burst] {
        let summary = run(&[&four[..], args].concat());
        assert!(accused(&summary).is_empty(), "{:#?}", causes(&summary));
        let line = cause(&summary, "transfer-errors").unwrap();
        assert!(line["timeouts"].as_u64().unwrap() >= 10 && line["most_timeouts"]["worker"].is_string(), "{line}");
        let text = line["text"].as_str().unwrap();
        assert!(text.contains("alone accuses nobody; most at ") && !text.contains("chance"), "{text}");
    }
}

/// Names of the slow and how much slower they are.
fn slow(summary: &Value) -> Vec<(String, f64)> {
    let Some(line) = cause(summary, "slow-workers") else { return Vec::new() };
    let words = |slow: &Value| (slow["worker"].as_str().unwrap().to_owned(), slow["factor"].as_f64().unwrap());
    line["workers"].as_array().unwrap().iter().map(words).collect()
}

#[test]
fn a_slow_worker_is_named_with_its_factor_and_not_once_it_is_as_fast_as_others() {
    let seven = ["--scenario", "v3-2p6d", "--set", "cluster.prefill=7", "--set", "cluster.decode=4"];
    let of = |base: &[&str], worker: &str, factor: f64| {
        let fault = format!("fault=[{{kind='slow-worker',worker='{worker}',factor={factor}}}]");
        run(&[base, &["--set", &fault]].concat())
    };
    let mean = |summary: &Value| summary["mean_e2e_ms"].as_f64().unwrap();
    let equal = run(&seven);
    assert!(slow(&equal).is_empty(), "{:#?}", causes(&equal));
    for (worker, factor) in [("P3", 5.0), ("P6", 2.0), ("D1", 5.0), ("D1", 2.0)] {
        let summary = of(&seven, worker, factor);
        let found = slow(&summary);
        assert!(found.len() == 1 && found[0].0 == worker, "{worker}: {:#?}", causes(&summary));
        assert!((found[0].1 / factor - 1.0).abs() < 0.15, "{worker} is {factor} times slower: {}", found[0].1);
        assert!(mean(&equal) < mean(&summary), "what is named is of use when it is taken away");
    }
    // One of two: the other is not the slow one. One of eight that do both.
    for (base, worker) in [(&["--scenario", "v3-2p6d"], "P1"), (&["--scenario", "dp8"], "W1")] {
        let summary = of(base, worker, 3.0);
        let found = slow(&summary);
        assert!(found.len() == 1 && found[0].0 == worker, "{worker}: {:#?}", causes(&summary));
    }
    // A little slower than others is not slow.
    assert!(slow(&of(&seven, "P3", 1.2)).is_empty());
}

/// Pairs of sessions: in each pair the first goes to P0 and the second to P1, which is idle then. Each has its prompt tokens by
/// turn, and the times of its turns.
fn pairs(count: u32, turns: u32, of: impl Fn(usize, u32, u32) -> (f64, u32)) -> String {
    let mut rows = Vec::new();
    for (pair, of_pair, turn) in (0..count).flat_map(|k| (0..2).flat_map(move |of| (0..turns).map(move |t| (k, of, t))))
    {
        let (at, input) = of(of_pair, pair, turn);
        let at = if turn == 0 { f64::from(pair) * 4.0 + of_pair as f64 / 1000.0 } else { 200.0 + at };
        let session = format!("{}{pair}", ["first", "second"][of_pair]);
        rows.push((at, json!({"session_id": session, "turn_id": turn, "timestamp": at, "input_length": input, "output_length": 60})));
    }
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    rows.into_iter().map(|(_, row)| format!("{row}\n")).collect()
}

#[test]
fn equal_workers_with_longer_prompts_or_a_higher_load_are_not_slow() {
    // From 4,000 to 16,000 tokens they have prompts of the same length, in other shares.
    let longer = pairs(40, 8, |of, pair, turn| {
        let input = if of == 0 { 4_000 + 3_000 * turn } else { 600 + 2_200 * turn } + 13 * pair;
        (f64::from(turn * 60 + pair) + [0.0, 0.4][of], input)
    });
    // The one's turns come at once, 40 at a time; the other's come one by one.
    let rush = pairs(40, 8, |of, pair, turn| {
        let apart = if of == 0 { 1.4 } else { 0.0005 };
        (f64::from(turn * 60) + f64::from(pair) * apart, 500 + 217 * pair + 400 * turn)
    });
    let scratch = Scratch::new();
    for (name, rows) in [("longer", longer), ("rush", rush)] {
        scratch.write("trace.jsonl", &rows);
        let split = [
            "trace.jsonl",
            "--mechanism=pd",
            "--policy=sticky",
            "--set=cluster.prefill=2",
            "--set=cluster.decode=2",
            "--set=cluster.router.prefill_policy=manual",
            "--set=cluster.router.decode_policy=manual",
        ];
        let summary = run_in(&scratch, &split);
        let loads = summary["workers"].as_array().unwrap().iter().map(|row| row["requests"].as_u64().unwrap());
        assert_eq!(loads.collect::<Vec<_>>(), [320, 320, 320, 320], "{name}: each session of a pair has a P and a D");
        assert!(slow(&summary).is_empty(), "{name}: {:#?}", causes(&summary));
        // It is not for want of prompts to compare.
        let fault = "--set=fault=[{kind='slow-worker',worker='P0',factor=3}]";
        let found = slow(&run_in(&scratch, &[&split[..], &[fault]].concat()));
        assert!(found.len() == 1 && found[0].0 == "P0", "{name}: {found:?}");
    }
    for shipped in ["v4-1p7d", "v5-2p6d", "dp8", "burst-cap4"] {
        let summary = run_in(&scratch, &["--scenario", shipped]);
        assert!(slow(&summary).is_empty(), "{shipped}: {:#?}", causes(&summary));
    }
}

/// Turns that fell back for want of a slot, and those that the sessions which have ended are said to have cost.
fn refused(base: &[&str], release: &str) -> (f64, f64) {
    let summary = run(&[base, &["--set", &format!("admission.slot_release={release}")]].concat());
    let ended = cause(&summary, "ended-sessions-hold-slots").map_or(0.0, |line| line["refusals"].as_f64().unwrap());
    let modes = summary["modes"].as_array().unwrap();
    let capped = modes.iter().find(|row| row["mode"] == "pd-router-fallback-large-append-session-cap");
    (capped.map_or(0.0, |row| row["n"].as_f64().unwrap()), ended)
}

#[test]
fn the_refusals_that_ended_sessions_cost_are_those_that_are_gone_when_they_give_their_slots_back() {
    let of = |scenario, decode| ["--scenario", scenario, "--set", decode];
    for base in [
        of("v3-1p7d", "cluster.decode=1"),
        of("v3-1p7d", "cluster.decode=2"),
        of("v3-1p7d", "cluster.decode=7"),
        of("v3-2p6d", "cluster.decode=6"),
        of("v3-1p7d-x1", "cluster.decode=1"),
        of("burst-cap4", "cluster.decode=1"),
    ] {
        let ((never, said), (given_back, nothing)) = (refused(&base, "never"), refused(&base, "session-end"));
        let gone = never - given_back;
        assert!(gone > 0.0 && nothing == 0.0, "{base:?}: {never} and {given_back}");
        assert!((said / gone - 1.0).abs() < 0.1, "{base:?}: {said} said, {gone} of {never} gone");
    }
    // Where the cap is low sessions go on sooner, too: it is said to be a least number.
    let low = ["--scenario", "v3-2p6d", "--set", "admission.cap_max=1"];
    let ((never, said), (given_back, _)) = (refused(&low, "never"), refused(&low, "session-end"));
    assert!(said > 0.0 && said <= never - given_back, "{said} said, {given_back} of {never} left");
}
