//! Checks of the workers themselves: are they there, what are they, do they agree with the scenario.

use std::collections::BTreeMap;

use super::super::facts::{Engine, Health, WorkerFacts};
use super::{Case, Check, Verdict, some_of};
use crate::base::Role;
use crate::live::Dialect;
use crate::scenario::Legs;

pub(super) fn reachable(case: &Case) -> Option<Check> {
    const NAME: &str = "workers";
    let workers = &case.facts.workers;
    if workers.is_empty() {
        return None;
    }
    let state = |worker: &WorkerFacts| match &worker.health {
        Health::Up | Health::Unknown => None,
        Health::NotReady(why) => Some(format!("{} not ready: {why}", worker.worker)),
        Health::Down(why) => Some(format!("{} at {}: {why}", worker.worker, worker.url)),
    };
    let bad: Vec<String> = workers.iter().filter_map(state).collect();
    if !bad.is_empty() {
        // Words with a remedy of their own need no other.
        let has_own = bad.iter().all(|why| why.contains("; "));
        let remedy = if has_own { "" } else { "start the missing workers, or correct the addresses in [live]" };
        return Some(Check::new(NAME, Verdict::Fail, some_of(bad), "requests to these workers fail", remedy));
    }
    let slowest = workers.iter().filter_map(|worker| worker.rtt).max();
    let rtt = slowest.map_or(String::new(), |rtt| format!(", round trip up to {:.1} ms", rtt.as_secs_f64() * 1e3));
    Some(Check::ok(NAME, format!("{} answer{rtt}", workers.len())))
}

pub(super) fn authorized(case: &Case) -> Option<Check> {
    let router = case.facts.router.as_ref().filter(|router| router.unauthorized).map(|_| "router".to_owned());
    let workers =
        case.facts.workers.iter().filter(|worker| worker.unauthorized).map(|worker| worker.worker.to_string());
    let refused: Vec<String> = router.into_iter().chain(workers).collect();
    if refused.is_empty() {
        return None;
    }
    let has_key = !case.target.secrets.headers.is_empty();
    let remedy = if has_key { "check the key" } else { "give the key by live.api_key_env or live.api_key_file" };
    let detail = format!("refused with 401 or 403: {}", some_of(refused));
    Some(Check::new("authorization", Verdict::Fail, detail, "every request fails", remedy))
}

pub(super) fn engines(case: &Case) -> Option<Check> {
    const NAME: &str = "engine";
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    let answering: Vec<&WorkerFacts> = case.facts.workers.iter().filter(|worker| is_there(worker)).collect();
    for worker in &answering {
        let kind = format!("{} {}", worker.engine.as_str(), worker.version);
        *kinds.entry(kind.trim_end().to_owned()).or_default() += 1;
    }
    let (first, count) = kinds.iter().next()?;
    let native = |worker: &&&WorkerFacts| matches!(worker.engine, Engine::Emulated | Engine::Sglang);
    let foreign: Vec<_> = answering.iter().filter(|worker| !native(worker)).map(|worker| worker.worker).collect();
    if case.target.dialect == Dialect::Generate && !foreign.is_empty() {
        let detail = format!("no SGLang server by its own word: {}", some_of(foreign));
        let remedy = "for an OpenAI-compatible server set live.target = \"openai\"";
        return Some(Check::new(NAME, Verdict::Warn, detail, "/generate may be missing", remedy));
    }
    if kinds.len() > 1 {
        let detail = some_of(kinds.iter().map(|(kind, count)| format!("{count} × {kind}")));
        let off = "comparisons between workers of different versions";
        return Some(Check::new(NAME, Verdict::Warn, detail, off, "run one version"));
    }
    Some(Check::ok(NAME, format!("{count} × {first}")))
}

