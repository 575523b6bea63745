//! Preflight in words: one line a finding, the pressing ones marked with `!`.

use std::cmp::Ordering;

use super::super::conflicts::Severity;
use super::{Capacity, DirectShare, Gaps, OverLimit, Preflight, Slots};
use crate::admission::SlotRelease;
use crate::replay::ReplayConfig;

pub(super) fn lines(preflight: &Preflight) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for conflict in &preflight.conflicts {
        lines.push(match conflict.severity {
            Severity::Refuse => format!("! conflict, refused without --allow-conflict: {}", conflict.text),
            Severity::Warn => format!("! {}", conflict.text),
        });
    }
    lines.push(mark(false, preflight.time_scale.clone()));
    lines.push(mark(false, live(preflight)));
    lines.extend(preflight.slots.as_ref().map(|slots| mark(slots.starved > 0, slots_line(slots))));
    lines.push(capacity_line(&preflight.capacity));
    let overruled = if preflight.refuses() { ", were it not for the conflict" } else { "" };
    lines.extend(preflight.direct.as_ref().map(|direct| mark(false, direct_line(direct) + overruled)));
    lines.extend(preflight.gaps.as_ref().map(gaps_line));
    lines.extend(preflight.prefill_load.map(|load| mark(load > 1.0, prefill_line(load))));
    lines.extend((preflight.over_limit.turns > 0).then(|| mark(true, over_limit_line(&preflight.over_limit))));
    lines
}

/// The time scale as a sentence, so that nobody has to guess whether it divides.
pub(super) fn time_scale(replay: &ReplayConfig, span_s: f64) -> String {
    let (arrival, think) = (replay.arrival_scale, replay.think_scale);
    if arrival != think {
        return format!(
            "arrival-scale {arrival}, think-scale {think}: gaps between sessions are divided by {arrival}, gaps inside \
             a session by {think} (trace: {span_s:.0} s)"
        );
    }
    if arrival.is_infinite() {
        return format!("time-scale inf: {span_s:.0} s → as fast as causality allows");
    }
    if arrival == 1.0 {
        return format!("time-scale 1: {span_s:.0} s");
    }
    format!("time-scale {arrival}: {span_s:.0} s → {:.0} s", span_s / arrival)
}

fn mark(pressing: bool, text: String) -> String {
    format!("{} {text}", if pressing { '!' } else { ' ' })
}

fn live(preflight: &Preflight) -> String {
    let Preflight { sessions, requests, peak_live_sessions, .. } = preflight;
    format!("{requests} requests in {sessions} sessions, about {peak_live_sessions} live at once")
}

fn slots_line(slots: &Slots) -> String {
    let Slots { workers, cap, total, wanted, starved, .. } = slots;
    let head = format!("{total} slots ({workers} D × cap {cap})");
    let short = *total < u64::from(*wanted);
    match (slots.release, starved) {
        (SlotRelease::Never, 0) => format!("{head} ≥ {wanted} sessions: each can hold one"),
        (SlotRelease::Never, starved) => {
            format!("{head} < {wanted} sessions, slots are never released: {starved} sessions can never hold a slot")
        }
        (SlotRelease::SessionEnd | SlotRelease::IdleLru, 0) if !short => {
            format!("{head} ≥ {wanted} sessions: each can hold one")
        }
        (SlotRelease::SessionEnd | SlotRelease::IdleLru, 0) => {
            format!("{head} for {wanted} sessions: released slots are likely to reach every session")
        }
        (SlotRelease::SessionEnd | SlotRelease::IdleLru, starved) => {
            format!("{head} < {wanted} sessions: about {starved} sessions end before a slot is released")
        }
    }
}

fn capacity_line(capacity: &Capacity) -> String {
    let Capacity { workers, pool_tokens, peak_context_tokens, overload, mean_context_tokens, sessions_per_worker } =
        capacity;
    let pools =
        format!("{} in {workers} {}", tokens(*pool_tokens as f64), if *workers == 1 { "pool" } else { "pools" });
    let text = format!(
        "KV: peak contexts of all sessions {} tokens against {pools}, {overload:.1} times; one pool holds \
         {sessions_per_worker} of the mean context ({})",
        tokens(*peak_context_tokens as f64),
        tokens(*mean_context_tokens)
    );
    mark(*overload > 1.0, text)
}

fn direct_line(direct: &DirectShare) -> String {
    let DirectShare { predicted, by_slots, by_capacity } = direct;
    let binds = match by_slots.total_cmp(by_capacity) {
        Ordering::Less => "slots bind",
        Ordering::Equal => "neither slots nor KV capacity bind",
        Ordering::Greater => "KV capacity binds",
    };
    format!(
        "direct-to-D about {}: {binds} (slots alone {}, capacity alone {})",
        percent(*predicted),
        percent(*by_slots),
        percent(*by_capacity)
    )
}

fn gaps_line(gaps: &Gaps) -> String {
    let text = format!(
        "gaps shorter than the expected service time ({:.2} s): {} at 1×, {} at the chosen scale",
        gaps.mean_service_s,
        percent(gaps.under_service_share),
        percent(gaps.under_service_share_scaled)
    );
    let distorted = gaps.under_service_share_scaled > gaps.under_service_share + 0.1;
    if distorted { format!("! {text}: the scale turns think time into queueing") } else { format!("  {text}") }
}

fn prefill_line(load: f64) -> String {
    let text = format!("prefill load about {load:.2} of what the prefill workers can do in the planned time");
    if load > 1.0 { format!("{text}: they queue all run long") } else { text }
}

fn over_limit_line(over: &OverLimit) -> String {
    let OverLimit { limit_tokens, limit_key, turns, sessions } = over;
    let named = sessions.iter().take(5).cloned().collect::<Vec<_>>().join(", ");
    let more = if sessions.len() > 5 { ", …" } else { "" };
    let of = if sessions.len() == 1 {
        format!("session {named}")
    } else {
        format!("{} sessions ({named}{more})", sessions.len())
    };
    format!("turns over {limit_key} = {limit_tokens} tokens: {turns}, of {of}; they will be refused")
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn tokens(count: f64) -> String {
    if count >= 1e6 {
        format!("{:.2}M", count / 1e6)
    } else if count >= 1e4 {
        format!("{:.0}K", count / 1e3)
    } else {
        format!("{count:.0}")
    }
}
