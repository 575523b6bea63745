//! Policy `cache_aware` of the PD router: where was a prompt like this one sent before?
//!
//! The rule of SGLang's gateway with its defaults. When the loads of a leg's workers differ by more than 64 requests
//! and by more than half, the least loaded takes the request. Otherwise the longest known prefix decides: if more than 30 %
//! of the prompt was routed before, its worker takes it again; if not, the least loaded does, among equals the one with
//! the fewest blocks. What was routed stands for what is cached: the router sees no evictions, hence "approximate".
//! Owns the memory of routed prefixes, at most a million blocks.

use std::collections::BTreeMap;

use crate::cluster::router::Eligible;

/// A prefix counts when it is a larger part of the prompt than this.
const CACHE_THRESHOLD: f64 = 0.3;
/// Load comes first when it differs by more than this many requests …
const BALANCE_ABS: u32 = 64;
/// … and by more than this factor.
const BALANCE_REL: f64 = 1.5;
/// Blocks remembered; past it the half that was not used for longest is forgotten.
const MOST_BLOCKS: usize = 1 << 20;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Affinity {
    /// By prefix key: the worker it was last routed to, and the count of choices then.
    routed: BTreeMap<u64, (usize, u64)>,
    /// Blocks by worker.
    held: Vec<u64>,
    choices: u64,
}

impl Affinity {
    /// Worker for a prompt of these prefix keys; remembers the choice.
    pub fn select(&mut self, prompt: &[u64], workers: Eligible<'_>) -> Option<usize> {
        self.held.resize(workers.len().max(self.held.len()), 0);
        let loads = || workers.iter().enumerate().filter_map(|(at, load)| Some((at, (*load)?)));
        let (least, idlest) =
            loads().map(|(at, load)| (load, self.held[at], at)).min().map(|(load, _, at)| (load, at))?;
        let most = loads().map(|(_, load)| load).max()?;
        let lopsided = most - least > BALANCE_ABS && f64::from(most) > f64::from(least) * BALANCE_REL;
        let known = if lopsided {
            None
        } else {
            self.holder(prompt).filter(|at| workers.get(*at).is_some_and(Option::is_some))
        };
        let chosen = known.unwrap_or(idlest);
        self.remember(prompt, chosen);
        Some(chosen)
    }

    /// Worker of the longest known prefix, if that is long enough.
    fn holder(&self, prompt: &[u64]) -> Option<usize> {
        let known = prompt.iter().map_while(|key| self.routed.get(key));
        let (matched, worker) = known.fold((0u32, None), |(count, _), (worker, _)| (count + 1, Some(*worker)));
        worker.filter(|_| f64::from(matched) > CACHE_THRESHOLD * prompt.len() as f64)
    }

    fn remember(&mut self, prompt: &[u64], worker: usize) {
        self.choices += 1;
        for key in prompt {
            if let Some((before, _)) = self.routed.insert(*key, (worker, self.choices)) {
                self.held[before] -= 1;
            }
            self.held[worker] += 1;
        }
        if self.routed.len() > MOST_BLOCKS {
            self.forget_half();
        }
    }

    fn forget_half(&mut self) {
        let mut uses: Vec<u64> = self.routed.values().map(|(_, used)| *used).collect();
        let (_, median, _) = uses.select_nth_unstable(MOST_BLOCKS / 2);
        let median = *median;
        let held = &mut self.held;
        self.routed.retain(|_, (worker, used)| {
            let stays = *used > median;
            held[*worker] -= u64::from(!stays);
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::router::prefix_keys;

    fn keys(session: u64, blocks: u64) -> Vec<u64> {
        prefix_keys((0..blocks).map(|block| session * 1000 + block))
    }

    #[test]
    fn a_session_stays_where_its_prefix_went() {
        let mut affinity = Affinity::default();
        let idle = [Some(0); 3];
        let first: Vec<_> = (1..7).map(|session| affinity.select(&keys(session, 10), &idle)).collect();
        assert_eq!(first, [0, 1, 2, 0, 1, 2].map(Some), "equal loads: the one with the fewest blocks");
        let later: Vec<_> = (1..7).map(|session| affinity.select(&keys(session, 25), &idle)).collect();
        assert_eq!(later, first);
    }

    #[test]
    fn a_short_match_or_a_dead_holder_gives_way_to_load() {
        let mut affinity = Affinity::default();
        assert_eq!(affinity.select(&keys(1, 3), &[Some(0), Some(1)]), Some(0));
        // 3 of 10 blocks are not more than 30 %; 3 of 9 are.
        assert_eq!(affinity.select(&keys(1, 10), &[Some(1), Some(0)]), Some(1));
        let mut affinity = Affinity::default();
        affinity.select(&keys(1, 3), &[Some(0), Some(1)]);
        assert_eq!(affinity.select(&keys(1, 9), &[Some(1), Some(0)]), Some(0));
        assert_eq!(affinity.select(&keys(1, 9), &[None, Some(7)]), Some(1));
        assert_eq!(affinity.select(&keys(1, 9), &[None, None]), None);
        assert_eq!(affinity.select(&[], &[Some(3), Some(2)]), Some(1), "no prompt: the least loaded");
    }

    #[test]
    fn a_lopsided_leg_is_balanced_first() {
        let pick = |loads: [u32; 2]| {
            let mut affinity = Affinity::default();
            affinity.select(&keys(1, 10), &[Some(0), Some(1)]);
            affinity.select(&keys(1, 10), &loads.map(Some))
        };
        assert_eq!(pick([64, 0]), Some(0), "a difference of 64 is not over 64");
        assert_eq!(pick([65, 0]), Some(1));
        assert_eq!(pick([300, 200]), Some(0), "1.5 times is not over 1.5");
        assert_eq!(pick([301, 200]), Some(1));
    }

    #[test]
    fn what_is_remembered_is_bounded_and_counted_right() {
        let mut affinity = Affinity::default();
        let blocks = 1 << 17;
        for session in 0..12u64 {
            let prompt = prefix_keys((0..blocks).map(|block| (session << 32) + block));
            affinity.select(&prompt, &[Some(0), Some(0)]);
        }
        assert!(affinity.routed.len() <= MOST_BLOCKS);
        assert_eq!(affinity.held.iter().sum::<u64>(), affinity.routed.len() as u64);
        assert!(affinity.routed.len() >= MOST_BLOCKS / 4);
    }
}
