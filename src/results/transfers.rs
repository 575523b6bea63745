//! KV transfers by P→D pair, and what their errors sit on: a link, a P with all of its links, or a D with all of its.
//!
//! Null hypothesis: every transfer fails with the same chance, wherever it goes. Then, of `E` errors among `N` transfers, those
//! among the `n` transfers of a link or worker are hypergeometric (Fisher's exact test, one-sided); the probability found is
//! multiplied by how many of its kind there are and by the three kinds (Bonferroni, a third of it to each). Of all of them the one is taken that a rate of its own
//! explains best, by the likelihood ratio of the spatial scan statistic (Kulldorff 1997, Bernoulli model). A link is named only
//! where it fails more than the other links of its P do, and more than the other links of its D, by the same test among these;
//! else the better of its P and its D, so that a worker that fails with everybody, or a link that carries most, accuses no link.
//! What was found is set aside, and the rest is looked at again.
//!
//! Time-outs are looked at apart: KV waits where there is load, and no load is on one link alone, so of theirs only links are
//! named.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::stats::hypergeometric_tail;
use crate::base::words::plural;
use crate::record::TransferRecord;

/// Errors are concentrated when chance explains them with less than this probability …
const CONCENTRATED_BELOW: f64 = 0.01;
/// … and there are at least this many.
const CONCENTRATED_ERRORS: u64 = 3;
/// Links, prefill and decode workers.
const KINDS: usize = 3;
/// A link stands out among those of its worker when chance explains that with less than this probability.
const STANDS_OUT_BELOW: f64 = 0.05;

/// KV transfers by P→D pair.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Transfers {
    /// Transfers begun or waited for.
    pub total: u64,
    /// Those that failed or timed out.
    pub errors: u64,
    /// Of these, those whose request ended with a time-out: KV that waited for room on D, or was on the link, for too long.
    pub timed_out: u64,
    /// Every pair that saw a transfer.
    pub pairs: Vec<TransferRecord>,
    /// Links and workers with improbably many errors, the most telling first; no error is counted to two of them.
    pub concentrated: Vec<Concentration>,
}

/// Errors that chance does not explain, on the smallest thing that does.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Concentration {
    /// What fails.
    pub on: FailingPart,
    /// Prefill worker; null where a D fails whichever P the KV comes from.
    pub prefill_worker: Option<String>,
    /// Decode worker; null where a P fails whichever D the KV goes to.
    pub decode_worker: Option<String>,
    /// The other end of the one link that has all errors of this worker, but too few of them, or no other link beside it,
    /// to say that it is the link; null where it is not so.
    pub only_with: Option<String>,
    /// Its errors.
    pub errors: u64,
    /// Its transfers.
    pub transfers: u64,
    /// Probability of this many errors or more, or of those on its worst link if that is smaller, if every transfer failed
    /// with the same chance: exact hypergeometric tail times the number of its kind and of kinds, at most 1.
    pub p_value: f64,
}

/// What transfers fail on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FailingPart {
    /// One P→D pair.
    Link,
    /// A prefill worker, with any D.
    Prefill,
    /// A decode worker, with any P.
    Decode,
}

/// A link, or all links of a worker, and what is on them.
#[derive(Debug, Clone, Copy)]
struct Group<'a> {
    prefill: Option<&'a str>,
    decode: Option<&'a str>,
    sums: Sums,
    /// Pairs in it.
    links: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sums {
    transfers: u64,
    errors: u64,
}

/// Requests by P and D whose KV timed out between them.
pub(super) type TimeOuts = BTreeMap<(String, String), u64>;

/// Sums the pairs and finds what the errors sit on.
pub(super) fn transfers(pairs: &[TransferRecord], time_outs: &TimeOuts) -> Transfers {
    let timed_out = |pair: &TransferRecord| {
        let ends = (pair.prefill_worker.clone(), pair.decode_worker.clone());
        time_outs.get(&ends).map_or(0, |count| *count.min(&pair.errors))
    };
    let only = |errors: &dyn Fn(&TransferRecord) -> u64| -> Vec<TransferRecord> {
        pairs.iter().map(|pair| TransferRecord { errors: errors(pair), ..pair.clone() }).collect()
    };
    let mut concentrated = concentrations(&only(&|pair| pair.errors - timed_out(pair)));
    let waited = concentrations(&only(&timed_out));
    concentrated.extend(waited.into_iter().filter(|found| found.on == FailingPart::Link));
    let all = Sums::of(pairs.iter());
    let timed_out = pairs.iter().map(timed_out).sum();
    Transfers { total: all.transfers, errors: all.errors, timed_out, pairs: pairs.to_vec(), concentrated }
}

