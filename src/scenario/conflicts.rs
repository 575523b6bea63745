//! Policy × mechanism × router: the pairs that run but cannot do what they look like.
//!
//! Knows what each policy tells the PD router and what the router listens to. Decides nothing else:
//! a refusal can be overruled (`--allow-conflict`), because reproducing a failure is a use of the tool.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::idle_fault::idle_faults;
use super::index_conflicts::index_conflicts;
use super::model::Scenario;
use crate::cluster::RouterPolicy;
use crate::policies::{HeaderMode, OverlapSource, PolicyName};
use crate::replay::{Mechanism, Schedule};

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// The run would be of no use unless that is what is studied: refused without `--allow-conflict`.
    Refuse,
    /// Worth knowing.
    Warn,
}

/// Which conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ConflictKind {
    /// `default` with `kvc`: the replayer's counter and the router's are independent.
    TwoCounters,
    /// The router does not listen to the header the policy sends.
    HeaderIgnored,
    /// The router keeps the session on one D, but not the one the replayer chose.
    OtherHome,
    /// The policy does not know sessions.
    PolicyWithoutSessions,
    /// The policy looks for cached prefixes where none are kept.
    NoCacheToFind,
    /// The policy follows assumed prefixes, and a prefix that all share leads all to one D.
    PilesUp,
    /// A target index meant for D is applied to P too.
    TargetAppliedToPrefill,
    /// A router policy that wants a header gets none.
    NoHeader,
    /// Turns of one session overlap on a D that serves one at a time.
    OverlappingTurns,
    /// Workers the mechanism never uses.
    IdleWorkers,
    /// A fault that this mechanism leaves without effect.
    IdleFault,
    /// The policy chooses D anew for each turn, wherever the session lives.
    MovesSessions,
    /// The policy chooses P, but the router does not hear of it.
    PrefillNotPlaced,
    /// The policy reads the KV index, and there is none.
    IndexOff,
    /// The policy reads the KV index about workers that publish no events.
    NoEventsToRead,
}

/// One conflict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Conflict {
    /// Whether the run is refused.
    pub severity: Severity,
    /// Which.
    pub kind: ConflictKind,
    /// Cause and remedy, one sentence.
    pub text: String,
}

/// What the decode leg will be, with `auto` resolved by the replayer's policy.
fn decode_policy(scenario: &Scenario) -> RouterPolicy {
    match (scenario.cluster.router.decode_policy, scenario.policy.name) {
        (RouterPolicy::Auto, PolicyName::Default) => RouterPolicy::RoundRobin,
        (RouterPolicy::Auto, PolicyName::Sticky) => RouterPolicy::Manual,
        (RouterPolicy::Auto, PolicyName::KvAware | PolicyName::CacheAware | PolicyName::Car) => {
            RouterPolicy::ConsistentHashing
        }
        (
            chosen @ (RouterPolicy::RoundRobin
            | RouterPolicy::Manual
            | RouterPolicy::ConsistentHashing
            | RouterPolicy::CacheAware),
            _,
        ) => chosen,
    }
}

/// What a policy tells the PD router.
pub(super) fn header_mode(policy: PolicyName) -> HeaderMode {
    match policy {
        PolicyName::Default => HeaderMode::None,
        PolicyName::Sticky => HeaderMode::RoutingKey,
        PolicyName::KvAware | PolicyName::CacheAware => HeaderMode::TargetWorker,
        PolicyName::Car => HeaderMode::TargetLegs,
    }
}

/// Replaces `auto` on both legs: the decode leg follows the replayer's policy, the prefill leg takes turns.
pub fn resolve_router(scenario: &mut Scenario) {
    scenario.cluster.router.decode_policy = decode_policy(scenario);
    if scenario.cluster.router.prefill_policy == RouterPolicy::Auto {
        scenario.cluster.router.prefill_policy = RouterPolicy::RoundRobin;
    }
}

/// All conflicts of a scenario, refusals first.
pub fn conflicts(scenario: &Scenario) -> Vec<Conflict> {
    let mut found = match scenario.replay.mechanism {
        Mechanism::Dp => idle_workers(scenario),
        Mechanism::Pd => [decode_leg_pd(scenario), prefill_leg(scenario)].concat(),
        Mechanism::Kvc => [decode_leg_kvc(scenario), prefill_leg(scenario), overlapping(scenario)].concat(),
    };
    found.extend(idle_faults(scenario));
    found.extend(index_conflicts(scenario));
    found.sort_by_key(|conflict| (conflict.severity, conflict.kind));
    found
}

