//! [`IndexPromise`]: what the index says of a prompt on one worker, its streams joined and judged.
//!
//! A worker's cache is only worth what its poorest rank holds, because any of them may take the request. What cannot be
//! believed counts as nothing, never as a reason against the worker.

use crate::base::WorkerId;
use crate::kv::{Process, StreamOrigin, WorkerHit};
use crate::record::IndexSight;

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexPromise {
    /// Whose cache it is of.
    pub worker: WorkerId,
    /// Prompt tokens on the device.
    pub device_tokens: u32,
    /// Prompt tokens on the host only.
    pub host_only_tokens: u32,
    /// Whether that was to be believed; all else comes with no tokens.
    pub sight: IndexSight,
}

/// What makes a hit count.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Worth of a token on the host alone, 0 to 1; a token on the device is worth 1.
    pub host_weight: f64,
    /// Streams listed by hand count.
    pub static_streams: bool,
}

impl IndexPromise {
    /// Joins the streams of `worker`, which is now the process `process`.
    pub fn of(hits: &[WorkerHit], worker: WorkerId, process: Process, rules: Rules) -> IndexPromise {
        let nothing = |sight| IndexPromise { worker, device_tokens: 0, host_only_tokens: 0, sight };
        let mut poorest: Option<WorkerHit> = None;
        let (mut ranks, mut size) = (0, 1);
        for hit in hits.iter().filter(|hit| hit.worker == worker) {
            if let Some(sight) = hit.fault(process, rules) {
                return nothing(sight);
            }
            (ranks, size) = (ranks + 1, size.max(hit.dp_size));
            if poorest.is_none_or(|least| rules.worth(hit) < rules.worth(&least)) {
                poorest = Some(*hit);
            }
        }
        match poorest {
            Some(hit) if ranks >= size => IndexPromise {
                worker,
                device_tokens: hit.device_tokens,
                host_only_tokens: hit.host_only_tokens,
                sight: IndexSight::Synchronized,
            },
            Some(_) | None => nothing(IndexSight::NoStream),
        }
    }

    /// Tokens in both tiers.
    pub fn tokens(self) -> u32 {
        self.device_tokens.saturating_add(self.host_only_tokens)
    }

    /// The choice was made without knowing what the worker holds.
    pub fn is_blind(self) -> bool {
        self.sight != IndexSight::Synchronized
    }
}

impl WorkerHit {
    fn fault(&self, process: Process, rules: Rules) -> Option<IndexSight> {
        match self.origin {
            _ if !self.synchronized => Some(IndexSight::NotSynchronized),
            StreamOrigin::Static => (!rules.static_streams).then_some(IndexSight::StaticStream),
            StreamOrigin::Discovered(known) => (!known.may_be(process)).then_some(IndexSight::OtherProcess),
        }
    }
}

impl Rules {
    fn worth(self, hit: &WorkerHit) -> f64 {
        f64::from(hit.device_tokens) + self.host_weight * f64::from(hit.host_only_tokens)
    }
}
