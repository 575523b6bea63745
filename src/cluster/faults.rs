//! Scheduled faults: which are in force, and whom they strike.
//!
//! Owns triggers, windows and counts. What a fault does to the cluster is `outage.rs`'s and the message handlers'.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::base::{Dur, RequestIx, SessionIx, Time, WorkerId};
use crate::cluster::{FaultConfig, FaultKind};

/// A fault with its names resolved.
#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    /// What happens.
    pub kind: FaultKind,
    /// When it begins; the start of the run when neither this nor `after_requests` is given.
    pub at: Option<Time>,
    /// Number of generate requests after which it begins.
    pub after_requests: Option<u64>,
    /// Worker it strikes; any, without.
    pub worker: Option<WorkerId>,
    /// The D of a pair; any, without.
    pub to: Option<WorkerId>,
    /// Session it is limited to.
    pub session: Option<SessionIx>,
    /// Request it is limited to.
    pub request: Option<RequestIx>,
    /// How often it may strike.
    pub times: Option<u32>,
    /// How long it lasts.
    pub duration: Option<Dur>,
    /// Slow-down.
    pub factor: f64,
    /// HTTP status of a refusal.
    pub status: u16,
    /// Time until the failure shows.
    pub after: Dur,
    /// Tokens before the stream goes quiet.
    pub after_tokens: u32,
}

/// The faults of a run and which of them are in force.
#[derive(Debug)]
pub struct Faults {
    all: Vec<Fault>,
    in_force: Vec<bool>,
    begun: Vec<bool>,
    strikes: Strikes,
}

/// How often each fault may still strike, by number; `None`: always. Clones share it, as the processes of one cluster do.
#[derive(Debug, Clone)]
pub struct Strikes(Arc<[Option<AtomicU32>]>);

impl Strikes {
    /// Nothing has struck yet.
    pub fn of(faults: &[FaultConfig]) -> Strikes {
        Strikes(faults.iter().map(|fault| fault.times.map(AtomicU32::new)).collect())
    }

    /// Takes one; false when there is none left.
    fn take(&self, at: usize) -> bool {
        let less = |left: u32| left.checked_sub(1);
        self.0[at].as_ref().is_none_or(|left| left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok())
    }
}

impl Fault {
    /// Resolves names; `session` and `request` are those that the configuration names. Error: a bad worker name.
    pub fn new(config: &FaultConfig, session: Option<SessionIx>, request: Option<RequestIx>) -> Result<Fault, String> {
        let worker = |name: &Option<String>| name.as_deref().map(str::parse::<WorkerId>).transpose();
        let seconds = |value: Option<f64>| value.and_then(Dur::from_secs_f64);
        Ok(Fault {
            kind: config.kind,
            at: seconds(config.at_s).map(|at| Time::ZERO + at),
            after_requests: config.after_requests,
            worker: worker(&config.worker)?,
            to: worker(&config.to)?,
            session,
            request,
            times: config.times,
            duration: seconds(config.duration_s),
            factor: config.factor.unwrap_or(1.0),
            status: config.status.unwrap_or(500),
            after: seconds(config.after_s).unwrap_or(Dur::ZERO),
            after_tokens: config.after_tokens.unwrap_or(0),
        })
    }

    /// The worker that is absent until this fault brings it.
    pub fn joiner(&self) -> Option<WorkerId> {
        self.worker.filter(|_| self.kind == FaultKind::Join)
    }

    fn strikes(&self, worker: Option<WorkerId>) -> bool {
        self.worker.is_none() || self.worker == worker
    }

    fn concerns(&self, session: SessionIx, request: RequestIx) -> bool {
        self.session.is_none_or(|limited| limited == session) && self.request.is_none_or(|limited| limited == request)
    }
}

impl Faults {
    /// None of them in force.
    pub fn new(all: Vec<Fault>) -> Faults {
        let strikes = Strikes(all.iter().map(|fault| fault.times.map(AtomicU32::new)).collect());
        Faults::sharing(all, strikes)
    }

    /// The same, where others play these faults too: what strikes there does not strike here.
    pub fn sharing(all: Vec<Fault>, strikes: Strikes) -> Faults {
        let count = all.len();
        assert_eq!(count, strikes.0.len(), "the same faults, by the same numbers");
        Faults { all, in_force: vec![false; count], begun: vec![false; count], strikes }
    }

    /// The faults, by number.
    pub fn get(&self, at: usize) -> &Fault {
        &self.all[at]
    }

