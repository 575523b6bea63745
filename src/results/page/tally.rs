//! [`PageTally`]: what the charts of a run need beyond its summary, record by record.
//!
//! Memory grows with sessions and workers, not with requests: series over time have a bounded number of columns, and
//! distributions are histograms.

use std::collections::{BTreeMap, HashMap};

use super::columns::{Columns, MOST_COLUMNS, Merge};
use super::residency::Residency;
use crate::record::{ExecutionMode, LedgerEvent, RequestRecord};
use crate::results::distribution::ns_of_ms;
use crate::results::{Distribution, is_failure};

/// Kinds of a request on a strip: its mode, or failed.
pub(super) const CLASSES: usize = ExecutionMode::ALL.len() + 1;

/// Index of a failed request among the kinds.
pub(super) const FAILED_CLASS: usize = ExecutionMode::ALL.len();

/// Gathers what the charts of one run need.
///
/// [`PageTally::record`] and [`PageTally::event`] want records and events in the order of their times, as `requests.jsonl`
/// and `events.jsonl` have them, merged: only then is it known what a D held when a session was dropped.
#[derive(Debug, Default)]
pub struct PageTally {
    /// Requests by mode, at their sends.
    pub(super) modes: Columns<[u64; ExecutionMode::ALL.len()]>,
    /// Schedule lag at the sends.
    pub(super) lag: Columns<Lag>,
    /// TTFT and E2E of ok requests.
    pub(super) latencies: BTreeMap<ExecutionMode, [Distribution; 2]>,
    /// Sessions in the order of their first records.
    pub(super) sessions: Vec<Lane>,
    by_id: HashMap<String, usize>,
    /// What D (or colocated workers) held.
    pub(super) residency: Residency,
}

/// Schedule lag in a column, nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lag {
    /// Largest.
    pub max_ns: u64,
    /// Sum.
    pub sum_ns: u128,
    /// Requests.
    pub n: u64,
}

impl Merge for Lag {
    fn merge(&mut self, later: Lag) {
        self.max_ns = self.max_ns.max(later.max_ns);
        self.sum_ns += later.sum_ns;
        self.n += later.n;
    }
}

/// One session over time.
#[derive(Debug)]
pub(super) struct Lane {
    /// Its id.
    pub id: String,
    /// Time in each column by kind of request, nanoseconds: few kinds a column, so a list.
    pub cells: Columns<Kinds>,
}

/// Nanoseconds by kind of request.
#[derive(Debug, Clone, Default)]
pub(super) struct Kinds(Vec<(u8, u64)>);

impl Kinds {
    fn add(&mut self, class: usize, ns: u64) {
        match self.0.iter_mut().find(|(known, _)| usize::from(*known) == class) {
            Some((_, sum)) => *sum += ns,
            None => self.0.push((class as u8, ns)),
        }
    }

    /// Adds to sums by kind.
    pub(super) fn add_to(&self, sums: &mut [u64; CLASSES]) {
        self.0.iter().for_each(|(class, ns)| sums[usize::from(*class)] += ns);
    }
}

impl Merge for Kinds {
    fn merge(&mut self, later: Kinds) {
        later.0.into_iter().for_each(|(class, ns)| self.add(usize::from(class), ns));
    }
}

impl PageTally {
    /// Takes in a request.
    pub fn record(&mut self, record: &RequestRecord) {
        let class = ExecutionMode::ALL.iter().position(|mode| *mode == record.execution_mode).unwrap_or(FAILED_CLASS);
        if record.outcome.is_ok() {
            let both = self.latencies.entry(record.execution_mode).or_default();
            for (distribution, ms) in both.iter_mut().zip([record.ttft_ms, record.e2e_ms]) {
                ms.and_then(ns_of_ms).into_iter().for_each(|ns| distribution.add(ns));
            }
        }
        let Some(sent_ns) = record.sent_ns else { return };
        self.modes.at(sent_ns)[class] += 1;
        if let Some(ns) = record.schedule_lag_ms.and_then(ns_of_ms) {
            self.lag.at(sent_ns).merge(Lag { max_ns: ns, sum_ns: ns.into(), n: 1 });
        }
        let class = if is_failure(record.outcome) { FAILED_CLASS } else { class };
        self.lane(&record.session_id).spread(sent_ns, record.ended_ns, |kinds, ns| kinds.add(class, ns));
        self.residency.record(record, sent_ns);
    }

    /// Takes in an event.
    pub fn event(&mut self, event: &LedgerEvent) {
        self.residency.event(event);
    }

    /// Brings all series to one width of columns.
    pub(super) fn align(&mut self) {
        let widths = [self.modes.width_ns(), self.lag.width_ns(), self.residency.width_ns()];
        let lanes = self.sessions.iter().map(|lane| lane.cells.width_ns());
        let width_ns = widths.into_iter().chain(lanes).max().unwrap_or(0);
        self.modes.widen(width_ns);
        self.lag.widen(width_ns);
        self.residency.widen(width_ns);
        self.sessions.iter_mut().for_each(|lane| lane.cells.widen(width_ns));
    }

    /// Columns that the run fills.
    pub(super) fn columns(&self) -> usize {
        let lanes = self.sessions.iter().map(|lane| lane.cells.cells().len()).max().unwrap_or(0);
        lanes.max(self.modes.cells().len()).min(MOST_COLUMNS)
    }

    fn lane(&mut self, session: &str) -> &mut Columns<Kinds> {
        let ix = match self.by_id.get(session) {
            Some(ix) => *ix,
            None => {
                self.by_id.insert(session.to_owned(), self.sessions.len());
                self.sessions.push(Lane { id: session.to_owned(), cells: Columns::default() });
                self.sessions.len() - 1
            }
        };
        &mut self.sessions[ix].cells
    }
}
