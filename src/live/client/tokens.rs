//! [`Tokens`]: the token ids that stand for a turn's blocks, as text ready for a body.
//!
//! Block `k` of hash id `h` is a seeded sequence of `h` alone, so equal ids give equal tokens; what no id covers is
//! seeded by the turn at the end of the chain it belongs to, so that a prompt always begins with the prompt and answer
//! it extends. Texts are kept per node of the block tree, the least recently used dropped beyond a budget of bytes.
//! Invariant: one (trace, range of ids) gives the same tokens everywhere, whatever was kept or dropped.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use memchr::memchr_iter;

use crate::base::{RequestIx, Rng};
use crate::kv::{BlockPath, BlockTokens, BlockTree, NodeId};
use crate::live::decimal::{Decimal, decimal};
use crate::trace::Trace;

/// Stream of the generator of what no block covers.
const FILLER: u64 = 2;

/// See the module.
#[derive(Debug)]
pub(super) struct Tokens {
    trace: Arc<Trace>,
    ids: BlockTokens,
    // Bytes of the longest id and its comma.
    width: usize,
    cache: Cache,
}

/// Texts of the blocks of one node, `1,2,3,` and so on, as deep as they were needed.
#[derive(Debug, Default)]
struct NodeText {
    text: Vec<u8>,
    /// End of each block in `text`.
    ends: Vec<usize>,
    used: u64,
}

#[derive(Debug)]
struct Cache {
    nodes: HashMap<NodeId, NodeText>,
    by_use: BTreeMap<u64, NodeId>,
    uses: u64,
    bytes: usize,
    budget: usize,
}

/// Blocks of a path that lie in one node.
#[derive(Debug, Clone, Copy)]
struct Part {
    node: NodeId,
    start: u32,
    end: u32,
}

impl Tokens {
    /// Ids are `ids.0` and the `ids.1 - 1` after it; `budget` bytes of text are kept.
    pub fn new(trace: &Arc<Trace>, ids: (u32, u32), budget: usize) -> Tokens {
        let cache = Cache { nodes: HashMap::new(), by_use: BTreeMap::new(), uses: 0, bytes: 0, budget };
        let ids = BlockTokens::new(ids.0, ids.1);
        let width = ids.last().to_string().len() + 1;
        Tokens { trace: Arc::clone(trace), ids, width, cache }
    }

    /// Appends tokens `range` of a turn's prompt and answer to `out`, with commas between them.
    pub fn write(&mut self, out: &mut Vec<u8>, request: RequestIx, range: Range<u32>) {
        if range.is_empty() {
            return;
        }
        let (source, path) = self.source(request, range.end);
        let size = self.trace.tree.block_size();
        let covered = path.depth.saturating_mul(size);
        let in_blocks = range.start.min(covered)..range.end.min(covered);
        if !in_blocks.is_empty() {
            self.write_blocks(out, path, in_blocks);
        }
        if range.end > covered {
            self.write_filler(out, source, range.start.max(covered) - covered..range.end - covered);
        }
        out.pop();
    }

    /// Bytes that so many tokens and their commas take at most.
    pub fn most_bytes(&self, tokens: u32) -> usize {
        tokens as usize * self.width
    }

    /// The body of a turn is written: after a session's last one, what it alone can have needed is dropped.
    pub fn written(&mut self, request: RequestIx) {
        let turn = self.trace.turn(request);
        if self.trace.sessions[turn.session.ix()].turns.end == request.0 + 1 {
            self.cache.drop(turn.context.node);
        }
    }

    /// The turn whose blocks name the first `tokens` of this one, as far as any does: itself, or one that extends it.
    fn source(&self, request: RequestIx, tokens: u32) -> (RequestIx, BlockPath) {
        let turns = &self.trace.turns;
        let last = self.trace.sessions[turns[request.ix()].session.ix()].turns.end as usize;
        let mut at = request.ix();
        let enough = |at: usize| turns[at].context.depth.saturating_mul(self.trace.tree.block_size()) >= tokens;
        while !enough(at) && at + 1 < last && turns[at + 1].extends_previous {
            at += 1;
        }
        (RequestIx(at as u32), turns[at].context)
    }

