//! Which instances become streams, at which addresses: a function of the rules and the table.
//!
//! Instances are taken in the order of their names and as a whole: all ranks or none. Invariant of a [`Plan`]: no address
//! is named twice, and there are `max_streams` streams at most. Addresses are made of streams that are followed alone:
//! until then an instance is two ranges of ports, whatever number of ranks it claims.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::config::Discovery;
use super::endpoint::Endpoint;
use super::record::MOST_SHOWN;
use super::stream::{Origin, StreamKey, Subscription};
use super::table::Instance;
use crate::base::{Role, shortened};
use crate::kv::Dialect;

/// Why an instance is not followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exclusion {
    /// A port of one of its ranks would be above 65535.
    PortOverflow {
        /// The port.
        port: u64,
    },
    /// One of its addresses is another's too, or its own a second time.
    Collision {
        /// The address.
        endpoint: Endpoint,
        /// The instances that have it, in order; 8 at most.
        instances: Vec<String>,
        /// How many more there are.
        others: usize,
    },
    /// Not all of its ranks fit.
    MaxStreams {
        /// Its ranks.
        ranks: u32,
        /// Streams of the instances before it.
        taken: u32,
        /// `max_streams`.
        most: u32,
    },
    /// It decodes: the rules follow no cache of a D.
    Decodes,
    /// It is of another backend than the rules' dialect.
    Backend {
        /// Its backend.
        backend: String,
        /// Of the rules.
        dialect: Dialect,
    },
    /// One of its streams has no thread or no socket.
    Unstarted {
        /// Cause and remedy.
        why: String,
    },
}

/// What is to be followed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub streams: BTreeMap<StreamKey, Subscription>,
    pub excluded: BTreeMap<String, Exclusion>,
}

impl Exclusion {
    /// The rules do not ask for it; all else should be followed, and cannot.
    pub fn is_by_rule(&self) -> bool {
        matches!(self, Exclusion::Decodes | Exclusion::Backend { .. })
    }
}

/// Why the rules do not ask for an instance; `None`: they do.
fn unwanted(rules: &Discovery, instance: &Instance) -> Option<Exclusion> {
    let dialect = rules.form.dialect;
    let another = instance.record.backend.as_ref().filter(|backend| *backend != dialect.as_str());
    match another {
        _ if instance.role == Role::Decode => Some(Exclusion::Decodes),
        another => another.map(|backend| Exclusion::Backend { backend: shortened(backend, MOST_SHOWN), dialect }),
    }
}

/// Applies the rules.
pub(super) fn plan<'a>(rules: &Discovery, max_streams: u32, instances: impl Iterator<Item = &'a Instance>) -> Plan {
    let mut plan = Plan::default();
    let mut found: BTreeMap<&str, &Instance> = BTreeMap::new();
    for instance in instances.filter(|instance| instance.is_schedulable()) {
        let (name, ranks) = (&instance.record.name, instance.record.dp_size);
        let exclusion = match (unwanted(rules, instance), overflow(rules, instance)) {
            (Some(unwanted), _) => unwanted,
            (None, Some(port)) => Exclusion::PortOverflow { port },
            // Wherever it stands, it does not fit.
            (None, None) if ranks > max_streams => Exclusion::MaxStreams { ranks, taken: 0, most: max_streams },
            (None, None) => {
                found.insert(name, instance);
                continue;
            }
        };
        plan.excluded.insert(name.clone(), exclusion);
    }
    let collisions = collisions(rules, &found);
    found.retain(|name, _| !collisions.contains_key(*name));
    plan.excluded.extend(collisions);
    for (name, instance) in found {
        let (ranks, taken) = (instance.record.dp_size, plan.streams.len() as u32);
        if ranks > max_streams - taken {
            let exclusion = Exclusion::MaxStreams { ranks, taken, most: max_streams };
            plan.excluded.insert(name.to_owned(), exclusion);
            continue;
        }
        let streams = (0..ranks).filter_map(|rank| subscription(rules, instance, rank));
        plan.streams.extend(streams.map(|stream| (stream.key.clone(), stream)));
    }
    plan
}

/// The first port of the last rank that is none.
fn overflow(rules: &Discovery, instance: &Instance) -> Option<u64> {
    let last = u64::from(instance.record.dp_size - 1);
    let offsets = [rules.event_port_offset, rules.replay_port_offset].map(|offset| u64::from(offset) + last);
    let address = &instance.record.address;
    offsets.into_iter().find(|by| address.moved_by(*by).is_none()).map(|by| u64::from(address.port) + by)
}

