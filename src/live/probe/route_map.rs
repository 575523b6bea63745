//! [`RouteMap`]: which value of the target header reaches which decode worker.
//!
//! `smg` counts the workers that are eligible at the moment, in the order they happened to register, so an index means
//! nothing until it was tried. Pure: probes in, map out; who sends them is [`super::look()`]'s. Invariant: an index stands
//! for a D only when an answer to it named that D.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use super::facts::succeeds;
use super::reply::Looked;
use crate::base::{Role, WorkerId};
use crate::live::api::WORKER_HEADER;
use crate::live::{Addresses, ServedBy, Target};
use crate::scenario::ServedByConfig;

/// Value of the target header for each D.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RouteMap {
    /// `index[d]` reaches D `d`; `None`: no index is known to.
    pub index: Vec<Option<u16>>,
}

/// An index that no list of a router has: who serves a request with it does not read the header.
pub const NO_SUCH_INDEX: u16 = u16::MAX;

/// Probes of the target header.
#[derive(Debug, Clone, Default)]
pub struct Routes {
    /// With an index that no list has.
    pub beyond: Option<Probed>,
    /// Each index once, in order.
    pub first: Vec<(u16, Probed)>,
    /// Each index of the map twice in a row, in the other direction: no counter of a router's keeps step with that.
    pub again: Vec<(u16, Probed)>,
}

/// Why requests cannot be sent by these routes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteFault {
    /// What the probes found.
    pub why: String,
    /// What to do.
    pub remedy: &'static str,
    /// The D that nothing reaches.
    pub missing: Vec<WorkerId>,
}

/// What a request with an index found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probed {
    /// It was served, by the worker of this URL or name.
    Served(String),
    /// It was served, but nothing says by whom.
    Nameless,
    /// The router has no worker at this index.
    NoWorker,
    /// It was answered, but failed otherwise.
    Failed(String),
    /// There was no answer.
    Unanswered(String),
}

impl RouteMap {
    /// From the answers to probes. The first index that reaches a D is its own.
    pub fn from_probes(addresses: &Addresses, probes: &[(u16, Probed)]) -> RouteMap {
        let mut index = vec![None; addresses.decode.len()];
        for (value, probed) in probes {
            if let Some(decode) = decode_of(addresses, probed) {
                let known = &mut index[usize::from(decode)];
                *known = known.or(Some(*value));
            }
        }
        RouteMap { index }
    }

    /// Value for D `decode`.
    pub fn of(&self, decode: u16) -> Option<u16> {
        self.index.get(usize::from(decode)).copied().flatten()
    }

    /// Every D has one.
    pub fn is_complete(&self) -> bool {
        self.missing().next().is_none()
    }

    /// D without one.
    pub fn missing(&self) -> impl Iterator<Item = WorkerId> + '_ {
        let unknown = self.index.iter().enumerate().filter(|(_, value)| value.is_none());
        unknown.map(|(decode, _)| WorkerId::new(Role::Decode, decode as u16))
    }
}

impl Routes {
    /// The map that the first probes found.
    pub fn map(&self, target: &Target) -> RouteMap {
        RouteMap::from_probes(&target.addresses, &self.first)
    }

    /// Every index of the map was tried again.
    pub fn is_confirmed(&self, target: &Target) -> bool {
        let map = self.map(target);
        let again = |value: u16| self.again.iter().filter(|(tried, _)| *tried == value).count();
        map.index.iter().flatten().all(|value| again(*value) >= 2)
    }

    /// The map to send a run by.
    ///
    /// # Errors
    /// When the router goes elsewhere than the header says, or a D would never be reached.
    pub fn verdict(&self, target: &Target) -> Result<RouteMap, RouteFault> {
        const IGNORED: &str = "start it with --decode-policy consistent_hashing, as no other policy reads the header, or \
                               set live.legs = \"direct\"";
        if let Some(why) = self.ignored(target) {
            return Err(RouteFault { why, remedy: IGNORED, missing: Vec::new() });
        }
        let map = self.map(target);
        if map.is_complete() {
            return Ok(map);
        }
        if self.first.iter().any(|(_, probed)| *probed == Probed::Nameless) {
            let why = "answers do not say which worker served them, so indices cannot be tried".into();
            let remedy = "set live.served_by to a header that names the worker, or live.legs = \"direct\"";
            return Err(RouteFault { why, remedy, missing: Vec::new() });
        }
        let failed = self.first.iter().find_map(|(index, probed)| match probed {
            Probed::Failed(why) | Probed::Unanswered(why) => Some(format!("; index {index}: {why}")),
            Probed::Served(_) | Probed::Nameless | Probed::NoWorker => None,
        });
        let missing: Vec<WorkerId> = map.missing().collect();
        let names: Vec<String> = missing.iter().map(WorkerId::to_string).collect();
        let why = format!("no index reaches {}{}", names.join(", "), failed.unwrap_or_default());
        let remedy = "see that the router lists these workers as healthy and does not shed them (overload protection)";
        Err(RouteFault { why, remedy, missing })
    }