    fn write_blocks(&mut self, out: &mut Vec<u8>, path: BlockPath, tokens: Range<u32>) {
        let trace = Arc::clone(&self.trace);
        let size = trace.tree.block_size();
        let (from, to) = (tokens.start / size, tokens.end.div_ceil(size));
        for part in parts(&trace.tree, path) {
            let (start, end) = (part.start.max(from), part.end.min(to));
            if start >= end {
                continue;
            }
            self.fill(part.node, end);
            let node = &self.cache.nodes[&part.node];
            let node_start = trace.tree.start(part.node);
            let bounds = |block: u32| {
                let ix = (block - node_start) as usize;
                let begin = if ix == 0 { 0 } else { node.ends[ix - 1] };
                begin..node.ends[ix]
            };
            let mut text = bounds(start).start..bounds(end - 1).end;
            if start * size < tokens.start {
                text.start += offset_of(&node.text[bounds(start)], tokens.start - start * size);
            }
            if end * size > tokens.end {
                let last = bounds(end - 1);
                text.end = last.start + offset_of(&node.text[last], tokens.end - (end - 1) * size);
            }
            out.extend_from_slice(&node.text[text]);
        }
        self.cache.shrink();
    }

    /// Makes the texts of a node up to block `end` of the path, and marks it used.
    fn fill(&mut self, node: NodeId, end: u32) {
        let tree = &self.trace.tree;
        let wanted = (end - tree.start(node)) as usize;
        let text = self.cache.nodes.entry(node).or_default();
        let before = text.bytes();
        let missing = wanted.saturating_sub(text.ends.len());
        text.text.reserve_exact(missing * tree.block_size() as usize * self.width + Decimal::ROOM);
        text.ends.reserve_exact(missing);
        for &id in &tree.node_ids(node)[text.ends.len().min(wanted)..wanted] {
            write_ids(&mut text.text, self.ids.of_block(id, tree.block_size()));
            text.ends.push(text.text.len());
        }
        let more = text.bytes() - before;
        self.cache.touch(node, more);
    }

    fn write_filler(&self, out: &mut Vec<u8>, source: RequestIx, tokens: Range<u32>) {
        let turn = self.trace.turn(source);
        let mut rng = Rng::new((u64::from(turn.session.0) << 32) | u64::from(source.0), FILLER);
        for _ in 0..tokens.start {
            rng.u64();
        }
        write_ids(out, self.ids.drawn(rng, tokens.end - tokens.start));
    }
}

impl NodeText {
    fn bytes(&self) -> usize {
        self.text.capacity() + self.ends.capacity() * size_of::<usize>()
    }
}

impl Cache {
    fn touch(&mut self, node: NodeId, more: usize) {
        self.bytes += more;
        self.uses += 1;
        let used = self.nodes.get_mut(&node).map(|text| std::mem::replace(&mut text.used, self.uses));
        used.map(|used| self.by_use.remove(&used));
        self.by_use.insert(self.uses, node);
    }

    fn shrink(&mut self) {
        while self.bytes > self.budget {
            let Some(node) = self.by_use.first_key_value().map(|(_, node)| *node) else { return };
            self.drop(node);
        }
    }

    fn drop(&mut self, node: NodeId) {
        let Some(dropped) = self.nodes.remove(&node) else { return };
        self.by_use.remove(&dropped.used);
        self.bytes -= dropped.bytes();
    }
}

/// The nodes along a path, from the root, with the blocks of it that lie in each.
fn parts(tree: &BlockTree, path: BlockPath) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut at = path;
    while at.depth > 0 {
        let start = tree.start(at.node);
        parts.push(Part { node: at.node, start, end: at.depth });
        at = BlockPath { node: tree.parent(at.node), depth: start.min(at.depth) };
    }
    parts.reverse();
    parts
}

