//! Requests and control calls.

use crate::base::{RequestIx, SessionIx, WorkerId};
use crate::kv::BlockPath;

/// Number of a control call, unique in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// What a client does to a cluster.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// POST `/generate`.
    Generate(Generate),
    /// POST `/open_session` on a decode worker.
    OpenSession {
        /// Call number, answered by [`super::Event::Opened`].
        call: CallId,
        /// Worker asked.
        worker: WorkerId,
        /// Session to open.
        session: SessionIx,
    },
    /// POST `/close_session`; always succeeds, also for an unknown session. Not answered.
    CloseSession {
        /// Worker asked.
        worker: WorkerId,
        /// Session to close.
        session: SessionIx,
    },
    /// POST `/session_cache/admit_direct_append` (or its seed form) on a decode worker.
    Admit {
        /// Call number, answered by [`super::Event::Admission`].
        call: CallId,
        /// Worker asked.
        worker: WorkerId,
        /// The question.
        ask: AdmitAsk,
    },
    /// Gives a request up: the client closes the stream. Its [`super::Event::Finished`] follows at once, with what had
    /// arrived by then.
    Abort {
        /// The request.
        request: RequestIx,
    },
    /// GET `/v1/loads` on every worker; answered by one [`super::Event::Loads`].
    PollLoads,
}

/// One generation request.
#[derive(Debug, Clone, PartialEq)]
pub struct Generate {
    /// Planned request it serves.
    pub request: RequestIx,
    /// Session of the request.
    pub session: SessionIx,
    /// Where it is posted.
    pub route: Route,
    /// The body carries `session_params`: the decode worker must hold the session.
    pub session_params: bool,
    /// Full blocks of the whole prompt.
    pub prompt: BlockPath,
    /// Full blocks of prompt and answer, what a cache may keep afterwards.
    pub context: BlockPath,
    /// Tokens of the whole prompt.
    pub input_tokens: u32,
    /// Tokens in the body: the append when it goes direct to a session, else the whole prompt.
    pub shipped_tokens: u32,
    /// Answer tokens asked for (`max_new_tokens`, end-of-text ignored).
    pub output_tokens: u32,
}

/// Where a request is posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// Straight to one worker.
    Worker(WorkerId),
    /// To the PD router, with this routing header.
    Router(RoutingHeader),
}

/// Routing header of a request to the PD router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoutingHeader {
    /// None: the router decides alone.
    None,
    /// `x-smg-routing-key: <session>`.
    RoutingKey(SessionIx),
    /// `x-smg-target-worker: <0-based index>`.
    TargetWorker(u16),
    /// `x-smg-target-worker` for the answering worker and `x-pdreplay-target-prefill` for P, 0-based indices. The second
    /// is our own: only our router and the direct legs know it.
    TargetLegs {
        /// Prefill worker.
        prefill: u16,
        /// Decode worker.
        decode: u16,
    },
}

/// Question to a decode worker: is there room?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdmitAsk {
    /// Session it is about.
    pub session: SessionIx,
    /// Append to the resident session, or seed a new one.
    pub kind: AdmitKind,
    /// Prompt tokens to add.
    pub append_tokens: u32,
    /// Answer tokens to add.
    pub output_tokens: u32,
}

/// What admission is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdmitKind {
    /// Append to a session the worker holds.
    Append,
    /// Bring a session the worker does not hold.
    Seed,
}

/// A decode worker's answer to [`AdmitAsk`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdmitAnswer {
    /// There is room (after evictions, if any).
    pub can_admit: bool,
    /// Why, or why not.
    pub reason: AdmitReason,
    /// Free and evictable tokens after this answer.
    pub available_tokens: u64,
    /// Tokens of the pool.
    pub capacity_tokens: u64,
    /// Idle sessions it trimmed to make room, least recently used first.
    pub evicted: Vec<SessionIx>,
    /// Process identity of the worker: it grows with each restart.
    pub incarnation: u32,
}

/// Reason of an admission answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AdmitReason {
    /// Room without eviction.
    Fits,
    /// Room after trimming idle sessions.
    FitsAfterTrim,
    /// No room, and no idle session left to trim.
    NoCapacity,
    /// The worker holds no such session.
    SessionNotFound,
    /// The session has a request in flight.
    SessionBusy,
}

impl AdmitReason {
    /// Every reason.
    pub const ALL: [AdmitReason; 5] = [
        AdmitReason::Fits,
        AdmitReason::FitsAfterTrim,
        AdmitReason::NoCapacity,
        AdmitReason::SessionNotFound,
        AdmitReason::SessionBusy,
    ];

    /// Stable kebab-case label.
    pub fn as_str(self) -> &'static str {
        match self {
            AdmitReason::Fits => "fits",
            AdmitReason::FitsAfterTrim => "fits-after-trim",
            AdmitReason::NoCapacity => "no-capacity",
            AdmitReason::SessionNotFound => "session-not-found",
            AdmitReason::SessionBusy => "session-busy",
        }
    }
}

/// A control call that got no proper answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallError {
    /// HTTP status, when there was one.
    pub status: Option<u16>,
    /// The server's words, or the transport's.
    pub message: String,
}
