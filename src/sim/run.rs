//! The loop: earliest wake first, then actions and events back and forth until both sides are quiet.

use std::io;
use std::ops::ControlFlow;

use thiserror::Error;

use crate::base::{Dur, RequestIx, Role, SessionIx, Time, WorkerId};
use crate::cluster::{Cluster, Fault, FaultConfig, FaultKind, Notice, RouterPolicy};
use crate::engine::Cx;
use crate::policies::{HeaderMode, PolicyName};
use crate::record::{LedgerEvent, LedgerKind, RunFacts};
use crate::replay::{Mechanism, Replayer, ReplayerConfig};
use crate::scenario::{Scenario, fault_label, resolve_router};
use crate::sim::{Observer, Progress, RunEnd, RunStatus};
use crate::trace::{Trace, ideal_hits};

/// Rounds at one time of the run after which it counts as stuck. A real round moves at least one request on.
const ROUNDS_AT_ONE_TIME_MAX: u64 = 10_000_000;
/// Latest time a run may reach: about 317 years. Later the clock of 64-bit nanoseconds is near its end.
const HORIZON: Time = Time(10_000_000_000 * 1_000_000_000);
/// Wakes between two looks at the observer.
const WAKES_PER_PROGRESS: u64 = 256;

/// Why a run could not go to its end.
#[derive(Debug, Error)]
pub enum SimError {
    /// The observer could not take something.
    #[error(transparent)]
    Observer(#[from] io::Error),
    /// A fault of the scenario does not resolve.
    #[error("fault {number}: {cause}")]
    Fault {
        /// Its place in the scenario, from 1.
        number: usize,
        /// What is wrong with it.
        cause: String,
    },
    /// No wake is planned although requests are left. A bug of pdreplay, or a stream that hangs while all limits are off.
    #[error(
        "the run stands still at {at}: {left} of {planned} requests have not ended, {in_flight} of them are in flight; \
         set replay.stall_timeout_s if a stream may hang, else report this as a bug"
    )]
    Stalled {
        /// Time of the run.
        at: Time,
        /// Requests without a record.
        left: u64,
        /// Requests planned.
        planned: u64,
        /// Requests in the cluster.
        in_flight: usize,
    },
    /// The scenario is so slow for this trace that the clock would end.
    #[error(
        "nothing ends between {at} and 1e10 s (317 years), with {left} requests left; make the costs of the scenario or the \
         lengths of the trace smaller, or set replay.request_timeout_s"
    )]
    Endless {
        /// Time of the run.
        at: Time,
        /// Requests without a record.
        left: u64,
    },
    /// Messages go back and forth without time moving on: a bug.
    #[error("the run spins at {at}: {rounds} rounds without time moving on; report this as a bug")]
    Spins {
        /// Time of the run.
        at: Time,
        /// Rounds seen.
        rounds: u64,
    },
}

/// Replays `trace` on the scenario's emulated cluster in virtual time. The same arguments give the same records.
pub fn run(trace: &Trace, scenario: &Scenario, run_id: &str, observer: &mut dyn Observer) -> Result<RunEnd, SimError> {
    let mut scenario = scenario.clone();
    resolve_router(&mut scenario);
    let faults = resolve_faults(trace, &scenario.fault)?;
    let ideal_hits = ideal_hits(trace);
    let session_ids: Vec<&str> = trace.sessions.iter().map(|session| session.id.as_str()).collect();
    let mut driver = Driver {
        trace,
        session_ids: &session_ids,
        replayer: Replayer::new(trace, replayer_config(&scenario, run_id), &ideal_hits),
        cluster: Cluster::new(&scenario.cluster, &scenario.engine, trace.meta.block_size, faults),
        observer,
        now: Time::ZERO,
        ended: Time::ZERO,
        wakes: 0,
    };
    driver.exchange()?;
    let broken_off = driver.drive()?;
    let facts = driver.facts();
    assert_eq!(driver.replayer.ended(), facts.planned, "every planned request has one record");
    let status = match (broken_off, driver.replayer.is_stopped()) {
        (true, _) => RunStatus::Interrupted,
        (false, true) => RunStatus::Stopped,
        (false, false) => RunStatus::Completed,
    };
    Ok(RunEnd { status, facts })
}

struct Driver<'a> {
    trace: &'a Trace,
    session_ids: &'a [&'a str],
    replayer: Replayer<'a>,
    cluster: Cluster,
    observer: &'a mut dyn Observer,
    now: Time,
    ended: Time,
    wakes: u64,
}

impl<'a> Driver<'a> {
    /// Runs to the end; true when the observer broke it off.
    fn drive(&mut self) -> Result<bool, SimError> {
        let mut at_this_time = 0;
        while !self.replayer.is_done() {
            let replayer = self.replayer.poll_timeout().map(|(at, _)| at);
            let cluster = self.cluster.poll_timeout();
            if cluster.is_none() && self.replayer.is_waiting() {
                return Err(self.stalled());
            }
            let Some(next) = replayer.into_iter().chain(cluster).min() else { return Err(self.stalled()) };
            if next > HORIZON {
                return Err(SimError::Endless { at: self.now, left: self.replayer.planned() - self.replayer.ended() });
            }
            assert!(next >= self.now, "time runs forward: {next} after {}", self.now);
            at_this_time = if next > self.now { 0 } else { at_this_time + 1 };
            if at_this_time > ROUNDS_AT_ONE_TIME_MAX {
                return Err(SimError::Spins { at: self.now, rounds: at_this_time });
            }
            self.now = next;
            if cluster == Some(next) {
                self.cluster.handle_timeout(self.cx());
            }
            if replayer == Some(next) {
                self.replayer.handle_timeout(next);
            }
            self.exchange()?;
            self.wakes += 1;
            if self.wakes.is_multiple_of(WAKES_PER_PROGRESS) && self.observer.progress(&self.progress()).is_break() {
                self.replayer.interrupt(self.now);
                self.exchange()?;
                return Ok(true);
            }
        }
        // The last look lets a bar reach its end; there is nothing left to break off.
        let _: ControlFlow<()> = self.observer.progress(&self.progress());
        Ok(false)
    }

