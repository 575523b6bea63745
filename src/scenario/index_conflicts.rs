//! Conflicts of policies that read the KV index, or choose P too: what cannot show them what they look for, and who
//! cannot obey them.

use super::conflicts::{Conflict, ConflictKind, refuse, warn};
use super::live::{Legs, RouterKind};
use super::model::Scenario;
use crate::kv::EventsSwitch;
use crate::policies::{OverlapSource, PolicyName};
use crate::replay::Mechanism;

/// All of them.
pub(super) fn index_conflicts(scenario: &Scenario) -> Vec<Conflict> {
    [index_off(scenario), no_events(scenario), unplaced(scenario)].concat()
}

/// The run goes on without hits, and says so at its start.
fn index_off(scenario: &Scenario) -> Vec<Conflict> {
    let is_off = scenario.kv_events.enabled == EventsSwitch::Off;
    if !is_off || !scenario.policy.reads_index() {
        return Vec::new();
    }
    let text = format!(
        "policy {} with kv_events.enabled = \"off\": there is no index, so its hits are 0 and it chooses by load alone; set \
         kv_events.enabled = \"auto\"",
        scenario.policy.name.as_str()
    );
    warn(ConflictKind::IndexOff, text)
}

/// `kv-aware` chooses D, but D keeps no prefix cache whose events could fill the index.
fn no_events(scenario: &Scenario) -> Vec<Conflict> {
    let by_index = scenario.policy.name == PolicyName::KvAware
        && scenario.policy.kv_aware.overlap == OverlapSource::Index
        && scenario.replay.mechanism != Mechanism::Dp;
    if !by_index || scenario.engine.decode_radix_cache {
        return Vec::new();
    }
    let text = "policy kv-aware with overlap = \"index\": decode workers keep no prefix cache (engine.decode_radix_cache = \
                false) and publish no events, so every overlap is 0; use mechanism dp, policy car, or turn the cache on";
    warn(ConflictKind::NoEventsToRead, text.into())
}

/// Only our own router and the client's own legs know the header that names P.
fn unplaced(scenario: &Scenario) -> Vec<Conflict> {
    let live = &scenario.live;
    let routed = scenario.policy.name == PolicyName::Car
        && scenario.replay.mechanism != Mechanism::Dp
        && !live.is_embedded()
        && live.legs == Legs::Router;
    match live.router_kind {
        RouterKind::Smg | RouterKind::SglangRouter if routed => {
            let text = format!(
                "policy car with live.router_kind = \"{}\": that router places P by itself, so the run shows half of the \
                 policy; set live.legs = \"direct\", or use `pdreplay router`",
                live.router_kind.as_str()
            );
            refuse(ConflictKind::PrefillNotPlaced, text)
        }
        RouterKind::Auto | RouterKind::Pdreplay | RouterKind::Smg | RouterKind::SglangRouter => Vec::new(),
    }
}
