//! Statistics of a generated trace, and which of them miss their target.
//!
//! Only published numbers and asked knobs are targets; the rest is measured to be seen. A target missed is no error:
//! knobs can ask for means that the drawn answers do not leave room for, and the trace says so in a notice.

use super::inputs::has_longest_session;
use super::plan::{Plan, shared_blocks};
use super::quantiles::percentile;
use super::sessions::MOST_TURNS;
use super::sessions::has_named_sessions;
use super::spec::{Arrival, GenerateSpec};
use crate::trace::Notice;

/// One number of a generated trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Statistic {
    /// Name with its unit last.
    pub name: &'static str,
    /// Measured.
    pub value: f64,
    /// What it should be, when something fixes it.
    pub target: Option<Target>,
}

/// What a statistic should be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Target {
    /// The number aimed at.
    pub value: f64,
    /// Largest distance from it, as a share of it; 0: exact.
    pub tolerance: f64,
}

impl Statistic {
    fn seen(name: &'static str, value: f64) -> Statistic {
        Statistic { name, value, target: None }
    }

    fn aimed(name: &'static str, value: f64, target: f64, tolerance: f64) -> Statistic {
        Statistic { name, value, target: Some(Target { value: target, tolerance }) }
    }

    /// Within tolerance of its target, or without one.
    pub fn is_met(&self) -> bool {
        self.target.is_none_or(|target| (self.value - target.value).abs() <= target.tolerance * target.value)
    }
}

impl Plan {
    /// Measures the plan; the published statistics first.
    pub fn statistics(&self) -> Vec<Statistic> {
        let mut all = self.counts();
        all.extend(self.times());
        all.extend(self.lengths());
        all.extend(self.sharing());
        all
    }

    fn counts(&self) -> Vec<Statistic> {
        let spec = &self.spec;
        let turns = sorted(self.sessions.iter().map(|planned| planned.session.turns.len() as f64));
        let most = turns[turns.len() - 1];
        vec![
            Statistic::aimed("requests", self.request_count() as f64, f64::from(spec.request_count()), 0.0),
            Statistic::aimed("sessions", turns.len() as f64, f64::from(spec.sessions), 0.0),
            if has_named_sessions(spec) {
                Statistic::aimed("turns_max", most, f64::from(MOST_TURNS), 0.0)
            } else {
                Statistic::seen("turns_max", most)
            },
            Statistic::seen("turns_p50", percentile(&turns, 50.0)),
            Statistic::seen("turns_min", turns[0]),
        ]
    }

    fn times(&self) -> Vec<Statistic> {
        let spec = &self.spec;
        let span_s = self.start_ms.iter().copied().max().unwrap_or(0) as f64 / 1_000.0;
        let gaps = sorted(self.followed().map(|at| f64::from(self.pace.gap_ms[at]) / 1_000.0));
        // A quantile of a few gaps is not the table's.
        let enough = gaps.len() >= 500;
        let gap = |name, p, published| {
            let value = percentile(&gaps, p);
            if enough { Statistic::aimed(name, value, published, 0.03) } else { Statistic::seen(name, value) }
        };
        vec![
            match aimed_span_s(spec) {
                Some(target) => Statistic::aimed("span_s", span_s, target, 0.02),
                None => Statistic::seen("span_s", span_s),
            },
            gap("gap_p10_s", 10.0, 1.6),
            gap("gap_p50_s", 50.0, 2.5),
            gap("gap_p90_s", 90.0, 7.8),
            gap("gap_max_s", 100.0, 261.0),
            Statistic::seen("gap_mean_s", mean(&gaps)),
            Statistic::seen("live_sessions_max", self.most_live()),
        ]
    }