pub(super) fn roles(case: &Case) -> Option<Check> {
    const NAME: &str = "roles";
    let told = case.facts.workers.iter().filter_map(|worker| Some((worker, worker.info.as_ref()?)));
    let told: Vec<_> = told.filter(|(_, info)| !info.disaggregation_mode.is_empty()).collect();
    if told.is_empty() {
        return None;
    }
    let wanted = |role| match role {
        Role::Prefill => "prefill",
        Role::Decode => "decode",
        Role::Colocated => "null",
    };
    let wrong = told.iter().filter(|(worker, info)| info.disaggregation_mode != wanted(worker.worker.role));
    let wrong: Vec<String> =
        wrong.map(|(worker, info)| format!("{} says {}", worker.worker, info.disaggregation_mode)).collect();
    if !wrong.is_empty() {
        let remedy = "list each address under its own role in [live]: prefill, decode or colocated";
        return Some(Check::new(NAME, Verdict::Fail, some_of(wrong), "requests to these workers fail", remedy));
    }
    bootstrap_ports(case).or_else(|| Some(Check::ok(NAME, format!("{} as listed", told.len()))))
}

/// A prefill worker that names another bootstrap port than the one we send; a router sends its own.
fn bootstrap_ports(case: &Case) -> Option<Check> {
    if case.target.legs != Legs::Direct {
        return None;
    }
    let prefill = case.facts.workers.iter().filter(|worker| worker.worker.role == Role::Prefill);
    let wrong = prefill.filter_map(|worker| {
        let told = worker.info.as_ref()?.disaggregation_bootstrap_port?;
        let ours = case.target.addresses.of(worker.worker)?.bootstrap_port?;
        (told != ours).then(|| format!("{} has {told}, not {ours}", worker.worker))
    });
    let wrong: Vec<String> = wrong.collect();
    if wrong.is_empty() {
        return None;
    }
    let remedy = "write the port behind the address: live.prefill = [\"URL PORT\"]";
    let detail = format!("bootstrap port: {}", some_of(wrong));
    Some(Check::new("roles", Verdict::Fail, detail, "decode workers wait for KV in vain", remedy))
}

pub(super) fn models(case: &Case) -> Option<Check> {
    const NAME: &str = "model";
    let wanted = case.target.model.as_str();
    let told: Vec<&WorkerFacts> = case.facts.workers.iter().filter(|worker| !worker.models.is_empty()).collect();
    let first = told.first()?;
    if wanted.is_empty() {
        return Some(Check::ok(NAME, format!("{}; requests name none", first.models.join(", "))));
    }
    let lacking: Vec<_> =
        told.iter().filter(|worker| !worker.models.iter().any(|model| model == wanted)).map(|it| it.worker).collect();
    if lacking.is_empty() {
        return Some(Check::ok(NAME, wanted));
    }
    let detail =
        format!("`{wanted}` is not listed by {}; {} has {}", some_of(lacking), first.worker, first.models.join(", "));
    let remedy = format!("set live.model = \"{}\", or leave it empty", first.models[0]);
    Some(Check::new(NAME, Verdict::Fail, detail, "requests are refused", remedy))
}

pub(super) fn kv_events(case: &Case) -> Option<Check> {
    let on = case.facts.workers.iter().filter(|worker| worker.kv_events == Some(true)).count();
    if on > 0 {
        return Some(Check::ok("KV events", format!("published by {on}; not read by this version")));
    }
    let off = "an index of what each worker really holds; policies go by what was sent";
    Some(Check::new("KV events", Verdict::Off, "none published", off, ""))
}

pub(super) fn keep_alive(case: &Case) -> Option<Check> {
    let least = case.facts.workers.iter().filter_map(|worker| worker.keep_alive_s).min_by(f64::total_cmp)?;
    let ours = case.target.limits.pool_idle.as_secs_f64();
    let detail = format!("servers close idle connections after {least} s, we after {ours} s");
    if ours < least {
        return Some(Check::ok("keep-alive", detail));
    }
    let remedy = format!("set live.pool_idle_s below {least}");
    let off = "requests may meet a connection that is just being closed";
    Some(Check::new("keep-alive", Verdict::Warn, detail, off, remedy))
}

/// It answered at all.
pub(super) fn is_there(worker: &WorkerFacts) -> bool {
    match worker.health {
        Health::Up | Health::Unknown | Health::NotReady(_) => true,
        Health::Down(_) => false,
    }
}
