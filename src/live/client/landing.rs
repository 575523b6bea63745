//! What is known of a request on its way and at its end: where it went, what the legs said, who served it.
//!
//! Owned outside the task's own future, so that a request that is given up tells what had come.

use std::time::Duration;

use reqwest::header::HeaderMap;

use crate::base::{Dur, Role, WorkerId};
use crate::live::ServedBy;
use crate::live::api::{INCARNATION_HEADER, PREFILL_HEADER, WORKER_HEADER};
use crate::live::client::leg::LegEnd;
use crate::live::client::line::Line;
use crate::protocol::{Answer, Finish, Generate, Phases};

/// Where it went and what the legs said.
#[derive(Debug, Default)]
pub(super) struct Landing {
    pub end: LegEnd,
    pub prefill: Option<WorkerId>,
    pub decode: Option<WorkerId>,
    /// From send to the end of the prefill leg.
    pub prefill_leg: Option<Dur>,
}

/// How far a request is: what is lost with its task, unless it is kept here.
#[derive(Debug, Default)]
pub(super) struct Course {
    /// Of the last attempt.
    pub landing: Landing,
    /// Times it was sent.
    pub attempts: u16,
    /// Between the attempts.
    pub waited: Duration,
}

impl Course {
    /// It is sent, again if it was: what the attempt before left is done with.
    pub fn send(&mut self) {
        self.attempts += 1;
        self.landing = Landing::default();
    }

    /// The answer as it is, to the end or not; and the leg whose connection may be kept.
    pub fn answer(self, line: &Line, generate: &Generate) -> (Answer, LegEnd) {
        let Course { landing, attempts, waited } = self;
        let decode_worker = landing.served_by(line);
        let prefill_worker = landing.prefilled_by(line);
        let phases = landing.phases();
        let mut end = landing.end;
        let tally = std::mem::take(&mut end.tally);
        // An abort may tell of another prompt than the one it was sent.
        if let Some(Finish::Length | Finish::Stop) = &end.finish {
            let (counted, cached) = (tally.prompt_tokens, tally.cached_tokens);
            line.observed.prompt(line.target.dialect, generate.input_tokens, counted, cached);
            line.observed.answer(tally.tokens, tally.counting());
        }
        let named = tally.emulated.as_ref().map(|emulated| emulated.incarnation.to_string());
        let raw = text(&end.head, INCARNATION_HEADER).map(str::to_owned).or(named);
        let echo = &line.target.header.echo_name;
        if let Some(value) = end.head.get(echo.as_str()).filter(|_| !echo.is_empty()) {
            line.keep_echo(generate.session, value.clone());
        }
        let answer = Answer {
            request: generate.request,
            finish: end.finish.take().unwrap_or_else(Finish::given_up),
            http_status: end.status,
            prefill_worker,
            decode_worker,
            incarnation: decode_worker.zip(raw).map(|(worker, raw)| line.incarnation(worker, Some(&raw))),
            cached_tokens: tally.cached_tokens,
            output_tokens: tally.tokens,
            first_token_at: tally.first,
            last_token_at: tally.last,
            phases,
            retractions: tally.retractions,
            token_runs: tally.runs,
            attempts,
            retry_wait: line.clock.of_wall(waited),
        };
        (answer, end)
    }
}

impl Landing {
    /// The decode or colocated worker: who was posted to; through a router, the first word that names one.
    pub fn served_by(&self, line: &Line) -> Option<WorkerId> {
        if self.decode.is_some() {
            return self.decode;
        }
        let addresses = &line.target.addresses;
        let header = &line.target.served_by.header;
        let header = if header.is_empty() { None } else { text(&self.end.head, header) };
        let emulated = self.end.tally.emulated.as_ref().map(|emulated| emulated.worker.as_str());
        let (pointed, own_header) = (self.pointed(line), text(&self.end.head, WORKER_HEADER));
        let said = ServedBy { header, pointed: pointed.as_deref(), own_header, emulated };
        let mut named = said.words().filter_map(|word| addresses.named(word));
        named.find(|worker| worker.role != Role::Prefill)
    }

    /// The worker that served it by the target's own word, where that is none of ours. A request that was posted to a
    /// worker itself is that worker's, whoever may be behind it.
    pub fn stranger(&self, line: &Line) -> Option<String> {
        if self.decode.is_some() {
            return None;
        }
        let header = &line.target.served_by.header;
        let header = if header.is_empty() { None } else { text(&self.end.head, header) };
        let named = header.map(str::to_owned).or_else(|| self.pointed(line)).filter(|name| !name.is_empty())?;
        let emulated = text(&self.end.head, WORKER_HEADER);
        let is_ours = |name: &str| line.target.addresses.named(name).is_some();
        (!is_ours(&named) && !emulated.is_some_and(is_ours)).then_some(named)
    }

    fn pointed(&self, line: &Line) -> Option<String> {
        self.end.pointed(&line.target.served_by.pointer)
    }

    fn prefilled_by(&self, line: &Line) -> Option<WorkerId> {
        if self.prefill.is_some() {
            return self.prefill;
        }
        let emulated = self.end.tally.emulated.as_ref().and_then(|emulated| emulated.prefill_worker.as_deref());
        let words = [text(&self.end.head, PREFILL_HEADER), emulated];
        let mut named = words.into_iter().flatten().filter_map(|word| line.target.addresses.named(word));
        named.find(|worker| worker.role == Role::Prefill)
    }

    /// An emulated worker tells them. Of a real P that the client posted to, all it knows is when its leg ended: queue,
    /// prefill and transfer in one, told as prefill.
    fn phases(&self) -> Phases {
        match &self.end.tally.emulated {
            Some(emulated) => Phases {
                prefill_queue: emulated.prefill_queue_ns.map(Dur),
                prefill: emulated.prefill_ns.map(Dur),
                kv_transfer: emulated.kv_transfer_ns.map(Dur),
                decode_queue: emulated.decode_queue_ns.map(Dur),
            },
            None => Phases { prefill: self.prefill_leg, ..Phases::default() },
        }
    }
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}
