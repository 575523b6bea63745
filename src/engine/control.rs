//! Reading the inbox at a boundary: requests into queues, control calls answered, aborts carried out.

use std::collections::VecDeque;

use crate::base::{Dur, RequestIx, Role, SessionIx, Time};
use crate::engine::job::{Active, Done, Job};
use crate::engine::message::{Cx, DropReason, Input, Output};
use crate::engine::worker::Worker;
use crate::protocol::{AdmitAnswer, AdmitAsk, AdmitKind, AdmitReason, CallError, CallId, ErrorClass, Finish};

impl Worker {
    /// Reads the whole inbox. Admission calls keep the loop busy one after another; returns when it is free again.
    pub(super) fn read_inbox(&mut self, cx: Cx<'_>) -> Time {
        let mut free_at = cx.now;
        while let Some(input) = self.inbox.pop_front() {
            match input {
                Input::Generate(job) => self.take_generate(cx, job),
                Input::Reserve(job) => self.take_reserve(cx, job),
                Input::KvArrived(request) => {
                    if let Some(active) = self.reserved.remove(&request) {
                        self.ready.push_back(active);
                    }
                }
                Input::KvSent(request) => {
                    if let Some(active) = self.sending.remove(&request) {
                        let session = active.job.session;
                        self.free(cx, active);
                        self.release_session(cx.now, session, None);
                    }
                }
                Input::Abort(request) => self.abort(cx, request),
                Input::Open { call, session, idle_timeout } => self.open(free_at, call, session, idle_timeout),
                Input::Close(session) => self.close(session),
                Input::Admit { call, ask } => {
                    free_at = free_at + Dur::from_micros(self.config.admission_cost_us);
                    self.stats.admission_calls += 1;
                    let answer = self.admit(cx.now, ask);
                    self.emit(free_at, Output::Admission { call, answer });
                }
            }
        }
        free_at
    }

    /// Drops idle sessions whose time-out has run.
    pub(super) fn expire_sessions(&mut self, now: Time) {
        while let Some(session) = self.sessions.expired(now) {
            self.drop_session(session);
            self.stats.session_timeouts += 1;
            self.emit(now, Output::SessionDropped { session, reason: DropReason::IdleTimeout });
        }
    }

    /// Drops the idle session used longest ago, other than `but`.
    pub(super) fn trim_session(&mut self, now: Time, but: Option<SessionIx>, reason: DropReason) -> Option<SessionIx> {
        let session = self.sessions.least_recent_idle(but)?;
        self.drop_session(session);
        self.stats.session_trims += 1;
        self.emit(now, Output::SessionDropped { session, reason });
        Some(session)
    }

    fn drop_session(&mut self, session: SessionIx) {
        if let Some(reserved) = self.sessions.remove(session) {
            self.pool.release(reserved);
        }
    }

    fn take_generate(&mut self, cx: Cx<'_>, job: Job) {
        self.stats.requests += 1;
        let Some(mut job) = self.checked(cx, job) else { return };
        if let Some(session) = job.session {
            // The engine's context is what the session holds plus what the body brings, whatever the client believes.
            let held = self.sessions.get(session).map_or(0, |slot| slot.held);
            job.input_tokens = u32::try_from(held).unwrap_or(u32::MAX).saturating_add(job.shipped_tokens);
            if !self.within_limit(cx, &job) {
                return;
            }
            if let Some(slot) = self.sessions.get(session) {
                slot.busy = Some(job.request);
            }
        }
        self.waiting.push_back(job);
    }

    fn take_reserve(&mut self, cx: Cx<'_>, job: Job) {
        self.stats.requests += 1;
        let Some(job) = self.checked(cx, job) else { return };
        if let Some(slot) = job.session.and_then(|session| self.sessions.get(session)) {
            // A whole prompt replaces what the session held.
            slot.busy = Some(job.request);
            slot.held = 0;
            let reserved = std::mem::take(&mut slot.reserved);
            self.pool.release(reserved);
        }
        self.unreserved.push_back(job);
    }

    /// The job, unless it is refused: unknown or busy session, over the limit, or hung from the start.
    fn checked(&mut self, cx: Cx<'_>, job: Job) -> Option<Job> {
        if let Some(session) = job.session {
            let refusal = match self.sessions.get(session) {
                None => Some((
                    ErrorClass::SessionNotFound,
                    format!("Invalid request: session id {} does not exist", cx.session_id(session)),
                )),
                Some(slot) if slot.busy.is_some() => {
                    Some((ErrorClass::SessionBusy, "Streaming session already has an active request.".to_owned()))
                }
                Some(_) => None,
            };
            if let Some((class, message)) = refusal {
                self.abort_in_200(cx.now, job, class, message);
                return None;
            }
        }
        if !self.within_limit(cx, &job) {
            return None;
        }
        if job.hang_after == Some(0) {
            let quiet = Output::Silent { request: job.request, since: cx.now, output_tokens: 0 };
            self.emit(cx.now, quiet);
            let request = job.request;
            if let Some(slot) = job.session.and_then(|session| self.sessions.get(session)) {
                slot.busy = Some(request);
            }
            self.hung.insert(request, Active::new(job, 0, 0));
            return None;
        }
        Some(job)
    }

    /// A streamed request that the engine aborts still gets HTTP 200 and one token.
    fn abort_in_200(&mut self, now: Time, job: Job, class: ErrorClass, message: String) {
        let mut active = Active::new(job, 0, 0);
        active.take(crate::protocol::TokenRun { first: now, step: Dur::ZERO, count: 1 }, now);
        let done = active.into_done(Finish::Abort { class, message }, 200);
        self.emit(now, Output::Done(Box::new(done)));
    }

