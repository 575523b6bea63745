//! Checks of the PD router: which one it is, whether it goes where the header says, what it does unasked.

use std::collections::BTreeSet;

use super::super::facts::Health;
use super::super::route_map::{Probed, RouteFault};
use super::{Case, Check, Facts, Verdict, some_of};
use crate::base::{Role, WorkerId};
use crate::live::Target;
use crate::scenario::{RouterKind, TargetValue};

pub(super) fn reachable(case: &Case) -> Option<Check> {
    const NAME: &str = "router";
    let router = case.facts.router.as_ref()?;
    let (detail, remedy) = match &router.health {
        Health::Up | Health::Unknown => {
            let rtt = router.rtt.map_or(String::new(), |rtt| format!(", round trip {:.1} ms", rtt.as_secs_f64() * 1e3));
            return Some(Check::ok(NAME, format!("{} answers{rtt}", router.url)));
        }
        Health::NotReady(why) => (format!("{} is not ready: {why}", router.url), "start its workers before it"),
        Health::Down(why) => (format!("{}: {why}", router.url), "start the router, or correct live.router"),
    };
    Some(Check::new(NAME, Verdict::Fail, detail, "every request over the router fails", remedy))
}

pub(super) fn kind(case: &Case) -> Option<Check> {
    const NAME: &str = "router kind";
    let router = case.facts.router.as_ref().filter(|_| !case.router_is_down())?;
    let found = format!("{} {}", router.kind.as_str(), router.version);
    let found = found.trim_end();
    let configured = case.target.router_kind;
    if router.kind == RouterKind::Auto {
        let off = "runs over other routers do not compare: time to first token depends on the router";
        if configured != RouterKind::Auto {
            let detail = format!("it does not say what it is; taken for {}", configured.as_str());
            return Some(Check::new(NAME, Verdict::Warn, detail, off, ""));
        }
        let remedy = "set live.router_kind to pdreplay, smg or sglang-router";
        return Some(Check::new(NAME, Verdict::Fail, "it does not say what it is", "a replay is refused", remedy));
    }
    if configured != RouterKind::Auto && configured != router.kind {
        let detail = format!("{found}, but live.router_kind = \"{}\"", configured.as_str());
        return Some(Check::new(NAME, Verdict::Fail, detail, "", "set live.router_kind = \"auto\""));
    }
    if router.kind == RouterKind::SglangRouter {
        let off = "time per token is wrong where P is slower than D: it holds the answer until P is done";
        return Some(Check::new(NAME, Verdict::Warn, found, off, "use smg, or live.legs = \"direct\""));
    }
    Some(Check::ok(NAME, found))
}

/// Workers of ours that the router's own list lacks. Addresses may be written in another way there, so it is a warning.
pub(super) fn members(case: &Case) -> Option<Check> {
    const NAME: &str = "router's workers";
    let listed = &case.facts.router.as_ref()?.decode;
    if listed.is_empty() {
        return None;
    }
    let is_listed = |id: WorkerId| listed.iter().any(|known| case.target.addresses.named(known) == Some(id));
    let decode = case.target.addresses.workers().map(|(id, _)| id).filter(|id| id.role == Role::Decode);
    let lacking: Vec<_> = decode.filter(|id| !is_listed(*id)).collect();
    if !lacking.is_empty() {
        let detail = format!("it lists {}, not {}", some_of(listed), some_of(lacking));
        let remedy = "start the router with the same addresses as live.decode";
        return Some(Check::new(
            NAME,
            Verdict::Warn,
            detail,
            "requests meant for these workers go to others, or fail",
            remedy,
        ));
    }
    let others: Vec<_> = listed.iter().filter(|url| case.target.addresses.named(url).is_none()).collect();
    if others.is_empty() {
        return Some(Check::ok(NAME, format!("it lists {} D, all ours", listed.len())));
    }
    let detail = format!("it lists {} D that are none of ours: {}", others.len(), some_of(others));
    let off = "requests that the router places itself go there too, and their records name no worker";
    let remedy = "list them as well (--decode, live.decode), or start the router with ours alone";
    Some(Check::new(NAME, Verdict::Warn, detail, off, remedy))
}

/// The header that names P is our own router's; no other one hears of it.
pub(super) fn prefill_header(case: &Case) -> Option<Check> {
    const NAME: &str = "prefill header";
    let router = case.facts.router.as_ref().filter(|_| case.needs.prefill_header && !case.router_is_down())?;
    let name = &case.target.header.prefill_name;
    if router.kind == RouterKind::Pdreplay {
        return Some(Check::ok(NAME, format!("{name} is the router's own")));
    }
    let off = "the policy's choice of P is not heard: the router places it by itself";
    let remedy = "set live.legs = \"direct\", or use `pdreplay router`";
    Some(Check::new(NAME, Verdict::Warn, format!("{} does not know {name}", router.kind.as_str()), off, remedy))
}

/// With indices, the header is only as good as the map that probes found; else as the answers to its names.
pub(super) fn target_header(case: &Case) -> Option<Check> {
    const NAME: &str = "target header";
    if !case.needs.target_header || case.facts.router.is_none() || case.router_is_down() {
        return None;
    }
    let Some(routes) = &case.facts.routes else { return names(case) };
    match routes.verdict(case.target).map_err(|fault| down_first(case.facts, fault)) {
        Ok(map) if routes.is_confirmed(case.target) => Some(Check::ok(NAME, format!("{map}, each tried three times"))),
        Ok(map) => {
            let detail = format!("{map}, but there was no time to try each again");
            Some(Check::new(NAME, Verdict::Warn, detail, "", "see what one token over the router takes so long for"))
        }
        Err(RouteFault { why, remedy, .. }) => {
            let off = "requests reach other decode workers than the policy chose";
            Some(Check::new(NAME, Verdict::Fail, why, off, remedy))
        }
    }
}

