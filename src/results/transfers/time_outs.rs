//! Transfers whose KV waited for room on D, or was on the link, for too long: what they say of a link or a worker.
//!
//! KV waits where there is load, on every worker that has it, in bursts that last for minutes: a full D, or a P that was slow,
//! makes hundreds of others late. A test that takes each for an event of its own finds innocent links significant, so there is
//! none. A link or worker is named only where
//!
//! - at least half of its transfers time out,
//! - the odds that one does are at least [`ODDS_RATIO`] times those of all other transfers, half an event added to each count
//!   (Haldane and Anscombe), which bears that the others wait for the same D too, and
//! - they are of at least [`SESSIONS`] sessions: what one session meets again and again on its D is one event.
//!
//! Of those that pass, the one is taken that a rate of its own explains best. A link must also pass against the other links of
//! its P and those of its D, and needs some to be told from them; a worker's transfers must fail for at least half without its
//! worst link. What was found is set aside, and the rest is held to the same. Nothing is said where all are late alike.

use std::collections::BTreeSet;

use super::group::{Group, Sums, best_of, groups};
use super::{Concentration, FailedBy, FailingPart, TimedOut, TimedOutAt};
use crate::record::TransferRecord;

/// Odds of a time-out over those elsewhere.
const ODDS_RATIO: f64 = 10.0;
/// Sessions they must be of.
const SESSIONS: usize = 3;

/// A link and its time-outs.
#[derive(Debug, Clone)]
pub(super) struct Waiting<'a> {
    /// With its time-outs for errors.
    pub pair: TransferRecord,
    pub all_errors: u64,
    /// Whose they are.
    sessions: &'a BTreeSet<u32>,
}

impl<'a> Waiting<'a> {
    /// The account of the link has the last word on how many failed.
    pub fn of(pair: &TransferRecord, timed_out: &'a TimedOut) -> Waiting<'a> {
        let errors = timed_out.count.min(pair.errors);
        let pair_of = TransferRecord { errors, ..pair.clone() };
        Waiting { pair: pair_of, all_errors: pair.errors, sessions: &timed_out.sessions }
    }
}

/// What the time-outs sit on, the most telling first, and of the others the worker with most.
pub(super) fn concentrations(links: &[Waiting]) -> (Vec<Concentration>, Option<TimedOutAt>) {
    let mut rest: Vec<&Waiting> = links.iter().collect();
    let mut all_found = Vec::new();
    while let Some(found) = concentration(&rest) {
        rest.retain(|link| !found.has(&link.pair));
        all_found.push(found);
    }
    (all_found, most(&rest))
}

fn concentration(waiting: &[&Waiting]) -> Option<Concentration> {
    let pairs: Vec<&TransferRecord> = waiting.iter().map(|link| &link.pair).collect();
    let all = Sums::of(pairs.iter().copied());
    let (links, prefills, decodes) = groups(&pairs);
    let worst_of =
        |worker: &Group| links.iter().filter(|link| worker.has(link)).max_by_key(|link| link.sums.errors).copied();
    let is_named = |group: &&Group| {
        stands_out(group.sums, all)
            && sessions(group, waiting) >= SESSIONS
            && match (group.prefill, group.decode) {
                (Some(p), Some(d)) => {
                    [&prefills[p], &decodes[d]].iter().all(|worker| stands_out(group.sums, worker.sums))
                }
                _ => worst_of(group).is_some_and(|worst| is_most(worst.sums.beside(group.sums))),
            }
    };
    let every = || links.iter().chain(decodes.values()).chain(prefills.values());
    let named = best_of(every().filter(is_named), all)?;
    let only = worst_of(named).filter(|_| named.links == 1 && named.part() != FailingPart::Link);
    let only_with = only.and_then(|link| named.other_end(&link));
    Some(Concentration::of(named, all, FailedBy::TimeOut, only_with))
}

/// Where to look, of time-outs that nothing is accused of.
fn most(waiting: &[&Waiting]) -> Option<TimedOutAt> {
    let pairs: Vec<&TransferRecord> = waiting.iter().map(|link| &link.pair).collect();
    let (_, prefills, decodes) = groups(&pairs);
    let worst = best_of(decodes.values().chain(prefills.values()), Sums::of(pairs.iter().copied()))?;
    let Sums { errors: timed_out, transfers } = worst.sums;
    Some(TimedOutAt { worker: worst.prefill.or(worst.decode)?.to_owned(), timed_out, transfers })
}

/// Whether most of these transfers time out, and far more than the others of `all`; nothing does without others.
fn stands_out(part: Sums, all: Sums) -> bool {
    let others = part.beside(all);
    part.errors > 0 && is_most(part) && others.transfers > 0 && odds(part) >= ODDS_RATIO * odds(others)
}

fn is_most(sums: Sums) -> bool {
    2 * sums.errors >= sums.transfers
}

fn odds(sums: Sums) -> f64 {
    (sums.errors as f64 + 0.5) / ((sums.transfers - sums.errors) as f64 + 0.5)
}

/// Whose transfers time out there.
fn sessions(group: &Group, waiting: &[&Waiting]) -> usize {
    let is_in = |link: &&&Waiting| {
        group.prefill.is_none_or(|p| p == link.pair.prefill_worker)
            && group.decode.is_none_or(|d| d == link.pair.decode_worker)
    };
    waiting.iter().filter(is_in).flat_map(|link| link.sessions).collect::<BTreeSet<_>>().len()
}

#[cfg(test)]
mod tests {
    use super::super::{TimeOuts, transfers};
    use super::*;

