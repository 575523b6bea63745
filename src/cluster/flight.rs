//! A generate request on its way through the cluster: which legs it has, and what each has done.

use crate::base::{Dur, Role, Time};
use crate::cluster::site::Site;
use crate::engine::Done;
use crate::protocol::{Answer, ErrorClass, Finish, Generate, Phases, Route, TokenRun};

/// Places are indices into the cluster's sites.
#[derive(Debug)]
pub(super) struct Flight {
    pub generate: Generate,
    /// Prefill leg.
    pub prefill: Option<usize>,
    /// Decode, direct or colocated leg.
    pub decode: Option<usize>,
    pub prefilled: Option<Prefilled>,
    /// Prompt tokens the decode worker wants sent, once it has reserved room.
    pub reserved: Option<u32>,
    pub transfer: Transfer,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Prefilled {
    pub at: Time,
    pub cached_tokens: u32,
    pub arrived: Time,
    pub started: Time,
}

/// Where the KV of a P/D request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transfer {
    /// On P, or not computed.
    Waiting,
    /// On the link, or failing on it, since then.
    Moving(Time),
    /// On D.
    Arrived {
        /// Start of the transfer, its set-up included.
        started: Time,
        /// Its end.
        arrived: Time,
    },
}

impl Flight {
    pub fn new(generate: Generate, prefill: Option<usize>, decode: Option<usize>) -> Flight {
        Flight { generate, prefill, decode, prefilled: None, reserved: None, transfer: Transfer::Waiting }
    }

    /// Messages from the worker back to the client: two by way of the router.
    pub fn hops_back(&self) -> u64 {
        match self.generate.route {
            Route::Worker(_) => 1,
            Route::Router(_) => 2,
        }
    }

    /// The prefill worker holds something for this request.
    pub fn prefill_open(&self) -> bool {
        self.prefill.is_some() && !matches!(self.transfer, Transfer::Arrived { .. })
    }

    /// The client's answer from the decode side's end; `delay` is the way back.
    pub fn answer(&self, done: Done, sites: &[Site], delay: Dur) -> Answer {
        let sent = |at: Option<Time>| at.map(|at| at + delay);
        let phases = self.phases(&done);
        let runs = done.runs.into_iter().map(|run| TokenRun { first: run.first + delay, ..run }).collect();
        // Who computed the prompt says what of it was cached; what D had of it is only not sent.
        let cached_tokens = self.prefilled.map_or(done.cached_tokens, |prefilled| prefilled.cached_tokens);
        Answer {
            request: self.generate.request,
            finish: done.finish,
            http_status: Some(done.http_status),
            prefill_worker: self.prefill.map(|at| sites[at].id),
            decode_worker: self.decode.map(|at| sites[at].id),
            incarnation: self.decode.map(|at| sites[at].incarnation),
            cached_tokens: Some(cached_tokens),
            output_tokens: done.output_tokens,
            first_token_at: sent(done.first_token),
            last_token_at: sent(done.last_token),
            phases,
            retractions: done.retractions,
            token_runs: runs,
            attempts: 1,
            retry_wait: Dur::ZERO,
        }
    }

    /// The client's answer when no worker's word ends it.
    pub fn failed(&self, sites: &[Site], class: ErrorClass, status: Option<u16>, message: String) -> Answer {
        Answer {
            request: self.generate.request,
            finish: Finish::Error { class, message },
            http_status: status,
            prefill_worker: self.prefill.map(|at| sites[at].id),
            decode_worker: self.decode.map(|at| sites[at].id),
            incarnation: None,
            cached_tokens: self.prefilled.map(|prefilled| prefilled.cached_tokens),
            output_tokens: 0,
            first_token_at: None,
            last_token_at: None,
            phases: self.prefilled.map_or(Phases::default(), |prefilled| self.prefill_phases(prefilled)),
            retractions: 0,
            token_runs: Vec::new(),
            attempts: 1,
            retry_wait: Dur::ZERO,
        }
    }

    fn phases(&self, done: &Done) -> Phases {
        match (self.prefilled, self.transfer) {
            (Some(prefilled), Transfer::Arrived { started, arrived }) => Phases {
                kv_transfer: Some(arrived.since(started)),
                decode_queue: done.first_token.map(|first| started.since(prefilled.at) + first.since(arrived)),
                ..self.prefill_phases(prefilled)
            },
            (Some(prefilled), Transfer::Waiting | Transfer::Moving(_)) => self.prefill_phases(prefilled),
            (None, _) => Phases {
                prefill_queue: done.prefill_started.map(|started| started.since(done.arrived)),
                prefill: done.prefill_started.zip(done.prefill_ended).map(|(from, to)| to.since(from)),
                kv_transfer: None,
                decode_queue: None,
            },
        }
    }

    fn prefill_phases(&self, prefilled: Prefilled) -> Phases {
        Phases {
            prefill_queue: Some(prefilled.started.since(prefilled.arrived)),
            prefill: Some(prefilled.at.since(prefilled.started)),
            kv_transfer: None,
            decode_queue: None,
        }
    }
}

/// Label of a role in records.
pub(super) fn role_label(role: Role) -> &'static str {
    match role {
        Role::Prefill => "prefill",
        Role::Decode => "decode",
        Role::Colocated => "colocated",
    }
}
