//! Random histories of several streams against a model that knows nothing of hashes, slots or chains of blocks.
//!
//! A prompt is three strands of [`STRAND`] blocks, each of one of [`KINDS`]: long enough to cross a group, few enough to
//! ask for all of them. The model writes down, per name, which prefix it stands for and where it is.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::{batch, removed, show, spec, stored};
use crate::kv::index::{Mode, PrefixIndex, StreamWriter};
use crate::kv::{EngineHash, EventBatch, KvEvent, Tier};

const STRAND: usize = 31;
const KINDS: u64 = 2;
const DEPTH: usize = 3 * STRAND;
const STREAMS: usize = 3;

type Path = [u64; 3];
/// A prefix: the kinds of its strands as one number, and its length in blocks.
type Prefix = (u64, usize);

/// A draw, made an event by what the model knows at the time.
#[derive(Debug, Clone)]
enum Draw {
    Store { path: Path, start: usize, len: usize, alias: u64, tier: Tier },
    Replica { path: Path, start: usize, len: usize, alias: u64, tier: Tier },
    Remove { path: Path, start: usize, len: usize, alias: u64, tier: Tier },
    Foreign { path: Path, start: usize },
    Clear,
}

#[derive(Debug, Clone)]
enum Step {
    Delta(Vec<Draw>),
    Snapshot(Vec<Draw>),
    Invalidate,
}

#[derive(Debug, Clone, Default)]
struct Entry {
    /// Unknown when outside.
    prefix: Option<Prefix>,
    tiers: BTreeSet<Tier>,
}

/// What a stream holds; `None` when it is not synchronised.
type Model = Option<BTreeMap<u64, Entry>>;

fn prefix(path: Path, block: usize) -> Prefix {
    let strands = &path[..=block / STRAND];
    (strands.iter().fold(1, |code, kind| code * KINDS + kind), block)
}

/// Aliases 0 and 1 are two names of a block; 2 is a name that blocks of all prompts share.
fn name(path: Path, block: usize, alias: u64) -> u64 {
    let (code, block) = prefix(path, block);
    if alias == 2 { 7_000_000 + block as u64 } else { code * 1000 + block as u64 + alias * 1_000_000 }
}

fn tokens(path: Path, blocks: std::ops::Range<usize>) -> Vec<u32> {
    blocks.flat_map(|block| [path[block / STRAND] as u32 * 1000 + block as u32; 4]).collect()
}

fn paths() -> impl Iterator<Item = Path> {
    (0..KINDS.pow(3)).map(|code| [code % KINDS, code / KINDS % KINDS, code / KINDS / KINDS])
}

/// A block from which on a run can begin: mostly one behind a block that is known.
fn beginning(model: &BTreeMap<u64, Entry>, path: Path, draw: usize) -> usize {
    if draw.is_multiple_of(23) {
        return draw % DEPTH;
    }
    let known = |block: &usize| model.contains_key(&name(path, block - 1, 0));
    let known: Vec<usize> = std::iter::once(0).chain((1..DEPTH).filter(known)).collect();
    known[draw % known.len()]
}

fn event(model: &BTreeMap<u64, Entry>, draw: &Draw) -> KvEvent {
    let names = |path: Path, start: usize, len: usize, alias: u64| -> Vec<u64> {
        (start..(start + len).min(DEPTH)).map(|block| name(path, block, alias)).collect()
    };
    match *draw {
        Draw::Clear => KvEvent::Cleared,
        Draw::Foreign { path, start } => {
            KvEvent::Foreign { hashes: names(path, start % DEPTH, 2, 0).into_iter().map(EngineHash).collect() }
        }
        Draw::Remove { path, start, len, alias, tier } => removed(&names(path, start % DEPTH, len, alias), tier),
        Draw::Replica { path, start, len, alias, tier } => {
            let mut names = names(path, beginning(model, path, start).saturating_sub(1), len, alias);
            // One that is not known may stay now and then.
            names.retain(|name| model.contains_key(name) || start.is_multiple_of(29));
            stored(&names, None, &[], tier)
        }
        Draw::Store { path, start, len, alias, tier } => {
            let start = beginning(model, path, start);
            let end = (start + len).min(DEPTH);
            let parent = start.checked_sub(1).map(|parent| name(path, parent, 0));
            stored(&names(path, start, len, alias), parent, &tokens(path, start..end), tier)
        }
    }
}

