//! A publisher and a subscriber on one wire, beside a model of the cache.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::base::Time;
use crate::kv::index::{HashSpace, StreamId, StreamSpec};
use crate::kv::publish::{BUFFER_STEPS, Message, Publisher, PublisherOptions, TokenSource};
use crate::kv::sync::{Subscriber, SyncInput, SyncOptions, SyncOutput, SyncState};
use crate::kv::wire::EncodeForm;
use crate::kv::{BlockPath, BlockTokens, BlockTree, CacheChange, Dialect, NodeId, Tier};

const TOKENS: fn() -> BlockTokens = || BlockTokens::new(1000, 30_000);
const SEED: u64 = 1024;

/// What a cache holds, node by node.
#[derive(Debug, Default, Clone)]
struct Model(BTreeMap<NodeId, u32>);

impl Model {
    fn held(&self, tree: &BlockTree, node: NodeId) -> u32 {
        self.0.get(&node).copied().unwrap_or(tree.start(node))
    }

    fn store(&mut self, tree: &BlockTree, path: BlockPath) -> Vec<CacheChange> {
        let (mut changes, mut at) = (Vec::new(), path);
        while at.depth > 0 {
            let from = self.held(tree, at.node);
            if at.depth > from {
                changes.push(CacheChange { node: at.node, from, to: at.depth, stored: true });
                self.0.insert(at.node, at.depth);
            }
            at = BlockPath { node: tree.parent(at.node), depth: tree.start(at.node) };
        }
        changes.reverse();
        changes
    }

    /// Takes blocks off the end of a node, as far as nothing hangs on them.
    fn evict(&mut self, tree: &BlockTree, node: NodeId, blocks: u32) -> Vec<CacheChange> {
        let to = self.held(tree, node);
        let children = self.0.keys().filter(|child| tree.parent(**child) == node && **child != node);
        let needed = children.map(|child| tree.start(*child)).max().unwrap_or(0).max(tree.start(node));
        let from = to.saturating_sub(blocks).max(needed);
        if from >= to {
            return Vec::new();
        }
        if from == tree.start(node) {
            self.0.remove(&node)
        } else {
            self.0.insert(node, from)
        };
        vec![CacheChange { node, from, to, stored: false }]
    }

    fn prefix(&self, tree: &BlockTree, path: BlockPath) -> u32 {
        let mut at = path;
        while at.depth > 0 {
            if let Some(depth) = self.0.get(&at.node) {
                return at.depth.min(*depth);
            }
            at = BlockPath { node: tree.parent(at.node), depth: tree.start(at.node) };
        }
        0
    }
}

/// A publisher and a subscriber on one wire.
struct Pair {
    publisher: Publisher,
    subscriber: Subscriber,
    stream: StreamId,
    asked: Option<(u64, u32)>,
    now: Time,
}

fn options(form: EncodeForm, block_size: u32) -> PublisherOptions {
    PublisherOptions { form, block_size, topic: "kv".into(), dp_rank: 0, buffer_steps: BUFFER_STEPS }
}

impl Pair {
    fn new(form: EncodeForm, block_size: u32) -> Pair {
        let mut subscriber = Subscriber::new();
        let space = HashSpace { block_size, hash_seed: SEED };
        let spec = StreamSpec {
            instance: "P0".into(),
            dp_rank: 0,
            space,
            max_blocks: 100_000,
            incarnation: None,
            register_ts_ms: None,
        };
        let follow = SyncOptions { topic: "kv".into(), ..SyncOptions::new(form.dialect()) };
        let stream = subscriber.add(spec, follow, Time::ZERO).unwrap();
        let publisher = Publisher::new(options(form, block_size));
        Pair { publisher, subscriber, stream, asked: None, now: Time::ZERO }
    }

    fn input(&mut self, input: SyncInput<'_>) {
        let asked = &mut self.asked;
        self.subscriber.input(self.now, self.stream, input, |_, output| match output {
            SyncOutput::AskReplay { from, attempt } => *asked = Some((from, attempt)),
            SyncOutput::DropReplay => *asked = None,
            SyncOutput::Reconnect | SyncOutput::Changed(_) => {}
        });
    }