    /// How it shows that the router does not read the header, where it does.
    pub fn ignored(&self, target: &Target) -> Option<String> {
        let named = |name: &str| target.addresses.named(name).map_or_else(|| name.to_owned(), |id| id.to_string());
        let header = &target.header.target_name;
        let beyond = |by: &str| format!("{header}: {NO_SUCH_INDEX} is an index no list has, yet {by} served it");
        match &self.beyond {
            Some(Probed::Served(name)) => return Some(beyond(&named(name))),
            Some(Probed::Nameless) => return Some(beyond("a worker")),
            Some(Probed::NoWorker | Probed::Failed(_) | Probed::Unanswered(_)) | None => {}
        }
        let mut reached: BTreeMap<u16, &str> = BTreeMap::new();
        self.first.iter().chain(&self.again).find_map(|(index, probed)| {
            let Probed::Served(name) = probed else { return None };
            let before = *reached.entry(*index).or_insert(name);
            (before != name).then(|| format!("{header}: {index} reached {}, then {}", named(before), named(name)))
        })
    }
}

impl fmt::Display for RouteMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (decode, value) in self.index.iter().enumerate() {
            let gap = if decode == 0 { "" } else { " " };
            match value {
                Some(value) => write!(f, "{gap}D{decode}={value}")?,
                None => write!(f, "{gap}D{decode}=-")?,
            }
        }
        Ok(())
    }
}

impl Probed {
    /// What an answer says about the index it was asked with.
    pub fn of(looked: &Looked, served_by: &ServedByConfig) -> Probed {
        let reply = match looked {
            Ok(reply) => reply,
            Err(why) => return Probed::Unanswered(why.clone()),
        };
        if reply.status == 200 {
            let served = || served_by_of(reply, served_by).map_or(Probed::Nameless, Probed::Served);
            return succeeds(looked).map_or_else(Probed::Failed, |()| served());
        }
        // Both routers of SGLang: 1.13.0 says the first at once, 0.3.2 the second.
        let code = reply.json().and_then(|body| body.pointer("/error/code").and_then(Value::as_str).map(str::to_owned));
        match code.as_deref() {
            Some("no_available_workers" | "server_selection_failed") => Probed::NoWorker,
            Some(_) | None => Probed::Failed(reply.refusal()),
        }
    }
}

/// Name or URL of the worker that served an answer.
fn served_by_of(reply: &super::reply::Reply, served_by: &ServedByConfig) -> Option<String> {
    let body = reply.json();
    let text_at = |pointer: &str| body.as_ref()?.pointer(pointer)?.as_str();
    let said = ServedBy {
        header: if served_by.header.is_empty() { None } else { reply.header(&served_by.header) },
        pointed: if served_by.pointer.is_empty() { None } else { text_at(&served_by.pointer) },
        own_header: reply.header(WORKER_HEADER),
        emulated: text_at("/meta_info/emulated/worker"),
    };
    said.words().next().map(str::to_owned)
}

fn decode_of(addresses: &Addresses, probed: &Probed) -> Option<u16> {
    match probed {
        Probed::Served(name) => addresses.named(name).filter(|id| id.role == Role::Decode).map(|id| id.index),
        Probed::Nameless | Probed::NoWorker | Probed::Failed(_) | Probed::Unanswered(_) => None,
    }
}

