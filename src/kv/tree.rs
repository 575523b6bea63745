//! Append-only tree of prefix-chained blocks.
//!
//! A node is a run of blocks (an extent), usually the whole context of one session; a branch starts a new node at
//! the depth where it leaves its parent. Nodes are never split, so a node id stays valid until somebody compacts the
//! tree, and a prompt is a [`BlockPath`]: a node and a depth. Sessions that only append cost one node, however many
//! turns they have.
//! Invariant: node `n` covers depths `start(n)..end(n)`; its parent covers at least `0..start(n)` along the path.

use std::collections::HashMap;

/// A node of a [`BlockTree`]. Node 0 is the empty root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The empty root.
    pub const ROOT: NodeId = NodeId(0);

    /// The id as a subscript.
    pub fn ix(self) -> usize {
        self.0 as usize
    }
}

/// The first `depth` blocks along the path from the root through `node`; `depth` lies in `start(node)..=end(node)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockPath {
    /// Node that holds the last block.
    pub node: NodeId,
    /// Blocks from the root, the last included.
    pub depth: u32,
}

impl BlockPath {
    /// No block at all.
    pub const EMPTY: BlockPath = BlockPath { node: NodeId::ROOT, depth: 0 };
}

/// Where the nodes are that [`BlockTree::compact`] kept. Their order has not changed.
#[derive(Debug)]
pub struct Moved {
    to: Vec<Option<NodeId>>,
}

impl Moved {
    /// The new id. Panics for a node that was not kept.
    pub fn node(&self, old: NodeId) -> NodeId {
        self.to[old.ix()].expect("a node in use was kept")
    }

    /// The same path. Panics for one that was not kept.
    pub fn path(&self, old: BlockPath) -> BlockPath {
        BlockPath { node: self.node(old.node), ..old }
    }
}

#[derive(Debug)]
struct Node {
    parent: NodeId,
    start: u32,
    ids: Vec<u64>,
}

/// See the module.
#[derive(Debug)]
pub struct BlockTree {
    block_size: u32,
    nodes: Vec<Node>,
    blocks: u64,
    // Looked up only, never iterated: its order does not matter.
    children: HashMap<(NodeId, u32, u64), NodeId>,
}

impl BlockTree {
    /// An empty tree of blocks of `block_size` tokens.
    pub fn new(block_size: u32) -> BlockTree {
        assert!(block_size > 0, "a block holds at least one token");
        let root = Node { parent: NodeId::ROOT, start: 0, ids: Vec::new() };
        BlockTree { block_size, nodes: vec![root], blocks: 0, children: HashMap::new() }
    }

    /// Tokens in a block.
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    /// Number of nodes, the root included; every [`NodeId`] is below it.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Number of distinct blocks.
    pub fn block_count(&self) -> u64 {
        self.blocks
    }

    /// Parent of a node; the root is its own.
    pub fn parent(&self, node: NodeId) -> NodeId {
        self.nodes[node.ix()].parent
    }

    /// Depth at which a node leaves its parent.
    pub fn start(&self, node: NodeId) -> u32 {
        self.nodes[node.ix()].start
    }

    /// Depth at which a node ends.
    pub fn end(&self, node: NodeId) -> u32 {
        let node = &self.nodes[node.ix()];
        node.start + node.ids.len() as u32
    }

    /// Block ids of a node, from the depth where it leaves its parent.
    pub fn node_ids(&self, node: NodeId) -> &[u64] {
        &self.nodes[node.ix()].ids
    }

    /// Adds the chain `ids` (full blocks, from the root) and returns its path. `hint` is a path likely to share a long
    /// prefix with it, such as the session's previous turn; [`BlockPath::EMPTY`] when there is none.
    pub fn insert(&mut self, ids: &[u64], hint: BlockPath) -> BlockPath {
        let mut at = self.matching_prefix(ids, hint);
        while (at.depth as usize) < ids.len() {
            at = self.step(at, ids);
        }
        at
    }

