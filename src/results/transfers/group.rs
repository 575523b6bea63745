//! [`Group`]: a link, or a worker with all of its links, and how many of its transfers fail.

use std::collections::BTreeMap;

use super::FailingPart;
use crate::record::TransferRecord;
use crate::results::stats::hypergeometric_tail;

/// A link, or all links of a worker, and what is on them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Group<'a> {
    pub prefill: Option<&'a str>,
    pub decode: Option<&'a str>,
    pub sums: Sums,
    /// Pairs in it.
    pub links: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub transfers: u64,
    pub errors: u64,
}

pub(super) type ByWorker<'a> = BTreeMap<&'a str, Group<'a>>;

/// The links, the prefill and the decode workers of these pairs.
pub(super) fn groups<'a>(pairs: &[&'a TransferRecord]) -> (Vec<Group<'a>>, ByWorker<'a>, ByWorker<'a>) {
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
pub(super) fn best_of<'g, 'a: 'g>(groups: impl Iterator<Item = &'g Group<'a>>, all: Sums) -> Option<&'g Group<'a>> {
    let rated = groups.map(|group| (group, group.sums.likelihood_in(all))).filter(|(_, ratio)| *ratio > 0.0);
    rated.reduce(|best, other| if other.1 > best.1 { other } else { best }).map(|(group, _)| group)
}

impl Group<'_> {
    pub fn part(&self) -> FailingPart {
        match (self.prefill, self.decode) {
            (Some(_), None) => FailingPart::Prefill,
            (None, Some(_)) => FailingPart::Decode,
            (Some(_), Some(_)) | (None, None) => FailingPart::Link,
        }
    }

    /// The worker at the other end of one of its links.
    pub fn other_end<'w>(&self, link: &Group<'w>) -> Option<&'w str> {
        if self.prefill.is_some() { link.decode } else { link.prefill }
    }

    pub fn has(&self, link: &Group) -> bool {
        (self.prefill.is_none() || self.prefill == link.prefill)
            && (self.decode.is_none() || self.decode == link.decode)
    }

    fn add(&mut self, link: Group) {
        self.sums.transfers += link.sums.transfers;
        self.sums.errors += link.sums.errors;
        self.links += link.links;
    }
}

impl Sums {
    pub fn of<'a>(pairs: impl Iterator<Item = &'a TransferRecord>) -> Sums {
        pairs.fold(Sums::default(), |sums, pair| Sums {
            // One that failed was one, whatever an account says.
            transfers: sums.transfers + pair.transfers.max(pair.errors),
            errors: sums.errors + pair.errors,
        })
    }

    /// All others.
    pub fn beside(self, all: Sums) -> Sums {
        Sums { transfers: all.transfers - self.transfers, errors: all.errors - self.errors }
    }

    /// Probability of so many errors or more here, if those of `all` fell on transfers by chance.
    pub fn tail_in(self, all: Sums) -> f64 {
        hypergeometric_tail(self.errors, self.transfers, all.errors, all.transfers)
    }

    /// Logarithm of how much likelier the errors of `all` are with a higher rate here and a lower one elsewhere than with one
    /// rate everywhere; 0 where the rate here is not higher.
    fn likelihood_in(self, all: Sums) -> f64 {
        let others = self.beside(all);
        let is_higher = self.rate() > others.rate() && others.transfers > 0;
        if is_higher { self.own_likelihood() + others.own_likelihood() - all.own_likelihood() } else { 0.0 }
    }

    pub fn rate(self) -> f64 {
        self.errors as f64 / self.transfers.max(1) as f64
    }

    /// Logarithm of the likelihood at the best rate.
    fn own_likelihood(self) -> f64 {
        let term = |part: u64| if part == 0 { 0.0 } else { part as f64 * (part as f64 / self.transfers as f64).ln() };
        term(self.errors) + term(self.transfers - self.errors)
    }
}