    /// Carries actions and events over until both sides are quiet, and hands out what they produced.
    fn exchange(&mut self) -> Result<(), SimError> {
        let cx = self.cx();
        loop {
            if let Some(action) = self.replayer.poll_action() {
                self.cluster.handle_action(cx, action);
            } else if let Some(event) = self.cluster.poll_event() {
                self.replayer.handle_event(self.now, event);
            } else {
                break;
            }
        }
        while let Some(notice) = self.cluster.poll_notice() {
            self.observer.ledger(&ledger_line(self.now, notice, self.session_ids))?;
        }
        while let Some(line) = self.replayer.poll_ledger() {
            self.observer.ledger(&line)?;
        }
        while let Some((record, tokens)) = self.replayer.poll_record() {
            self.ended = self.ended.max(Time(record.ended_ns));
            self.observer.record(&record, &tokens)?;
        }
        Ok(())
    }

    fn cx(&self) -> Cx<'a> {
        Cx { now: self.now, tree: &self.trace.tree, session_ids: self.session_ids }
    }

    fn progress(&self) -> Progress {
        Progress {
            now: self.now,
            planned: self.replayer.planned(),
            ended: self.replayer.ended(),
            in_flight: self.replayer.in_flight(),
        }
    }

    fn stalled(&self) -> SimError {
        SimError::Stalled {
            at: self.now,
            left: self.replayer.planned() - self.replayer.ended(),
            planned: self.replayer.planned(),
            in_flight: self.cluster.in_flight(),
        }
    }

    fn facts(&self) -> RunFacts {
        let replay = self.replayer.facts(self.now);
        RunFacts {
            workers: self.cluster.workers(self.now),
            transfers: self.cluster.transfers(),
            sessions: replay.sessions,
            duration_ns: self.ended.ns(),
            planned: replay.planned,
            counters_diverged_after: replay.counters_diverged_after,
            beliefs_corrected: replay.beliefs_corrected,
        }
    }
}

/// What the replayer is told of the scenario.
fn replayer_config(scenario: &Scenario, run_id: &str) -> ReplayerConfig {
    let (role, count) = match scenario.replay.mechanism {
        Mechanism::Dp => (Role::Colocated, scenario.cluster.colocated),
        Mechanism::Pd | Mechanism::Kvc => (Role::Decode, scenario.cluster.decode),
    };
    let joins_later = |worker: &WorkerId| {
        let joins = |fault: &FaultConfig| fault.kind == FaultKind::Join && fault.worker == Some(worker.to_string());
        scenario.fault.iter().any(joins)
    };
    let header_mode = match scenario.policy.name {
        PolicyName::Default => HeaderMode::None,
        PolicyName::Sticky => HeaderMode::RoutingKey,
        PolicyName::KvAware | PolicyName::CacheAware => HeaderMode::TargetWorker,
    };
    ReplayerConfig {
        run_id: run_id.to_owned(),
        seed: scenario.seed,
        replay: scenario.replay.clone(),
        policy: scenario.policy.clone(),
        admission: scenario.admission.clone(),
        workers: (0..count).map(|index| WorkerId::new(role, index)).filter(|worker| !joins_later(worker)).collect(),
        kv_pool_tokens: scenario.engine.kv_pool_tokens,
        session_idle_timeout: Dur::from_secs_f64(scenario.engine.session_idle_timeout_s)
            .filter(|idle| *idle > Dur::ZERO),
        header_mode,
        router_round_robin: scenario.cluster.router.decode_policy == RouterPolicy::RoundRobin,
    }
}

/// Finds the sessions and requests that faults name.
fn resolve_faults(trace: &Trace, faults: &[FaultConfig]) -> Result<Vec<Fault>, SimError> {
    let resolve = |(at, config): (usize, &FaultConfig)| {
        let wrong = |cause: String| SimError::Fault { number: at + 1, cause };
        let session = config.session.as_ref().map(|id| {
            let found = trace.sessions.iter().position(|session| session.id == *id);
            found.map(|ix| SessionIx(ix as u32)).ok_or_else(|| wrong(format!("the trace has no session `{id}`")))
        });
        let session = session.transpose()?;
        let request = session.zip(config.turn).map(|(session, turn)| {
            let first = trace.sessions[session.ix()].turns.start;
            let found = trace.turns_of(session).iter().position(|row| row.turn_id == turn);
            let missing = || wrong(format!("session `{}` has no turn {turn}", trace.sessions[session.ix()].id));
            found.map(|nth| RequestIx(first + nth as u32)).ok_or_else(missing)
        });
        Fault::new(config, session, request.transpose()?).map_err(wrong)
    };
    faults.iter().enumerate().map(resolve).collect()
}

fn ledger_line(now: Time, notice: Notice, session_ids: &[&str]) -> LedgerEvent {
    let (kind, session, worker, detail) = match notice {
        Notice::Fault { kind, worker } => (LedgerKind::Fault, None, worker, fault_label(kind)),
        Notice::SessionDropped { worker, session, reason } => {
            (LedgerKind::WorkerDroppedSession, Some(session_ids[session.ix()]), Some(worker), reason.as_str())
        }
    };
    LedgerEvent {
        at_ns: now.ns(),
        kind,
        session_id: session.map(str::to_owned),
        turn_id: None,
        worker: worker.map(|worker| worker.to_string()),
        detail: Some(detail.to_owned()),
    }
}