    fn live(&mut self, message: Option<Message>) {
        if let Some(frames) = message {
            self.input(SyncInput::Live(&frames));
        }
    }

    /// Lets time go on until the stream is in step.
    fn recover(&mut self, tree: &BlockTree) {
        for _ in 0..20 {
            if self.state() == SyncState::Synced {
                return;
            }
            self.now = self.subscriber.wake_at().expect("a stream out of step has a plan");
            self.input(SyncInput::Wake);
            if let Some((from, attempt)) = self.asked {
                for frames in self.publisher.answer(0.0, from, tree, &TOKENS()) {
                    self.input(SyncInput::Replay { attempt, frames: &frames });
                }
            }
        }
        panic!("never in step: {:?}", self.subscriber.stream(self.stream).unwrap().report(self.now));
    }

    fn state(&self) -> SyncState {
        self.subscriber.stream(self.stream).unwrap().state()
    }

    /// Tokens of a prompt on the device, and on the host only.
    fn hits(&self, tree: &BlockTree, path: BlockPath) -> (u64, u64) {
        let mut tokens = Vec::new();
        tree.ids(path).iter().for_each(|id| TOKENS().tokens(*id, tree.block_size(), &mut tokens));
        let found = &self.subscriber.index().query(&tokens)[0];
        (found.device_hit_tokens, found.host_only_hit_tokens)
    }
}

#[derive(Debug, Clone)]
enum Step {
    Store { prompt: usize, depth: u32 },
    Copy { prompt: usize, depth: u32 },
    Evict { node: usize, blocks: u32, tier: Tier },
    Lose,
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0usize..8, 1u32..9).prop_map(|(prompt, depth)| Step::Store { prompt, depth }),
        3 => (0usize..8, 1u32..9).prop_map(|(prompt, depth)| Step::Copy { prompt, depth }),
        4 => (0usize..12, 1u32..5, any::<bool>()).prop_map(|(node, blocks, device)| {
            Step::Evict { node, blocks, tier: if device { Tier::Device } else { Tier::Host } }
        }),
        1 => Just(Step::Lose),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..40)
}

fn forms() -> impl Strategy<Value = EncodeForm> {
    prop::sample::select(EncodeForm::ALL.to_vec())
}

