//! Streams held against the workers of a run before it begins: names that are no worker's or may be several's, two streams of
//! one worker and rank, workers without a stream, hits that no choice will count. Each would make it a run by load alone, in
//! part or as a whole, which looks almost as good.
//!
//! The one place that says so, to a run and to `doctor`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use thiserror::Error;

use super::whose::{doubled, whose_fault, worker_of};
use crate::base::{Role, WorkerId};
use crate::kv::directory::{Endpoint, Exclusion, StreamKey};
use crate::live::Addresses;
use crate::scenario::IndexNeeds;

/// Something that makes choices blind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexFault {
    /// What is so.
    pub what: String,
    /// What follows.
    pub effect: String,
    /// What to do.
    pub remedy: String,
}

/// No stream is of a worker whose cache is read, and one has to be.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}, or set kv_events.require = false to go on by load alone", told_all(.0))]
pub struct Uncovered(pub Vec<IndexFault>);

/// What [`followed_faults`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Covered {
    /// Each with its remedy.
    pub faults: Vec<IndexFault>,
    /// A stream is of a worker whose cache is read.
    pub covers: bool,
}

/// A run on servers whose streams nobody has named.
pub fn no_file_fault(needs: &IndexNeeds) -> IndexFault {
    IndexFault {
        what: "kv_events.config names no file, so the index has no stream".to_owned(),
        effect: by_load(needs),
        remedy: "write the file (docs/kv-events.md#the-file; `pdreplay cluster up` does) and set kv_events.config"
            .to_owned(),
    }
}

/// What is wrong with where streams come from: why nothing was read, and the instances that are not followed, with the cause.
/// One that decodes is left out on purpose, unless `reads` says that the caches of D are read.
pub fn source_faults(
    unready: Option<&str>,
    excluded: &BTreeMap<String, Exclusion>,
    reads: Option<Role>,
) -> Vec<IndexFault> {
    let unread = unready.map(|why| IndexFault {
        what: why.to_owned(),
        effect: "the index has no stream: policies that read it go by load alone".to_owned(),
        remedy: "correct the registry, or start it".to_owned(),
    });
    let is_fault = |why: &Exclusion| *why != Exclusion::Decodes || reads == Some(Role::Decode);
    let excluded = excluded.iter().filter(|(_, why)| is_fault(why)).map(|(instance, why)| IndexFault {
        what: format!("{instance} is not followed: {why}"),
        effect: unseen(instance),
        remedy: match why {
            Exclusion::Decodes => "list its stream under `streams`: `discovery` follows no D",
            Exclusion::Backend { .. } => {
                "correct its backend or the dialect of `discovery`, or follow it under `streams`"
            }
            _ => "correct its registration or the rules",
        }
        .to_owned(),
    });
    unread.into_iter().chain(excluded).collect()
}

/// What hits of somebody without a stream are worth.
pub fn unseen(name: &str) -> String {
    format!("hits of {name} count as 0; requests may go there by load alone")
}

/// Holds the streams, with the HTTP servers of their instances, against the workers of `addresses`. `are_listed`: by hand.
pub fn followed_faults(
    streams: &BTreeMap<StreamKey, Option<Endpoint>>,
    are_listed: bool,
    addresses: &Addresses,
    needs: &IndexNeeds,
) -> Covered {
    let instances: BTreeMap<&str, Option<&Endpoint>> =
        streams.iter().map(|(key, http)| (key.instance.as_str(), http.as_ref())).collect();
    let workers = instances.iter().filter_map(|(name, http)| Some((*name, worker_of(addresses, name, *http)?)));
    let workers: BTreeMap<&str, WorkerId> = workers.collect();
    let mut faults: Vec<IndexFault> =
        instances.iter().filter_map(|(name, http)| whose_fault(addresses, name, *http)).collect();
    let of_workers = streams.keys().filter_map(|key| Some((key, *workers.get(key.instance.as_str())?)));
    faults.extend(doubled(of_workers, are_listed));
    let seen: BTreeSet<WorkerId> = workers.values().copied().collect();
    let read = addresses.workers().map(|(worker, _)| worker).filter(|worker| worker.role == needs.role);
    let (covered, bare): (Vec<WorkerId>, Vec<WorkerId>) = read.partition(|worker| seen.contains(worker));
    if !bare.is_empty() {
        let names = bare.iter().map(WorkerId::to_string).collect::<Vec<_>>().join(", ");
        let remedy = match needs.role {
            Role::Decode => "have them publish (a D does with engine.decode_radix_cache = true) and name their streams",
            Role::Prefill | Role::Colocated => "name their streams in the file of kv_events.config, or in its registry",
        };
        let effect = if covered.is_empty() { by_load(needs) } else { unseen(&names) };
        faults.push(IndexFault { what: format!("no stream is of {names}"), effect, remedy: remedy.to_owned() });
    }
    if are_listed && !covered.is_empty() && !needs.counts_listed {
        faults.push(IndexFault {
            what: format!(
                "the streams of kv_events.config are listed by hand, and policy {} counts no hits of such",
                needs.policy
            ),
            effect: by_load(needs),
            remedy: "set policy.car.static_streams = true, unless the run is to choose by load alone".to_owned(),
        });
    }
    Covered { faults, covers: !covered.is_empty() }
}

fn by_load(needs: &IndexNeeds) -> String {
    format!("policy {} chooses by load alone", needs.policy)
}

fn told_all(faults: &[IndexFault]) -> String {
    faults.iter().map(|fault| format!("{}; {}", fault.what, fault.remedy)).collect::<Vec<_>>().join("; ")
}

impl fmt::Display for IndexFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.what, self.effect, self.remedy)
    }
}
