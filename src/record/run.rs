//! What a run leaves beside its requests: one record per worker, per P→D pair and per session.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One worker over the whole run: a line of `workers.jsonl`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct WorkerRecord {
    /// Name, such as `D3`.
    pub worker: String,
    /// `prefill`, `decode` or `colocated`.
    pub role: String,
    /// Generate requests it took in.
    pub requests: u64,
    /// Prompt tokens it computed.
    pub prefilled_tokens: u64,
    /// Prompt tokens it found in its cache or sessions.
    pub cached_tokens: u64,
    /// Answer tokens it produced.
    pub output_tokens: u64,
    /// Pool size, tokens.
    pub capacity_tokens: u64,
    /// Time-weighted mean of used / capacity, 0 to 1. Cached but evictable tokens are not used.
    pub usage_mean: f64,
    /// Peak of the same.
    pub usage_peak: f64,
    /// Share of the run in which an iteration was under way, 0 to 1.
    pub busy_share: f64,
    /// Share of the run in which KV moved over its link, out of a prefill or into a decode worker, 0 to 1; null for a
    /// colocated worker, and where nobody counted it.
    #[serde(default)]
    pub link_busy_share: Option<f64>,
    /// Prefill: share of the run in which it computed nothing though prompts waited, because KV on its way to D filled its
    /// pool, 0 to 1; null for other roles, and where nobody counted it.
    #[serde(default)]
    pub stalled_by_link_share: Option<f64>,
    /// The same, but for KV that waited for room on D.
    #[serde(default)]
    pub stalled_by_room_share: Option<f64>,
    /// Tokens evicted from the prefix cache.
    pub evicted_tokens: u64,
    /// Idle sessions trimmed to make room.
    pub session_trims: u64,
    /// Sessions dropped after the idle time-out.
    pub session_timeouts: u64,
    /// Transfers to or from it that failed or timed out.
    pub transfer_errors: u64,
    /// Requests retracted.
    pub retractions: u64,
    /// Admission calls answered.
    pub admission_calls: u64,
    /// Most sessions held at once.
    pub sessions_peak: u64,
    /// Largest prealloc + transfer queue (decode), or waiting queue (others).
    pub queue_peak: u64,
    /// Restarts.
    pub restarts: u32,
}

/// One P→D pair: transfers and how many failed.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct TransferRecord {
    /// Prefill worker.
    pub prefill_worker: String,
    /// Decode worker.
    pub decode_worker: String,
    /// Transfers begun or waited for.
    pub transfers: u64,
    /// Those that failed or timed out.
    pub errors: u64,
    /// Bytes of KV moved by the ones that finished.
    pub bytes: u64,
}

/// What only the replayer knows of a session; the rest follows from its requests.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct SessionFacts {
    /// Session id of the trace.
    pub session_id: String,
    /// Rank of its arrival, from 1.
    pub arrival_rank: u32,
    /// Turns in the trace.
    pub planned_turns: u32,
    /// The trace lacks some of its turns.
    pub incomplete: bool,
    /// Time it held a session slot on some D, nanoseconds.
    pub slot_hold_ns: u64,
    /// Of these, nanoseconds after its last turn had ended; null where nobody counted them.
    #[serde(default)]
    pub slot_after_end_ns: Option<u64>,
    /// Seeds and reseeds it asked for.
    pub seed_asks: u32,
    /// Those refused.
    pub seed_rejections: u32,
    /// Of these, refused by the soft cap and, by the slots alone, not refused had every session given its own back at its
    /// end: a slot given back serves the first session refused, until that one's end. Null where nobody counted them.
    #[serde(default)]
    pub refused_by_ended: Option<u32>,
    /// Appends refused by admission.
    pub append_rejections: u32,
    /// Moves to another D.
    pub migrations: u32,
    /// Mean believed usage of the chosen D when it asked: tokens of resident sessions and of requests in flight over
    /// capacity, above 1 when more is under way than fits; null when it never asked.
    pub usage_when_asked: Option<f64>,
}

/// One stream of the KV index over the whole run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct StreamFacts {
    /// Worker it is of, with `/` and the rank behind where there are several, such as `P0/1`.
    pub name: String,
    /// Address it was read from; empty in virtual time.
    pub endpoint: String,
    /// In step at the end of the run.
    pub synchronized: bool,
    /// Sequence number of the last batch taken in: a process numbers its batches from 0, and begins anew when it starts again.
    /// Null when there was none.
    pub sequence: Option<u64>,
    /// Events taken in; a batch has one or more.
    pub events: u64,
    /// Blocks stored or removed by them.
    pub blocks: u64,
    /// Times a sequence number was missing.
    pub gaps: u64,
    /// Times it was brought in step again.
    pub resyncs: u64,
    /// Time out of step, from the start of the run, nanoseconds.
    pub unsynced_ns: u64,
    /// What went wrong last.
    pub last_error: Option<String>,
}

