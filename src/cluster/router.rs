//! The PD router: chooses a prefill and a decode worker for each request, by policies and counters of its own.
//!
//! Its round-robin counter knows nothing of the replayer's; that independence is what breaks `default` + `kvc`. The
//! cluster of virtual time and the routers of real sockets choose by this same code.
//! Invariant: a choice is always an eligible worker.

use std::collections::BTreeMap;

use crate::cluster::affinity::Affinity;
use crate::cluster::{RouterConfig, RouterPolicy};
use crate::protocol::RoutingHeader;

/// Routing keys remembered by `manual`, for each leg; past it the half that was not used for longest is forgotten.
const MOST_KEYS: usize = 1 << 20;

/// See the module. Workers are indices within their role.
#[derive(Debug)]
pub struct PdRouter {
    prefill: Leg,
    decode: Leg,
}

#[derive(Debug)]
struct Leg {
    policy: RouterPolicy,
    stable_indices: bool,
    turn: u64,
    // Routing keys that stick, for `manual`, with the count of choices at their last use.
    stuck: BTreeMap<u64, (usize, u64)>,
    choices: u64,
    affinity: Affinity,
}

/// What the router knows of a leg's workers: whether each is eligible, and its requests in flight.
pub type Eligible<'a> = &'a [Option<u32>];

/// What a request tells the router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteAsk<'a> {
    /// Its routing header.
    pub wish: Wish,
    /// Prefill worker it names, counted among all of them; obeyed whatever the policy, and refused when it is not alive.
    pub prefill: Option<usize>,
    /// The prompt for `cache_aware`: see [`prefix_keys`]. May be empty for the other policies.
    pub prompt: &'a [u64],
}

/// A routing header. The target wins where a request has both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// None: the router decides alone.
    None,
    /// Requests of one key belong together: the session's number, or a hash of its name.
    Key(u64),
    /// This worker, by index; an index that no worker has is refused.
    Target(usize),
    /// The answering worker of this number, whoever else is alive; nothing to the prefill leg. One that is not alive is
    /// refused.
    Named(usize),
}

impl From<RoutingHeader> for RouteAsk<'_> {
    fn from(header: RoutingHeader) -> Self {
        let (wish, prefill) = match header {
            RoutingHeader::None => (Wish::None, None),
            RoutingHeader::RoutingKey(session) => (Wish::Key(session.0.into()), None),
            RoutingHeader::TargetWorker(index) => (Wish::Target(index.into()), None),
            RoutingHeader::TargetLegs { prefill, decode } => (Wish::Target(decode.into()), Some(prefill.into())),
        };
        RouteAsk { wish, prefill, prompt: &[] }
    }
}

impl PdRouter {
    /// With fresh counters. `config` must be resolved (no `auto`).
    pub fn new(config: &RouterConfig) -> PdRouter {
        let leg = |policy| Leg {
            policy,
            stable_indices: config.stable_indices,
            turn: 0,
            stuck: BTreeMap::new(),
            choices: 0,
            affinity: Affinity::default(),
        };
        PdRouter { prefill: leg(config.prefill_policy), decode: leg(config.decode_policy) }
    }

    /// A policy wants [`RouteAsk::prompt`].
    pub fn reads_prompts(&self) -> bool {
        [&self.prefill, &self.decode].iter().any(|leg| leg.policy == RouterPolicy::CacheAware)
    }

    /// Prefill and decode worker of a request, or why there is none.
    pub fn select<'a>(
        &mut self,
        ask: impl Into<RouteAsk<'a>>,
        prefill: Eligible<'_>,
        decode: Eligible<'_>,
    ) -> Result<(usize, usize), String> {
        let ask = ask.into();
        let for_prefill = match ask.wish {
            Wish::Named(_) => Wish::None,
            Wish::None | Wish::Key(_) | Wish::Target(_) => ask.wish,
        };
        let for_prefill = RouteAsk { wish: for_prefill, ..ask };
        let p = match ask.prefill {
            Some(index) => alive(index, prefill),
            None => self.prefill.select(for_prefill, prefill),
        };
        let p = p.ok_or("failed to select a prefill worker")?;
        let d = self.decode.select(ask, decode).ok_or("failed to select a decode worker")?;
        Ok((p, d))
    }

    /// The one worker of a request where workers are colocated, by the policy of the decode leg.
    pub fn select_one<'a>(&mut self, ask: impl Into<RouteAsk<'a>>, workers: Eligible<'_>) -> Result<usize, String> {
        self.decode.select(ask.into(), workers).ok_or_else(|| "failed to select a worker".to_owned())
    }
}

