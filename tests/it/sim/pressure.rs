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
