//! [`PageTally`]: what the charts of a run need beyond its summary, record by record.
//!
//! Memory grows with sessions and workers, not with requests: series over time have a bounded number of columns, and
//! distributions are histograms.

use std::collections::BTreeMap;
use std::iter::Peekable;

use super::columns::{Columns, MOST_COLUMNS, Merge};
use super::residency::Residency;
use crate::record::{ExecutionMode, LedgerEvent, RequestRecord};
use crate::results::seen::{Renumbered, Rows, Seen};
use crate::results::vocabulary::Vocabulary;
use crate::results::{Accumulator, Batch, Distribution, Metric, is_failure};

/// Kinds of a request on a strip: its mode, or failed.
pub(super) const CLASSES: usize = ExecutionMode::ALL.len() + 1;

/// Index of a failed request among the kinds.
pub(super) const FAILED_CLASS: usize = ExecutionMode::ALL.len();

/// Gathers what the charts of one run need.
///
/// Wants the records in the order of `requests.jsonl`, by their ends, and has the events by their times: only together do they
/// tell what a D held when a session was dropped.
#[derive(Default)]
pub struct PageTally {
    events: Option<Events>,
    renumbered: Renumbered,
    session_ids: Vocabulary,
    worker_names: Vocabulary,
    /// Requests by mode, at their sends.
    pub(super) modes: Columns<[u64; ExecutionMode::ALL.len()]>,
    /// Schedule lag at the sends.
    pub(super) lag: Columns<Lag>,
    /// TTFT and E2E of ok requests.
    pub(super) latencies: BTreeMap<ExecutionMode, [Distribution; 2]>,
    /// Sessions by their number.
    pub(super) sessions: Vec<Lane>,
    /// What D (or colocated workers) held.
    pub(super) residency: Residency,
}

type Events = Peekable<Box<dyn Iterator<Item = LedgerEvent>>>;

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
            Some((_, sum)) => *sum = sum.saturating_add(ns),
            None => self.0.push((class as u8, ns)),
        }
    }

    /// Adds to sums by kind.
    pub(super) fn add_to(&self, sums: &mut [u64; CLASSES]) {
        for (class, ns) in &self.0 {
            let sum = &mut sums[usize::from(*class)];
            *sum = sum.saturating_add(*ns);
        }
    }
}

impl Merge for Kinds {
    fn merge(&mut self, later: Kinds) {
        later.0.into_iter().for_each(|(class, ns)| self.add(usize::from(class), ns));
    }
}

impl PageTally {
    /// Of a run with these events, by rising time.
    pub fn new(events: impl Iterator<Item = LedgerEvent> + 'static) -> PageTally {
        let events: Box<dyn Iterator<Item = LedgerEvent>> = Box::new(events);
        PageTally { events: Some(events.peekable()), ..PageTally::default() }
    }

    /// Columns of the records that it reads.
    pub fn columns() -> Vec<&'static str> {
        Accumulator::columns()
    }

    /// Takes in the rows of a batch; all batches are of one file.
    pub fn push_batch(&mut self, batch: &Batch) {
        let rows = Rows::new(batch);
        for row in 0..batch.rows() {
            let names = (&mut self.session_ids, &mut self.worker_names);
            let request = rows.seen(row, &mut self.renumbered, names.0, names.1);
            self.add(&request);
        }
    }

    /// Takes in one record.
    pub fn push(&mut self, record: &RequestRecord) {
        let request = Seen::of(record, &mut self.session_ids, &mut self.worker_names);
        self.add(&request);
    }

    fn add(&mut self, request: &Seen) {
        // A session is closed at the instant its last turn ends: the turn comes first.
        while let Some(event) =
            self.events.as_mut().and_then(|events| events.next_if(|event| event.at_ns < request.ended_ns))
        {
            self.residency.event(&event);
        }
        let class = ExecutionMode::ALL.iter().position(|mode| *mode == request.mode).unwrap_or(FAILED_CLASS);
        if request.outcome.is_ok() {
            let both = self.latencies.entry(request.mode).or_default();
            for (distribution, metric) in both.iter_mut().zip([Metric::Ttft, Metric::E2e]) {
                request.ns(metric).into_iter().for_each(|ns| distribution.add(ns));
            }
        }
        let ix = request.session.ix as usize;
        if self.sessions.len() == ix {
            self.sessions.push(Lane { id: request.session.word.to_owned(), cells: Columns::default() });
        }
        let Some(sent_ns) = request.sent_ns else { return };
        self.modes.at(sent_ns)[class] += 1;
        if let Some(ns) = request.ns(Metric::ScheduleLag) {
            self.lag.at(sent_ns).merge(Lag { max_ns: ns, sum_ns: ns.into(), n: 1 });
        }
        let class = if is_failure(request.outcome) { FAILED_CLASS } else { class };
        self.sessions[ix].cells.spread(sent_ns, request.ended_ns, |kinds, ns| kinds.add(class, ns));
        self.residency.request(request, sent_ns);
    }

    /// Takes in the events after the last record, and brings all series to one width of columns.
    pub(super) fn finish(&mut self) {
        self.events.take().into_iter().flatten().for_each(|event| self.residency.event(&event));
        let widths = [self.modes.width_ns(), self.lag.width_ns(), self.residency.width_ns()];
        let lanes = self.sessions.iter().map(|lane| lane.cells.width_ns());
        let width_ns = widths.into_iter().chain(lanes).max().unwrap_or(0);
        self.modes.widen(width_ns);
        self.lag.widen(width_ns);
        self.residency.widen(width_ns);
        self.sessions.iter_mut().for_each(|lane| lane.cells.widen(width_ns));
    }

    /// Columns of time that the run fills.
    pub(super) fn width(&self) -> usize {
        let lanes = self.sessions.iter().map(|lane| lane.cells.cells().len()).max().unwrap_or(0);
        lanes.max(self.modes.cells().len()).min(MOST_COLUMNS)
    }
}
