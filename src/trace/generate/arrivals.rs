//! When each session starts.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Draw;
use super::spec::{Arrival, GenerateError, GenerateSpec};
use crate::base::Rng;

/// Sessions of a burst start within this, seconds.
const BURST_S: f64 = 2.0;

/// Start of each session in milliseconds, the earliest 0, given how long each lasts (in id order).
///
/// # Errors
/// A span was asked that these sessions cannot have.
pub(super) fn draw_starts(spec: &GenerateSpec, lasts_ms: &[u64]) -> Result<Vec<u64>, GenerateError> {
    let mut rng = Draw::Arrivals.rng(spec.seed);
    let lasts: Vec<f64> = lasts_ms.iter().map(|&ms| ms as f64 / 1_000.0).collect();
    let starts = match spec.arrival {
        Arrival::Uniform => uniform(spec, &lasts, &mut rng)?,
        Arrival::Pool => pool(spec, &lasts, &mut rng),
        Arrival::Burst => lasts.iter().map(|_| BURST_S * rng.f64()).collect(),
    };
    let earliest = starts.iter().copied().fold(f64::INFINITY, f64::min);
    Ok(starts.iter().map(|start| ((start - earliest) * 1_000.0).round() as u64).collect())
}

/// Uniform starts in id order, stretched so that the last call falls on the span.
fn uniform(spec: &GenerateSpec, lasts: &[f64], rng: &mut Rng) -> Result<Vec<f64>, GenerateError> {
    let longest_s = lasts.iter().copied().fold(0.0, f64::max);
    let span_s = match spec.span_s {
        Some(span_s) if lasts.len() == 1 => return Err(GenerateError::SpanOfOneSession { span_s, longest_s }),
        Some(span_s) if span_s < longest_s => return Err(GenerateError::SpanTooShort { span_s, longest_s }),
        Some(span_s) => span_s,
        None => spec.default_span_s().max(2.0 * longest_s),
    };
    let mut places: Vec<f64> = lasts.iter().map(|_| rng.f64()).collect();
    places.sort_by(f64::total_cmp);
    let first = places[0];
    let span_of = |stretch: f64| places.iter().zip(lasts).map(|(p, d)| (p - first) * stretch + d).fold(0.0, f64::max);
    // The span grows with the stretch; this one puts the last start at the span or beyond.
    let last = places[places.len() - 1];
    let (mut low, mut high) = (0.0, if last > first { span_s / (last - first) } else { 0.0 });
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if span_of(middle) < span_s {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(places.iter().map(|place| (place - first) * high).collect())
}

/// The agent that is free first takes the next session in id order, after a set-up delay.
fn pool(spec: &GenerateSpec, lasts: &[f64], rng: &mut Rng) -> Vec<f64> {
    let workers = spec.pool_workers.min(spec.sessions);
    let mut free_ms: BinaryHeap<Reverse<u64>> = (0..workers).map(|_| Reverse(0)).collect();
    lasts
        .iter()
        .map(|last| {
            let start = free_ms.pop().map_or(0, |free| free.0) as f64 / 1_000.0;
            let busy = last + spec.pool_setup_s * (0.4 * rng.normal()).exp();
            free_ms.push(Reverse(((start + busy) * 1_000.0).round() as u64));
            start
        })
        .collect()
}
