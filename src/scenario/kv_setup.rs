//! [`KvSetup`]: who publishes KV events and how they are followed, by `[kv_events]`.

use crate::base::{Dur, Role, WorkerId};
use crate::cluster::Publishing;
use crate::kv::index::HashSpace;
use crate::kv::publish::{BUFFER_STEPS, PublisherOptions};
use crate::kv::sync::SyncOptions;
use crate::kv::wire::EncodeForm;
use crate::kv::{BlockTokens, DEFAULT_HASH_SEED, EventsConfig};
use crate::scenario::{Needs, Scenario};

/// What a run with an index is built from.
#[derive(Debug, Clone)]
pub struct KvSetup {
    /// For the emulated workers.
    pub publishing: Publishing,
    /// For the run.
    pub follow: FollowSetup,
}

/// How the run follows publishers.
#[derive(Debug, Clone)]
pub struct FollowSetup {
    /// Role of the workers that are followed: those whose caches the policy reads; `None`: all.
    pub role: Option<Role>,
    /// What names blocks.
    pub space: HashSpace,
    /// Most blocks of one stream.
    pub max_blocks: usize,
    /// Rules of every stream; without an endpoint yet.
    pub sync: SyncOptions,
    /// Tokens of the trace's blocks.
    pub tokens: BlockTokens,
}

impl FollowSetup {
    /// Whether a policy reads the cache of this worker.
    pub fn reads(&self, worker: WorkerId) -> bool {
        self.role.is_none_or(|role| role == worker.role)
    }
}

impl KvSetup {
    /// Of a scenario and a trace with blocks of `block_size` tokens; `None` for a run without an index.
    pub fn new(scenario: &Scenario, block_size: u32) -> Option<KvSetup> {
        let events = &scenario.kv_events;
        if !events.is_on(scenario.policy.reads_index()) {
            return None;
        }
        let options = publisher(events, block_size);
        let block_size = options.block_size;
        let tokens = BlockTokens::new(scenario.live.token_id_min, scenario.live.token_id_count);
        let sync = SyncOptions {
            topic: events.topic.clone(),
            replay_timeout: Dur::from_millis(events.replay_timeout_ms),
            resync_interval: Dur::from_millis(events.resync_interval_ms),
            ..SyncOptions::new(events.dialect)
        };
        let space = HashSpace { block_size, hash_seed: DEFAULT_HASH_SEED };
        let max_blocks = usize::try_from(events.max_blocks_per_stream).unwrap_or(usize::MAX);
        let publishing = Publishing { options, tokens };
        Some(KvSetup {
            publishing,
            follow: FollowSetup { role: Needs::of(scenario).index, space, max_blocks, sync, tokens },
        })
    }
}

/// An emulated worker's publisher, where the cache has blocks of `block_size` tokens.
pub fn publisher(events: &EventsConfig, block_size: u32) -> PublisherOptions {
    PublisherOptions {
        form: EncodeForm::current(events.dialect),
        block_size: if events.block_size == 0 { block_size } else { events.block_size },
        topic: events.topic.clone(),
        dp_rank: 0,
        buffer_steps: BUFFER_STEPS,
    }
}
