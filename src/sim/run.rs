//! The loop: earliest wake first, then actions and events back and forth until both sides are quiet.

use std::io;
use std::ops::ControlFlow;

use thiserror::Error;

use crate::base::Time;
use crate::cluster::{Cluster, Notice};
use crate::engine::Cx;
use crate::record::{LedgerEvent, LedgerKind, RunFacts};
use crate::replay::{NoIndex, Observer, Progress, Replayer, ReplayerConfig, RunEnd, RunStatus};
use crate::scenario::{Scenario, Setup, SetupError, fault_label};
use crate::sim::follow::Follower;
use crate::sim::guard::Guard;
use crate::trace::{Trace, ideal_hits};

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
    /// Scenario and trace do not fit together; nothing was run.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The policy needs the KV index, and it saw nothing.
    #[error(transparent)]
    NoIndex(NoIndex),
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
    #[error("the run spins at {at}: {steps} steps without time moving on; report this as a bug")]
    Spins {
        /// Time of the run.
        at: Time,
        /// Messages and wakes seen.
        steps: u64,
    },
}

/// [`Setup::new`] and [`drive`] in one: replays `trace` on the scenario's emulated cluster in virtual time.
pub fn run(trace: &Trace, scenario: &Scenario, run_id: &str, observer: &mut dyn Observer) -> Result<RunEnd, SimError> {
    drive(trace, Setup::new(scenario, trace, run_id)?, observer)
}

/// Replays `trace` in virtual time on the machines of `setup`. The same arguments give the same records.
pub fn drive(trace: &Trace, setup: Setup, observer: &mut dyn Observer) -> Result<RunEnd, SimError> {
    let ideal_hits = ideal_hits(trace);
    // Nothing is lost on the way to the run but by a fault: without one a calibration would find nothing.
    let can_lose = setup.faults.iter().any(|fault| fault.kind.is_of_kv_events());
    let mut cluster = Cluster::new(&setup.cluster, &setup.engine, trace.meta.block_size, setup.faults);
    let replayer = ReplayerConfig { initial_loads: cluster.loads(), ..setup.replayer };
    let session_ids: Vec<&str> = trace.sessions.iter().map(|session| session.id.as_str()).collect();
    let mut replayer = Replayer::new(trace, replayer, &ideal_hits);
    let follower = setup.kv.map(|kv| {
        let cx = Cx { now: Time::ZERO, tree: &trace.tree, names: &session_ids };
        cluster.start_publishing(kv.publishing, cx);
        let mut follower = Follower::new(kv.follow, can_lose);
        follower.begin(cx, &mut cluster);
        follower
    });
    if let Some(follower) = &follower {
        replayer = replayer.with_index(Box::new(follower.lookup()));
    }
    let mut driver = Driver {
        trace,
        session_ids: &session_ids,
        replayer,
        cluster,
        follower,
        guard: Guard::new(trace, setup.engine.chunk_tokens),
        observer,
        now: Time::ZERO,
        ended: Time::ZERO,
        wakes: 0,
    };
    driver.exchange()?;
    let broken_off = driver.wake_until_done()?;
    if let Some(no_index) = driver.replayer.no_index() {
        return Err(SimError::NoIndex(no_index.clone()));
    }
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
    session_ids: &'a Vec<&'a str>,
    replayer: Replayer<'a>,
    cluster: Cluster,
    follower: Option<Follower>,
    guard: Guard,
    observer: &'a mut dyn Observer,
    now: Time,
    ended: Time,
    wakes: u64,
}

impl<'a> Driver<'a> {
    /// Runs to the end; true when the observer broke it off.
    fn wake_until_done(&mut self) -> Result<bool, SimError> {
        while !self.replayer.is_done() {
            let replayer = self.replayer.poll_timeout().map(|(at, _)| at);
            let cluster = self.cluster.poll_timeout();
            let follower = self.follower.as_ref().and_then(Follower::poll_timeout);
            if self.cluster.is_idle() && self.replayer.is_waiting() {
                return Err(self.stalled());
            }
            let Some(next) = replayer.into_iter().chain(cluster).chain(follower).min() else {
                return Err(self.stalled());
            };
            if next > HORIZON {
                return Err(SimError::Endless { at: self.now, left: self.replayer.planned() - self.replayer.ended() });
            }
            assert!(next >= self.now, "time runs forward: {next} after {}", self.now);
            self.now = next;
            self.guard.step(next)?;
            if cluster == Some(next) {
                self.cluster.handle_timeout(self.cx());
            }
            let cx = self.cx();
            if let Some(streams) = self.follower.as_mut().filter(|_| follower == Some(next)) {
                streams.handle_timeout(cx, &mut self.cluster);
            }
            // What a publisher says reaches the index before the policy looks.
            self.hear_publishers()?;
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
                if let Some(follower) = &mut self.follower {
                    follower.hear(cx, &mut self.cluster, &event);
                }
                self.replayer.handle_event(self.now, event);
            } else {
                break;
            }
            self.guard.step(self.now)?;
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

    /// Carries what publishers say over to the streams of the index.
    fn hear_publishers(&mut self) -> Result<(), SimError> {
        let cx = self.cx();
        let Some(follower) = &mut self.follower else { return Ok(()) };
        while let Some(word) = self.cluster.poll_kv() {
            follower.take(cx, &mut self.cluster, word);
            self.guard.step(self.now)?;
        }
        for line in follower.take_ledger() {
            self.observer.ledger(&line)?;
        }
        Ok(())
    }

    fn cx(&self) -> Cx<'a> {
        Cx { now: self.now, tree: &self.trace.tree, names: self.session_ids }
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
            streams: self.follower.as_ref().map(|follower| follower.facts(self.now)).unwrap_or_default(),
            harness: None,
        }
    }
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
        candidates: Vec::new(),
    }
}