    /// Depth of the longest common prefix of two paths.
    pub fn common_depth(&self, a: BlockPath, b: BlockPath) -> u32 {
        let (mut a, mut b) = (a, b);
        while a.node != b.node {
            // The node with the larger id is the younger one, so it cannot be an ancestor of the other.
            let younger = if a.node > b.node { &mut a } else { &mut b };
            *younger = self.up(*younger);
        }
        a.depth.min(b.depth)
    }

    /// The path cut to its first `depth` blocks (unchanged when it is not longer).
    pub fn truncate(&self, path: BlockPath, depth: u32) -> BlockPath {
        let mut cut = path;
        while depth < cut.depth {
            if depth > self.start(cut.node) || cut.node == NodeId::ROOT {
                cut.depth = depth;
            } else {
                cut = self.up(cut);
            }
        }
        cut
    }

    /// The block ids of a path, from the root.
    pub fn ids(&self, path: BlockPath) -> Vec<u64> {
        let mut parts = Vec::new();
        let mut at = path;
        while at.depth > 0 {
            let node = &self.nodes[at.node.ix()];
            parts.push(&node.ids[..(at.depth - node.start) as usize]);
            at = self.up(at);
        }
        parts.iter().rev().flat_map(|part| part.iter().copied()).collect()
    }

    /// Forgets every node that lies on the way to none of `kept`, so that a tree whose prompts come and go stays bounded.
    /// All other paths are void afterwards; those through kept nodes go on through [`Moved`].
    pub fn compact(&mut self, kept: &[NodeId]) -> Moved {
        let mut keep = vec![false; self.nodes.len()];
        keep[NodeId::ROOT.ix()] = true;
        for &node in kept {
            let mut at = node;
            while !std::mem::replace(&mut keep[at.ix()], true) {
                at = self.parent(at);
            }
        }
        let mut to = Vec::with_capacity(keep.len());
        for (node, keep) in std::mem::take(&mut self.nodes).into_iter().zip(keep) {
            to.push(keep.then_some(NodeId(self.nodes.len() as u32)));
            if keep {
                self.nodes.push(node);
            } else {
                self.blocks -= node.ids.len() as u64;
            }
        }
        let moved = Moved { to };
        self.children.clear();
        for ix in 1..self.nodes.len() {
            // An older node is in its place already, and a parent is older.
            let node = &mut self.nodes[ix];
            node.parent = moved.node(node.parent);
            self.children.insert((node.parent, node.start, node.ids[0]), NodeId(ix as u32));
        }
        self.nodes.shrink_to_fit();
        self.children.shrink_to_fit();
        moved
    }

    /// The path up to where its node leaves its parent.
    fn up(&self, path: BlockPath) -> BlockPath {
        let node = &self.nodes[path.node.ix()];
        BlockPath { node: node.parent, depth: node.start.min(path.depth) }
    }

    /// Longest prefix of `ids` that lies on the path `hint`.
    fn matching_prefix(&self, ids: &[u64], hint: BlockPath) -> BlockPath {
        let mut chain = Vec::new();
        let mut at = hint;
        while at.depth > 0 {
            chain.push(at);
            at = self.up(at);
        }
        let mut matched = BlockPath::EMPTY;
        for part in chain.iter().rev() {
            let node = &self.nodes[part.node.ix()];
            let known = &node.ids[..(part.depth - node.start) as usize];
            let asked = &ids[(node.start as usize).min(ids.len())..];
            let same = known.iter().zip(asked).take_while(|(a, b)| a == b).count();
            if same == 0 {
                break;
            }
            matched = BlockPath { node: part.node, depth: node.start + same as u32 };
            if same < known.len() {
                break;
            }
        }
        matched
    }

