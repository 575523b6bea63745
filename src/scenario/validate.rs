//! Values no run can have, each with a sentence. All of them are returned, not only the first.
//!
//! Types and closed sets are the schema's; pairs that run but mislead are [`super::conflicts()`]'s. Ranges of single
//! numbers are in `validate_range`, what numbers make together in `validate_cost`, faults in `validate_fault`,
//! `[live]` in `validate_live`.

use super::error::Problem;
use super::model::Scenario;
use super::validate_cost::{iteration, kv_bytes};
use super::validate_fault::{fault_problems, slowdowns};
use super::validate_live::live_problems;
use super::validate_range::ranges;
use crate::kv::EventsSwitch;
use crate::replay::Mechanism;

/// Everything impossible in a scenario; empty when it can run.
pub fn validate(scenario: &Scenario) -> Vec<Problem> {
    let mut problems = Vec::new();
    topology(scenario, &mut problems);
    ranges(scenario, &mut problems);
    sizes(scenario, &mut problems);
    timing(scenario, &mut problems);
    kv_bytes(scenario, &mut problems);
    words(scenario, &mut problems);
    index(scenario, &mut problems);
    for (index, fault) in scenario.fault.iter().enumerate() {
        fault_problems(fault, index, &scenario.cluster, &mut problems);
    }
    slowdowns(&scenario.fault, &mut problems);
    live_problems(scenario, &mut problems);
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
        // Counted from lists: what these lack is said of them.
        _ if !scenario.live.is_embedded() => {}
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

fn index(scenario: &Scenario, problems: &mut Vec<Problem>) {
    let events = &scenario.kv_events;
    if events.require && events.enabled == EventsSwitch::Off {
        let cause = "is true, but kv_events.enabled = \"off\" leaves no index";
        problems.push(problem("kv_events.require", cause, "set kv_events.enabled = \"auto\", or leave `require` out"));
    }
    if !events.config.is_empty() && scenario.live.is_embedded() {
        let cause = "names a file, but target \"embedded\" follows its own workers";
        problems.push(problem(
            "kv_events.config",
            cause,
            "set live.target = \"sglang\" or \"openai\", or leave it out",
        ));
    }
}

fn timing(scenario: &Scenario, problems: &mut Vec<Problem>) {
    let timing = &scenario.engine.timing;
    if timing.top_k > timing.experts {
        let cause = format!("is {}, more than the {} experts there are", timing.top_k, timing.experts);
        problems.push(problem("engine.timing.top_k", cause, "a dense model has 0 of both"));
    }
    let key = "engine.timing.small_prefill";
    if timing.small_prefill.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
        problems.push(problem(key, "is not ascending in tokens", "sort it and give each token count once"));
    }
    iteration(&scenario.engine, problems);
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