pub(super) fn refuse(kind: ConflictKind, text: String) -> Vec<Conflict> {
    vec![Conflict { severity: Severity::Refuse, kind, text }]
}

pub(super) fn warn(kind: ConflictKind, text: String) -> Vec<Conflict> {
    vec![Conflict { severity: Severity::Warn, kind, text }]
}

/// With sessions, a request that reaches another D than the one holding its session is aborted.
fn decode_leg_kvc(scenario: &Scenario) -> Vec<Conflict> {
    let (policy, router) = (scenario.policy.name, decode_policy(scenario));
    let name = router.as_str();
    match (policy, router) {
        (PolicyName::Default, _) => refuse(
            ConflictKind::TwoCounters,
            format!(
                "policy default with kvc: the replayer opens a session by its own counter while the router ({name}) \
                 chooses D by itself, so turns reach a D that does not hold their session and abort after one token; \
                 use policy kv-aware or sticky"
            ),
        ),
        (PolicyName::CacheAware, _) => refuse(
            ConflictKind::PolicyWithoutSessions,
            "policy cache-aware with kvc: it weighs cached prefixes and load, not where the session lives, so it may \
             leave the D that holds it; use policy kv-aware, or mechanism dp"
                .into(),
        ),
        (PolicyName::Sticky, RouterPolicy::Manual) => warn(
            ConflictKind::OtherHome,
            "policy sticky with router manual: the replayer places a new session by round robin, the router an unknown \
             key on its least loaded D; where the two differ, the session is opened on one D and sent to another; \
             policy kv-aware names the D"
                .into(),
        ),
        (PolicyName::Sticky, RouterPolicy::RoundRobin | RouterPolicy::CacheAware | RouterPolicy::Auto) => refuse(
            ConflictKind::HeaderIgnored,
            format!(
                "policy sticky with kvc and router {name}: {name} ignores x-smg-routing-key, so turns reach a D that does \
                 not hold their session; set cluster.router.decode_policy = \"manual\" (or \"auto\")"
            ),
        ),
        (PolicyName::Sticky, RouterPolicy::ConsistentHashing) => refuse(
            ConflictKind::OtherHome,
            "policy sticky with kvc and router consistent_hashing: the router hashes the routing key to a D of its own, \
             not the D the replayer opened the session on; set cluster.router.decode_policy = \"manual\" (or \"auto\")"
                .into(),
        ),
        (PolicyName::KvAware, RouterPolicy::ConsistentHashing) => Vec::new(),
        (PolicyName::Car, RouterPolicy::ConsistentHashing) => warn(
            ConflictKind::MovesSessions,
            "policy car with kvc: it weighs caches and queues, not where the session lives, so sessions move from D to D \
             and are seeded again; use mechanism pd, or policy kv-aware with its overlap = \"assumed\""
                .into(),
        ),
        (
            PolicyName::KvAware | PolicyName::Car,
            RouterPolicy::RoundRobin | RouterPolicy::Manual | RouterPolicy::CacheAware | RouterPolicy::Auto,
        ) => refuse(
            ConflictKind::HeaderIgnored,
            format!(
                "policy {} with kvc and router {name}: {name} ignores x-smg-target-worker, so turns reach a D that does \
                 not hold their session; set cluster.router.decode_policy = \"consistent_hashing\" (or \"auto\")",
                policy.as_str()
            ),
        ),
    }
}