    fn within_limit(&mut self, cx: Cx<'_>, job: &Job) -> bool {
        let (prompt, answer) = (u64::from(job.input_tokens), u64::from(job.output_tokens));
        // The model's limit is checked on the body, which both legs get whole; a prefill worker has to hold the prompt only.
        let held = if self.id.role == Role::Prefill { prompt } else { prompt + answer };
        let model = if self.config.context_limit_tokens == 0 { u64::MAX } else { self.config.context_limit_tokens };
        let over_model = prompt + answer > model;
        let (wanted, limit) = if over_model { (prompt + answer, model) } else { (held, self.pool.largest()) };
        let fits = !over_model && held <= limit;
        if !fits {
            let request = cx.request_id(job.request);
            let message = format!("Request {request} exceeds the maximum number of tokens: {wanted} > {limit}");
            let finish = Finish::Error { class: ErrorClass::ContextLimit, message };
            self.emit(cx.now, Output::Done(Box::new(Done::refused(job, finish, 400))));
        }
        fits
    }

    fn open(&mut self, at: Time, call: CallId, session: SessionIx, idle_timeout: Option<Dur>) {
        let result = if self.sessions.open(session, at, idle_timeout.or(self.session_timeout())) {
            Ok(self.incarnation)
        } else {
            let message = "Failed to open the session. Check if a session with the same id is still open.";
            Err(CallError { status: Some(400), message: message.to_owned() })
        };
        self.emit(at, Output::Opened { call, result });
    }

    fn close(&mut self, session: SessionIx) {
        match self.sessions.get(session) {
            Some(slot) if slot.busy.is_some() => slot.close_on_finish = true,
            Some(_) => self.drop_session(session),
            None => {}
        }
    }

    /// Is there room? Trims idle sessions to make some.
    fn admit(&mut self, now: Time, ask: AdmitAsk) -> AdmitAnswer {
        let mut evicted = Vec::new();
        let wanted = self.pool.paged(u64::from(ask.append_tokens) + u64::from(ask.output_tokens));
        let refusal = match (ask.kind, self.sessions.get(ask.session)) {
            (AdmitKind::Append, None) => Some(AdmitReason::SessionNotFound),
            (AdmitKind::Append, Some(slot)) if slot.busy.is_some() => Some(AdmitReason::SessionBusy),
            (AdmitKind::Append | AdmitKind::Seed, _) => None,
        };
        let fits = |worker: &Worker| wanted <= worker.pool.available().saturating_sub(worker.promised());
        let reason = refusal.unwrap_or_else(|| {
            if fits(self) {
                return AdmitReason::Fits;
            }
            while let Some(session) = self.trim_session(now, Some(ask.session), DropReason::Admission) {
                evicted.push(session);
                if fits(self) {
                    return AdmitReason::FitsAfterTrim;
                }
            }
            AdmitReason::NoCapacity
        });
        AdmitAnswer {
            can_admit: matches!(reason, AdmitReason::Fits | AdmitReason::FitsAfterTrim),
            reason,
            available_tokens: self.pool.available().saturating_sub(self.promised()),
            capacity_tokens: self.pool.capacity(),
            evicted,
            incarnation: self.incarnation,
        }
    }

    /// Tokens that requests to a session, admitted before, have not reserved yet.
    fn promised(&self) -> u64 {
        self.waiting.iter().map(|job| u64::from(job.shipped_tokens) + u64::from(job.output_tokens)).sum()
    }

    fn abort(&mut self, cx: Cx<'_>, request: RequestIx) {
        fn take<T>(queue: &mut VecDeque<T>, is: impl Fn(&T) -> bool) -> Option<T> {
            queue.iter().position(is).and_then(|at| queue.remove(at))
        }
        let job = take(&mut self.waiting, |job| job.request == request)
            .or_else(|| take(&mut self.unreserved, |job| job.request == request));
        if let Some(job) = job {
            self.release_session(cx.now, job.session, None);
            return;
        }
        let is = |active: &Active| active.job.request == request;
        let active = [&mut self.reserved, &mut self.sending, &mut self.hung]
            .into_iter()
            .find_map(|holding| holding.remove(&request))
            .or_else(|| take(&mut self.ready, is))
            .or_else(|| take(&mut self.retracted, is))
            .or_else(|| self.running.iter().position(is).map(|at| self.running.remove(at)))
            .or_else(|| {
                let at = self.prefilling.iter().position(|(active, _)| is(active));
                at.map(|at| self.prefilling.remove(at).0)
            });
        if let Some(active) = active {
            let session = active.job.session;
            self.free(cx, active);
            self.release_session(cx.now, session, None);
        }
    }

    /// The session's request has ended. `kept`: tokens of context and of reservation that stay with it; without,
    /// the turn's KV is gone and the history starts anew.
    pub(super) fn release_session(&mut self, now: Time, session: Option<SessionIx>, kept: Option<(u64, u64)>) {
        let Some(id) = session else { return };
        let Some(slot) = self.sessions.get(id) else {
            self.pool.release(kept.map_or(0, |(_, reserved)| reserved));
            return;
        };
        let (held, reserved) = kept.unwrap_or((0, 0));
        let stale = std::mem::replace(&mut slot.reserved, reserved);
        (slot.held, slot.busy, slot.last_used) = (held, None, now);
        let close = slot.close_on_finish;
        self.pool.release(stale);
        if close {
            self.drop_session(id);
        }
    }
}
