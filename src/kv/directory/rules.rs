//! Which instances become streams, at which addresses: a function of the rules and the table.
//!
//! Instances are taken in the order of their names and as a whole: all ranks or none. Invariant of a [`Plan`]: no address
//! is named twice, and there are `max_streams` streams at most.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::config::Discovery;
use super::endpoint::Endpoint;
use super::stream::{Origin, StreamKey, Subscription};
use super::table::Instance;
use crate::base::Role;

/// Why an instance that should be followed is not.
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
        /// The instances that have it, in order.
        instances: Vec<String>,
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
}

/// What is to be followed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub streams: BTreeMap<StreamKey, Subscription>,
    pub excluded: BTreeMap<String, Exclusion>,
}

/// Whether the rules ask for an instance at all.
pub(super) fn is_wanted(rules: &Discovery, instance: &Instance) -> bool {
    let of_backend = instance.record.backend.as_deref().is_none_or(|backend| backend == rules.form.dialect.as_str());
    of_backend && instance.is_schedulable() && instance.role != Role::Decode
}

/// Applies the rules.
pub(super) fn plan<'a>(rules: &Discovery, max_streams: u32, instances: impl Iterator<Item = &'a Instance>) -> Plan {
    let mut plan = Plan::default();
    let mut found: BTreeMap<&str, (&Instance, Vec<Ports>)> = BTreeMap::new();
    for instance in instances.filter(|instance| is_wanted(rules, instance)) {
        match ports(rules, instance) {
            Ok(ports) => drop(found.insert(&instance.record.name, (instance, ports))),
            Err(port) => drop(plan.excluded.insert(instance.record.name.clone(), Exclusion::PortOverflow { port })),
        }
    }
    let collisions = collisions(&found);
    found.retain(|name, _| !collisions.contains_key(*name));
    plan.excluded.extend(collisions);
    for (name, (instance, ports)) in found {
        let (ranks, taken) = (instance.record.dp_size, plan.streams.len() as u32);
        if ranks > max_streams - taken {
            let exclusion = Exclusion::MaxStreams { ranks, taken, most: max_streams };
            plan.excluded.insert(name.to_owned(), exclusion);
            continue;
        }
        let streams = (0..).zip(ports).map(|(rank, ports)| subscription(rules, instance, rank, ports));
        plan.streams.extend(streams.map(|stream| (stream.key.clone(), stream)));
    }
    plan
}

/// Addresses of one rank.
struct Ports {
    events: Endpoint,
    replay: Endpoint,
}

/// Addresses of every rank, or the first port that is none.
fn ports(rules: &Discovery, instance: &Instance) -> Result<Vec<Ports>, u64> {
    let address = &instance.record.address;
    let at = |offset: u16, rank: u32| {
        let by = u64::from(offset) + u64::from(rank);
        address.moved_by(by).ok_or(u64::from(address.port) + by)
    };
    // The last rank first: a registration with an absurd number of ranks costs nothing.
    let last = instance.record.dp_size - 1;
    at(rules.event_port_offset, last)?;
    at(rules.replay_port_offset, last)?;
    (0..=last)
        .map(|rank| {
            let events = at(rules.event_port_offset, rank)?;
            Ok(Ports { events, replay: at(rules.replay_port_offset, rank)? })
        })
        .collect()
}

/// Every instance with an address that is not its alone, and the first such address.
fn collisions(found: &BTreeMap<&str, (&Instance, Vec<Ports>)>) -> BTreeMap<String, Exclusion> {
    let mut owners: BTreeMap<&Endpoint, Vec<&str>> = BTreeMap::new();
    for (name, (_, ports)) in found {
        for endpoint in ports.iter().flat_map(|ports| [&ports.events, &ports.replay]) {
            owners.entry(endpoint).or_default().push(name);
        }
    }
    let mut excluded = BTreeMap::new();
    for (endpoint, names) in owners.into_iter().filter(|(_, names)| names.len() > 1) {
        let distinct: BTreeSet<&str> = names.into_iter().collect();
        let instances: Vec<String> = distinct.into_iter().map(str::to_owned).collect();
        for name in &instances {
            let exclusion = || Exclusion::Collision { endpoint: endpoint.clone(), instances: instances.clone() };
            excluded.entry(name.clone()).or_insert_with(exclusion);
        }
    }
    excluded
}

fn subscription(rules: &Discovery, instance: &Instance, dp_rank: u32, ports: Ports) -> Subscription {
    Subscription {
        key: StreamKey { instance: instance.record.name.clone(), dp_rank },
        origin: Origin::Discovered(instance.record.identity.clone()),
        http: Some(instance.record.address.clone()),
        form: rules.form.clone(),
        events: ports.events,
        replay: Some(ports.replay),
    }
}

/// Cause and remedy.
impl fmt::Display for Exclusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exclusion::PortOverflow { port } => write!(
                f,
                "its port {port} would be above 65535; give it a lower HTTP port, or lower the port offsets of `discovery`"
            ),
            Exclusion::Collision { endpoint, instances } => match instances.as_slice() {
                [_] => write!(
                    f,
                    "two of its own sockets would be {endpoint}; set the port offsets of `discovery` further apart"
                ),
                _ => write!(
                    f,
                    "{endpoint} would be a socket of {}; set their HTTP ports as far apart as they have ranks",
                    instances.join(" and ")
                ),
            },
            Exclusion::MaxStreams { ranks, taken, most } => write!(
                f,
                "its ranks ({ranks}) do not fit beside the {taken} streams before it; raise max_streams ({most}; 128 at most)"
            ),
        }
    }
}