impl Leg {
    fn select(&mut self, ask: RouteAsk<'_>, workers: Eligible<'_>) -> Option<usize> {
        match self.policy {
            RouterPolicy::RoundRobin | RouterPolicy::Auto => self.next(workers),
            RouterPolicy::Manual => match ask.wish {
                Wish::Key(key) => self.stick(key, workers),
                Wish::None | Wish::Target(_) | Wish::Named(_) => self.next(workers),
            },
            RouterPolicy::ConsistentHashing => match ask.wish {
                Wish::Target(index) => self.target(index, workers),
                Wish::Named(index) => alive(index, workers),
                Wish::Key(key) => highest_hash(key, workers),
                Wish::None => self.next(workers),
            },
            RouterPolicy::CacheAware => self.affinity.select(ask.prompt, workers),
        }
    }

    fn target(&self, index: usize, workers: Eligible<'_>) -> Option<usize> {
        if self.stable_indices {
            return alive(index, workers);
        }
        eligible(workers).nth(index)
    }

    fn next(&mut self, workers: Eligible<'_>) -> Option<usize> {
        let count = eligible(workers).count().max(1) as u64;
        let chosen = eligible(workers).nth((self.turn % count) as usize)?;
        self.turn += 1;
        Some(chosen)
    }

    fn stick(&mut self, key: u64, workers: Eligible<'_>) -> Option<usize> {
        self.choices += 1;
        if let Some((stuck, used)) = self.stuck.get_mut(&key).filter(|(stuck, _)| workers[*stuck].is_some()) {
            *used = self.choices;
            return Some(*stuck);
        }
        // Without load to tell workers apart the map fills them in turn: the next one after the last it chose.
        let start = (self.turn % workers.len().max(1) as u64) as usize;
        let in_turn = (start..workers.len()).chain(0..start);
        let chosen = in_turn.filter(|&at| workers[at].is_some()).min_by_key(|&at| workers[at])?;
        self.turn = chosen as u64 + 1;
        self.stuck.insert(key, (chosen, self.choices));
        if self.stuck.len() > MOST_KEYS {
            let mut uses: Vec<u64> = self.stuck.values().map(|(_, used)| *used).collect();
            let (_, median, _) = uses.select_nth_unstable(MOST_KEYS / 2);
            let median = *median;
            self.stuck.retain(|_, (_, used)| *used > median);
        }
        Some(chosen)
    }
}

fn alive(index: usize, workers: Eligible<'_>) -> Option<usize> {
    Some(index).filter(|&index| workers.get(index).is_some_and(Option::is_some))
}

fn eligible(workers: Eligible<'_>) -> impl Iterator<Item = usize> {
    (0..workers.len()).filter(move |&at| workers[at].is_some())
}

/// Rendezvous hashing: stable while the membership is, and only a leaver's keys move.
fn highest_hash(key: u64, workers: Eligible<'_>) -> Option<usize> {
    let weight = |at: usize| mix(key.rotate_left(32) ^ at as u64);
    eligible(workers).max_by_key(|&at| (weight(at), at))
}

/// One key for each block of a prompt, which stands for the block and everything before it: two prompts that share
/// their first `n` blocks share their first `n` keys, and no more. `blocks` are ids or hashes of their content.
pub fn prefix_keys(blocks: impl IntoIterator<Item = u64>) -> Vec<u64> {
    let chained = blocks.into_iter().scan(0u64, |before, block| {
        *before = mix(before.rotate_left(17) ^ mix(block));
        Some(*before)
    });
    chained.collect()
}

