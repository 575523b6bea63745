//! [`Seen`]: a request as the tallies take it: numbers, and names as indices, so that nothing is copied or looked up per tally.

use super::Metric;
use super::distribution::ns_of_ms;
use super::frame::{Batch, Cells, Labels, Texts};
use super::vocabulary::Vocabulary;
use crate::record::{ExecutionMode, IndexSight, ModeReason, Outcome, RequestRecord};

/// A name and its number.
#[derive(Debug, Clone, Copy)]
pub(super) struct Name<'a> {
    pub ix: u32,
    pub word: &'a str,
}

/// One request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen<'a> {
    pub session: Name<'a>,
    pub prefill_worker: Option<Name<'a>>,
    pub decode_worker_intended: Option<Name<'a>>,
    pub decode_worker_actual: Option<Name<'a>>,
    pub turn_id: u32,
    pub trace_line: u32,
    pub mode: ExecutionMode,
    pub reason: ModeReason,
    pub outcome: Outcome,
    pub route_mismatch: bool,
    pub placements: u32,
    pub attempts: u32,
    pub retractions: u32,
    pub scheduled_ns: u64,
    pub sent_ns: Option<u64>,
    pub ended_ns: u64,
    /// By [`Metric`]; token gaps are not in a record.
    pub latencies_ns: [Option<u64>; Metric::ALL.len()],
    /// A prefill was told, whatever its length.
    pub was_prefilled: bool,
    pub input_tokens: u32,
    pub output_tokens: u32,
    pub expected_output_tokens: u32,
    pub cached_tokens: Option<u32>,
    pub index_hit_tokens_device: Option<u32>,
    pub index_hit_tokens_host_only: Option<u32>,
    pub index_worker: Option<Name<'a>>,
    pub index_blind: Option<bool>,
    pub index_sight: Option<IndexSight>,
    pub ideal_hit_tokens: u32,
    pub error_class: Option<&'a str>,
    pub error_message: Option<&'a str>,
    pub request_id: &'a str,
}

impl Seen<'_> {
    /// A latency, nanoseconds; `None` where there is none, or what stands there is no length.
    pub(super) fn ns(&self, metric: Metric) -> Option<u64> {
        self.latencies_ns[metric as usize]
    }

    /// Prompt and answer asked for, tokens.
    pub(super) fn context_tokens(&self) -> u64 {
        u64::from(self.input_tokens) + u64::from(self.expected_output_tokens)
    }
}

