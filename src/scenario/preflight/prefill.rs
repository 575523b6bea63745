//! Prefill workers: iterations that prompts share, and how much of their time a trace asks for at least and at most.
//!
//! The fixed cost of an iteration is paid once for all prompts in its chunk budget, so a load is a range: full iterations
//! and every cache hit there is room for at one end, each prompt alone and uncached at the other.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::service::{Service, limit};
use super::sketch::Sketch;
use super::{Capacity, DirectShare, context};
use crate::base::SessionIx;
use crate::scenario::model::Scenario;
use crate::trace::Trace;

/// Prefill time asked for over prefill time there is between the first and the last planned send.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PrefillLoad {
    /// Workers that prefill: P, or colocated.
    pub workers: u16,
    /// At least: iterations always full, contexts cached as far as the pools hold the live ones. Above 1 the queue
    /// grows all run long.
    pub low: f64,
    /// At most: each prompt in iterations of its own, nothing cached, and of the turns that have a slot the largest
    /// prefilled on P, as many as may find no room on D.
    pub high: f64,
}

/// Tokens of a prompt.
#[derive(Debug, Clone, Copy)]
pub(super) struct Prompt {
    /// To be computed.
    pub(super) new: f64,
    /// Cached before them.
    pub(super) cached: f64,
}

/// A worker that computes prompts first come first served. Times are seconds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Server {
    /// Start of the last iteration.
    opens: f64,
    /// Its new tokens so far.
    filled: f64,
    /// Its end.
    pub(super) free: f64,
}

impl Server {
    /// Takes a prompt in at `arrived`, into the last iteration if that has room and has not begun; returns its end.
    pub(super) fn prefill(&mut self, service: &Service, arrived: f64, prompt: Prompt) -> f64 {
        let chunk = service.chunk();
        let mut left = prompt.new;
        let attention = service.attention_s(prompt);
        if self.opens > arrived && self.filled < chunk {
            let joins = left.min(chunk - self.filled);
            self.free += service.iteration_s(self.filled + joins) - service.iteration_s(self.filled);
            self.filled += joins;
            left -= joins;
        }
        if left <= 0.0 {
            self.free = self.free.max(arrived) + attention;
            return self.free;
        }
        let full = (left / chunk).ceil() - 1.0;
        self.filled = left - full * chunk;
        let in_last = attention * self.filled / prompt.new;
        self.opens = self.free.max(arrived) + full * service.iteration_s(chunk) + attention - in_last;
        self.free = self.opens + service.iteration_s(self.filled) + in_last;
        self.free
    }
}

/// The load of the prefill workers; `None` where nothing is spread over time.
pub(super) fn load(
    scenario: &Scenario,
    trace: &Trace,
    sketch: &Sketch,
    capacity: &Capacity,
    direct: Option<&DirectShare>,
) -> Option<PrefillLoad> {
    let service = Service::new(scenario);
    let chunk = service.chunk();
    let workers = service.prefillers();
    let pools = scenario.engine.kv_pool_tokens as f64 * f64::from(workers);
    let cacheable = (pools / (capacity.mean_context_tokens * f64::from(sketch.peak_live)).max(1.0)).min(1.0);
    let (mut tokens, mut low_s, mut high_s, mut spared_s) = (0.0, 0.0, 0.0, Vec::new());
    for ix in 0..trace.sessions.len() as u32 {
        let range = &trace.sessions[ix as usize].turns;
        for (turn, goes_direct) in trace.turns_of(SessionIx(ix)).iter().zip(&sketch.direct[range.start as usize..]) {
            if context(turn) > limit(&scenario.engine).0 {
                continue;
            }
            let input = f64::from(turn.input_length);
            let whole_s = service.alone_s(Prompt { new: input, cached: 0.0 });
            if *goes_direct && direct.is_some() {
                spared_s.push(whole_s);
                continue;
            }
            let cached = (cacheable * f64::from(turn.cached_tokens)).min((input - 1.0).max(0.0));
            tokens += input - cached;
            low_s += service.attention_s(Prompt { new: input - cached, cached });
            high_s += whole_s;
        }
    }
    low_s += tokens / chunk * service.iteration_s(chunk);
    let no_room = direct.filter(|direct| direct.by_slots > 0.0).map_or(0.0, |d| 1.0 - d.at_least / d.by_slots);
    spared_s.sort_unstable_by(|a, b| f64::total_cmp(b, a));
    high_s += spared_s.iter().take((no_room * spared_s.len() as f64).ceil() as usize).sum::<f64>();
    let there_s = sketch.planned_s * f64::from(workers);
    (there_s > 0.0).then(|| PrefillLoad { workers, low: low_s / there_s, high: high_s / there_s })
}
