//! What a policy sees and what it answers.
//!
//! The view is the replayer's: counts of its own requests and its beliefs, never the cluster's inner state.

use crate::base::{Role, SessionIx, WorkerId};
use crate::kv::{BlockPath, BlockTree, Process, WorkerHit};
use crate::policies::IndexPromise;
use crate::protocol::{LoadReport, RoutingHeader};

/// One worker as the replayer sees it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct WorkerView {
    /// Discovery has it as serving.
    pub up: bool,
    /// Requests assigned to it and not ended, from the moment of the decision.
    pub inflight: u32,
    /// Requests ever assigned to it.
    pub assigned: u64,
    /// Tokens believed to be used over its capacity; `None` while the capacity is unknown.
    pub believed_usage: Option<f64>,
    /// Last load it reported.
    pub load: Option<LoadReport>,
    /// Requests in flight that were assigned to it after that report was asked for.
    pub own: u32,
    /// Which process it is, as far as it was heard.
    pub process: Process,
}

impl WorkerView {
    /// Usage, 0 to 1: as reported, else as believed, else 0.
    pub fn usage(&self) -> f64 {
        self.load.map(|load| load.token_usage).or(self.believed_usage).unwrap_or(0.0)
    }
}

/// Routing header the PD router is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderMode {
    /// None: the router decides alone.
    None,
    /// `x-smg-routing-key`: the router keeps a session where it first put it.
    RoutingKey,
    /// `x-smg-target-worker`: the router obeys.
    TargetWorker,
    /// That and `x-pdreplay-target-prefill`: the router obeys for both legs.
    TargetLegs,
}

impl HeaderMode {
    /// The header of a request of `session` meant for worker `index`.
    pub fn header(self, session: SessionIx, index: u16) -> RoutingHeader {
        match self {
            HeaderMode::None => RoutingHeader::None,
            HeaderMode::RoutingKey => RoutingHeader::RoutingKey(session),
            HeaderMode::TargetWorker | HeaderMode::TargetLegs => RoutingHeader::TargetWorker(index),
        }
    }

    /// The header of a request meant for two workers, where it can name both.
    pub(super) fn legs(self, prefill: u16, decode: u16) -> RoutingHeader {
        match self {
            HeaderMode::TargetLegs => RoutingHeader::TargetLegs { prefill, decode },
            HeaderMode::TargetWorker => RoutingHeader::TargetWorker(decode),
            HeaderMode::None | HeaderMode::RoutingKey => RoutingHeader::None,
        }
    }
}

/// All workers of the candidate role, by index.
#[derive(Debug, Clone, Copy)]
pub struct ClusterView<'a> {
    /// Candidate role.
    pub role: Role,
    /// Workers by index.
    pub workers: &'a [WorkerView],
    /// Prefill workers by index; empty where the candidates are colocated.
    pub prefill: &'a [WorkerView],
    /// What the KV index holds of the prompt; `None` without an index, or when the policy reads none.
    pub hits: Option<&'a [WorkerHit]>,
    /// Header the PD router is sent.
    pub header_mode: HeaderMode,
    /// Blocks of the trace.
    pub tree: &'a BlockTree,
}

impl ClusterView<'_> {
    /// Workers a choice may fall on: those up, without `excluded` unless it is the only one.
    pub(super) fn candidates(&self, excluded: Option<u16>) -> impl Iterator<Item = (u16, &WorkerView)> {
        let up = || self.workers.iter().zip(0u16..).filter(|(worker, _)| worker.up);
        let excluded = excluded.filter(|excluded| up().any(|(_, index)| index != *excluded));
        up().filter(move |(_, index)| Some(*index) != excluded).map(|(worker, index)| (index, worker))
    }

    /// The answer for worker `index`.
    pub(super) fn selection(&self, session: SessionIx, index: u16, reason: SelectionReason, hit: u32) -> Selection {
        Selection {
            worker: WorkerId::new(self.role, index),
            reason,
            header: self.header_mode.header(session, index),
            assumed_hit_tokens: hit,
            prefill: None,
            index: None,
        }
    }
}

/// A request to be placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicyRequest {
    /// Its session.
    pub session: SessionIx,
    /// Full blocks of its prompt.
    pub prompt: BlockPath,
    /// Prompt tokens.
    pub input_tokens: u32,
    /// Worker not to choose, unless it is the only one.
    pub excluded: Option<u16>,
}

/// A choice and its reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Selection {
    /// Worker chosen.
    pub worker: WorkerId,
    /// Why.
    pub reason: SelectionReason,
    /// Header for the PD router.
    pub header: RoutingHeader,
    /// Prompt tokens the policy takes to be on that worker, or on the prefill worker if it chose one.
    pub assumed_hit_tokens: u32,
    /// Prefill worker, if the policy chooses it too.
    pub prefill: Option<WorkerId>,
    /// What the KV index promised of the worker whose cache counts, if it was asked.
    pub index: Option<IndexPromise>,
}

/// Why a worker was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SelectionReason {
    /// Its turn in the rotation.
    Rotation,
    /// The session is bound to it.
    Bound,
    /// The session's worker is gone: the one with the fewest requests in flight.
    BoundWorkerGone,
    /// Most blocks of the prompt.
    Overlap,
    /// The worker the session used last; overlap alone did not decide.
    LastUsed,
    /// Fewest requests in flight.
    LeastLoaded,
    /// Fewest requests in flight, because the load is uneven.
    Imbalance,
    /// Least cost of misses and queue.
    LeastCost,
}

impl SelectionReason {
    /// Stable label.
    pub fn as_str(self) -> &'static str {
        match self {
            SelectionReason::Rotation => "rotation",
            SelectionReason::Bound => "bound",
            SelectionReason::BoundWorkerGone => "bound-worker-gone",
            SelectionReason::Overlap => "overlap",
            SelectionReason::LastUsed => "last-used",
            SelectionReason::LeastLoaded => "least-loaded",
            SelectionReason::Imbalance => "imbalance",
            SelectionReason::LeastCost => "least-cost",
        }
    }
}
