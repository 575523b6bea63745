//! Control calls: sessions, admission, abort, flush, and clients that go away.

use std::collections::BTreeSet;

use crate::base::{Dur, Names, RequestIx, SessionIx};
use crate::cluster::FaultKind;
use crate::engine::{Cx, Input, Output};
use crate::node::worker::tokens::made_up_name;
use crate::node::worker::{Due, WorkerNode};
use crate::node::{Exchange, NodeOutput, Refusal};
use crate::protocol::{AdmitAsk, AdmitKind, CallId, ErrorClass, Finish};

impl WorkerNode {
    pub(super) fn open(&mut self, exchange: Exchange, session: Option<String>, timeout: Option<f64>) {
        let idle_timeout = match timeout.map(|seconds| (seconds, Dur::from_secs_f64(seconds))) {
            None => None,
            Some((_, Some(idle))) if idle > Dur::ZERO => Some(idle),
            Some((seconds, _)) => {
                let message = format!("timeout must be a number of seconds above 0, got {seconds}.");
                self.emit(NodeOutput::Refused { exchange, refusal: Refusal { status: 400, message } });
                return;
            }
        };
        self.forget_names_if_many();
        let name = session.unwrap_or_else(|| {
            self.sessions_made += 1;
            made_up_name(self.config.id, self.config.incarnation, self.sessions_made)
        });
        let session = self.names.session_ix(&name);
        self.calls.insert(exchange, session);
        let worker = self.config.id;
        match self.faults.faults.strike(FaultKind::OpenFailure, worker) {
            Some(fault) => {
                let refusal = Refusal { status: fault.status, message: format!("open_session failed on {worker}") };
                self.agenda.schedule(self.now + fault.after, Due::RefuseCall(exchange, refusal));
            }
            None => self.feed(Input::Open { call: CallId(exchange.0), session, idle_timeout }),
        }
    }

    pub(super) fn close(&mut self, session: &str) {
        if let Some(session) = self.names.find(session) {
            self.feed(Input::Close(session));
        }
    }

    pub(super) fn admit(&mut self, exchange: Exchange, session: &str, kind: AdmitKind, tokens: (u32, u32)) {
        self.forget_names_if_many();
        let session = self.names.session_ix(session);
        self.calls.insert(exchange, session);
        let worker = self.config.id;
        match self.faults.faults.strike(FaultKind::AdmissionTimeout, worker) {
            Some(fault) => {
                let refusal = Refusal { status: 504, message: format!("admission call to {worker} timed out") };
                self.agenda.schedule(self.now + fault.after, Due::RefuseCall(exchange, refusal));
            }
            None => {
                let ask = AdmitAsk { session, kind, append_tokens: tokens.0, output_tokens: tokens.1 };
                self.feed(Input::Admit { call: CallId(exchange.0), ask });
            }
        }
    }

    /// Ends the requests whose id begins with `prefix`; all without one.
    pub(super) fn abort_matching(&mut self, prefix: Option<&str>) {
        let prefix = prefix.unwrap_or("");
        let matches = |request: &RequestIx| self.names.request(*request).unwrap_or("").starts_with(prefix);
        let requests: Vec<RequestIx> = self.works.keys().copied().filter(matches).collect();
        for request in requests {
            let Some(work) = self.works.get(&request) else { continue };
            if work.hangs {
                // Nothing more may be said on a stream that hangs.
                self.drop_request(request);
                continue;
            }
            let message = if work.told == 0 { "Abort in waiting queue" } else { "Aborted" };
            self.abort(request, Finish::Abort { class: ErrorClass::ServerError, message: message.to_owned() });
        }
    }

    pub(super) fn flush(&mut self, exchange: Exchange) {
        let cx = Cx { now: self.now, tree: &self.tree, names: &self.names };
        let done = self.works.is_empty() && self.worker.flush(cx);
        self.publish();
        self.emit(NodeOutput::Flushed { exchange, done });
    }

    /// The client of an exchange has closed its connection.
    pub(super) fn gone(&mut self, exchange: Exchange) {
        if let Some(request) = self.generates.get(&exchange) {
            self.drop_request(*request);
        } else if let Some(room) = self.pulls.remove(&exchange) {
            self.pull_gone(room);
        } else {
            self.calls.remove(&exchange);
        }
    }

    /// Forgets the ids of sessions that are neither open nor spoken of, now and then.
    pub(super) fn forget_names_if_many(&mut self) {
        if !self.names.wants_sweep() {
            return;
        }
        let mut spoken_of: BTreeSet<SessionIx> = self.works.values().filter_map(|work| work.session).collect();
        spoken_of.extend(self.calls.values());
        for due in self.agenda.iter() {
            if let Due::Engine(output) = due
                && let Output::Admission { answer, .. } = &**output
            {
                spoken_of.extend(&answer.evicted);
            }
        }
        let worker = &self.worker;
        self.names.sweep(|session| spoken_of.contains(&session) || worker.knows_session(session));
    }
}
