//! The one sentence of a [`Cause`]: numbers in the units of the tables, two lines of a terminal at most.

use std::fmt;

use super::words::{count, plural, tokens};
use super::{Cause, Concentration, CounterDrift, Room, SlotShortage};

impl Cause {
    pub(super) fn sentence(&self) -> String {
        match self {
            Cause::NothingCompleted { failed, class, count: n, .. } => {
                format!("no request completed: {} failed, {} of them {class}", count(*failed), count(*n))
            }
            Cause::CountersDiverged(drift) => drift.sentence(),
            Cause::SessionCapStarvation(shortage) => shortage.sentence(),
            Cause::CapShrinks { cap, usable_tokens, mean_turn_tokens, shrunk_cap, fallbacks } => format!(
                "the soft cap falls from {cap} to {shrunk_cap} as contexts grow: {} usable tokens / {} mean size of the \
                 turns refused; {} fell back",
                tokens(*usable_tokens as f64),
                tokens(*mean_turn_tokens),
                plural(*fallbacks, "turn")
            ),
            Cause::SlotsUneven(slots) => slots.uneven_sentence(),
            Cause::CapacityBinds { room, refusals, reseeds_after_trim } => format!(
                "{}; {} refused for room, {} after a trim",
                room.binds_sentence(),
                plural(*refusals, "turn"),
                plural(*reseeds_after_trim, "reseed")
            ),
            Cause::NextBinder { room } => room.next_sentence(),
            Cause::LargeSessionsStarve { starved_tokens, other_tokens, .. } => format!(
                "large sessions starve: mean peak input {} against {} of the others",
                tokens(*starved_tokens),
                tokens(*other_tokens)
            ),
            Cause::LateSessionsStarve { starved_rank, other_rank, .. } => {
                format!(
                    "late sessions starve: mean arrival rank {starved_rank:.0} against {other_rank:.0} of the others"
                )
            }
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
            Cause::TransferErrorsConcentrated { pair, all_errors } => concentrated(pair, *all_errors),
            Cause::TransferErrors { errors, transfers } => format!(
                "{} of {} failed{}",
                count(*errors),
                plural(*transfers, "KV transfer"),
                if *errors > 1 { ", on no pair more than chance explains" } else { "" }
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
            Cause::ContextCompacted { turns, sessions } => format!(
                "{} of {} did not continue the session's context (compaction): closed and reseeded",
                plural(*turns, "turn"),
                plural(*sessions, "session")
            ),
        }
    }
}

impl CounterDrift {
    fn sentence(&self) -> String {
        let harm = match self.sessions_not_found {
            0 => format!("{} served elsewhere than intended", plural(self.mismatches, "request")),
            lost => format!("{} found no session where the router sent them", plural(lost, "request")),
        };
        format!(
            "policy {} with {}: replay and router counters diverged after request {}; {harm}",
            self.policy,
            self.mechanism,
            count(self.after)
        )
    }
}

impl SlotShortage {
    fn uneven_sentence(&self) -> String {
        format!(
            "{} ({} D × cap {}) for {}, yet {} fell back: the D chosen had none left",
            plural(self.slots, "slot"),
            self.decode_workers,
            self.cap,
            plural(self.sessions, "session"),
            plural(self.fallbacks, "turn")
        )
    }

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

fn concentrated(pair: &Concentration, all_errors: u64) -> String {
    format!(
        "KV transfers fail on {} → {}: {} of {} errors on {} (p = {:.0e})",
        pair.prefill_worker,
        pair.decode_worker,
        count(pair.errors),
        count(all_errors),
        plural(pair.transfers, "transfer"),
        pair.p_value
    )
}

impl Room {
    fn next_sentence(&self) -> String {
        match self.cap {
            Some(cap) if self.sessions_per_worker <= u64::from(cap) => {
                format!("next binder: capacity; a cap above {cap} cannot be filled: {self}")
            }
            Some(_) | None => format!("next binder: raising the cap helps until {self}"),
        }
    }

    fn binds_sentence(&self) -> String {
        match self.cap {
            Some(cap) if self.sessions_per_worker < u64::from(cap) => {
                format!("KV capacity binds before the cap of {cap}: {self}")
            }
            Some(cap) => format!("KV capacity binds at times within the cap of {cap}"),
            None => format!("KV capacity binds: {self}"),
        }
    }
}

impl fmt::Display for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (pool, context) = (tokens(self.kv_pool_tokens as f64), tokens(self.mean_context_tokens));
        write!(f, "{pool} tokens / {context} mean peak context = {} a D", plural(self.sessions_per_worker, "session"))
    }
}
