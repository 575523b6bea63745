//! Whole runs in virtual time, through the library: published failures, the cases of the core, random runs.
//!
//! A test is a small trace, a scenario in the tool's own syntax, and exact times. [`play`] runs it and holds every run to
//! the laws that hold for all of them ([`laws`]).

mod accused;
mod bytes;
mod failures;
mod faults;
mod hand_off;
mod index;
mod laws;
mod meaning;
mod pressure;
mod published;
mod random;
mod routing;
mod sessions;
mod timing;

use std::io;
use std::ops::ControlFlow;

use pdreplay::protocol::TokenRun;
use pdreplay::record::{LedgerEvent, LedgerKind, ModeReason, Outcome, RequestRecord};
use pdreplay::replay::{Observer, Progress, RunEnd, RunStatus};
use pdreplay::scenario::{Scenario, load_text};
use pdreplay::sim::{self, SimError};
use pdreplay::trace::{ReadOptions, Trace, read_bytes};

/// Calls of the observer after which a run of a test counts as one that never ends.
const PROGRESS_MAX: u32 = 200_000;

/// No time passes but that of `p0` (a prefill) and `d0` (a token), to the nanosecond.
pub const EXACT: &str = "
cluster.hop_us = 0
cluster.link = { setup_us = 0, gbytes_per_s = 1e9 }
engine.ingest_base_ms = 0
engine.ingest_per_token_us = 0
engine.admission_cost_us = 0
engine.kv_bytes_per_token = 1
engine.timing = { p0 = 50, p1 = 0, p2 = 0, d0 = 50, d1 = 0, d2 = 0, d3 = 0, experts = 0, top_k = 0 }
";

/// A run, seen from outside.
pub struct Played {
    pub records: Vec<RequestRecord>,
    pub tokens: Vec<Vec<TokenRun>>,
    pub ledger: Vec<LedgerEvent>,
    pub end: RunEnd,
}

/// A trace of this text.
pub fn trace(jsonl: &str) -> Trace {
    trace_with(jsonl, &ReadOptions::default())
}

pub fn trace_with(jsonl: &str, options: &ReadOptions) -> Trace {
    read_bytes("test.jsonl", jsonl.as_bytes(), options).unwrap_or_else(|error| panic!("{error}"))
}

/// The text of a case's file.
pub fn case(path: &str) -> String {
    std::fs::read_to_string(crate::run::case_path(path)).unwrap()
}

/// A scenario of these texts, one below the other.
pub fn scenario(texts: &[&str]) -> Scenario {
    load_text("test.toml", &texts.join("\n")).unwrap_or_else(|error| panic!("{error}"))
}

/// Runs to the end, and checks the laws of every run.
#[track_caller]
pub fn play(trace: &Trace, scenario: &Scenario) -> Played {
    let played = try_play(trace, scenario).unwrap_or_else(|error| panic!("{error}"));
    laws::check(trace, scenario, &played);
    played
}

pub fn try_play(trace: &Trace, scenario: &Scenario) -> Result<Played, SimError> {
    let played = watch(trace, scenario, PROGRESS_MAX)?;
    assert!(played.end.status != RunStatus::Interrupted, "the run did not come to an end");
    Ok(played)
}

/// Breaks a run off at the observer's `last` look.
pub fn interrupt(trace: &Trace, scenario: &Scenario, last: u32) -> Played {
    let played = watch(trace, scenario, last).unwrap_or_else(|error| panic!("{error}"));
    laws::check(trace, scenario, &played);
    played
}

fn watch(trace: &Trace, scenario: &Scenario, last: u32) -> Result<Played, SimError> {
    let mut taker = Taker { records: Vec::new(), tokens: Vec::new(), ledger: Vec::new(), looks: 0, last };
    let end = sim::run(trace, scenario, "test", &mut taker)?;
    Ok(Played { records: taker.records, tokens: taker.tokens, ledger: taker.ledger, end })
}

struct Taker {
    records: Vec<RequestRecord>,
    tokens: Vec<Vec<TokenRun>>,
    ledger: Vec<LedgerEvent>,
    looks: u32,
    last: u32,
}

impl Observer for Taker {
    fn record(&mut self, record: &RequestRecord, tokens: &[TokenRun]) -> io::Result<()> {
        self.records.push(record.clone());
        self.tokens.push(tokens.to_vec());
        Ok(())
    }

    fn ledger(&mut self, event: &LedgerEvent) -> io::Result<()> {
        self.ledger.push(event.clone());
        Ok(())
    }

