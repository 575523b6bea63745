//! Each figure of both sides, with its interval, its noise and what to make of it.

use super::bootstrap::{Draws, Target, interval};
use super::compare::{Comparison, Side};
use super::noise::{Noise, finest};
use super::pairing::Run;
use super::report::{DeltaVerdict, Difference, Interval, MetricDelta, SessionChanges};
use super::requests::LATENCIES;
use crate::record::{ExecutionMode, Outcome};
use crate::results::stats::{mean, share};
use crate::results::{Better, Figure, Metric, RunFigure, Slos, is_failure};

/// Counts of one side by session.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Truncated, aborted, failed and timed out.
    pub bad: Vec<u32>,
    bad_sums: Vec<f64>,
    /// Ok within every objective.
    good_sums: Vec<f64>,
    served: Vec<u32>,
    /// Turns sent after the first one present.
    later: Vec<u32>,
    direct_sums: Vec<f64>,
}

impl Tally {
    /// Of the paired requests of these runs.
    pub fn of(runs: &[Run], sessions: usize, slos: Slos) -> Tally {
        let mut tally = Tally {
            bad: vec![0; sessions],
            bad_sums: vec![0.0; sessions],
            good_sums: vec![0.0; sessions],
            served: vec![0; sessions],
            later: vec![0; sessions],
            direct_sums: vec![0.0; sessions],
        };
        for run in runs {
            let mut last = None;
            for ((session, _, _), row) in run.keyed() {
                let is_first = last.replace(session) != Some(session);
                if run.paired[row] {
                    tally.add(session as usize, is_first, run.requests.outcome[row], run.requests.mode[row]);
                    let is_good = run.requests.is_good(row, &slos);
                    tally.good_sums[session as usize] += f64::from(u8::from(is_good));
                }
            }
        }
        tally
    }

    fn add(&mut self, session: usize, is_first: bool, outcome: Outcome, mode: ExecutionMode) {
        let is_bad = is_failure(outcome);
        self.bad[session] += u32::from(is_bad);
        self.bad_sums[session] += f64::from(u8::from(is_bad));
        self.served[session] += u32::from(is_bad || outcome.is_ok());
        if !is_first && outcome != Outcome::Skipped {
            let is_direct = mode == ExecutionMode::KvcacheDirectToDSession && outcome.is_ok();
            self.later[session] += 1;
            self.direct_sums[session] += f64::from(u8::from(is_direct));
        }
    }

    /// All failures.
    pub fn all_bad(&self) -> u64 {
        self.bad.iter().map(|n| u64::from(*n)).sum()
    }

    /// A figure that resamples can make; `None` for those of whole runs.
    pub fn target(&self, figure: RunFigure) -> Option<Target<'_>> {
        match figure {
            RunFigure::DirectShare => Some(Target::Ratio { sums: &self.direct_sums, counts: &self.later, scale: 1.0 }),
            RunFigure::BadShare => Some(Target::Ratio { sums: &self.bad_sums, counts: &self.served, scale: 1.0 }),
            RunFigure::SloAttainment => Some(Target::Ratio { sums: &self.good_sums, counts: &self.served, scale: 1.0 }),
            RunFigure::Completed
            | RunFigure::Failed
            | RunFigure::Duration
            | RunFigure::RequestThroughput
            | RunFigure::RequestGoodput
            | RunFigure::OutputThroughput
            | RunFigure::TotalTokenThroughput
            | RunFigure::CachedTokenShare
            | RunFigure::MeanRecomputedTokens
            | RunFigure::IndexBlindShare
            | RunFigure::IndexOverPromised
            | RunFigure::IndexUnderPromised
            | RunFigure::GiniMeanE2e
            | RunFigure::JainMeanE2e
            | RunFigure::Bimodality
            | RunFigure::StarvedSessions
            | RunFigure::BecameStarved
            | RunFigure::FreedSessions => None,
        }
    }
}

/// Gives figures their values and verdicts.
pub(super) struct Judge<'a> {
    comparison: &'a Comparison,
}

