//! Record of a request: the turn's times and choices, and how it ended.

use crate::base::{Dur, RequestIx, Time, WorkerId};
use crate::policies::IndexPromise;
use crate::protocol::{ErrorClass, Phases, Route, TokenRun};
use crate::record::{ExecutionMode, ModeReason, Outcome, RequestRecord, SCHEMA_VERSION};
use crate::replay::Replayer;
use crate::replay::turn::Turn;

/// How a request ended.
#[derive(Debug, Clone)]
pub(super) struct Ending {
    pub outcome: Outcome,
    pub finish_reason: Option<&'static str>,
    pub error_class: Option<ErrorClass>,
    pub error_message: Option<String>,
    pub http_status: Option<u16>,
    pub prefill_worker: Option<WorkerId>,
    pub decode_worker: Option<WorkerId>,
    pub cached_tokens: Option<u32>,
    pub output_tokens: u32,
    pub first_token_at: Option<Time>,
    pub last_token_at: Option<Time>,
    pub phases: Phases,
    pub retractions: u32,
    pub token_runs: Vec<TokenRun>,
    pub attempts: u16,
    pub retry_wait: Dur,
}

/// Whether a request was sent.
#[derive(Debug)]
pub(super) enum Sent<'a> {
    /// Under way until now.
    Yes(&'a Turn),
    /// Never left the queue.
    No(ModeReason),
}

impl Ending {
    /// Ended by the replayer itself.
    pub fn given_up(outcome: Outcome, error: Option<(ErrorClass, String)>) -> Ending {
        let (error_class, error_message) = error.unzip();
        Ending {
            outcome,
            finish_reason: None,
            error_class,
            error_message,
            http_status: None,
            prefill_worker: None,
            decode_worker: None,
            cached_tokens: None,
            output_tokens: 0,
            first_token_at: None,
            last_token_at: None,
            phases: Phases::default(),
            retractions: 0,
            token_runs: Vec::new(),
            attempts: 1,
            retry_wait: Dur::ZERO,
        }
    }

    /// Nothing could be sent.
    pub fn unanswered(class: ErrorClass, message: String) -> Ending {
        Ending::given_up(Outcome::Error, Some((class, message)))
    }

    /// With what had been heard when it was given up; the outcome and its cause stay.
    pub fn having(self, heard: Ending) -> Ending {
        Ending {
            outcome: self.outcome,
            finish_reason: self.finish_reason,
            error_class: self.error_class,
            error_message: self.error_message,
            // Before the first token no server has said anything of its cache.
            cached_tokens: heard.cached_tokens.filter(|_| heard.output_tokens > 0),
            ..heard
        }
    }
}

