//! [`Outcomes`]: how requests ended, and the failures grouped by class.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;

use super::seen::Seen;
use super::stats::share;
use crate::record::Outcome;

/// Counts of every outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct Outcomes {
    /// All tokens asked for.
    pub ok: u64,
    /// Fewer tokens than asked for.
    pub truncated: u64,
    /// Given up by the engine before the first token.
    pub aborted: u64,
    /// Refused, or the transport broke.
    pub error: u64,
    /// A client limit ran out.
    pub timeout: u64,
    /// In flight when the run was stopped.
    pub cancelled: u64,
    /// Never sent.
    pub skipped: u64,
}

/// Failures of one class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ErrorGroup {
    /// Their outcome.
    pub outcome: Outcome,
    /// Their class; `unclassified` when the record names none.
    pub class: String,
    /// How many.
    pub count: u64,
    /// Sessions they fell on.
    pub sessions: u64,
    /// Words of the first of them that had any.
    pub example: Option<String>,
    /// Request id that goes with the example.
    pub example_request: String,
}

/// Truncated, aborted, failed or timed out: served badly, as opposed to not served at all.
pub fn is_failure(outcome: Outcome) -> bool {
    match outcome {
        Outcome::Truncated | Outcome::Aborted | Outcome::Error | Outcome::Timeout => true,
        Outcome::Ok | Outcome::Cancelled | Outcome::Skipped => false,
    }
}

impl Outcomes {
    /// Counts one request.
    pub fn count(&mut self, outcome: Outcome) {
        let slot = match outcome {
            Outcome::Ok => &mut self.ok,
            Outcome::Truncated => &mut self.truncated,
            Outcome::Aborted => &mut self.aborted,
            Outcome::Error => &mut self.error,
            Outcome::Timeout => &mut self.timeout,
            Outcome::Cancelled => &mut self.cancelled,
            Outcome::Skipped => &mut self.skipped,
        };
        *slot += 1;
    }

    /// Requests with this outcome.
    pub fn of(&self, outcome: Outcome) -> u64 {
        match outcome {
            Outcome::Ok => self.ok,
            Outcome::Truncated => self.truncated,
            Outcome::Aborted => self.aborted,
            Outcome::Error => self.error,
            Outcome::Timeout => self.timeout,
            Outcome::Cancelled => self.cancelled,
            Outcome::Skipped => self.skipped,
        }
    }

    /// All requests.
    pub fn total(&self) -> u64 {
        Outcome::ALL.iter().map(|outcome| self.of(*outcome)).sum()
    }

    /// Truncated, aborted, error and timeout.
    pub fn bad(&self) -> u64 {
        Outcome::ALL.iter().filter(|outcome| is_failure(**outcome)).map(|outcome| self.of(*outcome)).sum()
    }

    /// Requests that ran to an end: ok or bad.
    pub fn served(&self) -> u64 {
        self.ok + self.bad()
    }

    /// Bad over served, 0 to 1; `None` when nothing was served.
    pub fn bad_share(&self) -> Option<f64> {
        share(self.bad(), self.served())
    }
}

/// Gathers [`ErrorGroup`]s, by outcome and class.
#[derive(Debug, Default)]
pub(super) struct ErrorTally(BTreeMap<Outcome, BTreeMap<String, ErrorEntry>>);

#[derive(Debug)]
struct ErrorEntry {
    count: u64,
    sessions: BTreeSet<u32>,
    example: Option<String>,
    example_request: String,
}

impl ErrorTally {
    pub(super) fn add(&mut self, request: &Seen) {
        if !is_failure(request.outcome) {
            return;
        }
        let class = request.error_class.unwrap_or("unclassified");
        let classes = self.0.entry(request.outcome).or_default();
        if !classes.contains_key(class) {
            classes.insert(class.into(), ErrorEntry::first(request));
        }
        let Some(entry) = classes.get_mut(class) else { return };
        entry.count += 1;
        entry.sessions.insert(request.session.ix);
        if let (None, Some(words)) = (&entry.example, request.error_message) {
            entry.example = Some(words.into());
            entry.example_request = request.request_id.into();
        }
    }

    /// Groups by falling count.
    pub(super) fn groups(&self) -> Vec<ErrorGroup> {
        let group = |outcome: Outcome, class: &str, entry: &ErrorEntry| ErrorGroup {
            outcome,
            class: class.into(),
            count: entry.count,
            sessions: entry.sessions.len() as u64,
            example: entry.example.clone(),
            example_request: entry.example_request.clone(),
        };
        let of_outcome = |(outcome, classes): (&Outcome, &BTreeMap<String, ErrorEntry>)| -> Vec<ErrorGroup> {
            classes.iter().map(|(class, entry)| group(*outcome, class, entry)).collect()
        };
        let mut groups: Vec<ErrorGroup> = self.0.iter().flat_map(of_outcome).collect();
        groups.sort_by_key(|group| std::cmp::Reverse(group.count));
        groups
    }
}

impl ErrorEntry {
    fn first(request: &Seen) -> ErrorEntry {
        ErrorEntry { count: 0, sessions: BTreeSet::new(), example: None, example_request: request.request_id.into() }
    }
}