    fn lengths(&self) -> Vec<Statistic> {
        let spec = &self.spec;
        let outputs = sorted(self.pace.output.iter().map(|&tokens| f64::from(tokens)));
        let inputs = sorted(self.input.iter().map(|&tokens| f64::from(tokens)));
        let growth = sorted(self.followed().map(|at| f64::from(self.input[at + 1] - self.input[at])));
        let (light, heavy) = (self.peaks(false), self.peaks(true));
        let longest = inputs[inputs.len() - 1];
        let peak = |name, peaks: &[f64], target| {
            let value = mean(peaks);
            if peaks.is_empty() { Statistic::seen(name, 0.0) } else { Statistic::aimed(name, value, target, 0.03) }
        };
        vec![
            peak("peak_light_mean_tokens", &light, f64::from(spec.peak_light)),
            peak("peak_heavy_mean_tokens", &heavy, f64::from(spec.peak_heavy)),
            if has_longest_session(heavy.len()) {
                Statistic::aimed("peak_max_tokens", longest, f64::from(spec.peak_max), 0.03)
            } else {
                Statistic::seen("peak_max_tokens", longest)
            },
            Statistic::aimed("output_mean_tokens", mean(&outputs), spec.output_mean, 0.03),
            Statistic::seen("output_p50_tokens", percentile(&outputs, 50.0)),
            Statistic::seen("output_p90_tokens", percentile(&outputs, 90.0)),
            Statistic::seen("output_p99_tokens", percentile(&outputs, 99.0)),
            Statistic::seen("output_max_tokens", percentile(&outputs, 100.0)),
            Statistic::seen("growth_p50_tokens", percentile(&growth, 50.0)),
            Statistic::seen("growth_p90_tokens", percentile(&growth, 90.0)),
            Statistic::seen("growth_p99_tokens", percentile(&growth, 99.0)),
            Statistic::seen("growth_mean_tokens", mean(&growth)),
            Statistic::seen("input_mean_tokens", mean(&inputs)),
            Statistic::seen("heavy_sessions", heavy.len() as f64),
            Statistic::seen("peak_sum_tokens", light.iter().chain(&heavy).sum()),
        ]
    }

    /// Blocks, and the share of prompt tokens a cache without limit would hit.
    fn sharing(&self) -> Vec<Statistic> {
        let block = self.spec.block_size;
        let shared = shared_blocks(&self.spec);
        let mut hit_blocks = shared * (self.sessions.len() as u64 - 1);
        let mut unique = shared;
        for planned in &self.sessions {
            let turns = &self.input[planned.session.turns.clone()];
            hit_blocks += turns[..turns.len() - 1].iter().map(|&tokens| u64::from(tokens / block)).sum::<u64>();
            unique += u64::from(turns[turns.len() - 1] / block) - shared;
            unique += turns.iter().filter(|tokens| !tokens.is_multiple_of(block)).count() as u64;
        }
        let tokens: u64 = self.input.iter().map(|&tokens| u64::from(tokens)).sum();
        vec![
            Statistic::seen("ideal_cache_hit_share", (hit_blocks * u64::from(block)) as f64 / tokens as f64),
            Statistic::seen("unique_blocks", unique as f64),
        ]
    }

    /// Turns that have a next one.
    fn followed(&self) -> impl Iterator<Item = usize> {
        self.sessions.iter().flat_map(|planned| planned.session.turns.start..planned.session.turns.end - 1)
    }

    /// Longest prompt of each session of a class.
    fn peaks(&self, heavy: bool) -> Vec<f64> {
        let class = self.sessions.iter().filter(|planned| planned.session.heavy == heavy);
        class.map(|planned| f64::from(self.input[planned.session.turns.end - 1])).collect()
    }

    /// Most sessions between their first and last call at once.
    fn most_live(&self) -> f64 {
        let mut changes: Vec<(u64, i32)> = self
            .sessions
            .iter()
            .flat_map(|planned| {
                let turns = &planned.session.turns;
                [(self.start_ms[turns.start], 1), (self.start_ms[turns.end - 1], -1)]
            })
            .collect();
        changes.sort_unstable();
        let mut live = 0;
        let mut most = 0;
        for (_, change) in changes {
            live += change;
            most = most.max(live);
        }
        f64::from(most)
    }
}

/// What the plan missed, one notice each.
pub(super) fn notices(plan: &Plan) -> Vec<Notice> {
    let missed = plan.statistics().into_iter().filter(|statistic| !statistic.is_met());
    missed
        .filter_map(|Statistic { name, value, target }| {
            let aimed = target?.value;
            let text = format!("{name} is {value:.1}, {aimed:.1} was asked: the other knobs leave no room for it");
            Some(Notice { code: "target-missed", text })
        })
        .collect()
}

/// Span a plan must have: the one asked, or the preset's for traces long enough that no single session decides it.
fn aimed_span_s(spec: &GenerateSpec) -> Option<f64> {
    match spec.arrival {
        Arrival::Uniform if spec.span_s.is_some() => spec.span_s,
        Arrival::Uniform => (spec.sessions >= 52).then(|| spec.default_span_s()),
        Arrival::Pool | Arrival::Burst => None,
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut all: Vec<f64> = values.collect();
    all.sort_by(f64::total_cmp);
    all
}

fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}