/// The finaliser of SplitMix64.
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::SessionIx;

    fn router(decode_policy: RouterPolicy) -> PdRouter {
        PdRouter::new(&RouterConfig { decode_policy, ..RouterConfig::default() })
    }

    #[test]
    fn round_robin_ignores_headers_and_skips_the_dead() {
        let mut router = router(RouterPolicy::RoundRobin);
        let decode = [Some(0), None, Some(0)];
        let picks: Vec<_> = (0..4)
            .map(|_| router.select(RoutingHeader::TargetWorker(2), &[Some(0); 2], &decode).expect("eligible workers"))
            .collect();
        assert_eq!(picks, vec![(0, 0), (1, 2), (0, 0), (1, 2)]);
    }

    #[test]
    fn a_target_header_is_obeyed_or_refused() {
        let mut router = router(RouterPolicy::ConsistentHashing);
        let mut pick =
            |index, decode: &[Option<u32>]| router.select(RoutingHeader::TargetWorker(index), &[Some(0)], decode);
        assert_eq!(pick(1, &[Some(9), Some(9)]), Ok((0, 1)));
        assert!(pick(5, &[Some(0)]).is_err());
        assert!(pick(0, &[None, Some(0)]).is_err());
    }

    #[test]
    fn a_named_p_is_obeyed_by_every_policy_or_refused() {
        for prefill_policy in RouterPolicy::CHOICES {
            let (decode_policy, stable_indices) = (RouterPolicy::ConsistentHashing, false);
            let mut router = PdRouter::new(&RouterConfig { prefill_policy, decode_policy, stable_indices });
            let mut pick = |prefill, alive: &[Option<u32>]| {
                router.select(RoutingHeader::TargetLegs { prefill, decode: 1 }, alive, &[Some(0), Some(0)])
            };
            assert_eq!(pick(2, &[Some(0); 3]), Ok((2, 1)), "{prefill_policy:?}");
            assert_eq!(pick(2, &[None, Some(0), Some(0)]), Ok((2, 1)), "P is counted among all");
            let refused = Err("failed to select a prefill worker".to_owned());
            assert_eq!([pick(0, &[None, Some(0)]), pick(5, &[Some(0)])], [refused.clone(), refused]);
        }
    }

    #[test]
    fn an_index_among_the_eligible_moves_when_one_drops_out() {
        let config = RouterConfig {
            decode_policy: RouterPolicy::ConsistentHashing,
            stable_indices: false,
            ..RouterConfig::default()
        };
        let mut router = PdRouter::new(&config);
        let mut pick = |index, decode: &[Option<u32>]| {
            router.select(RoutingHeader::TargetWorker(index), &[Some(0)], decode).map(|(_, d)| d).ok()
        };
        let (all, without) = ([Some(0); 3], [None, Some(0), Some(0)]);
        assert_eq!([0, 1, 2, 3].map(|index| pick(index, &all)), [Some(0), Some(1), Some(2), None]);
        assert_eq!([0, 1, 2].map(|index| pick(index, &without)), [Some(1), Some(2), None]);
    }

    #[test]
    fn one_leg_goes_by_the_decode_policy() {
        let mut router = router(RouterPolicy::ConsistentHashing);
        assert_eq!(router.select_one(RoutingHeader::TargetWorker(1), &[Some(0), Some(0)]), Ok(1));
        assert!(router.select_one(RoutingHeader::None, &[None, None]).is_err());
    }

    #[test]
    fn keys_of_a_prefix_are_those_of_its_blocks() {
        let (a, b) = (prefix_keys([1, 2, 3, 4]), prefix_keys([1, 2, 9, 4]));
        let shared = a.iter().zip(&b).take_while(|(x, y)| x == y).count();
        assert_eq!((shared, a[3] == b[3]), (2, false));
        assert_ne!(prefix_keys([1, 1])[1], prefix_keys([1])[0]);
    }

    #[test]
    fn new_keys_go_to_the_idle_in_turn() {
        let mut router = router(RouterPolicy::Manual);
        let mut pick = |key, decode: &[Option<u32>]| {
            router.select(RoutingHeader::RoutingKey(SessionIx(key)), &[Some(0)], decode).map(|(_, d)| d)
        };
        let picks = [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 0], [0, 0, 1], [2, 1, 1]];
        let chosen: Vec<_> = (0..).zip(picks).map(|(key, load)| pick(key, &load.map(Some))).collect();
        assert_eq!(chosen, [0, 1, 2, 0, 1, 2].map(Ok).to_vec());
        assert_eq!(pick(9, &[Some(5), None, Some(5)]), Ok(0));
    }

    #[test]
    fn keys_stick_while_their_worker_lives() {
        for policy in [RouterPolicy::Manual, RouterPolicy::ConsistentHashing] {
            let mut router = router(policy);
            let mut pick = |key, decode: &[Option<u32>]| {
                router.select(RoutingHeader::RoutingKey(SessionIx(key)), &[Some(0)], decode).map(|(_, d)| d)
            };
            let all = [Some(0), Some(0), Some(0)];
            let first: Vec<_> = (0..30).map(|key| pick(key, &all)).collect();
            assert_eq!(first, (0..30).map(|key| pick(key, &all)).collect::<Vec<_>>());
            let without: Vec<_> = (0..30).map(|key| pick(key, &[Some(0), None, Some(0)])).collect();
            for (before, after) in first.iter().zip(&without) {
                assert!(before == after || *before == Ok(1), "only keys of the dead worker move");
                assert_ne!(*after, Ok(1));
            }
        }
    }
}
