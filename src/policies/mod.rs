//! Policies: which worker of the candidate role serves a request.
//!
//! A choice is a function of the view, the request and the policy's own counters and marks, and says why. Policies do
//! not send, open or admit anything, and do not know what became of a request unless told ([`Policy::sent`],
//! [`Policy::served`]).
//! Invariant: ties go to the lowest index; only workers that are up are chosen.

mod assumed;
mod cache_aware;
pub mod car;
mod config;
mod kv_aware;
mod promise;
mod round_robin;
mod sticky;
mod view;

#[cfg(test)]
mod tests;

pub use assumed::AssumedBlocks;
pub use cache_aware::CacheAware;
pub use car::Car;
pub use config::{CacheAwareConfig, CarConfig, KvAwareConfig, OverlapSource, PolicyConfig, PolicyName};
pub use kv_aware::KvAware;
pub use promise::IndexPromise;
pub use round_robin::RoundRobin;
pub use sticky::Sticky;
pub use view::{ClusterView, HeaderMode, PolicyRequest, Selection, SelectionReason, WorkerView};

use crate::base::SessionIx;
use crate::kv::{BlockPath, BlockTree};
use crate::record::CandidateScore;

/// A policy with its state.
#[derive(Debug)]
pub enum Policy {
    /// `default`.
    RoundRobin(RoundRobin),
    /// `sticky`.
    Sticky(Sticky),
    /// `kv-aware`.
    KvAware(KvAware),
    /// `cache-aware`.
    CacheAware(CacheAware),
    /// `car`.
    Car(Car),
}

impl Policy {
    /// The configured policy, for a trace of `sessions` sessions.
    pub fn new(config: &PolicyConfig, sessions: usize) -> Policy {
        match config.name {
            PolicyName::Default => Policy::RoundRobin(RoundRobin::default()),
            PolicyName::Sticky => Policy::Sticky(Sticky::new(sessions)),
            PolicyName::KvAware => Policy::KvAware(KvAware::new(config.kv_aware.clone(), sessions)),
            PolicyName::CacheAware => Policy::CacheAware(CacheAware::new(config.cache_aware.clone())),
            PolicyName::Car => Policy::Car(Car::new(config.car.clone())),
        }
    }

    /// Chooses a worker; `None` when none is up.
    pub fn select(&mut self, view: &ClusterView, request: &PolicyRequest) -> Option<Selection> {
        match self {
            Policy::RoundRobin(policy) => policy.select(view, request),
            Policy::Sticky(policy) => policy.select(view, request),
            Policy::KvAware(policy) => policy.select(view, request),
            Policy::CacheAware(policy) => policy.select(view, request),
            Policy::Car(policy) => policy.select(view, request),
        }
    }

    /// A request with this prompt was sent to `worker`, or is meant for it.
    pub fn sent(&mut self, tree: &BlockTree, session: SessionIx, worker: u16, prompt: BlockPath) {
        match self {
            Policy::RoundRobin(_) | Policy::Sticky(_) | Policy::Car(_) => {}
            Policy::KvAware(policy) => policy.sent(tree, session, worker, prompt),
            Policy::CacheAware(policy) => policy.sent(tree, worker, prompt),
        }
    }

    /// `worker` is the one that answered a request with this prompt.
    pub fn served(&mut self, tree: &BlockTree, session: SessionIx, worker: u16, prompt: BlockPath) {
        match self {
            Policy::Sticky(policy) => policy.served(session, worker),
            Policy::KvAware(policy) => policy.sent(tree, session, worker, prompt),
            Policy::RoundRobin(_) | Policy::CacheAware(_) | Policy::Car(_) => {}
        }
    }

    /// The session is to be placed afresh: its worker refused it too often.
    pub fn forget(&mut self, session: SessionIx) {
        match self {
            Policy::Sticky(policy) => policy.forget(session),
            Policy::KvAware(policy) => policy.forget(session),
            Policy::RoundRobin(_) | Policy::CacheAware(_) | Policy::Car(_) => {}
        }
    }

    /// Every candidate of the last choice with its numbers, where the policy explains itself.
    pub fn explanation(&self) -> &[CandidateScore] {
        match self {
            Policy::Car(policy) => policy.explanation(),
            Policy::RoundRobin(_) | Policy::Sticky(_) | Policy::KvAware(_) | Policy::CacheAware(_) => &[],
        }
    }
}
