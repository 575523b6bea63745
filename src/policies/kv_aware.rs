//! `kv-aware`: the worker with the best score, after reference/001 and, with `capacity_aware`, reference/003 §1.5.
//!
//! Plain score: (overlap blocks + sticky · bonus, sticky, −inflight, −assigned), larger is better.
//! Capacity-aware rank: (overlap up to the cap, −usage, sticky, −inflight), workers above `hard_cap` left out unless
//! all are.

use std::cmp::Ordering;

use crate::base::{SessionIx, WorkerId};
use crate::kv::{BlockPath, BlockTree};
use crate::policies::promise::Rules;
use crate::policies::{
    AssumedBlocks, ClusterView, IndexPromise, KvAwareConfig, OverlapSource, PolicyRequest, Selection, SelectionReason,
    WorkerView,
};

/// Options, marks, and the worker each session used last.
#[derive(Debug)]
pub struct KvAware {
    config: KvAwareConfig,
    assumed: AssumedBlocks,
    last: Vec<Option<u16>>,
}

#[derive(Debug, Clone, Copy)]
struct Candidate<'a> {
    index: u16,
    worker: &'a WorkerView,
    overlap: u32,
    sticky: bool,
    promise: Option<IndexPromise>,
}

impl KvAware {
    /// Nothing was sent anywhere yet.
    pub fn new(config: KvAwareConfig, sessions: usize) -> KvAware {
        KvAware { config, assumed: AssumedBlocks::default(), last: vec![None; sessions] }
    }

    /// The best candidate; the lowest index of equals.
    pub fn select(&mut self, view: &ClusterView, request: &PolicyRequest) -> Option<Selection> {
        let below_cap = self.config.capacity_aware
            && view.candidates(request.excluded).any(|(_, worker)| worker.usage() <= self.config.hard_cap);
        let mut best: Option<Candidate> = None;
        let mut overlap_decides = false;
        for (index, worker) in view.candidates(request.excluded) {
            if below_cap && worker.usage() > self.config.hard_cap {
                continue;
            }
            let promise = self.promise(view, index, worker);
            let overlap = match self.config.overlap {
                OverlapSource::Assumed => self.assumed.overlap(view.tree, request.prompt, index),
                OverlapSource::Index => promise.map_or(0, |promise| promise.tokens() / view.tree.block_size()),
            };
            let sticky = self.last[request.session.ix()] == Some(index);
            let candidate = Candidate { index, worker, overlap, sticky, promise };
            if let Some(so_far) = best {
                overlap_decides |= so_far.overlap != overlap;
                if self.compare(&candidate, &so_far) != Ordering::Greater {
                    continue;
                }
            }
            best = Some(candidate);
        }
        let best = best?;
        let reason = match (overlap_decides && best.overlap > 0, best.sticky) {
            (true, _) => SelectionReason::Overlap,
            (false, true) => SelectionReason::LastUsed,
            (false, false) => SelectionReason::LeastLoaded,
        };
        let hit = (u64::from(best.overlap) * u64::from(view.tree.block_size())).min(u64::from(request.input_tokens));
        let selection = view.selection(request.session, best.index, reason, hit as u32);
        Some(Selection { index: best.promise, ..selection })
    }

    /// Marks the prompt and remembers the worker.
    pub fn sent(&mut self, tree: &BlockTree, session: SessionIx, worker: u16, prompt: BlockPath) {
        self.assumed.mark(tree, prompt, worker);
        self.last[session.ix()] = Some(worker);
    }

    /// The session has no last worker any more; the marks stay.
    pub fn forget(&mut self, session: SessionIx) {
        self.last[session.ix()] = None;
    }

    /// What the index says of a worker, when that is the source. A stream in step is believed, however it was found.
    fn promise(&self, view: &ClusterView, index: u16, worker: &WorkerView) -> Option<IndexPromise> {
        let rules = Rules { host_weight: 1.0, static_streams: true };
        let hits = view.hits.filter(|_| self.config.overlap == OverlapSource::Index)?;
        Some(IndexPromise::of(hits, WorkerId::new(view.role, index), worker.process, rules))
    }

    fn compare(&self, a: &Candidate, b: &Candidate) -> Ordering {
        let fewer_inflight = b.worker.inflight.cmp(&a.worker.inflight);
        if self.config.capacity_aware {
            let capped = |c: &Candidate| c.overlap.min(self.config.overlap_cap_blocks);
            return capped(a)
                .cmp(&capped(b))
                .then_with(|| b.worker.usage().total_cmp(&a.worker.usage()))
                .then_with(|| a.sticky.cmp(&b.sticky))
                .then(fewer_inflight);
        }
        let score =
            |c: &Candidate| u64::from(c.overlap) + if c.sticky { u64::from(self.config.sticky_bonus) } else { 0 };
        score(a)
            .cmp(&score(b))
            .then_with(|| a.sticky.cmp(&b.sticky))
            .then(fewer_inflight)
            .then_with(|| b.worker.assigned.cmp(&a.worker.assigned))
    }
}
