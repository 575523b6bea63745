//! Random histories of several streams against a model that knows nothing of hashes, slots or chains of blocks.
//!
//! A prompt is three strands of [`STRAND`] blocks, each of one of [`KINDS`]: long enough to cross a group, few enough to
//! ask for all of them. The model writes down, per name, which prefix it stands for and where it is. It never forgets a
//! name: a stream with a small limit may refuse what the model takes, and then has nothing; what it takes is the same.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::{batch, removed, show, spec, stored};
use crate::kv::index::{Applied, ApplyError, Mode, PrefixIndex, StreamWriter};
use crate::kv::{EngineHash, EventBatch, KvEvent, Tier};

const STRAND: usize = 31;
const KINDS: u64 = 2;
const DEPTH: usize = 3 * STRAND;
const STREAMS: usize = 3;
/// Names that a stream may know: nearly none, some, and more than there are.
const LIMITS: [usize; 5] = [2, 6, 40, 150, 100_000];
/// Names that more than one prefix may have in turn, or that are no block's only name, begin here.
const SHARED: u64 = 1_000_000;

type Path = [u64; 3];
/// A prefix: the kinds of its strands as one number, and its length in blocks.
type Prefix = (u64, usize);

/// A draw, made an event by what the model knows at the time.
#[derive(Debug, Clone)]
enum Draw {
    Store {
        path: Path,
        start: usize,
        len: usize,
        alias: u64,
        tier: Tier,
    },
    Replica {
        path: Path,
        start: usize,
        len: usize,
        alias: u64,
        tier: Tier,
    },
    Remove {
        path: Path,
        start: usize,
        len: usize,
        alias: u64,
        tier: Tier,
    },
    Foreign {
        path: Path,
        start: usize,
    },
    /// A name leaves both tiers and comes again, for a prefix or under a foreign context.
    Again {
        nth: usize,
        path: Path,
        start: usize,
        tier: Tier,
        foreign: bool,
    },
    Clear,
}

