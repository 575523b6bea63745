//! Blocks once sent to a worker count as held there for ever: the belief the source documents' replayer had.
//!
//! One depth per (tree node, worker): how far into the node's run of blocks the worker has been sent something.
//! Invariant: a mark inside a node implies marks up to the node's start on all its ancestors, so marking stops at the
//! first ancestor already marked that far, and a lookup at the first node with a mark.

use crate::kv::{BlockPath, BlockTree};

/// The marks of all workers, node after node.
#[derive(Debug, Default)]
pub struct AssumedBlocks {
    workers: usize,
    depths: Vec<u32>,
}

impl AssumedBlocks {
    /// Blocks of `path` that `worker` was sent before, counted from the root.
    pub fn overlap(&self, tree: &BlockTree, path: BlockPath, worker: u16) -> u32 {
        let (mut node, mut depth) = (path.node, path.depth);
        while depth > 0 {
            let start = tree.start(node);
            let marked = self.depth(node.ix(), worker);
            if marked > start {
                return marked.min(depth);
            }
            depth = depth.min(start);
            node = tree.parent(node);
        }
        0
    }

    /// Records that `worker` was sent `path`.
    pub fn mark(&mut self, tree: &BlockTree, path: BlockPath, worker: u16) {
        self.make_room(tree.node_count(), usize::from(worker) + 1);
        let (mut node, mut depth) = (path.node, path.depth);
        while depth > 0 {
            let mark = &mut self.depths[node.ix() * self.workers + usize::from(worker)];
            if *mark >= depth {
                break;
            }
            *mark = depth;
            depth = depth.min(tree.start(node));
            node = tree.parent(node);
        }
    }

    fn depth(&self, node: usize, worker: u16) -> u32 {
        if usize::from(worker) >= self.workers {
            return 0;
        }
        self.depths.get(node * self.workers + usize::from(worker)).copied().unwrap_or(0)
    }

    /// Workers join seldom: the table is then laid out anew, with room for twice as many.
    fn make_room(&mut self, nodes: usize, workers: usize) {
        if workers > self.workers {
            let wider = workers.max(self.workers * 2).max(8);
            let mut depths = vec![0; nodes * wider];
            if self.workers > 0 {
                for (old, new) in self.depths.chunks(self.workers).zip(depths.chunks_mut(wider)) {
                    new[..old.len()].copy_from_slice(old);
                }
            }
            (self.workers, self.depths) = (wider, depths);
        }
        if self.depths.len() < nodes * self.workers {
            self.depths.resize(nodes * self.workers, 0);
        }
    }
}