    fn progress(&mut self, _: &Progress) -> ControlFlow<()> {
        self.looks += 1;
        if self.looks < self.last { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

impl Played {
    /// The record of a turn.
    #[track_caller]
    pub fn of(&self, session: &str, turn: u32) -> &RequestRecord {
        let found = self.records.iter().find(|record| record.session_id == session && record.turn_id == turn);
        found.unwrap_or_else(|| panic!("no record of {session}/{turn}"))
    }

    /// The records of a session, in turn order.
    pub fn session(&self, session: &str) -> Vec<&RequestRecord> {
        let mut found: Vec<_> = self.records.iter().filter(|record| record.session_id == session).collect();
        found.sort_by_key(|record| (record.turn_id, record.trace_line));
        found
    }

    /// How a session went: one letter a turn. `1` first turn on the plain path, `S` seed, `R` reseed, `D` direct,
    /// `p` plain, `w` colocated, `F` fallback, `-` not sent; a bad end has `!` behind it.
    pub fn path(&self, session: &str) -> String {
        use pdreplay::record::ExecutionMode as Mode;
        let letter = |record: &&RequestRecord| {
            let letter = match record.execution_mode {
                Mode::DpColocated => 'w',
                Mode::PdRouter => 'p',
                Mode::PdRouterTurn1 => '1',
                Mode::KvcacheSeed => 'S',
                Mode::KvcacheDirectToDSession => 'D',
                Mode::KvcacheReseed => 'R',
                Mode::NotSent => '-',
                mode if mode.is_fallback() => 'F',
                mode => panic!("{mode} has no letter"),
            };
            let bad = if record.outcome.is_ok() || letter == '-' { "" } else { "!" };
            format!("{letter}{bad}")
        };
        self.session(session).iter().map(letter).collect()
    }

    /// Why each turn of a session went that way.
    pub fn reasons(&self, session: &str) -> Vec<ModeReason> {
        self.session(session).iter().map(|record| record.mode_reason).collect()
    }

    /// Requests that ended so.
    pub fn count(&self, outcome: Outcome) -> usize {
        self.records.iter().filter(|record| record.outcome == outcome).count()
    }

    /// Ledger lines of a kind.
    pub fn noted(&self, kind: LedgerKind) -> Vec<&LedgerEvent> {
        self.ledger.iter().filter(|event| event.kind == kind).collect()
    }

    /// Worker that served a turn.
    #[track_caller]
    pub fn worker(&self, session: &str, turn: u32) -> &str {
        self.of(session, turn).decode_worker_actual.as_deref().expect("a worker served it")
    }

    #[track_caller]
    pub fn all_ok(&self) {
        let bad: Vec<_> = self.records.iter().filter(|record| !record.outcome.is_ok()).collect();
        assert!(bad.is_empty(), "{bad:#?}");
    }
}

/// When a request was sent, seconds.
pub fn sent_s(record: &RequestRecord) -> f64 {
    record.sent_ns.expect("it was sent") as f64 / 1e9
}

/// Equal up to a microsecond: transfers of nothing still round up to nanoseconds.
#[track_caller]
pub fn near(found: impl IntoIterator<Item = f64>, wanted: &[f64]) {
    let found: Vec<f64> = found.into_iter().collect();
    let equal = found.len() == wanted.len() && found.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-6);
    assert!(equal, "found {found:?}, wanted {wanted:?}");
}

/// `count` one-turn sessions `gap_s` apart.
pub fn arrivals(count: u32, gap_s: f64, input: u32, output: u32) -> Trace {
    let row = |k: u32| {
        format!(
            r#"{{"session_id":"q{k:02}","turn_id":0,"timestamp":{},"input_length":{input},"output_length":{output}}}"#,
            f64::from(k) * gap_s
        )
    };
    trace(&(0..count).map(row).collect::<Vec<_>>().join("\n"))
}

/// `count` sessions of turns at `turns` seconds, each session `gap_s` after the one before; every turn adds 64 tokens.
pub fn conversations(count: u32, gap_s: f64, turns: &[f64]) -> Trace {
    let mut rows = Vec::new();
    for session in 0..count {
        for (nth, at) in (0u32..).zip(turns) {
            let ids: Vec<String> = (0..nth + 2).map(|block| ((session + 1) * 1000 + block).to_string()).collect();
            rows.push(format!(
                r#"{{"session_id":"s{session}","turn_id":{nth},"timestamp":{},"input_length":{},"output_length":10,"hash_ids":[{}]}}"#,
                at + f64::from(session) * gap_s,
                64 * (nth + 2),
                ids.join(",")
            ));
        }
    }
    trace(&rows.join("\n"))
}
