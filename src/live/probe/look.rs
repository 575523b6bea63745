//! Asks a target everything that [`super::checks()`] wants to know, at once and within a bound.
//!
//! Owns the order of questions and their time limits. Reads nothing out of the answers. Whatever a target does, a look
//! ends: each question has a limit, and so has the row of route probes.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::addresses::{other_urls, shared};
use super::checks::Facts;
use super::facts::{RouterFacts, WorkerFacts};
use super::question::{Answers, Question, probe_id};
use super::reply::{Looked, Reply};
use super::route_map::{NO_SUCH_INDEX, Probed, RouteMap, Routes, next_probe};
use crate::base::{Dur, Role, Time, WorkerId};
use crate::live::client::Http;
use crate::live::clock::Clock;
use crate::live::{Endpoint, Target};
use crate::protocol::CallError;
use crate::scenario::{Address, Legs, Needs, TargetValue};

/// Longest wait for one answer.
const MOST_A_QUESTION: Duration = Duration::from_secs(3);
/// Longest time for all probes of the routes.
const MOST_FOR_ROUTES: Dur = Dur::from_millis(5000);

/// Everything about a target that a run with these needs depends on. Takes at most some seconds.
pub async fn look(target: &Target, needs: &Needs, http: &Http) -> Facts {
    let look = Look::new(target, http);
    let way = Way::of(target, needs);
    let workers = join_all(target.addresses.workers().map(|(id, endpoint)| look.worker(id, endpoint, way)));
    let routes = async { if way == Way::Indexed { Some(look.routes().await) } else { None } };
    let named = async { if way == Way::Named { look.named().await } else { Vec::new() } };
    let serving = async { if way == Way::Router { look.serving(needs).await } else { None } };
    let router = async { if way == Way::Worker { None } else { look.router().await } };
    let (bootstrap, shared) = (bootstrap_servers(target, needs, http), shared(target, look.limit));
    let (workers, router, routes, named, serving, bootstrap, shared) =
        tokio::join!(workers, router, routes, named, serving, bootstrap, shared);
    let other_urls = look.other_urls(router.as_ref()).await;
    Facts { workers, router, routes, named, serving, bootstrap, shared, other_urls }
}

/// Who and what the servers are, in one round of cheap questions: nothing is generated, no session opened.
pub async fn glance(target: &Target, http: &Http) -> Facts {
    const WORKER: &[Question] = &[
        Question::Health,
        Question::ServerInfo,
        Question::GetServerInfo,
        Question::Models,
        Question::Version,
        Question::Loads,
    ];
    let look = Look::new(target, http);
    let worker = async |(id, endpoint): (WorkerId, &Endpoint)| {
        look.facts(id, endpoint, &look.ask_all(&endpoint.url, WORKER).await)
    };
    let workers = join_all(target.addresses.workers().map(worker));
    let (workers, router, shared) = tokio::join!(workers, look.router(), shared(target, look.limit));
    let other_urls = look.other_urls(router.as_ref()).await;
    let (named, bootstrap) = (Vec::new(), Vec::new());
    Facts { workers, router, routes: None, named, serving: None, bootstrap, shared, other_urls }
}

/// Whether P's bootstrap servers answer, where it is the client that names them to D.
pub async fn bootstrap_servers(target: &Target, needs: &Needs, http: &Http) -> Vec<(WorkerId, Result<(), String>)> {
    if Way::of(target, needs) != Way::Direct {
        return Vec::new();
    }
    let look = Look::new(target, http);
    let prefill = target.addresses.workers().filter(|(id, _)| id.role == Role::Prefill);
    let asked = prefill.filter_map(|(id, endpoint)| Some((id, endpoint, endpoint.bootstrap_port?)));
    join_all(asked.map(async |(id, endpoint, port)| {
        let host = Address::parse(&endpoint.url).map_or(String::new(), |address| address.host);
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let looked = look.within(http.get(&format!("http://{host}:{port}/health"))).await;
        (id, looked.map(|_| ()))
    }))
    .await
}

/// Whether requests carry an index of the router's own list, which must be tried before it means anything.
pub fn has_indices(target: &Target, needs: &Needs) -> bool {
    Way::of(target, needs) == Way::Indexed
}

/// Probes of the target header, before a run: its verdict says whether to go by them.
pub async fn routes(target: &Target, http: &Http) -> Routes {
    Look::new(target, http).routes().await
}

/// Whether requests carry a worker's URL or id, which the router may take for another worker's.
pub fn has_names(target: &Target, needs: &Needs) -> bool {
    Way::of(target, needs) == Way::Named
}

/// Probes of each D by its URL or id, before a run.
pub async fn named(target: &Target, http: &Http) -> Vec<(WorkerId, Probed)> {
    Look::new(target, http).named().await
}

