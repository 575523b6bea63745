//! Expected service time of a turn, by the closed formulas of [`crate::engine::Timing`].
//!
//! Written apart from the engine's own cost model on purpose: preflight must not depend on what it predicts.

use super::super::model::Scenario;
use super::context;
use super::sketch::seeded_by;
use crate::engine::{EngineConfig, Timing};
use crate::replay::Mechanism;
use crate::trace::TurnTrace;

/// Which way a turn goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Straight to the D that holds the session.
    Direct,
    /// P prefills all, transfer, D decodes.
    Plain,
    /// On one colocated worker, on what it has cached.
    Colocated,
}

/// Parts of a service time, seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parts {
    /// Taking in the request.
    pub(super) ingest: f64,
    /// Prefill, on P for [`Way::Plain`].
    pub(super) prefill: f64,
    /// Transfer and decode.
    pub(super) rest: f64,
}

/// The formulas with a scenario's constants.
pub(super) struct Service<'a> {
    scenario: &'a Scenario,
}

/// Largest prompt and answer a worker takes, tokens, and the key that says so.
pub(super) fn limit(engine: &EngineConfig) -> (u64, &'static str) {
    match engine.context_limit_tokens {
        limit if limit > 0 && limit < engine.kv_pool_tokens => (limit, "engine.context_limit_tokens"),
        _ => (engine.kv_pool_tokens, "engine.kv_pool_tokens"),
    }
}

impl<'a> Service<'a> {
    pub(super) fn new(scenario: &'a Scenario) -> Service<'a> {
        Service { scenario }
    }

    /// Turn `k` of a session could be appended to what a D holds.
    pub(super) fn appendable(&self, turns: &[TurnTrace], k: usize) -> bool {
        k > 0
            && turns[k].extends_previous
            && append(turns, k) <= u64::from(self.scenario.admission.direct_append_max_tokens)
            && context(&turns[k]) <= limit(&self.scenario.engine).0
    }

    /// Service time on idle workers by the best way the mechanism has for turn `k`, seconds.
    pub(super) fn unloaded_s(&self, turns: &[TurnTrace], k: usize) -> f64 {
        let way = match self.scenario.replay.mechanism {
            Mechanism::Dp => Way::Colocated,
            Mechanism::Pd => Way::Plain,
            // One turn seeds the session; direct turns follow.
            Mechanism::Kvc if k > seeded_by(&self.scenario.replay) && self.appendable(turns, k) => Way::Direct,
            Mechanism::Kvc => Way::Plain,
        };
        let parts = self.parts(turns, k, way, 1);
        parts.ingest + parts.prefill + parts.rest
    }

    /// The parts for turn `k` going `way` into a decode batch of `batch` equal requests.
    pub(super) fn parts(&self, turns: &[TurnTrace], k: usize, way: Way, batch: u32) -> Parts {
        let (engine, link) = (&self.scenario.engine, &self.scenario.cluster.link);
        let input = f64::from(turns[k].input_length);
        let output = f64::from(turns[k].output_length);
        let (fresh, shipped, transfer) = match way {
            Way::Direct => (append(turns, k) as f64, append(turns, k) as f64, 0.0),
            Way::Colocated => ((input - f64::from(turns[k].cached_tokens)).max(1.0), input, 0.0),
            Way::Plain => {
                let bytes = input * engine.kv_bytes_per_token as f64;
                (input, input, link.setup_us as f64 * 1e-6 + bytes / (link.gbytes_per_s * 1e9))
            }
        };
        let step_ms = decode_ms(&engine.timing, f64::from(batch), f64::from(batch) * (input + output / 2.0));
        Parts {
            ingest: engine.ingest_base_ms * 1e-3 + engine.ingest_per_token_us * 1e-6 * shipped,
            prefill: prefill_ms(&engine.timing, fresh, input - fresh) * 1e-3,
            rest: transfer + output * step_ms * 1e-3,
        }
    }
}

/// New prompt tokens after the context the session holds; the whole prompt where it does not extend it.
fn append(turns: &[TurnTrace], k: usize) -> u64 {
    let input = u64::from(turns[k].input_length);
    match k.checked_sub(1) {
        Some(previous) if turns[k].extends_previous => input.saturating_sub(context(&turns[previous])),
        Some(_) | None => input,
    }
}

/// `p0 + p1·a + p2·a·(c + a/2)`, or the measured cost below the table's last entry.
fn prefill_ms(timing: &Timing, a: f64, c: f64) -> f64 {
    let table = &timing.small_prefill;
    let upper = table.iter().position(|(tokens, _)| a <= f64::from(*tokens));
    match upper {
        Some(0) => table[0].1,
        Some(upper) => {
            let ((x0, y0), (x1, y1)) = (table[upper - 1], table[upper]);
            y0 + (y1 - y0) * (a - f64::from(x0)) / f64::from(x1 - x0)
        }
        None => timing.p0 + timing.p1 * a + timing.p2 * a * (c + a / 2.0),
    }
}

/// `d0 + d1·E(B) + d2·B + d3·S`, `E(B) = experts·(1 − (1 − top_k/experts)^B)`.
fn decode_ms(timing: &Timing, batch: f64, context: f64) -> f64 {
    let experts = f64::from(timing.experts);
    let touched =
        if experts > 0.0 { experts * (1.0 - (1.0 - f64::from(timing.top_k) / experts).powf(batch)) } else { 0.0 };
    timing.d0 + timing.d1 * touched + timing.d2 * batch + timing.d3 * context
}