/// False when the event is an error.
fn apply(model: &mut BTreeMap<u64, Entry>, event: &KvEvent, mode: Mode, contents: &[Prefix]) -> bool {
    match event {
        KvEvent::Cleared => model.clear(),
        KvEvent::Foreign { hashes } => return hashes.iter().all(|hash| put_outside(model, hash.0, Tier::Device)),
        KvEvent::Removed(removed) => {
            for hash in &removed.hashes {
                if let Some(entry) = model.get_mut(&hash.0) {
                    entry.tiers.retain(|&tier| entry.prefix.is_some() && tier != removed.tier);
                }
            }
        }
        KvEvent::Stored(stored) if stored.is_tokenless() => {
            for hash in &stored.hashes {
                if mode == Mode::Delta && !model.contains_key(&hash.0) {
                    return false;
                }
                model.entry(hash.0).or_default().tiers.insert(stored.tier);
            }
        }
        KvEvent::Stored(stored) => {
            let parent = stored.parent.map(|parent| model.get(&parent.0).map(|parent| parent.prefix));
            match parent {
                Some(None) if mode == Mode::Delta => return false,
                Some(None | Some(None)) => {
                    return stored.hashes.iter().all(|hash| put_outside(model, hash.0, stored.tier));
                }
                None | Some(Some(Some(_))) => {}
            }
            return stored.hashes.iter().zip(contents).all(|(hash, &content)| put(model, hash.0, content, stored.tier));
        }
    }
    true
}

fn put(model: &mut BTreeMap<u64, Entry>, name: u64, content: Prefix, tier: Tier) -> bool {
    let entry = model.entry(name).or_default();
    if entry.prefix != Some(content) {
        if entry.prefix.is_some() && !entry.tiers.is_empty() {
            return false;
        }
        *entry = Entry { prefix: Some(content), tiers: BTreeSet::new() };
    }
    entry.tiers.insert(tier);
    true
}

fn put_outside(model: &mut BTreeMap<u64, Entry>, name: u64, tier: Tier) -> bool {
    let entry = model.entry(name).or_default();
    if entry.prefix.is_some() && !entry.tiers.is_empty() {
        return false;
    }
    entry.prefix = None;
    entry.tiers.insert(tier);
    true
}

/// The prefixes that a store's blocks stand for. A parent under a shared name stands for what it was stored with.
fn contents(model: &BTreeMap<u64, Entry>, draw: &Draw) -> Vec<Prefix> {
    let Draw::Store { path, start, len, .. } = *draw else { return Vec::new() };
    let start = beginning(model, path, start);
    (start..(start + len).min(DEPTH)).map(|block| prefix(path, block)).collect()
}

/// Plays draws into a copy of the model; the events, and the model unless one was an error.
fn played(model: &BTreeMap<u64, Entry>, draws: &[Draw], mode: Mode) -> (EventBatch, Model) {
    let (mut model, mut good, mut events) = (model.clone(), true, Vec::new());
    for draw in draws {
        let event = event(&model, draw);
        let contents = contents(&model, draw);
        good = good && apply(&mut model, &event, mode, &contents);
        events.push(event);
    }
    (batch(events), good.then_some(model))
}

fn play(writer: &mut StreamWriter, model: &mut Model, step: &Step, sequence: u64) {
    match step {
        Step::Invalidate => {
            writer.invalidate("told to");
            *model = None;
        }
        Step::Snapshot(draws) => {
            let (batch, next) = played(&BTreeMap::new(), draws, Mode::Snapshot);
            let mut shadow = writer.shadow();
            let outcome = shadow.apply(&batch, Mode::Snapshot);
            assert_eq!(outcome.is_ok(), next.is_some(), "{outcome:?}");
            if next.is_some() {
                writer.replace_by(shadow, sequence);
                *model = next;
            }
        }
        Step::Delta(draws) => {
            let (batch, next) = played(model.as_ref().unwrap_or(&BTreeMap::new()), draws, Mode::Delta);
            let outcome = writer.apply(&batch, sequence);
            *model = next.filter(|_| model.is_some());
            assert_eq!(outcome.is_ok(), model.is_some(), "{outcome:?}");
        }
    }
}

