//! Cost model of one iteration, in whole femtoseconds so that sums are exact and the same on every machine.
//!
//! Owns the formulas of [`Timing`] and the rounding: a boundary is the start plus the sum, rounded up to a nanosecond.
//! Rule for a mixed iteration: the weights are streamed once for the whole pass, so of the two fixed parts the larger counts,
//! `max(p0, d0 + d1·E(B))`; the terms per token, per request and of attention add up. It never costs less than its decode step.

use crate::base::Dur;
use crate::engine::Timing;

const FS_PER_MS: f64 = 1e12;
const FS_PER_NS: u128 = 1_000_000;

/// A stretch of compute, femtoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost(u128);

/// New tokens of one request in an iteration, on top of what is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrefillPart {
    /// New tokens.
    pub new_tokens: u32,
    /// Tokens before them.
    pub context_tokens: u32,
}

/// Requests that decode and the tokens of context they attend to in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    /// Requests.
    pub requests: u32,
    /// Sum of their contexts.
    pub context_tokens: u64,
}

/// See the module.
#[derive(Debug, Clone)]
pub struct CostModel {
    p0: u128,
    p1: u128,
    p2: u128,
    d2: u128,
    d3: u128,
    // `d0 + d1·E(B) + d2·B` by batch size.
    decode_base: Vec<u128>,
    small_prefill: Vec<(u32, u128)>,
    // Slow-down in thousandths.
    slow_permille: u128,
}

impl Cost {
    /// Whole nanoseconds, rounded up; at most what a [`Dur`] holds (a scenario's bounds keep it far below).
    pub fn dur(self) -> Dur {
        Dur(u64::try_from(self.0.div_ceil(FS_PER_NS)).unwrap_or(u64::MAX))
    }
}

impl CostModel {
    /// Tables for batches of up to `max_running` requests.
    pub fn new(timing: &Timing, max_running: u32) -> CostModel {
        let fs = |ms: f64| (ms * FS_PER_MS).round() as u128;
        let touched = |batch: u32| {
            let experts = f64::from(timing.experts);
            if timing.experts == 0 {
                return 0.0;
            }
            experts * (1.0 - (1.0 - f64::from(timing.top_k) / experts).powi(batch as i32))
        };
        let base = |batch: u32| fs(timing.d0 + timing.d1 * touched(batch)) + fs(timing.d2) * u128::from(batch);
        CostModel {
            p0: fs(timing.p0),
            p1: fs(timing.p1),
            p2: fs(timing.p2),
            d2: fs(timing.d2),
            d3: fs(timing.d3),
            decode_base: (0..=max_running).map(base).collect(),
            small_prefill: timing.small_prefill.iter().map(|&(tokens, ms)| (tokens, fs(ms))).collect(),
            slow_permille: 1000,
        }
    }

    /// Makes everything `factor` times slower (1 is normal).
    pub fn set_slow_factor(&mut self, factor: f64) {
        self.slow_permille = (factor * 1000.0).round().max(1.0) as u128;
    }

    /// One iteration that prefills `parts` and decodes one token for each request of `batch`.
    pub fn mixed(&self, parts: &[PrefillPart], batch: Batch) -> Cost {
        let new: u64 = parts.iter().map(|part| u64::from(part.new_tokens)).sum();
        let requests = self.d2 * u128::from(batch.requests);
        let weights = match batch.requests {
            0 => 0,
            size => self.decode_base[size as usize] - requests + self.p1 * u128::from(new),
        };
        let base = self.prefill_base(new).max(weights);
        self.slowed(base + attention_fs(self.p2, parts) + requests + self.d3 * u128::from(batch.context_tokens))
    }

    /// `steps` decode iterations of an unchanging batch; every step adds one token to each context.
    pub fn decode(&self, batch: Batch, steps: u32) -> Cost {
        let (requests, steps) = (u128::from(batch.requests), u128::from(steps));
        let grown = steps * u128::from(batch.context_tokens) + requests * (steps * steps.saturating_sub(1) / 2);
        self.slowed(steps * self.decode_base[batch.requests as usize] + self.d3 * grown)
    }

    /// How many decode steps are complete once `elapsed` has passed, at most `limit`.
    pub fn decode_steps_within(&self, batch: Batch, elapsed: Dur, limit: u32) -> u32 {
        let (mut done, mut beyond) = (0, limit + 1);
        while beyond - done > 1 {
            let middle = done + (beyond - done) / 2;
            if self.decode(batch, middle).dur() <= elapsed {
                done = middle;
            } else {
                beyond = middle;
            }
        }
        done
    }

