//! Faults that the chosen mechanism leaves without effect: a warning, so that one list of faults serves all mechanisms.

use super::conflicts::{Conflict, ConflictKind, Severity};
use super::model::Scenario;
use super::needs::Needs;
use super::validate_fault::fault_label;
use crate::admission::AdmissionBy;
use crate::base::{Role, WorkerId};
use crate::cluster::{FaultConfig, FaultKind};
use crate::replay::Mechanism;

/// One conflict for each fault without effect.
pub(super) fn idle_faults(scenario: &Scenario) -> Vec<Conflict> {
    let conflict = |(index, fault): (usize, &FaultConfig)| {
        let why = unused(fault, scenario.replay.mechanism)
            .or_else(|| never_called(fault.kind, scenario))
            .or_else(|| silent(fault, scenario))?;
        let text = format!("fault[{index}], {}, has no effect: {why}; leave it out", fault_label(fault.kind));
        Some(Conflict { severity: Severity::Warn, kind: ConflictKind::IdleFault, text })
    };
    scenario.fault.iter().enumerate().filter_map(conflict).collect()
}

/// Names a worker that the mechanism never sends anything to.
fn unused(fault: &FaultConfig, mechanism: Mechanism) -> Option<String> {
    let workers = [&fault.worker, &fault.to].into_iter().flatten().filter_map(|name| name.parse::<WorkerId>().ok());
    let used = |worker: &WorkerId| match mechanism {
        Mechanism::Dp => worker.role == Role::Colocated,
        Mechanism::Pd | Mechanism::Kvc => worker.role != Role::Colocated,
    };
    let idle = workers.into_iter().find(|worker| !used(worker))?;
    Some(format!("mechanism {} never uses {idle}", mechanism.as_str()))
}

/// Strikes the publisher of a worker that has none, or one that nobody follows.
fn silent(fault: &FaultConfig, scenario: &Scenario) -> Option<String> {
    let worker = fault.worker.as_ref()?.parse::<WorkerId>().ok()?;
    let is_silent = worker.role == Role::Decode && !scenario.engine.decode_radix_cache;
    let is_read = Needs::of(scenario).index.is_none_or(|role| role == worker.role);
    match fault.kind.is_of_kv_events() {
        true if is_silent => Some(format!(
            "{worker} keeps no prefix cache (engine.decode_radix_cache = false), so it publishes no KV events"
        )),
        true if !is_read => {
            Some(format!("policy {} does not read the KV events of {worker}", scenario.policy.name.as_str()))
        }
        true | false => None,
    }
}

/// Breaks a call that is never made.
fn never_called(kind: FaultKind, scenario: &Scenario) -> Option<String> {
    let mechanism = scenario.replay.mechanism;
    let admission = &scenario.admission;
    let why = match kind {
        FaultKind::AdmissionTimeout | FaultKind::OpenFailure if mechanism != Mechanism::Kvc => {
            "only mechanism kvc makes the call it breaks"
        }
        FaultKind::AdmissionTimeout
            if (admission.append, admission.seed) == (AdmissionBy::Router, AdmissionBy::Router) =>
        {
            "admission.append and admission.seed are both router, so no worker is asked"
        }
        kind if kind.is_of_kv_events() && !scenario.kv_events.is_on(scenario.policy.reads_index()) => {
            "no worker publishes KV events: set kv_events.enabled = \"on\", or a policy that reads the index"
        }
        FaultKind::RouterRestart if mechanism == Mechanism::Dp => "mechanism dp has no PD router",
        FaultKind::Kill
        | FaultKind::Restart
        | FaultKind::Leave
        | FaultKind::Join
        | FaultKind::SlowWorker
        | FaultKind::SlowLink
        | FaultKind::TransferFailure
        | FaultKind::Hang
        | FaultKind::AdmissionTimeout
        | FaultKind::ErrorResponse
        | FaultKind::OpenFailure
        | FaultKind::RouterRestart
        | FaultKind::KvEventDrop
        | FaultKind::KvEventDuplicate
        | FaultKind::KvEventReorder
        | FaultKind::PublisherRestart
        | FaultKind::KvEndpointWrong => return None,
    };
    Some(why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::load_text;
    use super::*;

    #[test]
    fn a_fault_of_a_publisher_that_is_not_there_is_told() {
        let found = |kind: &str, worker: &str, more: &str| {
            let text = format!(
                "kv_events.enabled = 'on'\nreplay.mechanism = 'pd'\n{more}\n[[fault]]\nkind = '{kind}'\nworker = '{worker}'"
            );
            let scenario = load_text("x.toml", &text).unwrap_or_else(|error| panic!("{error}"));
            idle_faults(&scenario).into_iter().map(|conflict| conflict.text).collect::<Vec<_>>()
        };
        for kind in ["kv-event-drop", "kv-event-duplicate", "kv-event-reorder", "publisher-restart"] {
            let told = found(kind, "D0", "");
            assert!(told.len() == 1 && told[0].contains("has no effect: D0 keeps no prefix cache"), "{told:?}");
            assert!(told[0].starts_with(&format!("fault[0], {kind}, ")), "{told:?}");
            assert_eq!(found(kind, "D0", "engine.decode_radix_cache = true"), [""; 0]);
            assert_eq!(found(kind, "P0", ""), [""; 0]);
        }
        assert_eq!(found("kill", "D0", ""), [""; 0], "not of its events");
        let unread = found("kv-event-drop", "D0", "policy.name = 'car'\nengine.decode_radix_cache = true");
        assert!(unread.len() == 1 && unread[0].contains("policy car does not read the KV events of D0"), "{unread:?}");
        assert_eq!(found("kv-event-drop", "P0", "policy.name = 'car'"), [""; 0]);
    }
}
