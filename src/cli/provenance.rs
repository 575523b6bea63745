//! What a run depends on, in words and numbers: its id, and the [`RunInfo`] its summary needs.
//!
//! Invariant: nothing here depends on the host, the wall clock or the name of the folder, so equal runs say the same.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::admission::AdmissionBy;
use crate::base::{Role, WorkerId};
use crate::replay::Mechanism;
use crate::results::{Batch, Budgets, GapFacts, RunInfo, RunState, Slos, SlotFacts};
use crate::scenario::{IntegrityConfig, Preflight, Scenario};
use crate::trace::Trace;

/// Version of the program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Hex digits of the digest in a run id.
const ID_DIGITS: usize = 12;

/// Id of a run: the scenario's name and a digest of everything the records depend on. Equal runs have equal ids.
pub fn run_id(scenario: &Scenario, trace: &Trace) -> String {
    let meta = &trace.meta;
    let depends_on = (VERSION, scenario, &meta.sha256, &meta.format, &meta.timestamp_unit, meta.block_size);
    let text = serde_json::to_vec(&depends_on).unwrap_or_default();
    let digest: String = Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}", scenario.name, &digest[..ID_DIGITS])
}

/// What a summary must know of a run. The state is that of a run not yet ended by itself.
pub fn run_info(scenario: &Scenario, trace: &Trace, preflight: &Preflight) -> RunInfo {
    // What holds but for a conflict that would refuse the run is no prediction of the run.
    let (replay, direct) = (&scenario.replay, preflight.direct.as_ref().filter(|_| !preflight.refuses()));
    RunInfo {
        name: scenario.name.clone(),
        trace: trace.meta.name.clone(),
        requests: trace.turns.len() as u64,
        sessions: trace.sessions.len() as u64,
        topology: topology(scenario),
        mechanism: replay.mechanism.as_str().into(),
        policy: scenario.policy.name.as_str().into(),
        router_policy: match replay.mechanism {
            Mechanism::Dp => String::new(),
            Mechanism::Pd | Mechanism::Kvc => label(&scenario.cluster.router.decode_policy),
        },
        limits: limits(scenario),
        time_scale: replay.think_scale.is_finite().then_some(replay.think_scale),
        time_scale_text: preflight.time_scale.clone(),
        planned_s: Some(preflight.planned_s).filter(|planned| *planned > 0.0),
        seed: scenario.seed,
        driver: "virtual time".into(),
        speed: 1.0,
        state: RunState::Unfinished,
        rebuilt: false,
        budgets: Budgets {
            max_bad_share: scenario.integrity.max_bad_share,
            max_schedule_lag_p99_ms: scenario.integrity.max_schedule_lag_p99_ms,
            max_harness_pause_ms: Some(scenario.integrity.max_harness_pause_ms),
        },
        slos: slos(scenario),
        workers: workers(scenario),
        slots: slots(scenario),
        gaps: preflight.gaps.as_ref().map(|gaps| GapFacts {
            short_share_at_1x: gaps.under_service_share,
            short_share_at_scale: gaps.under_service_share_scaled,
        }),
        predicted_direct_share: direct.and_then(|direct| of_later_turns(direct.predicted, trace)),
        predicted_direct_share_at_least: direct.and_then(|direct| of_later_turns(direct.at_least, trace)),
        caches: None,
    }
}

/// The objectives of a scenario.
pub fn slos(scenario: &Scenario) -> Slos {
    let set = |ms: f64| Some(ms).filter(|ms| *ms > 0.0);
    let slo = scenario.slo;
    Slos { ttft_ms: set(slo.ttft_ms), tpot_ms: set(slo.tpot_ms), e2e_ms: set(slo.e2e_ms) }
}

/// A share of all turns as one of those after each session's first, which is how the observed share is counted.
fn of_later_turns(of_all: f64, trace: &Trace) -> Option<f64> {
    let (all, sessions) = (trace.turns.len(), trace.sessions.len());
    (all > sessions).then(|| (of_all * all as f64 / (all - sessions) as f64).min(1.0))
}

fn topology(scenario: &Scenario) -> String {
    let cluster = &scenario.cluster;
    match scenario.replay.mechanism {
        Mechanism::Dp => format!("{}W", cluster.colocated),
        Mechanism::Pd | Mechanism::Kvc => format!("{}P{}D", cluster.prefill, cluster.decode),
    }
}