impl<'a> Seen<'a> {
    /// Of a record; its names get numbers.
    pub(super) fn of(record: &'a RequestRecord, sessions: &mut Vocabulary, workers: &mut Vocabulary) -> Seen<'a> {
        let mut worker = |name: &'a Option<String>| name.as_deref().map(|word| Name { ix: workers.number(word), word });
        Seen {
            session: Name { ix: sessions.number(&record.session_id), word: &record.session_id },
            prefill_worker: worker(&record.prefill_worker),
            decode_worker_intended: worker(&record.decode_worker_intended),
            decode_worker_actual: worker(&record.decode_worker_actual),
            turn_id: record.turn_id,
            trace_line: record.trace_line,
            mode: record.execution_mode,
            reason: record.mode_reason,
            outcome: record.outcome,
            route_mismatch: record.route_mismatch,
            placements: record.placements,
            attempts: record.attempts,
            retractions: record.retractions,
            scheduled_ns: record.scheduled_ns,
            sent_ns: record.sent_ns,
            ended_ns: record.ended_ns,
            latencies_ns: Metric::ALL.map(|metric| metric.of(record).and_then(ns_of_ms)),
            was_prefilled: record.prefill_ms.is_some(),
            input_tokens: record.input_tokens,
            output_tokens: record.output_tokens,
            expected_output_tokens: record.expected_output_tokens,
            cached_tokens: record.cached_tokens,
            index_hit_tokens_device: record.index_hit_tokens_device,
            index_hit_tokens_host_only: record.index_hit_tokens_host_only,
            index_worker: worker(&record.index_worker),
            index_blind: record.index_blind,
            index_sight: record.index_sight,
            ideal_hit_tokens: record.ideal_hit_tokens,
            error_class: record.error_class.as_deref(),
            error_message: record.error_message.as_deref(),
            request_id: &record.request_id,
        }
    }
}

/// The columns that a [`Seen`] is made of; of every metric there is one more.
pub(super) const COLUMNS: [&str; 29] = [
    "session_id",
    "prefill_worker",
    "decode_worker_intended",
    "decode_worker_actual",
    "turn_id",
    "trace_line",
    "execution_mode",
    "mode_reason",
    "outcome",
    "route_mismatch",
    "placements",
    "attempts",
    "retractions",
    "scheduled_ns",
    "sent_ns",
    "ended_ns",
    "input_tokens",
    "output_tokens",
    "expected_output_tokens",
    "cached_tokens",
    "index_hit_tokens_device",
    "index_hit_tokens_host_only",
    "index_worker",
    "index_blind",
    "index_sight",
    "ideal_hit_tokens",
    "error_class",
    "error_message",
    "request_id",
];

/// Numbers of the names of a file, by their codes there.
#[derive(Debug, Default)]
pub(super) struct Renumbered {
    sessions: Codes,
    prefill_workers: Codes,
    intended_workers: Codes,
    actual_workers: Codes,
    index_workers: Codes,
}

/// Of one column; a code that no row had so far has no number: numbers follow the rows.
#[derive(Debug, Default)]
struct Codes(Vec<Option<u32>>);

/// A batch taken apart.
pub(super) struct Rows<'a> {
    sessions: Labels<'a>,
    prefill_workers: Labels<'a>,
    intended_workers: Labels<'a>,
    actual_workers: Labels<'a>,
    index_workers: Labels<'a>,
    modes: Known<'a, ExecutionMode>,
    reasons: Known<'a, ModeReason>,
    outcomes: Known<'a, Outcome>,
    sights: Known<'a, IndexSight>,
    latencies_ms: [Option<Cells<'a, f64>>; Metric::ALL.len()],
    turn_id: Cells<'a, u32>,
    trace_line: Cells<'a, u32>,
    route_mismatch: Cells<'a, bool>,
    placements: Cells<'a, u32>,
    attempts: Cells<'a, u32>,
    retractions: Cells<'a, u32>,
    scheduled_ns: Cells<'a, u64>,
    sent_ns: Cells<'a, u64>,
    ended_ns: Cells<'a, u64>,
    input_tokens: Cells<'a, u32>,
    output_tokens: Cells<'a, u32>,
    expected_output_tokens: Cells<'a, u32>,
    cached_tokens: Cells<'a, u32>,
    index_hit_tokens_device: Cells<'a, u32>,
    index_hit_tokens_host_only: Cells<'a, u32>,
    index_blind: Cells<'a, bool>,
    ideal_hit_tokens: Cells<'a, u32>,
    error_class: Labels<'a>,
    error_message: Texts<'a>,
    request_id: Texts<'a>,
}

/// A column of a closed set.
struct Known<'a, T> {
    codes: Labels<'a>,
    values: Vec<T>,
}

impl<'a, T: Copy> Known<'a, T> {
    fn new(codes: Labels<'a>, all: &[T], word: fn(T) -> &'static str) -> Self {
        let value = |code: u32| {
            let found = all.iter().find(|value| word(**value) == codes.word(code));
            *found.unwrap_or_else(|| panic!("the reader let `{}` pass", codes.word(code)))
        };
        Known { codes, values: (0..codes.known() as u32).map(value).collect() }
    }

    fn get(&self, row: usize) -> T {
        self.known(row).expect("the reader lets no null pass in a field that has none")
    }

    /// `None` where there is null.
    fn known(&self, row: usize) -> Option<T> {
        self.codes.code(row).map(|code| self.values[code as usize])
    }
}

impl Codes {
    fn name<'a>(&mut self, labels: Labels<'a>, code: u32, names: &mut Vocabulary) -> Name<'a> {
        let at = code as usize;
        if self.0.len() <= at {
            self.0.resize(labels.known(), None);
        }
        let word = labels.word(code);
        Name { ix: *self.0[at].get_or_insert_with(|| names.number(word)), word }
    }
}

