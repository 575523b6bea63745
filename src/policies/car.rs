//! `car`: cache-aware routing of P and D by cost, after the xLLM service (reference/000).
//!
//! Cost of a prefill (or colocated) worker: λ(1 − hit ratio) + (1 − λ) · waiting / largest waiting; of a decode worker:
//! KV usage + waiting / largest waiting. All in floating point, the least cost wins, equals take turns.
//! Workers without a valid load report are no candidates; a worker the index does not see is one, without hits.

use crate::base::{Role, WorkerId};
use crate::kv::WorkerHit;
use crate::policies::promise::Rules;
use crate::policies::{CarConfig, ClusterView, IndexPromise, PolicyRequest, Selection, SelectionReason, WorkerView};
use crate::protocol::LoadReport;
use crate::record::CandidateScore;

/// Options, whose turn it is among equals, and the last choice in numbers.
#[derive(Debug)]
pub struct Car {
    config: CarConfig,
    prefill_turns: Turns,
    decode_turns: Turns,
    explanation: Vec<CandidateScore>,
}

/// Load of a candidate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CarLoad {
    /// Requests on it that wait for their turn.
    pub waiting: u64,
    /// Share of its KV pool in use, 0 to 1.
    pub cache_usage: f64,
}

/// Why a worker is no candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exclusion {
    /// It does not serve, or is suspected not to.
    Down,
    /// It has not reported its load yet.
    NoReport,
    /// Its load cannot be: usage is no number, negative or above 1.
    InvalidReport,
    /// The session avoids it once, and there are others.
    Avoided,
}

/// Whose turn it is among candidates of equal cost.
#[derive(Debug, Clone, Copy, Default)]
pub struct Turns {
    picks: u64,
}

/// A worker as CAR weighs it.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    worker: WorkerId,
    load: CarLoad,
    promise: Option<IndexPromise>,
    ratio: f64,
    cost: f64,
}

/// Share of a prompt that a worker need not compute, 0 to 1; 0 for a prompt without tokens.
pub fn hit_ratio(device_tokens: u32, host_only_tokens: u32, host_weight: f64, input_tokens: u32) -> f64 {
    if input_tokens == 0 {
        return 0.0;
    }
    let worth = f64::from(device_tokens) + host_weight * f64::from(host_only_tokens);
    (worth / f64::from(input_tokens)).clamp(0.0, 1.0)
}

/// Cost of a prefill or colocated worker. `max_waiting` is that of all candidates.
pub fn prefill_cost(lambda: f64, ratio: f64, waiting: u64, max_waiting: u64) -> f64 {
    lambda * (1.0 - ratio) + (1.0 - lambda) * queue_share(waiting, max_waiting)
}

/// Cost of a decode worker. `max_waiting` is that of all candidates.
pub fn decode_cost(load: CarLoad, max_waiting: u64) -> f64 {
    load.cache_usage + queue_share(load.waiting, max_waiting)
}

/// Of the largest queue; 0 when all are empty.
fn queue_share(waiting: u64, max_waiting: u64) -> f64 {
    if max_waiting == 0 { 0.0 } else { waiting as f64 / max_waiting as f64 }
}

/// The load of a worker as CAR reads it, or why the worker is no candidate. `own` are requests sent there that its report
/// cannot know of.
pub fn load_of(up: bool, report: Option<LoadReport>, own: u32) -> Result<CarLoad, Exclusion> {
    let report = match (up, report) {
        (false, _) => return Err(Exclusion::Down),
        (true, None) => return Err(Exclusion::NoReport),
        (true, Some(report)) => report,
    };
    // Not a number is in no range.
    if !(0.0..=1.0).contains(&report.token_usage) {
        return Err(Exclusion::InvalidReport);
    }
    let queues = [report.num_waiting, report.num_prealloc, report.num_transfer, own];
    Ok(CarLoad { waiting: queues.into_iter().map(u64::from).sum(), cache_usage: report.token_usage })
}

impl Turns {
    /// Index of the least cost; of those within `epsilon` of it, the first one from where the turn is.
    pub fn pick(&mut self, costs: &[f64], epsilon: f64) -> Option<usize> {
        let least = costs.iter().copied().min_by(f64::total_cmp)?;
        let start = (self.picks % costs.len() as u64) as usize;
        self.picks = self.picks.wrapping_add(1);
        (start..costs.len()).chain(0..start).find(|&at| costs[at] <= least + epsilon)
    }
}

impl Car {
    /// Nobody has had a turn yet.
    pub fn new(config: CarConfig) -> Car {
        let (prefill_turns, decode_turns) = (Turns::default(), Turns::default());
        Car { config, prefill_turns, decode_turns, explanation: Vec::new() }
    }

    /// A prefill and a decode worker, or one that does both; `None` when a leg has no candidate.
    pub fn select(&mut self, view: &ClusterView, request: &PolicyRequest) -> Option<Selection> {
        self.explanation.clear();
        if view.role == Role::Colocated {
            let chosen = self.prefill(view, view.role, view.workers, request.excluded, request.input_tokens)?;
            return Some(self.selection(view, request, None, chosen));
        }
        let prefill = self.prefill(view, Role::Prefill, view.prefill, None, request.input_tokens);
        let decode = self.decode(view, request.excluded);
        let (prefill, decode) = prefill.zip(decode)?;
        let promise = prefill.promise;
        Some(self.selection(view, request, Some(prefill.worker), Candidate { promise, ..decode }))
    }

