//! Checks of the workers themselves: are they there, what are they, do they agree with the scenario.

use std::collections::BTreeMap;

use super::super::addresses::{Shared, workers_at};
use super::super::facts::{Engine, Health, WorkerFacts};
use super::{Case, Check, Facts, Verdict, some_of};
use crate::base::words::plural;
use crate::base::{Role, WorkerId};
use crate::live::client::REFUSED;
use crate::live::{Dialect, Target};
use crate::scenario::{Legs, Needs};

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
        // A run can go without some of them.
        let roles: &[Role] = if case.needs.two_legs { &[Role::Prefill, Role::Decode] } else { &[Role::Colocated] };
        let mut of_roles = roles.iter().map(|role| workers.iter().filter(|it| it.worker.role == *role));
        let is_role_gone = of_roles.any(|mut all| all.clone().next().is_some() && all.all(|it| state(it).is_some()));
        let result = if is_role_gone { Verdict::Fail } else { Verdict::Warn };
        return Some(Check::new(NAME, result, some_of(bad), "requests to these workers fail", remedy));
    }
    let is_blank = |worker: &&WorkerFacts| {
        let says_nothing = worker.models.is_empty() && worker.info.is_none();
        worker.health == Health::Unknown && worker.engine == Engine::Other && says_nothing
    };
    let blank: Vec<String> =
        workers.iter().filter(is_blank).map(|worker| format!("{} at {}", worker.worker, worker.url)).collect();
    if !blank.is_empty() {
        let detail = format!("{}: answers, but has no /health, /v1/models or /server_info", some_of(blank));
        let remedy = "see that the address is an inference server's";
        return Some(Check::new(NAME, Verdict::Warn, detail, "it may be no inference server at all", remedy));
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
        let off = "the workers do not compare with each other";
        return Some(Check::new(NAME, Verdict::Warn, detail, off, "run one version"));
    }
    Some(Check::ok(NAME, format!("{count} × {first}")))
}

/// Workers that are one server, where nothing else can be meant: which, and what to do.
pub fn address_fault(target: &Target, facts: &Facts) -> Option<(String, &'static str)> {
    let shared: Vec<String> =
        facts.shared.iter().filter(|shared| shared.is_certain).map(|shared| one_server(target, shared)).collect();
    (!shared.is_empty()).then(|| (some_of(shared), "list each worker once in [live]"))
}

fn one_server(target: &Target, shared: &Shared) -> String {
    let named = |worker: WorkerId| {
        let url = target.addresses.of(worker).map_or("", |endpoint| endpoint.url.as_str());
        format!("{worker} ({url})")
    };
    format!("{} and {} are one server, at {}", named(shared.first), named(shared.second), shared.at)
}

/// One server that is listed twice is taken for two, each with room of its own.
pub(super) fn addresses(case: &Case) -> Option<Check> {
    const NAME: &str = "addresses";
    const OFF: &str = "one worker is taken for two: its load, caches and sessions are counted as theirs";
    if let Some((why, remedy)) = address_fault(case.target, case.facts) {
        return Some(Check::new(NAME, Verdict::Fail, why, OFF, remedy));
    }
    let doubtful: Vec<String> = case.facts.shared.iter().map(|shared| one_server(case.target, shared)).collect();
    let remedy = "if two servers share that entrance, all is well; else list each worker once in [live]";
    (!doubtful.is_empty())
        .then(|| Check::new(NAME, Verdict::Warn, format!("it seems that {}", some_of(doubtful)), OFF, remedy))
}

/// What each worker says of its role, where it says anything.
fn told_roles(facts: &Facts) -> Vec<(&WorkerFacts, &str)> {
    let told = facts.workers.iter().filter(|worker| worker.engine != Engine::Router);
    let told = told.filter_map(|worker| Some((worker, worker.info.as_ref()?.disaggregation_mode.as_str())));
    told.filter(|(_, mode)| !mode.is_empty()).collect()
}

fn routers(facts: &Facts) -> Vec<String> {
    let routers = facts.workers.iter().filter(|worker| worker.engine == Engine::Router);
    routers.map(|worker| format!("{} is a router", worker.worker)).collect()
}