/// Whether another index is worth a probe after these, in order from 0: until every D is found or the list has ended.
/// A list may hold D that are not ours; it is not followed for ever.
pub fn next_probe(target: &Target, probes: &[(u16, Probed)]) -> Option<u16> {
    let decode = target.addresses.decode.len();
    let ended = probes.iter().any(|(_, probed)| *probed == Probed::NoWorker);
    let most = decode * 2 + 16;
    let goes_on = !ended && probes.len() < most && !RouteMap::from_probes(&target.addresses, probes).is_complete();
    goes_on.then_some(probes.len() as u16)
}

#[cfg(test)]
mod tests {
    use super::super::reply::Reply;
    use super::*;
    use crate::live::Endpoint;

    fn addresses(decode: usize) -> Addresses {
        let endpoint = |d| Endpoint { url: format!("http://h:{}", 9200 + d), bootstrap_port: None };
        Addresses { decode: (0..decode).map(endpoint).collect(), ..Addresses::default() }
    }

    fn served(port: u16) -> Probed {
        Probed::Served(format!("http://h:{port}/"))
    }

    #[test]
    fn an_index_stands_for_the_d_that_answered() {
        let probes = [(0, served(9201)), (1, served(9209)), (2, served(9200)), (3, Probed::NoWorker)];
        let map = RouteMap::from_probes(&addresses(3), &probes);
        assert_eq!(map.index, [Some(2), Some(0), None]);
        assert_eq!(map.to_string(), "D0=2 D1=0 D2=-");
        assert_eq!(map.missing().collect::<Vec<_>>(), [WorkerId::new(Role::Decode, 2)]);
        assert!(!map.is_complete() && RouteMap { index: vec![Some(0), Some(1)] }.is_complete());
        assert_eq!((map.of(0), map.of(2), map.of(7)), (Some(2), None, None));
    }

    #[test]
    fn an_answer_names_its_worker_by_header_pointer_or_our_own_header() {
        let config = ServedByConfig { pointer: "/meta_info/by".into(), ..ServedByConfig::default() };
        let reply = |headers: &[(&str, &str)], body: &str| Probed::of(&Ok(Reply::new(200, headers, body)), &config);
        let name = |name: &str| Probed::Served(name.into());
        let told = |more: &str| format!("{{\"meta_info\":{{\"completion_tokens\":1{more}}}}}");
        assert_eq!(reply(&[("x-smg-routed-worker-id", "http://h:9200")], &told("")), name("http://h:9200"));
        assert_eq!(reply(&[], &told(",\"by\":\"D1\"")), name("D1"));
        assert_eq!(reply(&[("x-pdreplay-worker", "D2")], &told("")), name("D2"));
        assert_eq!(reply(&[], &told(",\"emulated\":{\"worker\":\"D3\"}")), name("D3"));
        assert_eq!(reply(&[], &told("")), Probed::Nameless);
    }

    #[test]
    fn a_200_that_brought_no_token_served_nobody() {
        let abort = "{\"meta_info\":{\"finish_reason\":{\"type\":\"abort\",\"message\":\"no room\"}}}";
        for body in [abort, "{\"error\":{\"message\":\"no such model\"}}", "{}", "<html>login</html>"] {
            let looked = Ok(Reply::new(200, &[("x-smg-routed-worker-id", "http://h:9200")], body));
            let probed = Probed::of(&looked, &ServedByConfig::default());
            assert!(matches!(probed, Probed::Failed(_)), "{body}: {probed:?}");
            let map = RouteMap::from_probes(&addresses(1), &[(0, probed)]);
            assert_eq!(map.index, [None], "{body}");
        }
    }

    #[test]
    fn the_end_of_the_list_is_told_from_a_failure() {
        let probed = |status, body: &str| Probed::of(&Ok(Reply::new(status, &[], body)), &ServedByConfig::default());
        assert_eq!(probed(503, "{\"error\":{\"code\":\"no_available_workers\"}}"), Probed::NoWorker);
        assert_eq!(probed(503, "{\"error\":{\"code\":\"server_selection_failed\"}}"), Probed::NoWorker);
        let busy = probed(503, "{\"error\":{\"code\":\"worker_overload_protection_shed\",\"message\":\"full\"}}");
        assert_eq!(busy, Probed::Failed("503: full".into()));
        assert_eq!(
            Probed::of(&Err("refused".into()), &ServedByConfig::default()),
            Probed::Unanswered("refused".into())
        );
    }
}