impl<'a> Judge<'a> {
    pub fn of(comparison: &'a Comparison) -> Judge<'a> {
        Judge { comparison }
    }

    /// The figure means something here.
    pub fn gives(&self, figure: Figure) -> bool {
        let (whole, same_trace, same_scale) = (
            self.comparison.is_whole(),
            !self.comparison.is_forced(Difference::Trace),
            !self.comparison.is_forced(Difference::TimeScale),
        );
        match figure {
            Figure::Mean(metric) | Figure::Percentile { metric, .. } => {
                let of_schedule = matches!(metric, Metric::SchedTtft | Metric::SchedE2e | Metric::WaitPreviousTurn);
                (same_scale || !of_schedule) && (whole || LATENCIES.contains(&metric))
            }
            Figure::Run(RunFigure::DirectShare | RunFigure::BadShare) => true,
            Figure::Run(RunFigure::SloAttainment) => self.comparison.slos.is_some(),
            Figure::Run(
                RunFigure::Completed
                | RunFigure::Failed
                | RunFigure::CachedTokenShare
                | RunFigure::MeanRecomputedTokens
                | RunFigure::IndexBlindShare
                | RunFigure::IndexOverPromised
                | RunFigure::IndexUnderPromised
                | RunFigure::GiniMeanE2e
                | RunFigure::JainMeanE2e
                | RunFigure::Bimodality,
            ) => whole,
            Figure::Run(RunFigure::RequestGoodput) => whole && same_scale && self.comparison.slos.is_some(),
            Figure::Run(
                RunFigure::Duration
                | RunFigure::RequestThroughput
                | RunFigure::OutputThroughput
                | RunFigure::TotalTokenThroughput,
            ) => whole && same_scale,
            Figure::Run(RunFigure::StarvedSessions | RunFigure::BecameStarved | RunFigure::FreedSessions) => {
                whole && same_trace
            }
        }
    }

    /// All of them.
    pub fn metrics(&self, draws: Option<&Draws>, noise: &Noise, sessions: &SessionChanges) -> Vec<MetricDelta> {
        let mut drawn = draws.into_iter().flatten();
        let confidence = self.comparison.options.confidence;
        let metric = |figure: Figure| {
            let (a, b) = (self.value(&self.comparison.a, figure), self.value(&self.comparison.b, figure));
            let changed = match figure {
                Figure::Run(RunFigure::BecameStarved) => Some(&sessions.became_starved),
                Figure::Run(RunFigure::FreedSessions) => Some(&sessions.freed),
                Figure::Mean(_) | Figure::Percentile { .. } | Figure::Run(_) => None,
            };
            let ((a, n_a), (b, n_b)) = match changed {
                Some(Some(ids)) => ((Some(0.0), a.1), (Some(ids.len() as f64), b.1)),
                Some(None) => ((None, 0), (None, 0)),
                None => (a, b),
            };
            let draws = self.comparison.a.has_target(figure).then(|| drawn.next()).flatten();
            let interval = draws.and_then(|draws| interval(draws, confidence, self.comparison.paired.sessions));
            let noise = noise.is_known().then(|| noise.of(figure)).flatten();
            MetricDelta { missing: self.missing(figure, a, b), ..delta(figure, (a, n_a), (b, n_b), interval, noise) }
        };
        self.comparison.figures().into_iter().map(metric).collect()
    }

    /// Why a side has no value, where that is not plain.
    fn missing(&self, figure: Figure, a: Option<f64>, b: Option<f64>) -> Option<String> {
        let sides = [("A", &self.comparison.a, a), ("B", &self.comparison.b, b)];
        let lacking = sides.into_iter().filter(|(.., value)| value.is_none());
        let words: Vec<String> =
            lacking.filter_map(|(name, side, _)| Some(format!("{name} {}", side.lacks(figure)?))).collect();
        (!words.is_empty()).then(|| words.join("; "))
    }

    /// A figure of one side, and of how many values it is.
    fn value(&self, side: &Side, figure: Figure) -> (Option<f64>, u64) {
        let runs = side.summaries.len() as u64;
        match figure {
            Figure::Mean(metric) => match side.sample(metric) {
                Some(sample) => (sample.mean_ms(), sample.n()),
                None => side.told_mean(metric),
            },
            Figure::Percentile { metric, .. } if side.sample(metric).is_none() => side.told_percentile(figure, metric),
            Figure::Percentile { metric, percentile, with_failures } => {
                let failures = if with_failures { side.tally.all_bad() } else { 0 };
                let sample = side.sample(metric);
                let value = sample.and_then(|sample| sample.percentile_ms(percentile, failures));
                (value, sample.map_or(0, |sample| sample.n() + failures))
            }
            Figure::Run(RunFigure::DirectShare) if !side.keeps_sessions() => (None, 0),
            Figure::Run(RunFigure::DirectShare) => shared(&side.tally.direct_sums, &side.tally.later),
            Figure::Run(RunFigure::BadShare) => shared(&side.tally.bad_sums, &side.tally.served),
            Figure::Run(RunFigure::SloAttainment) => shared(&side.tally.good_sums, &side.tally.served),
            Figure::Run(RunFigure::BecameStarved | RunFigure::FreedSessions) => (None, runs),
            Figure::Run(_) => {
                let values: Vec<f64> = side.summaries.iter().filter_map(|run| figure.in_summary(run)).collect();
                (mean(&values), values.len() as u64)
            }
        }
    }
}

fn shared(sums: &[f64], counts: &[u32]) -> (Option<f64>, u64) {
    let n = counts.iter().map(|n| u64::from(*n)).sum();
    (share(sums.iter().sum::<f64>() as u64, n), n)
}

impl Side {
    /// Sessions are kept on D, so that turns can go direct.
    pub(super) fn keeps_sessions(&self) -> bool {
        self.summaries.iter().all(|run| run.starved_sessions().is_some())
    }

