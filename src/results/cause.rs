//! [`Cause`]: a reason for what the tables show, with the numbers that prove it, and its one sentence.

use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

use super::Concentration;
use super::words::{count, plural, tokens};

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
    /// Fewer slots than sessions.
    SessionCapStarvation(SlotShortage),
    /// The pool is full before the cap is reached.
    CapacityBeforeCap {
        /// The arithmetic.
        #[serde(flatten)]
        room: Room,
        /// Turns refused for lack of room.
        refusals: u64,
        /// Turns placed again because their session had been trimmed to make room.
        reseeds_after_trim: u64,
    },
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
        /// Share of gaps below the service time at this scale.
        short_share: f64,
        /// The same at time-scale 1.
        short_share_at_1x: f64,
    },
    /// Sessions could not be opened.
    OpenFailures {
        /// Placements beyond the first, all requests together.
        extra_placements: u64,
        /// Turns that took the plain path because every open failed.
        fallbacks: u64,
    },
    /// Transfers fail on one pair.
    TransferErrorsConcentrated {
        /// The pair.
        #[serde(flatten)]
        pair: Concentration,
        /// Errors on all pairs.
        all_errors: u64,
    },
    /// Transfers fail here and there.
    TransferErrors {
        /// Errors.
        errors: u64,
        /// Transfers.
        transfers: u64,
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
        /// Turns placed again because of it.
        reseeds: u64,
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
    /// The replayer believed wrong things about where sessions live.
    BeliefsCorrected {
        /// Corrections by a worker's word.
        corrections: u64,
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

/// Slots against sessions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SlotShortage {
    /// Decode workers.
    pub decode_workers: u32,
    /// Cap per worker.
    pub cap: u32,
    /// Slots in all.
    pub slots: u64,
    /// Sessions that wanted one: all, or the most live at once when slots are given back.
    pub sessions: u64,
    /// `never`, `session-end` or `idle-lru`.
    pub slot_release: String,
    /// Sessions that never held a slot; null when unknown.
    pub never_held: Option<u64>,
    /// Turns that fell back because of it.
    pub fallbacks: u64,
}

/// How many sessions a pool holds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Room {
    /// Pool of a decode worker, tokens.
    pub kv_pool_tokens: u64,
    /// Mean over sessions of their largest context, tokens.
    pub mean_context_tokens: f64,
    /// Such contexts that fit a pool.
    pub sessions_per_worker: u64,
    /// Cap per worker.
    pub cap: u32,
}

impl From<Cause> for CauseLine {
    fn from(cause: Cause) -> Self {
        CauseLine { text: cause.sentence(), cause }
    }
}

impl Cause {
    fn sentence(&self) -> String {
        match self {
            Cause::NothingCompleted { failed, class, count: n, example } => {
                let words = example.as_deref().map_or_else(String::new, |example| format!(": {example}"));
                format!("no request completed, {} failed; most common: {class} ×{}{words}", count(*failed), count(*n))
            }
            Cause::CountersDiverged(drift) => drift.sentence(),
            Cause::SessionCapStarvation(shortage) => shortage.sentence(),
            Cause::CapacityBeforeCap { room, refusals, reseeds_after_trim } => format!(
                "KV capacity binds before the cap of {}: {room}; {} refused for room, {} after a trim",
                room.cap,
                plural(*refusals, "turn"),
                plural(*reseeds_after_trim, "reseed")
            ),
            Cause::NextBinder { room } if room.sessions_per_worker > u64::from(room.cap) => {
                format!("next binder: raising the cap helps until {room}")
            }
            Cause::NextBinder { room } => {
                format!("next binder: capacity; a cap above {} cannot be filled: {room}", room.cap)
            }
            Cause::LargeSessionsStarve { starved_tokens, other_tokens, .. } => format!(
                "large sessions starve: mean peak input {} against {} of the others",
                tokens(*starved_tokens),
                tokens(*other_tokens)
            ),
            Cause::LateSessionsStarve { first_rank, starved_rank, other_rank, .. } => format!(
                "late sessions starve: the first has arrival rank {first_rank}; mean rank {starved_rank:.0} against \
                 {other_rank:.0} of the others"
            ),
            Cause::TimeScaleCompressesGaps { time_scale, short_share, short_share_at_1x } => format!(
                "time-scale {} leaves {:.0} % of think gaps shorter than the service time ({:.0} % at time-scale 1)",
                time_scale.map_or_else(|| "inf".into(), |scale| scale.to_string()),
                short_share * 100.0,
                short_share_at_1x * 100.0
            ),
            Cause::OpenFailures { extra_placements, fallbacks } => format!(
                "open_session failed: {}, {} took the plain path",
                plural(*extra_placements, "further placement"),
                plural(*fallbacks, "turn")
            ),
            Cause::TransferErrorsConcentrated { pair, all_errors } => format!(
                "KV transfers fail on {} → {}: {} of {} errors on {} (p = {:.0e})",
                pair.prefill_worker,
                pair.decode_worker,
                count(pair.errors),
                count(*all_errors),
                plural(pair.transfers, "transfer"),
                pair.p_value
            ),
            Cause::TransferErrors { errors, transfers } => format!(
                "{} of {} failed, on no pair more than chance explains",
                count(*errors),
                plural(*transfers, "KV transfer")
            ),
            Cause::ContextLimitRefusals { requests, sessions, smallest_tokens } => format!(
                "{} of {} refused for the context limit or pool; the smallest asks {} tokens",
                plural(*requests, "request"),
                plural(*sessions, "session"),
                count(*smallest_tokens)
            ),
            Cause::WorkerRestarts { workers, restarts, reseeds } => format!(
                "{} ({}), {} because of it",
                plural(*restarts, "worker restart"),
                workers.join(", "),
                plural(*reseeds, "reseed")
            ),
            Cause::IdleWorkers { role, idle, workers } => format!("{idle} of {workers} {role} workers got no request"),
            Cause::BeliefsCorrected { corrections } => {
                format!("{} about resident sessions corrected by a worker's word", plural(*corrections, "belief"))
            }
        }
    }
}

impl CounterDrift {
    fn sentence(&self) -> String {
        format!(
            "policy {} with {}: replay and router counters diverged after request {}; {} served elsewhere than \
             intended, {} found no session there",
            self.policy,
            self.mechanism,
            count(self.after),
            plural(self.mismatches, "request"),
            count(self.sessions_not_found)
        )
    }
}

impl SlotShortage {
    fn sentence(&self) -> String {
        let released = match self.slot_release.as_str() {
            "never" => "slots are never released",
            "session-end" => "slots are released at a session's end",
            _ => "idle sessions give theirs up",
        };
        let lost = match self.never_held {
            Some(0) => "each session held one for a time".into(),
            Some(n) => format!("{} never held one", plural(n, "session")),
            None => "who held one is not known".into(),
        };
        format!(
            "{} ({} D × cap {}) < {}, {released}: {lost}, {} fell back",
            plural(self.slots, "slot"),
            self.decode_workers,
            self.cap,
            plural(self.sessions, "session"),
            plural(self.fallbacks, "turn")
        )
    }
}

impl fmt::Display for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (pool, context) = (tokens(self.kv_pool_tokens as f64), tokens(self.mean_context_tokens));
        write!(f, "{pool} tokens / {context} mean peak context = {} a D", plural(self.sessions_per_worker, "session"))
    }
}
