//! Preflight in words: one line a finding, the pressing ones first after the head and marked with `!`.
//!
//! The numbers look as in the summary. A line says no more than its numbers: what an estimate leaves open is a range.

use super::super::conflicts::{ConflictKind, Severity};
use super::{Capacity, DirectShare, Gaps, OverLimit, PrefillLoad, Preflight, Slots};
use crate::admission::SlotRelease;
use crate::base::words::{count, is_range, percent, plural, seconds, tokens};
use crate::replay::ReplayConfig;

/// Bounds closer than this are one number.
const ONE_NUMBER: f64 = 1.15;
/// Sessions over the limit that are named.
const NAMED: usize = 5;

/// A finding.
struct Line {
    pressing: bool,
    text: String,
}

/// `by_model` ends the lines that follow from the scenario's model of a worker.
pub(super) fn lines(preflight: &Preflight, by_model: &str) -> Vec<String> {
    let modelled = |line: Line| Line { text: line.text + by_model, ..line };
    let mut found: Vec<Line> = Vec::new();
    for conflict in &preflight.conflicts {
        let refused = match conflict.severity {
            Severity::Refuse => "conflict, refused without --allow-conflict: ",
            Severity::Warn => "",
        };
        found.push(Line { pressing: true, text: format!("{refused}{}", conflict.text) });
    }
    let heading = found.len() + 1;
    found.push(Line { pressing: false, text: head(preflight) });
    if preflight.over_limit.turns == preflight.requests {
        found.extend(over_limit(preflight).map(modelled));
    } else {
        found.extend(preflight.slots.as_ref().map(slots));
        found.extend(preflight.prefill_load.as_ref().map(|load| prefill(load, room_binds(preflight))).map(modelled));
        found.extend(over_limit(preflight).map(modelled));
        found.extend(preflight.gaps.as_ref().map(gaps).map(modelled));
        found.push(modelled(capacity(&preflight.capacity)));
        let overruled = if preflight.refuses() { ", were it not for the conflict" } else { "" };
        let direct = |share| Line { pressing: false, text: direct(share) + overruled };
        found.extend(preflight.direct.as_ref().map(direct).map(modelled));
        if preflight.conflicts.iter().any(|conflict| conflict.kind == ConflictKind::MovesSessions) {
            found.push(Line { pressing: false, text: "direct-to-D not predicted: sessions move".into() });
        }
    }
    found[heading..].sort_by_key(|line| !line.pressing);
    found.into_iter().map(|line| format!("{} {}", if line.pressing { '!' } else { ' ' }, line.text)).collect()
}

/// The time scale as a sentence, so that nobody has to guess whether it divides.
pub(super) fn time_scale(replay: &ReplayConfig, span_s: f64) -> String {
    let (arrival, think) = (replay.arrival_scale, replay.think_scale);
    let span = seconds(span_s * 1e3);
    if arrival != think {
        return format!(
            "arrival-scale {arrival}, think-scale {think}: gaps between sessions are divided by {arrival}, gaps inside \
             a session by {think} (trace: {span})"
        );
    }
    if arrival.is_infinite() {
        return format!("time-scale inf: {span} → as fast as causality allows");
    }
    if arrival == 1.0 {
        return format!("time-scale 1: {span}");
    }
    format!("time-scale {arrival}: {span} → {}", seconds(span_s / arrival * 1e3))
}

fn head(preflight: &Preflight) -> String {
    let Preflight { time_scale, sessions, requests, peak_live_sessions, .. } = preflight;
    let mut text = format!("{}, {}", plural(u64::from(*requests), "request"), plural(u64::from(*sessions), "session"));
    if preflight.over_limit.turns < *requests {
        // The estimate does not know the queue that comes of a lack of KV room.
        let live = count(u64::from(*peak_live_sessions));
        text += &if room_binds(preflight) && peak_live_sessions < sessions {
            format!(", {live} or more live at once")
        } else {
            format!(", about {live} live at once")
        };
    }
    format!("{text} · {time_scale}")
}

fn room_binds(preflight: &Preflight) -> bool {
    preflight
        .direct
        .as_ref()
        .is_some_and(|direct| direct.by_capacity < direct.by_slots || is_range(direct.at_least, direct.predicted))
}

fn slots(slots: &Slots) -> Line {
    let Slots { workers, cap, total, wanted, release, starved } = slots;
    let head = format!("{} ({workers} D × cap {})", plural(*total, "slot"), count(*cap));
    let sessions = plural(u64::from(*wanted), "session");
    let lost = plural(u64::from(*starved), "session");
    let text = match (starved, release) {
        (0, _) if *wanted == 0 => format!("{head}, and no session asks for one"),
        (0, _) if *total >= u64::from(*wanted) => format!("{head} ≥ {sessions}: each can hold one"),
        (0, _) => format!("{head} for {sessions}: released slots are likely to reach every session"),
        (_, SlotRelease::Never) => {
            format!("{head} < {sessions}, slots are never released: about {lost} will never hold one")
        }
        (_, SlotRelease::SessionEnd | SlotRelease::IdleLru) => {
            let verb = if *starved == 1 { "ends" } else { "end" };
            format!("{head} < {sessions}: about {lost} {verb} before a slot is released")
        }
    };
    Line { pressing: *starved > 0, text }
}

