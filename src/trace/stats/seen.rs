//! What an infinite cache would hold: prompt blocks seen before, in time order.
//!
//! Keeps how far each node of the tree was seen. A node seen at all has its ancestors seen up to where it leaves them,
//! so looking up and marking stop at the first such node: constant time per turn unless sessions branch deeply.

use crate::kv::{BlockPath, BlockTree, NodeId};
use crate::trace::Trace;

/// Hit blocks over all turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Hits {
    /// Seen in any earlier prompt.
    pub(super) blocks: u64,
    /// Of these, not seen in an earlier prompt of the own session.
    pub(super) cross_session_blocks: u64,
}

/// Per turn of [`Trace::turns`], prompt tokens an infinite shared cache would hold: the longest prefix of full blocks
/// seen in an earlier prompt, or what the session itself left, whichever is more.
pub fn ideal_hits(trace: &Trace) -> Vec<u32> {
    let mut hits = vec![0; trace.turns.len()];
    let mut seen = Seen::new(&trace.tree);
    for index in trace.by_time() {
        let turn = &trace.turns[index as usize];
        let blocks = seen.hit_and_mark(turn.prompt, 1);
        hits[index as usize] = (blocks * trace.tree.block_size()).max(turn.cached_tokens).min(turn.input_length);
    }
    hits
}

/// Counts hits of an infinite cache, and those owed to other sessions.
pub(super) fn hits(trace: &Trace) -> Hits {
    let mut hits = Hits::default();
    let mut own = vec![0u32; trace.turns.len()];
    let mut seen = Seen::new(&trace.tree);
    for (own, turn) in own.iter_mut().zip(&trace.turns) {
        *own = seen.hit_and_mark(turn.prompt, turn.session.0 + 1);
    }
    let mut seen = Seen::new(&trace.tree);
    for index in trace.by_time() {
        let blocks = seen.hit_and_mark(trace.turns[index as usize].prompt, 1);
        hits.blocks += u64::from(blocks);
        hits.cross_session_blocks += u64::from(blocks.saturating_sub(own[index as usize]));
    }
    hits
}

/// Depth seen per node. A mark of another epoch than the asked one counts as none.
struct Seen<'t> {
    tree: &'t BlockTree,
    marks: Vec<(u32, u32)>,
}

impl<'t> Seen<'t> {
    fn new(tree: &'t BlockTree) -> Seen<'t> {
        Seen { tree, marks: vec![(0, 0); tree.node_count()] }
    }

    /// Blocks of `path` seen before in this epoch; then the whole path is seen.
    fn hit_and_mark(&mut self, path: BlockPath, epoch: u32) -> u32 {
        let mut at = path;
        while at.node != NodeId::ROOT {
            let (marked, depth) = &mut self.marks[at.node.ix()];
            if *marked == epoch {
                let hit = at.depth.min(*depth);
                *depth = at.depth.max(*depth);
                return hit;
            }
            (*marked, *depth) = (epoch, at.depth);
            at = BlockPath { node: self.tree.parent(at.node), depth: at.depth.min(self.tree.start(at.node)) };
        }
        0
    }
}
