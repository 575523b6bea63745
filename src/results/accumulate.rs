//! [`Accumulator`]: takes records as they come and ends in a [`RunSummary`].
//!
//! Memory grows with sessions, with one E2E value per request and worker and two sizes per refusal of the soft cap, not
//! with records kept.
//! Invariant: planned requests are the sum of the outcomes; anything else is an error, not a footnote.

use std::collections::BTreeMap;

use thiserror::Error;

use super::cause::{Cause, CauseLine};
use super::diagnose::{Diagnosis, Signals, diagnose};
use super::index::IndexUse;
use super::integrity::{Evidence, judge};
use super::latency::LatencyTally;
use super::modes::{self, ModeTally};
use super::outcomes::{ErrorTally, Outcomes, is_failure};
use super::sessions::SessionTallies;
use super::stats::share;
use super::summary::{Lengths, RunSummary, SUMMARY_VERSION};
use super::workers::{self, WorkerTallies};
use super::{Metric, Percentile, Percentiles, RunInfo, RunState, fairness};
use crate::protocol::TokenRun;
use crate::record::{ExecutionMode, Outcome, RequestRecord, RunFacts};

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
    outcomes: Outcomes,
    latencies: LatencyTally,
    modes: BTreeMap<ExecutionMode, ModeTally>,
    sessions: SessionTallies,
    workers: WorkerTallies,
    errors: ErrorTally,
    lengths: Lengths,
    signals: Signals,
    index: IndexUse,
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
            outcomes: Outcomes::default(),
            latencies: LatencyTally::new(),
            modes: BTreeMap::new(),
            sessions: SessionTallies::default(),
            workers: WorkerTallies::default(),
            errors: ErrorTally::default(),
            lengths: Lengths::default(),
            signals: Signals::default(),
            index: IndexUse::default(),
            window: None,
            input_tokens: 0,
            output_tokens: 0,
            retried_requests: 0,
        }
    }

    /// Adds one request and the arrivals of its tokens (empty when they are not known).
    pub fn push(&mut self, record: &RequestRecord, tokens: &[TokenRun]) {
        self.outcomes.count(record.outcome);
        self.latencies.add(record, tokens);
        self.modes.entry(record.execution_mode).or_insert_with(ModeTally::new).add(record);
        self.sessions.add(record);
        self.workers.add(record);
        self.errors.add(record);
        self.signals.add(record);
        self.index.add(record);
        self.retried_requests += u64::from(record.attempts > 1);
        if record.outcome.is_ok() {
            self.input_tokens += u64::from(record.input_tokens);
            self.output_tokens += u64::from(record.output_tokens);
        }
        self.add_length(record);
        if let Some(sent_ns) = record.sent_ns {
            let window = self.window.get_or_insert(Window { first_sent_ns: sent_ns, last_end_ns: record.ended_ns });
            window.first_sent_ns = window.first_sent_ns.min(sent_ns);
            window.last_end_ns = window.last_end_ns.max(record.ended_ns);
        }
    }

    fn add_length(&mut self, record: &RequestRecord) {
        if record.outcome == Outcome::Skipped || record.outcome == Outcome::Cancelled {
            return;
        }
        let shorter = record.output_tokens < record.expected_output_tokens;
        self.lengths.requests += 1;
        self.lengths.wanted_tokens += u64::from(record.expected_output_tokens);
        self.lengths.got_tokens += u64::from(record.output_tokens);
        self.lengths.shorter += u64::from(shorter);
        self.lengths.shorter_but_ok += u64::from(shorter && !is_failure(record.outcome));
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

    /// The summary of everything pushed.
    ///
    /// # Errors
    /// When planned requests and outcomes differ. An unfinished run may lack records; its gap is stated in the summary.
    pub fn finish(self, facts: &RunFacts, info: &RunInfo) -> Result<RunSummary, SummaryError> {
        let (planned, recorded) = self.accounted(facts, info)?;
        let errors = self.errors.groups();
        let duration = self.window.map(|window| (window.last_end_ns - window.first_sent_ns) as f64 / 1e9);
        let lag_ms = self.latencies.percentile_ms(Metric::ScheduleLag, Percentile::P99);
        let mut integrity = judge(&Evidence {
            info,
            outcomes: &self.outcomes,
            errors: &errors,
            planned,
            schedule_lag_p99_ms: lag_ms.map(|lag| lag / info.speed),
            duration_s: duration,
            route_mismatches: self.signals.route_mismatches,
            retried_requests: self.retried_requests,
            beliefs_corrected: facts.beliefs_corrected,
            harness: facts.harness.as_ref(),
            some_account: !facts.workers.is_empty(),
            unmatched_sessions: self.sessions.unmatched(&facts.sessions, info.sessions),
        });
        let mut sessions = self.sessions.rows(&facts.sessions);
        let fairness = fairness::assess(&mut sessions);
        let workers = self.workers.rows(&info.workers, &facts.workers);
        let spread = workers::spreads(&workers);
        let transfers = workers::transfers(&facts.transfers);
        let index = self.index.finish(&facts.streams);
        let causes = diagnose(&Diagnosis {
            info,
            facts,
            signals: &self.signals,
            mean_peak_context: self.sessions.mean_peak_context(),
            outcomes: &self.outcomes,
            errors: &errors,
            sessions: &sessions,
            most_live_sessions: self.sessions.most_live(&sessions),
            fairness: &fairness,
            workers: &workers,
            spread: &spread,
            transfers: &transfers,
            index: index.as_ref(),
        });
        integrity.notes.extend(load_only_note(&causes));
        let rate = |count: u64| duration.filter(|seconds| *seconds > 0.0).map(|seconds| count as f64 / seconds);
        let lengths = Lengths { got_share: share(self.lengths.got_tokens, self.lengths.wanted_tokens), ..self.lengths };
        Ok(RunSummary {
            schema_version: SUMMARY_VERSION,
            run: info.clone(),
            integrity,
            completed: self.outcomes.ok,
            failed: self.outcomes.bad(),
            duration,
            total_input_tokens: self.input_tokens,
            total_output_tokens: self.output_tokens,
            request_throughput: rate(self.outcomes.ok),
            output_throughput: rate(self.output_tokens),
            total_token_throughput: rate(self.input_tokens + self.output_tokens),
            percentiles: "hdr-3-digits, nearest rank".into(),
            percentile_notes: self.percentiles.notes(),
            latencies: self.latencies.finish(&self.percentiles),
            outcomes: self.outcomes,
            lengths,
            errors,
            causes,
            modes: modes::rows(&self.modes, recorded),
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
