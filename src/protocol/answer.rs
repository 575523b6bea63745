//! Answers and notices of a cluster.

use crate::base::{Dur, RequestIx, Time, WorkerId};
use crate::protocol::{AdmitAnswer, CallError, CallId};

/// What a cluster tells its client.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A generate request, or a call, began to go out: a connection was given it, or begun for it. Told once, of the first
    /// send, by clusters that are really sent to.
    Sent {
        /// What.
        what: Outgoing,
        /// When.
        at: Time,
    },
    /// Answer to [`super::Action::OpenSession`]: the worker's incarnation, or the refusal.
    Opened {
        /// Call number.
        call: CallId,
        /// Worker asked.
        worker: WorkerId,
        /// Incarnation of the worker, or why not.
        result: Result<u32, CallError>,
    },
    /// Answer to [`super::Action::Admit`].
    Admission {
        /// Call number.
        call: CallId,
        /// Worker asked.
        worker: WorkerId,
        /// The worker's word, or a transport failure or time-out.
        result: Result<AdmitAnswer, CallError>,
    },
    /// A request ended, or was given up: then this is what had arrived, and its verdict says nothing.
    Finished(Box<Answer>),
    /// A stream went quiet without ending: no byte since `since`.
    Silent {
        /// The request.
        request: RequestIx,
        /// Last byte, or the time it was sent.
        since: Time,
    },
    /// Answer to [`super::Action::PollLoads`], one entry per live worker.
    Loads(Vec<LoadReport>),
    /// Discovery noticed a change.
    WorkerChanged {
        /// The worker.
        worker: WorkerId,
        /// Its new state.
        state: WorkerState,
    },
}

/// What goes out, see [`Event::Sent`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outgoing {
    /// [`super::Action::Generate`].
    Request(RequestIx),
    /// [`super::Action::OpenSession`] or [`super::Action::Admit`].
    Call(CallId),
}

/// State of a worker as discovery sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerState {
    /// Serving, as this process identity.
    Up {
        /// Grows with each restart.
        incarnation: u32,
    },
    /// Not answering; may come back.
    Down,
    /// Left the cluster for good.
    Gone,
}

/// Load of one worker (`/v1/loads`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadReport {
    /// The worker.
    pub worker: WorkerId,
    /// Used (running, held by sessions, reserved) tokens over capacity, 0 to 1; what the cache could give up is not used.
    pub token_usage: f64,
    /// Tokens of the pool.
    pub capacity_tokens: u64,
    /// Requests decoding or prefilling.
    pub num_running: u32,
    /// Requests waiting to be prefilled here, retracted ones included.
    pub num_waiting: u32,
    /// Decode legs waiting for room.
    pub num_prealloc: u32,
    /// Decode legs with room, waiting for their KV or to join the batch.
    pub num_transfer: u32,
}

/// How a request ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The request.
    pub request: RequestIx,
    /// The engine's verdict, or the transport's.
    pub finish: Finish,
    /// HTTP status, when there was an answer.
    pub http_status: Option<u16>,
    /// Prefill worker that served it, if any.
    pub prefill_worker: Option<WorkerId>,
    /// Decode or colocated worker that served it, if any.
    pub decode_worker: Option<WorkerId>,
    /// Incarnation of that worker.
    pub incarnation: Option<u32>,
    /// Prompt tokens the server found in its cache (or session); `None` where it said nothing of it.
    pub cached_tokens: Option<u32>,
    /// Answer tokens received.
    pub output_tokens: u32,
    /// Arrival of the first token.
    pub first_token_at: Option<Time>,
    /// Arrival of the last token.
    pub last_token_at: Option<Time>,
    /// Where the time to the first token went.
    pub phases: Phases,
    /// How often the engine threw it out and took it up again.
    pub retractions: u16,
    /// Token arrivals, as runs.
    pub token_runs: Vec<TokenRun>,
    /// Times it was sent; more than 1 only where the client was told to try again, 0 when it was given up before.
    pub attempts: u16,
    /// Time between those that failed and the next.
    pub retry_wait: Dur,
}