/// How it shows that what is listed as the router is one of the workers, or another one.
fn no_router(target: &Target, facts: &Facts) -> Option<String> {
    let is_used = !target.addresses.prefill.is_empty() && !target.addresses.decode.is_empty();
    let router = facts.router.as_ref().filter(|_| is_used)?;
    if let Some(worker) = workers_at(&target.addresses, &router.url).first() {
        return Some(format!("the router's address is that of {worker}"));
    }
    (!router.worker.is_empty()).then(|| format!("the router at {} is a worker ({})", router.url, router.worker))
}

/// Servers that by their own word are not what they are listed as: which, and what to do. A router is a server like any
/// other where all that is asked of it is OpenAI's endpoint.
pub fn role_fault(target: &Target, facts: &Facts) -> Option<(String, &'static str)> {
    let wanted = |role| match role {
        Role::Prefill => "prefill",
        Role::Decode => "decode",
        Role::Colocated => "null",
    };
    let told = told_roles(facts).into_iter().filter(|(worker, mode)| *mode != wanted(worker.worker.role));
    let told = told.map(|(worker, mode)| format!("{} says {mode}", worker.worker));
    let routers = if target.dialect == Dialect::Generate { routers(facts) } else { Vec::new() };
    let wrong: Vec<String> = no_router(target, facts).into_iter().chain(routers).chain(told).collect();
    let remedy = "list each address under its own role in [live]: prefill, decode, colocated or router";
    (!wrong.is_empty()).then(|| (some_of(wrong), remedy))
}

pub(super) fn roles(case: &Case) -> Option<Check> {
    const NAME: &str = "roles";
    if let Some((why, remedy)) = role_fault(case.target, case.facts) {
        return Some(Check::new(NAME, Verdict::Fail, why, "requests to these workers fail", remedy));
    }
    let routers = routers(case.facts);
    if !routers.is_empty() {
        let off = "the records name the router as who served, whichever of its workers it chose";
        return Some(Check::new(NAME, Verdict::Warn, some_of(routers), off, ""));
    }
    let told = told_roles(case.facts).len();
    (told > 0).then(|| Check::ok(NAME, format!("{told} as listed")))
}

/// A P to whose bootstrap server D would not find, where it is the client that names it: who, why, and what to do.
pub fn bootstrap_fault(needs: &Needs, target: &Target, facts: &Facts) -> Option<(WorkerId, String, String)> {
    if !needs.two_legs || target.legs != Legs::Direct {
        return None;
    }
    let prefill = target.addresses.workers().filter(|(id, _)| id.role == Role::Prefill);
    let told = prefill.filter_map(|(id, at)| Some((id, &at.url, at.bootstrap_port?, facts.bootstrap_port(id))));
    let told: Vec<_> = told.collect();
    let wrong = told.iter().find_map(|&(id, url, ours, told)| {
        let told = told.filter(|told| *told != ours)?;
        let why = format!("it is at port {told}, not {ours}, by the worker's own word");
        Some((id, why, format!("write \"{url} {told}\", or leave the port out to take the worker's word")))
    });
    let refused = |worker| {
        let found = facts.bootstrap.iter().find(|(known, _)| *known == worker);
        found.and_then(|(_, result)| result.as_ref().err()).filter(|why| why.contains(REFUSED))
    };
    let is_up = |worker| facts.workers.iter().any(|known| known.worker == worker && is_there(known));
    wrong.or_else(|| {
        told.iter().filter(|(id, ..)| is_up(*id)).find_map(|&(id, url, ..)| {
            let remedy = format!("write its port behind the address: \"{url} PORT\"");
            refused(id).map(|why| (id, why.clone(), remedy))
        })
    })
}

