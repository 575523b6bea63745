//! Puts the [`DiffReport`] of a [`Comparison`] together.

use super::bootstrap::Draws;
use super::changes::Changes;
use super::compare::{Comparison, Side};
use super::metrics::Judge;
use super::noise::Noise;
use super::refuse::scenario_changes;
use super::report::{
    BootstrapFacts, ComparisonKind, Curve, CurvePoint, DIFF_VERSION, DiffReport, Difference, NoiseFacts, NoiseSource,
    OutcomeChanges, RunLine, SessionChanges, SideFacts,
};
use super::threshold::Threshold;
use super::{sessions, split, workers};
use crate::base::words::{count, plural};
use crate::results::{Metric, Outcomes, Percentile, RunState, RunSummary, Verdict};

const METHOD: &str = "paired by session, percentile interval expanded by Student's t";

/// Percentiles of a curve: 200, each per cent up to 90, then 36 in each tenth of what is left, up to 99.99; and the largest.
fn curve_percentiles() -> impl Iterator<Item = f64> {
    // In ten-thousandths of a per cent, which are exact.
    let body = (0..90).map(|percent| percent * 10_000);
    let tail = [2_500, 250, 25].into_iter().flat_map(|step| (5..=40).rev().map(move |left| 1_000_000 - left * step));
    body.chain(tail).chain([999_900, 1_000_000]).map(|at| f64::from(at) / 1e4)
}

impl Comparison {
    /// The report, with the resamples that were drawn, in their order.
    pub fn report(&self, draws: Option<&Draws>) -> DiffReport {
        let same_trace = !self.is_forced(Difference::Trace);
        let changes =
            if same_trace { Changes::of(&self.a.runs, &self.b.runs, &self.sessions) } else { Changes::default() };
        let sessions = if same_trace { sessions::changes(&self.a, &self.b) } else { nothing() };
        let noise = self.noise();
        let metrics = Judge::of(self).metrics(draws, &noise, &sessions);
        let doubt = self.b.doubt.as_deref().or(self.a.doubt.as_deref());
        let judge = |threshold: &Threshold| threshold.judge(&metrics, doubt);
        let thresholds = self.options.thresholds.iter().map(judge).collect();
        let origins = self.a.origin.as_ref().zip(self.b.origin.as_ref());
        DiffReport {
            schema_version: DIFF_VERSION,
            a: self.a.facts(),
            b: self.b.facts(),
            comparison: self.kind(&changes),
            notes: self.notes(),
            forced: self.forced.clone(),
            scenario_changes: origins.map_or_else(Vec::new, |(a, b)| scenario_changes(&a.scenario, &b.scenario)),
            paired: self.paired,
            bootstrap: draws.map(|_| BootstrapFacts {
                resamples: self.options.resamples,
                seed: self.options.seed,
                confidence: self.options.confidence,
                sessions: self.paired.sessions,
                method: METHOD.into(),
            }),
            noise: noise.is_known().then(|| self.noise_facts(&noise)),
            objectives: self.slos,
            metrics,
            curves: [Metric::Ttft, Metric::E2e].into_iter().filter_map(|metric| self.curve(metric)).collect(),
            splits: [Metric::E2e, Metric::Ttft]
                .into_iter()
                .filter_map(|metric| split::split(metric, &self.a.runs, &self.b.runs))
                .collect(),
            transitions: changes.transitions(),
            sessions,
            workers: workers::changes(&self.a.summaries[0], &self.b.summaries[0]),
            outcomes: OutcomeChanges { a: self.a.outcomes(), b: self.b.outcomes(), changes: changes.outcomes() },
            thresholds,
        }
    }

    fn kind(&self, changes: &Changes) -> ComparisonKind {
        let completed = |side: &Side| side.summaries.iter().map(|summary| summary.completed).sum::<u64>();
        let nothing = |name: &str| ComparisonKind::NotComparable { reason: format!("{name} has no completed request") };
        match (completed(&self.a), completed(&self.b)) {
            (0, 0) => ComparisonKind::NotComparable { reason: "neither side has a completed request".into() },
            (0, _) => nothing("A"),
            (_, 0) => nothing("B"),
            (_, _) if !self.is_forced(Difference::Trace) && self.paired.both == 0 => {
                ComparisonKind::NotComparable { reason: "no request is on both sides".into() }
            }
            (_, _) if self.forced.is_empty() && self.is_whole() && changes.none() => ComparisonKind::Identical,
            (_, _) => ComparisonKind::Different,
        }
    }

    fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> =
            [("A", &self.a), ("B", &self.b)].into_iter().flat_map(|(name, side)| side.notes(name)).collect();
        if !self.is_whole() {
            notes.push(format!(
                "{} of A alone and {} of B alone are left out: figures are over the {} of both",
                plural(self.paired.only_a, "request"),
                count(self.paired.only_b),
                count(self.paired.both)
            ));
        }
        let (a, b) = (self.a.runs.len(), self.b.runs.len());
        if a != b && a.min(b) > 0 {
            notes.push(format!(
                "{a} repeats of A against {b} of B: request by request, the first {} of each are paired",
                a.min(b)
            ));
        }
        if self.paired.sessions == 1 && self.options.resamples > 0 {
            notes.push("one session alone: nothing to resample, so there are no intervals".into());
        }
        let objectives = [&self.a, &self.b].map(|side| side.summaries[0].run.slos);
        if self.slos.is_none() && objectives.iter().any(|slos| !slos.is_none()) {
            let [a, b] = objectives.map(|slos| if slos.is_none() { "none".into() } else { slos.to_string() });
            notes.push(format!(
                "goodput is left out: the objectives of A are {a}, those of B {b}; --goodput gives both the same"
            ));
        }
        let drivers = (&self.a.summaries[0].run.driver, &self.b.summaries[0].run.driver);
        if drivers.0 != drivers.1 {
            notes.push(format!("A ran in {}, B in {}", drivers.0, drivers.1));
        }
        if self.a.origin.is_none() || self.b.origin.is_none() {
            notes.push(
                "a file of records names neither its trace nor its time scale: that they are the same is not checked"
                    .into(),
            );
        }
        notes
    }

    fn noise(&self) -> Noise<'_> {
        fn repeats<'s>(side: &'s Side, made: &'s [RunSummary]) -> Vec<&'s RunSummary> {
            let used = if side.summaries.len() > 1 { side.summaries.as_slice() } else { made };
            used.iter().collect()
        }
        Noise {
            a: repeats(&self.a, &self.made.a),
            b: repeats(&self.b, &self.made.b),
            compared: (self.a.runs.len(), self.b.runs.len()),
            confidence: self.options.confidence,
        }
    }

    fn noise_facts(&self, noise: &Noise) -> NoiseFacts {
        let is_made = |side: &Side, made: &[RunSummary]| side.summaries.len() < 2 && made.len() > 1;
        let made = is_made(&self.a, &self.made.a) || is_made(&self.b, &self.made.b);
        let (a, b) = (noise.a.len(), noise.b.len());
        let many =
            if a == b { format!("{a} repeats of either side") } else { format!("{a} repeats of A and {b} of B") };
        let jitter = self.made.jitter_ms.filter(|_| made);
        let how = match (made, jitter) {
            (true, Some(jitter)) => format!(", made for this comparison with arrivals jittered by up to {jitter} ms"),
            (true, None) => ", made for this comparison".into(),
            (false, _) => String::new(),
        };
        NoiseFacts {
            source: if made { NoiseSource::Made } else { NoiseSource::Given },
            repeats_a: a as u32,
            repeats_b: b as u32,
            jitter_ms: jitter,
            text: format!("{many}{how}"),
        }
    }

    fn curve(&self, metric: Metric) -> Option<Curve> {
        let (a, b) = (self.a.sample(metric)?, self.b.sample(metric)?);
        let point = |percentile: f64| {
            let of: Percentile = percentile.to_string().parse().ok()?;
            Some(CurvePoint { percentile, a_ms: a.percentile_ms(of, 0), b_ms: b.percentile_ms(of, 0) })
        };
        let mut points: Vec<CurvePoint> = Vec::new();
        for next in curve_percentiles().filter_map(point) {
            // Of values that stay the same the highest percentile is kept, beside the first of all.
            let is_step = |last: &CurvePoint| (last.a_ms, last.b_ms) != (next.a_ms, next.b_ms);
            if points.len() > 1 && !points.last().is_some_and(is_step) {
                points.pop();
            }
            points.push(next);
        }
        (a.n() + b.n() > 0).then(|| Curve { metric: metric.as_str().into(), points })
    }
}

impl Side {
    fn facts(&self) -> SideFacts {
        let first = &self.summaries[0];
        let line = |((path, run_id), summary): (&(String, String), &RunSummary)| RunLine {
            path: path.clone(),
            run_id: run_id.clone(),
            seed: summary.run.seed,
            state: summary.run.state,
            verdict: summary.integrity.verdict,
            reason: summary.integrity.reason.clone(),
            completed: summary.completed,
            recorded: summary.outcomes.total(),
        };
        SideFacts {
            label: self.label.clone(),
            runs: self.paths.iter().zip(&self.summaries).map(line).collect(),
            trace: first.run.trace.clone(),
            trace_sha256: self.origin.as_ref().map(|origin| origin.trace_sha256.clone()),
            requests: first.run.requests,
            sessions: first.run.sessions,
            topology: first.run.topology.clone(),
            mechanism: first.run.mechanism.clone(),
            policy: first.run.policy.clone(),
            limits: first.run.limits.clone(),
            time_scale_text: first.run.time_scale_text.clone(),
            driver: first.run.driver.clone(),
            causes: first.causes.clone(),
            errors: first.errors.clone(),
        }
    }

    /// Runs, and files of runs, that are not what they should be.
    fn notes(&self, name: &str) -> Vec<String> {
        let note = |((path, _), summary): (&(String, String), &RunSummary)| {
            let reason = summary.integrity.reason.as_deref().unwrap_or("no reason known");
            let word = match summary.integrity.verdict {
                Verdict::Valid => return None,
                Verdict::Withheld => "headline withheld",
                Verdict::Invalid => "INVALID",
                Verdict::Partial if summary.run.state == RunState::Unfinished => "UNFINISHED",
                Verdict::Partial => "PARTIAL",
            };
            Some(format!("{name} ({path}): {word}: {reason}"))
        };
        let damage = self.damage.iter().map(|damage| format!("{name}: {damage}"));
        self.paths.iter().zip(&self.summaries).filter_map(note).chain(damage).collect()
    }

    fn outcomes(&self) -> Outcomes {
        let mut sum = Outcomes::default();
        for run in &self.runs {
            run.requests.outcome.iter().for_each(|outcome| sum.count(*outcome));
        }
        sum
    }
}

fn nothing() -> SessionChanges {
    SessionChanges {
        starved_a: None,
        starved_b: None,
        became_starved: None,
        freed: None,
        still_starved: None,
        rows: Vec::new(),
    }
}