/// Everything beside the requests.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct RunFacts {
    /// Every configured worker, also those that got nothing.
    pub workers: Vec<WorkerRecord>,
    /// Every P→D pair that saw a transfer.
    pub transfers: Vec<TransferRecord>,
    /// Every session, by arrival rank.
    pub sessions: Vec<SessionFacts>,
    /// Run time of the virtual or real clock from start to the last end, nanoseconds.
    pub duration_ns: u64,
    /// Requests planned.
    pub planned: u64,
    /// Request (by count of sends to the router) after which the replayer's and the router's round-robin choices
    /// differed for the first time; null when they never did or only one of them chooses.
    pub counters_diverged_after: Option<u64>,
    /// Beliefs of the replayer that a worker's word corrected.
    pub beliefs_corrected: u64,
    /// Every stream of the KV index, by name; empty without an index.
    #[serde(default)]
    pub streams: Vec<StreamFacts>,
    /// The harness itself; null in virtual time, where it costs the run nothing.
    #[serde(default)]
    pub harness: Option<HarnessFacts>,
}

/// What the harness of a run in real time cost, and whether it kept up: figures of the client are only worth what these
/// allow.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct HarnessFacts {
    /// How late the driver's loop woke from a timer, sampled every 10 ms: p50, milliseconds of wall time; null without a
    /// sample.
    pub loop_lag_p50_ms: Option<f64>,
    /// p99 of the same.
    pub loop_lag_p99_ms: Option<f64>,
    /// Largest of the same.
    pub loop_lag_max_ms: Option<f64>,
    /// CPU time of the driver's thread, which sends and receives everything, seconds.
    pub driver_cpu_s: f64,
    /// The same over the wall time of the run: 1 is a core with nothing to spare.
    pub driver_cpu_share: f64,
    /// CPU time of the whole program over the run, writing and embedded workers included, seconds.
    pub process_cpu_s: f64,
    /// Peak resident memory of the program so far, bytes; null where the system does not tell.
    pub rss_peak_bytes: Option<u64>,
    /// Connections opened.
    pub connections: u64,
    /// HTTP requests sent, control calls and second legs included.
    pub http_requests: u64,
    /// Bytes of bodies sent.
    pub bytes_sent: u64,
    /// Generate requests sent again, each time counted.
    #[serde(default)]
    pub retries: u64,
    /// Answers with status 429 or 503, but for those of class `no-worker`; those that a repeat made good included.
    #[serde(default)]
    pub throttled: u64,
    /// Lengths of prompts by the server's count, against what was sent.
    #[serde(default)]
    pub prompts: PromptFacts,
    /// What the servers told of their caches.
    #[serde(default)]
    pub caches: CacheFacts,
    /// Tokens of answers by the server's count, against the text that came.
    #[serde(default)]
    pub answers: AnswerFacts,
    /// Requests served by workers behind the router that the run does not list, by what the target calls them; the 65th
    /// name and those after it are counted as `others`.
    #[serde(default)]
    pub unlisted_workers: BTreeMap<String, u64>,
    /// Tokens that emulated workers held in cache and sessions before the run, by worker; those that held none are left
    /// out.
    #[serde(default)]
    pub warm_caches: BTreeMap<String, u64>,
    /// Open files the run may need at once.
    pub descriptors_needed: u64,
    /// Open files the program may have.
    pub descriptors_limit: u64,
    /// Workers whose own counters could not be read at the end: killed, or not emulated.
    pub without_account: Vec<String>,
    /// Workers that answered neither before the run, nor to a look during it, nor at its end.
    #[serde(default)]
    pub never_answered: Vec<String>,
    /// Workers with a peak (usage, sessions, queue) that was reached before the run: peaks count from the start of the
    /// process.
    #[serde(default)]
    pub older_peaks: Vec<String>,
}

/// Lengths of the prompts that were served, where the server told them: those of token arrays must be what was sent, a
/// chat prompt may differ by 64 tokens and 5 %.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct PromptFacts {
    /// Answers that told the length of their prompt.
    pub compared: u64,
    /// Those that told another one than was sent.
    pub differing: u64,
    /// Tokens of the differing prompts as sent.
    pub sent_tokens: u64,
    /// Tokens of the same by the server's count.
    pub counted_tokens: u64,
    /// Complete answers that did not tell the length of their prompt.
    #[serde(default)]
    pub untold: u64,
}

/// What complete answers told of the cache. More cached than the prompt has, by more than prompts may differ, cannot be:
/// the record holds the prompt's length then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct CacheFacts {
    /// Answers that told what was cached.
    pub told: u64,
    /// Those that told more than their prompt.
    pub beyond: u64,
    /// Tokens of the prompts of these.
    pub prompt_tokens: u64,
    /// Tokens told as cached of these.
    pub cached_tokens: u64,
    /// Complete answers that told nothing.
    pub untold: u64,
}

/// What complete answers told of their own length. A count of 0, or of far fewer tokens than chunks with text, contradicts
/// the text: the record has a token for each of these chunks then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct AnswerFacts {
    /// Answers with text whose tokens the server counted.
    pub told: u64,
    /// Those it counted 0 for, or too few to be the text.
    pub uncounted: u64,
    /// Chunks with text of these.
    pub chunks: u64,
    /// Those whose count, as it went along, was far ahead of the text or fell.
    #[serde(default)]
    pub led: u64,
}