/// Of the errors of these pairs, the most telling first.
fn concentrations(pairs: &[TransferRecord]) -> Vec<Concentration> {
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
    let named = if link.stands_out_in(prefill) && link.stands_out_in(decode) { *link } else { *worker? };
    let has_all = named.sums.errors == link.sums.errors && named.has(link);
    let other_end = |of: &Group| if of.prefill.is_some() { link.decode } else { link.prefill };
    let (on, of_its_kind) = match (named.prefill, named.decode) {
        (Some(_), None) => (FailingPart::Prefill, prefills.len()),
        (None, Some(_)) => (FailingPart::Decode, decodes.len()),
        (Some(_), Some(_)) | (None, None) => (FailingPart::Link, links.len()),
    };
    let p_value = |group: &Group, of_its_kind: usize| group.sums.tail_in(all) * (KINDS * of_its_kind) as f64;
    let found = Concentration {
        on,
        prefill_worker: named.prefill.map(str::to_owned),
        decode_worker: named.decode.map(str::to_owned),
        only_with: (has_all && on != FailingPart::Link).then(|| other_end(&named)).flatten().map(str::to_owned),
        errors: named.sums.errors,
        transfers: named.sums.transfers,
        p_value: p_value(&named, of_its_kind).min(p_value(link, links.len())).min(1.0),
    };
    (found.errors >= CONCENTRATED_ERRORS && found.p_value < CONCENTRATED_BELOW).then_some(found)
}

type ByWorker<'a> = BTreeMap<&'a str, Group<'a>>;

/// The links, the prefill and the decode workers of these pairs.
fn groups<'a>(pairs: &[&'a TransferRecord]) -> (Vec<Group<'a>>, ByWorker<'a>, ByWorker<'a>) {
    let (mut prefills, mut decodes) = (ByWorker::new(), ByWorker::new());
    let mut links = Vec::with_capacity(pairs.len());
    for pair in pairs {
        let (p, d) = (pair.prefill_worker.as_str(), pair.decode_worker.as_str());
        let sums = Sums::of([*pair].into_iter());
        let link = Group { prefill: Some(p), decode: Some(d), sums, links: 1 };
        links.push(link);
        let none = |prefill, decode| Group { prefill, decode, sums: Sums::default(), links: 0 };
        prefills.entry(p).or_insert(none(Some(p), None)).add(link);
        decodes.entry(d).or_insert(none(None, Some(d))).add(link);
    }
    (links, prefills, decodes)
}

/// The one that a rate of its own explains best; the first of equals.
fn best_of<'g, 'a: 'g>(groups: impl Iterator<Item = &'g Group<'a>>, all: Sums) -> Option<&'g Group<'a>> {
    let rated = groups.map(|group| (group, group.sums.likelihood_in(all))).filter(|(_, ratio)| *ratio > 0.0);
    rated.reduce(|best, other| if other.1 > best.1 { other } else { best }).map(|(group, _)| group)
}

impl Concentration {
    fn has(&self, pair: &TransferRecord) -> bool {
        self.prefill_worker.as_ref().is_none_or(|p| *p == pair.prefill_worker)
            && self.decode_worker.as_ref().is_none_or(|d| *d == pair.decode_worker)
    }

    /// `P0 → D2: 5 errors on 100 transfers (p = 1e-6)`.
    pub(super) fn sentence(&self) -> String {
        let ends: Vec<&str> =
            [&self.prefill_worker, &self.decode_worker].into_iter().flatten().map(String::as_str).collect();
        let (whole, way) = match self.on {
            FailingPart::Link => ("", ""),
            FailingPart::Prefill => (", whatever D they go to", "to"),
            FailingPart::Decode => (", whatever P they come from", "from"),
        };
        let name = ends.join(" → ");
        let where_ = match &self.only_with {
            Some(end) => format!("{name}, or on its link {way} {end}, which has all of its errors"),
            None => format!("{name}{whole}"),
        };
        let (errors, transfers) = (plural(self.errors, "error"), plural(self.transfers, "transfer"));
        format!("{where_}: {errors} on {transfers} ({})", chance(self.p_value))
    }
}

