//! [`Requests`]: what a comparison keeps of the records of one run, in columns: 54 bytes a request.
//!
//! Invariant: a latency is kept of ok requests alone, so that a failure never is a value.

use crate::record::{ExecutionMode, Outcome};
use crate::results::distribution::ns_of_ms;
use crate::results::{Batch, Metric, Slos};

/// Columns of a record that a comparison reads.
pub const COLUMNS: &[&str] = &[
    "session_id",
    "turn_id",
    "trace_line",
    "execution_mode",
    "outcome",
    "ttft_ms",
    "tpot_ms",
    "e2e_ms",
    "sched_ttft_ms",
    "sched_e2e_ms",
];

/// Latencies that are compared.
pub const LATENCIES: [Metric; 5] = [Metric::Ttft, Metric::Tpot, Metric::E2e, Metric::SchedTtft, Metric::SchedE2e];

/// Phases of a request whose means are compared, by the summaries.
pub(super) const PHASES: [Metric; 6] = [
    Metric::WaitPreviousTurn,
    Metric::Admission,
    Metric::PrefillQueue,
    Metric::Prefill,
    Metric::KvTransfer,
    Metric::DecodeQueue,
];

/// Stands for no value.
pub(super) const NONE: u64 = u64::MAX;

/// The requests of one run, one entry a request in every column, in the order of its file.
#[derive(Debug, Default)]
pub struct Requests {
    /// Number of the session in `names`.
    pub(super) session: Vec<u32>,
    pub(super) turn: Vec<u32>,
    pub(super) line: Vec<u32>,
    pub(super) mode: Vec<ExecutionMode>,
    pub(super) outcome: Vec<Outcome>,
    /// Nanoseconds, as [`LATENCIES`]; [`NONE`] where the request is not ok or has none.
    pub(super) latencies: [Vec<u64>; LATENCIES.len()],
    /// Session ids by number.
    pub(super) names: Vec<String>,
    /// Labels of a file by their numbers in it.
    modes: Vec<ExecutionMode>,
    outcomes: Vec<Outcome>,
}

impl Requests {
    /// Takes in the rows of a batch with [`COLUMNS`]. All batches must come from one file.
    pub fn push(&mut self, batch: &Batch) {
        let rows = 0..batch.rows();
        let sessions = batch.labels("session_id");
        let (modes, outcomes) = (batch.labels("execution_mode"), batch.labels("outcome"));
        self.names.extend((self.names.len()..sessions.known()).map(|code| sessions.word(code as u32).to_owned()));
        let known = ExecutionMode::ALL;
        self.modes.extend(
            (self.modes.len()..modes.known()).map(|code| closed(known, ExecutionMode::as_str, modes.word(code as u32))),
        );
        self.outcomes.extend(
            (self.outcomes.len()..outcomes.known())
                .map(|code| closed(Outcome::ALL, Outcome::as_str, outcomes.word(code as u32))),
        );
        let code = |label: Option<u32>| label.expect("a record has a session, a mode and an outcome");
        self.session.extend(rows.clone().map(|row| code(sessions.code(row))));
        self.mode.extend(rows.clone().map(|row| self.modes[code(modes.code(row)) as usize]));
        let first = self.outcome.len();
        self.outcome.extend(rows.clone().map(|row| self.outcomes[code(outcomes.code(row)) as usize]));
        let (turn, line) = (batch.u32("turn_id"), batch.u32("trace_line"));
        self.turn.extend(rows.clone().map(|row| turn.value(row)));
        self.line.extend(rows.clone().map(|row| line.value(row)));
        let outcome = &self.outcome[first..];
        for (metric, values) in LATENCIES.into_iter().zip(&mut self.latencies) {
            let cells = batch.f64(&format!("{}_ms", metric.as_str()));
            let value = |row: usize| cells.get(row).filter(|_| outcome[row].is_ok()).and_then(ns_of_ms).unwrap_or(NONE);
            values.extend(rows.clone().map(value));
        }
    }

    /// Whether the request of a row ended ok within every objective.
    pub(super) fn is_good(&self, row: usize, slos: &Slos) -> bool {
        let value = |metric: Metric| {
            let at = LATENCIES.iter().position(|known| *known == metric)?;
            Some(self.latencies[at][row]).filter(|ns| *ns != NONE)
        };
        self.outcome[row].is_ok() && slos.keeps(value)
    }

    /// Requests.
    pub fn len(&self) -> usize {
        self.session.len()
    }

    /// Without a request.
    pub fn is_empty(&self) -> bool {
        self.session.is_empty()
    }

    /// Appends the requests of another file: a further part of the same run.
    pub fn append(&mut self, other: Requests) {
        let first = self.names.len() as u32;
        // A session of both has two numbers until all sessions of a comparison are numbered anew.
        self.names.extend(other.names);
        self.session.extend(other.session.iter().map(|session| session + first));
        self.turn.extend(other.turn);
        self.line.extend(other.line);
        self.mode.extend(other.mode);
        self.outcome.extend(other.outcome);
        self.latencies.iter_mut().zip(other.latencies).for_each(|(mine, others)| mine.extend(others));
    }

    /// Whether no two of these have a request in common: parts of one run rather than repeats of it.
    pub fn are_parts(files: &[&Requests]) -> bool {
        let mut keys: Vec<(&str, u32)> = Vec::new();
        let mut distinct = 0;
        for file in files {
            let mut own: Vec<(&str, u32)> =
                (0..file.len()).map(|row| (file.names[file.session[row] as usize].as_str(), file.turn[row])).collect();
            own.sort_unstable();
            own.dedup();
            distinct += own.len();
            keys.extend(own);
        }
        keys.sort_unstable();
        keys.dedup();
        keys.len() == distinct
    }
}

fn closed<T: Copy>(all: &[T], as_str: fn(T) -> &'static str, word: &str) -> T {
    *all.iter().find(|known| as_str(**known) == word).expect("labels of a batch are those of a record")
}
