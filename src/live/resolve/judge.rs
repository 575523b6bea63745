//! What was seen of a target, against what the scenario wants: taken over where the scenario left it open, refused where
//! a run cannot go.
//!
//! Pure. `doctor` goes by the same refusals as a run, so that it never lets pass what a run would not.

use super::ResolveError;
use crate::live::probe::{Engine, Facts, Health, WorkerFacts, address_fault, bootstrap_fault, role_fault};
use crate::live::{Dialect, Endpoint, Target};
use crate::scenario::{Legs, Needs, RouterKind, Scenario};

/// Takes over what the servers say and the scenario leaves open: kind of the router, model, bootstrap ports, whether the
/// workers are emulated.
pub(in crate::live) fn adopt(scenario: &Scenario, seen: &Facts, target: &mut Target) {
    let Needs { two_legs, .. } = Needs::of(scenario);
    if target.router_kind == RouterKind::Auto
        && let Some(router) = seen.router.as_ref().filter(|_| two_legs && target.legs == Legs::Router)
    {
        target.router_kind = router.kind;
    }
    let mut there = answering(seen).peekable();
    target.emulated = there.peek().is_some() && there.all(|worker| worker.engine == Engine::Emulated);
    for worker in answering(seen) {
        if !worker.own_name.is_empty() {
            target.addresses.learn_name(worker.worker, &worker.own_name);
        }
    }
    target.addresses.other_urls = seen.other_urls.iter().cloned().collect();
    if target.model.is_empty() && target.dialect != Dialect::Generate {
        target.model = seen.workers.iter().find_map(|worker| worker.models.first().cloned()).unwrap_or_default();
    }
    let told: Vec<Option<u16>> = target.addresses.workers().map(|(id, _)| seen.bootstrap_port(id)).collect();
    let needed = (target.legs == Legs::Direct).then_some(Endpoint::BOOTSTRAP_PORT);
    // P come first among the workers.
    for (endpoint, told) in target.addresses.prefill.iter_mut().zip(told) {
        endpoint.bootstrap_port = endpoint.bootstrap_port.or(told).or(needed);
    }
}

/// What a run of this scenario cannot go with.
pub(in crate::live) fn refuse(scenario: &Scenario, seen: &Facts, target: &Target) -> Result<(), ResolveError> {
    if let Some((why, remedy)) = address_fault(target, seen) {
        return Err(ResolveError::SameServer { why, remedy });
    }
    if let Some((why, remedy)) = role_fault(target, seen) {
        return Err(ResolveError::Roles { why, remedy });
    }
    let needs = Needs::of(scenario);
    let two_legs = needs.two_legs;
    let roles = [("prefill worker", "prefill", 'P'), ("decode worker", "decode", 'D'), ("worker", "colocated", 'W')];
    for (role, key, letter) in roles.into_iter().filter(|(_, _, letter)| (*letter != 'W') == two_legs) {
        let workers: Vec<&WorkerFacts> = seen.workers.iter().filter(|w| w.worker.role.letter() == letter).collect();
        let downs = workers.iter().filter_map(|worker| down(&worker.health).map(|why| told(&worker.url, why, key)));
        let downs: Vec<String> = downs.collect();
        if let Some(why) = downs.first().filter(|_| downs.len() == workers.len()) {
            return Err(ResolveError::Down { role, why: why.clone() });
        }
    }
    if let Some(router) = seen.router.as_ref().filter(|_| two_legs && target.legs == Legs::Router) {
        if let Some(why) = down(&router.health) {
            return Err(ResolveError::Down { role: "router", why: told(&router.url, why, "router") });
        }
        let url = router.url.clone();
        match target.router_kind {
            RouterKind::Auto => return Err(ResolveError::UnknownRouter { url }),
            kind @ (RouterKind::Smg | RouterKind::SglangRouter) if needs.sessions => {
                return Err(ResolveError::SessionsReachP { url, kind: kind.as_str().into() });
            }
            RouterKind::Pdreplay | RouterKind::Smg | RouterKind::SglangRouter => {}
        }
    }
    if let Some((worker, why, remedy)) = bootstrap_fault(&needs, target, seen) {
        return Err(ResolveError::Bootstrap { worker, why, remedy });
    }
    answering(seen).try_for_each(|worker| check_speed(scenario.live.emulation_speed, worker))
}

fn answering(seen: &Facts) -> impl Iterator<Item = &WorkerFacts> {
    seen.workers.iter().filter(|worker| down(&worker.health).is_none())
}

/// What happened at an address, and what to do: what the client's words say themselves, or what may be.
fn told(url: &str, why: &str, key: &str) -> String {
    let is_plain = url.starts_with("http:") && why.starts_with("connection closed before");
    match (why.contains("; "), is_plain) {
        (true, _) => format!("{url}: {why}"),
        (false, true) => format!("{url}: {why}; if it speaks TLS, write https://, else correct `live.{key}`"),
        (false, false) => format!("{url}: {why}; start it, or correct `live.{key}`"),
    }
}

fn check_speed(speed: f64, worker: &WorkerFacts) -> Result<(), ResolveError> {
    let emulated = worker.info.as_ref().and_then(|info| info.emulated.as_ref());
    let (is, wanted) = match emulated {
        Some(emulated) => (format!("is emulated at {} times real time", emulated.speed), emulated.speed),
        None => ("runs in real time".to_owned(), 1.0),
    };
    if wanted == speed { Ok(()) } else { Err(ResolveError::Speed { url: worker.url.clone(), is, speed, wanted }) }
}

fn down(health: &Health) -> Option<&str> {
    match health {
        Health::Down(why) => Some(why),
        Health::Up | Health::NotReady(_) | Health::Unknown => None,
    }
}
