//! Faults that the chosen mechanism leaves without effect: a warning, so that one list of faults serves all mechanisms.

use super::conflicts::{Conflict, ConflictKind, Severity};
use super::model::Scenario;
use super::validate_fault::fault_label;
use crate::admission::AdmissionBy;
use crate::base::{Role, WorkerId};
use crate::cluster::{FaultConfig, FaultKind};
use crate::replay::Mechanism;

/// One conflict for each fault without effect.
pub(super) fn idle_faults(scenario: &Scenario) -> Vec<Conflict> {
    let conflict = |(index, fault): (usize, &FaultConfig)| {
        let why = unused(fault, scenario.replay.mechanism).or_else(|| never_called(fault.kind, scenario))?;
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