/// Without sessions nothing breaks, but the run may not show the policy it names.
fn decode_leg_pd(scenario: &Scenario) -> Vec<Conflict> {
    let (policy, router) = (scenario.policy.name, decode_policy(scenario));
    let name = router.as_str();
    let ignored = |header: &str, wanted: &str| {
        warn(
            ConflictKind::HeaderIgnored,
            format!(
                "policy {} with router {name}: the router does not follow {header}, so the run shows the router's \
                 choice, not the policy's; set cluster.router.decode_policy = \"{wanted}\"",
                policy.as_str()
            ),
        )
    };
    let mut found = match (header_mode(policy), router) {
        (HeaderMode::None, RouterPolicy::RoundRobin | RouterPolicy::CacheAware | RouterPolicy::Auto)
        | (HeaderMode::RoutingKey, RouterPolicy::Manual)
        | (HeaderMode::TargetWorker | HeaderMode::TargetLegs, RouterPolicy::ConsistentHashing) => Vec::new(),
        (HeaderMode::None, RouterPolicy::Manual | RouterPolicy::ConsistentHashing) => warn(
            ConflictKind::NoHeader,
            format!(
                "policy default sends no header, but router {name} chooses by one and falls back to its own rule; set \
                 cluster.router.decode_policy = \"round_robin\" (or \"auto\")"
            ),
        ),
        (
            HeaderMode::RoutingKey,
            RouterPolicy::RoundRobin | RouterPolicy::ConsistentHashing | RouterPolicy::CacheAware | RouterPolicy::Auto,
        ) => ignored("the replayer's placement of x-smg-routing-key", "manual"),
        (
            HeaderMode::TargetWorker | HeaderMode::TargetLegs,
            RouterPolicy::RoundRobin | RouterPolicy::Manual | RouterPolicy::CacheAware | RouterPolicy::Auto,
        ) => ignored("x-smg-target-worker", "consistent_hashing"),
    };
    let assumes = policy == PolicyName::KvAware && scenario.policy.kv_aware.overlap == OverlapSource::Assumed;
    if assumes && !scenario.policy.kv_aware.capacity_aware {
        found.extend(warn(
            ConflictKind::PilesUp,
            "policy kv-aware with pd: it weighs the blocks it believes on a D above load, so sessions that begin with the \
             same prompt all go to one D; use policy default or sticky, or set policy.kv_aware.capacity_aware"
                .into(),
        ));
    }
    let by_cache = [
        (policy == PolicyName::CacheAware, "policy cache-aware"),
        (router == RouterPolicy::CacheAware, "router cache_aware for D"),
    ];
    for (_, who) in by_cache.iter().filter(|(used, _)| *used && !scenario.engine.decode_radix_cache) {
        found.extend(warn(
            ConflictKind::NoCacheToFind,
            format!(
                "{who} with pd: decode workers keep no prefix cache (engine.decode_radix_cache = false), so \
             it weighs a cache that is not there; use mechanism dp, or turn the cache on"
            ),
        ));
    }
    found
}

fn prefill_leg(scenario: &Scenario) -> Vec<Conflict> {
    let (prefill, decode) = (scenario.cluster.prefill, scenario.cluster.decode);
    let hashing = scenario.cluster.router.prefill_policy == RouterPolicy::ConsistentHashing;
    if !hashing || header_mode(scenario.policy.name) != HeaderMode::TargetWorker {
        return Vec::new();
    }
    let remedy = "keep P on cluster.router.prefill_policy = \"round_robin\"";
    let kind = ConflictKind::TargetAppliedToPrefill;
    if decode > prefill {
        let text = format!(
            "consistent_hashing on both legs: the D index in x-smg-target-worker is applied to P too, and index \
             {prefill} and above with {prefill} P fails with 503; {remedy}"
        );
        refuse(kind, text)
    } else {
        let text = format!(
            "consistent_hashing on both legs: the D index in x-smg-target-worker chooses P too, whatever its load; {remedy}"
        );
        warn(kind, text)
    }
}

fn overlapping(scenario: &Scenario) -> Vec<Conflict> {
    if scenario.replay.schedule != Schedule::OpenStrict {
        return Vec::new();
    }
    let text = "schedule open-strict with kvc: turns of a session may overlap, but a D serves one request of a session at \
                a time; use schedule open or think";
    warn(ConflictKind::OverlappingTurns, text.into())
}

