//! How much may happen at one time of the run before it counts as stuck.
//!
//! Two machines that answer each other for ever, or one whose next wake is always now, would hang the program in
//! silence. Invariant: the bound is far above what a run can need at one time, even one that costs no time at all.

use crate::base::Time;
use crate::sim::SimError;
use crate::trace::Trace;

/// Steps that any run may take at one time.
const STEPS_LEAST: u64 = 100_000;
/// Messages and wakes of a request beside its tokens and the parts of its prefill.
const STEPS_PER_REQUEST: u64 = 64;

/// Counts steps (a message carried over, a wake) since time last moved on.
#[derive(Debug)]
pub(super) struct Guard {
    most: u64,
    at: Time,
    steps: u64,
}

impl Guard {
    /// For a trace on workers that prefill `chunk_tokens` at once. Were everything free, the whole trace would happen
    /// at one time: each request, each of its tokens, each part of its prompt.
    pub(super) fn new(trace: &Trace, chunk_tokens: u32) -> Guard {
        let parts = |input: u32| u64::from(input.div_ceil(chunk_tokens.max(1)));
        let work =
            trace.turns.iter().map(|turn| STEPS_PER_REQUEST + u64::from(turn.output_length) + parts(turn.input_length));
        Guard { most: STEPS_LEAST + work.sum::<u64>(), at: Time::ZERO, steps: 0 }
    }

    /// One step at `now`. Error: too many of them without time moving on.
    pub(super) fn step(&mut self, now: Time) -> Result<(), SimError> {
        if now > self.at {
            (self.at, self.steps) = (now, 0);
        }
        self.steps += 1;
        if self.steps > self.most { Err(SimError::Spins { at: now, steps: self.steps }) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::ops::ControlFlow;

    use super::*;
    use crate::base::Dur;
    use crate::protocol::TokenRun;
    use crate::record::{LedgerEvent, RequestRecord};
    use crate::replay::{Observer, Progress, RunStatus};
    use crate::scenario::load_text;
    use crate::sim;
    use crate::trace::{ReadOptions, read_bytes};

    /// Nothing takes time: the whole trace happens at one moment, a token and a part of a prompt at a time.
    const FREE: &str = "
        replay.time_scale = 'inf'
        admission.cap_max = 1
        cluster = { hop_us = 0, link = { setup_us = 0, gbytes_per_s = 1e9 } }
        [engine]
        chunk_tokens = 1
        ingest_base_ms = 0
        ingest_per_token_us = 0
        admission_cost_us = 0
        kv_bytes_per_token = 1
        timing = { p0 = 0, p1 = 0, p2 = 0, d0 = 0, d1 = 0, d2 = 0, d3 = 0, experts = 0, top_k = 0 }
    ";

    struct Counter(u64);

    impl Observer for Counter {
        fn record(&mut self, _: &RequestRecord, _: &[TokenRun]) -> io::Result<()> {
            self.0 += 1;
            Ok(())
        }

        fn ledger(&mut self, _: &LedgerEvent) -> io::Result<()> {
            Ok(())
        }

        fn progress(&mut self, _: &Progress) -> ControlFlow<()> {
            ControlFlow::Continue(())
        }
    }

    #[test]
    fn a_run_that_takes_no_time_is_not_stuck() {
        let text = include_bytes!("../../traces/sample-6.jsonl");
        let trace = read_bytes("sample-6.jsonl", text, &ReadOptions::default()).unwrap();
        let mut counter = Counter(0);
        let end = sim::run(&trace, &load_text("free.toml", FREE).unwrap(), "id", &mut counter).unwrap();
        assert_eq!((end.status, counter.0), (RunStatus::Completed, trace.turns.len() as u64));
        assert!(end.facts.duration_ns < 1_000_000, "{} ns", end.facts.duration_ns);
    }

    fn guard() -> Guard {
        let row = "{\"session_id\":\"a\",\"turn_id\":1,\"timestamp\":0,\"input_length\":100,\"output_length\":7}\n";
        Guard::new(&read_bytes("t.jsonl", row.as_bytes(), &ReadOptions::default()).unwrap(), 30)
    }

    #[test]
    fn what_never_lets_time_move_on_is_found() {
        let mut guard = guard();
        let now = Time::ZERO + Dur::from_millis(3);
        let allowed = (0..1_000_000).take_while(|_| guard.step(now).is_ok()).count() as u64;
        assert_eq!(allowed, STEPS_LEAST + STEPS_PER_REQUEST + 7 + 4, "one request, 7 tokens, 4 parts of a prompt");
        let error = guard.step(now).unwrap_err();
        assert!(error.to_string().starts_with("the run spins at 0.003000 s: 100077 steps"), "{error}");
    }

    #[test]
    fn time_that_moves_on_starts_the_count_anew() {
        let mut guard = guard();
        for tick in 0..10 {
            let now = Time::ZERO + Dur::from_millis(tick);
            assert!((0..STEPS_LEAST).all(|_| guard.step(now).is_ok()), "tick {tick}");
        }
    }
}
