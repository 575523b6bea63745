//! How long each prompt is.
//!
//! A first prompt is the shared prefix and a task; each later one is the previous prompt, its answer and a tool's
//! observation. Observations are scaled so that every session ends at its peak, and peaks so that each class has its
//! mean. Invariant: every prompt is longer than the previous prompt and answer together.

use super::Draw;
use super::quantiles::{OBSERVATION, TASK, quantile, scale_to_mean};
use super::sessions::Session;
use super::spec::GenerateSpec;
use crate::base::Rng;

/// Longest task text of a first prompt, tokens: the end of its table.
pub(super) const LONGEST_TASK_TOKENS: u32 = 4_200;

/// Shortest and longest observation, tokens.
const OBSERVATION_TOKENS: (f64, f64) = (24.0, 30_000.0);

/// Prompt tokens of all turns, given their answers.
pub(super) fn draw_inputs(spec: &GenerateSpec, sessions: &[Session], output: &[u32]) -> Vec<u32> {
    let mut tasks = Draw::Tasks.rng(spec.seed);
    let sizes: Vec<Size> = sessions
        .iter()
        .map(|session| {
            let answers = &output[session.turns.start..session.turns.end - 1];
            Size {
                first: spec.opening() + quantile(TASK, tasks.f64()) as u32,
                answers: answers.iter().map(|&tokens| f64::from(tokens)).sum(),
                turns: session.turns.len() as f64,
            }
        })
        .collect();
    let peaks = draw_peaks(spec, sessions, &sizes);

    let mut rng = Draw::Observations.rng(spec.seed);
    let mut input = Vec::with_capacity(output.len());
    for ((session, size), peak) in sessions.iter().zip(&sizes).zip(peaks) {
        let answers = &output[session.turns.start..session.turns.end - 1];
        push_inputs(&mut input, size, answers, peak, &mut rng);
    }
    input
}

/// What bounds a session's peak from below.
struct Size {
    first: u32,
    /// All answers but the last, tokens.
    answers: f64,
    turns: f64,
}

impl Size {
    /// The longest prompt, when all observations are as short as can be.
    fn least_peak(&self) -> f64 {
        f64::from(self.first) + self.answers + (OBSERVATION_TOKENS.0 + 1.0) * self.turns
    }
}

/// Peak of one class: its mean, and the range around it.
struct Class {
    heavy: bool,
    mean: f64,
    floor: f64,
    ceiling: f64,
}

fn draw_peaks(spec: &GenerateSpec, sessions: &[Session], sizes: &[Size]) -> Vec<f64> {
    let (light, heavy) = (f64::from(spec.peak_light), f64::from(spec.peak_heavy));
    let longest = f64::from(spec.peak_max);
    let classes = [
        Class { heavy: false, mean: light, floor: 0.36 * light, ceiling: (1.55 * light).min(longest) },
        Class { heavy: true, mean: heavy, floor: 0.66 * heavy, ceiling: longest },
    ];
    let mut rng = Draw::Peaks.rng(spec.seed);
    let mut peaks = vec![0.0; sessions.len()];
    for class in classes {
        let members: Vec<usize> = (0..sessions.len()).filter(|&i| sessions[i].heavy == class.heavy).collect();
        let mean_turns = members.iter().map(|&i| sizes[i].turns).sum::<f64>() / members.len() as f64;
        let mut floors: Vec<f64> = members.iter().map(|&i| sizes[i].least_peak().max(class.floor)).collect();
        let drawn: Vec<f64> = members
            .iter()
            .map(|&i| class.mean * (0.26 * rng.normal()).exp() * (sizes[i].turns / mean_turns).sqrt())
            .collect();
        if class.heavy && has_longest_session(members.len()) {
            let top = (0..drawn.len()).max_by(|&a, &b| drawn[a].total_cmp(&drawn[b])).unwrap_or(0);
            floors[top] = class.ceiling;
        }
        for (&i, peak) in members.iter().zip(scale_to_mean(&drawn, &floors, class.ceiling, class.mean)) {
            peaks[i] = peak;
        }
    }
    peaks
}

/// Whether one heavy session is stretched to the longest prompt of all; among a few it would set their mean.
pub(super) fn has_longest_session(heavy_sessions: usize) -> bool {
    heavy_sessions > 3
}

/// The prompts of one session, from its first to `peak`.
fn push_inputs(input: &mut Vec<u32>, size: &Size, answers: &[u32], peak: f64, rng: &mut Rng) {
    let drawn: Vec<f64> = answers.iter().map(|_| quantile(OBSERVATION, rng.f64())).collect();
    let room = peak - f64::from(size.first) - size.answers;
    let (shortest, longest) = OBSERVATION_TOKENS;
    let floors = vec![shortest; drawn.len()];
    let observations = scale_to_mean(&drawn, &floors, longest, room / drawn.len() as f64);

    let mut prompt = size.first;
    let mut exact = 0.0;
    let mut placed = 0;
    input.push(prompt);
    for (answer, observation) in answers.iter().zip(observations) {
        // Rounding the running sum, not each part, ends the session at its peak.
        exact += observation;
        let added = exact.round() as u32 - placed;
        placed += added;
        prompt += answer + added;
        input.push(prompt);
    }
}