#[derive(Debug, Clone)]
enum Step {
    Delta(Vec<Draw>),
    Snapshot(Vec<Draw>),
    /// Changes of a state that begins with nothing, batch by batch; served in the end, or not wanted any more.
    History {
        batches: Vec<Vec<Draw>>,
        is_served: bool,
    },
    Invalidate,
    /// The stream leaves the index, and another one comes.
    Replace,
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

fn events(model: &BTreeMap<u64, Entry>, draw: &Draw) -> Vec<KvEvent> {
    let names = |path: Path, start: usize, len: usize, alias: u64| -> Vec<u64> {
        (start..(start + len).min(DEPTH)).map(|block| name(path, block, alias)).collect()
    };
    let event = match *draw {
        Draw::Again { nth, path, start, tier, foreign } => {
            let known: Vec<u64> = model.keys().copied().filter(|name| foreign || *name >= SHARED).collect();
            let Some(&name) = known.get(nth % known.len().max(1)) else { return Vec::new() };
            let start = beginning(model, path, start);
            let parent = start.checked_sub(1).map(|parent| self::name(path, parent, 0));
            let again = if foreign {
                KvEvent::Foreign { hashes: vec![EngineHash(name)] }
            } else {
                stored(&[name], parent, &tokens(path, start..start + 1), tier)
            };
            return vec![removed(&[name], Tier::Device), removed(&[name], Tier::Host), again];
        }
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
    };
    vec![event]
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
    let (path, start, len) = match *draw {
        Draw::Store { path, start, len, .. } => (path, start, len),
        Draw::Again { path, start, foreign: false, .. } => (path, start, 1),
        _ => return Vec::new(),
    };
    let start = beginning(model, path, start);
    (start..(start + len).min(DEPTH)).map(|block| prefix(path, block)).collect()
}

/// Plays draws into a copy of the model; the events, and the model unless one was an error.
fn played(model: &BTreeMap<u64, Entry>, draws: &[Draw], mode: Mode) -> (EventBatch, Model) {
    let (mut model, mut good, mut events) = (model.clone(), true, Vec::new());
    for draw in draws {
        let contents = contents(&model, draw);
        for event in self::events(&model, draw) {
            good = good && apply(&mut model, &event, mode, &contents);
            events.push(event);
        }
    }
    (batch(events), good.then_some(model))
}

/// The model after a batch, by what the stream made of it. Whoever may know few names may refuse more, never less.
fn judged(outcome: Result<Applied, ApplyError>, next: Model, limit: usize) -> Model {
    let forgot = matches!(
        outcome,
        Err(ApplyError::IndexLimit { .. } | ApplyError::UnknownParent { .. } | ApplyError::UnknownReplica { .. })
    );
    let may_differ = forgot && limit < 100_000;
    assert!(outcome.is_ok() == next.is_some() || may_differ, "{outcome:?}, limit {limit}");
    next.filter(|_| outcome.is_ok())
}

/// What a snapshot can be made of where names are forgotten: one that was forgotten would be outside, and not for the model.
fn fit_for_snapshots(draws: &[Draw], limit: usize) -> Vec<Draw> {
    let is_fit = |draw: &&Draw| {
        limit == 100_000
            || matches!(draw, Draw::Store { .. } | Draw::Replica { .. } | Draw::Foreign { .. } | Draw::Clear)
    };
    draws.iter().filter(is_fit).cloned().collect()
}

fn play(index: &PrefixIndex, stream: &mut (StreamWriter, Model), step: &Step, sequence: u64) {
    let (writer, model) = stream;
    let limit = writer.spec().max_blocks;
    match step {
        Step::Invalidate => {
            writer.invalidate("told to");
            *model = None;
        }
        Step::Replace => {
            let (name, spec) = (writer.spec().instance.clone(), writer.spec().clone());
            // The next one is there before, or comes after: the slot is another's or its own.
            let other = format!("{}{}", &name[..2], if name.len() > 2 { "" } else { "x" });
            *writer = index.add_stream(crate::kv::index::StreamSpec { instance: other, ..(*spec).clone() }).unwrap();
            show(writer, Vec::new(), sequence);
            *model = Some(BTreeMap::new());
        }
        Step::Snapshot(draws) => {
            let (batch, next) = played(&BTreeMap::new(), &fit_for_snapshots(draws, limit), Mode::Snapshot);
            let mut shadow = writer.shadow();
            let next = judged(shadow.apply(&batch, Mode::Snapshot), next, limit);
            if next.is_some() {
                writer.replace_by(shadow, sequence);
                *model = next;
            }
        }
        Step::History { batches, is_served } => {
            let (mut shadow, mut whole) = (writer.shadow(), Some(BTreeMap::new()));
            for draws in batches {
                let Some(known) = &whole else { break };
                let (batch, next) = played(known, draws, Mode::Delta);
                whole = judged(shadow.apply(&batch, Mode::Delta), next, limit);
            }
            if *is_served && whole.is_some() {
                writer.replace_by(shadow, sequence);
                *model = whole;
            }
        }
        Step::Delta(draws) => {
            let (batch, next) = played(model.as_ref().unwrap_or(&BTreeMap::new()), draws, Mode::Delta);
            let outcome = writer.apply(&batch, sequence);
            if model.is_none() {
                assert_eq!(outcome, Err(ApplyError::NotSynchronized));
            } else {
                *model = judged(outcome, next, limit);
            }
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
    let run = (0usize..10_000, prop_oneof![1usize..4, 1usize..50]);
    let again = tier.clone();
    prop_oneof![
        8 => (path.clone(), run.clone(), alias.clone(), tier.clone())
            .prop_map(|(path, (start, len), alias, tier)| Draw::Store { path, start, len, alias, tier }),
        3 => (path.clone(), run.clone(), alias.clone(), tier.clone())
            .prop_map(|(path, (start, len), alias, tier)| Draw::Replica { path, start, len, alias, tier }),
        5 => (path.clone(), run, alias, tier.clone())
            .prop_map(|(path, (start, len), alias, tier)| Draw::Remove { path, start, len, alias, tier }),
        1 => (path.clone(), 0usize..10_000).prop_map(|(path, start)| Draw::Foreign { path, start }),
        3 => (0usize..10_000, path, 0usize..10_000, again, any::<bool>())
            .prop_map(|(nth, path, start, tier, foreign)| Draw::Again { nth, path, start, tier, foreign }),
        1 => Just(Draw::Clear),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => prop::collection::vec(draw(), 1..5).prop_map(Step::Delta),
        3 => prop::collection::vec(draw(), 1..8).prop_map(Step::Snapshot),
        2 => (prop::collection::vec(prop::collection::vec(draw(), 1..8), 1..4), any::<bool>())
            .prop_map(|(batches, is_served)| Step::History { batches, is_served }),
        1 => Just(Step::Invalidate),
        1 => Just(Step::Replace),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn any_history_of_streams_gives_what_the_model_holds(
        steps in prop::collection::vec((0..STREAMS, step()), 1..30),
        limits in prop::array::uniform3(prop::sample::select(LIMITS.to_vec())),
    ) {
        let index = PrefixIndex::new();
        let mut streams: Vec<(StreamWriter, Model)> = (0..STREAMS)
            .map(|at| {
                let mut writer = index.add_stream(spec(&format!("s{at}"), limits[at])).unwrap();
                show(&mut writer, Vec::new(), 0);
                (writer, Some(BTreeMap::new()))
            })
            .collect();
        for (sequence, (at, step)) in steps.iter().enumerate() {
            play(&index, &mut streams[*at], step, sequence as u64);
            let known: u64 = index.statuses().iter().map(|status| status.mappings).sum();
            prop_assert!(index.blocks() <= known, "{} blocks of {known} names", index.blocks());
            for path in paths() {
                let found = index.query(&tokens(path, 0..DEPTH));
                for (found, (_, model)) in found.iter().zip(&streams) {
                    prop_assert_eq!(super::hits(found), expected(model, path));
                    prop_assert_eq!(found.stream.synchronized, model.is_some());
                    prop_assert_eq!(found.stream.device_blocks, resident(model, Tier::Device));
                    prop_assert_eq!(found.stream.host_blocks, resident(model, Tier::Host));
                    let names = model.as_ref().map_or(0, BTreeMap::len);
                    let limit = found.stream.spec.max_blocks;
                    prop_assert!(found.stream.mappings as usize <= limit);
                    prop_assert!(found.stream.mappings == names as u64 || limit < 100_000);
                }
            }
        }
        drop(streams);
        prop_assert_eq!(index.blocks(), 0);
    }
}
