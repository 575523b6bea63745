//! Numbers and faults at and beyond their bounds: refused in words, or a run that ends.

use std::io;
use std::ops::ControlFlow;

use pdreplay::protocol::TokenRun;
use pdreplay::record::{LedgerEvent, RequestRecord};
use pdreplay::replay::{Observer, Progress};
use pdreplay::scenario::{ConflictKind, Overlay, Scenario, ScenarioError, check_span, conflicts, load};
use pdreplay::sim::{self, SimError};
use pdreplay::trace::{ReadOptions, Trace, read_bytes};
use serde_json::Value;

fn set(assignments: &[&str]) -> Result<Scenario, ScenarioError> {
    let overlays = assignments.iter().map(|text| Overlay::set(text)).collect::<Result<Vec<_>, _>>()?;
    load(None, &overlays)
}

fn refusal(result: Result<Scenario, ScenarioError>) -> String {
    result.expect_err("should be refused").to_string()
}

/// What would overflow the clock or the cost model, round to nothing, or do nothing.
#[test]
fn values_beyond_their_bounds_have_a_sentence() {
    const FAULT: &str = "fault=[{kind=\"slow-worker\", worker=\"D0\", ";
    for (assignments, wanted) in [
        (
            vec!["engine.timing.p0=1e308"],
            "`engine.timing.p0` makes an iteration of 8192 new tokens on 83000 cached ones last",
        ),
        (vec!["engine.timing.p2=1e300"], "`engine.timing.p2` makes an iteration"),
        (
            vec!["engine.timing.d0=4e6"],
            "`engine.timing.d0` makes an iteration of 64 requests with 83000 tokens of context",
        ),
        (vec!["engine.timing.d1=1e308"], "last inf ms, inf ms of it this term; 3.6e6 ms (1 h) is the most"),
        (vec!["engine.timing.d3=1e3"], "`engine.timing.d3` makes an iteration"),
        (vec!["engine.timing.p1=inf"], "`engine.timing.p1` is inf; write a finite number, 0 or more, in ms"),
        (
            vec!["engine.timing.small_prefill=[[64, 1e12]]"],
            "`engine.timing.small_prefill[0]` is 1e12; write a number from 0 to 3.6e6",
        ),
        (
            vec!["cluster.hop_us=9223372036854775807"],
            "`cluster.hop_us` is 9223372036854775807; write at most 3600000000",
        ),
        (vec!["cluster.link.setup_us=3600000001"], "`cluster.link.setup_us` is 3600000001"),
        (vec!["cluster.discovery_delay_ms=9223372036854775807"], "`cluster.discovery_delay_ms` is"),
        (vec!["engine.admission_cost_us=9223372036854775807"], "`engine.admission_cost_us` is"),
        (vec!["engine.kv_bytes_per_token=9223372036854775807"], "`engine.kv_bytes_per_token` is"),
        (
            vec!["engine.kv_bytes_per_token=1000000000", "cluster.link.gbytes_per_s=0.5"],
            "the KV of one token, 1000000000 bytes, would take 2 s",
        ),
        (
            vec!["engine.retract_reload_gbytes_per_s=1e-6"],
            "`engine.retract_reload_gbytes_per_s` is 1e-6: the KV of one token",
        ),
        (
            vec!["engine.kv_pool_tokens=1000000000001"],
            "`engine.kv_pool_tokens` is 1000000000001; write at most 1000000000000",
        ),
        (vec!["engine.max_running=4294967295"], "`engine.max_running` is 4294967295; write at most 16384"),
        (vec!["engine.page_size=4294967295"], "`engine.page_size` is 4294967295; write at most 1048576"),
        (
            vec!["engine.ingest_base_ms=1e300"],
            "`engine.ingest_base_ms` is 1e300; write 0, or a number from 1e-6 to 3.6e6",
        ),
        (vec!["engine.ingest_per_token_us=1e300"], "`engine.ingest_per_token_us` is 1e300"),
        (vec!["cluster.prefill=65535"], "`cluster.prefill` is 65535; write at most 1024"),
        (
            vec!["cluster.transfer_timeout_s=1e308"],
            "`cluster.transfer_timeout_s` is 1e308; write a number from 1e-9 to 1e9",
        ),
        (vec!["replay.load_poll_ms=9223372036854775807"], "`replay.load_poll_ms` is"),
        (vec!["replay.arrival_jitter_ms=1e13"], "`replay.arrival_jitter_ms` is 1e13"),
        (
            vec!["replay.request_timeout_s=1e-12"],
            "`replay.request_timeout_s` is 1e-12; write 0, or a number from 1e-9 to 1e9; 0 is no limit",
        ),
        (vec!["replay.max_gap_s=1e10"], "`replay.max_gap_s` is 1e10"),
        (vec!["replay.time_scale=1e-308"], "`replay.time_scale` is 1e-308; write a number from 1e-6 to 1e9, or inf"),
        (vec!["replay.service_tokens_per_s=1e-300"], "`replay.service_tokens_per_s` is 1e-300"),
        (
            vec![&format!("{FAULT}factor=1e12}}]")],
            "`fault[0].factor` is 1e12; write a number from 0.001 to 10000; above 1 is slower",
        ),
        (vec![&format!("{FAULT}factor=2, at_s=1e308}}]")], "`fault[0].at_s` is 1e308; write 0, or a number from"),
        (vec![&format!("{FAULT}factor=2, at_s=inf}}]")], "`fault[0].at_s` is inf;"),
    ] {
        let text = refusal(set(&assignments));
        assert!(text.contains(wanted), "{assignments:?} gave {text}");
    }
}

