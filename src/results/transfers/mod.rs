//! KV transfers by P→D pair, and what their errors sit on: a link, a P with all of its links, or a D with all of its.
//!
//! Those that broke off are judged by chance (`broken`), those whose KV waited or moved too long by their share
//! (`time_outs`): these come in bursts, where there is load, so that no test that takes each for itself tells a fault from it.

mod broken;
mod group;
mod time_outs;

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;

use self::group::{Group, Sums};
use self::time_outs::Waiting;
use crate::base::words::{count, plural};
use crate::record::TransferRecord;

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
    /// Links and workers that the errors sit on: those that broke off first, then the time-outs, of each the most telling
    /// first; no error is counted to two of them.
    pub concentrated: Vec<Concentration>,
    /// The worker that the time-outs not counted to one of these are most telling of; null without such, or where all workers
    /// have alike. It is where to look, no verdict.
    pub most_timed_out: Option<TimedOutAt>,
}

/// A worker, and the time-outs on its links.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TimedOutAt {
    /// Its name.
    pub worker: String,
    /// Transfers to or from it that timed out.
    pub timed_out: u64,
    /// All transfers to or from it.
    pub transfers: u64,
}

/// Errors of one kind, on the smallest thing that explains them.
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
    /// How they fail.
    pub failed_by: FailedBy,
    /// Its errors of this kind.
    pub errors: u64,
    /// Its transfers.
    pub transfers: u64,
    /// Share of all other transfers with such an error, 0 to 1; what is named before it is left out.
    pub elsewhere: f64,
    /// Of those that broke off: probability of this many or more, or of those on its worst link if that is smaller, if every
    /// transfer failed with the same chance: exact hypergeometric tail times the number of its kind and of kinds, at most 1.
    /// Null for time-outs, which are not independent.
    pub p_value: Option<f64>,
}

/// How transfers fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FailedBy {
    /// They break off: more than chance explains.
    BreakingOff,
    /// KV waited for room on D, or was on the link, for too long: most of them, and far more than elsewhere.
    TimeOut,
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

/// Requests by P and D whose KV timed out between them.
pub(super) type TimeOuts = BTreeMap<(String, String), TimedOut>;

/// Time-outs on one link.
#[derive(Debug, Clone, Default)]
pub(super) struct TimedOut {
    pub count: u64,
    /// Numbers of the sessions they are of.
    pub sessions: BTreeSet<u32>,
}

/// Sums the pairs and finds what the errors sit on.
pub(super) fn transfers(pairs: &[TransferRecord], time_outs: &TimeOuts) -> Transfers {
    let none = TimedOut::default();
    let of = |pair: &TransferRecord| {
        time_outs.get(&(pair.prefill_worker.clone(), pair.decode_worker.clone())).unwrap_or(&none)
    };
    let waiting: Vec<Waiting> = pairs.iter().map(|pair| Waiting::of(pair, of(pair))).collect();
    let breaks =
        |waiting: &Waiting| TransferRecord { errors: waiting.all_errors - waiting.pair.errors, ..waiting.pair.clone() };
    let mut concentrated = broken::concentrations(&waiting.iter().map(breaks).collect::<Vec<_>>());
    let (judged, most_timed_out) = time_outs::concentrations(&waiting);
    concentrated.extend(judged);
    let all = Sums::of(pairs.iter());
    let timed_out = waiting.iter().map(|waiting| waiting.pair.errors).sum();
    let (total, errors, pairs) = (all.transfers, all.errors, pairs.to_vec());
    Transfers { total, errors, timed_out, pairs, concentrated, most_timed_out }
}

/// What is said of errors that accuse nobody.
pub(super) fn not_concentrated(errors: u64, transfers: u64, timed_out: u64, most: Option<&TimedOutAt>) -> String {
    let failed = format!("{} of {} failed", count(errors), plural(transfers, "KV transfer"));
    let by_chance = match errors.saturating_sub(timed_out) {
        0 | 1 => String::new(),
        n if n == errors => ", on no link or worker more than chance explains".to_owned(),
        n => format!(", {} of them by breaking off, on no link or worker more than chance explains", count(n)),
    };
    if timed_out == 0 {
        return failed + &by_chance;
    }
    let at = |most: &TimedOutAt| {
        format!("; most at {}: {} of {}", most.worker, count(most.timed_out), count(most.transfers))
    };
    let most = most.map_or_else(String::new, at);
    format!(
        "{failed}{by_chance}; KV waited or moved too long for {}, which alone accuses nobody{most}",
        count(timed_out)
    )
}

impl Concentration {
    /// Errors on a link or worker, among those of `all`.
    fn of(group: &Group, all: Sums, failed_by: FailedBy, only_with: Option<&str>) -> Concentration {
        Concentration {
            on: group.part(),
            prefill_worker: group.prefill.map(str::to_owned),
            decode_worker: group.decode.map(str::to_owned),
            only_with: only_with.map(str::to_owned),
            failed_by,
            errors: group.sums.errors,
            transfers: group.sums.transfers,
            elsewhere: group.sums.beside(all).rate(),
            p_value: None,
        }
    }

    fn has(&self, pair: &TransferRecord) -> bool {
        self.prefill_worker.as_ref().is_none_or(|p| *p == pair.prefill_worker)
            && self.decode_worker.as_ref().is_none_or(|d| *d == pair.decode_worker)
    }

    /// `P0 → D2: 5 errors on 100 transfers (p = 1e-6)`, `D2, whatever P they come from: 396 time-outs on 427 transfers
    /// (4.0 % elsewhere)`.
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
        let transfers = plural(self.transfers, "transfer");
        match self.p_value {
            Some(p_value) => format!("{where_}: {} on {transfers} ({})", plural(self.errors, "error"), chance(p_value)),
            None => {
                let elsewhere = self.elsewhere * 100.0;
                format!("{where_}: {} on {transfers} ({elsewhere:.1} % elsewhere)", plural(self.errors, "time-out"))
            }
        }
    }
}

fn chance(p_value: f64) -> String {
    if p_value < 1e-99 { "p < 1e-99".into() } else { format!("p = {p_value:.0e}") }
}
