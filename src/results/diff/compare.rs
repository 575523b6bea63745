//! [`Comparison`]: takes both sides in, refuses what cannot be compared, and ends in a [`DiffReport`](super::DiffReport).
//!
//! The resamples between are drawn by the caller, who has the threads. Invariant: a failure is in no latency; figures of whole
//! runs are given only where both sides have the same requests.

use super::bootstrap::{Bootstrap, Draws, Target};
use super::metrics::{Judge, Tally};
use super::pairing::{Run, Sessions, pair, uneven};
use super::refuse::{Origin, Refused, differences, scenario_changes};
use super::report::{Difference, Forced, Paired};
use super::requests::{LATENCIES, PHASES, Requests};
use super::sample::Sample;
use super::threshold::Threshold;
use crate::base::words::{count, plural};
use crate::results::{Figure, Metric, Percentiles, RunFigure, RunState, RunSummary, Slos};

/// A run to be compared.
#[derive(Debug)]
pub struct RunInput {
    /// Where it lies, for people.
    pub path: String,
    /// Id in its records.
    pub run_id: String,
    /// What is wrong with its files, a sentence each.
    pub damage: Vec<String>,
    /// That what its figures are made from was changed, in words; then no condition passes.
    pub doubt: Option<String>,
    /// Its summary, with [`Options::percentiles`].
    pub summary: RunSummary,
    /// Its requests.
    pub requests: Requests,
    /// Trace and scenario; `None` for a file of records.
    pub origin: Option<Origin>,
}

/// One side: a run, or repeats of one.
#[derive(Debug)]
pub struct SideInput {
    /// As named on the command line.
    pub label: String,
    /// At least one.
    pub runs: Vec<RunInput>,
}

/// Repeats made for a comparison, to learn the noise where a side is a single run.
#[derive(Debug, Default)]
pub struct Made {
    /// Summaries of repeats of A, with [`Options::wanted_percentiles`]; empty where none were made.
    pub a: Vec<RunSummary>,
    /// The same of B.
    pub b: Vec<RunSummary>,
    /// Most of their jitter of arrivals, ms.
    pub jitter_ms: Option<f64>,
}

/// How to compare.
#[derive(Debug, Clone)]
pub struct Options {
    /// Percentiles of the latencies.
    pub percentiles: Percentiles,
    /// Resamples of the bootstrap; 0 for no intervals.
    pub resamples: u32,
    /// Seed of the bootstrap.
    pub seed: u64,
    /// Confidence of intervals and of the noise, between 0 and 1.
    pub confidence: f64,
    /// Compare what differs in kind.
    pub force: bool,
    /// Conditions to judge.
    pub thresholds: Vec<Threshold>,
}

/// What a comparison keeps of one side.
#[derive(Debug)]
pub(super) struct Side {
    pub label: String,
    pub runs: Vec<Run>,
    pub paths: Vec<(String, String)>,
    /// What is wrong with the files of its runs.
    pub damage: Vec<String>,
    /// Why nothing is to be judged by it, in words.
    pub doubt: Option<String>,
    pub summaries: Vec<RunSummary>,
    pub origin: Option<Origin>,
    /// As [`LATENCIES`].
    pub samples: Vec<Sample>,
    pub tally: Tally,
}

/// Both sides, paired.
#[derive(Debug)]
pub struct Comparison {
    pub(super) a: Side,
    pub(super) b: Side,
    pub(super) sessions: Sessions,
    pub(super) paired: Paired,
    pub(super) forced: Vec<Forced>,
    pub(super) made: Made,
    /// Objectives that every run has; `None` where there are none, or not the same.
    pub(super) slos: Option<Slos>,
    pub(super) options: Options,
}

impl Options {
    /// These percentiles and those that conditions name: the ones that summaries must have.
    pub fn wanted_percentiles(&self) -> Percentiles {
        let named = self.thresholds.iter().filter_map(|threshold| match threshold.figure {
            Figure::Percentile { percentile, .. } => Some(percentile),
            Figure::Mean(_) | Figure::Run(_) => None,
        });
        named.fold(self.percentiles.clone(), Percentiles::with)
    }
}

impl Comparison {
    /// Pairs the requests.
    ///
    /// # Errors
    /// When traces, populations or time scales differ, and `options.force` is not set.
    pub fn new(a: SideInput, b: SideInput, mut options: Options) -> Result<Comparison, Refused> {
        options.percentiles = options.wanted_percentiles();
        let mut sessions = Sessions::default();
        let mut forced = origins(&a, &b);
        forced.extend([("A", &a), ("B", &b)].into_iter().filter_map(|(name, side)| no_repeats(name, side)));
        let (mut a, mut b) = (Side::of(a, &mut sessions), Side::of(b, &mut sessions));
        let same_trace = !forced.iter().any(|forced| forced.difference == Difference::Trace);
        let paired = if same_trace { pair(&mut a.runs, &mut b.runs) } else { Paired::default() };
        if same_trace {
            forced.extend(population(&a, &b, &paired).map(Forced::population));
        }
        if !forced.is_empty() && !options.force {
            return Err(Refused(forced));
        }
        let known = sessions.names.len();
        let slos = common_slos(&a, &b);
        [&mut a, &mut b].into_iter().for_each(|side| side.count(known, slos.unwrap_or_default()));
        Ok(Comparison { a, b, sessions, paired, forced, made: Made::default(), slos, options })
    }

