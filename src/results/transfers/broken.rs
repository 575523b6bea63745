//! Transfers that broke off: what chance does not explain.
//!
//! Null hypothesis: every transfer fails with the same chance, wherever it goes. Then, of `E` errors among `N` transfers, those
//! among the `n` transfers of a link or worker are hypergeometric (Fisher's exact test, one-sided); the probability found is
//! multiplied by how many of its kind there are and by the three kinds (Bonferroni, a third of it to each). Of all of them the one is taken that a rate of its own
//! explains best, by the likelihood ratio of the spatial scan statistic (Kulldorff 1997, Bernoulli model). A link is named only
//! where it fails more than the other links of its P do, and more than the other links of its D, by the same test among these;
//! else the better of its P and its D, so that a worker that fails with everybody, or a link that carries most, accuses no link.
//! What was found is set aside, and the rest is looked at again.

use super::group::{Group, Sums, best_of, groups};
use super::{Concentration, FailedBy, FailingPart};
use crate::record::TransferRecord;

/// Errors are concentrated when chance explains them with less than this probability …
const CONCENTRATED_BELOW: f64 = 0.01;
/// … and there are at least this many.
const CONCENTRATED_ERRORS: u64 = 3;
/// Links, prefill and decode workers.
const KINDS: usize = 3;
/// A link stands out among those of its worker when chance explains that with less than this probability.
const STANDS_OUT_BELOW: f64 = 0.05;

/// Of the errors of these pairs, the most telling first.
pub(super) fn concentrations(pairs: &[TransferRecord]) -> Vec<Concentration> {
    let mut rest: Vec<&TransferRecord> = pairs.iter().collect();
    let mut all_found = Vec::new();
    while let Some(found) = concentration(&rest) {
        rest.retain(|pair| !found.has(pair));
        all_found.push(found);
    }
    all_found
}

/// The link or worker that explains the errors of these pairs best, if chance does not.
fn concentration(pairs: &[&TransferRecord]) -> Option<Concentration> {
    let all = Sums::of(pairs.iter().copied());
    let (links, prefills, decodes) = groups(pairs);
    let every = || prefills.values().chain(decodes.values()).chain(&links);
    let best = best_of(every(), all)?;
    let link = best_of(links.iter().filter(|link| best.has(link)), all)?;
    let (prefill, decode) = (prefills.get(link.prefill?)?, decodes.get(link.decode?)?);
    let worker = best_of([decode, prefill].into_iter(), all);
    let named = if stands_out_in(link, prefill) && stands_out_in(link, decode) { *link } else { *worker? };
    let has_all = named.sums.errors == link.sums.errors && named.has(link);
    let of_its_kind = match named.part() {
        FailingPart::Prefill => prefills.len(),
        FailingPart::Decode => decodes.len(),
        FailingPart::Link => links.len(),
    };
    let p_of = |group: &Group, of_its_kind: usize| group.sums.tail_in(all) * (KINDS * of_its_kind) as f64;
    let p_value = p_of(&named, of_its_kind).min(p_of(link, links.len())).min(1.0);
    let only_with = (has_all && named.part() != FailingPart::Link).then(|| named.other_end(link)).flatten();
    let found = Concentration::of(&named, all, FailedBy::BreakingOff, only_with);
    let is_telling = found.errors >= CONCENTRATED_ERRORS && p_value < CONCENTRATED_BELOW;
    is_telling.then_some(Concentration { p_value: Some(p_value), ..found })
}

