//! What the engine says, as what the client of an exchange hears; the end of a request.

use crate::base::{RequestIx, SessionIx};
use crate::engine::{Done, Input, Output, Tokens};
use crate::node::worker::patience::Wait;
use crate::node::worker::{Work, WorkerNode};
use crate::node::{Exchange, NodeOutput, Progress, Refusal};
use crate::protocol::{AdmitAnswer, ErrorClass, Finish, Phases};

impl WorkerNode {
    pub(super) fn engine_says(&mut self, output: Output) {
        match output {
            Output::Done(done) => self.done(*done),
            Output::Tokens(tokens) => self.tokens(tokens),
            Output::Reserved { request, tokens } => self.reserved(request, tokens),
            Output::Prefilled { request, cached_tokens, arrived, started } => {
                self.prefilled(request, cached_tokens, (arrived, started));
            }
            Output::Silent { request, output_tokens, .. } => self.silent(request, output_tokens),
            // The client is not told; the name goes with the next sweep.
            Output::SessionDropped { .. } => {}
            Output::Opened { call, result } => {
                let exchange = Exchange(call.0);
                self.answer_call(exchange, |node, session| match result {
                    Ok(_) => NodeOutput::Opened { exchange, session: node.names.name(session) },
                    Err(error) => {
                        let status = error.status.unwrap_or(400);
                        NodeOutput::Refused { exchange, refusal: Refusal { status, message: error.message } }
                    }
                });
            }
            Output::Admission { call, answer } => {
                let exchange = Exchange(call.0);
                self.answer_call(exchange, |node, _| node.admission(exchange, &answer));
            }
        }
    }

    /// Answers a call whose client still waits.
    fn answer_call(&mut self, exchange: Exchange, answer: impl FnOnce(&WorkerNode, SessionIx) -> NodeOutput) {
        if let Some(session) = self.calls.remove(&exchange) {
            let answer = answer(self, session);
            self.emit(answer);
        }
    }

    fn admission(&self, exchange: Exchange, answer: &AdmitAnswer) -> NodeOutput {
        NodeOutput::Admission {
            exchange,
            reason: answer.reason,
            available_tokens: answer.available_tokens,
            capacity_tokens: answer.capacity_tokens,
            evicted: answer.evicted.iter().map(|session| self.names.name(*session)).collect(),
        }
    }

    fn tokens(&mut self, tokens: Tokens) {
        if let Some(work) = self.works.get_mut(&tokens.request) {
            work.hear(tokens.prompt_tokens, tokens.cached_tokens);
            let progress = work.progress(tokens.output_tokens);
            self.emit(NodeOutput::Progress(progress));
        }
    }

    /// The stream goes quiet behind these tokens. The engine keeps what it holds until somebody aborts it.
    fn silent(&mut self, request: RequestIx, output_tokens: u32) {
        let Some(work) = self.works.get_mut(&request) else { return };
        work.hangs = true;
        let exchange = work.exchange;
        if output_tokens > work.told {
            let progress = work.progress(output_tokens);
            self.outputs.push_back(NodeOutput::Progress(progress));
        }
        self.emit(NodeOutput::Hangs(exchange));
    }

    fn done(&mut self, done: Done) {
        let Some(mut work) = self.end(done.request, &done.finish) else { return };
        let aborted_unknown = matches!(&done.finish, Finish::Abort { class: ErrorClass::SessionNotFound, .. });
        // SGLang puts one token in the place of a prompt it cannot append.
        work.hear(if aborted_unknown { 1 } else { done.prompt_tokens }, done.cached_tokens);
        let exchange = work.exchange;
        if let Finish::Error { message, .. } = done.finish {
            let refusal = Refusal { status: done.http_status, message };
            self.emit(NodeOutput::Refused { exchange, refusal });
        } else {
            let (phases, last) = (work.phases(&done), work.progress(done.output_tokens));
            self.finished(work, done.finish, last, phases, done.retractions);
        }
    }