fn value_word(value: TargetValue) -> &'static str {
    match value {
        TargetValue::Index => "index",
        TargetValue::Url => "URL",
        TargetValue::Id => "name",
    }
}

/// D that their URL or id does not reach, by the probes: which, and what to do.
pub fn name_fault(target: &Target, facts: &Facts) -> Option<RouteFault> {
    let value = value_word(target.header.target_value);
    let found = |probed: &Probed| match probed {
        Probed::Served(name) => Some(target.addresses.named(name).map_or(name.clone(), |id| id.to_string())),
        Probed::Nameless | Probed::NoWorker | Probed::Failed(_) | Probed::Unanswered(_) => None,
    };
    let missed: Vec<(WorkerId, String)> = facts
        .named
        .iter()
        .filter_map(|(worker, probed)| match (probed, found(probed)) {
            (Probed::Failed(why) | Probed::Unanswered(why), _) => Some((*worker, why.clone())),
            (Probed::NoWorker, _) => Some((*worker, format!("the router knows no worker by its {value}"))),
            (_, Some(other)) if other != worker.to_string() => Some((*worker, format!("served by {other}"))),
            _ => None,
        })
        .collect();
    let remedy = "give the router --decode-policy consistent_hashing, or set live.header.target_value = \"index\"";
    let missing: Vec<WorkerId> = missed.iter().map(|(worker, _)| *worker).collect();
    let why = some_of(missed.into_iter().map(|(worker, why)| format!("{worker}: {why}")));
    (!missing.is_empty()).then(|| down_first(facts, RouteFault { why, remedy, missing }))
}

/// The fault with its true cause first, where a D that nothing reaches does not answer itself: no router can help that.
pub fn down_first(facts: &Facts, fault: RouteFault) -> RouteFault {
    let down = |id: &WorkerId| {
        let worker = facts.workers.iter().find(|worker| worker.worker == *id)?;
        let Health::Down(why) = &worker.health else { return None };
        Some(format!("{id} at {}: {why}", worker.url))
    };
    // Each is tried twice.
    let missing: BTreeSet<WorkerId> = fault.missing.iter().copied().collect();
    let downs: Vec<String> = missing.iter().filter_map(down).collect();
    if downs.is_empty() {
        return fault;
    }
    let is_all = downs.len() == missing.len();
    let why = format!("{}; so the router cannot use it: {}", some_of(downs), fault.why);
    let remedy = if is_all { "start the missing workers, or leave them out of [live]" } else { fault.remedy };
    RouteFault { why, remedy, missing: fault.missing }
}

/// With URLs or ids, every D must have been reached by its own. Nothing when none was tried.
fn names(case: &Case) -> Option<Check> {
    const NAME: &str = "target header";
    let header = &case.target.header;
    let decode = case.target.addresses.decode.len();
    let off = "requests reach other decode workers than the policy chose, or none";
    if case.facts.named.is_empty() {
        return None;
    }
    if let Some(RouteFault { why, remedy, .. }) = name_fault(case.target, case.facts) {
        return Some(Check::new(NAME, Verdict::Fail, why, off, remedy));
    }
    if case.facts.named.iter().any(|(_, probed)| *probed == Probed::Nameless) {
        let detail = format!("{} was answered, but not by whom", header.target_name);
        return Some(Check::new(NAME, Verdict::Warn, detail, off, "set live.served_by to what names the worker"));
    }
    if case.facts.named.len() < 2 * decode {
        let detail = format!("tried {} times only for {decode} D: the router is slow", case.facts.named.len());
        return Some(Check::new(NAME, Verdict::Warn, detail, off, "see that the router is not busy, and ask again"));
    }
    let value = value_word(header.target_value);
    Some(Check::ok(NAME, format!("each of {decode} D was reached by its {value}, twice")))
}

pub(super) fn served_by(case: &Case) -> Option<Check> {
    const NAME: &str = "served by";
    let indices = case.facts.routes.iter().flat_map(|routes| &routes.first).map(|(_, probed)| probed);
    let mut probes = indices.chain(case.facts.named.iter().map(|(_, probed)| probed));
    let served = probes.find_map(|probed| match probed {
        Probed::Served(name) => Some(name),
        Probed::Nameless | Probed::NoWorker | Probed::Failed(_) | Probed::Unanswered(_) => None,
    })?;
    Some(Check::ok(NAME, format!("answers name their worker, such as {served}")))
}

/// What can only be told of the kind: neither shows from outside.
pub(super) fn overload_protection(case: &Case) -> Option<Check> {
    let router = case.facts.router.as_ref()?;
    let (detail, off, remedy) = match router.kind {
        RouterKind::Pdreplay | RouterKind::Auto => return None,
        RouterKind::Smg => (
            "overload protection and retries are on by default and cannot be seen from outside",
            "a full D silently loses its index (counted as route mismatch); requests are sent twice unseen",
            "start smg with --disable-worker-overload-protection --disable-retries",
        ),
        RouterKind::SglangRouter => (
            "retries are on by default and cannot be seen from outside",
            "requests are sent twice unseen",
            "start the router with --disable-retries",
        ),
    };
    Some(Check::new("router defaults", Verdict::Warn, detail, off, remedy))
}