/// The map of target-header values, by one probe an index; for a run whose map proved wrong.
///
/// # Errors
/// When no probe was answered by a worker, or the router does not read the header: then nothing is known, which is no
/// map.
pub async fn route_map(target: &Target, http: &Http) -> Result<RouteMap, String> {
    let routes = Look::new(target, http).first_routes(&Clock::start(1.0)).await;
    if let Some(why) = routes.ignored(target) {
        return Err(why);
    }
    let map = routes.map(target);
    if map.index.iter().any(Option::is_some) {
        return Ok(map);
    }
    let tried = routes.beyond.into_iter().chain(routes.first.into_iter().map(|(_, probed)| probed));
    let why = tried.into_iter().find_map(|probed| match probed {
        Probed::Failed(why) | Probed::Unanswered(why) => Some(why),
        Probed::Nameless => Some("answers do not say which worker served them".to_owned()),
        Probed::Served(name) => Some(format!("served by {name}, which is none of ours")),
        Probed::NoWorker => None,
    });
    Err(why.unwrap_or_else(|| "the router has no decode worker".to_owned()))
}

/// The way of the run's requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// To one worker.
    Worker,
    /// Over the router.
    Router,
    /// Over the router, with an index in the target header.
    Indexed,
    /// Over the router, with a worker's URL or id in the target header.
    Named,
    /// To a P and a D; the client joins the legs.
    Direct,
}

struct Look<'a> {
    target: &'a Target,
    http: &'a Http,
    limit: Duration,
}

impl Way {
    fn of(target: &Target, needs: &Needs) -> Way {
        match target.legs {
            _ if !needs.two_legs => Way::Worker,
            Legs::Direct => Way::Direct,
            Legs::Router if !needs.target_header => Way::Router,
            Legs::Router if target.header.target_value == TargetValue::Index => Way::Indexed,
            Legs::Router => Way::Named,
        }
    }
}

