//! From a scenario to a [`Target`]: addresses, limits in wall time, and what a short look at the servers says.
//!
//! Owns no choice about requests. Invariant: what cannot work with the servers found is refused before anything is sent.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use thiserror::Error;
use tokio::runtime::Builder;

use crate::base::WorkerId;
use crate::live::client::{ClientError, Http};
use crate::live::driver::{Connections, Descriptors, Shortage};
use crate::live::probe::{self, Engine, Facts, Health, RouteFault, RouteMap};
use crate::live::{Accounts, Addresses, Dialect, Endpoint, Limits, Retries, Secrets, Target};
use crate::record::{RouterFact, TargetFacts, TargetWorker};
use crate::replay::Mechanism;
use crate::scenario::{Address, Legs, Needs, RouterKind, SESSIONS_REACH_P, Scenario, TargetKind, resolve_router};

pub(in crate::live) use judge::{adopt, refuse};

mod judge;

/// Files for each worker beside those of requests: polls of it, and an embedded one's own.
const FILES_A_WORKER: u64 = 8;

/// A target and what is to be written down of it.
#[derive(Debug)]
pub struct Resolved {
    /// For the driver.
    pub target: Target,
    /// For `run.json`.
    pub facts: TargetFacts,
    /// What the run will suffer from, though it can go: a sentence each.
    pub warnings: Vec<String>,
}