    /// Extends `at` along `ids` by at least one block.
    fn step(&mut self, at: BlockPath, ids: &[u64]) -> BlockPath {
        let next = ids[at.depth as usize];
        let node = &self.nodes[at.node.ix()];
        let within = &node.ids[(at.depth - node.start) as usize..];
        let same = within.iter().zip(&ids[at.depth as usize..]).take_while(|(a, b)| a == b).count();
        if same > 0 {
            return BlockPath { node: at.node, depth: at.depth + same as u32 };
        }
        if let Some(&child) = self.children.get(&(at.node, at.depth, next)) {
            return BlockPath { node: child, depth: at.depth + 1 };
        }
        let rest = &ids[at.depth as usize..];
        self.blocks += rest.len() as u64;
        let node = if within.is_empty() && at.node != NodeId::ROOT {
            self.nodes[at.node.ix()].ids.extend_from_slice(rest);
            at.node
        } else {
            let child = NodeId(u32::try_from(self.nodes.len()).expect("fewer than 2^32 branches"));
            self.nodes.push(Node { parent: at.node, start: at.depth, ids: rest.to_vec() });
            self.children.insert((at.node, at.depth, next), child);
            child
        };
        BlockPath { node, depth: ids.len() as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn common(a: &[u64], b: &[u64]) -> u32 {
        a.iter().zip(b).take_while(|(x, y)| x == y).count() as u32
    }

    #[test]
    fn an_appending_session_is_one_node() {
        let mut tree = BlockTree::new(64);
        let mut path = BlockPath::EMPTY;
        for turns in 1..=50u64 {
            path = tree.insert(&(0..turns * 3).collect::<Vec<_>>(), path);
        }
        assert_eq!((tree.node_count(), path.depth), (2, 150));
    }

    proptest! {
        #[test]
        fn what_is_kept_stays_the_same_and_what_is_not_is_forgotten(
            lists in prop::collection::vec((prop::collection::vec(0u64..3, 0..8), any::<bool>()), 1..20),
        ) {
            let mut tree = BlockTree::new(16);
            let paths: Vec<_> = lists.iter().map(|(list, _)| tree.insert(list, BlockPath::EMPTY)).collect();
            let kept: Vec<_> = lists.iter().zip(paths).filter(|((_, keep), _)| *keep).collect();
            let moved = tree.compact(&kept.iter().map(|(_, path)| path.node).collect::<Vec<_>>());
            let kept: Vec<_> = kept.into_iter().map(|((list, _), path)| (list, moved.path(path))).collect();
            if kept.is_empty() {
                prop_assert_eq!((tree.node_count(), tree.block_count()), (1, 0));
            }
            for (a, path_a) in &kept {
                prop_assert_eq!(&&tree.ids(*path_a), a);
                prop_assert_eq!(tree.insert(a, BlockPath::EMPTY), *path_a);
            }
            let again: Vec<_> = lists.iter().map(|(list, _)| tree.insert(list, BlockPath::EMPTY)).collect();
            for ((a, _), path_a) in lists.iter().zip(&again) {
                for ((b, _), path_b) in lists.iter().zip(&again) {
                    prop_assert_eq!(tree.common_depth(*path_a, *path_b), common(a, b));
                }
            }
            let blocks: usize = (1..tree.node_count()).map(|at| tree.node_ids(NodeId(at as u32)).len()).sum();
            prop_assert_eq!(tree.block_count(), blocks as u64);
        }

        #[test]
        fn paths_behave_like_the_lists_they_stand_for(
            lists in prop::collection::vec(prop::collection::vec(0u64..3, 0..8), 1..20),
        ) {
            let mut tree = BlockTree::new(16);
            let mut paths = Vec::new();
            for list in &lists {
                let hint = paths.last().copied().unwrap_or(BlockPath::EMPTY);
                paths.push(tree.insert(list, hint));
            }
            for (a, path_a) in lists.iter().zip(&paths) {
                prop_assert_eq!(&tree.ids(*path_a), a);
                for (b, path_b) in lists.iter().zip(&paths) {
                    prop_assert_eq!(tree.common_depth(*path_a, *path_b), common(a, b));
                }
                for depth in 0..=a.len() {
                    prop_assert_eq!(&tree.ids(tree.truncate(*path_a, depth as u32)), &a[..depth]);
                }
            }
        }
    }
}
