//! Checks of what the scenario wants done: requests, sessions, admission, loads, capacity.

use super::super::facts::{Engine, WorkerFacts};
use super::super::question::Question;
use super::super::route_map::Probed;
use super::workers::is_there;
use super::{Case, Check, Verdict, some_of};
use crate::base::Role;
use crate::base::words::plural;

pub(super) fn one_token(case: &Case) -> Option<Check> {
    const NAME: &str = "one token";
    // What a worker that does not answer makes of one, the row of the workers says.
    let of_workers = case.facts.workers.iter().filter(|worker| is_there(worker)).filter_map(|worker| {
        let result = worker.generate.as_ref()?;
        Some((worker.worker.to_string(), result.clone()))
    });
    // What a router that does not answer makes of a token, its own row says.
    let is_up = !case.router_is_down();
    let whole = case.facts.serving.clone().filter(|_| is_up).map(|result| ("router".to_owned(), result));
    let of_routes =
        case.facts.routes.iter().filter(|_| is_up).flat_map(|routes| &routes.first).filter_map(|(index, probed)| {
            let over = format!("router, index {index}");
            match probed {
                Probed::Served(_) | Probed::Nameless => Some((over, Ok(()))),
                Probed::Failed(why) | Probed::Unanswered(why) => Some((over, Err(why.clone()))),
                Probed::NoWorker => None,
            }
        });
    let of_names = case.facts.named.iter().filter(|_| is_up).map(|(worker, probed)| {
        let result = match probed {
            Probed::Served(_) | Probed::Nameless => Ok(()),
            Probed::Failed(why) | Probed::Unanswered(why) => Err(why.clone()),
            Probed::NoWorker => Err("the router has no such worker".to_owned()),
        };
        (format!("router, for {worker}"), result)
    });
    let asked: Vec<(String, Result<(), String>)> = of_workers.chain(whole).chain(of_routes).chain(of_names).collect();
    let failed = by_reason(&asked);
    if asked.is_empty() {
        return None;
    }
    if failed.is_empty() {
        return Some(Check::ok(
            NAME,
            format!("answered {} over the run's own way", plural(asked.len() as u64, "time")),
        ));
    }
    let remedy = "send one by hand and see the server's log";
    Some(Check::new(NAME, Verdict::Fail, some_of(failed), "requests of the run fail the same way", remedy))
}

/// Each reason once, with who gave it.
fn by_reason(asked: &[(String, Result<(), String>)]) -> Vec<String> {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for (over, why) in asked.iter().filter_map(|(over, result)| Some((over.as_str(), result.as_ref().err()?.as_str())))
    {
        match reasons.iter_mut().find(|(known, _)| *known == why) {
            Some((_, who)) => who.push(over),
            None => reasons.push((why, vec![over])),
        }
    }
    reasons.into_iter().map(|(why, who)| format!("{}: {why}", some_of(who))).collect()
}

fn decode<'a>(case: &'a Case) -> impl Iterator<Item = &'a WorkerFacts> {
    case.facts.workers.iter().filter(|worker| worker.worker.role == Role::Decode && is_there(worker))
}

/// Workers whose answer to an optional question was no, with the first reason.
fn lacking<'a>(
    asked: impl Iterator<Item = (&'a WorkerFacts, &'a Result<(), String>)>,
) -> Option<(Vec<String>, &'a str)> {
    let no: Vec<_> = asked.filter_map(|(worker, result)| Some((worker.worker, result.as_ref().err()?))).collect();
    let (_, why) = no.first()?;
    Some((no.iter().map(|(worker, _)| worker.to_string()).collect(), why.as_str()))
}

pub(super) fn sessions(case: &Case) -> Option<Check> {
    const NAME: &str = "sessions";
    let asked: Vec<_> = decode(case).filter_map(|worker| Some((worker, worker.sessions.as_ref()?))).collect();
    if asked.is_empty() {
        return None;
    }
    let count = asked.len();
    let Some((workers, why)) = lacking(asked.into_iter()) else {
        return Some(Check::ok(NAME, format!("opened and closed on {count} D")));
    };
    let detail = format!("{}: {why}", some_of(workers));
    if !case.needs.sessions {
        return Some(Check::new(NAME, Verdict::Off, detail, "", ""));
    }
    let remedy = "start the decode workers with --enable-streaming-session, or use --mechanism pd";
    Some(Check::new(NAME, Verdict::Fail, detail, "no sessions stay on D: kvc cannot run", remedy))
}

