//! `cache-aware`: the worker with the longest cached prefix, unless the load is uneven; after the SGLang router's rule.
//!
//! Uneven means max − min > `balance_abs_threshold` and max > min · `balance_rel_threshold` in-flight requests: then
//! the least loaded worker. Else the worker with the longest prefix, when that is more than `cache_threshold` of the
//! prompt. Else the least loaded. Of equals: fewest in flight, fewest assigned, lowest index.

use std::cmp::Reverse;

use crate::kv::{BlockPath, BlockTree};
use crate::policies::{AssumedBlocks, CacheAwareConfig, ClusterView, PolicyRequest, Selection, SelectionReason};

/// Options and marks.
#[derive(Debug)]
pub struct CacheAware {
    config: CacheAwareConfig,
    assumed: AssumedBlocks,
}

impl CacheAware {
    /// Nothing was sent anywhere yet.
    pub fn new(config: CacheAwareConfig) -> CacheAware {
        CacheAware { config, assumed: AssumedBlocks::default() }
    }

    /// See the module.
    pub fn select(&mut self, view: &ClusterView, request: &PolicyRequest) -> Option<Selection> {
        let candidates = || view.candidates(request.excluded);
        let overlap = |index: u16| self.assumed.overlap(view.tree, request.prompt, index);
        let (idle, _) = candidates().min_by_key(|(index, worker)| (worker.inflight, worker.assigned, *index))?;
        let (best, held) = candidates()
            .map(|(index, worker)| (index, overlap(index), worker))
            .max_by_key(|(index, held, worker)| {
                (*held, Reverse(worker.inflight), Reverse(worker.assigned), Reverse(*index))
            })
            .map(|(index, held, _)| (index, held))?;
        let inflight = || candidates().map(|(_, worker)| worker.inflight);
        let (min, max) = (inflight().min()?, inflight().max()?);
        let uneven = max - min > self.config.balance_abs_threshold
            && f64::from(max) > f64::from(min) * self.config.balance_rel_threshold;
        let matched = f64::from(held) > f64::from(request.prompt.depth) * self.config.cache_threshold;
        let (index, reason) = match (uneven, matched) {
            (true, _) => (idle, SelectionReason::Imbalance),
            (false, true) => (best, SelectionReason::Overlap),
            (false, false) => (idle, SelectionReason::LeastLoaded),
        };
        let hit = (u64::from(overlap(index)) * u64::from(view.tree.block_size())).min(u64::from(request.input_tokens));
        Some(view.selection(request.session, index, reason, hit as u32))
    }

    /// Marks the prompt.
    pub fn sent(&mut self, tree: &BlockTree, worker: u16, prompt: BlockPath) {
        self.assumed.mark(tree, prompt, worker);
    }
}
