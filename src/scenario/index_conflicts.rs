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
    let remedy = match scenario.replay.mechanism {
        // What a session holds on D is in no prefix cache, so that one would not help.
        Mechanism::Kvc => "set policy.kv_aware.overlap = \"assumed\", or use policy car with mechanism pd",
        Mechanism::Pd | Mechanism::Dp => "use policy car or mechanism dp, or set engine.decode_radix_cache = true",
    };
    let text = format!(
        "policy kv-aware with overlap = \"index\": decode workers keep no prefix cache (engine.decode_radix_cache = false) \
         and publish no events, so every overlap is 0; {remedy}"
    );
    warn(ConflictKind::NoEventsToRead, text)
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

#[cfg(test)]
mod tests {
    use super::super::conflicts::{Severity, conflicts};
    use super::super::load_text;
    use super::*;

    fn found(text: &str) -> Vec<(Severity, ConflictKind)> {
        let scenario = load_text("x.toml", text).unwrap_or_else(|error| panic!("{error}"));
        conflicts(&scenario).into_iter().map(|conflict| (conflict.severity, conflict.kind)).collect()
    }

    #[test]
    fn what_the_index_cannot_show_is_told() {
        let car = "policy.name = 'car'\nreplay.mechanism = 'pd'\n";
        assert_eq!(found(car), []);
        assert_eq!(found(&format!("{car}kv_events.enabled = 'off'")), [(Severity::Warn, ConflictKind::IndexOff)]);
        let aware = "policy = { name = 'kv-aware', kv_aware = { overlap = 'index' } }\nreplay.mechanism = 'pd'\n";
        assert_eq!(found(aware), [(Severity::Warn, ConflictKind::NoEventsToRead)]);
        assert_eq!(found(&format!("{aware}engine.decode_radix_cache = true")), []);
        let sessions = "policy.name = 'car'\nreplay.mechanism = 'kvc'";
        assert_eq!(found(sessions), [(Severity::Warn, ConflictKind::MovesSessions)]);
    }

    #[test]
    fn no_advice_leads_to_another_one_or_back() {
        let of = |policy: &str, mechanism: &str| {
            let text = format!(
                "policy = {policy}\nreplay.mechanism = '{mechanism}'\ncluster = {{ prefill = 2, decode = 2, colocated = 2 }}\n"
            );
            let of_index = [ConflictKind::MovesSessions, ConflictKind::NoEventsToRead];
            let scenario = load_text("x.toml", &text).unwrap_or_else(|error| panic!("{error}"));
            let found = conflicts(&scenario).into_iter().filter(|conflict| of_index.contains(&conflict.kind));
            found.map(|conflict| conflict.text).collect::<Vec<_>>()
        };
        let (car, aware) = ("{ name = 'car' }", "{ name = 'kv-aware', kv_aware = { overlap = 'index' } }");
        let assumed = "{ name = 'kv-aware', kv_aware = { overlap = 'assumed' } }";
        let none: [String; 0] = [];
        let text = of(car, "kvc").concat();
        assert!(text.ends_with("use mechanism pd, or policy kv-aware with its overlap = \"assumed\""), "{text}");
        let text = of(aware, "kvc").concat();
        assert!(text.ends_with("overlap = \"assumed\", or use policy car with mechanism pd"), "{text}");
        let text = of(aware, "pd").concat();
        assert!(text.ends_with("use policy car or mechanism dp, or set engine.decode_radix_cache = true"), "{text}");
        for (policy, mechanism) in [(car, "pd"), (assumed, "kvc"), (car, "dp"), (aware, "dp")] {
            assert_eq!(of(policy, mechanism), none, "{policy} {mechanism}");
        }
    }

    #[test]
    fn a_router_that_cannot_be_told_of_p_is_refused() {
        let live = |kind: &str, legs: &str| {
            format!(
                "policy.name = 'car'\nreplay.mechanism = 'pd'\nlive = {{ target = 'sglang', router_kind = '{kind}', {legs} \
                 prefill = ['http://p:1'], decode = ['http://d:1'] }}"
            )
        };
        let routed = "router = 'http://r:1',";
        for kind in ["smg", "sglang-router"] {
            assert_eq!(found(&live(kind, routed)), [(Severity::Refuse, ConflictKind::PrefillNotPlaced)]);
            assert_eq!(found(&live(kind, "legs = 'direct',")), []);
        }
        assert_eq!(found(&live("pdreplay", routed)), []);
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let refusal = |text: &str| load_text("x.toml", text).unwrap_err().to_string();
        let off = refusal("kv_events = { enabled = 'off', require = true }");
        assert!(off.contains("`kv_events.require` is true, but kv_events.enabled = \"off\""), "{off}");
        let file = refusal("kv_events.config = 'kv_events.json'");
        assert!(file.contains("`kv_events.config` names a file, but target \"embedded\""), "{file}");
        let header = refusal(
            "policy.name = 'car'\nreplay.mechanism = 'pd'\nlive = { target = 'sglang', router = 'http://r:1', prefill = \
             ['http://p:1'], decode = ['http://d:1'], header = { prefill_name = '' } }",
        );
        assert!(header.contains("`live.header.prefill_name` is empty, but policy car"), "{header}");
    }
}
