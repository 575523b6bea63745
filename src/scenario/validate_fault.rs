//! Which fields each kind of fault needs and takes; whether its workers exist.
//!
//! The table here is the one printed in `docs/scenarios.md`.

use super::error::Problem;
use super::validate::{not_negative, problem};
use crate::base::{Role, WorkerId};
use crate::cluster::{ClusterConfig, FaultConfig, FaultKind};

/// Which fields a kind of fault has beside `at_s` and `after_requests`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultFields {
    /// Those it cannot do without.
    pub needs: &'static [&'static str],
    /// Those it may have.
    pub takes: &'static [&'static str],
}

/// The fields of a kind.
pub fn fault_fields(kind: FaultKind) -> FaultFields {
    let (needs, takes): (&[&str], &[&str]) = match kind {
        FaultKind::Kill => (&["worker"], &["duration_s"]),
        FaultKind::Restart | FaultKind::Leave | FaultKind::Join => (&["worker"], &[]),
        FaultKind::SlowWorker => (&["worker", "factor"], &["duration_s"]),
        FaultKind::SlowLink => (&["worker", "factor"], &["to", "duration_s"]),
        FaultKind::TransferFailure => (&["worker", "to"], &["after_s", "times", "duration_s"]),
        FaultKind::Hang => (&[], &["worker", "session", "turn", "after_tokens", "times", "duration_s"]),
        FaultKind::AdmissionTimeout => (&["worker"], &["after_s", "times", "duration_s"]),
        FaultKind::ErrorResponse => (&["status"], &["worker", "session", "turn", "after_s", "times", "duration_s"]),
        FaultKind::OpenFailure => (&["worker"], &["status", "times", "duration_s"]),
        FaultKind::RouterRestart => (&[], &[]),
    };
    FaultFields { needs, takes }
}

/// The label of a kind, as in the file.
pub fn fault_label(kind: FaultKind) -> &'static str {
    match kind {
        FaultKind::Kill => "kill",
        FaultKind::Restart => "restart",
        FaultKind::Leave => "leave",
        FaultKind::Join => "join",
        FaultKind::SlowWorker => "slow-worker",
        FaultKind::SlowLink => "slow-link",
        FaultKind::TransferFailure => "transfer-failure",
        FaultKind::Hang => "hang",
        FaultKind::AdmissionTimeout => "admission-timeout",
        FaultKind::ErrorResponse => "error-response",
        FaultKind::OpenFailure => "open-failure",
        FaultKind::RouterRestart => "router-restart",
    }
}

/// Everything impossible in `fault[index]`.
pub(super) fn fault_problems(fault: &FaultConfig, index: usize, cluster: &ClusterConfig, into: &mut Vec<Problem>) {
    let key = |field: &str| format!("fault[{index}].{field}");
    let label = fault_label(fault.kind);
    let fields = fault_fields(fault.kind);
    for (field, given) in given(fault) {
        if !given && fields.needs.contains(&field) {
            into.push(problem(key(field), format!("is missing; a fault of kind `{label}` needs it"), remedy(field)));
        }
        if given && !fields.needs.contains(&field) && !fields.takes.contains(&field) {
            let cause = format!("has no meaning for a fault of kind `{label}`");
            into.push(problem(key(field), cause, takes(fields)));
        }
    }
    if fault.at_s.is_some() && fault.after_requests.is_some() {
        let cause = "and `after_requests` are both given, but a fault strikes once";
        into.push(problem(key("at_s"), cause, "keep the one you mean"));
    }
    if fault.turn.is_some() && fault.session.is_none() {
        into.push(problem(key("turn"), "is given without `session`", "name the session too"));
    }
    let unaimed = fault.worker.is_none() && fault.session.is_none();
    if unaimed && matches!(fault.kind, FaultKind::Hang | FaultKind::ErrorResponse) {
        let cause = format!("and `session` are both missing; a fault of kind `{label}` needs one of them");
        into.push(problem(key("worker"), cause, "write `worker = \"D0\"` or `session = \"…\"`"));
    }
    for (field, value) in [("at_s", fault.at_s), ("duration_s", fault.duration_s), ("after_s", fault.after_s)] {
        into.extend(not_negative(&key(field), value));
    }
    if let Some(factor) = fault.factor.filter(|factor| !(*factor > 0.0 && factor.is_finite())) {
        into.push(problem(key("factor"), format!("is {factor}"), "write a number above 0; above 1 is slower"));
    }
    if fault.times == Some(0) {
        into.push(problem(key("times"), "is 0: the fault would never strike", "write 1 or more, or leave it out"));
    }
    if let Some(status) = fault.status.filter(|status| !(400..=599).contains(status)) {
        into.push(problem(key("status"), format!("is {status}, not an HTTP error"), "write a status from 400 to 599"));
    }
    workers(fault, cluster, &key, into);
}

