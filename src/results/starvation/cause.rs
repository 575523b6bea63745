//! [`Cause`]: a reason for what the tables show, with the numbers that prove it. Its sentence is made in `sentence`.

use schemars::JsonSchema;
use serde::Serialize;

use crate::results::{Blindness, Concentration, TimedOutAt};

/// A cause and its sentence.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct CauseLine {
    /// One sentence for a person.
    pub text: String,
    /// What it says, with its evidence.
    #[serde(flatten)]
    pub cause: Cause,
}

/// A cause, computed from records, facts and preflight, never assumed.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "cause", rename_all = "kebab-case")]
pub enum Cause {
    /// Not one request completed.
    NothingCompleted {
        /// Requests that ran to an end.
        failed: u64,
        /// Most common class of failure.
        class: String,
        /// How many had it.
        count: u64,
        /// The words of the first of them.
        example: Option<String>,
    },
    /// Replayer and router each kept a round-robin counter, and they drifted apart.
    CountersDiverged(CounterDrift),
    /// The KV index never had a hit: the policy that reads it chose by load alone.
    RanAsLoadOnly(NoHits),
    /// The KV index had hits, but did not see every worker that was chosen.
    IndexPartlyBlind(PartlyBlind),
    /// Fewer slots than sessions.
    SessionCapStarvation(SlotShortage),
    /// Sessions that have ended keep slots that others are refused.
    EndedSessionsHoldSlots(EndedSlots),
    /// The soft cap, capacity over the size of the turn that asks, falls below its maximum as contexts grow.
    CapShrinks {
        /// Cap per worker at most.
        cap: u32,
        /// Tokens of a pool it counts as usable.
        usable_tokens: u64,
        /// Mean size of the turns refused, tokens.
        mean_turn_tokens: f64,
        /// Cap for a turn of that size.
        shrunk_cap: u64,
        /// Turns that fell back because of it.
        fallbacks: u64,
    },
    /// Slots enough for every session, but not on the D that was chosen.
    SlotsUneven(SlotShortage),
    /// The pools are full.
    CapacityBinds {
        /// The arithmetic.
        #[serde(flatten)]
        room: Room,
        /// Turns refused for lack of room.
        refusals: u64,
        /// Turns placed again because their session had been trimmed to make room.
        reseeds_after_trim: u64,
        /// Both over the turns that ran to an end, 0 to 1.
        share: f64,
        /// The D where it happens far more than on the others; null when it is spread.
        hot: Option<HotDecoder>,
        /// Scenario keys that relieve it.
        remedy: String,
    },
    /// Workers that take longer than their peers for like work.
    SlowWorkers {
        /// Which: of P by their prefills, of the others by their answers.
        workers: Vec<SlowWorker>,
    },
    /// Most of the time to the first token of turns through P is spent in its queue.
    PrefillQueue {
        /// Ok turns through P.
        turns: u64,
        /// Their mean wait in the queue of P, ms.
        mean_queue_ms: f64,
        /// Their mean TTFT, ms.
        mean_ttft_ms: f64,
        /// Prefill workers.
        workers: u64,
        /// Share of the run in which they computed, mean over them, 0 to 1; null without their account.
        busy_share: Option<f64>,
        /// Most prompts waiting for one of them; null without their account.
        queue_peak: Option<u64>,
    },
    /// KV on its way from P to D holds turns up: those it is of, and those in the queue of a P whose pool it fills.
    LinkBinds(HandOff),
    /// The same, but for KV that waits for room on D.
    DecodeRoomBinds(HandOff),
    /// What would bind if the cap were raised.
    NextBinder {
        /// The arithmetic.
        #[serde(flatten)]
        room: Room,
    },
    /// The starved sessions are the large ones.
    LargeSessionsStarve {
        /// Mean peak input of the starved, tokens.
        starved_tokens: f64,
        /// Mean peak input of the others, tokens.
        other_tokens: f64,
        /// Chance that a starved session is larger than another.
        separation: f64,
    },
    /// The starved sessions are the late ones.
    LateSessionsStarve {
        /// Lowest arrival rank of a starved session.
        first_rank: u32,
        /// Mean arrival rank of the starved.
        starved_rank: f64,
        /// Mean arrival rank of the others.
        other_rank: f64,
        /// Chance that a starved session came later than another.
        separation: f64,
    },
    /// The time scale leaves no time to think.
    TimeScaleCompressesGaps {
        /// Time scale; null for infinite.
        time_scale: Option<f64>,
        /// Share of gaps after ok turns that are shorter than the turn's measured E2E.
        short_share: f64,
        /// The same gaps at time-scale 1, against the same E2E; null where the scale is infinite, which leaves no gap to tell.
        short_share_at_1x: Option<f64>,
    },
    /// Sessions could not be opened.
    OpenFailures {
        /// Placements beyond the first, all requests together.
        extra_placements: u64,
        /// Turns that took the plain path because every open failed.
        fallbacks: u64,
        /// Turns that a limit of the client ended while an open was unanswered: they took no path.
        given_up: u64,
    },
    /// D answers no admission calls, as a server without the endpoint.
    AdmissionFails {
        /// Turns that did not go direct for it.
        turns: u64,
        /// Turns that went direct all the same.
        direct: u64,
    },
    /// Transfers fail on links or workers.
    TransferErrorsConcentrated {
        /// Which, the most telling first.
        found: Vec<Concentration>,
        /// Errors on all links.
        all_errors: u64,
        /// Requests that ended with a time-out of theirs: KV that waited for room on D, or was on the link, for too long.
        timeouts: u64,
    },
    /// Transfers fail here and there.
    TransferErrors {
        /// Errors.
        errors: u64,
        /// Transfers.
        transfers: u64,
        /// Requests that ended with a time-out of theirs: KV that waited for room on D, or was on the link, for too long.
        timeouts: u64,
        /// The worker that these are most telling of; null without time-outs, or where all workers have alike.
        most_timeouts: Option<TimedOutAt>,
    },
    /// Requests larger than the server takes.
    ContextLimitRefusals {
        /// Refused requests.
        requests: u64,
        /// Sessions they belong to.
        sessions: u64,
        /// Smallest prompt + answer refused, tokens.
        smallest_tokens: u64,
    },
    /// Workers restarted and lost what they held.
    WorkerRestarts {
        /// Names of the workers.
        workers: Vec<String>,
        /// Restarts in all.
        restarts: u64,
        /// Turns placed again because the worker came back empty.
        reseeds: u64,
        /// Requests that were on a worker when it went, those whose answer broke off there included.
        lost_requests: u64,
        /// Sessions they belong to.
        lost_sessions: u64,
        /// The first of them, at most 4, by request id.
        first_lost: Vec<String>,
        /// Turns placed again because the turn before was such a request.
        reseeds_after_loss: u64,
    },
    /// Workers without a request.
    IdleWorkers {
        /// Role.
        role: String,
        /// Those without.
        idle: u64,
        /// Those configured.
        workers: u64,
    },
    /// Prompts that do not continue what their session holds.
    ContextCompacted {
        /// Turns.
        turns: u64,
        /// Sessions they belong to.
        sessions: u64,
    },
}

