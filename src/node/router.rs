//! [`RouterNode`]: the PD router in front of real sockets, as a machine: who is eligible, who gets a request, what may
//! be sent again.
//!
//! Owns health as it was last heard, requests in flight, the policies' own counters and the rendezvous numbers. Its
//! server owns addresses, bodies and connections. Worker health is the only thing that takes one out of the choice:
//! there is no circuit breaker and no overload protection, which `smg` has and its users switch off to measure.
//! Invariant: requests in flight at a worker are those chosen for it and not yet [`RouterNode::done`].

use xxhash_rust::xxh3::xxh3_64;

use crate::base::{Dur, Rng, Role, WorkerId};
use crate::cluster::{PdRouter, RouteAsk, RouterConfig, Wish, prefix_keys};

/// Statuses after which `smg` sends a request again.
const RETRYABLE: [u16; 6] = [408, 429, 500, 502, 503, 504];
/// Tokens, or bytes of text, that a block of the approximate prefix map stands for.
const BLOCK_TOKENS: usize = 64;
const BLOCK_BYTES: usize = 256;
/// Stream of the seed for rendezvous numbers.
const ROOMS: u64 = 1;

/// What a router is built from.
#[derive(Debug, Clone, PartialEq)]
pub struct RouterNodeConfig {
    /// Policies, resolved (no `auto`).
    pub policies: RouterConfig,
    /// Prefill workers; with none, requests go to colocated workers.
    pub prefill: u16,
    /// Decode workers.
    pub decode: u16,
    /// Colocated workers.
    pub colocated: u16,
    /// Requests are sent again after a failure; `None`: never, so that a failure is seen.
    pub retry: Option<RetryRule>,
    /// Seed of the rendezvous numbers.
    pub seed: u64,
}

/// How often a request is sent again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetryRule {
    /// Tries in all, the first included.
    pub tries: u32,
    /// Wait before the second.
    pub wait: Dur,
    /// Each further wait is so many times longer.
    pub factor: f64,
}

impl RetryRule {
    /// What `smg` does unless it is told `--disable-retries`.
    pub const SMG: RetryRule = RetryRule { tries: 5, wait: Dur::from_millis(50), factor: 1.5 };
}

/// What a request tells the router, as it stands in its headers and body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Routing<'a> {
    /// `x-smg-target-worker`: an index, or the name of a worker.
    pub target: Option<&'a str>,
    /// `x-smg-routing-key`.
    pub key: Option<&'a str>,
    /// `x-pdreplay-target-prefill`: an index among all prefill workers, or the name of one.
    pub prefill: Option<&'a str>,
    /// The prompt: [`token_keys`] or [`text_keys`]. Wanted only when [`RouterNode::reads_prompts`].
    pub prompt: &'a [u64],
}

/// Where a request goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chosen {
    /// Its prefill leg and the rendezvous of both; `None` for a colocated worker.
    pub prefill: Option<(WorkerId, u64)>,
    /// Who answers the client.
    pub answering: WorkerId,
}

/// A worker as the router sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Who.
    pub worker: WorkerId,
    /// It answered its last health check.
    pub eligible: bool,
    /// Requests under way.
    pub in_flight: u32,
    /// Requests chosen for it so far.
    pub requests: u64,
}

/// See the module.
#[derive(Debug)]
pub struct RouterNode {
    router: PdRouter,
    // P, then D, then W, each by index.
    places: Vec<Place>,
    retry: Option<RetryRule>,
    rooms: Rng,
    refused: u64,
}

impl RouterNode {
    /// Nobody is eligible until [`RouterNode::heard`] of. Panics for policies with `auto`, and without any worker to
    /// answer.
    pub fn new(config: &RouterNodeConfig) -> RouterNode {
        let answering = if config.prefill > 0 { config.decode } else { config.colocated };
        assert!(answering > 0, "a router has workers that answer: {config:?}");
        let roles =
            [(Role::Prefill, config.prefill), (Role::Decode, config.decode), (Role::Colocated, config.colocated)];
        let ids = roles.into_iter().flat_map(|(role, count)| (0..count).map(move |index| WorkerId::new(role, index)));
        let place = |worker| Place { worker, eligible: false, in_flight: 0, requests: 0 };
        RouterNode {
            router: PdRouter::new(&config.policies),
            places: ids.map(place).collect(),
            retry: config.retry,
            rooms: Rng::new(config.seed, ROOMS),
            refused: 0,
        }
    }