fn chance(p_value: f64) -> String {
    if p_value < 1e-99 { "p < 1e-99".into() } else { format!("p = {p_value:.0e}") }
}

impl Group<'_> {
    fn has(&self, link: &Group) -> bool {
        (self.prefill.is_none() || self.prefill == link.prefill)
            && (self.decode.is_none() || self.decode == link.decode)
    }

    fn add(&mut self, link: Group) {
        self.sums.transfers += link.sums.transfers;
        self.sums.errors += link.sums.errors;
        self.links += link.links;
    }

    /// Whether a link fails more than the others of this worker, beyond chance.
    fn stands_out_in(&self, worker: &Group) -> bool {
        self.sums.tail_in(worker.sums) * (worker.links as f64) < STANDS_OUT_BELOW
    }
}

impl Sums {
    fn of<'a>(pairs: impl Iterator<Item = &'a TransferRecord>) -> Sums {
        pairs.fold(Sums::default(), |sums, pair| Sums {
            // One that failed was one, whatever an account says.
            transfers: sums.transfers + pair.transfers.max(pair.errors),
            errors: sums.errors + pair.errors,
        })
    }

    /// Probability of so many errors or more here, if those of `all` fell on transfers by chance.
    fn tail_in(self, all: Sums) -> f64 {
        hypergeometric_tail(self.errors, self.transfers, all.errors, all.transfers)
    }

    /// Logarithm of how much likelier the errors of `all` are with a higher rate here and a lower one elsewhere than with one
    /// rate everywhere; 0 where the rate here is not higher.
    fn likelihood_in(self, all: Sums) -> f64 {
        let others = Sums { transfers: all.transfers - self.transfers, errors: all.errors - self.errors };
        let is_higher = self.rate() > others.rate() && others.transfers > 0;
        if is_higher { self.own_likelihood() + others.own_likelihood() - all.own_likelihood() } else { 0.0 }
    }

    fn rate(self) -> f64 {
        self.errors as f64 / self.transfers.max(1) as f64
    }

    /// Logarithm of the likelihood at the best rate.
    fn own_likelihood(self) -> f64 {
        let term = |part: u64| if part == 0 { 0.0 } else { part as f64 * (part as f64 / self.transfers as f64).ln() };
        term(self.errors) + term(self.transfers - self.errors)
    }
}

#[cfg(test)]
mod tests {
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
        transfers(pairs, &TimeOuts::new()).concentrated.into_iter().map(words).collect()
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

    #[test]
    fn time_outs_on_a_worker_are_load_and_on_a_link_alone_are_not() {
        let pairs = |errors: fn(usize, usize) -> u64| {
            let all = (0..3).flat_map(|p| (0..4).map(move |d| (p, d)));
            all.map(|(p, d)| pair(p, d, 100, errors(p, d))).collect::<Vec<_>>()
        };
        let found = |pairs: &[TransferRecord], time_outs: &TimeOuts| {
            let found = transfers(pairs, time_outs);
            (found.timed_out, found.concentrated.into_iter().map(|one| (one.on, one.errors)).collect::<Vec<_>>())
        };
        let time_outs_of = |pairs: &[TransferRecord]| -> TimeOuts {
            let ends = |pair: &TransferRecord| (pair.prefill_worker.clone(), pair.decode_worker.clone());
            pairs.iter().map(|pair| (ends(pair), pair.errors)).collect()
        };
        let on_d = pairs(|_, d| if d == 3 { 9 } else { 0 });
        assert_eq!(found(&on_d, &time_outs_of(&on_d)), (27, vec![]));
        assert_eq!(found(&on_d, &TimeOuts::new()), (0, vec![(FailingPart::Decode, 27)]));
        let on_link = pairs(|p, d| if (p, d) == (1, 3) { 9 } else { 0 });
        assert_eq!(found(&on_link, &time_outs_of(&on_link)), (9, vec![(FailingPart::Link, 9)]));
        // Load on D3 does not hide that P1 breaks off.
        let both = pairs(|p, d| if d == 3 { 9 } else { 0 } + if p == 1 { 4 } else { 0 });
        assert_eq!(found(&both, &time_outs_of(&on_d)), (27, vec![(FailingPart::Prefill, 16)]));
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
