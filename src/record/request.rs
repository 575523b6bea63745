//! [`RequestRecord`]: the schema of `requests.jsonl` and `requests.parquet`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::record::{ExecutionMode, IndexSight, ModeReason, Outcome};

/// Version of the record; grows when a field changes its meaning or goes away.
pub const SCHEMA_VERSION: u32 = 1;

/// One request: flat, one unit per suffix, `_ns` since the start of the run, null where a value does not apply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RequestRecord {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Name of the run.
    pub run_id: String,
    /// Session id of the trace.
    pub session_id: String,
    /// Turn number of the trace.
    pub turn_id: u32,
    /// Unique in the run: `<session>/<turn>`, with `#<line>` appended where the trace repeats a turn.
    pub request_id: String,
    /// Request id of the trace, if it has one; may repeat.
    pub trace_request_id: Option<String>,
    /// Line in the trace file, 0 for a generated trace.
    pub trace_line: u32,
    /// Policy label.
    pub policy: String,
    /// Mechanism label.
    pub mechanism: String,
    /// Path taken.
    pub execution_mode: ExecutionMode,
    /// Why that path.
    pub mode_reason: ModeReason,
    /// Prefill worker that served it.
    pub prefill_worker: Option<String>,
    /// Decode (or colocated) worker the policy chose.
    pub decode_worker_intended: Option<String>,
    /// Decode (or colocated) worker that served it.
    pub decode_worker_actual: Option<String>,
    /// Served by another worker than the intended one.
    pub route_mismatch: bool,
    /// Sessions placements tried for this request (opens sent).
    pub placements: u32,
    /// Intended send time.
    pub scheduled_ns: u64,
    /// Dependencies met: the later of the schedule and the previous turn's end.
    pub released_ns: Option<u64>,
    /// Send of this turn, its admission or open call included: a connection was given it, or begun for it. Null when
    /// nothing was sent.
    pub sent_ns: Option<u64>,
    /// Arrival of the first token.
    pub first_token_ns: Option<u64>,
    /// Arrival of the last token.
    pub last_token_ns: Option<u64>,
    /// End of the request.
    pub ended_ns: u64,
    /// First token − sent.
    pub ttft_ms: Option<f64>,
    /// (last − first) / (n − 1); null when n < 2 or the outcome is not ok.
    pub tpot_ms: Option<f64>,
    /// End − sent.
    pub e2e_ms: Option<f64>,
    /// First token − scheduled.
    pub sched_ttft_ms: Option<f64>,
    /// End − scheduled.
    pub sched_e2e_ms: Option<f64>,
    /// Waited for the session's previous turn: released − scheduled.
    pub wait_previous_turn_ms: Option<f64>,
    /// Waited for a concurrency or session slot of the replayer.
    pub queue_cap_wait_ms: Option<f64>,
    /// Sent − released − cap wait, and what the generate request was late after its calls: the harness's own fault, 0 in
    /// virtual time.
    pub schedule_lag_ms: Option<f64>,
    /// Sent to the generate request's departure: policy, admission and open calls.
    pub admission_ms: Option<f64>,
    /// Arrival at the prefilling worker to the start of its prefill.
    pub prefill_queue_ms: Option<f64>,
    /// Start to end of the prefill.
    pub prefill_ms: Option<f64>,
    /// Start of the KV transfer to its arrival on the decode worker: time on the link.
    pub kv_transfer_ms: Option<f64>,
    /// Waits on the decode worker: for room once the prefill is done, and from the KV's arrival to the first token.
    pub decode_queue_ms: Option<f64>,
    /// Prompt tokens.
    pub input_tokens: u32,
    /// Prompt tokens after what the session held when the turn was sent; the whole prompt when nothing was held.
    pub append_tokens: u32,
    /// Answer tokens received.
    pub output_tokens: u32,
    /// Answer tokens asked for.
    pub expected_output_tokens: u32,
    /// Prompt tokens that the worker which computed the prompt found cached (P's, where the prompt went through P); null
    /// where the server told nothing of it.
    pub cached_tokens: Option<u32>,
    /// Worker whose cache the policy weighed by the KV index: P with `car`, D with `kv-aware`, the colocated one with `dp`;
    /// null without an index, and where a session's own D takes the turn past both caches.
    #[serde(default)]
    pub index_worker: Option<String>,
    /// Prompt tokens the KV index promised on the device tier of that worker: of its hits what the worker can reuse, which is
    /// at most the whole blocks before the last prompt token where it computes the prompt; null where that is.
    pub index_hit_tokens_device: Option<u32>,
    /// The same on the host tier only.
    pub index_hit_tokens_host_only: Option<u32>,
    /// The choice was made without a trustworthy view of that worker's cache: all but `synchronized` in `index_sight`. Null
    /// where that is.
    #[serde(default)]
    pub index_blind: Option<bool>,
    /// How well the index saw that worker; null where that is.
    #[serde(default)]
    pub index_sight: Option<IndexSight>,
    /// Prompt tokens the policy assumed on the chosen worker.
    pub assumed_hit_tokens: u32,
    /// Prompt tokens an infinite shared cache would hold.
    pub ideal_hit_tokens: u32,
    /// How it ended.
    pub outcome: Outcome,
    /// `length`, `stop` or `abort`, when the engine said so.
    pub finish_reason: Option<String>,
    /// Class of the failure.
    pub error_class: Option<String>,
    /// The server's or the transport's words.
    pub error_message: Option<String>,
    /// HTTP status, when there was an answer.
    pub http_status: Option<u16>,
    /// Times it was sent; 1 without retries, 0 when never sent.
    pub attempts: u32,
    /// Time lost between the attempts that failed and the next; null with one attempt.
    pub retry_wait_ms: Option<f64>,
    /// Times the engine retracted it.
    pub retractions: u32,
}