/// Two round-robin counters that no longer agree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CounterDrift {
    /// Sends to the router until the first difference.
    pub after: u64,
    /// Policy of the replayer.
    pub policy: String,
    /// Mechanism.
    pub mechanism: String,
    /// Requests served elsewhere than intended.
    pub mismatches: u64,
    /// Requests that failed because the worker did not hold the session.
    pub sessions_not_found: u64,
}

/// An index without a hit in the whole run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NoHits {
    /// Policy of the replayer.
    pub policy: String,
    /// Requests placed with an answer of the index; 0 when there was none.
    pub decisions: u64,
    /// Of these, those without a trustworthy view of the chosen worker.
    pub blind: u64,
    /// Streams of workers of the run.
    pub streams: u64,
    /// Of these, in step at the end.
    pub in_step: u64,
    /// Events of all streams.
    pub events: u64,
    /// Who was not seen, and why.
    #[serde(flatten)]
    pub blindness: Blindness,
}

/// An index that did not see everybody.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct PartlyBlind {
    /// Requests placed with an answer of the index.
    pub decisions: u64,
    /// Of these, those without a trustworthy view of the chosen worker.
    pub blind: u64,
    /// `blind / decisions`, 0 to 1.
    pub share: f64,
    /// Who was not seen, and why.
    #[serde(flatten)]
    pub blindness: Blindness,
}

