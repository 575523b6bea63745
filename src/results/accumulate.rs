//! [`Accumulator`]: takes records as they come and ends in a [`RunSummary`].
//!
//! Memory grows with sessions, with one E2E value and one pace per request and worker and two sizes per refusal of the soft
//! cap, not with records kept.
//! Invariant: planned requests are the sum of the outcomes; anything else is an error, not a footnote.

use thiserror::Error;

use super::index::IndexTally;
use super::integrity::{Evidence, judge};
use super::latency::LatencyTally;
use super::modes::ModeTallies;
use super::outcomes::{ErrorGroup, ErrorTally, Outcomes, is_failure};
use super::seen::{self, Renumbered, Rows, Seen};
use super::sessions::{SessionRow, SessionTallies};
use super::starvation::{Cause, CauseLine, Diagnosis, Signals, assess, diagnose};
use super::stats::share;
use super::summary::{KEEPS_SESSIONS, Lengths, RunSummary, SUMMARY_VERSION};
use super::transfers::transfers;
use super::vocabulary::Vocabulary;
use super::workers::{self, WorkerTallies};
use super::{Batch, Integrity, Metric, Percentile, Percentiles, RunInfo, RunState, Slos};
use crate::protocol::TokenRun;
use crate::record::{Outcome, RequestRecord, RunFacts};

/// Note on a run whose policy reads the KV index and was never promised anything.
const LOAD_ONLY: &str = "ran as load-only: the policy reads the KV index, which promised nothing";

/// A summary that would lie.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SummaryError {
    /// Requests vanished or were counted twice.
    #[error("{planned} requests were planned but {recorded} have an outcome; a run must account for each of them")]
    Unaccounted {
        /// Requests planned.
        planned: u64,
        /// Records pushed.
        recorded: u64,
    },
}

/// Streaming summary of a run.
#[derive(Debug)]
pub struct Accumulator {
    percentiles: Percentiles,
    slos: Slos,
    good: u64,
    session_ids: Vocabulary,
    worker_names: Vocabulary,
    renumbered: Renumbered,
    outcomes: Outcomes,
    latencies: LatencyTally,
    modes: ModeTallies,
    sessions: SessionTallies,
    workers: WorkerTallies,
    errors: ErrorTally,
    lengths: Lengths,
    signals: Signals,
    index: IndexTally,
    window: Option<Window>,
    input_tokens: u64,
    output_tokens: u64,
    retried_requests: u64,
}

#[derive(Debug, Clone, Copy)]
struct Window {
    first_sent_ns: u64,
    last_end_ns: u64,
}

impl Accumulator {
    /// Empty, giving these percentiles.
    pub fn new(percentiles: Percentiles) -> Self {
        Accumulator {
            percentiles,
            slos: Slos::default(),
            good: 0,
            session_ids: Vocabulary::default(),
            worker_names: Vocabulary::default(),
            renumbered: Renumbered::default(),
            outcomes: Outcomes::default(),
            latencies: LatencyTally::new(),
            modes: ModeTallies::default(),
            sessions: SessionTallies::default(),
            workers: WorkerTallies::default(),
            errors: ErrorTally::default(),
            lengths: Lengths::default(),
            signals: Signals::default(),
            index: IndexTally::default(),
            window: None,
            input_tokens: 0,
            output_tokens: 0,
            retried_requests: 0,
        }
    }

    /// Counting the requests that keep these objectives.
    pub fn with_slos(mut self, slos: Slos) -> Self {
        self.slos = slos;
        self
    }

    /// Adds one request and the arrivals of its tokens (empty when they are not known).
    pub fn push(&mut self, record: &RequestRecord, tokens: &[TokenRun]) {
        let request = Seen::of(record, &mut self.session_ids, &mut self.worker_names);
        self.add(&request, tokens);
    }

