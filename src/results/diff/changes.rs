//! Request by request: from which mode to which, and from which outcome to which.
//!
//! Repeat i of A is held against repeat i of B; further repeats of one side alone are left out here.

use std::collections::BTreeMap;

use super::pairing::{Run, Sessions, pairs};
use super::report::{OutcomeChange, Transition};
use super::requests::{LATENCIES, NONE};
use crate::record::{ExecutionMode, Outcome};
use crate::results::Metric;

/// Transitions between modes and between outcomes.
#[derive(Debug, Default)]
pub(super) struct Changes {
    modes: BTreeMap<(ExecutionMode, ExecutionMode), Moved>,
    outcomes: BTreeMap<(Outcome, Outcome), (u64, String)>,
    pairs: u64,
    /// A pair that is not alike in every latency, mode and outcome.
    differs: bool,
}

#[derive(Debug, Default)]
struct Moved {
    count: u64,
    both_ok: u64,
    delta_ns: i128,
}

impl Changes {
    /// Of all pairs.
    pub fn of(a: &[Run], b: &[Run], sessions: &Sessions) -> Changes {
        let mut changes = Changes { differs: a.len() != b.len(), ..Changes::default() };
        for (a, b) in a.iter().zip(b) {
            pairs(a, b).for_each(|(row_a, row_b)| changes.add((a, row_a), (b, row_b), sessions));
        }
        changes
    }

    /// Every pair is alike.
    pub fn none(&self) -> bool {
        !self.differs
    }

    fn add(&mut self, (a, row_a): (&Run, usize), (b, row_b): (&Run, usize), sessions: &Sessions) {
        const E2E: usize = 2;
        debug_assert_eq!(LATENCIES[E2E], Metric::E2e);
        let (a, b) = (&a.requests, &b.requests);
        let modes = (a.mode[row_a], b.mode[row_b]);
        let outcomes = (a.outcome[row_a], b.outcome[row_b]);
        let alike = a.latencies.iter().zip(&b.latencies).all(|(a, b)| a[row_a] == b[row_b]);
        self.differs |= !alike || modes.0 != modes.1 || outcomes.0 != outcomes.1;
        self.pairs += 1;
        let moved = self.modes.entry(modes).or_default();
        moved.count += 1;
        let (e2e_a, e2e_b) = (a.latencies[E2E][row_a], b.latencies[E2E][row_b]);
        if e2e_a != NONE && e2e_b != NONE {
            moved.both_ok += 1;
            moved.delta_ns += i128::from(e2e_b) - i128::from(e2e_a);
        }
        if outcomes.0 != outcomes.1 {
            let name = || format!("{}/{}", sessions.names[a.session[row_a] as usize], a.turn[row_a]);
            self.outcomes.entry(outcomes).or_insert_with(|| (0, name())).0 += 1;
        }
    }

    /// By falling count.
    pub fn transitions(&self) -> Vec<Transition> {
        let row = |((from, to), moved): (&(ExecutionMode, ExecutionMode), &Moved)| Transition {
            from: *from,
            to: *to,
            count: moved.count,
            share: moved.count as f64 / self.pairs as f64,
            mean_e2e_delta_ms: (moved.both_ok > 0).then(|| moved.delta_ns as f64 / moved.both_ok as f64 / 1e6),
        };
        let mut rows: Vec<Transition> = self.modes.iter().map(row).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.count));
        rows
    }

    /// By falling count.
    pub fn outcomes(&self) -> Vec<OutcomeChange> {
        let row = |((from, to), (count, first)): (&(Outcome, Outcome), &(u64, String))| OutcomeChange {
            from: *from,
            to: *to,
            count: *count,
            first: first.clone(),
        };
        let mut rows: Vec<OutcomeChange> = self.outcomes.iter().map(row).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.count));
        rows
    }
}
