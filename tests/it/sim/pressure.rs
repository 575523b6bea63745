//! Liveness under KV pressure: the published trace at 0.7, 1.4 and 4.6 times what the pools hold, nobody vanishes.

use std::collections::BTreeMap;

use pdreplay::trace::Trace;
use pdreplay::trace::generate::{GenerateSpec, generate};

use super::{play, scenario};

/// Tokens of the largest contexts that must be held at once, if all sessions were live: the sum of the peaks.
fn peak_tokens(trace: &Trace) -> u64 {
    let mut peaks = BTreeMap::new();
    for turn in &trace.turns {
        let peak = peaks.entry(turn.session).or_insert(0);
        *peak = (*peak).max(u64::from(turn.input_length) + u64::from(turn.output_length));
    }
    peaks.values().sum()
}

fn runs_to_the_end(mechanism: &str, policy: &str, more: &str) {
    let trace = generate(&GenerateSpec::default()).unwrap();
    let needed = peak_tokens(&trace);
    for pressure in [0.7, 1.4, 4.6] {
        let pool = (needed as f64 / 6.0 / pressure) as u64;
        let text = format!(
            "
cluster.prefill = 2
cluster.decode = 6
cluster.colocated = 6
engine.kv_pool_tokens = {pool}
replay.mechanism = '{mechanism}'
replay.time_scale = 10
policy.name = '{policy}'
{more}"
        );
        let played = play(&trace, &scenario(&[&text]));
        assert_eq!(played.records.len(), 4449, "{mechanism} at {pressure}");
        let ok = played.records.iter().filter(|record| record.outcome.is_ok()).count();
        assert!(ok > 2225, "{mechanism} at {pressure}: only {ok} of 4449 ok");
    }
}

#[test]
fn colocated_workers_live_through_pressure() {
    runs_to_the_end("dp", "cache-aware", "");
}

#[test]
fn plain_disaggregation_lives_through_pressure() {
    runs_to_the_end("pd", "kv-aware", "");
}

#[test]
fn sessions_live_through_pressure() {
    runs_to_the_end("kvc", "kv-aware", "");
}

#[test]
fn sessions_admitted_by_the_worker_live_through_pressure() {
    runs_to_the_end("kvc", "kv-aware", "admission.seed = 'worker'\nadmission.cap_max = 16\nreplay.concurrency = 32");
}

/// Something of every kind, in the middle of the run.
const TROUBLE: &str = "
cluster.discovery_delay_ms = 5000
replay.stall_timeout_s = 20
[[fault]]
kind = 'kill'
worker = 'D0'
at_s = 60
duration_s = 30
[[fault]]
kind = 'restart'
worker = 'D1'
at_s = 100
[[fault]]
kind = 'kill'
worker = 'P1'
at_s = 150
duration_s = 20
[[fault]]
kind = 'leave'
worker = 'D2'
at_s = 200
[[fault]]
kind = 'join'
worker = 'D5'
at_s = 90
[[fault]]
kind = 'transfer-failure'
worker = 'P0'
to = 'D3'
after_s = 1
at_s = 50
duration_s = 100
[[fault]]
kind = 'hang'
worker = 'D4'
after_tokens = 3
at_s = 120
times = 10
[[fault]]
kind = 'slow-worker'
worker = 'D4'
factor = 20
at_s = 250
duration_s = 50
[[fault]]
kind = 'slow-link'
worker = 'P0'
factor = 50
at_s = 300
duration_s = 20
[[fault]]
kind = 'admission-timeout'
worker = 'D3'
after_s = 5
at_s = 330
duration_s = 30
[[fault]]
kind = 'open-failure'
worker = 'D4'
at_s = 10
duration_s = 30
[[fault]]
kind = 'error-response'
worker = 'P0'
status = 503
at_s = 400
times = 20
[[fault]]
kind = 'router-restart'
at_s = 350";

#[test]
fn nobody_vanishes_in_trouble_under_pressure() {
    for policy in ["sticky", "kv-aware"] {
        let capacity = format!("policy.kv_aware.capacity_aware = true\n{TROUBLE}");
        runs_to_the_end("kvc", policy, &capacity);
    }
    runs_to_the_end("pd", "default", TROUBLE);
}