fn capacity(capacity: &Capacity) -> Line {
    let Capacity { workers, pool_tokens, mean_context_tokens, live_context_tokens, sessions_per_worker, .. } = capacity;
    let pressing = *live_context_tokens > *pool_tokens as f64 || capacity.crowded_workers > 0;
    let crowded = if capacity.crowded_workers > 0 {
        format!(
            "; may bind on {} of {workers} D, {} of the time (up to {} on one)",
            capacity.crowded_workers,
            percent(capacity.crowded_share),
            tokens(capacity.peak_worker_tokens as f64)
        )
    } else {
        String::new()
    };
    let text = format!(
        "KV {} tokens in {}, {} of {} fit each: those live need about {}, the peaks of all sessions {}{crowded}",
        tokens(*pool_tokens as f64),
        plural(u64::from(*workers), "pool"),
        plural(*sessions_per_worker, "mean context"),
        tokens(*mean_context_tokens),
        tokens(*live_context_tokens),
        tokens(capacity.peak_context_tokens as f64),
    );
    Line { pressing, text }
}

fn direct(direct: &DirectShare) -> String {
    let DirectShare { predicted, at_least, appendable, by_slots, by_capacity } = direct;
    if *appendable == 0.0 {
        return "direct-to-D 0.0 %: no turn can be appended to a session on D".into();
    }
    let alone = format!("(slots alone {}, capacity alone {})", percent(*by_slots), percent(*by_capacity));
    let (slots_bind, room_binds) = (by_slots < appendable, by_capacity < appendable);
    // Crowded D may cost turns their direct way.
    let may_bind = is_range(*at_least, *predicted);
    let binds = match (slots_bind, room_binds) {
        (false, false) if may_bind => "KV capacity may bind".into(),
        (false, false) => "neither slots nor KV capacity bind".into(),
        (true, false) if may_bind => format!("slots bind {alone}, KV capacity may too"),
        (true, false) => format!("slots bind {alone}"),
        (false, true) => format!("KV capacity binds {alone}"),
        (true, true) if by_slots < by_capacity => format!("slots bind before KV capacity over all sessions {alone}"),
        (true, true) if by_slots > by_capacity => format!("KV capacity binds before slots {alone}"),
        (true, true) => format!("slots and KV capacity bind alike {alone}"),
    };
    if may_bind {
        let low = percent(*at_least);
        format!(
            "direct-to-D {low} (none while its D is over its pool) to {} of all requests: {binds}",
            percent(*predicted)
        )
    } else {
        format!("direct-to-D about {} of all requests: {binds}", percent(*predicted))
    }
}

fn gaps(gaps: &Gaps) -> Line {
    let (recorded, scaled) = (gaps.under_service_share, gaps.under_service_share_scaled);
    let pressing = scaled > recorded + 0.1;
    let shares = if recorded == scaled {
        percent(recorded)
    } else {
        format!("{} at 1×, {} at the chosen scale", percent(recorded), percent(scaled))
    };
    let verdict = if pressing { ": the scale turns think time into queueing" } else { "" };
    let service = seconds(gaps.mean_service_s * 1e3);
    Line { pressing, text: format!("gaps shorter than the expected service time ({service}): {shares}{verdict}") }
}

fn prefill(load: &PrefillLoad, room_binds: bool) -> Line {
    let PrefillLoad { workers, low, high } = load;
    let pressing = *low > 1.0;
    let (range, between) = if *high <= *low * ONE_NUMBER || *high < 0.01 {
        (format!("about {high:.2}"), "")
    } else {
        (
            format!("{low:.2} to {high:.2}"),
            if room_binds { ", by batching, cache hits and room on D" } else { ", by batching and cache hits" },
        )
    };
    let verdict = match (pressing, *high > 1.0) {
        (true, _) => ": prompts queue all run long",
        (false, true) => ": prompts may queue",
        (false, false) => "",
    };
    let who = plural(u64::from(*workers), "worker");
    Line { pressing, text: format!("prefill work {range} of what {who} can do in the planned time{between}{verdict}") }
}

fn over_limit(preflight: &Preflight) -> Option<Line> {
    let OverLimit { limit_tokens, limit_key, turns, sessions } = &preflight.over_limit;
    let limit = format!("{limit_key} = {} tokens", count(*limit_tokens));
    let text = if *turns == 0 {
        return None;
    } else if *turns == preflight.requests {
        format!("no turn fits {limit}: every request will be refused")
    } else {
        let named = sessions.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
        let more = if sessions.len() > NAMED { ", …" } else { "" };
        let over = plural(u64::from(*turns), "turn");
        let of = plural(sessions.len() as u64, "session");
        format!("{over} of {of} over {limit} will be refused ({named}{more})")
    };
    Some(Line { pressing: true, text })
}
