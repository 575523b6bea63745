//! A query: one walk along the prompt for all streams of a plane at once.
//!
//! Each stream's answer is what it held at one moment between two of its changes. That is had by looking back: when a
//! block of the hit changed between the walk's start and its end, or the stream's whole state was replaced, that stream is
//! looked at again. After [`ROUNDS`] of that, its writer waits for one walk.

use std::sync::Arc;

use crate::kv::SequenceHash;
use crate::kv::index::plane::{GROUP, Plane, Slot, fingerprint};
use crate::kv::index::prompt::Prompt;
use crate::kv::index::shard::Mark;
use crate::kv::index::stream::Stream;
use crate::kv::index::words::Match;

/// Looks at a stream that changes under them, before its writer has to wait; and then at one that is replaced each time.
const ROUNDS: usize = 3;

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
        let again = look_at(&looks, &mut prompt, &mut matches);
        looks = again.into_iter().filter_map(|at| look(at, streams, &mut matches)).collect();
    }
    for mut moving in looks {
        for _ in 0..ROUNDS {
            if look_at_held(&moving, &mut prompt, &mut matches) {
                break;
            }
            let Some(next) = look(moving.at, streams, &mut matches) else { break };
            moving = next;
        }
    }
    matches
}

/// The state of a stream as it is now, into its answer; and where to look for blocks when it has one.
fn look(at: usize, streams: &[Arc<Stream>], matches: &mut [Match]) -> Option<Look> {
    let (status, slot) = streams[at].look();
    matches[at].stream = status;
    slot.map(|slot| Look::new(at, slot))
}

/// Answers for a stream while its writer waits. False when its state was replaced as a whole.
fn look_at_held(moving: &Look, prompt: &mut Prompt<'_>, matches: &mut [Match]) -> bool {
    let _turn = moving.slot.turn();
    look_at(&[Look::new(moving.at, Arc::clone(&moving.slot))], prompt, matches).is_empty()
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
        let hashes = prompt.known(plane.naming());
        for look in looks.iter().filter(|look| Arc::ptr_eq(look.slot.plane(), plane)) {
            let number = look.slot.number() as usize;
            let hit = &hashes[..hits.blocks[number] as usize];
            if look.stood_still(hit) {
                let block_size = u64::from(plane.naming().space.block_size);
                let host_only = hits.host_only.of(number);
                matches[look.at].device_hit_tokens = (hit.len() as u64 - host_only) * block_size;
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
        let group = prompt.group(plane.naming(), depth);
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

    /// Whether all of `hit` was there at one moment, with the tiers that were seen.
    fn stood_still(&self, hit: &[SequenceHash]) -> bool {
        if self.slot.is_retired() {
            return false;
        }
        match self.slot.changed(self.changes) {
            _ if hit.is_empty() => true,
            None => false,
            Some(changed) => changed.is_empty() || !have_common(hit, &changed),
        }
    }
}

/// Whether a block of `hit` is among thousands of changed ones. A sieve of bits keeps nearly all from being searched for.
fn have_common(hit: &[SequenceHash], changed: &[u32]) -> bool {
    let mut sieve = vec![0u64; (changed.len() * 4).next_power_of_two()];
    let words = sieve.len() - 1;
    let place = |changed: u32| ((changed >> 6) as usize & words, 1u64 << (changed & 63));
    for &changed in changed {
        let (word, bit) = place(changed);
        sieve[word] |= bit;
    }
    hit.iter().map(|&hash| fingerprint(hash)).any(|hash| {
        let (word, bit) = place(hash);
        sieve[word] & bit != 0 && changed.contains(&hash)
    })
}
