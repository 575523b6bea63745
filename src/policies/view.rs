//! What a policy sees and what it answers.
//!
//! The view is the replayer's: counts of its own requests and its beliefs, never the cluster's inner state.

use crate::base::{Role, SessionIx, WorkerId};
use crate::kv::{BlockPath, BlockTree};
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
}

impl HeaderMode {
    /// The header of a request of `session` meant for worker `index`.
    pub fn header(self, session: SessionIx, index: u16) -> RoutingHeader {
        match self {
            HeaderMode::None => RoutingHeader::None,
            HeaderMode::RoutingKey => RoutingHeader::RoutingKey(session),
            HeaderMode::TargetWorker => RoutingHeader::TargetWorker(index),
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
    /// Prompt tokens the policy takes to be on that worker.
    pub assumed_hit_tokens: u32,
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
        }
    }
}