/// Blocks of a path in a row, on the device, and in host memory only.
fn expected(model: &Model, path: Path) -> (u64, u64) {
    let Some(model) = model else { return (0, 0) };
    let tiers = |block: usize, tier: Tier| {
        model.values().any(|entry| entry.prefix == Some(prefix(path, block)) && entry.tiers.contains(&tier))
    };
    let (mut device, mut host_only) = (0, 0);
    for block in 0..DEPTH {
        if tiers(block, Tier::Device) {
            device += 4;
        } else if tiers(block, Tier::Host) {
            host_only += 4;
        } else {
            break;
        }
    }
    (device, host_only)
}

fn resident(model: &Model, tier: Tier) -> u64 {
    let entries = model.iter().flat_map(BTreeMap::values);
    entries.filter(|entry| entry.tiers.contains(&tier)).filter_map(|entry| entry.prefix).collect::<BTreeSet<_>>().len()
        as u64
}

fn draw() -> impl Strategy<Value = Draw> {
    let path = prop::array::uniform3(0..KINDS);
    let tier = prop_oneof![3 => Just(Tier::Device), 1 => Just(Tier::Host)];
    let alias = prop_oneof![12 => Just(0u64), 3 => Just(1u64), 1 => Just(2u64)];
    let run = (0usize..10_000, 1usize..50);
    prop_oneof![
        8 => (path.clone(), run.clone(), alias.clone(), tier.clone())
            .prop_map(|(path, (start, len), alias, tier)| Draw::Store { path, start, len, alias, tier }),
        3 => (path.clone(), run.clone(), alias.clone(), tier.clone())
            .prop_map(|(path, (start, len), alias, tier)| Draw::Replica { path, start, len, alias, tier }),
        5 => (path.clone(), run, alias, tier)
            .prop_map(|(path, (start, len), alias, tier)| Draw::Remove { path, start, len, alias, tier }),
        1 => (path, 0usize..10_000).prop_map(|(path, start)| Draw::Foreign { path, start }),
        1 => Just(Draw::Clear),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => prop::collection::vec(draw(), 1..5).prop_map(Step::Delta),
        3 => prop::collection::vec(draw(), 1..8).prop_map(Step::Snapshot),
        1 => Just(Step::Invalidate),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn any_history_of_streams_gives_what_the_model_holds(
        steps in prop::collection::vec((0..STREAMS, step()), 1..30),
    ) {
        let index = PrefixIndex::new();
        let mut streams: Vec<(StreamWriter, Model)> = (0..STREAMS)
            .map(|at| {
                let mut writer = index.add_stream(spec(&format!("s{at}"), 100_000)).unwrap();
                show(&mut writer, Vec::new(), 0);
                (writer, Some(BTreeMap::new()))
            })
            .collect();
        for (sequence, (at, step)) in steps.iter().enumerate() {
            let (writer, model) = &mut streams[*at];
            play(writer, model, step, sequence as u64);
            for path in paths() {
                let found = index.query(&tokens(path, 0..DEPTH));
                for (found, (_, model)) in found.iter().zip(&streams) {
                    prop_assert_eq!(super::hits(found), expected(model, path));
                    prop_assert_eq!(found.stream.synchronized, model.is_some());
                    prop_assert_eq!(found.stream.device_blocks, resident(model, Tier::Device));
                    prop_assert_eq!(found.stream.host_blocks, resident(model, Tier::Host));
                    let names = model.as_ref().map_or(0, BTreeMap::len);
                    prop_assert_eq!(found.stream.mappings, names as u64);
                }
            }
        }
        drop(streams);
        prop_assert_eq!(index.blocks(), 0);
    }
}
