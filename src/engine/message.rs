//! What reaches a worker and what leaves it.

use crate::base::{Dur, Names, RequestIx, SessionIx, Time};
use crate::engine::job::{Done, Job};
use crate::kv::BlockTree;
use crate::protocol::{AdmitAnswer, AdmitAsk, CallError, CallId};

/// What a step of the machine may look at.
#[derive(Clone, Copy)]
pub struct Cx<'a> {
    /// Now.
    pub now: Time,
    /// Blocks of the trace.
    pub tree: &'a BlockTree,
    /// What clients call sessions and requests, for messages.
    pub names: &'a dyn Names,
}

impl Cx<'_> {
    /// The id a client knows a session by.
    pub fn session_id(&self, session: SessionIx) -> String {
        self.names.session(session).map_or_else(|| session.0.to_string(), str::to_owned)
    }

    /// The id a client knows a request by.
    pub fn request_id(&self, request: RequestIx) -> String {
        self.names.request(request).map_or_else(|| request.0.to_string(), str::to_owned)
    }
}

/// What reaches a worker.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// A request to prefill here: colocated, straight to a session, or the prefill leg.
    Generate(Job),
    /// The decode leg of a request: reserve room for KV that a prefill worker will send.
    Reserve(Job),
    /// Decode: the KV of a reserved request is there.
    KvArrived(RequestIx),
    /// Prefill: the KV of a prefilled request has left.
    KvSent(RequestIx),
    /// Drop a request wherever it is.
    Abort(RequestIx),
    /// `/open_session`.
    Open {
        /// Call number.
        call: CallId,
        /// Session.
        session: SessionIx,
        /// Idle time-out of this session; without it, the worker's own.
        idle_timeout: Option<Dur>,
    },
    /// `/close_session`.
    Close(SessionIx),
    /// `/session_cache/admit_direct_append`.
    Admit {
        /// Call number.
        call: CallId,
        /// Question.
        ask: AdmitAsk,
    },
}

/// What leaves a worker, each at its own time.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// A request ended here.
    Done(Box<Done>),
    /// Tokens left and more will follow; only from a worker that streams ([`crate::engine::Worker::stream_tokens`]).
    Tokens(Tokens),
    /// Decode: room is reserved; this many prompt tokens are wanted.
    Reserved {
        /// Which.
        request: RequestIx,
        /// Prompt tokens the worker lacks.
        tokens: u32,
    },
    /// Prefill: the KV is computed and held.
    Prefilled {
        /// Which.
        request: RequestIx,
        /// Prompt tokens found in the cache.
        cached_tokens: u32,
        /// Entered the queue.
        arrived: Time,
        /// Start of the prefill.
        started: Time,
    },
    /// A stream went quiet: no token will follow.
    Silent {
        /// Which.
        request: RequestIx,
        /// Last token, or now.
        since: Time,
        /// Tokens so far.
        output_tokens: u32,
    },
    /// An idle session was dropped; its client is not told.
    SessionDropped {
        /// The session.
        session: SessionIx,
        /// Why.
        reason: DropReason,
    },
    /// Answer to [`Input::Open`].
    Opened {
        /// Call number.
        call: CallId,
        /// Incarnation, or the refusal.
        result: Result<u32, CallError>,
    },
    /// Answer to [`Input::Admit`].
    Admission {
        /// Call number.
        call: CallId,
        /// The answer.
        answer: AdmitAnswer,
    },
}

/// How far the answer of a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tokens {
    /// Which.
    pub request: RequestIx,
    /// Tokens of the whole prompt.
    pub prompt_tokens: u32,
    /// Those of them found here.
    pub cached_tokens: u32,
    /// Answer tokens so far.
    pub output_tokens: u32,
}

/// Why a worker dropped an idle session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropReason {
    /// An admission call made room.
    Admission,
    /// A reservation made room.
    Pressure,
    /// It was idle for too long.
    IdleTimeout,
}

impl DropReason {
    /// Stable label.
    pub fn as_str(self) -> &'static str {
        match self {
            DropReason::Admission => "admission",
            DropReason::Pressure => "pressure",
            DropReason::IdleTimeout => "idle-timeout",
        }
    }
}