fn idle_workers(scenario: &Scenario) -> Vec<Conflict> {
    let (p, d) = (scenario.cluster.prefill, scenario.cluster.decode);
    if p == 0 && d == 0 {
        return Vec::new();
    }
    let text = format!(
        "mechanism dp uses colocated workers only: {p} P and {d} D stay idle; set cluster.prefill and \
         cluster.decode to 0"
    );
    warn(ConflictKind::IdleWorkers, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICIES: [PolicyName; 5] = PolicyName::ALL;
    const ROUTERS: [RouterPolicy; 5] = [
        RouterPolicy::Auto,
        RouterPolicy::RoundRobin,
        RouterPolicy::Manual,
        RouterPolicy::ConsistentHashing,
        RouterPolicy::CacheAware,
    ];

    fn scenario(mechanism: Mechanism, policy: PolicyName, router: RouterPolicy) -> Scenario {
        let mut scenario = Scenario::default();
        scenario.replay.mechanism = mechanism;
        scenario.policy.name = policy;
        scenario.cluster.router.decode_policy = router;
        scenario
    }

    /// `R` refused, `w` warned, `.` fine; a row per policy, a column per router policy.
    fn table(mechanism: Mechanism) -> Vec<String> {
        let found = |policy, router| {
            let found = conflicts(&scenario(mechanism, policy, router));
            found.iter().for_each(|conflict| assert!(!conflict.text.contains("  "), "stray blanks: {}", conflict.text));
            found
        };
        let letter = |policy, router| match found(policy, router).first() {
            Some(Conflict { severity: Severity::Refuse, .. }) => 'R',
            Some(Conflict { severity: Severity::Warn, .. }) => 'w',
            None => '.',
        };
        POLICIES.iter().map(|policy| ROUTERS.iter().map(|router| letter(*policy, *router)).collect()).collect()
    }

    #[test]
    fn the_table_of_pairs() {
        //                          auto, round_robin, manual, consistent_hashing, cache_aware
        //                          default  sticky  kv-aware  cache-aware  car
        assert_eq!(table(Mechanism::Kvc), ["RRRRR", "wRwRR", ".RR.R", "RRRRR", "wRRwR"]);
        assert_eq!(table(Mechanism::Pd), ["..www", ".w.ww", "wwwww", "wwwww", ".ww.w"]);
        // The PD router has no part in dp; the default's P and D stay idle.
        assert_eq!(table(Mechanism::Dp), ["wwwww"; 5]);
        let mut dp = scenario(Mechanism::Dp, PolicyName::CacheAware, RouterPolicy::Auto);
        (dp.cluster.prefill, dp.cluster.decode) = (0, 0);
        assert_eq!(conflicts(&dp), []);
    }

    #[test]
    fn auto_follows_the_policy() {
        let resolved = POLICIES.map(|policy| {
            let mut scenario = scenario(Mechanism::Kvc, policy, RouterPolicy::Auto);
            scenario.cluster.router.prefill_policy = RouterPolicy::Auto;
            resolve_router(&mut scenario);
            let before = scenario.clone();
            resolve_router(&mut scenario);
            assert_eq!(scenario, before, "resolving twice changes nothing");
            (scenario.cluster.router.prefill_policy, scenario.cluster.router.decode_policy)
        });
        assert_eq!(
            resolved,
            [
                RouterPolicy::RoundRobin,
                RouterPolicy::Manual,
                RouterPolicy::ConsistentHashing,
                RouterPolicy::ConsistentHashing,
                RouterPolicy::ConsistentHashing
            ]
            .map(|decode| (RouterPolicy::RoundRobin, decode))
        );
    }

    #[test]
    fn a_target_for_d_must_not_choose_p() {
        let mut scenario = scenario(Mechanism::Kvc, PolicyName::KvAware, RouterPolicy::Auto);
        scenario.cluster.router.prefill_policy = RouterPolicy::ConsistentHashing;
        let found = conflicts(&scenario);
        assert_eq!((found[0].severity, found[0].kind), (Severity::Refuse, ConflictKind::TargetAppliedToPrefill));
        assert!(found[0].text.contains("index 2 and above with 2 P"), "{}", found[0].text);
        scenario.cluster.prefill = 6;
        assert_eq!(conflicts(&scenario)[0].severity, Severity::Warn);
        scenario.policy.name = PolicyName::Sticky;
        assert!(conflicts(&scenario).iter().all(|found| found.kind != ConflictKind::TargetAppliedToPrefill));
    }

    #[test]
    fn a_cache_on_d_makes_cache_aware_worth_while() {
        let mut scenario = scenario(Mechanism::Pd, PolicyName::CacheAware, RouterPolicy::Auto);
        assert_eq!(conflicts(&scenario)[0].kind, ConflictKind::NoCacheToFind);
        scenario.engine.decode_radix_cache = true;
        assert_eq!(conflicts(&scenario), []);
    }

    #[test]
    fn a_shared_prompt_leads_all_to_one_d() {
        let mut scenario = scenario(Mechanism::Pd, PolicyName::KvAware, RouterPolicy::Auto);
        assert_eq!(conflicts(&scenario)[0].kind, ConflictKind::PilesUp);
        scenario.policy.kv_aware.capacity_aware = true;
        assert_eq!(conflicts(&scenario), []);
    }

    #[test]
    fn overlapping_turns_are_told() {
        let mut scenario = scenario(Mechanism::Kvc, PolicyName::KvAware, RouterPolicy::Auto);
        scenario.replay.schedule = Schedule::OpenStrict;
        assert_eq!(conflicts(&scenario)[0].kind, ConflictKind::OverlappingTurns);
    }
}
