//! Workers that take longer than their peers for like work.
//!
//! The pace of a prefill is its time per computed token, that of an answer its time per token after the first. Both depend on
//! the work, so each is compared with the median of what other workers needed in the same cell: of prefills with like numbers
//! of computed tokens, of tokens before them, and of prompts in prefill beside them; of answers with like numbers of answers
//! beside them, and of tokens in all their contexts. What is beside is the mean over the time of the prefill or answer. Cells
//! are half an octave wide: an iteration's time is a sum of parts that are constant or grow with one of these numbers, so work
//! on equal workers differs by hardly more than √2 in a cell, whoever has the longer prompts or the higher load.
//! A worker is slow when the median of its ratios is at least [`SLOW_FROM`] and the sign test finds too many of them above 1.
//! Records are looked at in windows, so that memory does not grow but by a ratio for each.

use std::collections::BTreeMap;

use super::cause::{PaceOf, SlowWorker};
use crate::results::Metric;
use crate::results::seen::{Name, Seen};
use crate::results::stats::{binomial_tail, median};
use crate::results::vocabulary::Vocabulary;

/// A worker takes so many times as long as its peers.
const SLOW_FROM: f64 = 1.5;
/// … and chance finds it above them so often with less than this probability, times the workers compared.
const SLOW_BELOW: f64 = 0.01;
/// Fewer values of others in a cell are no peers.
const PEERS: usize = 3;
/// Shorter answers say little of a decode step.
const LEAST_TOKENS: u32 = 8;
/// Prefills, or answers, that are looked at together.
const WINDOW: usize = 65_536;
/// Contexts are told apart from about this length on, tokens.
const SHORT_CONTEXT: f64 = 1024.0;

/// Paces of both kinds.
#[derive(Debug, Default)]
pub(super) struct Paces {
    prefills: Tally,
    answers: Tally,
}

#[derive(Debug, Default)]
struct Tally {
    window: Vec<Stint>,
    ratios: BTreeMap<u32, Ratios>,
}

/// Of one worker.
#[derive(Debug, Default)]
struct Ratios {
    stints: u64,
    /// To the peers' median, of those that had peers.
    over_peers: Vec<f32>,
}

/// A prefill or an answer, and when it was under way.
#[derive(Debug, Clone, Copy)]
struct Stint {
    worker: u32,
    from_ns: u64,
    to_ns: u64,
    /// Time per token, ns.
    pace: f64,
    /// Tokens it computes; 0 for an answer.
    tokens: u32,
    /// Tokens before them.
    context: u32,
}

/// What was under way on a worker, mean over a stint, itself included.
#[derive(Debug, Clone, Copy, Default)]
struct Company {
    stints: f64,
    context: f64,
}

type Cell = [i32; 3];

impl Paces {
    pub(super) fn add(&mut self, request: &Seen) {
        // Of one that was sent again, or retracted, the times are not of one piece.
        if !request.outcome.is_ok() || request.attempts != 1 || request.retractions > 0 {
            return;
        }
        if let (Some(worker), Some(prefill)) = (request.prefill_worker, prefill(request)) {
            self.prefills.add(worker, prefill, cell_of_prefill);
        }
        if let (Some(worker), Some(answer)) = (request.decode_worker_actual, answer(request)) {
            self.answers.add(worker, answer, cell_of_answer);
        }
    }

    /// The slow ones of all requests added, by `names`.
    pub(super) fn slow(&mut self, names: &Vocabulary) -> Vec<SlowWorker> {
        self.prefills.close(cell_of_prefill);
        self.answers.close(cell_of_answer);
        let prefills = self.prefills.slow(names, PaceOf::ComputedToken);
        prefills.into_iter().chain(self.answers.slow(names, PaceOf::AnswerToken)).collect()
    }
}

/// Without its worker.
fn prefill(request: &Seen) -> Option<Stint> {
    let (queue_ns, prefill_ns) = (request.ns(Metric::PrefillQueue)?, request.ns(Metric::Prefill)?);
    let context = request.cached_tokens?;
    let tokens = request.input_tokens.checked_sub(context).filter(|tokens| *tokens > 0)?;
    let from_ns = request.sent_ns? + request.ns(Metric::Admission).unwrap_or(0) + queue_ns;
    let pace = prefill_ns as f64 / f64::from(tokens);
    (prefill_ns > 0).then_some(Stint { worker: 0, from_ns, to_ns: from_ns + prefill_ns, pace, tokens, context })
}