    /// A health check ended. Whether that is news.
    pub fn heard(&mut self, worker: WorkerId, healthy: bool) -> bool {
        let place = self.place(worker);
        let news = place.eligible != healthy;
        place.eligible = healthy;
        news
    }

    /// Chooses for a request, or says what the refusal (503, `no_available_workers`) should say.
    pub fn choose(&mut self, routing: Routing<'_>) -> Result<Chosen, String> {
        let ask = RouteAsk { wish: self.wish(routing), prefill: self.prefill(routing), prompt: routing.prompt };
        let leg = |role: Role| -> Vec<Option<u32>> {
            let places = self.places.iter().filter(|place| place.worker.role == role);
            places.map(|place| place.eligible.then_some(place.in_flight)).collect()
        };
        let (prefill, decode, colocated) = (leg(Role::Prefill), leg(Role::Decode), leg(Role::Colocated));
        let worker = |role, index: usize| WorkerId::new(role, index as u16);
        let chosen = if prefill.is_empty() {
            let one = self.router.select_one(ask, &colocated);
            one.map(|w| Chosen { prefill: None, answering: worker(Role::Colocated, w) })
        } else {
            // The routers in use draw from 0 to 2^63 - 1.
            let room = self.rooms.u64() >> 1;
            self.router.select(ask, &prefill, &decode).map(|(p, d)| Chosen {
                prefill: Some((worker(Role::Prefill, p), room)),
                answering: worker(Role::Decode, d),
            })
        };
        match chosen {
            Ok(chosen) => {
                for worker in chosen.legs() {
                    let place = self.place(worker);
                    (place.in_flight, place.requests) = (place.in_flight + 1, place.requests + 1);
                }
                Ok(chosen)
            }
            Err(why) => {
                self.refused += 1;
                Err(why + &self.outage())
            }
        }
    }

    /// Roles none of whose workers is healthy, after the words of a refusal; nothing where each has one.
    fn outage(&self) -> String {
        let noun = |role| match role {
            Role::Prefill => "prefill ",
            Role::Decode => "decode ",
            Role::Colocated => "",
        };
        let down = [Role::Prefill, Role::Decode, Role::Colocated].into_iter().filter_map(|role| {
            let of_role: Vec<&Place> = self.places.iter().filter(|place| place.worker.role == role).collect();
            let is_out = !of_role.is_empty() && of_role.iter().all(|place| !place.eligible);
            is_out.then(|| {
                format!("; no {}worker is healthy: 0 of {} answer /health with 200", noun(role), of_role.len())
            })
        });
        down.collect()
    }

    /// A choice is over, however it ended.
    pub fn done(&mut self, chosen: Chosen) {
        for worker in chosen.legs() {
            self.place(worker).in_flight -= 1;
        }
    }

    /// How long to wait before a request that failed with `status` is sent again, after so many tries; `None`: it is not.
    pub fn wait_before_retry(&self, status: u16, tries: u32) -> Option<Dur> {
        let rule = self.retry.filter(|rule| tries < rule.tries && RETRYABLE.contains(&status))?;
        let grown = rule.wait.as_secs_f64() * rule.factor.powi(tries as i32 - 1);
        Dur::from_secs_f64(grown)
    }

    /// [`Routing::prompt`] is wanted.
    pub fn reads_prompts(&self) -> bool {
        self.router.reads_prompts()
    }

    /// P, then D, then W, each by index.
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// Requests for which there was no worker.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// A target that is neither a number nor a worker that answers is an index no worker has, as `smg` has it.
    fn wish(&self, routing: Routing<'_>) -> Wish {
        let Some(target) = routing.target.map(str::trim) else {
            return routing.key.map_or(Wish::None, |key| Wish::Key(xxh3_64(key.as_bytes())));
        };
        let role = if self.places[0].worker.role == Role::Prefill { Role::Decode } else { Role::Colocated };
        match (target.parse(), target.parse::<WorkerId>()) {
            (Ok(index), _) => Wish::Target(index),
            (Err(_), Ok(named)) if named.role == role => Wish::Named(named.index.into()),
            (Err(_), _) => Wish::Target(usize::MAX),
        }
    }