impl Answer {
    /// Of a request given up before anything of its answer arrived.
    pub fn unheard(request: RequestIx) -> Answer {
        Answer {
            request,
            finish: Finish::given_up(),
            http_status: None,
            prefill_worker: None,
            decode_worker: None,
            incarnation: None,
            cached_tokens: None,
            output_tokens: 0,
            first_token_at: None,
            last_token_at: None,
            phases: Phases::default(),
            retractions: 0,
            token_runs: Vec::new(),
            attempts: 1,
            retry_wait: Dur::ZERO,
        }
    }

    /// The same with the tokens that had arrived by `now`.
    pub fn until(self, now: Time) -> Answer {
        let Some(last) = self.last_token_at.filter(|last| *last > now) else { return self };
        let token_runs: Vec<TokenRun> = self.token_runs.iter().filter_map(|run| run.until(now)).collect();
        Answer {
            output_tokens: token_runs.iter().map(|run| run.count).sum(),
            first_token_at: token_runs.first().map(|run| run.first),
            last_token_at: token_runs.last().map(|run| run.last().min(last)),
            token_runs,
            ..self
        }
    }
}

/// The end of a request, in the engine's words where it had any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finish {
    /// All tokens asked for (`length`).
    Length,
    /// The model stopped early (`stop`).
    Stop,
    /// The engine gave it up, possibly inside a 200 answer (`abort`).
    Abort {
        /// Class read from the message.
        class: ErrorClass,
        /// The engine's message.
        message: String,
    },
    /// Refused or lost: an HTTP error or a broken transport.
    Error {
        /// Class.
        class: ErrorClass,
        /// The server's or the transport's message.
        message: String,
    },
}

impl Finish {
    /// The client closed the stream itself.
    pub fn given_up() -> Finish {
        Finish::Error { class: ErrorClass::ConnectionClosed, message: "given up by the client".to_owned() }
    }
}

/// Class of a failure, from the engine's words first, then HTTP, then the transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ErrorClass {
    /// `session id X does not exist` on the decode worker.
    SessionNotFound,
    /// The session already has a request in flight.
    SessionBusy,
    /// Refused with 400: prompt and answer exceed the context limit or the pool.
    ContextLimit,
    /// KV transfer gave up waiting.
    KvTransferTimeout,
    /// KV transfer broke.
    KvTransferFailed,
    /// The prefill leg failed.
    PrefillFailed,
    /// No worker eligible (503).
    NoWorker,
    /// Connection refused, or the worker died with the request inside.
    WorkerLost,
    /// The server answered 5xx.
    ServerError,
    /// The server answered 429 or 503 for load.
    Overloaded,
    /// No data for the stall limit.
    Stalled,
    /// Longer than the total limit.
    TotalTimeout,
    /// The answer ended early by itself.
    ShortOutput,
    /// More tokens than were asked for.
    ExcessOutput,
    /// 200 and the end mark, but no token.
    NoOutput,
    /// No connection within the limit.
    ConnectTimeout,
    /// No first token within the limit.
    FirstTokenTimeout,
    /// The connection ended before the answer did.
    ConnectionClosed,
    /// A 200 answer that is not what was asked for: no event stream, broken JSON, an event beyond the size limit.
    BadAnswer,
    /// Refused with another 4xx.
    BadRequest,
    /// Refused with 401 or 403.
    Unauthorized,
}

impl ErrorClass {
    /// Every class.
    pub const ALL: [ErrorClass; 21] = [
        ErrorClass::SessionNotFound,
        ErrorClass::SessionBusy,
        ErrorClass::ContextLimit,
        ErrorClass::KvTransferTimeout,
        ErrorClass::KvTransferFailed,
        ErrorClass::PrefillFailed,
        ErrorClass::NoWorker,
        ErrorClass::WorkerLost,
        ErrorClass::ServerError,
        ErrorClass::Overloaded,
        ErrorClass::Stalled,
        ErrorClass::TotalTimeout,
        ErrorClass::ShortOutput,
        ErrorClass::ExcessOutput,
        ErrorClass::NoOutput,
        ErrorClass::ConnectTimeout,
        ErrorClass::FirstTokenTimeout,
        ErrorClass::ConnectionClosed,
        ErrorClass::BadAnswer,
        ErrorClass::BadRequest,
        ErrorClass::Unauthorized,
    ];

    /// A limit of the client ran out, the server did not refuse.
    pub fn is_timeout(self) -> bool {
        matches!(
            self,
            ErrorClass::Stalled | ErrorClass::TotalTimeout | ErrorClass::ConnectTimeout | ErrorClass::FirstTokenTimeout
        )
    }