impl Replayer<'_> {
    /// Settles a request and writes its record.
    pub(super) fn record(&mut self, now: Time, request: RequestIx, sent: Sent, ending: Ending) {
        self.book(request);
        self.write(now, request, sent, ending);
    }

    /// A request is settled: its record is written now or soon.
    pub(super) fn book(&mut self, request: RequestIx) {
        let settled = &mut self.settled[request.ix()];
        assert!(!*settled, "request {} is settled already", request.0);
        *settled = true;
        self.stats[self.trace.turn(request).session.ix()].settled += 1;
    }

    /// Writes the record of a settled request that ended at `now`.
    pub(super) fn write(&mut self, now: Time, request: RequestIx, sent: Sent, mut ending: Ending) {
        self.ended += 1;
        let tokens = std::mem::take(&mut ending.token_runs);
        let record = match sent {
            Sent::Yes(turn) => self.sent_record(now, request, turn, ending),
            Sent::No(mode_reason) => {
                RequestRecord { mode_reason, ..self.base_record(now, request, self.planned[request.ix()], ending) }
            }
        };
        self.records.push_back((record, tokens));
    }

    /// The fields every record has.
    fn base_record(&self, now: Time, request: RequestIx, scheduled: Time, ending: Ending) -> RequestRecord {
        let planned = self.trace.turn(request);
        let session_id = self.trace.sessions[planned.session.ix()].id.clone();
        RequestRecord {
            schema_version: SCHEMA_VERSION,
            run_id: self.config.run_id.clone(),
            request_id: self.trace.request_id(request),
            session_id,
            turn_id: planned.turn_id,
            trace_request_id: planned.request_id.as_deref().map(str::to_owned),
            trace_line: planned.line,
            policy: self.config.policy.name.as_str().to_owned(),
            mechanism: self.config.replay.mechanism.as_str().to_owned(),
            execution_mode: ExecutionMode::NotSent,
            mode_reason: ModeReason::RunStopped,
            prefill_worker: None,
            decode_worker_intended: None,
            decode_worker_actual: None,
            route_mismatch: false,
            placements: 0,
            scheduled_ns: scheduled.ns(),
            released_ns: None,
            sent_ns: None,
            first_token_ns: ending.first_token_at.map(Time::ns),
            last_token_ns: ending.last_token_at.map(Time::ns),
            ended_ns: now.ns(),
            ttft_ms: None,
            tpot_ms: None,
            e2e_ms: None,
            sched_ttft_ms: None,
            sched_e2e_ms: None,
            wait_previous_turn_ms: None,
            queue_cap_wait_ms: None,
            schedule_lag_ms: None,
            admission_ms: None,
            prefill_queue_ms: ms(ending.phases.prefill_queue),
            prefill_ms: ms(ending.phases.prefill),
            kv_transfer_ms: ms(ending.phases.kv_transfer),
            decode_queue_ms: ms(ending.phases.decode_queue),
            input_tokens: planned.input_length,
            append_tokens: planned.input_length,
            output_tokens: ending.output_tokens,
            expected_output_tokens: planned.output_length,
            cached_tokens: ending.cached_tokens,
            index_worker: None,
            index_hit_tokens_device: None,
            index_hit_tokens_host_only: None,
            index_blind: None,
            index_sight: None,
            assumed_hit_tokens: 0,
            ideal_hit_tokens: self.ideal_hits[request.ix()],
            outcome: ending.outcome,
            finish_reason: ending.finish_reason.map(str::to_owned),
            error_class: ending.error_class.map(|class| class.as_str().to_owned()),
            error_message: ending.error_message,
            http_status: ending.http_status,
            attempts: 0,
            retry_wait_ms: (ending.attempts > 1).then(|| ending.retry_wait.as_millis_f64()),
            retractions: ending.retractions,
        }
    }

    fn sent_record(&self, now: Time, request: RequestIx, turn: &Turn, ending: Ending) -> RequestRecord {
        let first = ending.first_token_at;
        let decode_worker = ending.decode_worker.or(match turn.departed {
            Some((_, Route::Worker(worker))) => Some(worker),
            Some((_, Route::Router(_))) | None => None,
        });
        let prefill_worker = ending.prefill_worker;
        let tpot = match (first, ending.last_token_at) {
            (Some(first), Some(last)) if ending.outcome == Outcome::Ok && ending.output_tokens > 1 => {
                Some(last.since(first).as_millis_f64() / f64::from(ending.output_tokens - 1))
            }
            (Some(_) | None, Some(_) | None) => None,
        };
        let attempts = u32::from(ending.attempts);
        let since_first = |from: Time| first.map(|first| first.since(from).as_millis_f64());
        let wait = turn.cap_wait;
        // What ended before anything could be sent.
        let sent = turn.sent.unwrap_or(turn.begun);
        let (most, block) = (self.trace.turn(request).input_length, self.trace.tree.block_size());
        let promise = turn.promise().map(|promise| promise.reusable(most, block));
        let lag = Dur(sent.since(turn.released).ns().saturating_sub(wait.ns())) + turn.late;
        RequestRecord {
            execution_mode: turn.mode,
            mode_reason: turn.reason,
            prefill_worker: prefill_worker.map(|worker| worker.to_string()),
            decode_worker_intended: turn.intended.map(|worker| worker.to_string()),
            decode_worker_actual: decode_worker.map(|worker| worker.to_string()),
            route_mismatch: turn.intended.is_some() && decode_worker.is_some() && turn.intended != decode_worker,
            placements: turn.placements,
            released_ns: Some(turn.released.ns()),
            sent_ns: Some(sent.ns()),
            ttft_ms: since_first(sent),
            tpot_ms: tpot,
            e2e_ms: Some(now.since(sent).as_millis_f64()),
            sched_ttft_ms: since_first(turn.scheduled),
            sched_e2e_ms: Some(now.since(turn.scheduled).as_millis_f64()),
            wait_previous_turn_ms: Some(turn.released.since(turn.scheduled).as_millis_f64()),
            queue_cap_wait_ms: Some(wait.as_millis_f64()),
            schedule_lag_ms: Some(lag.as_millis_f64()),
            admission_ms: turn.departed.map(|(at, _)| at.since(sent).as_millis_f64()),
            append_tokens: turn.append_tokens,
            index_worker: promise.map(|promise| promise.worker.to_string()),
            index_hit_tokens_device: promise.map(|promise| promise.device_tokens.min(most)),
            index_hit_tokens_host_only: promise.map(|promise| promise.host_only_tokens.min(most)),
            index_blind: promise.map(IndexPromise::is_blind),
            index_sight: promise.map(|promise| promise.sight),
            assumed_hit_tokens: turn.selection.map_or(0, |chosen| chosen.assumed_hit_tokens),
            attempts: if turn.departed.is_some() { attempts } else { 0 },
            ..self.base_record(now, request, turn.scheduled, ending)
        }
    }
}

fn ms(length: Option<Dur>) -> Option<f64> {
    length.map(Dur::as_millis_f64)
}