    /// Those that begin at a time, with that time.
    pub fn timed(&self) -> Vec<(usize, Time)> {
        let begins = |fault: &Fault| fault.after_requests.is_none().then_some(fault.at.unwrap_or(Time::ZERO));
        self.all.iter().enumerate().filter_map(|(at, fault)| begins(fault).map(|time| (at, time))).collect()
    }

    /// Those that begin now that `requests` have come.
    pub fn counted(&self, requests: u64) -> Vec<usize> {
        let reached = |fault: &Fault| fault.after_requests.is_some_and(|after| requests > after);
        (0..self.all.len()).filter(|&at| !self.begun[at] && reached(&self.all[at])).collect()
    }

    /// It is in force from now on.
    pub fn begin(&mut self, at: usize) {
        (self.in_force[at], self.begun[at]) = (true, true);
    }

    /// It is over.
    pub fn end(&mut self, at: usize) {
        self.in_force[at] = false;
    }

    /// Workers that join later, so are not there at the start.
    pub fn joiners(&self) -> Vec<WorkerId> {
        self.all.iter().filter_map(Fault::joiner).collect()
    }

    /// A fault of `kind` that strikes `worker` now; its count goes down by one.
    pub fn strike(&mut self, kind: FaultKind, worker: WorkerId) -> Option<Fault> {
        self.take(kind, |fault| fault.strikes(Some(worker)))
    }

    /// The same for a request on its way to one of `workers`.
    pub fn strike_request(
        &mut self,
        kind: FaultKind,
        workers: &[WorkerId],
        session: SessionIx,
        request: RequestIx,
    ) -> Option<(Fault, WorkerId)> {
        let hit = |fault: &Fault| workers.iter().copied().find(|&worker| fault.strikes(Some(worker)));
        let fault = self.take(kind, |fault| fault.concerns(session, request) && hit(fault).is_some())?;
        let worker = hit(&fault)?;
        Some((fault, worker))
    }

    /// The same, by faults that name `worker` only.
    pub fn strike_named(
        &mut self,
        kind: FaultKind,
        worker: WorkerId,
        session: SessionIx,
        request: RequestIx,
    ) -> Option<Fault> {
        self.take(kind, |fault| fault.worker == Some(worker) && fault.concerns(session, request))
    }

    /// The same for a transfer.
    pub fn strike_pair(&mut self, kind: FaultKind, from: WorkerId, to: WorkerId) -> Option<Fault> {
        self.take(kind, |fault| fault.strikes(Some(from)) && fault.to.is_none_or(|limited| limited == to))
    }

    /// A fault in force keeps `worker` down.
    pub fn keeps_down(&self, worker: WorkerId) -> bool {
        let down =
            |fault: &Fault| matches!(fault.kind, FaultKind::Kill | FaultKind::Leave) && fault.worker == Some(worker);
        self.all.iter().zip(&self.in_force).any(|(fault, in_force)| *in_force && down(fault))
    }

    /// `worker` is brought up on purpose: what kept it down is over.
    pub fn lift(&mut self, worker: WorkerId) {
        for (fault, in_force) in self.all.iter().zip(&mut self.in_force) {
            if matches!(fault.kind, FaultKind::Kill | FaultKind::Leave) && fault.worker == Some(worker) {
                *in_force = false;
            }
        }
    }

    /// Product of the slow-downs of a worker, or of all its links, that are in force.
    pub fn slowdown(&self, kind: FaultKind, worker: WorkerId) -> f64 {
        let slows = |at: &usize| {
            let fault = &self.all[*at];
            self.in_force[*at] && fault.kind == kind && fault.to.is_none() && fault.worker == Some(worker)
        };
        (0..self.all.len()).filter(slows).map(|at| self.all[at].factor).product()
    }

    /// Product of the slow-downs of a pair's link that are in force.
    pub fn pair_factor(&self, from: WorkerId, to: WorkerId) -> f64 {
        let slows = |at: &usize| {
            let fault = &self.all[*at];
            self.in_force[*at] && fault.kind == FaultKind::SlowLink && fault.to == Some(to) && fault.strikes(Some(from))
        };
        (0..self.all.len()).filter(slows).map(|at| self.all[at].factor).product()
    }

    fn take(&mut self, kind: FaultKind, hits: impl Fn(&Fault) -> bool) -> Option<Fault> {
        let hit = |at: &usize| {
            let fault = &self.all[*at];
            self.in_force[*at] && fault.kind == kind && hits(fault) && self.strikes.take(*at)
        };
        let at = (0..self.all.len()).find(hit)?;
        Some(self.all[at].clone())
    }
}