    /// Resamples can make the figure.
    pub(super) fn has_target(&self, figure: Figure) -> bool {
        match figure {
            Figure::Mean(metric) | Figure::Percentile { metric, .. } => self.sample(metric).is_some(),
            Figure::Run(figure) => self.tally.target(figure).is_some(),
        }
    }

    /// Mean over all repeats of a latency that the records compared do not have, by their summaries, ms.
    fn told_mean(&self, metric: Metric) -> (Option<f64>, u64) {
        let latencies = || self.summaries.iter().map(|run| run.latencies.of(metric));
        let n = latencies().map(|latency| latency.n).sum();
        let sum: f64 = latencies().filter_map(|latency| Some(latency.mean_ms? * latency.n as f64)).sum();
        ((n > 0).then(|| sum / n as f64), n)
    }

    /// Its percentile, which repeats together have not: percentiles are never averaged.
    fn told_percentile(&self, figure: Figure, metric: Metric) -> (Option<f64>, u64) {
        match self.summaries.as_slice() {
            [only] => (figure.in_summary(only), only.latencies.of(metric).n),
            _ => (None, 0),
        }
    }

    /// Why it has no value of a figure that others have, where that is not plain.
    pub(super) fn lacks(&self, figure: Figure) -> Option<&'static str> {
        let told = match figure {
            Figure::Mean(metric) | Figure::Percentile { metric, .. } => {
                self.sample(metric).is_none().then_some(metric)?
            }
            Figure::Run(
                RunFigure::DirectShare
                | RunFigure::Bimodality
                | RunFigure::StarvedSessions
                | RunFigure::BecameStarved
                | RunFigure::FreedSessions,
            ) if !self.keeps_sessions() => return Some("keeps no sessions on D"),
            Figure::Run(_) => return None,
        };
        match (figure, self.summaries.as_slice()) {
            (Figure::Percentile { .. }, [_, _, ..]) => {
                Some("is a group of repeats, whose summaries each have their own: percentiles are never averaged")
            }
            (_, _) if told != Metric::Itl => None,
            (_, _) if self.origin.is_none() => Some("is a file of records, and token gaps are in summary.json alone"),
            (Figure::Percentile { .. }, [one]) if one.latencies.of(told).n > 0 => {
                Some("has another set of percentiles in its summary.json; replay with --percentiles to have it")
            }
            (_, _) => Some("has no token gaps in its summary.json"),
        }
    }
}

