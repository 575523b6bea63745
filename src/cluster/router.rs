//! The PD router: chooses a prefill and a decode worker for each request, by policies and counters of its own.
//!
//! Its round-robin counter knows nothing of the replayer's; that independence is what breaks `default` + `kvc`.
//! Invariant: a choice is always an eligible worker.

use std::collections::BTreeMap;

use crate::base::SessionIx;
use crate::cluster::{RouterConfig, RouterPolicy};
use crate::protocol::RoutingHeader;

/// See the module. Workers are indices within their role.
#[derive(Debug)]
pub struct PdRouter {
    prefill: Leg,
    decode: Leg,
}

#[derive(Debug)]
struct Leg {
    policy: RouterPolicy,
    turn: u64,
    // Routing keys that stick, for `manual`.
    stuck: BTreeMap<SessionIx, usize>,
}

/// What the router knows of a leg's workers: whether each is eligible, and its requests in flight.
pub type Eligible<'a> = &'a [Option<u32>];

impl PdRouter {
    /// With fresh counters. `config` must be resolved (no `auto`).
    pub fn new(config: &RouterConfig) -> PdRouter {
        let leg = |policy| Leg { policy, turn: 0, stuck: BTreeMap::new() };
        PdRouter { prefill: leg(config.prefill_policy), decode: leg(config.decode_policy) }
    }

    /// Prefill and decode worker of a request, or why there is none.
    pub fn select(
        &mut self,
        header: RoutingHeader,
        prefill: Eligible<'_>,
        decode: Eligible<'_>,
    ) -> Result<(usize, usize), String> {
        let p = self.prefill.select(header, prefill).ok_or("failed to select a prefill worker")?;
        let d = self.decode.select(header, decode).ok_or("failed to select a decode worker")?;
        Ok((p, d))
    }
}

impl Leg {
    fn select(&mut self, header: RoutingHeader, workers: Eligible<'_>) -> Option<usize> {
        match self.policy {
            RouterPolicy::RoundRobin | RouterPolicy::Auto => self.next(workers),
            RouterPolicy::Manual => match header {
                RoutingHeader::RoutingKey(key) => self.stick(key, workers),
                RoutingHeader::None | RoutingHeader::TargetWorker(_) => self.next(workers),
            },
            RouterPolicy::ConsistentHashing => match header {
                RoutingHeader::TargetWorker(index) => {
                    Some(usize::from(index)).filter(|&index| workers.get(index).is_some_and(Option::is_some))
                }
                RoutingHeader::RoutingKey(key) => highest_hash(key, workers),
                RoutingHeader::None => self.next(workers),
            },
        }
    }

    fn next(&mut self, workers: Eligible<'_>) -> Option<usize> {
        let eligible: Vec<usize> = (0..workers.len()).filter(|&at| workers[at].is_some()).collect();
        let chosen = *eligible.get((self.turn % eligible.len().max(1) as u64) as usize)?;
        self.turn += 1;
        Some(chosen)
    }

    fn stick(&mut self, key: SessionIx, workers: Eligible<'_>) -> Option<usize> {
        if let Some(&stuck) = self.stuck.get(&key).filter(|&&stuck| workers[stuck].is_some()) {
            return Some(stuck);
        }
        // Without load to tell workers apart the map fills them in turn: the next one after the last it chose.
        let start = (self.turn % workers.len().max(1) as u64) as usize;
        let in_turn = (start..workers.len()).chain(0..start);
        let chosen = in_turn.filter(|&at| workers[at].is_some()).min_by_key(|&at| workers[at])?;
        self.turn = chosen as u64 + 1;
        self.stuck.insert(key, chosen);
        Some(chosen)
    }
}

/// Rendezvous hashing: stable while the membership is, and only a leaver's keys move.
fn highest_hash(key: SessionIx, workers: Eligible<'_>) -> Option<usize> {
    let weight = |at: usize| mix((u64::from(key.0) << 32) | at as u64);
    (0..workers.len()).filter(|&at| workers[at].is_some()).max_by_key(|&at| (weight(at), at))
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

    fn router(decode_policy: RouterPolicy) -> PdRouter {
        PdRouter::new(&RouterConfig { prefill_policy: RouterPolicy::RoundRobin, decode_policy })
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