impl<'a> Rows<'a> {
    pub(super) fn new(batch: &'a Batch) -> Rows<'a> {
        Rows {
            sessions: batch.labels("session_id"),
            prefill_workers: batch.labels("prefill_worker"),
            intended_workers: batch.labels("decode_worker_intended"),
            actual_workers: batch.labels("decode_worker_actual"),
            index_workers: batch.labels("index_worker"),
            modes: Known::new(batch.labels("execution_mode"), ExecutionMode::ALL, ExecutionMode::as_str),
            reasons: Known::new(batch.labels("mode_reason"), ModeReason::ALL, ModeReason::as_str),
            outcomes: Known::new(batch.labels("outcome"), Outcome::ALL, Outcome::as_str),
            sights: Known::new(batch.labels("index_sight"), IndexSight::ALL, IndexSight::as_str),
            latencies_ms: Metric::ALL.map(|metric| metric.column().map(|name| batch.f64(name))),
            turn_id: batch.u32("turn_id"),
            trace_line: batch.u32("trace_line"),
            route_mismatch: batch.bool("route_mismatch"),
            placements: batch.u32("placements"),
            attempts: batch.u32("attempts"),
            retractions: batch.u32("retractions"),
            scheduled_ns: batch.u64("scheduled_ns"),
            sent_ns: batch.u64("sent_ns"),
            ended_ns: batch.u64("ended_ns"),
            input_tokens: batch.u32("input_tokens"),
            output_tokens: batch.u32("output_tokens"),
            expected_output_tokens: batch.u32("expected_output_tokens"),
            cached_tokens: batch.u32("cached_tokens"),
            index_hit_tokens_device: batch.u32("index_hit_tokens_device"),
            index_hit_tokens_host_only: batch.u32("index_hit_tokens_host_only"),
            index_blind: batch.bool("index_blind"),
            ideal_hit_tokens: batch.u32("ideal_hit_tokens"),
            error_class: batch.labels("error_class"),
            error_message: batch.texts("error_message"),
            request_id: batch.texts("request_id"),
        }
    }

    /// The request of a row; its names get numbers.
    pub(super) fn seen(
        &self,
        row: usize,
        renumbered: &mut Renumbered,
        sessions: &mut Vocabulary,
        workers: &mut Vocabulary,
    ) -> Seen<'a> {
        let session = self.sessions.code(row).expect("the reader lets no null pass in a field that has none");
        let mut worker =
            |codes: &mut Codes, labels: Labels<'a>| labels.code(row).map(|code| codes.name(labels, code, workers));
        let latency = |cells: Option<Cells<'_, f64>>| cells.and_then(|cells| cells.get(row));
        Seen {
            session: renumbered.sessions.name(self.sessions, session, sessions),
            prefill_worker: worker(&mut renumbered.prefill_workers, self.prefill_workers),
            decode_worker_intended: worker(&mut renumbered.intended_workers, self.intended_workers),
            decode_worker_actual: worker(&mut renumbered.actual_workers, self.actual_workers),
            turn_id: self.turn_id.value(row),
            trace_line: self.trace_line.value(row),
            mode: self.modes.get(row),
            reason: self.reasons.get(row),
            outcome: self.outcomes.get(row),
            route_mismatch: self.route_mismatch.value(row),
            placements: self.placements.value(row),
            attempts: self.attempts.value(row),
            retractions: self.retractions.value(row),
            scheduled_ns: self.scheduled_ns.value(row),
            sent_ns: self.sent_ns.get(row),
            ended_ns: self.ended_ns.value(row),
            latencies_ns: self.latencies_ms.map(|cells| latency(cells).and_then(ns_of_ms)),
            was_prefilled: latency(self.latencies_ms[Metric::Prefill as usize]).is_some(),
            input_tokens: self.input_tokens.value(row),
            output_tokens: self.output_tokens.value(row),
            expected_output_tokens: self.expected_output_tokens.value(row),
            cached_tokens: self.cached_tokens.get(row),
            index_hit_tokens_device: self.index_hit_tokens_device.get(row),
            index_hit_tokens_host_only: self.index_hit_tokens_host_only.get(row),
            index_worker: worker(&mut renumbered.index_workers, self.index_workers),
            index_blind: self.index_blind.get(row),
            index_sight: self.sights.known(row),
            ideal_hit_tokens: self.ideal_hit_tokens.value(row),
            error_class: self.error_class.get(row),
            error_message: self.error_message.get(row),
            request_id: self.request_id.get(row).unwrap_or_default(),
        }
    }
}
