//! [`LedgerEvent`]: one line of `events.jsonl`, what happened beside the requests.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::record::labels::labels;

labels! {
    /// Kind of a ledger line.
    LedgerKind {
        /// `open_session` answered.
        SessionOpened = "session-opened",
        /// `open_session` refused or failed.
        SessionOpenFailed = "session-open-failed",
        /// `close_session` sent.
        SessionClosed = "session-closed",
        /// A worker trimmed a session, by its own word.
        SessionTrimmed = "session-trimmed",
        /// A worker dropped an idle session: `admission`, `pressure` or `idle-timeout`. From the emulated worker's own log:
        /// the replayer learns of it later, or never.
        WorkerDroppedSession = "worker-dropped-session",
        /// The replayer dropped an idle session to free a slot.
        SessionReleased = "session-released",
        /// A belief about residency was wrong; corrected by a worker's word.
        BeliefCorrected = "belief-corrected",
        /// A session moved to another worker.
        SessionMigrated = "session-migrated",
        /// Admission answered yes.
        AdmissionGranted = "admission-granted",
        /// Admission answered no.
        AdmissionRejected = "admission-rejected",
        /// Admission call failed.
        AdmissionFailed = "admission-failed",
        /// A turn's KV had to be placed again.
        Reseed = "reseed",
        /// A request was served by another worker than intended.
        RouteMismatch = "route-mismatch",
        /// The values of the target header were found anew: which index reaches which D.
        RouteMapChanged = "route-map-changed",
        /// A request was served by a worker that is none of the run's.
        UnlistedWorker = "unlisted-worker",
        /// Discovery saw a worker come up or restart.
        WorkerUp = "worker-up",
        /// Discovery saw a worker go down.
        WorkerDown = "worker-down",
        /// Discovery saw a worker leave.
        WorkerGone = "worker-gone",
        /// Turns that are due wait for a slot of `concurrency` or `max_sessions`.
        BackpressureBegan = "backpressure-began",
        /// None waits any more.
        BackpressureEnded = "backpressure-ended",
        /// A scheduled fault struck.
        Fault = "fault",
        /// Policy `car` chose, or found nobody: every candidate with its numbers.
        CarChoice = "car-choice",
        /// Streams of the KV index are not in step some time after the start.
        IndexNotInStep = "index-not-in-step",
        /// A stream of KV events came in step with its publisher, or lost its place, and why.
        KvStream = "kv-stream",
    }
}

/// One line of `events.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LedgerEvent {
    /// When, since the start of the run.
    pub at_ns: u64,
    /// What.
    pub kind: LedgerKind,
    /// Session it concerns.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub session_id: Option<String>,
    /// Turn it concerns.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub turn_id: Option<u32>,
    /// Worker it concerns.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub worker: Option<String>,
    /// Reason label or the server's words.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub detail: Option<String>,
    /// Candidates of a `car-choice`.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub candidates: Vec<CandidateScore>,
}

/// A worker as policy `car` weighed it. What does not apply to its leg is left out.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct CandidateScore {
    /// Its name.
    pub worker: String,
    /// Its cost; the least wins. Left out for a worker that was no candidate.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cost: Option<f64>,
    /// Requests waiting on it, as it reported and as were sent since.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub waiting: Option<u64>,
    /// Share of its KV pool in use (D).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cache_usage: Option<f64>,
    /// Worth of the index's hits over the prompt, 0 to 1 (P, colocated).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hit_ratio: Option<f64>,
    /// Prompt tokens the index saw on its device.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub device_tokens: Option<u32>,
    /// Prompt tokens the index saw on its host only.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub host_only_tokens: Option<u32>,
    /// How well the index saw it: `synchronized`, `no-stream`, `not-synchronized`, `other-process` or `static-stream`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub index: Option<String>,
    /// Why it was no candidate: `down`, `no-load-report`, `invalid-load-report` or `avoided`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub excluded: Option<String>,
}
