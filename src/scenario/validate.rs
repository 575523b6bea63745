//! Values no run can have, each with a sentence. All of them are returned, not only the first.
//!
//! Types and closed sets are the schema's; pairs that run but mislead are [`super::conflicts()`]'s.

use super::error::Problem;
use super::model::Scenario;
use super::validate_fault::fault_problems;
use crate::replay::Mechanism;

/// What a number must be.
#[derive(Clone, Copy)]
enum Must {
    Positive,
    PositiveOrInf,
    NotNegative,
    Share,
    AtLeastOne,
}

/// Everything impossible in a scenario; empty when it can run.
pub fn validate(scenario: &Scenario) -> Vec<Problem> {
    let mut problems = Vec::new();
    topology(scenario, &mut problems);
    for (key, value, must) in numbers(scenario) {
        problems.extend(must.refuse(key, value));
    }
    for (key, value) in counts(scenario) {
        if value == 0 {
            problems.push(problem(key, "is 0", "write at least 1"));
        }
    }
    sizes(scenario, &mut problems);
    timing(scenario, &mut problems);
    words(scenario, &mut problems);
    for (index, fault) in scenario.fault.iter().enumerate() {
        fault_problems(fault, index, &scenario.cluster, &mut problems);
    }
    problems
}

/// A problem of a key.
pub(super) fn problem(key: impl Into<String>, cause: impl Into<String>, remedy: impl Into<String>) -> Problem {
    Problem { key: key.into(), cause: cause.into(), remedy: remedy.into() }
}

fn topology(scenario: &Scenario, problems: &mut Vec<Problem>) {
    let cluster = &scenario.cluster;
    let legs = [("cluster.prefill", cluster.prefill, "P"), ("cluster.decode", cluster.decode, "D")];
    match scenario.replay.mechanism {
        Mechanism::Dp if cluster.colocated == 0 => problems.push(problem(
            "cluster.colocated",
            "is 0, but mechanism `dp` runs on colocated workers",
            "set it, for example to 8, or choose mechanism `pd` or `kvc`",
        )),
        Mechanism::Dp => {}
        mechanism @ (Mechanism::Pd | Mechanism::Kvc) => {
            for (key, count, letter) in legs {
                if count == 0 {
                    let cause = format!("is 0, but mechanism `{}` needs at least one {letter}", mechanism.as_str());
                    problems.push(problem(key, cause, "set it to 1 or more, or choose mechanism `dp`"));
                }
            }
        }
    }
}

fn numbers(scenario: &Scenario) -> Vec<(&'static str, f64, Must)> {
    use Must::{AtLeastOne, NotNegative, Positive, PositiveOrInf, Share};
    let Scenario { cluster, engine, replay, policy, admission, integrity, .. } = scenario;
    vec![
        ("cluster.transfer_timeout_s", cluster.transfer_timeout_s, Positive),
        ("cluster.link.gbytes_per_s", cluster.link.gbytes_per_s, Positive),
        ("engine.ingest_base_ms", engine.ingest_base_ms, NotNegative),
        ("engine.ingest_per_token_us", engine.ingest_per_token_us, NotNegative),
        ("engine.retract_reload_gbytes_per_s", engine.retract_reload_gbytes_per_s, Positive),
        ("engine.session_idle_timeout_s", engine.session_idle_timeout_s, NotNegative),
        ("engine.timing.p0", engine.timing.p0, NotNegative),
        ("engine.timing.p1", engine.timing.p1, NotNegative),
        ("engine.timing.p2", engine.timing.p2, NotNegative),
        ("engine.timing.d0", engine.timing.d0, NotNegative),
        ("engine.timing.d1", engine.timing.d1, NotNegative),
        ("engine.timing.d2", engine.timing.d2, NotNegative),
        ("engine.timing.d3", engine.timing.d3, NotNegative),
        ("replay.arrival_scale", replay.arrival_scale, PositiveOrInf),
        ("replay.think_scale", replay.think_scale, PositiveOrInf),
        ("replay.max_gap_s", replay.max_gap_s, NotNegative),
        ("replay.arrival_jitter_ms", replay.arrival_jitter_ms, NotNegative),
        ("replay.stall_timeout_s", replay.stall_timeout_s, NotNegative),
        ("replay.request_timeout_s", replay.request_timeout_s, NotNegative),
        ("replay.service_base_s", replay.service_base_s, NotNegative),
        ("replay.service_tokens_per_s", replay.service_tokens_per_s, Positive),
        ("policy.kv_aware.hard_cap", policy.kv_aware.hard_cap, Share),
        ("policy.cache_aware.cache_threshold", policy.cache_aware.cache_threshold, Share),
        ("policy.cache_aware.balance_rel_threshold", policy.cache_aware.balance_rel_threshold, AtLeastOne),
        ("admission.usable_share", admission.usable_share, Share),
        ("integrity.max_bad_share", integrity.max_bad_share, Share),
        ("integrity.max_schedule_lag_p99_ms", integrity.max_schedule_lag_p99_ms, NotNegative),
    ]
}

