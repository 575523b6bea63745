//! Attention groups of hybrid models: which of them stand for the prefix.
//!
//! A hybrid model stores one block once in each of its groups. Only groups of full attention count for prefix hits. Stored
//! events of later releases say the kind of their group; removals and older events say at most its number.

use std::collections::BTreeMap;

use super::dialect::is_full_attention;
use super::error::DecodeProblem;

/// Most groups that are remembered. Models have at most a few dozen.
const MAX_GROUPS: usize = 1024;

/// What stored events have taught, by data-parallel rank and group.
#[derive(Debug, Clone, Default)]
pub(super) struct Groups {
    is_main: BTreeMap<(Option<u32>, u32), bool>,
}

impl Groups {
    /// Remembers the kind that a stored event gave its group. An event without a group says nothing of groups.
    pub fn learn(&mut self, rank: Option<u32>, group: Option<u32>, kind: Option<&[u8]>) -> Result<(), DecodeProblem> {
        let (Some(group), Some(kind)) = (group, kind) else { return Ok(()) };
        if self.is_main.len() >= MAX_GROUPS && !self.is_main.contains_key(&(rank, group)) {
            return Err(DecodeProblem::TooManyGroups { limit: MAX_GROUPS });
        }
        self.is_main.insert((rank, group), is_full_attention(kind));
        Ok(())
    }

    /// Whether an event's blocks count: by its own kind, else by what was learned of its group, else only without a group or
    /// in group 0, which is the only one of a plain model.
    pub fn is_main(&self, rank: Option<u32>, group: Option<u32>, kind: Option<&[u8]>) -> bool {
        match (kind, group) {
            (Some(kind), _) => is_full_attention(kind),
            (None, None) => true,
            (None, Some(group)) => self.is_main.get(&(rank, group)).copied().unwrap_or(group == 0),
        }
    }
}