    /// Stable kebab-case label.
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorClass::SessionNotFound => "session-not-found",
            ErrorClass::SessionBusy => "session-busy",
            ErrorClass::ContextLimit => "context-limit",
            ErrorClass::KvTransferTimeout => "kv-transfer-timeout",
            ErrorClass::KvTransferFailed => "kv-transfer-failed",
            ErrorClass::PrefillFailed => "prefill-failed",
            ErrorClass::NoWorker => "no-worker",
            ErrorClass::WorkerLost => "worker-lost",
            ErrorClass::ServerError => "server-error",
            ErrorClass::Overloaded => "overloaded",
            ErrorClass::Stalled => "stalled",
            ErrorClass::TotalTimeout => "total-timeout",
            ErrorClass::ShortOutput => "short-output",
            ErrorClass::ExcessOutput => "excess-output",
            ErrorClass::NoOutput => "no-output",
            ErrorClass::ConnectTimeout => "connect-timeout",
            ErrorClass::FirstTokenTimeout => "first-token-timeout",
            ErrorClass::ConnectionClosed => "connection-closed",
            ErrorClass::BadAnswer => "bad-answer",
            ErrorClass::BadRequest => "bad-request",
            ErrorClass::Unauthorized => "unauthorized",
        }
    }
}

/// Where the time to the first token went, as far as the cluster knows. Phases that did not occur are `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Phases {
    /// Arrival at the prefilling worker to the start of its prefill.
    pub prefill_queue: Option<Dur>,
    /// Start to end of the prefill.
    pub prefill: Option<Dur>,
    /// Start of the transfer (room is reserved, the link is being set up) to the KV's full arrival at the decode worker.
    pub kv_transfer: Option<Dur>,
    /// Waits on the decode worker: for room once the prefill is done, and from the KV's arrival to the first token.
    pub decode_queue: Option<Dur>,
}

/// Tokens that arrived at an even step: `count` tokens at `first`, `first + step`, ….
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenRun {
    /// Arrival of the first token of the run.
    pub first: Time,
    /// Mean gap inside the run.
    pub step: Dur,
    /// Number of tokens.
    pub count: u32,
}

impl TokenRun {
    /// Arrival of the last token of the run.
    pub fn last(self) -> Time {
        self.first + Dur(self.step.ns() * u64::from(self.count.saturating_sub(1)))
    }

    /// The part that had arrived by `now`.
    fn until(self, now: Time) -> Option<TokenRun> {
        if self.first > now {
            return None;
        }
        let behind_first = now.since(self.first).ns().checked_div(self.step.ns());
        let arrived = behind_first.map_or(self.count, |steps| u32::try_from(steps + 1).unwrap_or(u32::MAX));
        Some(TokenRun { count: self.count.min(arrived), ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Time {
        Time(ns)
    }

    #[test]
    fn an_answer_is_cut_to_the_tokens_that_had_arrived() {
        let run = |first, step, count| TokenRun { first: at(first), step: Dur(step), count };
        let whole = Answer {
            http_status: Some(200),
            output_tokens: 8,
            first_token_at: Some(at(10)),
            last_token_at: Some(at(42)),
            token_runs: vec![run(10, 0, 3), run(20, 7, 4), run(42, 0, 1)],
            ..Answer::unheard(RequestIx(0))
        };
        let cases = [
            (9, 0, None, None),
            (10, 3, Some(10), Some(10)),
            (19, 3, Some(10), Some(10)),
            (26, 4, Some(10), Some(20)),
            (27, 5, Some(10), Some(27)),
            (41, 7, Some(10), Some(41)),
            (42, 8, Some(10), Some(42)),
            (99, 8, Some(10), Some(42)),
        ];
        for (now, tokens, first, last) in cases {
            let cut = whole.clone().until(at(now));
            assert_eq!((cut.output_tokens, cut.http_status), (tokens, Some(200)), "at {now}");
            assert_eq!((cut.first_token_at, cut.last_token_at), (first.map(at), last.map(at)), "at {now}");
            assert_eq!(cut.token_runs.iter().map(|run| run.count).sum::<u32>(), tokens, "at {now}");
        }
        assert_eq!(whole.clone().until(at(42)), whole);
    }
}
