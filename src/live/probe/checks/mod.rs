//! What a target can do for a scenario: facts in, a table of [`Check`]s out.
//!
//! Pure. Each check says what was found, what will be off because of it, and what to do. Invariant: a replay can run when
//! no check says `fail`; one that cannot be decided says `warn`, never `ok`.

mod router;
mod serving;
mod workers;

use serde::Serialize;

pub use router::{down_first, name_fault};
pub use workers::{KV_EVENTS, address_fault, bootstrap_fault, role_fault};

use super::addresses::Shared;
use super::facts::{Health, RouterFacts, WorkerFacts};
use super::route_map::{Probed, Routes};
use crate::base::WorkerId;
use crate::live::Target;
use crate::scenario::Needs;

/// All that was found out about a target.
#[derive(Debug, Clone)]
pub struct Facts {
    /// Every worker that has an address.
    pub workers: Vec<WorkerFacts>,
    /// The PD router, when there is one.
    pub router: Option<RouterFacts>,
    /// Probes of the target header, when it is used with indices.
    pub routes: Option<Routes>,
    /// Probes of the target header, when it names workers by URL or id: each D, and all again in the other direction.
    pub named: Vec<(WorkerId, Probed)>,
    /// One token over the same way as the run's requests; `None`: not asked, because a probe of the routes was.
    pub serving: Option<Result<(), String>>,
    /// Whether the bootstrap server of each P answers, where the client names them to D.
    pub bootstrap: Vec<(WorkerId, Result<(), String>)>,
    /// Workers that are one server.
    pub shared: Vec<Shared>,
    /// D of ours that the router lists under another base URL than we do.
    pub other_urls: Vec<(String, WorkerId)>,
}

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// Not there, and not needed or made up for.
    Off,
    /// The run will go, but mind this.
    Warn,
    /// The run cannot go as the scenario wants it.
    Fail,
}

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was looked at.
    pub check: &'static str,
    /// How it ended.
    pub result: Verdict,
    /// What was found.
    pub detail: String,
    /// What a run will lack because of it; empty: nothing.
    pub will_be_off: String,
    /// What to do; empty: nothing.
    pub remedy: String,
}

/// What the checks are about.
pub(super) struct Case<'a> {
    pub needs: &'a Needs,
    pub target: &'a Target,
    pub facts: &'a Facts,
}

impl Verdict {
    /// Stable label.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Off => "off",
            Verdict::Warn => "warn",
            Verdict::Fail => "fail",
        }
    }
}

impl Check {
    pub(in crate::live::probe) fn ok(check: &'static str, detail: impl Into<String>) -> Check {
        Check::new(check, Verdict::Ok, detail, "", "")
    }

    /// With all that is to be said in the detail.
    pub(super) fn fail(check: &'static str, detail: impl Into<String>) -> Check {
        Check::new(check, Verdict::Fail, detail, "", "")
    }

    fn new(
        check: &'static str,
        result: Verdict,
        detail: impl Into<String>,
        will_be_off: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Check {
        Check { check, result, detail: detail.into(), will_be_off: will_be_off.into(), remedy: remedy.into() }
    }
}

impl Facts {
    /// Workers that hold tokens of before, and how many.
    pub fn warm_caches(&self) -> impl Iterator<Item = (WorkerId, u64)> {
        let told = self.workers.iter().filter_map(|worker| Some((worker.worker, worker.held_tokens?)));
        told.filter(|(_, held)| *held > 0)
    }

    /// Port of a P's bootstrap server, by its own word.
    pub fn bootstrap_port(&self, worker: WorkerId) -> Option<u16> {
        let found = self.workers.iter().find(|found| found.worker == worker)?;
        found.info.as_ref()?.disaggregation_bootstrap_port
    }
}

impl Case<'_> {
    /// There is a router, and it does not answer: nothing else about it can be told.
    fn router_is_down(&self) -> bool {
        self.facts.router.as_ref().is_some_and(|router| matches!(router.health, Health::Down(_)))
    }
}

/// What a run that can go will suffer from all the same, a sentence each.
pub fn cautions(needs: &Needs, target: &Target, facts: &Facts) -> Vec<String> {
    let case = Case { needs, target, facts };
    let all: [fn(&Case) -> Option<Check>; 8] = [
        workers::reachable,
        workers::addresses,
        workers::roles,
        router::members,
        router::target_header,
        router::prefill_header,
        workers::bootstrap,
        workers::caches,
    ];
    let found = all.into_iter().filter_map(|check| check(&case)).filter(|check| check.result != Verdict::Ok);
    let sentence = |check: Check| {
        let parts = [check.detail, check.will_be_off, check.remedy].into_iter().filter(|part| !part.is_empty());
        format!("{}: {}", check.check, parts.collect::<Vec<_>>().join("; "))
    };
    found.map(sentence).collect()
}

/// Every check that applies, in the order a reader wants them.
pub fn checks(needs: &Needs, target: &Target, facts: &Facts) -> Vec<Check> {
    let case = Case { needs, target, facts };
    let all: [fn(&Case) -> Option<Check>; 23] = [
        workers::reachable,
        workers::addresses,
        workers::authorized,
        workers::engines,
        workers::roles,
        workers::bootstrap,
        workers::models,
        serving::one_token,
        router::reachable,
        router::kind,
        router::members,
        router::target_header,
        router::prefill_header,
        router::served_by,
        router::overload_protection,
        serving::sessions,
        serving::admission,
        serving::loads,
        serving::capacity,
        workers::caches,
        workers::clock,
        workers::kv_events,
        workers::keep_alive,
    ];
    all.into_iter().filter_map(|check| check(&case)).collect()
}

/// Some of many, in words: `D0, D3 and 4 more`.
fn some_of<T: ToString>(all: impl IntoIterator<Item = T>) -> String {
    const SHOWN: usize = 4;
    let all: Vec<String> = all.into_iter().map(|one| one.to_string()).collect();
    match all.len() {
        0..=SHOWN => all.join(", "),
        count => format!("{} and {} more", all[..SHOWN - 1].join(", "), count - (SHOWN - 1)),
    }
}

#[cfg(test)]
mod tests;
