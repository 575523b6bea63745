//! [`Setup`]: everything a driver builds its two machines from, with the names of the scenario found in the trace.
//!
//! The last check of the input: what a scenario says about sessions and turns can only be judged beside a trace. A
//! driver that is given a [`Setup`] decides nothing more. Owns no rule of its own about policies: what a policy tells
//! the router is [`header_mode`]'s.

use super::conflicts::{header_mode, resolve_router};
use super::error::{Problem, SetupError};
use super::kv_setup::KvSetup;
use super::model::Scenario;
use super::validate::problem;
use super::validate_cost::check_span;
use crate::base::{Dur, RequestIx, Role, SessionIx, WorkerId};
use crate::cluster::{ClusterConfig, Fault, FaultConfig, RouterPolicy};
use crate::engine::EngineConfig;
use crate::replay::{IndexWatch, Mechanism, ReplayerConfig};
use crate::trace::Trace;

/// What the machines of one run are built from.
#[derive(Debug, Clone)]
pub struct Setup {
    /// For the replayer.
    pub replayer: ReplayerConfig,
    /// Shape of the cluster, router policies resolved.
    pub cluster: ClusterConfig,
    /// Every worker of it.
    pub engine: EngineConfig,
    /// Who publishes KV events, and how they are followed; absent without an index.
    pub kv: Option<KvSetup>,
    /// What goes wrong.
    pub faults: Vec<Fault>,
}

impl Setup {
    /// Of a scenario that [`super::validate()`] found nothing in. Errors: a fault that names what the trace does not have,
    /// a trace that is too long at the scenario's scales.
    pub fn new(scenario: &Scenario, trace: &Trace, run_id: &str) -> Result<Setup, SetupError> {
        check_span(scenario, trace).map_err(|problem| SetupError { problems: vec![problem] })?;
        let mut scenario = scenario.clone();
        resolve_router(&mut scenario);
        let faults = resolve_faults(trace, &scenario.fault)?;
        let replayer = replayer_config(&scenario, &faults, run_id);
        let kv = KvSetup::new(&scenario, trace.meta.block_size);
        Ok(Setup { replayer, kv, cluster: scenario.cluster, engine: scenario.engine, faults })
    }
}

/// What the replayer is told of the scenario.
fn replayer_config(scenario: &Scenario, faults: &[Fault], run_id: &str) -> ReplayerConfig {
    let counts = match scenario.replay.mechanism {
        Mechanism::Dp => vec![(Role::Colocated, scenario.cluster.colocated)],
        Mechanism::Pd | Mechanism::Kvc => {
            vec![(Role::Prefill, scenario.cluster.prefill), (Role::Decode, scenario.cluster.decode)]
        }
    };
    let all = counts.into_iter().flat_map(|(role, count)| (0..count).map(move |index| WorkerId::new(role, index)));
    let joins_later = |worker: &WorkerId| faults.iter().any(|fault| fault.joiner() == Some(*worker));
    ReplayerConfig {
        run_id: run_id.to_owned(),
        seed: scenario.seed,
        replay: scenario.replay.clone(),
        policy: scenario.policy.clone(),
        admission: scenario.admission.clone(),
        workers: all.filter(|worker| !joins_later(worker)).collect(),
        initial_loads: Vec::new(),
        index: IndexWatch {
            after: Dur::from_secs_f64(scenario.kv_events.warn_after_s).unwrap_or(Dur::ZERO),
            require: scenario.kv_events.require && scenario.policy.reads_index(),
        },
        kv_pool_tokens: scenario.engine.kv_pool_tokens,
        session_idle_timeout: Dur::from_secs_f64(scenario.engine.session_idle_timeout_s)
            .filter(|idle| *idle > Dur::ZERO),
        header_mode: header_mode(scenario.policy.name),
        router_round_robin: scenario.cluster.router.decode_policy == RouterPolicy::RoundRobin,
    }
}

/// The faults with the sessions and requests they name; all that cannot be found, not only the first.
fn resolve_faults(trace: &Trace, faults: &[FaultConfig]) -> Result<Vec<Fault>, SetupError> {
    let mut resolved = Vec::new();
    let mut problems = Vec::new();
    for (index, config) in faults.iter().enumerate() {
        match resolve_fault(trace, config, index) {
            Ok(fault) => resolved.push(fault),
            Err(problem) => problems.push(problem),
        }
    }
    if problems.is_empty() { Ok(resolved) } else { Err(SetupError { problems }) }
}

