//! A publisher of KV events as an engine is one: a cache, batches by number, a ring of the last of them, and processes that
//! come after each other. It knows what was true after every batch.

use std::collections::{BTreeMap, BTreeSet};

use pdreplay::kv::sync::SyncOptions;
use pdreplay::kv::wire::{end_frames, live_frames, replay_frames};
use pdreplay::kv::{KvEvent, Recovery, Tier};

use super::driver::{batch, payload, removed, reply_topic, stored};

/// Blocks of a prompt.
pub const DEPTH: usize = 4;
/// Kinds of block: so many prompts of one block.
pub const KINDS: u8 = 2;

/// A block by all before it and itself.
pub type Path = Vec<u8>;
/// What is resident where.
pub type Cache = BTreeMap<Path, BTreeSet<Tier>>;

/// A change of the cache, as far as it can be made.
#[derive(Debug, Clone)]
pub enum Draw {
    Store(Path),
    Offload(Path),
    Remove(Path, Tier),
    Clear,
}

#[derive(Debug)]
pub struct Publisher {
    options: SyncOptions,
    ring: usize,
    process: u64,
    next: u64,
    clock: f64,
    cache: Cache,
    sent: Vec<(u64, Vec<u8>)>,
    /// What was true after a batch of a process.
    truth: BTreeMap<(u64, u64), Cache>,
}

/// Frames, of which process.
pub type Sent = (u64, Vec<Vec<u8>>);

impl Publisher {
    pub fn new(options: SyncOptions, ring: usize) -> Publisher {
        Publisher {
            options,
            ring,
            process: 0,
            next: 0,
            clock: 1.7e9,
            cache: Cache::new(),
            sent: Vec::new(),
            truth: BTreeMap::new(),
        }
    }

    pub fn process(&self) -> u64 {
        self.process
    }

    pub fn last(&self) -> Option<u64> {
        self.next.checked_sub(1)
    }

    /// Another process, with nothing, after some time.
    pub fn restart(&mut self) {
        self.process += 1;
        self.next = 0;
        self.clock += 10.0;
        self.cache.clear();
        self.sent.clear();
    }

    /// A batch of these changes, and its frames.
    pub fn publish(&mut self, draws: &[Draw]) -> Sent {
        let events = draws.iter().flat_map(|draw| self.change(draw)).collect();
        self.send(events)
    }

    /// A batch that states all. It has to stand by itself, so blocks whose parent is gone go first.
    pub fn publish_all(&mut self) -> Sent {
        let all = self.cache.clone();
        self.cache.retain(|path, _| (1..path.len()).all(|end| all.contains_key(&path[..end])));
        let mut events = vec![KvEvent::Cleared];
        events.extend(self.all());
        self.send(events)
    }

    fn send(&mut self, events: Vec<KvEvent>) -> Sent {
        self.clock += 0.001;
        let bytes = payload(&self.options, &batch(self.clock, 0, events));
        let sequence = self.next;
        self.next += 1;
        self.truth.insert((self.process, sequence), self.cache.clone());
        self.sent.push((sequence, bytes.clone()));
        (self.process, live_frames(&self.options.topic, sequence, bytes))
    }

    fn change(&mut self, draw: &Draw) -> Vec<KvEvent> {
        match draw {
            Draw::Clear => {
                self.cache.clear();
                vec![KvEvent::Cleared]
            }
            Draw::Store(path) => {
                let start = (0..path.len()).find(|at| !self.holds(&path[..=*at], Tier::Device));
                let Some(start) = start else { return Vec::new() };
                for end in start..path.len() {
                    self.cache.entry(path[..=end].to_vec()).or_default().insert(Tier::Device);
                }
                vec![store(path, start)]
            }
            Draw::Offload(path) if self.holds(path, Tier::Device) => {
                self.cache.entry(path.clone()).or_default().insert(Tier::Host);
                vec![stored(&[name(path)], None, Vec::new(), Tier::Host)]
            }
            Draw::Remove(path, tier) if self.holds(path, *tier) => {
                let tiers = self.cache.get_mut(path).unwrap();
                tiers.remove(tier);
                if tiers.is_empty() {
                    self.cache.remove(path);
                }
                vec![removed(&[name(path)], *tier)]
            }
            Draw::Offload(_) | Draw::Remove(..) => Vec::new(),
        }
    }

    fn holds(&self, path: &[u8], tier: Tier) -> bool {
        self.cache.get(path).is_some_and(|tiers| tiers.contains(&tier))
    }

    /// All that is resident, parents first: the shorter path comes before the longer.
    fn all(&self) -> Vec<KvEvent> {
        let mut events = Vec::new();
        for (path, tiers) in &self.cache {
            for tier in tiers {
                let KvEvent::Stored(mut block) = store(path, path.len() - 1) else { unreachable!() };
                block.tier = *tier;
                events.push(KvEvent::Stored(block));
            }
        }
        events
    }

    /// Replies to a request, the end mark last.
    pub fn replies(&mut self, from: u64) -> Vec<Vec<Vec<u8>>> {
        let topic = reply_topic(&self.options);
        let mut replies = match self.options.recovery {
            Recovery::Snapshot => {
                let bytes = payload(&self.options, &batch(self.clock, 0, self.all()));
                self.last().map(|last| replay_frames(topic, last, bytes)).into_iter().collect::<Vec<_>>()
            }
            Recovery::History => {
                let kept = &self.sent[self.sent.len().saturating_sub(self.ring)..];
                let wanted = kept.iter().filter(|(sequence, _)| *sequence >= from);
                wanted.map(|(sequence, bytes)| replay_frames(topic, *sequence, bytes.clone())).collect()
            }
            Recovery::None => Vec::new(),
        };
        replies.push(end_frames(topic));
        replies
    }

    /// What a prompt's blocks in a row were after a batch, if that process sent it.
    pub fn truth(&self, process: u64, sequence: u64, prompt: &[u8]) -> Option<Vec<Tier>> {
        let cache = self.truth.get(&(process, sequence))?;
        let tiers = (1..=prompt.len()).map_while(|end| cache.get(&prompt[..end]));
        Some(tiers.map(|tiers| *tiers.first().unwrap()).collect())
    }
}

fn store(path: &[u8], start: usize) -> KvEvent {
    let names: Vec<u64> = (start..path.len()).map(|end| name(&path[..=end])).collect();
    let parent = (start > 0).then(|| name(&path[..start]));
    stored(&names, parent, tokens(path).split_off(start * 4), Tier::Device)
}

/// Processes name blocks alike: engines hash content.
fn name(path: &[u8]) -> u64 {
    path.iter().fold(1, |code, kind| code * u64::from(KINDS) + u64::from(*kind))
}

/// The tokens of a prompt.
pub fn tokens(path: &[u8]) -> Vec<u32> {
    path.iter().enumerate().flat_map(|(at, kind)| [at as u32 * 100 + u32::from(*kind); 4]).collect()
}

/// All prompts of whole length.
pub fn prompts() -> impl Iterator<Item = Path> {
    let kinds = usize::from(KINDS);
    (0..kinds.pow(DEPTH as u32))
        .map(move |code| (0..DEPTH).map(|at| (code / kinds.pow(at as u32) % kinds) as u8).collect())
}
