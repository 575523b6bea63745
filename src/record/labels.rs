//! Closed sets with stable labels: execution mode, its reason, outcome.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Declares an enum whose labels are the kebab-case strings of the records.
macro_rules! labels {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $label:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        pub enum $name {
            $($(#[$doc])* #[serde(rename = $label)] $variant,)+
        }

        impl $name {
            /// Every value, in the order of the tables.
            pub const ALL: &'static [$name] = &[$($name::$variant,)+];

            /// Stable label, as written in records and tables.
            pub fn as_str(self) -> &'static str {
                match self {
                    $($name::$variant => $label,)+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}
pub(crate) use labels;

labels! {
    /// The path a request took; exactly one per request.
    ExecutionMode {
        /// A colocated worker did both legs (`dp`).
        DpColocated = "dp-colocated",
        /// Plain P → transfer → D (`pd`).
        PdRouter = "pd-router",
        /// First turn of a session under `kvc`: the plain path.
        PdRouterTurn1 = "pd-router-turn1",
        /// First placement of a session's KV on a D through P.
        KvcacheSeed = "kvcache-seed",
        /// Straight to the D that holds the session; only the append is prefilled.
        KvcacheDirectToDSession = "kvcache-direct-to-d-session",
        /// Placement of a session's KV again, after the D lost it or cannot append.
        KvcacheReseed = "kvcache-reseed",
        /// Plain path: the soft cap left no slot.
        FallbackSessionCap = "pd-router-fallback-large-append-session-cap",
        /// Plain path: no D capacity for a seed.
        FallbackNoCapacity = "pd-router-fallback-large-append-no-capacity",
        /// Plain path: the D refused the append of a resident session.
        FallbackAdmissionRejected = "pd-router-fallback-admission-rejected",
        /// Plain path: the chosen D was down.
        FallbackWorkerUnhealthy = "pd-router-fallback-worker-unhealthy",
        /// Plain path: the session could not be opened.
        FallbackOpenFailed = "pd-router-fallback-open-failed",
        /// Never sent: skipped or cancelled before any path was chosen.
        NotSent = "not-sent",
    }
}

labels! {
    /// Why the request took its [`ExecutionMode`].
    ModeReason {
        /// The mechanism knows one path only.
        Mechanism = "mechanism",
        /// First turn present in the trace.
        FirstTurn = "first-turn",
        /// Resident session, append admitted.
        Admitted = "admitted",
        /// Resident session, append admitted after the D trimmed idle sessions.
        AdmittedAfterTrim = "admitted-after-trim",
        /// The session never had KV on a D.
        NeverSeeded = "never-seeded",
        /// The policy chose another D than the one that holds the session.
        OtherWorkerChosen = "other-worker-chosen",
        /// The append exceeds `direct_append_max_tokens`.
        AppendTooLarge = "append-too-large",
        /// The prompt does not continue what the session holds (context compaction).
        ContextCompacted = "context-compacted",
        /// The D trimmed the session to make room.
        EvictedTrim = "evicted-trim",
        /// The D or the replayer dropped the idle session.
        EvictedIdle = "evicted-idle",
        /// The D restarted.
        WorkerRestarted = "worker-restarted",
        /// The D left the cluster or is down.
        WorkerGone = "worker-gone",
        /// The previous turn failed, its KV is taken as lost.
        PreviousTurnFailed = "previous-turn-failed",
        /// The D did not know the session.
        SessionNotFound = "session-not-found",
        /// The session has a turn in flight.
        SessionBusy = "session-busy",
        /// No free slot under the soft cap.
        SessionCap = "session-cap",
        /// The pool has no room.
        NoCapacity = "no-capacity",
        /// The admission call failed or timed out.
        AdmissionFailed = "admission-failed",
        /// `open_session` failed on every placement tried.
        OpenFailed = "open-failed",
        /// A limit of the client ran out while `open_session` was unanswered.
        OpenTimedOut = "open-timed-out",
        /// The chosen worker is down.
        WorkerDown = "worker-down",
        /// An earlier turn failed and the session was stopped.
        SessionStopped = "session-stopped",
        /// The run was stopped or interrupted.
        RunStopped = "run-stopped",
    }
}

labels! {
    /// How a request ended. `planned` is the sum over all of them.
    Outcome {
        /// All tokens asked for.
        Ok = "ok",
        /// Fewer tokens than asked for, the engine's abort after the first token included.
        Truncated = "truncated",
        /// The engine gave it up before the first token.
        Aborted = "aborted",
        /// Refused, or the transport broke.
        Error = "error",
        /// A client limit ran out.
        Timeout = "timeout",
        /// In flight when the run was stopped.
        Cancelled = "cancelled",
        /// Never sent.
        Skipped = "skipped",
    }
}

labels! {
    /// How well the KV index saw the worker whose cache a policy weighed.
    IndexSight {
        /// Every rank's stream was in step.
        Synchronized = "synchronized",
        /// There was no stream of the worker, or of one of its ranks.
        NoStream = "no-stream",
        /// A stream was not in step.
        NotSynchronized = "not-synchronized",
        /// A stream was of another process than the one that serves.
        OtherProcess = "other-process",
        /// A stream was listed by hand, so that nothing tells whose it is.
        StaticStream = "static-stream",
    }
}

impl ExecutionMode {
    /// A fallback: the session mechanism was wanted but the plain path was taken.
    pub fn is_fallback(self) -> bool {
        match self {
            ExecutionMode::FallbackSessionCap
            | ExecutionMode::FallbackNoCapacity
            | ExecutionMode::FallbackAdmissionRejected
            | ExecutionMode::FallbackWorkerUnhealthy
            | ExecutionMode::FallbackOpenFailed => true,
            ExecutionMode::DpColocated
            | ExecutionMode::PdRouter
            | ExecutionMode::PdRouterTurn1
            | ExecutionMode::KvcacheSeed
            | ExecutionMode::KvcacheDirectToDSession
            | ExecutionMode::KvcacheReseed
            | ExecutionMode::NotSent => false,
        }
    }
}

impl Outcome {
    /// Counts as completed.
    pub fn is_ok(self) -> bool {
        self == Outcome::Ok
    }
}