fn counts(scenario: &Scenario) -> [(&'static str, u64); 8] {
    let Scenario { engine, replay, admission, .. } = scenario;
    [
        ("engine.kv_pool_tokens", engine.kv_pool_tokens),
        ("engine.page_size", u64::from(engine.page_size)),
        ("engine.chunk_tokens", u64::from(engine.chunk_tokens)),
        ("engine.max_running", u64::from(engine.max_running)),
        ("engine.kv_bytes_per_token", engine.kv_bytes_per_token),
        ("replay.load_poll_ms", replay.load_poll_ms),
        ("admission.cap_max", u64::from(admission.cap_max)),
        ("admission.open_attempts", u64::from(admission.open_attempts)),
    ]
}

fn sizes(scenario: &Scenario, problems: &mut Vec<Problem>) {
    let Scenario { engine, policy, admission, .. } = scenario;
    let page = u64::from(engine.page_size);
    if engine.kv_pool_tokens > 0 && engine.kv_pool_tokens < page {
        let cause = format!("is {}, less than one page of {page} tokens", engine.kv_pool_tokens);
        problems.push(problem("engine.kv_pool_tokens", cause, "enlarge the pool or lower `engine.page_size`"));
    }
    if policy.kv_aware.hard_cap == 0.0 {
        let cause = "is 0: every D would be over it";
        problems.push(problem("policy.kv_aware.hard_cap", cause, "write a share above 0, such as 0.9"));
    }
    if admission.usable_share == 0.0 {
        let cause = "is 0: no D would have room for a session";
        problems.push(problem("admission.usable_share", cause, "write a share above 0, such as 0.9"));
    }
}

fn timing(scenario: &Scenario, problems: &mut Vec<Problem>) {
    let timing = &scenario.engine.timing;
    if timing.top_k > timing.experts {
        let cause = format!("is {}, more than the {} experts there are", timing.top_k, timing.experts);
        problems.push(problem("engine.timing.top_k", cause, "a dense model has 0 of both"));
    }
    let key = "engine.timing.small_prefill";
    for (index, (_, ms)) in timing.small_prefill.iter().enumerate() {
        problems.extend(Must::NotNegative.refuse(&format!("{key}[{index}]"), *ms));
    }
    if timing.small_prefill.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
        problems.push(problem(key, "is not ascending in tokens", "sort it and give each token count once"));
    }
}

fn words(scenario: &Scenario, problems: &mut Vec<Problem>) {
    const ARRIVALS: [&str; 3] = ["uniform", "pool", "burst"];
    if !ARRIVALS.contains(&scenario.trace.arrival.as_str()) {
        let cause = format!("is \"{}\"", scenario.trace.arrival);
        problems.push(problem("trace.arrival", cause, format!("write one of {}", ARRIVALS.join(", "))));
    }
    for (key, text) in [("name", &scenario.name), ("trace.preset", &scenario.trace.preset)] {
        if text.trim().is_empty() {
            problems.push(problem(key, "is empty", "give it a name or leave the key out"));
        }
    }
    if scenario.name.contains(['/', '\\']) || scenario.name.starts_with('.') {
        let cause = format!("is \"{}\", but names a folder of results", scenario.name);
        problems.push(problem("name", cause, "leave out slashes and a leading dot"));
    }
}

impl Must {
    fn refuse(self, key: &str, value: f64) -> Option<Problem> {
        let remedy = match self {
            Must::Positive if value > 0.0 && value.is_finite() => return None,
            Must::PositiveOrInf if value > 0.0 => return None,
            Must::NotNegative if value >= 0.0 && value.is_finite() => return None,
            Must::Share if (0.0..=1.0).contains(&value) => return None,
            Must::AtLeastOne if value >= 1.0 && value.is_finite() => return None,
            Must::Positive => "write a number above 0",
            Must::PositiveOrInf => "write a number above 0, or inf; 10 is ten times faster, 0.5 half as fast",
            Must::NotNegative => "write 0 or more",
            Must::Share if value > 1.0 && value <= 100.0 => "write a share from 0 to 1; 90 % is 0.9",
            Must::Share => "write a share from 0 to 1",
            Must::AtLeastOne => "write 1 or more",
        };
        Some(problem(key, format!("is {value}"), remedy))
    }
}

/// A check of a fault's number, for [`super::validate_fault`].
pub(super) fn not_negative(key: &str, value: Option<f64>) -> Option<Problem> {
    Must::NotNegative.refuse(key, value?)
}

/// The check of a time scale, for [`super::sugar`].
pub(super) fn time_scale_problem(key: &str, value: f64) -> Option<Problem> {
    Must::PositiveOrInf.refuse(key, value)
}