/// Without its worker.
fn answer(request: &Seen) -> Option<Stint> {
    let (ttft_ns, step_ns) = (request.ns(Metric::Ttft)?, request.ns(Metric::Tpot)?);
    let from_ns = request.sent_ns? + ttft_ns;
    let to_ns = from_ns + step_ns * u64::from(request.output_tokens.saturating_sub(1));
    let is_enough = request.output_tokens >= LEAST_TOKENS && step_ns > 0;
    let context = request.input_tokens;
    is_enough.then_some(Stint { worker: 0, from_ns, to_ns, pace: step_ns as f64, tokens: 0, context })
}

fn cell_of_prefill(stint: &Stint, beside: Company) -> Cell {
    let context = f64::from(stint.context) / SHORT_CONTEXT + 1.0;
    [half_octave(stint.tokens.into()), half_octave(context), half_octave(beside.stints)]
}

fn cell_of_answer(_: &Stint, beside: Company) -> Cell {
    [half_octave(beside.stints), half_octave(beside.context / SHORT_CONTEXT + 1.0), 0]
}

fn half_octave(value: f64) -> i32 {
    (value.log2() * 2.0).floor() as i32
}

impl Tally {
    fn add(&mut self, worker: Name, stint: Stint, cell: fn(&Stint, Company) -> Cell) {
        self.window.push(Stint { worker: worker.ix, ..stint });
        if self.window.len() >= WINDOW {
            self.close(cell);
        }
    }

    /// Turns the window into ratios.
    fn close(&mut self, cell: fn(&Stint, Company) -> Cell) {
        let mut window = std::mem::take(&mut self.window);
        window.sort_by_key(|stint| stint.worker);
        let mut cells: BTreeMap<Cell, Vec<&Stint>> = BTreeMap::new();
        for stints in window.chunk_by(|a, b| a.worker == b.worker) {
            self.ratios.entry(stints[0].worker).or_default().stints += stints.len() as u64;
            for (stint, beside) in stints.iter().zip(company(stints)) {
                cells.entry(cell(stint, beside)).or_default().push(stint);
            }
        }
        for stints in cells.values() {
            // By worker still.
            for own in stints.chunk_by(|a, b| a.worker == b.worker) {
                let of_others = stints.iter().filter(|other| other.worker != own[0].worker).map(|other| other.pace);
                let mut others: Vec<f64> = of_others.collect();
                let ratios = self.ratios.entry(own[0].worker).or_default();
                if let Some(peers) = median(&mut others).filter(|_| others.len() >= PEERS) {
                    ratios.over_peers.extend(own.iter().map(|stint| (stint.pace / peers) as f32));
                }
            }
        }
    }

    fn slow(&self, names: &Vocabulary, pace: PaceOf) -> Vec<SlowWorker> {
        let compared = self.ratios.values().filter(|ratios| !ratios.over_peers.is_empty()).count();
        let judge = |(worker, ratios): (&u32, &Ratios)| {
            let mut over_peers: Vec<f64> = ratios.over_peers.iter().map(|ratio| f64::from(*ratio)).collect();
            let above = over_peers.iter().filter(|ratio| **ratio > 1.0).count();
            let factor = median(&mut over_peers).filter(|factor| *factor >= SLOW_FROM)?;
            let p_value = binomial_tail(above as u64, over_peers.len() as u64, 0.5) * compared as f64;
            (p_value < SLOW_BELOW).then(|| SlowWorker {
                worker: names.list().get(*worker).to_owned(),
                pace,
                factor,
                compared: over_peers.len() as u64,
                turns: ratios.stints,
            })
        };
        self.ratios.iter().filter_map(judge).collect()
    }
}

/// For each of a worker's stints, what was under way with it.
fn company(stints: &[Stint]) -> Vec<Company> {
    let begin = |stint: &Stint| (stint.from_ns, 1, i64::from(stint.context));
    let end = |stint: &Stint| (stint.to_ns, -1, -i64::from(stint.context));
    let mut changes: Vec<(u64, i64, i64)> = stints.iter().flat_map(|stint| [begin(stint), end(stint)]).collect();
    changes.sort_unstable();
    let (mut at, mut now, mut sum) = (0, (0, 0), Company::default());
    // Of both over time, up to each change.
    let mut sums: Vec<(u64, Company)> = Vec::with_capacity(changes.len());
    for (time, more, more_context) in changes {
        let lasted = (time - at) as f64;
        sum.stints += lasted * now.0 as f64;
        sum.context += lasted * now.1 as f64;
        (at, now) = (time, (now.0 + more, now.1 + more_context));
        sums.push((time, sum));
    }
    let until = |time: u64| sums[sums.partition_point(|(at, _)| *at <= time) - 1].1;
    let mean = |stint: &Stint| {
        let (from, to, lasted) = (until(stint.from_ns), until(stint.to_ns), (stint.to_ns - stint.from_ns) as f64);
        Company { stints: ((to.stints - from.stints) / lasted).max(1.0), context: (to.context - from.context) / lasted }
    };
    stints.iter().map(mean).collect()
}