#[test]
fn slow_downs_of_one_worker_are_bounded_together_when_they_can_meet() {
    let slow = |windows: [&str; 2]| {
        let fault = |window: &str| format!("{{kind=\"slow-worker\", worker=\"D0\", factor=1e4, {window}}}");
        set(&[&format!("fault=[{}, {}]", fault(windows[0]), fault(windows[1]))])
    };
    let text = refusal(slow(["at_s=0", "at_s=5"]));
    assert!(text.contains("`fault[1].factor` and the earlier slow-downs of the same place multiply to 1e8"), "{text}");
    assert!(slow(["at_s=0, duration_s=9", "after_requests=5"]).is_err());
    assert!(slow(["at_s=0, duration_s=5", "at_s=5"]).is_ok());
}

#[test]
fn faults_without_effect_are_refused_or_told() {
    let fault = |fault: &str, more: &[&str]| set(&[&[format!("fault=[{{{fault}}}]").as_str()], more].concat());
    for (text, wanted) in [
        (
            "kind=\"hang\", worker=\"P0\"",
            "`fault[0].worker` is P0, where a fault of kind `hang` has no effect; name a D or a W",
        ),
        (
            "kind=\"admission-timeout\", worker=\"P0\"",
            "where a fault of kind `admission-timeout` has no effect; name a D",
        ),
        ("kind=\"open-failure\", worker=\"P0\"", "where a fault of kind `open-failure` has no effect; name a D"),
        ("kind=\"slow-link\", factor=2, worker=\"D0\", to=\"D1\"", "is D0, on the wrong end of a P → D pair"),
    ] {
        let refused = refusal(fault(text, &[]));
        assert!(refused.contains(wanted), "{text} gave {refused}");
    }
    let refused = refusal(fault("kind=\"slow-link\", factor=2, worker=\"W0\"", &["cluster.colocated=2"]));
    assert!(refused.contains("where a fault of kind `slow-link` has no effect; name a P or a D"), "{refused}");
    let dp: &[&str] = &["replay.mechanism=dp", "cluster.colocated=2"];
    let pd: &[&str] = &["replay.mechanism=pd", "cluster.colocated=1"];
    for (text, more, wanted) in [
        ("kind=\"kill\", worker=\"D0\"", dp, "fault[0], kill, has no effect: mechanism dp never uses D0"),
        ("kind=\"kill\", worker=\"W0\"", pd, "mechanism pd never uses W0"),
        ("kind=\"open-failure\", worker=\"D0\"", pd, "only mechanism kvc makes the call it breaks"),
        ("kind=\"admission-timeout\", worker=\"D0\"", &["admission.append=router"], "admission.seed are both router"),
        (
            "kind=\"kv-event-drop\", worker=\"D0\"",
            &["kv_events.enabled=on"],
            "D0 keeps no prefix cache (engine.decode_radix_cache = false), so it publishes no KV events; leave it out",
        ),
        ("kind=\"router-restart\"", dp, "mechanism dp has no PD router"),
    ] {
        let found = conflicts(&fault(text, more).unwrap());
        let told = found.iter().any(|one| one.kind == ConflictKind::IdleFault && one.text.contains(wanted));
        assert!(told, "{text} gave {found:?}");
    }
    for text in [
        "kind=\"hang\", worker=\"D0\", after_tokens=4294967295",
        "kind=\"slow-link\", factor=2, worker=\"D0\"",
        "kind=\"error-response\", status=500, worker=\"P0\"",
    ] {
        assert_eq!(conflicts(&fault(text, &[]).unwrap()), [], "{text}");
    }
}