    /// Ends a request from outside the engine with a word inside the 200 answer.
    pub(super) fn abort(&mut self, request: RequestIx, finish: Finish) {
        let Some(mut work) = self.end(request, &finish) else { return };
        self.forget_in_engine(request, &work);
        let (last, phases) = (work.progress(work.told), work.handed_phases());
        self.finished(work, finish, last, phases, 0);
    }

    /// The same with a status.
    pub(super) fn refuse(&mut self, request: RequestIx, refusal: Refusal) {
        let finish = Finish::Error { class: ErrorClass::ServerError, message: refusal.message.clone() };
        let Some(work) = self.end(request, &finish) else { return };
        self.forget_in_engine(request, &work);
        self.emit(NodeOutput::Refused { exchange: work.exchange, refusal });
    }

    /// The same without a word: nobody listens.
    pub(super) fn drop_request(&mut self, request: RequestIx) {
        let message = "the client of the other leg has gone".to_owned();
        let gone = Finish::Error { class: ErrorClass::ConnectionClosed, message };
        if let Some(work) = self.end(request, &gone) {
            self.forget_in_engine(request, &work);
        }
    }

    pub(super) fn finished(&mut self, work: Work, finish: Finish, last: Progress, phases: Phases, retractions: u16) {
        let prefill_worker = work.over.map(|(over, _)| over.worker);
        let exchange = work.exchange;
        self.emit(NodeOutput::Finished { exchange, finish, last, phases, prefill_worker, retractions });
    }

    /// Takes a request out of the books; what the other leg is owed is told.
    pub(super) fn end(&mut self, request: RequestIx, finish: &Finish) -> Option<Work> {
        let work = self.works.remove(&request)?;
        self.generates.remove(&work.exchange);
        self.names.forget_rid(request);
        self.patience.call_off(Wait::Kv(request));
        self.aborted += u64::from(matches!(finish, Finish::Abort { .. }));
        self.stop_pulling(&work);
        if let Some(bootstrap) = &work.bootstrap {
            self.lose_leg(bootstrap.room, request, finish);
        }
        Some(work)
    }

    fn forget_in_engine(&mut self, request: RequestIx, work: &Work) {
        if work.job.is_none() {
            self.feed(Input::Abort(request));
        }
    }
}

impl Work {
    fn hear(&mut self, prompt_tokens: u32, cached_tokens: u32) {
        self.prompt_tokens = prompt_tokens;
        // As in virtual time: P computed what was handed over, so P says what of it was cached.
        self.cached_tokens = self.over.as_ref().map_or(cached_tokens, |(over, _)| over.cached_tokens);
    }

    /// The answer up to `completion_tokens`, from where the client was told last.
    pub(super) fn progress(&mut self, completion_tokens: u32) -> Progress {
        let new_ids = self.answer.range(self.told, completion_tokens).collect();
        self.told = completion_tokens.max(self.told);
        Progress {
            exchange: self.exchange,
            new_ids,
            completion_tokens: self.told,
            prompt_tokens: self.prompt_tokens,
            cached_tokens: self.cached_tokens,
        }
    }

    /// As in virtual time: with a hand-over the phases are P's and the waits on both sides of the transfer.
    fn phases(&self, done: &Done) -> Phases {
        match &self.over {
            Some((over, arrived)) => Phases {
                decode_queue: done.first_token.map(|first| over.wait + first.since(*arrived)),
                ..self.handed_phases()
            },
            None => Phases {
                prefill_queue: done.prefill_started.map(|started| started.since(done.arrived)),
                prefill: done.prefill_started.zip(done.prefill_ended).map(|(from, to)| to.since(from)),
                kv_transfer: None,
                decode_queue: None,
            },
        }
    }

    fn handed_phases(&self) -> Phases {
        self.over.as_ref().map_or(Phases::default(), |(over, _)| Phases {
            prefill_queue: Some(over.prefill_queue),
            prefill: Some(over.prefill),
            kv_transfer: Some(over.transfer),
            decode_queue: None,
        })
    }
}