    /// 2 P and 4 D: transfers and time-outs of a link, and how many sessions they are of.
    fn run(of: impl Fn(usize, usize) -> (u64, u64, u32)) -> (Vec<TransferRecord>, TimeOuts) {
        let (mut pairs, mut time_outs) = (Vec::new(), TimeOuts::new());
        for (p, d) in (0..2).flat_map(|p| (0..4).map(move |d| (p, d))) {
            let ((transfers, errors, sessions), p, d) = (of(p, d), format!("P{p}"), format!("D{d}"));
            time_outs.insert((p.clone(), d.clone()), TimedOut { count: errors, sessions: (0..sessions).collect() });
            pairs.push(TransferRecord { prefill_worker: p, decode_worker: d, transfers, errors, bytes: 0 });
        }
        (pairs, time_outs)
    }

    /// Who is named, and the worker with most of the rest.
    fn named(of: impl Fn(usize, usize) -> (u64, u64, u32)) -> (String, Option<String>) {
        let (pairs, time_outs) = run(of);
        let found = transfers(&pairs, &time_outs);
        assert!(found.concentrated.iter().all(|one| one.failed_by == FailedBy::TimeOut && one.p_value.is_none()));
        let ends = |one: &Concentration| {
            let ends = [&one.prefill_worker, &one.decode_worker].into_iter().flatten().map(String::as_str);
            ends.collect::<Vec<_>>().join("-")
                + &one.only_with.as_ref().map_or(String::new(), |end| format!(" ({end})"))
        };
        let names: Vec<String> = found.concentrated.iter().map(ends).collect();
        (names.join(" "), found.most_timed_out.map(|most| most.worker))
    }