    /// The columns that a batch must have to be pushed.
    pub fn columns() -> Vec<&'static str> {
        seen::COLUMNS.into_iter().chain(Metric::ALL.into_iter().filter_map(Metric::column)).collect()
    }

    /// Adds the rows of a batch with these columns; all batches are of one file. Token gaps are not in it.
    pub fn push_batch(&mut self, batch: &Batch) {
        let rows = Rows::new(batch);
        for row in 0..batch.rows() {
            let names = (&mut self.session_ids, &mut self.worker_names);
            let request = rows.seen(row, &mut self.renumbered, names.0, names.1);
            self.add(&request, &[]);
        }
    }

    fn add(&mut self, request: &Seen, tokens: &[TokenRun]) {
        self.outcomes.count(request.outcome);
        self.latencies.add(request, tokens);
        self.modes.add(request);
        self.sessions.add(request);
        self.workers.add(request);
        self.errors.add(request);
        self.signals.add(request);
        self.index.add(request);
        self.retried_requests += u64::from(request.attempts > 1);
        if request.outcome.is_ok() {
            self.input_tokens += u64::from(request.input_tokens);
            self.output_tokens += u64::from(request.output_tokens);
            self.good += u64::from(self.slos.keeps(|metric| request.ns(metric)));
        }
        self.add_length(request);
        if let Some(sent_ns) = request.sent_ns {
            let window = self.window.get_or_insert(Window { first_sent_ns: sent_ns, last_end_ns: request.ended_ns });
            window.first_sent_ns = window.first_sent_ns.min(sent_ns);
            window.last_end_ns = window.last_end_ns.max(request.ended_ns);
        }
    }

    fn add_length(&mut self, request: &Seen) {
        if request.outcome == Outcome::Skipped || request.outcome == Outcome::Cancelled {
            return;
        }
        let shorter = request.output_tokens < request.expected_output_tokens;
        self.lengths.requests += 1;
        self.lengths.wanted_tokens += u64::from(request.expected_output_tokens);
        self.lengths.got_tokens += u64::from(request.output_tokens);
        self.lengths.shorter += u64::from(shorter);
        self.lengths.shorter_but_ok += u64::from(shorter && !is_failure(request.outcome));
    }

    /// Requests planned and recorded.
    fn accounted(&self, facts: &RunFacts, info: &RunInfo) -> Result<(u64, u64), SummaryError> {
        let planned = if facts.planned > 0 { facts.planned } else { info.requests };
        let recorded = self.outcomes.total();
        let may_lack = info.state == RunState::Unfinished && recorded < planned;
        if recorded != planned && !may_lack {
            return Err(SummaryError::Unaccounted { planned, recorded });
        }
        Ok((planned, recorded))
    }

    /// Whether the headline may be read, of so many requests planned and so many seconds.
    fn integrity(
        &self,
        (planned, duration): (u64, Option<f64>),
        errors: &[ErrorGroup],
        facts: &RunFacts,
        info: &RunInfo,
    ) -> Integrity {
        let lag_ms = self.latencies.percentile_ms(Metric::ScheduleLag, Percentile::P99);
        judge(&Evidence {
            info,
            outcomes: &self.outcomes,
            errors,
            planned,
            schedule_lag_p99_ms: lag_ms.map(|lag| lag / info.speed),
            duration_s: duration,
            route_mismatches: self.signals.route_mismatches,
            retried_requests: self.retried_requests,
            beliefs_corrected: facts.beliefs_corrected,
            harness: facts.harness.as_ref(),
            some_account: !facts.workers.is_empty(),
            unmatched_sessions: self.sessions.unmatched(&self.session_ids, &facts.sessions, info.sessions),
        })
    }

    /// The summary of everything pushed.
    ///
    /// # Errors
    /// When planned requests and outcomes differ. An unfinished run may lack records; its gap is stated in the summary.
    pub fn finish(mut self, facts: &RunFacts, info: &RunInfo) -> Result<RunSummary, SummaryError> {
        let (planned, recorded) = self.accounted(facts, info)?;
        let errors = self.errors.groups();
        let duration = self.window.map(|window| window.last_end_ns.saturating_sub(window.first_sent_ns) as f64 / 1e9);
        let mut integrity = self.integrity((planned, duration), &errors, facts, info);
        let mut sessions = self.sessions.rows(&self.session_ids, &self.worker_names, &facts.sessions);
        if info.mechanism != KEEPS_SESSIONS {
            sessions.iter_mut().for_each(SessionRow::keeps_none_on_d);
        }
        let fairness = assess(&mut sessions);
        let workers = self.workers.rows(&self.worker_names, &info.workers, &facts.workers);
        let spread = workers::spreads(&workers);
        let transfers = transfers(&facts.transfers, &self.signals.time_outs);
        let index = self.index.finish(&self.worker_names, &info.workers, &facts.streams);
        let slow_workers = self.signals.slow_workers(&self.worker_names);
        let causes = diagnose(&Diagnosis {
            info,
            facts,
            signals: &self.signals,
            mean_peak_context: self.sessions.mean_peak_context(),
            outcomes: &self.outcomes,
            errors: &errors,
            sessions: &sessions,
            most_live_sessions: self.sessions.most_live(&self.session_ids, &sessions),
            fairness: &fairness,
            workers: &workers,
            spread: &spread,
            slow_workers: &slow_workers,
            transfers: &transfers,
            index: index.as_ref(),
        });
        integrity.notes.extend(load_only_note(&causes));
        let rate = |count: u64| duration.filter(|seconds| *seconds > 0.0).map(|seconds| count as f64 / seconds);
        let goodput = self.slos.goodput(self.good, &self.outcomes);
        Ok(RunSummary {
            schema_version: SUMMARY_VERSION,
            run: RunInfo { slos: self.slos, ..info.clone() },
            integrity,
            completed: self.outcomes.ok,
            failed: self.outcomes.bad(),
            duration,
            total_input_tokens: self.input_tokens,
            total_output_tokens: self.output_tokens,
            request_throughput: rate(self.outcomes.ok),
            request_goodput: goodput.and_then(|goodput| rate(goodput.good)),
            output_throughput: rate(self.output_tokens),
            total_token_throughput: rate(self.input_tokens + self.output_tokens),
            percentiles: "hdr-3-digits, nearest rank".into(),
            percentile_notes: self.percentiles.notes(),
            latencies: self.latencies.finish(&self.percentiles),
            outcomes: self.outcomes,
            goodput,
            lengths: Lengths { got_share: share(self.lengths.got_tokens, self.lengths.wanted_tokens), ..self.lengths },
            errors,
            causes,
            reuse: self.modes.reuse(),
            modes: self.modes.rows(recorded),
            fairness,
            sessions,
            spread,
            workers,
            transfers,
            index,
            harness: facts.harness.clone(),
        })
    }
}

/// A matter of what the run is of, not only of why it went as it did.
fn load_only_note(causes: &[CauseLine]) -> Option<String> {
    let is_load_only = |line: &CauseLine| matches!(line.cause, Cause::RanAsLoadOnly(_));
    causes.iter().any(is_load_only).then(|| LOAD_ONLY.to_owned())
}