/// Where token `nth` of a text `1,2,3,` begins; its end when there are only so many.
fn offset_of(text: &[u8], nth: u32) -> usize {
    match nth.checked_sub(1) {
        None => 0,
        Some(before) => memchr_iter(b',', text).nth(before as usize).map_or(text.len(), |comma| comma + 1),
    }
}

fn write_ids(out: &mut Vec<u8>, ids: impl Iterator<Item = u32>) {
    for id in ids {
        decimal(id).push_to(out);
        out.push(b',');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::client::tests::support::trace_of;

    fn ids(tokens: &mut Tokens, request: u32, range: Range<u32>) -> Vec<u32> {
        let mut out = Vec::new();
        tokens.write(&mut out, RequestIx(request), range);
        if out.is_empty() {
            return Vec::new();
        }
        String::from_utf8(out).unwrap().split(',').map(|id| id.parse().unwrap()).collect()
    }

    /// Two sessions of three turns with a shared first block; blocks of 64, prompts that end inside one.
    fn chain() -> Arc<Trace> {
        let row = |session: &str, turn: u32, input: u32, ids: &[u64]| {
            format!(
                r#"{{"session_id":"{session}","turn_id":{turn},"timestamp":{turn},"input_length":{input},"output_length":70,"hash_ids":{ids:?}}}"#
            )
        };
        trace_of(&[
            row("a", 0, 100, &[7, 8]),
            row("b", 0, 100, &[7, 9]),
            row("a", 1, 200, &[7, 80, 81, 82]),
            row("b", 1, 64, &[7]),
            row("a", 2, 300, &[7, 80, 81, 83, 84]),
        ])
    }

    #[test]
    fn a_prompt_begins_with_the_prompt_and_answer_it_extends() {
        let trace = chain();
        let mut tokens = Tokens::new(&trace, (1000, 30_000), 1 << 20);
        let [first, second, third] = [0, 1, 2].map(|turn| ids(&mut tokens, turn, 0..[170, 270, 370][turn as usize]));
        assert_eq!((first.len(), second.len(), third.len()), (170, 270, 370));
        assert_eq!(first, second[..170]);
        assert_eq!(second, third[..270]);
        assert!(first.iter().all(|id| (1000..31_000).contains(id)));
    }

    #[test]
    fn equal_ids_are_equal_blocks_and_others_are_not() {
        let trace = chain();
        let mut tokens = Tokens::new(&trace, (1000, 30_000), 1 << 20);
        let (a, b) = (ids(&mut tokens, 0, 0..170), ids(&mut tokens, 3, 0..170));
        assert_eq!(a[..64], b[..64]);
        assert_ne!(a[64..128], b[64..128]);
        assert_ne!(a[128..], b[128..]);
    }

    #[test]
    fn any_part_is_that_part_of_the_whole_even_without_room_to_keep_any() {
        let trace = chain();
        let mut roomy = Tokens::new(&trace, (5, 3000), 1 << 20);
        let mut tight = Tokens::new(&trace, (5, 3000), 1);
        for request in 0..5 {
            let whole = ids(&mut roomy, request, 0..370);
            for range in [0..1, 0..64, 63..65, 64..128, 10..300, 127..370, 369..370, 5..5] {
                let wanted = &whole[range.start as usize..range.end as usize];
                assert_eq!(ids(&mut tight, request, range.clone()), wanted, "{request} {range:?}");
                assert_eq!(ids(&mut roomy, request, range), wanted);
            }
        }
        assert_eq!(tight.cache.bytes, 0, "the budget holds");
        assert!(roomy.cache.bytes > 0);
        (0..trace.turns.len()).for_each(|at| roomy.written(RequestIx(at as u32)));
        assert_eq!(roomy.cache.bytes, 0, "nothing is left of sessions that have sent their last turn");
    }
}