    /// The candidates of the last choice with their costs, those excluded too; empty unless `explain` is set.
    pub fn explanation(&self) -> &[CandidateScore] {
        &self.explanation
    }

    fn selection(
        &self,
        view: &ClusterView,
        request: &PolicyRequest,
        prefill: Option<WorkerId>,
        chosen: Candidate,
    ) -> Selection {
        let hit = chosen.promise.map_or(0, IndexPromise::tokens).min(request.input_tokens);
        let worker = chosen.worker.index;
        let selection = view.selection(request.session, worker, SelectionReason::LeastCost, hit);
        let header = prefill.map_or(selection.header, |prefill| view.header_mode.legs(prefill.index, worker));
        Selection { prefill, header, index: chosen.promise, ..selection }
    }

    fn prefill(
        &mut self,
        view: &ClusterView,
        role: Role,
        workers: &[WorkerView],
        excluded: Option<u16>,
        input_tokens: u32,
    ) -> Option<Candidate> {
        let rules = Rules { host_weight: self.config.host_hit_weight, static_streams: self.config.static_streams };
        let promised =
            |hits: &[WorkerHit], worker, seen: &WorkerView| IndexPromise::of(hits, worker, seen.process, rules);
        let mut candidates =
            self.candidates(role, workers, excluded, |worker, seen| view.hits.map(|hits| promised(hits, worker, seen)));
        let max_waiting = max_waiting(&candidates);
        for candidate in &mut candidates {
            if let Some(promise) = candidate.promise {
                let tokens = (promise.device_tokens, promise.host_only_tokens);
                candidate.ratio = hit_ratio(tokens.0, tokens.1, rules.host_weight, input_tokens);
            }
            let waiting = candidate.load.waiting;
            candidate.cost = prefill_cost(self.config.prefill_lambda, candidate.ratio, waiting, max_waiting);
        }
        self.explain(&candidates);
        pick(&mut self.prefill_turns, &candidates, self.config.tie_epsilon)
    }

    fn decode(&mut self, view: &ClusterView, excluded: Option<u16>) -> Option<Candidate> {
        let mut candidates = self.candidates(view.role, view.workers, excluded, |_, _| None);
        let max_waiting = max_waiting(&candidates);
        for candidate in &mut candidates {
            candidate.cost = decode_cost(candidate.load, max_waiting);
        }
        self.explain(&candidates);
        pick(&mut self.decode_turns, &candidates, self.config.tie_epsilon)
    }

    /// Those that may be chosen, by index; the others are noted with the reason.
    fn candidates(
        &mut self,
        role: Role,
        workers: &[WorkerView],
        excluded: Option<u16>,
        promise: impl Fn(WorkerId, &WorkerView) -> Option<IndexPromise>,
    ) -> Vec<Candidate> {
        let own = |seen: &WorkerView| if self.config.count_own { seen.own } else { 0 };
        let loads: Vec<_> = workers.iter().map(|seen| load_of(seen.up, seen.load, own(seen))).collect();
        let others = loads.iter().zip(0u16..).any(|(load, index)| load.is_ok() && Some(index) != excluded);
        let mut candidates = Vec::with_capacity(workers.len());
        for ((seen, load), index) in workers.iter().zip(loads).zip(0u16..) {
            let worker = WorkerId::new(role, index);
            let avoided = others && Some(index) == excluded;
            match load.and_then(|load| if avoided { Err(Exclusion::Avoided) } else { Ok(load) }) {
                Ok(load) => {
                    candidates.push(Candidate { worker, load, promise: promise(worker, seen), ratio: 0.0, cost: 0.0 });
                }
                Err(why) if self.config.explain => {
                    let excluded = Some(why.as_str().to_owned());
                    self.explanation.push(CandidateScore {
                        worker: worker.to_string(),
                        excluded,
                        ..Default::default()
                    });
                }
                Err(_) => {}
            }
        }
        candidates
    }

    fn explain(&mut self, candidates: &[Candidate]) {
        if self.config.explain {
            self.explanation.extend(candidates.iter().map(Candidate::score));
        }
    }
}

impl Candidate {
    fn score(&self) -> CandidateScore {
        let is_decode = self.worker.role == Role::Decode;
        CandidateScore {
            worker: self.worker.to_string(),
            cost: Some(self.cost),
            waiting: Some(self.load.waiting),
            cache_usage: is_decode.then_some(self.load.cache_usage),
            // A worker that no index was asked about has no ratio, though its cost counts one of 0.
            hit_ratio: (!is_decode).then_some(self.ratio).filter(|_| self.promise.is_some()),
            device_tokens: self.promise.map(|promise| promise.device_tokens),
            host_only_tokens: self.promise.map(|promise| promise.host_only_tokens),
            index: self.promise.map(|promise| promise.sight.as_str().to_owned()),
            excluded: None,
        }
    }
}

fn max_waiting(candidates: &[Candidate]) -> u64 {
    candidates.iter().map(|candidate| candidate.load.waiting).max().unwrap_or(0)
}

fn pick(turns: &mut Turns, candidates: &[Candidate], epsilon: f64) -> Option<Candidate> {
    let costs: Vec<f64> = candidates.iter().map(|candidate| candidate.cost).collect();
    turns.pick(&costs, epsilon).map(|at| candidates[at])
}

impl Exclusion {
    /// Stable label.
    pub fn as_str(self) -> &'static str {
        match self {
            Exclusion::Down => "down",
            Exclusion::NoReport => "no-load-report",
            Exclusion::InvalidReport => "invalid-load-report",
            Exclusion::Avoided => "avoided",
        }
    }
}