/// Whether a link fails more than the others of this worker, beyond chance.
fn stands_out_in(link: &Group, worker: &Group) -> bool {
    link.sums.tail_in(worker.sums) * (worker.links as f64) < STANDS_OUT_BELOW
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::base::Rng;

    fn pair(p: usize, d: usize, transfers: u64, errors: u64) -> TransferRecord {
        TransferRecord { prefill_worker: format!("P{p}"), decode_worker: format!("D{d}"), transfers, errors, bytes: 0 }
    }

    /// What is named, in words.
    fn named(pairs: &[TransferRecord]) -> Vec<String> {
        let words = |found: Concentration| {
            let ends = [found.prefill_worker, found.decode_worker].into_iter().flatten();
            let or = found.only_with.map(|end| format!(" ({end})")).unwrap_or_default();
            ends.collect::<Vec<_>>().join("-") + &or
        };
        concentrations(pairs).into_iter().map(words).collect()
    }

    /// 2 P and 4 D, 100 transfers on each link, with these errors by P.
    fn two_by_four(errors: [[u64; 4]; 2]) -> Vec<String> {
        let row = |(p, errors): (usize, [u64; 4])| (0..4).map(move |d| pair(p, d, 100, errors[d])).collect::<Vec<_>>();
        named(&errors.into_iter().enumerate().flat_map(row).collect::<Vec<_>>())
    }

    #[test]
    fn the_smallest_thing_that_explains_the_errors_is_named() {
        let cases: [([[u64; 4]; 2], &[&str]); 11] = [
            ([[0, 20, 0, 0], [0, 0, 0, 0]], &["P0-D1"]),
            ([[0, 6, 0, 0], [0, 0, 0, 0]], &["P0-D1"]),
            ([[1, 20, 1, 0], [1, 2, 0, 1]], &["P0-D1"]),
            ([[20, 19, 22, 18], [0, 0, 0, 0]], &["P0"]),
            ([[2, 3, 3, 2], [0, 0, 0, 0]], &["P0"]),
            ([[0, 0, 20, 0], [0, 0, 21, 0]], &["D2"]),
            // They could as well be the D's, all from P0 with a chance of 1 in 8.
            ([[0, 4, 0, 0], [0, 0, 0, 0]], &["D1 (P0)"]),
            ([[0, 6, 0, 0], [0, 1, 0, 0]], &["D1"]),
            ([[3, 2, 1, 2], [2, 1, 3, 2]], &[]),
            ([[0, 2, 0, 0], [0, 0, 0, 0]], &[]),
            // Several at once, each once; without P1, nothing tells the link to D1 from D1.
            ([[0, 40, 0, 0], [30, 30, 31, 29]], &["P1", "D1 (P0)"]),
        ];
        for (errors, wanted) in cases {
            assert_eq!(two_by_four(errors), wanted, "{errors:?}");
        }
    }

    #[test]
    fn where_nothing_tells_a_link_from_its_worker_both_are_said() {
        let mut pairs: Vec<_> = (0..6).map(|d| pair(0, d, 100, 1)).collect();
        assert_eq!(named(&pairs), [""; 0]);
        pairs[2].errors = 20;
        assert_eq!(named(&pairs), ["D2 (P0)"]);
        let to_one_d: Vec<_> = (0..3).map(|p| pair(p, 0, 100, if p == 1 { 20 } else { 1 })).collect();
        assert_eq!(named(&to_one_d), ["P1 (D0)"]);
        assert_eq!(named(&[pair(0, 0, 10, 10)]), [""; 0], "there is nothing else to compare it with");
        assert_eq!(named(&[pair(0, 2, 10, 1), pair(1, 2, 10, 0)]), [""; 0], "one is no pattern");
        // An account that has counted errors of transfers it did not count.
        assert_eq!(named(&[pair(0, 0, 0, 9), pair(1, 1, 50, 0)]), ["D0 (P0)"]);
    }

    /// How often, in 400 runs of 4 P and 5 D with uneven loads, each name is given; `rate` is that of a link.
    fn runs(rate: impl Fn(usize, usize) -> f64) -> BTreeMap<String, u64> {
        let mut rng = Rng::new(7, 1);
        let mut counts = BTreeMap::new();
        for _ in 0..400 {
            let mut pairs = Vec::new();
            for (p, d) in (0..4).flat_map(|p| (0..5).map(move |d| (p, d))) {
                let load = 10 + rng.below(20) * (1 + 9 * u64::from(d == 0)) * (1 + u64::from(p == 1));
                let errors = (0..load).filter(|_| rng.f64() < rate(p, d)).count() as u64;
                pairs.push(pair(p, d, load, errors));
            }
            named(&pairs).into_iter().for_each(|name| *counts.entry(name).or_insert(0) += 1);
        }
        counts
    }

    #[test]
    fn over_many_runs_the_guilty_is_named_and_others_are_not() {
        for background in [0.0, 0.02] {
            let worse = |rate: f64, is: bool| if is { rate } else { background };
            for rate in [0.15, 0.9] {
                for (guilty, counts) in [
                    ("P1-D2", runs(|p, d| worse(rate, (p, d) == (1, 2)))),
                    ("P2", runs(|p, _| worse(rate, p == 2))),
                    ("D3", runs(|_, d| worse(rate, d == 3))),
                ] {
                    let found = counts.get(guilty).copied().unwrap_or(0);
                    let others =
                        counts.iter().filter(|(name, _)| !guilty.contains(&name[..2])).map(|(_, n)| n).sum::<u64>();
                    let smaller = counts.iter().filter(|(name, _)| name.len() > guilty.len() && name.contains(guilty));
                    let smaller = smaller.filter(|(name, _)| name.contains('-')).map(|(_, n)| n).sum::<u64>();
                    assert!(others <= 12 && smaller <= 40, "{guilty} at {rate} over {background}: {counts:?}");
                    let least = if rate > 0.5 { 360 } else { 80 };
                    assert!(found >= least, "{guilty} at {rate} over {background}: {counts:?}");
                }
            }
        }
        for rate in [0.01, 0.3, 1.0] {
            let alarms = runs(|_, _| rate).values().sum::<u64>();
            assert!(alarms <= 8, "{alarms} alarms in 400 runs with the same rate {rate} everywhere");
        }
    }
}