fn limits(scenario: &Scenario) -> String {
    let replay = &scenario.replay;
    let limits = [
        ("cap", if has_soft_cap(scenario) { scenario.admission.cap_max } else { 0 }),
        ("concurrency", replay.concurrency),
        ("max-sessions", replay.max_sessions),
    ];
    let set = limits.into_iter().filter(|(_, limit)| *limit > 0);
    set.map(|(name, limit)| format!("{name} {limit}")).collect::<Vec<_>>().join(", ")
}

fn workers(scenario: &Scenario) -> Vec<String> {
    let cluster = &scenario.cluster;
    let roles =
        [(Role::Prefill, cluster.prefill), (Role::Decode, cluster.decode), (Role::Colocated, cluster.colocated)];
    let of_role = |(role, count): (Role, u16)| (0..count).map(move |index| WorkerId::new(role, index).to_string());
    roles.into_iter().flat_map(of_role).collect()
}

fn slots(scenario: &Scenario) -> Option<SlotFacts> {
    let (admission, pool) = (&scenario.admission, scenario.engine.kv_pool_tokens);
    let usable = (pool as f64 * admission.usable_share) as u64;
    (scenario.replay.mechanism == Mechanism::Kvc).then(|| SlotFacts {
        decode_workers: u32::from(scenario.cluster.decode),
        cap_max: has_soft_cap(scenario).then_some(admission.cap_max),
        usable_tokens: (has_soft_cap(scenario) && admission.capacity_known).then_some(usable),
        footprint: label(&admission.footprint),
        slot_release: label(&admission.slot_release),
        kv_pool_tokens: pool,
    })
}

/// Whether the replayer's own soft cap decides who may live on a D.
fn has_soft_cap(scenario: &Scenario) -> bool {
    scenario.replay.mechanism == Mechanism::Kvc && scenario.admission.seed == AdmissionBy::Router
}

/// The word a value of a closed set is written as in a scenario file.
fn label(value: &impl Serialize) -> String {
    let written = serde_json::to_value(value).unwrap_or_default();
    written.as_str().unwrap_or_default().to_owned()
}

/// What a file of records alone says about its run: it is taken as all there was.
#[derive(Debug, Default)]
pub struct BareInfo {
    records: u64,
    /// Numbers of their ids in the file.
    sessions: BTreeSet<u32>,
    /// Run id, mechanism and policy of the first record.
    first: Option<[String; 3]>,
}

impl BareInfo {
    /// The columns it looks at.
    pub const COLUMNS: [&str; 4] = ["session_id", "run_id", "mechanism", "policy"];

    /// Takes in the records of a batch.
    pub fn add(&mut self, batch: &Batch) {
        let [sessions, run_ids, mechanisms, policies] = Self::COLUMNS.map(|name| batch.labels(name));
        self.records += batch.rows() as u64;
        self.sessions.extend((0..batch.rows()).filter_map(|row| sessions.code(row)));
        if self.first.is_none() && batch.rows() > 0 {
            self.first =
                Some([run_ids, mechanisms, policies].map(|labels| labels.get(0).unwrap_or_default().to_owned()));
        }
    }

    /// No record was taken in.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// The run of the records in the file at `path`.
    pub fn finish(self, path: &Path) -> RunInfo {
        let [name, mechanism, policy] = self.first.unwrap_or_default();
        let budgets = IntegrityConfig::default();
        RunInfo {
            name,
            trace: path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            requests: self.records,
            sessions: self.sessions.len() as u64,
            topology: String::new(),
            mechanism,
            policy,
            router_policy: String::new(),
            limits: String::new(),
            time_scale: None,
            time_scale_text: "time scale unknown".into(),
            planned_s: None,
            seed: 0,
            driver: "records alone".into(),
            speed: 1.0,
            state: RunState::Completed,
            rebuilt: true,
            budgets: Budgets {
                max_bad_share: budgets.max_bad_share,
                max_schedule_lag_p99_ms: budgets.max_schedule_lag_p99_ms,
                max_harness_pause_ms: Some(budgets.max_harness_pause_ms),
            },
            slos: Slos::default(),
            workers: Vec::new(),
            slots: None,
            gaps: None,
            predicted_direct_share: None,
            predicted_direct_share_at_least: None,
            caches: None,
        }
    }
}
