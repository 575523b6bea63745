//! Which fields each kind of fault needs and takes, and whom it can strike.
//!
//! The table here is the one printed in `docs/scenarios.md`. A fault on a worker of a role that it does not
//! concern is refused; one that the chosen mechanism leaves without effect is a conflict (`idle_fault`).

use super::error::Problem;
use super::validate::problem;
use super::validate_range::{FACTOR, factor, seconds, shown};
use crate::base::{Role, WorkerId};
use crate::cluster::{ClusterConfig, FaultConfig, FaultKind};

/// Largest product of slow-downs that may be in force at once.
const MOST_SLOWED: f64 = 1e6;

/// Which fields a kind of fault has beside `at_s` and `after_requests`, and the roles of `worker` that it concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultFields {
    /// Those it cannot do without.
    pub needs: &'static [&'static str],
    /// Those it may have.
    pub takes: &'static [&'static str],
    /// Roles its `worker` may have; none for a kind without worker.
    pub roles: &'static [Role],
}

/// The fields of a kind.
pub fn fault_fields(kind: FaultKind) -> FaultFields {
    const ALL: &[Role] = &[Role::Prefill, Role::Decode, Role::Colocated];
    const D: &[Role] = &[Role::Decode];
    const P: &[Role] = &[Role::Prefill];
    const ANSWERS: &[Role] = &[Role::Decode, Role::Colocated];
    const LINKED: &[Role] = &[Role::Prefill, Role::Decode];
    const AIMED: &[&str] = &["worker", "session", "turn", "after_tokens", "times", "duration_s"];
    const REFUSED: &[&str] = &["worker", "session", "turn", "after_s", "times", "duration_s"];
    let (needs, takes, roles): (&[&str], &[&str], &[Role]) = match kind {
        FaultKind::Kill => (&["worker"], &["duration_s"], ALL),
        FaultKind::Restart | FaultKind::Leave | FaultKind::Join => (&["worker"], &[], ALL),
        FaultKind::SlowWorker => (&["worker", "factor"], &["duration_s"], ALL),
        FaultKind::SlowLink => (&["worker", "factor"], &["to", "duration_s"], LINKED),
        FaultKind::TransferFailure => (&["worker", "to"], &["after_s", "times", "duration_s"], P),
        FaultKind::Hang => (&[], AIMED, ANSWERS),
        FaultKind::AdmissionTimeout => (&["worker"], &["after_s", "times", "duration_s"], D),
        FaultKind::ErrorResponse => (&["status"], REFUSED, ALL),
        FaultKind::OpenFailure => (&["worker"], &["status", "times", "duration_s"], D),
        FaultKind::RouterRestart => (&[], &[], &[]),
        FaultKind::KvEventDrop | FaultKind::KvEventDuplicate | FaultKind::KvEventReorder => {
            (&[], &["worker", "times", "duration_s"], ALL)
        }
        FaultKind::PublisherRestart => (&["worker"], &[], ALL),
        FaultKind::KvEndpointWrong => (&[], &["worker", "duration_s"], ALL),
    };
    FaultFields { needs, takes, roles }
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
        FaultKind::KvEventDrop => "kv-event-drop",
        FaultKind::KvEventDuplicate => "kv-event-duplicate",
        FaultKind::KvEventReorder => "kv-event-reorder",
        FaultKind::PublisherRestart => "publisher-restart",
        FaultKind::KvEndpointWrong => "kv-endpoint-wrong",
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
        into.extend(seconds(&key(field), value));
    }
    into.extend(factor(&key("factor"), fault.factor));
    if fault.times == Some(0) {
        into.push(problem(key("times"), "is 0: the fault would never strike", "write 1 or more, or leave it out"));
    }
    if let Some(status) = fault.status.filter(|status| !(400..=599).contains(status)) {
        into.push(problem(key("status"), format!("is {status}, not an HTTP error"), "write a status from 400 to 599"));
    }
    workers(fault, cluster, &key, into);
}

/// Slow-downs of one worker or link that may be in force at once and are too much together.
pub(super) fn slowdowns(faults: &[FaultConfig], into: &mut Vec<Problem>) {
    let slow = |fault: &FaultConfig| matches!(fault.kind, FaultKind::SlowWorker | FaultKind::SlowLink);
    for (index, fault) in faults.iter().enumerate().filter(|(_, fault)| slow(fault)) {
        let same = |other: &&FaultConfig| {
            (other.kind, &other.worker, &other.to) == (fault.kind, &fault.worker, &fault.to)
                && may_overlap(fault, other)
        };
        let factors: Vec<f64> = faults[..=index].iter().filter(same).filter_map(|other| other.factor).collect();
        let slower: f64 = factors.iter().map(|factor| factor.max(1.0)).product();
        let faster: f64 = factors.iter().map(|factor| factor.min(1.0)).product();
        // One alone has its own range.
        if factors.len() > 1 && (slower > MOST_SLOWED || faster < FACTOR.0) {
            let product = if slower > MOST_SLOWED { slower } else { faster };
            let cause = format!(
                "and the earlier slow-downs of the same place multiply to {}; together they may be {} to {}",
                shown(product),
                shown(FACTOR.0),
                shown(MOST_SLOWED)
            );
            into.push(problem(
                format!("fault[{index}].factor"),
                cause,
                "bring them nearer to 1, or let them not overlap",
            ));
        }
    }
}

/// Unless both have a time and one is over before the other begins.
fn may_overlap(a: &FaultConfig, b: &FaultConfig) -> bool {
    let window = |fault: &FaultConfig| {
        let begin = if fault.after_requests.is_some() { None } else { Some(fault.at_s.unwrap_or(0.0)) };
        (begin, begin.zip(fault.duration_s).map(|(begin, lasts)| begin + lasts))
    };
    let over_before = |(_, end): (Option<f64>, Option<f64>), (begin, _): (Option<f64>, Option<f64>)| {
        end.zip(begin).is_some_and(|(end, begin)| end <= begin)
    };
    !over_before(window(a), window(b)) && !over_before(window(b), window(a))
}

fn workers(fault: &FaultConfig, cluster: &ClusterConfig, key: &dyn Fn(&str) -> String, into: &mut Vec<Problem>) {
    let label = fault_label(fault.kind);
    // With `to` the link of a P → D pair is meant.
    let roles: &[Role] = if fault.to.is_some() { &[Role::Prefill] } else { fault_fields(fault.kind).roles };
    for (field, name, roles) in [("worker", &fault.worker, roles), ("to", &fault.to, &[Role::Decode][..])] {
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
            Ok(worker) if !roles.is_empty() && !roles.contains(&worker.role) => {
                let allowed: Vec<String> = roles.iter().map(|role| role.letter().to_string()).collect();
                let cause = match fault.to {
                    Some(_) => format!("is {name}, on the wrong end of a P → D pair"),
                    None => format!("is {name}, where a fault of kind `{label}` has no effect"),
                };
                into.push(problem(key(field), cause, format!("name a {}", allowed.join(" or a "))));
            }
            Ok(_) => {}
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