fn resolve_fault(trace: &Trace, config: &FaultConfig, index: usize) -> Result<Fault, Problem> {
    let key = |field: &str| format!("fault[{index}].{field}");
    let session = config.session.as_ref().map(|id| {
        let found = trace.sessions.iter().position(|session| session.id == *id);
        let missing = || {
            let cause = format!("is \"{id}\", but the trace has no such session");
            problem(key("session"), cause, format!("write one that is there, such as \"{}\"", some_session(trace)))
        };
        found.map(|ix| SessionIx(ix as u32)).ok_or_else(missing)
    });
    let session = session.transpose()?;
    let request = session.zip(config.turn).map(|(session, turn)| {
        let first = trace.sessions[session.ix()].turns.start;
        let turns = trace.turns_of(session);
        let missing = || {
            let cause = format!("is {turn}, but session \"{}\" has no such turn", trace.sessions[session.ix()].id);
            let (least, most) = (turns.first(), turns.last());
            let range = least.zip(most).map(|(least, most)| format!(" from {} to {}", least.turn_id, most.turn_id));
            problem(key("turn"), cause, format!("write a turn{}", range.unwrap_or_default()))
        };
        let found = turns.iter().position(|row| row.turn_id == turn);
        found.map(|nth| RequestIx(first + nth as u32)).ok_or_else(missing)
    });
    let request = request.transpose()?;
    Fault::new(config, session, request)
        .map_err(|cause| problem(key("worker"), cause, "write P0, D3 or W1, counted from 0"))
}

fn some_session(trace: &Trace) -> &str {
    trace.sessions.first().map_or("", |session| session.id.as_str())
}

#[cfg(test)]
mod tests {
    use super::super::load_text;
    use super::*;
    use crate::trace::{ReadOptions, read_bytes};

    const TRACE: &str = "{\"session_id\":\"a\",\"turn_id\":1,\"timestamp\":0,\"input_length\":64,\"output_length\":2}\n\
                         {\"session_id\":\"b\",\"turn_id\":1,\"timestamp\":1,\"input_length\":64,\"output_length\":2}\n\
                         {\"session_id\":\"b\",\"turn_id\":2,\"timestamp\":2,\"input_length\":80,\"output_length\":2}\n";

    fn setup(scenario: &str) -> Result<Setup, SetupError> {
        let trace = read_bytes("t.jsonl", TRACE.as_bytes(), &ReadOptions::default()).unwrap();
        Setup::new(&load_text("s.toml", scenario).unwrap(), &trace, "id")
    }

    #[test]
    fn names_are_found_in_the_trace() {
        let found = setup("fault = [{ kind = \"hang\", session = \"b\", turn = 2 }]").unwrap();
        assert_eq!((found.faults[0].session, found.faults[0].request), (Some(SessionIx(1)), Some(RequestIx(2))));
        assert_eq!(found.replayer.run_id, "id");
    }

    #[test]
    fn every_name_that_is_not_there_is_told() {
        let faults = "fault = [{ kind = \"hang\", session = \"c\" }, { kind = \"hang\", session = \"b\", turn = 7 }]";
        let error = setup(faults).unwrap_err();
        let lines: Vec<String> = error.problems.iter().map(Problem::to_string).collect();
        assert_eq!(
            lines,
            [
                "`fault[0].session` is \"c\", but the trace has no such session; write one that is there, such as \"a\"",
                "`fault[1].turn` is 7, but session \"b\" has no such turn; write a turn from 1 to 2",
            ]
        );
        assert_eq!(error.to_string(), lines.join("\n"));
    }

    #[test]
    fn workers_that_join_later_are_not_there_at_the_start() {
        let found = setup("fault = [{ kind = \"join\", worker = \"D1\", at_s = 5 }]\ncluster.decode = 3").unwrap();
        let workers: Vec<String> = found.replayer.workers.iter().map(WorkerId::to_string).collect();
        assert_eq!(workers, ["P0", "P1", "D0", "D2"]);
    }

    #[test]
    fn the_router_is_resolved_also_in_a_scenario_built_in_code() {
        let mut scenario = Scenario::default();
        scenario.policy.name = crate::policies::PolicyName::Default;
        let trace = read_bytes("t.jsonl", TRACE.as_bytes(), &ReadOptions::default()).unwrap();
        let found = Setup::new(&scenario, &trace, "id").unwrap();
        assert_eq!(found.cluster.router.decode_policy, RouterPolicy::RoundRobin);
        assert!(found.replayer.router_round_robin);
    }
}
