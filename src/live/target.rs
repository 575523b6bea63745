//! [`Target`]: what a live run speaks to, resolved: addresses, kinds, limits, secrets.
//!
//! Made once before the run, from the scenario, the started cluster and what the target said of itself.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use crate::base::{Role, WorkerId};
use crate::cluster::RouterConfig;
use crate::live::Accounts;
use crate::live::probe::RouteMap;
use crate::scenario::{HeaderConfig, Legs, OpenAiApi, RouterKind, ServedByConfig, TargetValue};

/// A worker's address.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Endpoint {
    /// Base URL without a slash at the end, such as `http://127.0.0.1:9101`.
    pub url: String,
    /// Port of the bootstrap server (prefill workers); the host is the URL's.
    pub bootstrap_port: Option<u16>,
}

/// Addresses of a cluster, in the order of the workers' names: `prefill[1]` is P1.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Addresses {
    /// PD router.
    pub router: Option<String>,
    /// P0, P1, ….
    pub prefill: Vec<Endpoint>,
    /// D0, D1, ….
    pub decode: Vec<Endpoint>,
    /// W0, W1, ….
    pub colocated: Vec<Endpoint>,
    /// What workers call themselves, and which of ours that is; `None`: several go by the name. Empty: none told.
    pub own_names: BTreeMap<String, Option<WorkerId>>,
    /// Base URLs by which the router knows workers of ours, where it writes them in another way than we do.
    pub other_urls: BTreeMap<String, WorkerId>,
}

/// Base URL of what listens at `address`, as this machine reaches it: an address that means any is loopback.
pub fn url_at(mut address: SocketAddr) -> String {
    if address.ip().is_unspecified() {
        address.set_ip(if address.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
    }
    format!("http://{address}")
}

/// How a generate request is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// `/generate` of SGLang.
    Generate,
    /// An OpenAI endpoint.
    OpenAi(OpenAiApi),
}

impl Endpoint {
    /// Port of a prefill worker's bootstrap server where none is given: SGLang's default.
    pub const BOOTSTRAP_PORT: u16 = 8998;
}

impl Dialect {
    /// Path that generate requests are posted to.
    pub const fn path(self) -> &'static str {
        match self {
            Dialect::Generate => "/generate",
            Dialect::OpenAi(OpenAiApi::Completions) => "/v1/completions",
            Dialect::OpenAi(OpenAiApi::Chat) => "/v1/chat/completions",
        }
    }
}

/// What an answer says of who served it, each a worker's base URL or name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ServedBy<'a> {
    /// Value of the header that the scenario names.
    pub header: Option<&'a str>,
    /// Text at the pointer that the scenario names.
    pub pointed: Option<&'a str>,
    /// Value of [`WORKER_HEADER`](crate::live::api::WORKER_HEADER).
    pub own_header: Option<&'a str>,
    /// What an emulated worker says of itself in its body.
    pub emulated: Option<&'a str>,
}

impl<'a> ServedBy<'a> {
    /// The words there are, the target's own first.
    pub fn words(self) -> impl Iterator<Item = &'a str> {
        [self.header, self.pointed, self.own_header, self.emulated].into_iter().flatten()
    }
}

/// Wall-time limits of the client. `None`: no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// To connect.
    pub connect: Duration,
    /// From send to the first token. Where it is set, it alone governs up to there.
    pub first_token: Option<Duration>,
    /// Of silence: from the send, or the last byte of whatever kind, to the next.
    pub stall: Option<Duration>,
    /// Of a control call.
    pub control: Duration,
    /// Idle connections are closed after.
    pub pool_idle: Duration,
}

/// What may be sent again, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retries {
    /// Times at most; 0: never.
    pub most: u32,
    /// Wait before the first where the server names none; doubled each time.
    pub backoff: Duration,
    /// Longest wait before one; who asks for more is not asked again.
    pub longest: Duration,
}

/// Headers that no record, log or error may show.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secrets {
    /// Name and value of each header, `authorization` included.
    pub headers: Vec<(String, String)>,
    /// PEM text of further certificate authorities.
    pub ca_pem: Option<Vec<u8>>,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Secrets").field("headers", &names).field("ca", &self.ca_pem.is_some()).finish()
    }
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Target {
    /// Where everything is.
    pub addresses: Addresses,
    /// How a request is written.
    pub dialect: Dialect,
    /// Who joins the legs.
    pub legs: Legs,
    /// What the router is; resolved, never `auto`, when there is one.
    pub router_kind: RouterKind,
    /// The targets are emulated: they are told the answers to give.
    pub emulated: bool,
    /// Model name in requests; empty: none is sent.
    pub model: String,
    /// What session ids end with on the wire, so that they are no other run's: servers outlive runs, and a run that was
    /// killed leaves its sessions open there. Empty for a cluster that is the run's own.
    pub session_mark: String,
    /// Routing headers.
    pub header: HeaderConfig,
    /// Values of the target header that probes found to reach each D; `None`: D `d` is index `d`.
    pub route_map: Option<RouteMap>,
    /// Who served an answer.
    pub served_by: ServedByConfig,
    /// Policies by which the client joins the legs itself.
    pub router_config: RouterConfig,
    /// Limits.
    pub limits: Limits,
    /// Retries.
    pub retries: Retries,
    /// Connections kept open per host: the most requests on the wire.
    pub pool: usize,
    /// Memory for the texts of prompt blocks, bytes.
    pub body_cache: usize,
    /// Token ids prompts are made of: the first, and how many.
    pub token_ids: (u32, u32),
    /// What emulated workers had counted before the run; empty where they are the run's own.
    pub baseline: Accounts,
    /// Workers that did not answer before the run.
    pub absent: Vec<WorkerId>,
    /// Tokens that emulated workers held before the run; those that held none are left out.
    pub warm: BTreeMap<WorkerId, u64>,
    /// Proxy for hosts that are not on loopback.
    pub proxy: Option<String>,
    /// Secrets.
    pub secrets: Secrets,
}