/// Slots against sessions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SlotShortage {
    /// Decode workers.
    pub decode_workers: u32,
    /// Cap per worker.
    pub cap: u32,
    /// Slots in all.
    pub slots: u64,
    /// Sessions that asked for one: all of them, or the most live at once when slots are given back.
    pub sessions: u64,
    /// `never`, `session-end` or `idle-lru`.
    pub slot_release: String,
    /// Sessions that asked and never held a slot; null when unknown.
    pub never_held: Option<u64>,
    /// Turns that fell back because of it.
    pub fallbacks: u64,
}

/// Slots that sessions keep beyond their last turn.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct EndedSlots {
    /// Time that all sessions together held a slot, seconds.
    pub held_s: f64,
    /// Of that, after their last turn had ended.
    pub after_end_s: f64,
    /// `after_end_s / held_s`, 0 to 1.
    pub share: f64,
    /// Seeds and reseeds that were refused and, by the slots alone, would not have been without it: each slot given back
    /// serves one session, until that one's end. A least number: other sessions go on sooner, too, where the cap is low.
    pub refusals: u64,
    /// Sessions that were refused so.
    pub sessions: u64,
    /// Of these, starved.
    pub starved: u64,
    /// Scenario key that relieves it.
    pub remedy: String,
}

/// What holds up KV between P and D, and turns through P with it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct HandOff {
    /// Ok turns through P.
    pub turns: u64,
    /// Their mean TTFT, ms.
    pub mean_ttft_ms: f64,
    /// Their mean time held up: by their own KV, and by that of others in the queue of P, ms.
    pub mean_held_ms: f64,
    /// The part of it in P's queue, ms: the mean wait there, as far as P stood still for this in place of computing.
    pub mean_queue_ms: f64,
    /// Time held up over the E2E of all ok requests, 0 to 1.
    pub e2e_share: f64,
    /// Share of the run in which prefill workers stood still for it though prompts waited, mean over them, 0 to 1; null
    /// without their account.
    pub stalled_share: Option<f64>,
    /// The link in use most, where the link is what binds; null without accounts.
    pub busiest: Option<BusiestLink>,
    /// The D that takes far more KV than the others, where its room is what binds; null when it is spread, or sessions are
    /// trimmed.
    pub hot: Option<HotDecoder>,
    /// Scenario keys that relieve it.
    pub remedy: String,
}

/// A worker that takes longer than its peers for like work.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SlowWorker {
    /// Its name.
    pub worker: String,
    /// What was compared: its time per token of this kind.
    pub pace: PaceOf,
    /// Median, over the turns compared, of its time over the median time of its peers for like work: at least 1.5. A least
    /// number where several are slow, for they are among each other's peers.
    pub factor: f64,
    /// Its turns that peers had the like of.
    pub compared: u64,
    /// Its turns of this kind: prefills, or answers.
    pub turns: u64,
}

/// What a worker's time is counted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PaceOf {
    /// Prefill: token of the prompt that was not cached.
    ComputedToken,
    /// Decode: token of the answer, after the first.
    AnswerToken,
}

/// The link in use most: the egress of a P or the ingress of a D.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct BusiestLink {
    /// Whose it is.
    pub worker: String,
    /// Share of the run in which KV moved over it, 0 to 1.
    pub busy_share: f64,
}

/// A D that trims, or takes KV, far more than the mean.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct HotDecoder {
    /// Its name.
    pub worker: String,
    /// Sessions it trimmed.
    pub trims: u64,
    /// Sessions all trimmed.
    pub all_trims: u64,
    /// KV transfers to it.
    pub transfers: u64,
    /// KV transfers to all.
    pub all_transfers: u64,
}

/// How many sessions a pool holds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Room {
    /// Pool of a decode worker, tokens.
    pub kv_pool_tokens: u64,
    /// Mean over sessions of their largest context, tokens.
    pub mean_context_tokens: f64,
    /// Such contexts to a pool.
    pub sessions_per_worker: f64,
    /// Cap per worker; null where the workers themselves admit.
    pub cap: Option<u32>,
}

impl HandOff {
    pub(super) fn turns_worth(&self) -> u64 {
        turns_worth(self.turns, self.mean_held_ms, self.mean_ttft_ms)
    }
}

/// So many turns would be held up all the time to their first token.
pub(super) fn turns_worth(turns: u64, mean_held_ms: f64, mean_ttft_ms: f64) -> u64 {
    (turns as f64 * (mean_held_ms / mean_ttft_ms).min(1.0)) as u64
}

impl From<Cause> for CauseLine {
    fn from(cause: Cause) -> Self {
        CauseLine { text: cause.sentence(), cause }
    }
}
