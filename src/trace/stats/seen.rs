//! What an infinite cache would hold: prompt blocks seen before, in time order, and who brought them.
//!
//! Keeps how far each node of the tree was seen. A node seen at all has its ancestors seen up to where it leaves them,
//! so looking up and marking stop at the first such node: constant time per turn unless sessions branch deeply.

use crate::base::SessionIx;
use crate::kv::{BlockPath, BlockTree, NodeId};
use crate::trace::Trace;

/// Hit blocks over all turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Hits {
    /// Seen in any earlier prompt.
    pub(super) blocks: u64,
    /// Of these, first brought by another session.
    pub(super) cross_session_blocks: u64,
}

/// Per turn of [`Trace::turns`], prompt tokens an infinite shared cache would hold: the longest prefix of full blocks
/// seen in an earlier prompt, or what the session itself left, whichever is more.
pub fn ideal_hits(trace: &Trace) -> Vec<u32> {
    let mut hits = vec![0; trace.turns.len()];
    let mut seen = Seen::new(&trace.tree);
    for index in trace.by_time() {
        let turn = &trace.turns[index as usize];
        let blocks = seen.hit_and_mark(turn.prompt).depth;
        hits[index as usize] = (blocks * trace.tree.block_size()).max(turn.cached_tokens).min(turn.input_length);
    }
    hits
}

/// Counts hits of an infinite cache, and those owed to other sessions.
pub(super) fn hits(trace: &Trace) -> Hits {
    let mut hits = Hits::default();
    let mut seen = Seen::new(&trace.tree);
    let mut bringers = Bringers { tree: &trace.tree, parts: vec![Vec::new(); trace.tree.node_count()] };
    for index in trace.by_time() {
        let turn = &trace.turns[index as usize];
        let hit = seen.hit_and_mark(turn.prompt);
        hits.blocks += u64::from(hit.depth);
        hits.cross_session_blocks += u64::from(bringers.of_others(hit, turn.session));
        bringers.bring(hit, turn.prompt, turn.session);
    }
    hits
}

/// Depth seen per node, 0 when it was not seen.
struct Seen<'t> {
    tree: &'t BlockTree,
    depths: Vec<u32>,
}

impl<'t> Seen<'t> {
    fn new(tree: &'t BlockTree) -> Seen<'t> {
        Seen { tree, depths: vec![0; tree.node_count()] }
    }

    /// The part of `path` seen before; then the whole path is seen.
    fn hit_and_mark(&mut self, path: BlockPath) -> BlockPath {
        let mut at = path;
        while at.node != NodeId::ROOT {
            let depth = &mut self.depths[at.node.ix()];
            let known = std::mem::replace(depth, at.depth.max(*depth));
            if known > 0 {
                return BlockPath { node: at.node, depth: at.depth.min(known) };
            }
            at = up(self.tree, at);
        }
        BlockPath::EMPTY
    }
}

/// Which session brought the blocks of a node first: stretches by the depth where they end.
struct Bringers<'t> {
    tree: &'t BlockTree,
    parts: Vec<Vec<(u32, SessionIx)>>,
}

impl Bringers<'_> {
    /// Blocks of a seen path that another session brought.
    fn of_others(&self, path: BlockPath, session: SessionIx) -> u32 {
        let (mut at, mut count) = (path, 0);
        while at.node != NodeId::ROOT {
            let mut start = self.tree.start(at.node);
            for &(end, bringer) in &self.parts[at.node.ix()] {
                let end = end.min(at.depth);
                count += if bringer == session { 0 } else { end.saturating_sub(start) };
                start = start.max(end);
            }
            at = up(self.tree, at);
        }
        count
    }

    /// The session brings what `path` has beyond its part `hit`.
    fn bring(&mut self, hit: BlockPath, path: BlockPath, session: SessionIx) {
        let mut at = path;
        while at.depth > hit.depth {
            let parts = &mut self.parts[at.node.ix()];
            match parts.last_mut() {
                Some((end, bringer)) if *bringer == session => *end = at.depth,
                Some(_) | None => parts.push((at.depth, session)),
            }
            at = up(self.tree, at);
        }
    }
}

/// The path up to where its node leaves its parent.
fn up(tree: &BlockTree, path: BlockPath) -> BlockPath {
    BlockPath { node: tree.parent(path.node), depth: path.depth.min(tree.start(path.node)) }
}