impl Target {
    /// What the target header says to mean `worker`, by its URL or name. `None`: it says an index, or there is no such
    /// worker.
    pub fn named_in_header(&self, worker: WorkerId) -> Option<String> {
        let endpoint = self.addresses.of(worker)?;
        match self.header.target_value {
            TargetValue::Index => None,
            TargetValue::Url => Some(endpoint.url.clone()),
            TargetValue::Id => Some(worker.to_string()),
        }
    }
}

impl Addresses {
    /// Every worker with its address: P, D, W.
    pub fn workers(&self) -> impl Iterator<Item = (WorkerId, &Endpoint)> {
        let of = |role, endpoints: &'_ [Endpoint]| {
            (0..endpoints.len()).map(move |index| WorkerId::new(role, index as u16)).collect::<Vec<_>>()
        };
        let ids =
            [of(Role::Prefill, &self.prefill), of(Role::Decode, &self.decode), of(Role::Colocated, &self.colocated)];
        ids.into_iter().flatten().zip(self.prefill.iter().chain(&self.decode).chain(&self.colocated))
    }

    /// Address of a worker.
    pub fn of(&self, worker: WorkerId) -> Option<&Endpoint> {
        let endpoints = match worker.role {
            Role::Prefill => &self.prefill,
            Role::Decode => &self.decode,
            Role::Colocated => &self.colocated,
        };
        endpoints.get(usize::from(worker.index))
    }

    /// Takes in what a worker calls itself.
    pub fn learn_name(&mut self, worker: WorkerId, own: &str) {
        let known = self.own_names.entry(own.to_owned()).or_insert(Some(worker));
        *known = known.filter(|known| *known == worker);
    }

    /// The worker at a base URL (with or without a slash) or of that name. A name is the worker's own: ours counts only
    /// where no worker goes by another.
    pub fn named(&self, served_by: &str) -> Option<WorkerId> {
        let wanted = served_by.trim().trim_end_matches('/');
        if let Some((id, _)) = self.workers().find(|(_, endpoint)| endpoint.url == wanted) {
            return Some(id);
        }
        if let Some(id) = self.other_urls.get(wanted) {
            return Some(*id);
        }
        if let Some(own) = self.own_names.get(wanted) {
            return *own;
        }
        self.workers().map(|(id, _)| id).find(|id| self.ours_count() && id.to_string() == wanted)
    }

    /// Several workers call themselves so.
    pub fn is_shared_name(&self, own: &str) -> bool {
        self.own_names.get(own).is_some_and(Option::is_none)
    }

    /// The names by which [`named`](Self::named) knows workers.
    pub fn names(&self) -> Vec<String> {
        if self.ours_count() {
            return self.workers().map(|(id, _)| id.to_string()).collect();
        }
        self.own_names.iter().filter(|(_, id)| id.is_some()).map(|(name, _)| name.clone()).collect()
    }

    /// No worker goes by another name than ours.
    fn ours_count(&self) -> bool {
        self.own_names.iter().all(|(name, id)| id.is_some_and(|id| id.to_string() == *name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_named_by_its_url_or_by_what_it_calls_itself() {
        let endpoint = |port| Endpoint { url: format!("http://h:{port}"), bootstrap_port: None };
        let worker = |name: &str| -> WorkerId { name.parse().unwrap() };
        let mut addresses = Addresses { decode: vec![endpoint(1), endpoint(2), endpoint(3)], ..Addresses::default() };
        assert_eq!(addresses.named("D1"), Some(worker("D1")), "nobody told another name");
        addresses.learn_name(worker("D2"), "D2");
        assert_eq!(addresses.named("D1"), Some(worker("D1")), "who told agrees");
        addresses.learn_name(worker("D0"), "D1");
        addresses.learn_name(worker("D1"), "D0");
        assert_eq!((addresses.named("D0"), addresses.named("D1")), (Some(worker("D1")), Some(worker("D0"))));
        assert_eq!(addresses.named("http://h:1/"), Some(worker("D0")));
        addresses.learn_name(worker("D2"), "D0");
        assert_eq!(addresses.named("D0"), None, "two go by it");
        assert_eq!(addresses.named("D7"), None);
    }
}