fn delta(
    figure: Figure,
    (a, n_a): (Option<f64>, u64),
    (b, n_b): (Option<f64>, u64),
    interval: Option<Interval>,
    noise: Option<f64>,
) -> MetricDelta {
    let delta = a.zip(b).map(|(a, b)| b - a);
    let better = figure.better();
    MetricDelta {
        key: figure.to_string(),
        metric: figure.measured().into(),
        stat: figure.stat(),
        unit: figure.unit().into(),
        better,
        a,
        b,
        n_a,
        n_b,
        delta,
        relative: delta.zip(a.filter(|a| *a != 0.0)).map(|(delta, a)| delta / a),
        interval: interval.filter(|_| delta.is_some()),
        noise: noise.filter(|_| delta.is_some()),
        missing: None,
        verdict: delta.map_or(DeltaVerdict::NotComparable, |delta| {
            let finest = finest(figure, a.into_iter().chain(b));
            verdict(delta, better, interval, noise, finest)
        }),
    }
}

/// A difference up to `finest` is none where no repeats tell what chance makes.
fn verdict(delta: f64, better: Better, interval: Option<Interval>, noise: Option<f64>, finest: f64) -> DeltaVerdict {
    let holds_zero = |interval: Interval| interval.lo <= 0.0 && interval.hi >= 0.0;
    if delta == 0.0 || noise.is_none() && delta.abs() <= finest {
        return DeltaVerdict::Same;
    }
    if noise.is_some_and(|noise| delta.abs() <= noise) {
        return DeltaVerdict::InsideNoise;
    }
    if interval.is_some_and(holds_zero) {
        return DeltaVerdict::Unclear;
    }
    match (better, interval.is_some() || noise.is_some()) {
        (_, false) => DeltaVerdict::Unjudged,
        (Better::Neither, true) => DeltaVerdict::Changed,
        (Better::Lower, true) if delta < 0.0 => DeltaVerdict::Better,
        (Better::Higher, true) if delta > 0.0 => DeltaVerdict::Better,
        (Better::Lower | Better::Higher, true) => DeltaVerdict::Worse,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_judged_by_noise_first_and_by_its_interval_then() {
        let clear = Some(Interval { lo: 1.0, hi: 3.0 });
        let wide = Some(Interval { lo: -1.0, hi: 3.0 });
        assert_eq!(verdict(0.0, Better::Lower, clear, None, 0.0), DeltaVerdict::Same);
        assert_eq!(verdict(2.0, Better::Lower, clear, Some(2.5), 0.0), DeltaVerdict::InsideNoise);
        assert_eq!(verdict(2.0, Better::Lower, wide, Some(0.5), 0.0), DeltaVerdict::Unclear);
        assert_eq!(verdict(2.0, Better::Lower, clear, Some(0.5), 0.0), DeltaVerdict::Worse);
        assert_eq!(verdict(2.0, Better::Higher, clear, None, 0.0), DeltaVerdict::Better);
        assert_eq!(verdict(2.0, Better::Higher, None, None, 0.0), DeltaVerdict::Unjudged);
        assert_eq!(verdict(-2.0, Better::Higher, None, Some(1.0), 0.0), DeltaVerdict::Worse);
        assert_eq!(verdict(-2.0, Better::Neither, None, Some(1.0), 0.0), DeltaVerdict::Changed);
    }

    #[test]
    fn without_repeats_a_difference_below_the_resolution_is_none_but_for_counts() {
        let certain = |ms: f64| Some(Interval { lo: ms, hi: ms });
        let judged =
            |figure: Figure, a: f64, b: f64| delta(figure, (Some(a), 9), (Some(b), 9), certain(b - a), None).verdict;
        let mean = Figure::Mean(Metric::E2e);
        assert_eq!(judged(mean, 17_000.0, 16_999.998), DeltaVerdict::Same);
        assert_eq!(judged(mean, 17_000.0, 16_991.6), DeltaVerdict::Same);
        assert_eq!(judged(mean, 17_000.0, 16_991.4), DeltaVerdict::Better);
        assert_eq!(judged(Figure::Run(RunFigure::Failed), 10_000.0, 10_001.0), DeltaVerdict::Worse);
        assert_eq!(delta(mean, (Some(17_000.0), 1), (Some(17_000.002), 1), None, None).verdict, DeltaVerdict::Same);
    }
}
