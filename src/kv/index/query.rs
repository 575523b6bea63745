//! A query: one walk along the prompt for all streams of a plane at once.
//!
//! Each stream's answer is what it held at one moment between two of its changes. Other than by locking all out, that is
//! had by looking back: when a block of the hit changed between the walk's start and its end, or the stream's whole state
//! was replaced, that stream is looked at again, [`ROUNDS`] times at most, and then answers 0.

use std::cell::OnceCell;
use std::sync::Arc;

use hashbrown::HashTable;

use crate::kv::SequenceHash;
use crate::kv::index::plane::{GROUP, Plane, Slot, fingerprint};
use crate::kv::index::prompt::Prompt;
use crate::kv::index::shard::Mark;
use crate::kv::index::stream::Stream;
use crate::kv::index::words::Match;

/// Looks at a stream that changes under them.
const ROUNDS: usize = 4;

/// A stream being looked at.
struct Look {
    /// Position in the answer.
    at: usize,
    slot: Arc<Slot>,
    changes: u64,
}

/// What the slots of a plane hold of a prompt, in blocks.
struct Hits {
    blocks: [u32; 64],
    host_only: Tally,
}

/// A counter per slot, all counted up by one in a few operations: bit `n` of word `k` is bit `k` of counter `n`.
#[derive(Default)]
struct Tally([u64; 32]);

/// What every stream holds of `prompt`.
pub(super) fn query(streams: &[Arc<Stream>], mut prompt: Prompt<'_>) -> Vec<Match> {
    let mut matches = Vec::with_capacity(streams.len());
    let mut looks = Vec::with_capacity(streams.len());
    for (at, stream) in streams.iter().enumerate() {
        let (status, slot) = stream.look();
        matches.push(Match { stream: status, device_hit_tokens: 0, host_only_hit_tokens: 0 });
        looks.extend(slot.map(|slot| Look::new(at, slot)));
    }
    for _ in 0..ROUNDS {
        looks = look_at(&looks, &mut prompt, &mut matches)
            .into_iter()
            .filter_map(|at| {
                let (status, slot) = streams[at].look();
                matches[at].stream = status;
                slot.map(|slot| Look::new(at, slot))
            })
            .collect();
        if looks.is_empty() {
            break;
        }
    }
    matches
}

/// Answers for the streams that stood still, and positions of the others.
fn look_at(looks: &[Look], prompt: &mut Prompt<'_>, matches: &mut [Match]) -> Vec<usize> {
    let mut again = Vec::new();
    let mut planes: Vec<(&Arc<Plane>, u64)> = Vec::new();
    for look in looks {
        match planes.iter_mut().find(|(plane, _)| Arc::ptr_eq(plane, look.slot.plane())) {
            Some((_, slots)) => *slots |= look.slot.bit(),
            None => planes.push((look.slot.plane(), look.slot.bit())),
        }
    }
    for (plane, slots) in planes {
        let hits = walk(plane, slots, prompt);
        let hashes = prompt.known(plane.space());
        let places = OnceCell::new();
        for look in looks.iter().filter(|look| Arc::ptr_eq(look.slot.plane(), plane)) {
            let number = look.slot.number() as usize;
            let hit = hits.blocks[number] as usize;
            if look.stood_still(hit, || places.get_or_init(|| Places::new(hashes))) {
                let block_size = u64::from(plane.space().block_size);
                let host_only = hits.host_only.of(number);
                matches[look.at].device_hit_tokens = (hit as u64 - host_only) * block_size;
                matches[look.at].host_only_hit_tokens = host_only * block_size;
            } else {
                again.push(look.at);
            }
        }
    }
    again
}

fn walk(plane: &Plane, slots: u64, prompt: &mut Prompt<'_>) -> Hits {
    let mut hits = Hits { blocks: [0; 64], host_only: Tally::default() };
    let (mut alive, mut depth) = (slots, 0);
    while alive != 0 {
        let group = prompt.group(plane.space(), depth);
        let Some(&first) = group.first() else { break };
        let shard = plane.read(plane.shard_of(first));
        for &hash in group {
            let block = shard.find(hash);
            let [device, host] = [Mark::Device, Mark::Host].map(|mark| block.map_or(0, |block| block.slots(mark)));
            let left = alive & (device | host);
            if left != alive {
                hits.end(alive & !left, depth);
                alive = left;
                if alive == 0 {
                    break;
                }
            }
            hits.host_only.count(alive & !device);
            depth += 1;
        }
        if group.len() < GROUP {
            break;
        }
    }
    hits.end(alive, depth);
    hits
}

impl Hits {
    /// These slots hold that many blocks and no more.
    fn end(&mut self, slots: u64, blocks: usize) {
        let mut slots = slots;
        while slots != 0 {
            self.blocks[slots.trailing_zeros() as usize] = blocks as u32;
            slots &= slots - 1;
        }
    }
}

impl Tally {
    fn count(&mut self, slots: u64) {
        let mut carry = slots;
        for word in &mut self.0 {
            if carry == 0 {
                break;
            }
            (*word, carry) = (*word ^ carry, *word & carry);
        }
    }

    fn of(&self, number: usize) -> u64 {
        self.0.iter().rev().fold(0, |count, word| count << 1 | (word >> number & 1))
    }
}

impl Look {
    fn new(at: usize, slot: Arc<Slot>) -> Look {
        let changes = slot.changes();
        Look { at, slot, changes }
    }

    /// Whether the first `hit` blocks were there at one moment, with the tiers that were seen.
    fn stood_still<'p>(&self, hit: usize, places: impl FnOnce() -> &'p Places<'p>) -> bool {
        if self.slot.is_retired() {
            return false;
        }
        match self.slot.changed(self.changes) {
            None => hit == 0,
            Some(changed) if changed.is_empty() || hit == 0 => true,
            Some(changed) => {
                let places = places();
                !changed.into_iter().any(|changed| places.has_within(changed, hit))
            }
        }
    }
}

/// Where the blocks of a prompt are in it, by fingerprint.
struct Places<'a> {
    hashes: &'a [SequenceHash],
    table: HashTable<u32>,
}

impl<'a> Places<'a> {
    fn new(hashes: &'a [SequenceHash]) -> Places<'a> {
        let mut table = HashTable::with_capacity(hashes.len());
        for (at, &hash) in hashes.iter().enumerate() {
            table.insert_unique(spread(fingerprint(hash)), at as u32, |&at| spread(fingerprint(hashes[at as usize])));
        }
        Places { hashes, table }
    }

    fn has_within(&self, changed: u32, blocks: usize) -> bool {
        let is_it = |at: usize| at < blocks && fingerprint(self.hashes[at]) == changed;
        self.table.find(spread(changed), |&at| is_it(at as usize)).is_some()
    }
}

/// The table wants its bits at both ends.
fn spread(fingerprint: u32) -> u64 {
    u64::from(fingerprint) << 32 | u64::from(fingerprint)
}
