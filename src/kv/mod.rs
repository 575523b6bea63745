//! KV blocks: which prompts share which prefix, what publishers say of their caches, and the index made of it.
//!
//! Owns the tree of prefix-chained blocks ([`BlockTree`]), the hashes and tokens that name a block, and KV events as data
//! ([`KvEvent`]): made in [`publish`], with their bytes in [`wire`], their order in [`sync`], and what they add up to in
//! [`index`]. An engine's cache and a policy's belief keep their own marks beside the tree's node ids.
//! ([`KvEvent`]): their bytes in [`wire`], their order in [`sync`], what they add up to in [`index`]. An engine's cache and
//! a policy's belief keep their own marks beside the tree's node ids.

mod change;
mod config;
pub mod directory;
mod event;
mod followed;
mod hash;
pub mod index;
mod lookup;
mod prompt;
pub mod publish;
pub mod sync;
mod tokens;
mod tree;
pub mod wire;

pub use change::CacheChange;
pub use config::{EventsConfig, EventsSwitch};
pub use event::{BlockRemoved, BlockStored, Dialect, EngineHash, EventBatch, KvEvent, Recovery, Tier};
pub use followed::{Followed, IndexLookup, Whose, stream_name};
pub use hash::{DEFAULT_HASH_SEED, HashChain, SequenceHash};
pub use lookup::{PrefixLookup, Process, StreamHealth, StreamOrigin, WorkerHit};
pub use prompt::PromptHashes;
pub use tokens::BlockTokens;
pub use tree::{BlockPath, BlockTree, Moved, NodeId};
