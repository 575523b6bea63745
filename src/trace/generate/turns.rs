//! How long each turn's answer is, and how long until the session's next turn.
//!
//! Gaps follow answers by rank, with noise: a long generation delays the next call. Invariant: a call starts no
//! earlier than its predecessor could have ended at the fastest recorded speed, 0.25 s and 190 tokens a second.

use super::Draw;
use super::quantiles::{GAP_S, OUTPUT, stratified};
use super::sessions::Session;
use super::spec::GenerateSpec;
use crate::base::Rng;

/// Shortest time to the first token, milliseconds.
pub(super) const FASTEST_TTFT_MS: u32 = 250;

/// Fastest recorded decode, tokens per second.
pub(super) const FASTEST_TOKENS_PER_S: u32 = 190;

/// Answers and gaps of all turns, session after session.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pace {
    /// Answer tokens.
    pub output: Vec<u32>,
    /// Milliseconds to the next turn of the session; 0 for its last.
    pub gap_ms: Vec<u32>,
}

/// Draws answers and gaps.
pub(super) fn draw_pace(spec: &GenerateSpec, sessions: &[Session]) -> Pace {
    let count = spec.request_count() as usize;
    let mut output = draw_outputs(count, spec.output_mean, &mut Draw::Outputs.rng(spec.seed));
    let mut followed: Vec<usize> = sessions.iter().flat_map(|s| s.turns.start..s.turns.end - 1).collect();
    let gap_ms = draw_gaps(&output, &mut followed, &mut Draw::Gaps.rng(spec.seed));
    let total = (spec.output_mean * count as f64).round() as u64;
    fit_outputs(&mut output, &gap_ms, &followed, total);
    Pace { output, gap_ms }
}

/// Most answer tokens that end before the next call, `gap_ms` later, starts.
pub(super) fn most_output(gap_ms: u32) -> u32 {
    let decode_ms = u64::from(gap_ms.saturating_sub(FASTEST_TTFT_MS));
    u32::try_from(decode_ms * u64::from(FASTEST_TOKENS_PER_S) / 1_000).unwrap_or(u32::MAX).max(1)
}

fn draw_outputs(count: usize, mean: f64, rng: &mut Rng) -> Vec<u32> {
    let values = stratified(OUTPUT, count);
    let factor = mean * count as f64 / values.iter().sum::<f64>();
    let mut outputs: Vec<u32> = values.iter().map(|value| (value * factor).round().max(1.0) as u32).collect();
    rng.shuffle(&mut outputs);
    outputs
}

/// Gives the turns `followed` by another the quantiles of [`GAP_S`]. Leaves `followed` in random order.
fn draw_gaps(output: &[u32], followed: &mut [usize], rng: &mut Rng) -> Vec<u32> {
    let mut scores: Vec<f64> = followed.iter().map(|_| rng.normal()).collect();
    scores.sort_by(f64::total_cmp);
    // Shuffled first: equal answers get their scores in random order.
    rng.shuffle(followed);
    let mut by_output = followed.to_vec();
    by_output.sort_by_key(|&turn| output[turn]);

    // A normal score per rank of the answer, mixed with noise: rank correlation of about 0.7.
    let mut by_length: Vec<(f64, usize)> =
        by_output.iter().zip(&scores).map(|(&turn, score)| (0.72 * score + 0.69 * rng.normal(), turn)).collect();
    by_length.sort_by(|a, b| a.0.total_cmp(&b.0));

    let mut gap_ms = vec![0; output.len()];
    for (&(_, turn), gap_s) in by_length.iter().zip(stratified(GAP_S, followed.len())) {
        gap_ms[turn] = (gap_s * 1_000.0).round() as u32;
    }
    gap_ms
}

/// Cuts answers that would outlast their gap, and gives the tokens cut to turns with time to spare.
fn fit_outputs(output: &mut [u32], gap_ms: &[u32], followed: &[usize], total: u64) {
    for &turn in followed {
        output[turn] = output[turn].min(most_output(gap_ms[turn]));
    }
    let sum: u64 = output.iter().map(|&tokens| u64::from(tokens)).sum();
    let mut short = total.saturating_sub(sum);
    loop {
        let before = short;
        for &turn in followed {
            // By at most 60 %, and longer answers only: the median stays where it was.
            let room = most_output(gap_ms[turn]).saturating_sub(output[turn]).min(output[turn] * 3 / 5);
            if output[turn] > 60 && room > 0 {
                let added = u64::from(room).min(short);
                output[turn] += added as u32;
                short -= added;
            }
        }
        if short == 0 || short == before {
            return;
        }
    }
}