fn workers(fault: &FaultConfig, cluster: &ClusterConfig, key: &dyn Fn(&str) -> String, into: &mut Vec<Problem>) {
    let pair = match fault.kind {
        FaultKind::TransferFailure | FaultKind::SlowLink => fault.to.is_some(),
        FaultKind::Kill
        | FaultKind::Restart
        | FaultKind::Leave
        | FaultKind::Join
        | FaultKind::SlowWorker
        | FaultKind::Hang
        | FaultKind::AdmissionTimeout
        | FaultKind::ErrorResponse
        | FaultKind::OpenFailure
        | FaultKind::RouterRestart => false,
    };
    let legs = [("worker", &fault.worker, pair.then_some(Role::Prefill)), ("to", &fault.to, Some(Role::Decode))];
    for (field, name, role) in legs {
        let Some(name) = name else { continue };
        match name.parse::<WorkerId>() {
            Err(_) => {
                let cause = format!("is \"{name}\", not a worker name");
                into.push(problem(key(field), cause, "write P0, D3 or W1, counted from 0"));
            }
            Ok(worker) if worker.index >= count(cluster, worker.role) => {
                let cause = format!("names {name}, but there {}", existing(cluster, worker.role));
                into.push(problem(key(field), cause, "workers are counted from 0; name one that exists"));
            }
            Ok(worker) if fault.kind == FaultKind::SlowLink && worker.role == Role::Colocated => {
                let cause = format!("names {name}, but a colocated worker has no KV link");
                into.push(problem(key(field), cause, "name a P or a D"));
            }
            Ok(worker) => {
                if let Some(role) = role.filter(|role| *role != worker.role) {
                    let (wanted, cause) = (role.letter(), format!("is {name}, on the wrong end of a P → D pair"));
                    into.push(problem(key(field), cause, format!("name a worker {wanted}0 or the like")));
                }
            }
        }
    }
}

fn count(cluster: &ClusterConfig, role: Role) -> u16 {
    match role {
        Role::Prefill => cluster.prefill,
        Role::Decode => cluster.decode,
        Role::Colocated => cluster.colocated,
    }
}

fn existing(cluster: &ClusterConfig, role: Role) -> String {
    let letter = role.letter();
    match count(cluster, role) {
        0 => format!("is no {letter}"),
        1 => format!("is only {letter}0"),
        n => format!("are only {letter}0 to {letter}{}", n - 1),
    }
}

fn given(fault: &FaultConfig) -> [(&'static str, bool); 10] {
    [
        ("worker", fault.worker.is_some()),
        ("to", fault.to.is_some()),
        ("session", fault.session.is_some()),
        ("turn", fault.turn.is_some()),
        ("times", fault.times.is_some()),
        ("duration_s", fault.duration_s.is_some()),
        ("factor", fault.factor.is_some()),
        ("status", fault.status.is_some()),
        ("after_s", fault.after_s.is_some()),
        ("after_tokens", fault.after_tokens.is_some()),
    ]
}

fn remedy(field: &str) -> String {
    let example = match field {
        "worker" | "to" => "\"D0\"",
        "factor" => "4.0",
        "status" => "503",
        _ => "…",
    };
    format!("add `{field} = {example}`")
}

fn takes(fields: FaultFields) -> String {
    let all: Vec<&str> = fields.needs.iter().chain(fields.takes).copied().collect();
    if all.is_empty() { "leave it out".into() } else { format!("leave it out; the kind has {}", all.join(", ")) }
}