    /// Takes in repeats made for it.
    pub fn learn(&mut self, made: Made) {
        self.made = made;
    }

    pub(super) fn is_forced(&self, difference: Difference) -> bool {
        self.forced.iter().any(|forced| forced.difference == difference)
    }

    /// Both sides have the same requests, or nothing is paired at all.
    pub(super) fn is_whole(&self) -> bool {
        self.paired.only_a + self.paired.only_b == 0
    }

    /// The figures to give, in order.
    pub(super) fn figures(&self) -> Vec<Figure> {
        let failures = self.a.tally.all_bad() + self.b.tally.all_bad() > 0
            || self
                .options
                .thresholds
                .iter()
                .any(|threshold| matches!(threshold.figure, Figure::Percentile { with_failures: true, .. }));
        let gaps = [&self.a, &self.b].into_iter().all(|side| side.tells(Metric::Itl));
        let mut figures = compared(&self.options.percentiles, failures, gaps);
        let asked = self.options.thresholds.iter().map(|threshold| threshold.figure);
        asked.for_each(|figure| {
            if !figures.contains(&figure) {
                figures.push(figure);
            }
        });
        figures.retain(|figure| Judge::of(self).gives(*figure));
        figures
    }

    /// Draws resamples; `None` where there is nothing to draw, or none were asked for.
    pub fn resampler(&self) -> Option<Resampler<'_>> {
        let drawn = self.paired.sessions > 1 && self.options.resamples > 0;
        drawn.then(|| {
            let figures = self.figures().into_iter().filter(|figure| self.a.has_target(*figure));
            let target = |figure: Figure| Some([self.a.target(figure)?, self.b.target(figure)?]);
            let targets = figures.filter_map(target).collect();
            let bootstrap = Bootstrap { targets, sessions: self.sessions.names.len(), seed: self.options.seed };
            Resampler { bootstrap, resamples: self.options.resamples }
        })
    }
}

/// Resamples by chunks, each the same whichever thread draws it.
#[derive(Debug)]
pub struct Resampler<'a> {
    bootstrap: Bootstrap<'a>,
    resamples: u32,
}

impl Resampler<'_> {
    const CHUNK: u32 = 16;

    /// How many chunks there are.
    pub fn chunks(&self) -> u32 {
        self.resamples.div_ceil(Self::CHUNK)
    }

    /// The differences of every figure in the resamples of one chunk.
    pub fn draw(&self, chunk: u32) -> Draws {
        let first = chunk * Self::CHUNK;
        self.bootstrap.draw(first..(first + Self::CHUNK).min(self.resamples))
    }
}

impl Side {
    fn of(input: SideInput, sessions: &mut Sessions) -> Side {
        let SideInput { label, runs } = input;
        let mut side = Side {
            label,
            runs: Vec::new(),
            paths: Vec::new(),
            damage: Vec::new(),
            doubt: None,
            summaries: Vec::new(),
            origin: None,
            samples: Vec::new(),
            tally: Tally::default(),
        };
        for RunInput { path, run_id, damage, doubt, summary, requests, origin } in runs {
            side.doubt = side.doubt.take().or(doubt);
            side.damage.extend(damage);
            side.runs.push(sessions.number(requests));
            side.paths.push((path, run_id));
            side.summaries.push(summary);
            side.origin = side.origin.take().or(origin);
        }
        side
    }

    fn count(&mut self, sessions: usize, slos: Slos) {
        self.samples = (0..LATENCIES.len()).map(|latency| Sample::of(&self.runs, latency, sessions)).collect();
        self.tally = Tally::of(&self.runs, sessions, slos);
    }

    pub(super) fn sample(&self, metric: Metric) -> Option<&Sample> {
        LATENCIES.iter().position(|known| *known == metric).and_then(|at| self.samples.get(at))
    }

    /// The summaries have values of a latency.
    fn tells(&self, metric: Metric) -> bool {
        self.summaries.iter().all(|summary| summary.latencies.of(metric).n > 0)
    }

    fn is_unfinished(&self) -> bool {
        self.summaries.iter().any(|summary| summary.run.state == RunState::Unfinished)
    }

    fn target(&self, figure: Figure) -> Option<Target<'_>> {
        match figure {
            Figure::Mean(metric) => self.sample(metric).map(Target::mean),
            Figure::Percentile { metric, percentile, with_failures } => {
                let sample = self.sample(metric)?;
                let failures = with_failures.then_some(self.tally.bad.as_slice());
                let all = if with_failures { self.tally.all_bad() } else { 0 };
                Some(Target::Rank { rank: sample.rank(percentile, all), counts: &sample.counts, failures })
            }
            Figure::Run(figure) => self.tally.target(figure),
        }
    }
}

