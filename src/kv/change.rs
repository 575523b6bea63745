//! [`CacheChange`]: what an engine's cache says of itself.

use crate::kv::NodeId;

/// Blocks of one node that entered or left a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheChange {
    /// Node of the block tree.
    pub node: NodeId,
    /// Depth before the first block.
    pub from: u32,
    /// Depth of the last one.
    pub to: u32,
    /// They are held now; else they are gone.
    pub stored: bool,
}