/// What the client tells D of P, where it joins the legs; a router tells its own.
pub(super) fn bootstrap(case: &Case) -> Option<Check> {
    const NAME: &str = "bootstrap";
    if let Some((worker, why, remedy)) = bootstrap_fault(case.needs, case.target, case.facts) {
        let off = "decode workers wait for KV in vain";
        return Some(Check::new(NAME, Verdict::Fail, format!("{worker}: {why}"), off, remedy));
    }
    let asked = &case.facts.bootstrap;
    let silent: Vec<String> =
        asked.iter().filter_map(|(worker, result)| Some(format!("{worker}: {}", result.as_ref().err()?))).collect();
    if !silent.is_empty() {
        let remedy = "see that the decode workers reach it, even where this machine does not";
        return Some(Check::new(
            NAME,
            Verdict::Warn,
            some_of(silent),
            "decode workers may wait for KV in vain",
            remedy,
        ));
    }
    (!asked.is_empty()).then(|| Check::ok(NAME, format!("servers of {} P answer", asked.len())))
}

/// Emulated workers that have been at work before: prompts of an earlier run are found in their caches.
pub(super) fn caches(case: &Case) -> Option<Check> {
    const NAME: &str = "caches";
    let told = case.facts.workers.iter().filter(|worker| worker.held_tokens.is_some()).count();
    let warm: Vec<_> = case.facts.warm_caches().collect();
    if warm.is_empty() {
        let are = if told == 1 { "is" } else { "are" };
        return (told > 0).then(|| Check::ok(NAME, format!("{told} {are} empty")));
    }
    let tokens: u64 = warm.iter().map(|(_, held)| held).sum();
    let names = some_of(warm.iter().map(|(worker, _)| worker));
    let hold = if warm.len() == 1 { "holds" } else { "hold" };
    let detail = format!("{names} {hold} {} from before", plural(tokens, "token"));
    let remedy = "for a cold start POST /flush_cache to each worker, or to the router";
    Some(Check::new(NAME, Verdict::Warn, detail, "prompts seen before are found in the caches", remedy))
}

/// The servers' calendar against ours.
pub(super) fn clock(case: &Case) -> Option<Check> {
    const NAME: &str = "clock";
    /// A date has whole seconds, and the way takes its time.
    const MOST: f64 = 2.0;
    let router = case.facts.router.iter().filter_map(|router| Some(("router".to_owned(), router.clock_ahead_s?)));
    let workers = case.facts.workers.iter().filter_map(|it| Some((it.worker.to_string(), it.clock_ahead_s?)));
    let told: Vec<(String, f64)> = router.chain(workers).collect();
    let off = told.iter().filter(|(_, ahead)| ahead.abs() > MOST);
    let off = off.map(|(name, ahead)| {
        format!("{name} is {:.0} s {} us", ahead.abs(), if *ahead > 0.0 { "ahead of" } else { "behind" })
    });
    let off: Vec<String> = off.collect();
    if off.is_empty() {
        return (!told.is_empty()).then(|| Check::ok(NAME, format!("{} agree with ours to the second", told.len())));
    }
    let effect = "times in the servers' logs are not those of the records";
    Some(Check::new(NAME, Verdict::Warn, some_of(off), effect, "set the clocks by NTP"))
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

/// Name of the row on the publishers of KV events, by the workers' own word.
pub const KV_EVENTS: &str = "KV events";

pub(super) fn kv_events(case: &Case) -> Option<Check> {
    let on = case.facts.workers.iter().filter(|worker| worker.kv_events == Some(true)).count();
    if on > 0 {
        let look = "`--kv-events FILE` looks whether they can be followed";
        return Some(Check::ok(KV_EVENTS, format!("published by {on}; {look}")));
    }
    let denied = case.facts.workers.iter().any(|worker| worker.kv_events == Some(false));
    let detail =
        if denied { "none are published" } else { "the workers do not say whether they publish what they cache" };
    if case.needs.index.is_none() {
        let detail = format!("{detail}; not needed, as the policy reads no index");
        return Some(Check::new(KV_EVENTS, Verdict::Off, detail, "", ""));
    }
    let off = "where no events come, the policy's index is empty: hits count as 0";
    let remedy = "start the engines with KV events, and see by `--kv-events FILE` whether they can be followed";
    Some(Check::new(KV_EVENTS, Verdict::Off, detail, off, remedy))
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