impl<'a> Look<'a> {
    fn new(target: &'a Target, http: &'a Http) -> Look<'a> {
        Look { target, http, limit: target.limits.control.min(MOST_A_QUESTION) }
    }

    async fn worker(&self, worker: WorkerId, endpoint: &Endpoint, way: Way) -> WorkerFacts {
        let mut questions = vec![
            Question::Health,
            Question::ServerInfo,
            Question::GetServerInfo,
            Question::Models,
            Question::Version,
            Question::Loads,
            Question::GetLoad,
        ];
        match worker.role {
            Role::Decode => questions.push(Question::Admission),
            Role::Colocated if way == Way::Worker => questions.push(Question::Generate),
            Role::Colocated | Role::Prefill => {}
        }
        let asked = self.ask_all(&endpoint.url, &questions);
        let session = async {
            match worker.role {
                Role::Decode => self.session(&endpoint.url).await,
                Role::Prefill | Role::Colocated => Vec::new(),
            }
        };
        let direct = async {
            let wanted = way == Way::Direct && worker.role == Role::Decode;
            if wanted { self.both_legs(worker, endpoint).await } else { None }
        };
        let (asked, session, direct) = tokio::join!(asked, session, direct);
        let direct = direct.map(|looked| (Question::Generate, looked));
        self.facts(worker, endpoint, &Answers(asked.0.into_iter().chain(session).chain(direct).collect()))
    }

    fn facts(&self, worker: WorkerId, endpoint: &Endpoint, answers: &Answers) -> WorkerFacts {
        WorkerFacts::of(worker, &endpoint.url, &self.target.served_by.header, answers)
    }

    /// Opens a session and closes it again, also when the answer to the first was lost.
    async fn session(&self, url: &str) -> Vec<(Question, Looked)> {
        let opened = self.ask(url, Question::OpenSession, None).await;
        let closed = self.ask(url, Question::CloseSession, None).await;
        vec![(Question::OpenSession, opened), (Question::CloseSession, closed)]
    }

    /// One token over a P and this D, when it is the client that joins the legs.
    async fn both_legs(&self, worker: WorkerId, decode: &Endpoint) -> Option<Looked> {
        let prefill = self.target.addresses.workers().filter(|(id, _)| id.role == Role::Prefill);
        let prefill: Vec<_> = prefill.filter(|(id, _)| !self.target.absent.contains(id)).collect();
        let (p, other) = *prefill.get(usize::from(worker.index) % prefill.len().max(1))?;
        let mut body = Question::Generate.body(self.target)?;
        body["bootstrap_host"] = json!(Address::parse(&other.url).ok()?.host);
        body["bootstrap_port"] = json!(other.bootstrap_port);
        // Away from the rooms of a run, which are drawn from the whole range.
        body["bootstrap_room"] = json!(u64::from(std::process::id()) << 16 | u64::from(worker.index));
        let path = Question::Generate.path(self.target);
        let (first, second) = (format!("{}{path}", other.url), format!("{}{path}", decode.url));
        // A leg whose other one has failed waits in vain: the failure is the answer.
        let leg = async |of: WorkerId, url: &str| {
            let looked = self.post(url, None, &body).await.map_err(|why| format!("{of}: {why}"));
            if super::facts::succeeds(&looked).is_ok() { Ok(looked) } else { Err(looked) }
        };
        Some(match tokio::try_join!(leg(p, &first), leg(worker, &second)) {
            Ok((_, decoded)) => decoded,
            Err(failed) => failed,
        })
    }

    async fn router(&self) -> Option<RouterFacts> {
        let url = self.target.addresses.router.as_ref().filter(|_| self.target.legs == Legs::Router)?;
        let questions =
            [Question::Health, Question::ServerInfo, Question::Workers, Question::GetLoads, Question::Models];
        Some(RouterFacts::of(url, &self.ask_all(url, &questions).await))
    }

    async fn other_urls(&self, router: Option<&RouterFacts>) -> Vec<(String, WorkerId)> {
        let Some(router) = router else { return Vec::new() };
        other_urls(self.target, &router.decode, self.limit).await
    }

    async fn routes(&self) -> Routes {
        let clock = Clock::start(1.0);
        let mut routes = self.first_routes(&clock).await;
        if routes.ignored(self.target).is_some() {
            return routes;
        }
        for index in routes.map(self.target).index.into_iter().flatten().rev() {
            for _ in 0..2 {
                let Some(probed) = self.probe(&clock, index.to_string()).await else { return routes };
                routes.again.push((index, probed));
            }
        }
        routes
    }

    /// An index no list has, and each index once. A router that does not answer is not asked again.
    async fn first_routes(&self, clock: &Clock) -> Routes {
        let mut routes = Routes { beyond: self.probe(clock, NO_SUCH_INDEX.to_string()).await, ..Routes::default() };
        if matches!(routes.beyond, Some(Probed::Unanswered(_))) || routes.ignored(self.target).is_some() {
            return routes;
        }
        while let Some(index) = next_probe(self.target, &routes.first) {
            let Some(probed) = self.probe(clock, index.to_string()).await else { break };
            routes.first.push((index, probed));
        }
        routes
    }

    /// One token for each D by its URL or id, then again from the last to the first: a router that ignores the header
    /// cannot hit both by chance. Ends when there is no time left.
    async fn named(&self) -> Vec<(WorkerId, Probed)> {
        let clock = Clock::start(1.0);
        let decode: Vec<WorkerId> = self.target.addresses.workers().map(|(id, _)| id).collect();
        let decode: Vec<WorkerId> = decode.into_iter().filter(|id| id.role == Role::Decode).collect();
        let mut probes = Vec::new();
        for worker in decode.iter().chain(decode.iter().rev()) {
            let Some(name) = self.target.named_in_header(*worker) else { continue };
            let Some(probed) = self.probe(&clock, name).await else { break };
            probes.push((*worker, probed));
        }
        probes
    }

    /// One token with this value in the target header; nothing when there is no time left.
    async fn probe(&self, clock: &Clock, value: String) -> Option<Probed> {
        if clock.now().since(Time::ZERO) > MOST_FOR_ROUTES {
            return None;
        }
        let url = self.target.addresses.router.as_ref()?;
        let looked = self.ask(url, Question::Generate, Some((&self.target.header.target_name, value))).await;
        Some(Probed::of(&looked, &self.target.served_by))
    }

    /// One token over the router, with the key of a session where the run's requests have one.
    async fn serving(&self, needs: &Needs) -> Option<Result<(), String>> {
        let url = self.target.addresses.router.as_ref()?;
        let key = needs.routing_key.then(|| (self.target.header.key_name.as_str(), probe_id()));
        Some(super::facts::succeeds(&self.ask(url, Question::Generate, key).await))
    }

    async fn ask_all(&self, base: &str, questions: &[Question]) -> Answers {
        let asked = questions.iter().map(async |question| (*question, self.ask(base, *question, None).await));
        Answers(join_all(asked).await.into_iter().collect())
    }

    async fn ask(&self, base: &str, question: Question, header: Option<(&str, String)>) -> Looked {
        let url = format!("{base}{}", question.path(self.target));
        match question.body(self.target) {
            Some(body) => self.post(&url, header, &body).await,
            None => self.within(self.http.get(&url)).await,
        }
    }

    async fn post(&self, url: &str, header: Option<(&str, String)>, body: &Value) -> Looked {
        let headers: Vec<(&str, &str)> = header.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.within(self.http.post_with(url, &headers, body.to_string().into_bytes())).await
    }

    async fn within(&self, call: impl Future<Output = Result<Reply, CallError>>) -> Looked {
        let reply = timeout(self.limit, call).await.map_err(|_| format!("no answer within {:?}", self.limit))?;
        reply.map_err(|error| error.message)
    }
}