    #[test]
    fn what_times_out_mostly_and_far_more_than_the_rest_is_named_and_load_is_not() {
        type Link = fn(usize, usize) -> (u64, u64, u32);
        let cases: [(Link, &str, Option<&str>); 13] = [
            (|p, d| (100, if (p, d) == (1, 2) { 90 } else { 2 }, 9), "P1-D2", None),
            (|_, d| (100, if d == 2 { 92 } else { 4 }, 9), "D2", None),
            // The others wait for the same D.
            (|p, _| (100, if p == 1 { 100 } else { 70 }, 9), "P1", None),
            (|p, _| (100, if p == 1 { 75 } else { 60 }, 9), "", Some("P1")),
            // A few are enough where they are all.
            (|_, d| if d == 2 { (4, 4, 4) } else { (300, 0, 0) }, "D2", None),
            (|_, d| if d == 2 { (4, 4, 1) } else { (300, 0, 0) }, "", Some("D2")),
            // Load on a D, as significant as it may be.
            (|_, d| (100, if d == 3 { 40 } else { 1 }, 9), "", Some("D3")),
            (|p, d| (100, if (p, d) == (0, 3) { 45 } else { 0 }, 9), "", Some("D3")),
            // All are late, or none is.
            (|_, _| (100, 80, 9), "", None),
            (|_, _| (100, 0, 0), "", None),
            // Two links; a D, and a link of what is left.
            (|p, d| (100, if (p, d) == (0, 1) || (p, d) == (1, 3) { 100 } else { 5 }, 9), "P0-D1 P1-D3", None),
            (|p, d| (100, if d == 0 || (p, d) == (1, 3) { 99 } else { 3 }, 9), "D0 P1-D3", None),
            // A link that carries most of its worker's is no worker.
            (|p, d| if p == 1 && d == 2 { (900, 890, 9) } else { (100, 3, 9) }, "P1-D2", None),
        ];
        for (at, (of, guilty, most)) in cases.into_iter().enumerate() {
            let (names, found_most) = named(of);
            assert_eq!(names, guilty, "case {at}");
            if let Some(most) = most {
                assert_eq!(found_most.as_deref(), Some(most), "case {at}");
            }
        }
    }

    #[test]
    fn nothing_tells_the_only_link_of_a_worker_from_it() {
        // Without the links of P1.
        let one_p = |p, d| if p == 1 { (0, 0, 0) } else { (100, if d == 2 { 95 } else { 3 }, 9) };
        let (mut pairs, time_outs) = run(one_p);
        pairs.retain(|pair| pair.transfers > 0);
        let found = transfers(&pairs, &time_outs).concentrated;
        assert_eq!((found.len(), found[0].on, found[0].only_with.as_deref()), (1, FailingPart::Decode, Some("P0")));
        // One link alone has nothing to be compared with.
        pairs.truncate(1);
        pairs[0].errors = 100;
        assert_eq!(transfers(&pairs, &time_outs).concentrated, []);
    }

    #[test]
    fn breaks_and_time_outs_are_judged_apart() {
        // P1 breaks off; D3 is full, for whoever sends to it.
        let (mut pairs, time_outs) = run(|_, d| (100, if d == 3 { 30 } else { 0 }, 9));
        pairs.iter_mut().filter(|pair| pair.prefill_worker == "P1").for_each(|pair| pair.errors += 20);
        let found = transfers(&pairs, &time_outs);
        assert_eq!((found.errors, found.timed_out), (140, 60));
        let [one] = &found.concentrated[..] else { panic!("{:?}", found.concentrated) };
        assert_eq!((one.prefill_worker.as_deref(), one.failed_by, one.errors), (Some("P1"), FailedBy::BreakingOff, 80));
        assert_eq!(found.most_timed_out.map(|most| (most.worker, most.timed_out)), Some(("D3".into(), 60)));
        // All of them time-outs, and most on D3: D3 it is, beside P1.
        let (mut pairs, time_outs) = run(|_, d| (100, if d == 3 { 75 } else { 0 }, 9));
        pairs.iter_mut().filter(|pair| pair.prefill_worker == "P1").for_each(|pair| pair.errors += 20);
        let found = transfers(&pairs, &time_outs).concentrated;
        let on: Vec<_> = found.iter().map(|one| (one.on, one.failed_by, one.errors)).collect();
        let break_off = (FailingPart::Prefill, FailedBy::BreakingOff, 80);
        assert_eq!(on, [break_off, (FailingPart::Decode, FailedBy::TimeOut, 150)]);
    }
}
