//! [`IndexPromise`]: what the index says of a prompt on one worker, its streams joined and judged.
//!
//! A worker's cache is only worth what its poorest rank holds, because any of them may take the request. What cannot be
//! believed counts as nothing, never as a reason against the worker.

use crate::base::{Role, WorkerId};
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
    /// Tokens in a block of the stream; 1 where no stream counts.
    pub block_size: u32,
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
        let nothing = |sight| IndexPromise { worker, device_tokens: 0, host_only_tokens: 0, block_size: 1, sight };
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
                block_size: hit.block_size.max(1),
                sight: IndexSight::Synchronized,
            },
            Some(_) | None => nothing(IndexSight::NoStream),
        }
    }

    /// Tokens in both tiers.
    pub fn tokens(self) -> u32 {
        self.device_tokens.saturating_add(self.host_only_tokens)
    }

    /// What the worker can reuse of it: the last token of a prompt is always computed, and with it its block, so at most the
    /// whole blocks before, of the stream and of the trace. All of it where the worker computes no prompt: what a D holds is
    /// not sent. What goes comes off the host first, whose blocks lie at the end.
    pub fn reusable(self, input_tokens: u32, block_of_trace: u32) -> IndexPromise {
        if self.worker.role == Role::Decode {
            return self;
        }
        let whole = |tokens: u32, block: u32| tokens - tokens % block.max(1);
        let most = whole(whole(input_tokens.saturating_sub(1), block_of_trace), self.block_size);
        let kept = self.tokens().min(most);
        let host_only_tokens = self.host_only_tokens.saturating_sub(self.tokens() - kept);
        IndexPromise { device_tokens: kept - host_only_tokens, host_only_tokens, ..self }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_reused_ends_before_the_block_of_the_last_token() {
        // Worker, prompt, block of the trace, block of the stream, hit on device and host only; what is left of it.
        let cases = [
            ("P0", 256, 64, 64, (256, 0), (192, 0)),
            ("W0", 256, 64, 64, (192, 64), (192, 0)),
            ("W0", 256, 64, 64, (128, 128), (128, 64)),
            ("W0", 256, 64, 64, (0, 256), (0, 192)),
            ("P0", 256, 64, 64, (192, 0), (192, 0)),
            ("P0", 257, 64, 64, (256, 0), (256, 0)),
            ("P0", 64, 64, 64, (64, 0), (0, 0)),
            ("P0", 256, 64, 16, (256, 0), (192, 0)),
            ("P0", 256, 64, 48, (240, 0), (192, 0)),
            ("P0", 256, 64, 128, (256, 0), (128, 0)),
            ("P0", 1, 64, 1, (1, 0), (0, 0)),
            ("P0", 0, 64, 64, (0, 0), (0, 0)),
            // What a D holds is not sent, to the last token.
            ("D0", 256, 64, 64, (256, 0), (256, 0)),
        ];
        for (worker, prompt, of_trace, block_size, (device_tokens, host_only_tokens), wanted) in cases {
            let worker: WorkerId = worker.parse().unwrap();
            let sight = IndexSight::Synchronized;
            let raw = IndexPromise { worker, device_tokens, host_only_tokens, block_size, sight };
            let left = raw.reusable(prompt, of_trace);
            assert_eq!((left.device_tokens, left.host_only_tokens), wanted, "{raw:?} of {prompt}");
        }
    }
}