/// Instances named in a collision, at most.
const MOST_NAMED: usize = 8;

/// An instance's ports of one kind begin or end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Edge<'a> {
    host: &'a str,
    port: u64,
    begins: bool,
    name: &'a str,
}

/// Every instance with an address that is not its alone, and the first such address. Walks along the ports of each host
/// from edge to edge.
fn collisions(rules: &Discovery, found: &BTreeMap<&str, &Instance>) -> BTreeMap<String, Exclusion> {
    let mut edges = Vec::with_capacity(found.len() * 4);
    for (&name, instance) in found {
        let address = &instance.record.address;
        for offset in [rules.event_port_offset, rules.replay_port_offset] {
            let first = u64::from(address.port) + u64::from(offset);
            let end = first + u64::from(instance.record.dp_size);
            edges.extend([(first, true), (end, false)].map(|(port, begins)| Edge {
                host: address.place_host(),
                port,
                begins,
                name,
            }));
        }
    }
    edges.sort_unstable();
    let mut excluded = BTreeMap::new();
    // How many ranges of an instance the walk is in; and who of them is not excluded yet.
    let (mut inside, mut fresh): (BTreeMap<&str, usize>, BTreeSet<&str>) = Default::default();
    for place in edges.chunk_by(|a, b| (a.host, a.port) == (b.host, b.port)) {
        for edge in place {
            let ranges = inside.entry(edge.name).or_default();
            if edge.begins {
                *ranges += 1;
                fresh.insert(edge.name);
            } else {
                *ranges -= 1;
            }
            if *ranges == 0 {
                inside.remove(edge.name);
                fresh.remove(edge.name);
            }
        }
        if fresh.is_empty() || inside.values().take(2).sum::<usize>() < 2 {
            continue;
        }
        let instances: Vec<String> = inside.keys().take(MOST_NAMED).map(|&name| name.to_owned()).collect();
        let others = inside.len() - instances.len();
        let first = &found[place[0].name].record.address;
        let endpoint = Endpoint { host: first.host.clone(), port: place[0].port as u16 };
        for name in std::mem::take(&mut fresh) {
            let (endpoint, instances) = (endpoint.clone(), instances.clone());
            let exclusion = Exclusion::Collision { endpoint, instances, others };
            excluded.entry(name.to_owned()).or_insert(exclusion);
        }
    }
    excluded
}

/// The stream of a rank; `None` where a port is none.
fn subscription(rules: &Discovery, instance: &Instance, dp_rank: u32) -> Option<Subscription> {
    let at = |offset: u16| instance.record.address.moved_by(u64::from(offset) + u64::from(dp_rank));
    Some(Subscription {
        key: StreamKey { instance: instance.record.name.clone(), dp_rank },
        origin: Origin::Discovered(instance.record.identity.clone()),
        http: Some(instance.record.address.clone()),
        form: rules.form.clone(),
        events: at(rules.event_port_offset)?,
        replay: Some(at(rules.replay_port_offset)?),
    })
}

/// Cause and remedy.
impl fmt::Display for Exclusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exclusion::PortOverflow { port } => write!(
                f,
                "its port {port} would be above 65535; give it a lower HTTP port, or lower the port offsets of `discovery`"
            ),
            Exclusion::Collision { endpoint, instances, others } => match instances.as_slice() {
                [_] => write!(
                    f,
                    "two of its own sockets would be {endpoint}; set the port offsets of `discovery` further apart"
                ),
                _ => write!(
                    f,
                    "{endpoint} would be a socket of {}{}; set their HTTP ports as far apart as they have ranks",
                    instances.join(" and "),
                    if *others == 0 { String::new() } else { format!(" and {others} more") }
                ),
            },
            Exclusion::MaxStreams { ranks, taken, most } => write!(
                f,
                "its ranks ({ranks}) do not fit beside the {taken} streams before it; raise max_streams ({most}; 128 at most)"
            ),
            Exclusion::Decodes => f.write_str("it decodes"),
            Exclusion::Backend { backend, dialect } => {
                write!(f, "backend {backend}, the dialect is {}", dialect.as_str())
            }
            Exclusion::Unstarted { why } => f.write_str(why),
        }
    }
}