/// A target that a run of this scenario cannot be sent to; nothing was sent.
#[derive(Debug, Error)]
pub enum ResolveError {
    /// The client cannot be made.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// No runtime for the look.
    #[error("cannot look at the target: {0}")]
    Start(std::io::Error),
    /// No server of a role answers.
    #[error("no {role} answers: {why}")]
    Down {
        /// `router`, `decode worker`, ….
        role: &'static str,
        /// The first one's address, what happened there, what to do.
        why: String,
    },
    /// Two workers are one server.
    #[error("{why}; {remedy}")]
    SameServer {
        /// Which, and where.
        why: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A server is listed as what it is not.
    #[error("addresses under the wrong role: {why}; {remedy}")]
    Roles {
        /// Which, and what they say.
        why: String,
        /// What to do.
        remedy: &'static str,
    },
    /// The router's kind cannot be told.
    #[error("{url} does not say what kind of router it is; set live.router_kind to pdreplay, smg or sglang-router")]
    UnknownRouter {
        /// Its address.
        url: String,
    },
    /// `kvc` through a router that does not strip `session_params`.
    #[error("the router at {url} is {kind}, {SESSIONS_REACH_P}; set live.legs = \"direct\", or use `pdreplay router`")]
    SessionsReachP {
        /// Its address.
        url: String,
        /// Its kind.
        kind: String,
    },
    /// The client joins the legs, but D would not find P's bootstrap server.
    #[error("bootstrap server of {worker}: {why}; {remedy}")]
    Bootstrap {
        /// A prefill worker.
        worker: WorkerId,
        /// What was found.
        why: String,
        /// What to do.
        remedy: String,
    },
    /// The router does not take requests where the header says.
    #[error("the router at {url} cannot be told which decode worker to use: {why}; {remedy}")]
    Routes {
        /// Its address.
        url: String,
        /// What the probes found.
        why: String,
        /// What to do.
        remedy: &'static str,
    },
    /// The router cannot be told to use a decode worker that does not answer.
    #[error("{why}; {remedy}")]
    Unreached {
        /// Which, where, and what happened there.
        why: String,
        /// What to do.
        remedy: &'static str,
    },
    /// The clock would not fit the workers.
    #[error("{url} {is}, but live.emulation_speed is {speed}; set it to {wanted} (--emulation-speed {wanted})")]
    Speed {
        /// A worker.
        url: String,
        /// How fast it goes, in words.
        is: String,
        /// As configured.
        speed: f64,
        /// What it must be.
        wanted: f64,
    },
}

/// The target of `scenario`: its own lists, or the `embedded` cluster's addresses. Blocks for a look at the servers, which
/// is bounded; the embedded cluster needs none.
pub fn resolve(
    scenario: &Scenario,
    embedded: Option<&Addresses>,
    secrets: Secrets,
    sessions: usize,
) -> Result<Resolved, ResolveError> {
    let mut target = describe(scenario, embedded, secrets, sessions);
    if embedded.is_some() {
        target.emulated = true;
        target.router_kind = RouterKind::Pdreplay;
        let facts = facts(scenario, &target, None);
        return Ok(Resolved { target, facts, warnings: Vec::new() });
    }
    let runtime = Builder::new_current_thread().enable_all().build().map_err(ResolveError::Start)?;
    let needs = Needs::of(scenario);
    let (seen, warnings) = runtime.block_on(async {
        let http = Http::new(&target)?;
        let mut seen = probe::glance(&target, &http).await;
        adopt(scenario, &seen, &mut target);
        seen.bootstrap = probe::bootstrap_servers(&target, &needs, &http).await;
        refuse(scenario, &seen, &target)?;
        if probe::has_indices(&target, &needs) {
            seen.routes = Some(probe::routes(&target, &http).await);
            target.route_map = routes(&target, &seen)?;
        }
        if probe::has_names(&target, &needs) {
            seen.named = probe::named(&target, &http).await;
            names(&target, &seen)?;
        }
        target.absent = absent(&seen);
        if target.emulated {
            target.warm = seen.warm_caches().collect();
            target.baseline = Accounts::read(&target.addresses, &http, target.limits.control).await;
        }
        let warnings = probe::cautions(&needs, &target, &seen);
        Ok::<_, ResolveError>((seen, warnings))
    })?;
    runtime.shutdown_background();
    let facts = facts(scenario, &target, Some(&seen));
    Ok(Resolved { target, facts, warnings })
}

/// The map of target-header values, when the probes show that the router goes by it.
fn routes(target: &Target, seen: &Facts) -> Result<Option<RouteMap>, ResolveError> {
    let verdict = seen.routes.as_ref().map(|routes| routes.verdict(target)).transpose();
    verdict.map_err(|fault| unroutable(target, seen, probe::down_first(seen, fault)))
}

/// Refuses a run whose names reach others than they mean.
fn names(target: &Target, seen: &Facts) -> Result<(), ResolveError> {
    probe::name_fault(target, seen).map_or(Ok(()), |fault| Err(unroutable(target, seen, fault)))
}

/// The router is to blame only where the D that it does not reach answer themselves.
fn unroutable(target: &Target, seen: &Facts, RouteFault { why, remedy, missing }: RouteFault) -> ResolveError {
    let absent = absent(seen);
    if missing.iter().any(|worker| absent.contains(worker)) {
        return ResolveError::Unreached { why, remedy };
    }
    ResolveError::Routes { url: target.addresses.router.clone().unwrap_or_default(), why, remedy }
}

/// Workers that do not answer.
pub(in crate::live) fn absent(seen: &Facts) -> Vec<WorkerId> {
    let down = seen.workers.iter().filter(|worker| matches!(worker.health, Health::Down(_)));
    down.map(|worker| worker.worker).collect()
}

/// Requests on the wire at most: a session has one at a time, and the scenario may allow fewer.
fn most_at_once(scenario: &Scenario, sessions: usize) -> usize {
    let replay = &scenario.replay;
    let caps = [replay.concurrency, replay.max_sessions].into_iter().filter(|cap| *cap > 0);
    caps.fold(sessions, |most, cap| most.min(cap as usize)).max(1)
}

/// Open files of a run of so many sessions, checked against the limit before anything is started. `at_once`: requests on the
/// wire as planned; `None` where the scenario itself asks for as many as its limits allow.
pub fn descriptors(scenario: &Scenario, sessions: usize, at_once: Option<u32>) -> Result<Descriptors, Shortage> {
    let (most, live) = (most_at_once(scenario, sessions) as u64, &scenario.live);
    let kind = live.target;
    let expected = at_once.map_or(most, |planned| most.min(u64::from(planned)));
    let per_request = match kind {
        // Both ends of client to router, router to P and to D, D to P are this program's.
        TargetKind::Embedded => 8,
        TargetKind::Sglang | TargetKind::Openai if live.legs == Legs::Direct => 2,
        TargetKind::Sglang | TargetKind::Openai => 1,
    };
    // Calls about sessions have connections of their own, which are kept for a while.
    let per_call = match (scenario.replay.mechanism, kind) {
        (Mechanism::Kvc, TargetKind::Embedded) => 2,
        (Mechanism::Kvc, TargetKind::Sglang | TargetKind::Openai) => 1,
        (Mechanism::Pd | Mechanism::Dp, _) => 0,
    };
    let each = per_request + per_call;
    let (cluster, listed) = (&scenario.cluster, live.prefill.len() + live.decode.len() + live.colocated.len());
    let workers = match kind {
        TargetKind::Embedded => u64::from(cluster.prefill) + u64::from(cluster.decode) + u64::from(cluster.colocated),
        TargetKind::Sglang | TargetKind::Openai => listed as u64,
    };
    Descriptors::check(Connections { most: most * each, expected: expected * each }, workers * FILES_A_WORKER)
}

/// The target as the scenario describes it, before anybody looked.
pub(in crate::live) fn describe(
    scenario: &Scenario,
    embedded: Option<&Addresses>,
    secrets: Secrets,
    sessions: usize,
) -> Target {
    let (live, replay) = (&scenario.live, &scenario.replay);
    let mut resolved = scenario.clone();
    resolve_router(&mut resolved);
    let of_run = |seconds: f64| Duration::from_secs_f64(seconds / live.emulation_speed);
    let limit = |seconds: f64| (seconds > 0.0).then(|| of_run(seconds));
    Target {
        addresses: embedded.cloned().unwrap_or_else(|| addresses(scenario)),
        dialect: match live.target {
            TargetKind::Embedded | TargetKind::Sglang => Dialect::Generate,
            TargetKind::Openai => Dialect::OpenAi(live.api),
        },
        legs: live.legs,
        router_kind: live.router_kind,
        emulated: false,
        model: live.model.clone(),
        session_mark: if embedded.is_some() { String::new() } else { mark() },
        header: live.header.clone(),
        route_map: None,
        served_by: live.served_by.clone(),
        router_config: resolved.cluster.router,
        limits: Limits {
            connect: Duration::from_secs_f64(live.connect_timeout_s),
            first_token: limit(live.first_token_timeout_s),
            stall: limit(replay.stall_timeout_s),
            control: Duration::from_secs_f64(live.control_timeout_s),
            pool_idle: Duration::from_secs_f64(live.pool_idle_s),
        },
        retries: Retries {
            most: live.retries,
            backoff: Duration::from_millis(live.retry_backoff_ms),
            longest: Duration::from_secs_f64(live.retry_wait_max_s),
        },
        pool: most_at_once(scenario, sessions),
        body_cache: (live.body_cache_mib as usize) << 20,
        token_ids: (live.token_id_min, live.token_id_count),
        baseline: Accounts::default(),
        absent: Vec::new(),
        warm: BTreeMap::new(),
        proxy: Some(live.proxy.clone()).filter(|proxy| !proxy.is_empty()),
        secrets,
    }
}

/// Differs from run to run.
fn mark() -> String {
    format!("~{:06x}", RandomState::new().hash_one("run") & 0xff_ffff)
}

fn addresses(scenario: &Scenario) -> Addresses {
    let live = &scenario.live;
    let endpoint = |text: &String| {
        let address = Address::parse(text).expect("a checked scenario has addresses");
        Endpoint { url: address.url, bootstrap_port: address.bootstrap_port }
    };
    let list = |texts: &[String]| texts.iter().map(endpoint).collect();
    Addresses {
        router: (!live.router.is_empty()).then(|| endpoint(&live.router).url),
        prefill: list(&live.prefill),
        decode: list(&live.decode),
        colocated: list(&live.colocated),
        ..Addresses::default()
    }
}

fn facts(scenario: &Scenario, target: &Target, seen: Option<&Facts>) -> TargetFacts {
    let live = &scenario.live;
    let needs = Needs::of(scenario);
    let two_legs = needs.two_legs;
    let of = |name: &str| seen.and_then(|seen| seen.workers.iter().find(|worker| worker.worker.to_string() == name));
    let worker = |(id, endpoint): (WorkerId, &Endpoint)| {
        let worker = id.to_string();
        let found = of(&worker).filter(|found| !matches!(found.health, Health::Down(_)));
        let ours = (seen.is_none()).then_some((Engine::Emulated, env!("CARGO_PKG_VERSION").to_owned()));
        let (engine, version) = found.map(|found| (found.engine, found.version.clone())).or(ours).unzip();
        TargetWorker {
            worker,
            url: endpoint.url.clone(),
            bootstrap_port: endpoint.bootstrap_port,
            engine: engine.map_or_else(String::new, |engine| engine.as_str().to_owned()),
            version: version.unwrap_or_default(),
        }
    };
    let router = target.addresses.router.as_ref().filter(|_| two_legs && target.legs == Legs::Router);
    let ours = || env!("CARGO_PKG_VERSION").to_owned();
    let router = router.map(|url| RouterFact {
        url: url.clone(),
        kind: target.router_kind.as_str().into(),
        version: seen.map_or_else(ours, |seen| seen.router.as_ref().map_or_else(String::new, |it| it.version.clone())),
    });
    TargetFacts {
        kind: live.target.as_str().into(),
        emulated: target.emulated,
        emulation_speed: live.emulation_speed,
        api: match target.dialect {
            Dialect::Generate => "generate",
            Dialect::OpenAi(api) => api.as_str(),
        }
        .into(),
        model: target.model.clone(),
        legs: two_legs.then(|| target.legs.as_str().into()),
        router,
        workers: target.addresses.workers().map(worker).collect(),
        session_mark: target.session_mark.clone(),
        header: header(&needs, target),
        proxy: target.proxy.is_some(),
        secret_headers: target.secrets.headers.iter().map(|(name, _)| name.clone()).collect(),
        own_authorities: target.secrets.ca_pem.is_some(),
    }
}

/// What the router is told, in words.
fn header(needs: &Needs, target: &Target) -> String {
    let header = &target.header;
    let value = header.target_value.as_str();
    match (needs.target_header, needs.routing_key) {
        _ if needs.two_legs && !header.echo_name.is_empty() => format!("{}: echoed", header.echo_name),
        (true, _) => format!("{}: {value}", header.target_name),
        (false, true) => format!("{}: session", header.key_name),
        (false, false) => "none".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_requests_are_on_the_wire_than_there_are_sessions() {
        let mut scenario = Scenario::default();
        for (concurrency, max_sessions, most) in [(0, 0, 3), (5000, 0, 3), (0, 5000, 3), (2, 5000, 2), (5000, 1, 1)] {
            (scenario.replay.concurrency, scenario.replay.max_sessions) = (concurrency, max_sessions);
            assert_eq!(most_at_once(&scenario, 3), most, "{concurrency}, {max_sessions}");
        }
        assert_eq!(most_at_once(&Scenario::default(), 0), 1);
    }
}