    /// What is neither a number nor a prefill worker is an index no worker has.
    fn prefill(&self, routing: Routing<'_>) -> Option<usize> {
        let named = routing.prefill.map(str::trim)?;
        Some(match (named.parse(), named.parse::<WorkerId>()) {
            (Ok(index), _) => index,
            (Err(_), Ok(worker)) if worker.role == Role::Prefill => worker.index.into(),
            (Err(_), _) => usize::MAX,
        })
    }

    fn place(&mut self, worker: WorkerId) -> &mut Place {
        let found = self.places.iter_mut().find(|place| place.worker == worker);
        found.unwrap_or_else(|| panic!("{worker} is no worker of this router"))
    }
}

impl Chosen {
    fn legs(self) -> impl Iterator<Item = WorkerId> {
        self.prefill.map(|(worker, _)| worker).into_iter().chain([self.answering])
    }
}

/// Prefix keys of a prompt of token ids, by whole blocks.
pub fn token_keys(tokens: &[u32]) -> Vec<u64> {
    let bytes = |block: &[u32]| -> Vec<u8> { block.iter().flat_map(|token| token.to_le_bytes()).collect() };
    prefix_keys(tokens.chunks_exact(BLOCK_TOKENS).map(|block| xxh3_64(&bytes(block))))
}

