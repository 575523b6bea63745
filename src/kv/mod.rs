//! Identity of KV blocks: which prompts share which prefix.
//!
//! Owns the tree of prefix-chained blocks ([`BlockTree`]). Who holds a block is not its business:
//! an engine's cache and a policy's belief keep their own marks beside the tree's node ids.
//! The KV-event codec and the index of the event issue belong here too.

mod tree;

pub use tree::{BlockPath, BlockTree, Moved, NodeId};