/// The figures of a comparison, in the order of its tables; forms with failures and token `gaps` only where there are any.
fn compared(percentiles: &Percentiles, failures: bool, gaps: bool) -> Vec<Figure> {
    let mut all = Vec::new();
    for metric in LATENCIES {
        all.push(Figure::Mean(metric));
        all.extend(percentiles.iter().map(|percentile| Figure::percentile(metric, percentile)));
        if failures && matches!(metric, Metric::Ttft | Metric::E2e) {
            all.extend(percentiles.iter().map(|percentile| Figure::with_failures(metric, percentile)));
        }
        if gaps && metric == Metric::Tpot {
            all.push(Figure::Mean(Metric::Itl));
            all.extend(percentiles.iter().map(|percentile| Figure::percentile(Metric::Itl, percentile)));
        }
    }
    all.extend(PHASES.map(Figure::Mean));
    all.extend(RunFigure::ALL.iter().map(|figure| Figure::Run(*figure)));
    all
}

/// Names of the figures of a comparison, for help and near misses.
pub fn figure_names() -> Vec<String> {
    compared(&Percentiles::default(), true, true).iter().map(ToString::to_string).collect()
}

/// Objectives that all runs of both sides have.
fn common_slos(a: &Side, b: &Side) -> Option<Slos> {
    let mut all = a.summaries.iter().chain(&b.summaries).map(|summary| summary.run.slos);
    let first = all.next().filter(|slos| !slos.is_none())?;
    all.all(|slos| slos == first).then_some(first)
}

/// What the runs say of themselves against each other: each against the first of A.
fn origins(a: &SideInput, b: &SideInput) -> Vec<Forced> {
    let named = |side: &'static str, input: &SideInput| -> Vec<(String, Option<Origin>)> {
        let name = |(at, run): (usize, &RunInput)| {
            let name = if at == 0 { side.to_owned() } else { format!("{} (of {side})", run.path) };
            (name, run.origin.clone())
        };
        input.runs.iter().enumerate().map(name).collect()
    };
    let all: Vec<(String, Option<Origin>)> = named("A", a).into_iter().chain(named("B", b)).collect();
    let Some((first_name, Some(first))) = all.first() else { return Vec::new() };
    let mut found: Vec<Forced> = Vec::new();
    for (name, origin) in &all[1..] {
        let new = origin.iter().flat_map(|origin| differences((first_name, first), (name, origin)));
        for forced in new {
            if !found.iter().any(|known| known.difference == forced.difference) {
                found.push(forced);
            }
        }
    }
    found
}

/// Why the runs of a side are no repeats of each other: other scenarios, or one and the same run.
fn no_repeats(name: &str, side: &SideInput) -> Option<Forced> {
    let (first, others) = side.runs.split_first()?;
    let text = others.iter().enumerate().find_map(|(at, run)| {
        // In virtual time a run is the same each time; live, it is another sample.
        let is_same = |other: &&RunInput| {
            run.origin.is_some()
                && (other.path == run.path
                    || (other.run_id == run.run_id && run.summary.run.driver.starts_with("virtual")))
        };
        if let Some(twin) = side.runs[..=at].iter().find(is_same) {
            return Some(format!("{} and {} are one and the same run", twin.path, run.path));
        }
        let (a, b) = (first.origin.as_ref()?, run.origin.as_ref()?);
        let change =
            scenario_changes(&a.scenario, &b.scenario).into_iter().find(|change| !is_of_repeats(&change.key))?;
        let value = |value: Option<String>| value.unwrap_or_else(|| "nothing".into());
        let (key, a, b) = (change.key, value(change.a), value(change.b));
        Some(format!("{key} is {a} in {} and {b} in {}", first.path, run.path))
    })?;
    Some(Forced::repeats(format!("the runs of {name} are no repeats of each other: {text}")))
}

/// Another generated trace is another sample; its digest tells the traces apart where that matters. Objectives judge a run and
/// change nothing of it.
fn is_of_repeats(key: &str) -> bool {
    key == "trace.seed" || key.starts_with("slo.")
}

/// How the requests of the sides differ; what an unfinished run lacks is no difference in kind.
fn population(a: &Side, b: &Side, paired: &Paired) -> Option<String> {
    for (name, side) in [("A", a), ("B", b)] {
        let differing = uneven(&side.runs);
        if differing > 0 && !side.is_unfinished() {
            return Some(format!(
                "the runs of {name} are no repeats of each other: {} not in all of them",
                match differing {
                    1 => "1 request is".to_owned(),
                    n => format!("{} requests are", count(n)),
                }
            ));
        }
    }
    let Paired { both, only_a, only_b, .. } = *paired;
    let excused = (only_a == 0 || b.is_unfinished()) && (only_b == 0 || a.is_unfinished());
    (!excused).then(|| {
        format!(
            "the populations differ: {} in A alone, {} in B alone, {} in both",
            plural(only_a, "request"),
            count(only_b),
            count(both)
        )
    })
}