pub(super) fn admission(case: &Case) -> Option<Check> {
    const NAME: &str = "admission";
    let asked: Vec<_> = decode(case).filter_map(|worker| Some((worker, worker.admission.as_ref()?))).collect();
    if asked.is_empty() {
        return None;
    }
    let count = asked.len();
    let Some((workers, why)) = lacking(asked.into_iter()) else {
        return Some(Check::ok(NAME, format!("{count} D answer admission calls")));
    };
    let detail = format!("{}: {why}", some_of(workers));
    if !case.needs.admission {
        return Some(Check::new(
            NAME,
            Verdict::Off,
            detail,
            "none that matters: the scenario makes no admission calls",
            "",
        ));
    }
    let off = "no direct appends: each is refused and takes the plain path";
    let remedy = "use a patched SGLang or pdreplay worker, or --mechanism pd: stock SGLang has no admission";
    Some(Check::new(NAME, Verdict::Warn, detail, off, remedy))
}

pub(super) fn loads(case: &Case) -> Option<Check> {
    const NAME: &str = "loads";
    let answering: Vec<&WorkerFacts> = case.facts.workers.iter().filter(|worker| is_there(worker)).collect();
    if answering.is_empty() {
        return None;
    }
    let without: Vec<_> = answering.iter().filter(|worker| worker.loads.is_none()).map(|it| it.worker).collect();
    let old = answering.iter().filter(|worker| worker.loads == Some(Question::GetLoad)).count();
    if without.is_empty() && old == 0 {
        return Some(Check::ok(NAME, format!("/v1/loads on {}", answering.len())));
    }
    if without.is_empty() {
        let off = "KV usage is not known: the older /get_load has no capacity";
        let result = if case.needs.loads { Verdict::Warn } else { Verdict::Off };
        return Some(Check::new(NAME, result, format!("/get_load only on {old}"), off, "update the workers"));
    }
    let detail = format!("no load endpoint: {}", some_of(without));
    if case.needs.loads {
        let remedy = "set policy.kv_aware.capacity_aware = false, or update the workers";
        return Some(Check::new(NAME, Verdict::Fail, detail, "the policy does not see free capacity", remedy));
    }
    Some(Check::new(NAME, Verdict::Off, detail, "none that matters: the policy reads no loads", ""))
}

pub(super) fn capacity(case: &Case) -> Option<Check> {
    const NAME: &str = "KV capacity";
    let holds = |worker: &&WorkerFacts| worker.worker.role != Role::Prefill;
    let told = case.facts.workers.iter().filter(holds).filter_map(|worker| {
        let info = worker.info.as_ref()?;
        (info.max_total_num_tokens > 0).then_some((worker, info.max_total_num_tokens))
    });
    let told: Vec<_> = told.collect();
    let least = told.iter().map(|(_, tokens)| *tokens).min()?;
    let most = told.iter().map(|(_, tokens)| *tokens).max()?;
    let range = if least == most { least.to_string() } else { format!("{least} to {most}") };
    let pages = told.iter().filter_map(|(worker, _)| worker.info.as_ref()).map(|info| info.page_size).max()?;
    let detail = format!("{range} tokens a worker, {pages} a page");
    let ours = case.needs.kv_pool_tokens;
    let is_emulated = told.iter().all(|(worker, _)| worker.engine == Engine::Emulated);
    if least == ours && most == ours || !case.needs.sessions && !is_emulated {
        return Some(Check::ok(NAME, detail));
    }
    let detail = format!("{detail}; the scenario counts with {ours}");
    let off = "soft caps and the preflight's figures are for another capacity";
    Some(Check::new(NAME, Verdict::Warn, detail, off, format!("set engine.kv_pool_tokens = {least}")))
}
