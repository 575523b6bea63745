//! What numbers make together: the longest iteration, the time of a token's KV, the span of a trace at its scale.
//!
//! Each factor may be in its range while the product leaves the clock or is of no use; the largest part is blamed.

use super::error::Problem;
use super::model::Scenario;
use super::validate::problem;
use super::validate_range::{HOUR_MS, LONGEST_S, shown};
use crate::engine::EngineConfig;
use crate::trace::{MOST_TOKENS, Trace};

/// Most KV a run may move, bytes, were every prompt and answer moved once.
const MOST_KV_BYTES: f64 = 1e18;

/// An iteration that lasts above 1 h: `chunk_tokens` new tokens on a full pool, or a full batch on a full pool.
pub(super) fn iteration(engine: &EngineConfig, problems: &mut Vec<Problem>) {
    let timing = &engine.timing;
    let constants = [timing.p0, timing.p1, timing.p2, timing.d0, timing.d1, timing.d2, timing.d3];
    if constants.iter().any(|constant| !(0.0..=f64::MAX).contains(constant)) {
        return;
    }
    // No prompt is longer than a trace may have it, however large the pool.
    let longest = f64::from(MOST_TOKENS);
    let pool = engine.kv_pool_tokens as f64;
    let new = f64::from(engine.chunk_tokens).min(pool);
    let context = pool.min(longest);
    let requests = f64::from(engine.max_running);
    let held = pool.min(requests * longest);
    let prefill = [
        ("p0", timing.p0),
        ("p1", timing.p1 * new),
        ("p2", timing.p2 * new * (context + new / 2.0)),
        ("d2", timing.d2 * requests),
        ("d3", timing.d3 * held),
    ];
    let decode = [
        ("d0", timing.d0),
        ("d1", timing.d1 * f64::from(timing.experts)),
        ("d2", timing.d2 * requests),
        ("d3", timing.d3 * held),
    ];
    let prefill_words = format!("an iteration of {new} new tokens on {context} cached ones");
    let decode_words = format!("an iteration of {requests} requests with {held} tokens of context");
    for (terms, words) in [(&prefill[..], prefill_words), (&decode[..], decode_words)] {
        let total: f64 = terms.iter().map(|(_, ms)| ms).sum();
        // Infinite when the formula leaves the doubles.
        if total <= HOUR_MS {
            continue;
        }
        let Some((name, ms)) = terms.iter().max_by(|a, b| a.1.total_cmp(&b.1)) else { continue };
        let cause = format!(
            "makes {words} last {} ms, {} ms of it this term; 3.6e6 ms (1 h) is the most",
            shown(total),
            shown(*ms)
        );
        problems.push(problem(format!("engine.timing.{name}"), cause, "lower it, the pool, the chunk or the batch"));
        return;
    }
}

/// A token's KV that takes above 1 s on the link or from host memory.
pub(super) fn kv_bytes(scenario: &Scenario, problems: &mut Vec<Problem>) {
    let bytes = scenario.engine.kv_bytes_per_token as f64;
    let rates = [
        ("cluster.link.gbytes_per_s", scenario.cluster.link.gbytes_per_s),
        ("engine.retract_reload_gbytes_per_s", scenario.engine.retract_reload_gbytes_per_s),
    ];
    for (key, gbytes_per_s) in rates {
        let seconds = bytes / (gbytes_per_s * 1e9);
        if gbytes_per_s > 0.0 && seconds > 1.0 {
            let cause = format!(
                "is {}: the KV of one token, {bytes} bytes, would take {} s; 1 s is the most",
                shown(gbytes_per_s),
                shown(seconds)
            );
            problems.push(problem(key, cause, "raise it, or lower `engine.kv_bytes_per_token`"));
        }
    }
}

/// What only trace and scenario together can exceed: the length of the schedule, and the KV moved.
///
/// # Errors
/// A span above 1e9 s at the scenario's time scales, or more than 1e18 bytes of KV.
pub fn check_span(scenario: &Scenario, trace: &Trace) -> Result<(), Problem> {
    let replay = &scenario.replay;
    let firsts = trace.sessions.iter().filter_map(|session| trace.turns.get(session.turns.start as usize));
    let arrivals_s = firsts.map(|first| first.timestamp.as_secs_f64()).fold(0.0, f64::max);
    let ranges = trace.sessions.iter().filter_map(|session| {
        trace.turns.get(session.turns.start as usize..session.turns.end as usize).filter(|turns| !turns.is_empty())
    });
    let lasts = ranges.map(|turns| {
        let latest = turns.iter().map(|turn| turn.timestamp).max().unwrap_or_default();
        latest.as_secs_f64() - turns[0].timestamp.as_secs_f64()
    });
    let longest_s = lasts.fold(0.0, f64::max);
    let parts = [
        ("replay.arrival_scale", "arrivals of the trace", arrivals_s, replay.arrival_scale),
        ("replay.think_scale", "longest session of the trace", longest_s, replay.think_scale),
    ];
    for (key, what, seconds, scale) in parts {
        let scaled = seconds / scale;
        if scaled > LONGEST_S {
            let (seconds, scaled) = (shown(seconds), shown(scaled));
            let cause = format!(
                "is {}: the {what}, {seconds} s, would take {scaled} s; 1e9 s (31 years) is the most",
                shown(scale)
            );
            return Err(problem(key, cause, "raise it, or slice the trace"));
        }
    }
    let tokens: f64 = trace.turns.iter().map(|turn| f64::from(turn.input_length) + f64::from(turn.output_length)).sum();
    let bytes = tokens * scenario.engine.kv_bytes_per_token as f64;
    if bytes > MOST_KV_BYTES {
        let cause = format!(
            "is {}: the KV of all {} tokens of the trace would be {} bytes; 1e18 is the most",
            scenario.engine.kv_bytes_per_token,
            shown(tokens),
            shown(bytes)
        );
        return Err(problem("engine.kv_bytes_per_token", cause, "lower it, or slice the trace"));
    }
    Ok(())
}
