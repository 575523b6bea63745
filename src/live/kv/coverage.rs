//! Streams held against the workers of a run before it begins: names that are no worker's, workers without a stream, hits that
//! no choice will count. Each would make it a run by load alone, in part or as a whole, which looks almost as good.
//!
//! The one place that says so, to a run and to `doctor`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use thiserror::Error;

use crate::base::{Role, WorkerId};
use crate::kv::directory::{Endpoint, StreamKey};
use crate::live::Addresses;
use crate::live::probe::worker_at;
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
pub fn source_faults(unready: Option<&str>, excluded: &BTreeMap<String, String>) -> Vec<IndexFault> {
    let unread = unready.map(|why| IndexFault {
        what: why.to_owned(),
        effect: "the index has no stream: policies that read it go by load alone".to_owned(),
        remedy: "correct the registry, or start it".to_owned(),
    });
    let excluded = excluded.iter().map(|(instance, why)| IndexFault {
        what: format!("{instance} is not followed: {why}"),
        effect: unseen(instance),
        remedy: "correct its registration or the rules".to_owned(),
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
    let whose = |(name, http): (&&str, &Option<&Endpoint>)| worker_of(addresses, name, *http);
    let seen: BTreeSet<WorkerId> = instances.iter().filter_map(whose).collect();
    let strange = instances.iter().filter(|instance| whose(*instance).is_none());
    let mut faults: Vec<IndexFault> = strange.map(|(name, http)| nobodys(name, *http, addresses)).collect();
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

fn nobodys(name: &str, http: Option<&Endpoint>, addresses: &Addresses) -> IndexFault {
    let names = addresses.names().join(", ");
    let (at, remedy) = match http {
        Some(http) => (
            format!(" at {}", http.authority()),
            "correct its name or http_address in the registry, or the run's own addresses",
        ),
        None => (String::new(), "correct instance_name in the file of kv_events.config"),
    };
    IndexFault {
        what: format!("stream {name}{at} names no worker; names are {names}, or a worker's HTTP address"),
        effect: "what it tells is of no use".to_owned(),
        remedy: remedy.to_owned(),
    }
}

/// The worker that an instance is: by its name (a worker's name, URL, or host and port) or by its HTTP server.
pub(super) fn worker_of(addresses: &Addresses, instance: &str, http: Option<&Endpoint>) -> Option<WorkerId> {
    let at = |url: &str| worker_at(addresses, url);
    let as_url = if instance.contains("://") { instance.to_owned() } else { format!("http://{instance}") };
    let by_name = addresses.named(instance).or_else(|| addresses.named(&as_url)).or_else(|| at(&as_url));
    by_name.or_else(|| http.and_then(|http| at(&format!("http://{}", http.authority()))))
}

fn told_all(faults: &[IndexFault]) -> String {
    faults.iter().map(|fault| format!("{}; {}", fault.what, fault.remedy)).collect::<Vec<_>>().join("; ")
}

impl fmt::Display for IndexFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.what, self.effect, self.remedy)
    }
}