proptest! {
    /// An index fed with a publisher's bytes holds what the cache holds, in every form, whatever the size of its blocks;
    /// also behind lost batches and new publishers.
    #[test]
    fn an_index_sees_the_cache(
        prompts in prop::collection::vec(prop::collection::vec(0u64..3, 1..9), 8),
        steps in steps(),
        form in forms(),
        trace_size in 1u32..6,
        size in 1u32..9,
    ) {
        // Blocks of few tokens may be equal by chance under different names: that is another test's.
        let (trace_size, size) = (trace_size * 4, size * 4);
        let mut tree = BlockTree::new(trace_size);
        let paths: Vec<BlockPath> = prompts.iter().map(|ids| tree.insert(ids, BlockPath::EMPTY)).collect();
        let mut pair = Pair::new(form, size);
        let (mut device, mut host) = (Model::default(), Model::default());
        pair.input(SyncInput::Connected);
        let first = pair.publisher.begin(0.0, &tree, &TOKENS());
        pair.live(Some(first));
        for step in steps {
            let mut changes = (Vec::new(), Vec::new());
            let mut is_lost = false;
            match step {
                Step::Store { prompt, depth } => changes.0 = device.store(&tree, tree.truncate(paths[prompt], depth)),
                Step::Copy { prompt, depth } => changes.1 = host.store(&tree, tree.truncate(paths[prompt], depth)),
                Step::Evict { node, blocks, tier } => {
                    let node = NodeId((node % tree.node_count()) as u32);
                    match tier {
                        Tier::Device => changes.0 = device.evict(&tree, node, blocks),
                        Tier::Host => changes.1 = host.evict(&tree, node, blocks),
                    }
                }
                Step::Lose => is_lost = true,
                Step::Restart => {
                    let again = pair.publisher.begin(0.0, &tree, &TOKENS());
                    pair.live(Some(again));
                }
            }
            if is_lost {
                // A step whose batch nobody hears.
                let all = device.store(&tree, paths[0]);
                pair.publisher.step(0.0, (&all, &[]), &tree, &TOKENS());
                continue;
            }
            let message = pair.publisher.step(0.0, (&changes.0, &changes.1), &tree, &TOKENS());
            pair.live(message);
            if pair.state() != SyncState::Synced {
                pair.recover(&tree);
            }
            let behind = pair.subscriber.index().statuses()[0].sequence != pair.publisher.last();
            if behind {
                // A lost batch shows with the next one only.
                continue;
            }
            let whole = |depth: u32| u64::from(depth * trace_size / size * size);
            for path in &paths {
                let on_device = whole(device.prefix(&tree, *path));
                let anywhere = on_device.max(if form.has_media() { whole(host.prefix(&tree, *path)) } else { 0 });
                prop_assert_eq!(pair.hits(&tree, *path), (on_device, anywhere - on_device));
            }
        }
        prop_assert_eq!(pair.publisher.cache().held(Tier::Device), &device.0);
        prop_assert_eq!(pair.publisher.cache().held(Tier::Host), &host.0);
    }

    /// Names do not depend on when they are asked for, and outlive a compaction of the tree.
    #[test]
    fn names_stay(prompts in prop::collection::vec(prop::collection::vec(0u64..3, 1..9), 2..8)) {
        let mut tree = BlockTree::new(16);
        let paths: Vec<BlockPath> = prompts.iter().map(|ids| tree.insert(ids, BlockPath::EMPTY)).collect();
        let mut publisher = Publisher::new(options(EncodeForm::XLLM, 16));
        let mut model = Model::default();
        let changes = model.store(&tree, paths[0]);
        publisher.step(0.0, (&changes, &[]), &tree, &TOKENS());
        let before = publisher.answer(0.0, 0, &tree, &TOKENS());
        let kept: Vec<NodeId> = model.0.keys().copied().collect();
        let moved = tree.compact(&kept);
        publisher.follow(&moved);
        prop_assert_eq!(publisher.answer(0.0, 0, &tree, &TOKENS()), before);
    }
}

#[test]
fn a_ring_keeps_its_last_batches_and_a_snapshot_is_as_of_the_last() {
    let mut tree = BlockTree::new(16);
    let path = tree.insert(&(0..8).collect::<Vec<u64>>(), BlockPath::EMPTY);
    let sequences = |form: EncodeForm| {
        let mut publisher = Publisher::new(PublisherOptions { buffer_steps: 3, ..options(form, 16) });
        let mut model = Model::default();
        publisher.begin(0.0, &tree, &TOKENS());
        for depth in 1..=8 {
            let changes = model.store(&tree, tree.truncate(path, depth));
            publisher.step(0.0, (&changes, &[]), &tree, &TOKENS()).unwrap();
        }
        let answers = publisher.answer(0.0, 7, &tree, &TOKENS());
        let number = |frames: &Message| u64::from_be_bytes(frames[frames.len() - 2].as_slice().try_into().unwrap());
        answers.iter().map(number).collect::<Vec<u64>>()
    };
    assert_eq!(sequences(EncodeForm::XLLM), [8, u64::MAX]);
    assert_eq!(sequences(EncodeForm::current(Dialect::Vllm)), [7, 8, u64::MAX]);
    assert_eq!(sequences(EncodeForm::current(Dialect::Sglang)), [7, 8, u64::MAX]);
}

#[test]
fn a_step_that_changes_nothing_is_not_told() {
    let mut tree = BlockTree::new(4);
    let path = tree.insert(&[1, 2], BlockPath::EMPTY);
    let mut publisher = Publisher::new(options(EncodeForm::XLLM, 16));
    publisher.begin(0.0, &tree, &TOKENS());
    assert_eq!(publisher.step(0.0, (&[], &[]), &tree, &TOKENS()), None);
    let half = [CacheChange { node: path.node, from: 0, to: 2, stored: true }];
    assert_eq!(publisher.step(0.0, (&half, &[]), &tree, &TOKENS()), None, "no block of 16 tokens is whole");
    assert_eq!(publisher.last(), Some(0));
}
