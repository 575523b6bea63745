//! The schedule before the run: when each turn is meant to be sent.
//!
//! Every planned time is an offset from the start of the run, scaled from the trace's own clock, never a sum of
//! rounded gaps. A gap above `max_gap_s` is cut after scaling, and everything behind it in the session moves up: the
//! planned start is the previous planned start plus the cut gap.

use crate::base::{Dur, RequestIx, Rng, SessionIx, Time};
use crate::replay::ReplayConfig;
use crate::trace::Trace;

/// Jitter draws of session `n` come from stream `JITTER + n`.
const JITTER: u64 = 1 << 32;

/// Planned send time of every request.
pub(super) fn planned(trace: &Trace, config: &ReplayConfig, seed: u64) -> Vec<Time> {
    let mut planned = Vec::with_capacity(trace.turns.len());
    let limit = gap_limit(config);
    for (session, ix) in trace.sessions.iter().zip(0..) {
        let turns = trace.turns_of(SessionIx(ix));
        let Some(first) = turns.first() else { continue };
        debug_assert_eq!(planned.len(), session.turns.start as usize, "turns are grouped by session");
        let start = Time::ZERO + scaled(first.timestamp, config.arrival_scale) + jitter(config, seed, u64::from(ix));
        let mut cut = 0u64;
        let mut before = 0u64;
        for turn in turns {
            let since_first = Dur(turn.timestamp.ns().saturating_sub(first.timestamp.ns()));
            let offset = scaled(since_first, config.think_scale).ns().max(before);
            cut += (offset - before).saturating_sub(limit.ns());
            before = offset;
            planned.push(start + Dur(offset - cut));
        }
    }
    planned
}

/// Think time before `request`, the scaled rest of the recorded gap after the service of its predecessor.
pub(super) fn think_time(trace: &Trace, config: &ReplayConfig, request: RequestIx) -> Dur {
    let (before, turn) = (&trace.turns[request.ix() - 1], trace.turn(request));
    let gap = turn.timestamp.ns().saturating_sub(before.timestamp.ns());
    let service_s = config.service_base_s + f64::from(before.output_length) / config.service_tokens_per_s;
    let service = Dur::from_secs_f64(service_s).unwrap_or(Dur(u64::MAX));
    scaled(Dur(gap.saturating_sub(service.ns())), config.think_scale).min(gap_limit(config))
}

fn gap_limit(config: &ReplayConfig) -> Dur {
    positive(config.max_gap_s).unwrap_or(Dur(u64::MAX))
}

/// Seconds of the scenario as a length; `None` for 0, which means no limit.
pub(super) fn positive(seconds: f64) -> Option<Dur> {
    Dur::from_secs_f64(seconds).filter(|length| *length > Dur::ZERO)
}

/// Divided by the scale; an infinite scale leaves nothing.
fn scaled(length: Dur, scale: f64) -> Dur {
    Dur((length.ns() as f64 / scale).round() as u64)
}

fn jitter(config: &ReplayConfig, seed: u64, session: u64) -> Dur {
    if config.arrival_jitter_ms <= 0.0 {
        return Dur::ZERO;
    }
    let share = Rng::new(seed, JITTER + session).f64();
    Dur::from_secs_f64(config.arrival_jitter_ms * share / 1e3).unwrap_or(Dur::ZERO)
}
