//! [`Needs`]: what a scenario asks of a cluster beyond answering requests.
//!
//! Read off the scenario's own keys; whether a target has it is found out elsewhere.

use super::conflicts::header_mode;
use super::model::Scenario;
use crate::admission::AdmissionBy;
use crate::base::Role;
use crate::kv::EventsSwitch;
use crate::policies::{HeaderMode, PolicyName};
use crate::replay::Mechanism;

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// Requests take the way over P and D.
    pub two_legs: bool,
    /// Sessions are opened on decode workers.
    pub sessions: bool,
    /// Decode workers are asked for admission.
    pub admission: bool,
    /// The policy reads the workers' loads.
    pub loads: bool,
    /// Role of the workers whose caches the policy reads in the index of KV events; `None`: it reads none.
    pub index: Option<Role>,
    /// A header names the decode worker to the router.
    pub target_header: bool,
    /// A header names the prefill worker to the router.
    pub prefill_header: bool,
    /// A header gives the session's key to the router.
    pub routing_key: bool,
    /// KV pool of a worker that the replayer counts with, tokens.
    pub kv_pool_tokens: u64,
}

/// What a run wants of its index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexNeeds {
    /// Label of the policy that reads it.
    pub policy: &'static str,
    /// Role of the workers whose caches are read.
    pub role: Role,
    /// Hits of streams that are listed by hand count.
    pub counts_listed: bool,
    /// A run without any stream in step is an error (`kv_events.require`).
    pub require: bool,
}

impl IndexNeeds {
    /// Of a scenario; `None` where the policy reads no index, or there is none.
    pub fn of(scenario: &Scenario) -> Option<IndexNeeds> {
        let policy = scenario.policy.name;
        let role = index_role(scenario).filter(|_| scenario.kv_events.enabled != EventsSwitch::Off);
        role.map(|role| IndexNeeds {
            policy: policy.as_str(),
            role,
            counts_listed: policy != PolicyName::Car || scenario.policy.car.static_streams,
            require: scenario.kv_events.require,
        })
    }
}

impl Needs {
    /// Of a scenario.
    pub fn of(scenario: &Scenario) -> Needs {
        let two_legs = scenario.replay.mechanism != Mechanism::Dp;
        let sessions = scenario.replay.mechanism == Mechanism::Kvc;
        let asks = [scenario.admission.append, scenario.admission.seed].contains(&AdmissionBy::Worker);
        let mode = header_mode(scenario.policy.name);
        Needs {
            two_legs,
            sessions,
            admission: sessions && asks,
            loads: scenario.policy.reads_loads(),
            index: index_role(scenario),
            target_header: two_legs && matches!(mode, HeaderMode::TargetWorker | HeaderMode::TargetLegs),
            prefill_header: two_legs && mode == HeaderMode::TargetLegs,
            routing_key: two_legs && mode == HeaderMode::RoutingKey,
            kv_pool_tokens: scenario.engine.kv_pool_tokens,
        }
    }
}

/// Whose caches the policy reads: those of the workers it chooses by cache.
fn index_role(scenario: &Scenario) -> Option<Role> {
    let role = match (scenario.replay.mechanism, scenario.policy.name) {
        (Mechanism::Dp, _) => Role::Colocated,
        (Mechanism::Pd | Mechanism::Kvc, PolicyName::Car) => Role::Prefill,
        (Mechanism::Pd | Mechanism::Kvc, _) => Role::Decode,
    };
    Some(role).filter(|_| scenario.policy.reads_index())
}

#[cfg(test)]
mod tests {
    use super::super::load_text;
    use super::*;

    fn needs(scenario: &str) -> Needs {
        Needs::of(&load_text("s.toml", scenario).unwrap())
    }

    #[test]
    fn what_is_needed_follows_mechanism_and_policy() {
        let kvc = needs("policy.name = \"kv-aware\"");
        assert!(kvc.sessions && kvc.admission && kvc.target_header && kvc.two_legs && !kvc.routing_key && !kvc.loads);
        let plain = needs("policy.name = \"sticky\"\nreplay.mechanism = \"pd\"");
        assert!(plain.routing_key && !plain.sessions && !plain.admission && !plain.target_header);
        let dp = needs("policy.name = \"kv-aware\"\nreplay.mechanism = \"dp\"\ncluster.colocated = 2");
        assert!(!dp.two_legs && !dp.target_header);
        assert!(needs("policy.name = \"kv-aware\"\npolicy.kv_aware.capacity_aware = true").loads);
        let whose = |more: &str| needs(&format!("policy.name = 'car'\n{more}")).index;
        assert_eq!((whose(""), kvc.index), (Some(Role::Prefill), None));
        assert_eq!(whose("replay.mechanism = 'dp'\ncluster.colocated = 2"), Some(Role::Colocated));
        let aware = "policy = { name = 'kv-aware', kv_aware = { overlap = 'index' } }";
        assert_eq!(needs(aware).index, Some(Role::Decode));
        assert!(!needs("admission.append = \"router\"").admission);
    }
}