#[test]
fn the_span_of_the_trace_at_its_scale_is_bounded() {
    let trace = |text: &str| read_bytes("t.jsonl", text.as_bytes(), &ReadOptions::default()).unwrap();
    let row = |session: &str, at: f64, input: u32| {
        format!("{{\"session_id\":\"{session}\",\"timestamp\":{at},\"input_length\":{input},\"output_length\":5}}\n")
    };
    let two = trace(&(row("a", 0.0, 100) + &row("b", 4000.0, 100) + &row("b", 4001.0, 200)));
    let check =
        |assignments: &[&str], trace: &Trace| check_span(&set(assignments).unwrap(), trace).map_err(|p| p.to_string());
    assert_eq!(check(&["replay.time_scale=1e-5"], &two), Ok(()));
    assert_eq!(
        check(&["replay.time_scale=1e-6"], &two).unwrap_err(),
        "`replay.arrival_scale` is 1e-6: the arrivals of the trace, 4000 s, would take 4e9 s; 1e9 s (31 years) is the most; \
         raise it, or slice the trace"
    );
    let long = trace(&(row("a", 0.0, 100) + &row("a", 2e3, 200)));
    let text = check(&["replay.think_scale=1e-6"], &long).unwrap_err();
    assert!(
        text.contains("`replay.think_scale` is 1e-6: the longest session of the trace, 2000 s, would take 2e9 s"),
        "{text}"
    );
    let wide = trace(&(row("a", 0.0, 100_000_000) + &row("b", 0.0, 100_000_000)).repeat(5));
    let text = check(&["engine.kv_bytes_per_token=1000000000"], &wide).unwrap_err();
    assert!(text.contains("would be 1.00000005e18 bytes; 1e18 is the most"), "{text}");
}

/// Numbers at their bounds, one key at a time: refused in words, or a run that ends in words.
#[test]
fn no_number_that_is_accepted_breaks_a_run() {
    let rows: String = (0..4)
        .map(|n| {
            let (session, turn) = (n % 2, n / 2);
            format!(
                "{{\"session_id\":\"{session}\",\"turn_id\":{turn},\"timestamp\":{n},\"input_length\":{},\"output_length\":40}}\n",
                300 + 200 * turn
            )
        })
        .collect();
    let trace = read_bytes("t.jsonl", rows.as_bytes(), &ReadOptions::default()).unwrap();
    let whole: Value = serde_json::to_value(Scenario::default()).unwrap();
    let mut keys = Vec::new();
    number_keys(&whole, "", &mut keys);
    assert!(keys.len() > 50, "the numbers were found: {keys:?}");
    let values = [
        "0",
        "1e-300",
        "1e-9",
        "1e-6",
        "1e-3",
        "1",
        "1000",
        "1024",
        "16384",
        "1048576",
        "100000000",
        "1e4",
        "3.6e6",
        "1000000000",
        "1e9",
        "3600000000",
        "1e12",
        "1000000000000",
        "9223372036854775807",
        "1e18",
        "1e308",
        "inf",
    ];
    let (mut accepted, mut ended) = (0, 0);
    for key in &keys {
        for value in values {
            let Ok(scenario) = set(&[&format!("{key}={value}")]) else { continue };
            if check_span(&scenario, &trace).is_err() {
                continue;
            }
            accepted += 1;
            match sim::run(&trace, &scenario, "bounds", &mut Unwatched) {
                Ok(_) => ended += 1,
                Err(error) => assert!(matches!(error, SimError::Endless { .. }), "{key}={value}: {error}"),
            }
        }
    }
    assert!(accepted > 300 && ended > 300, "{accepted} accepted, {ended} ended");
}

#[test]
fn a_run_that_would_outlast_the_clock_ends_in_words() {
    let row = "{\"session_id\":\"a\",\"timestamp\":0,\"input_length\":100,\"output_length\":100000000}";
    let trace = read_bytes("t.jsonl", row.as_bytes(), &ReadOptions::default()).unwrap();
    let slow = ["engine.timing.d0=3e6", "engine.kv_pool_tokens=1000000000", "engine.timing.d3=0", "engine.timing.p2=0"];
    let error = sim::run(&trace, &set(&slow).unwrap(), "endless", &mut Unwatched).unwrap_err();
    assert!(matches!(error, SimError::Endless { left: 1, .. }), "{error}");
    let limited = [&slow[..], &["replay.request_timeout_s=1e9"]].concat();
    sim::run(&trace, &set(&limited).unwrap(), "limited", &mut Unwatched).unwrap();
}

fn number_keys(value: &Value, path: &str, into: &mut Vec<String>) {
    for (key, value) in value.as_object().into_iter().flatten() {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        if value.is_number() {
            into.push(path);
        } else {
            number_keys(value, &path, into);
        }
    }
}

struct Unwatched;

impl Observer for Unwatched {
    fn record(&mut self, _: &RequestRecord, _: &[TokenRun]) -> io::Result<()> {
        Ok(())
    }

    fn ledger(&mut self, _: &LedgerEvent) -> io::Result<()> {
        Ok(())
    }

    fn progress(&mut self, _: &Progress) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}