/// Prefix keys of a prompt of text, by whole blocks.
pub fn text_keys(text: &str) -> Vec<u64> {
    prefix_keys(text.as_bytes().chunks_exact(BLOCK_BYTES).map(xxh3_64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::RouterPolicy;

    fn node(decode_policy: RouterPolicy, counts: [u16; 3]) -> RouterNode {
        let [prefill, decode, colocated] = counts;
        let policies = RouterConfig { decode_policy, ..RouterConfig::default() };
        let mut node =
            RouterNode::new(&RouterNodeConfig { policies, prefill, decode, colocated, retry: None, seed: 7 });
        let all: Vec<WorkerId> = node.places().iter().map(|place| place.worker).collect();
        all.into_iter().for_each(|worker| assert!(node.heard(worker, true)));
        node
    }

    fn names(chosen: Result<Chosen, String>) -> String {
        match chosen {
            Ok(Chosen { prefill: Some((p, _)), answering }) => format!("{p}>{answering}"),
            Ok(Chosen { prefill: None, answering }) => answering.to_string(),
            Err(why) => why,
        }
    }

    #[test]
    fn headers_are_obeyed_by_the_policies_that_know_them() {
        let refused = "failed to select a worker";
        let by_target = |policy, target| {
            names(node(policy, [0, 0, 3]).choose(Routing { target: Some(target), ..Routing::default() }))
        };
        for (target, wanted) in [("2", "W2"), (" 1", "W1"), ("3", refused), ("-1", refused), ("http://x", refused)] {
            assert_eq!(by_target(RouterPolicy::ConsistentHashing, target), wanted, "{target}");
            assert_eq!(by_target(RouterPolicy::RoundRobin, target), "W0", "{target}");
        }
        for (target, wanted) in [("W1", "W1"), (" W2 ", "W2"), ("W3", refused), ("D1", refused), ("P0", refused)] {
            assert_eq!(by_target(RouterPolicy::ConsistentHashing, target), wanted, "{target}");
        }
        let mut hashing = node(RouterPolicy::ConsistentHashing, [0, 0, 3]);
        let both = Routing { target: Some("1"), key: Some("s"), ..Routing::default() };
        assert_eq!(names(hashing.choose(both)), "W1", "the target beats the key");
        for policy in [RouterPolicy::ConsistentHashing, RouterPolicy::Manual] {
            let mut node = node(policy, [1, 8, 0]);
            let mut pick = |key: &str| names(node.choose(Routing { key: Some(key), ..Routing::default() }));
            let first: Vec<_> = (0..20).map(|session| pick(&format!("s{session}"))).collect();
            assert_eq!(first, (0..20).map(|session| pick(&format!("s{session}"))).collect::<Vec<_>>());
            assert!(first.iter().any(|chosen| *chosen != first[0]), "keys spread");
        }
    }

    #[test]
    fn a_name_means_one_worker_whoever_else_is_alive_and_says_nothing_of_p() {
        let hashing = RouterPolicy::ConsistentHashing;
        let policies = RouterConfig { prefill_policy: hashing, decode_policy: hashing, stable_indices: false };
        let config = RouterNodeConfig { policies, prefill: 1, decode: 3, colocated: 0, retry: None, seed: 7 };
        let mut node = RouterNode::new(&config);
        let all: Vec<WorkerId> = node.places().iter().map(|place| place.worker).collect();
        for worker in all {
            node.heard(worker, worker != WorkerId::new(Role::Decode, 0));
        }
        let mut to = |target| names(node.choose(Routing { target: Some(target), ..Routing::default() }));
        let no_d = "failed to select a decode worker";
        assert_eq!(
            [to("D2"), to("D1"), to("D0"), to("W0")],
            ["P0>D2", "P0>D1", no_d, "failed to select a prefill worker"]
        );
        assert_eq!(to("0"), "P0>D1", "an index counts those alive");
    }

    #[test]
    fn a_p_is_named_by_index_or_name() {
        let mut node = node(RouterPolicy::ConsistentHashing, [3, 2, 0]);
        let mut to = |prefill| {
            let routing = Routing { target: Some("1"), prefill: Some(prefill), ..Routing::default() };
            names(node.choose(routing))
        };
        assert_eq!([to("2"), to(" 0"), to("P1"), to("2")], ["P2>D1", "P0>D1", "P1>D1", "P2>D1"]);
        let refused = "failed to select a prefill worker";
        assert_eq!([to("3"), to("D1"), to("-1"), to("http://x")], [refused; 4]);
    }

    #[test]
    fn only_the_healthy_are_chosen_and_loads_are_counted() {
        let mut node = node(RouterPolicy::RoundRobin, [1, 2, 0]);
        let d0 = WorkerId::new(Role::Decode, 0);
        assert!(node.heard(d0, false) && !node.heard(d0, false));
        let chosen: Vec<Chosen> = (0..2).map(|_| node.choose(Routing::default()).unwrap()).collect();
        assert!(chosen.iter().all(|chosen| chosen.answering.index == 1));
        let rooms: Vec<u64> = chosen.iter().map(|chosen| chosen.prefill.unwrap().1).collect();
        assert!(rooms[0] != rooms[1] && rooms.iter().all(|room| *room < 1 << 63));
        let load = |node: &RouterNode| node.places().iter().map(|place| place.in_flight).collect::<Vec<_>>();
        assert_eq!(load(&node), [2, 0, 2]);
        node.done(chosen[0]);
        assert_eq!(load(&node), [1, 0, 1]);
        node.heard(WorkerId::new(Role::Prefill, 0), false);
        assert_eq!(
            names(node.choose(Routing::default())),
            "failed to select a prefill worker; no prefill worker is healthy: 0 of 1 answer /health with 200"
        );
        assert_eq!((node.refused(), node.places()[2].requests), (1, 2));
    }

    #[test]
    fn retries_are_off_unless_asked_for() {
        let mut node = node(RouterPolicy::RoundRobin, [1, 1, 0]);
        assert_eq!(node.wait_before_retry(503, 1), None);
        node.retry = Some(RetryRule::SMG);
        let waits: Vec<_> = (1..6).map(|tries| node.wait_before_retry(503, tries).map(Dur::as_millis_f64)).collect();
        assert_eq!(waits, [Some(50.0), Some(75.0), Some(112.5), Some(168.75), None]);
        assert_eq!(node.wait_before_retry(400, 1), None);
    }

    #[test]
    fn prompts_keep_to_their_worker_by_tokens_and_by_text() {
        let mut node = node(RouterPolicy::CacheAware, [1, 4, 0]);
        assert!(node.reads_prompts());
        let mut pick = |prompt: &[u64]| {
            let chosen = node.choose(Routing { prompt, ..Routing::default() }).unwrap();
            node.done(chosen);
            chosen.answering.index
        };
        let tokens =
            |session: u32, count: u32| token_keys(&(0..count).map(|at| session * 10_000 + at).collect::<Vec<_>>());
        assert_eq!((tokens(1, 639).len(), tokens(1, 640).len()), (9, 10));
        let first: Vec<_> = (0..4).map(|session| pick(&tokens(session, 1000))).collect();
        assert_eq!(first, [0, 1, 2, 3]);
        assert_eq!((0..4).map(|session| pick(&tokens(session, 1500))).collect::<Vec<_>>(), first);
        let text = |word: &str, count: usize| text_keys(&word.repeat(count));
        let home = pick(&text("lorem ", 300));
        assert_eq!(pick(&text("lorem ", 400)), home);
    }
}