    /// `p0 + p1·a`, or the measured table where it reaches.
    fn prefill_base(&self, new: u64) -> u128 {
        let formula = self.p0 + self.p1 * u128::from(new);
        let above = self.small_prefill.partition_point(|&(tokens, _)| u64::from(tokens) < new);
        match (above.checked_sub(1).map(|i| self.small_prefill[i]), self.small_prefill.get(above)) {
            (_, None) => formula,
            (None, Some(&(_, cost))) => cost,
            (Some((low, low_cost)), Some(&(high, high_cost))) => {
                let (span, into) = (u128::from(high - low), u128::from(new - u64::from(low)));
                low_cost + high_cost.saturating_sub(low_cost) * into / span
            }
        }
    }

    fn slowed(&self, fs: u128) -> Cost {
        Cost(fs * self.slow_permille / 1000)
    }
}

/// Attention of new tokens over what is before them and half of themselves.
fn attention_fs(p2: u128, parts: &[PrefillPart]) -> u128 {
    let part = |part: &PrefillPart| {
        let (new, context) = (u128::from(part.new_tokens), u128::from(part.context_tokens));
        p2 * new * (2 * context + new) / 2
    };
    parts.iter().map(part).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn model() -> CostModel {
        CostModel::new(&Timing::default(), 64)
    }

    #[test]
    fn published_checks_of_the_cost_model_hold() {
        let append = |new_tokens, context_tokens| PrefillPart { new_tokens, context_tokens };
        let idle = Batch { requests: 0, context_tokens: 0 };
        let direct = model().mixed(&[append(400, 25_000)], idle).dur().as_millis_f64();
        assert!((33.0..47.0).contains(&direct), "direct-to-D prefill took {direct} ms");
        let cold = model().mixed(&[append(60_000, 0)], idle).dur().as_secs_f64();
        assert!((2.5..3.5).contains(&cold), "60K tokens from nothing took {cold} s");
        let step = model().decode(Batch { requests: 1, context_tokens: 25_000 }, 1).dur().as_millis_f64();
        assert!((5.0..6.0).contains(&step), "a lone decode step took {step} ms");
    }

    #[test]
    fn a_table_replaces_the_constant_part_of_small_prefills() {
        let timing = Timing { small_prefill: vec![(16, 13.8), (64, 23.0)], ..Timing::default() };
        let model = CostModel::new(&timing, 8);
        let at = |new| model.prefill_base(new) / 1_000_000_000;
        assert_eq!((at(1), at(16), at(40), at(64)), (13_800, 13_800, 18_400, 23_000));
        assert_eq!(at(65), (22_558_000 + 9_855 * 65) / 1000);
    }

    proptest! {
        #[test]
        fn a_macro_step_equals_its_single_steps(requests in 1u32..64, context in 0u64..2_000_000, steps in 1u32..400) {
            let model = model();
            let single: u128 = (0..steps)
                .map(|step| {
                    let grown = context + u64::from(step) * u64::from(requests);
                    model.decode(Batch { requests, context_tokens: grown }, 1).0
                })
                .sum();
            prop_assert_eq!(model.decode(Batch { requests, context_tokens: context }, steps).0, single);
        }

        #[test]
        fn a_mixed_iteration_costs_at_least_each_of_its_parts(
            requests in 1u32..64, context in 0u64..2_000_000, new_tokens in 1u32..8192, context_tokens in 0u32..80_000, flat in any::<bool>(),
        ) {
            let flat_50k = Timing { p0: 0.0, p1: 0.02, p2: 0.0, ..Timing::default() };
            let model = CostModel::new(&if flat { flat_50k } else { Timing::default() }, 64);
            let (batch, idle) = (Batch { requests, context_tokens: context }, Batch { requests: 0, context_tokens: 0 });
            let parts = [PrefillPart { new_tokens, context_tokens }];
            let mixed = model.mixed(&parts, batch);
            prop_assert!(mixed >= model.decode(batch, 1));
            prop_assert!(mixed >= model.mixed(&parts, idle));
        }

        #[test]
        fn steps_within_inverts_the_duration(requests in 1u32..64, context in 0u64..2_000_000, steps in 0u32..400, slack in 0u64..1000) {
            let model = model();
            let batch = Batch { requests, context_tokens: context };
            let elapsed = model.decode(batch, steps).dur() + Dur(slack);
            prop_assert_eq!(model.decode_steps_within(batch, elapsed, 1000), steps);
            prop_assert_eq!(model.decode_steps_within(batch, elapsed, steps), steps);
        }
    }
}
