//! Per execution mode: how often, how fast, at what cost, with what outcome.

use schemars::JsonSchema;
use serde::Serialize;

use super::outcomes::Outcomes;
use super::seen::Seen;
use super::stats::share;
use super::{Distribution, Metric, Percentile};
use crate::record::ExecutionMode;

/// One row of the mode table. Latencies are of ok requests.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ModeRow {
    /// The mode.
    pub mode: ExecutionMode,
    /// Requests that took it.
    pub n: u64,
    /// Their share of all recorded requests, 0 to 1.
    pub share: Option<f64>,
    /// How they ended.
    pub outcomes: Outcomes,
    /// Share of them truncated, aborted, failed or timed out, 0 to 1.
    pub bad_share: Option<f64>,
    /// TTFT p50, ms.
    pub p50_ttft_ms: Option<f64>,
    /// TTFT p90, ms.
    pub p90_ttft_ms: Option<f64>,
    /// TTFT p99, ms.
    pub p99_ttft_ms: Option<f64>,
    /// E2E p50, ms.
    pub p50_e2e_ms: Option<f64>,
    /// E2E p90, ms.
    pub p90_e2e_ms: Option<f64>,
    /// E2E p99, ms.
    pub p99_e2e_ms: Option<f64>,
    /// Mean E2E, ms.
    pub mean_e2e_ms: Option<f64>,
    /// Mean link time of the KV transfer of those that had one, ms.
    pub mean_kv_transfer_ms: Option<f64>,
    /// Mean prompt tokens the server prefilled (prompt − cached) of the requests it computed.
    pub mean_prefilled_tokens: Option<f64>,
    /// Mean prompt tokens prefilled again although an infinite shared cache would hold them (ideal − cached).
    pub mean_recomputed_tokens: Option<f64>,
}

/// What caches spared, over all modes.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, JsonSchema)]
pub struct Reuse {
    /// Prompt tokens found cached over all prompt tokens, of the requests computed whose server told it, 0 to 1.
    pub cached_token_share: Option<f64>,
    /// Mean prompt tokens prefilled again although an infinite shared cache would hold them (ideal − cached), of the same.
    pub mean_recomputed_tokens: Option<f64>,
}

/// All modes, by their place in [`ExecutionMode::ALL`]; those that nothing took are empty.
#[derive(Debug, Default)]
pub(super) struct ModeTallies([Option<Box<ModeTally>>; ExecutionMode::ALL.len()]);

#[derive(Debug)]
struct ModeTally {
    outcomes: Outcomes,
    ttft: Distribution,
    e2e: Distribution,
    kv_transfer: Distribution,
    known_cached: u64,
    cached_tokens: u64,
    prefilled_tokens: u64,
    recomputed_tokens: u64,
}

impl ModeTallies {
    pub(super) fn add(&mut self, request: &Seen) {
        self.0[request.mode as usize].get_or_insert_with(|| Box::new(ModeTally::new())).add(request);
    }

    /// Over all modes.
    pub(super) fn reuse(&self) -> Reuse {
        let sum = |part: fn(&ModeTally) -> u64| self.0.iter().flatten().map(|tally| part(tally)).sum::<u64>();
        let (cached, prefilled) = (sum(|tally| tally.cached_tokens), sum(|tally| tally.prefilled_tokens));
        Reuse {
            cached_token_share: share(cached, cached + prefilled),
            mean_recomputed_tokens: share(sum(|tally| tally.recomputed_tokens), sum(|tally| tally.known_cached)),
        }
    }

    /// Rows by falling count, ties in the order of [`ExecutionMode::ALL`].
    pub(super) fn rows(&self, recorded: u64) -> Vec<ModeRow> {
        let tallies = ExecutionMode::ALL.iter().zip(&self.0);
        let row = |(mode, tally): (&ExecutionMode, &Option<Box<ModeTally>>)| Some(tally.as_ref()?.row(*mode, recorded));
        let mut rows: Vec<ModeRow> = tallies.filter_map(row).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.n));
        rows
    }
}

impl ModeTally {
    fn new() -> Self {
        ModeTally {
            outcomes: Outcomes::default(),
            ttft: Distribution::new(),
            e2e: Distribution::new(),
            kv_transfer: Distribution::new(),
            known_cached: 0,
            cached_tokens: 0,
            prefilled_tokens: 0,
            recomputed_tokens: 0,
        }
    }

    fn add(&mut self, request: &Seen) {
        self.outcomes.count(request.outcome);
        // A refused or lost request was never computed, whatever its length.
        let computed = request.outcome.is_ok() || request.was_prefilled;
        if let Some(cached) = request.cached_tokens.filter(|_| computed) {
            self.known_cached += 1;
            self.cached_tokens += u64::from(cached.min(request.input_tokens));
            self.prefilled_tokens += u64::from(request.input_tokens.saturating_sub(cached));
            self.recomputed_tokens += u64::from(request.ideal_hit_tokens.saturating_sub(cached));
        }
        if request.outcome.is_ok() {
            let parts = [
                (&mut self.ttft, Metric::Ttft),
                (&mut self.e2e, Metric::E2e),
                (&mut self.kv_transfer, Metric::KvTransfer),
            ];
            for (distribution, metric) in parts {
                request.ns(metric).into_iter().for_each(|ns| distribution.add(ns));
            }
        }
    }

    fn row(&self, mode: ExecutionMode, recorded: u64) -> ModeRow {
        let ladder = [Percentile::P50, Percentile::P90, Percentile::P99];
        let (ttft, e2e) = (self.ttft.percentiles_ms(&ladder, 0), self.e2e.percentiles_ms(&ladder, 0));
        let n = self.outcomes.total();
        ModeRow {
            mode,
            n,
            share: share(n, recorded),
            outcomes: self.outcomes,
            bad_share: self.outcomes.bad_share(),
            p50_ttft_ms: ttft[0],
            p90_ttft_ms: ttft[1],
            p99_ttft_ms: ttft[2],
            p50_e2e_ms: e2e[0],
            p90_e2e_ms: e2e[1],
            p99_e2e_ms: e2e[2],
            mean_e2e_ms: self.e2e.mean_ms(),
            mean_kv_transfer_ms: self.kv_transfer.mean_ms(),
            mean_prefilled_tokens: share(self.prefilled_tokens, self.known_cached),
            mean_recomputed_tokens: share(self.recomputed_tokens, self.known_cached),
        }
    }
}
