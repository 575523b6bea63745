//! Readers beside a writer: every answer is a state that the stream was in.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{batch, hits, one_stream, removed, show, spec, stored};
use crate::kv::index::{PrefixIndex, StreamWriter};
use crate::kv::{KvEvent, Tier};

const ROUNDS: u64 = 5_000;
/// Blocks: several groups, so that a walk takes several locks.
const BLOCKS: u64 = 200;

fn tokens() -> Vec<u32> {
    (0..BLOCKS as u32 * 4).collect()
}

/// Runs `write` beside two readers of the whole prompt; no answer may be another than those allowed.
fn beside(
    index: &PrefixIndex,
    writer: &mut StreamWriter,
    allowed: &BTreeSet<(u64, u64)>,
    mut write: impl FnMut(&mut StreamWriter, u64),
) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let prompt = tokens();
                while !done.load(Ordering::Relaxed) {
                    let found = hits(&index.query(&prompt)[0]);
                    assert!(allowed.contains(&found), "{found:?} was never the state");
                }
            });
        }
        // Readers stop even when the writer fails.
        let written = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            (1..=ROUNDS).for_each(|round| write(writer, round));
        }));
        done.store(true, Ordering::Relaxed);
        if let Err(cause) = written {
            std::panic::resume_unwind(cause);
        }
    });
}

/// The last block comes only after an early one has gone: no prompt ever has both.
#[test]
fn two_blocks_that_were_never_there_together_are_never_one_hit() {
    let (index, mut writer) = one_stream(spec("a", 1000));
    let names: Vec<u64> = (1..=BLOCKS).collect();
    let prompt = tokens();
    let all = stored(&names, None, &prompt, Tier::Device);
    let last = stored(&[BLOCKS], Some(BLOCKS - 1), &prompt[prompt.len() - 4..], Tier::Device);
    writer.apply(&batch(vec![all, removed(&[BLOCKS], Tier::Device)]), 0).unwrap();
    let early = stored(&[2], Some(1), &prompt[4..8], Tier::Device);
    // All but the last, or the first alone.
    let allowed = BTreeSet::from([(0, 0), (4, 0), ((BLOCKS - 1) * 4, 0)]);
    beside(&index, &mut writer, &allowed, |writer, round| {
        let there = vec![removed(&[2], Tier::Device), last.clone()];
        let back = vec![removed(&[BLOCKS], Tier::Device), early.clone()];
        writer.apply(&batch(there), round).unwrap();
        // A reader that stopped in the middle of its walk goes on here.
        std::thread::yield_now();
        writer.apply(&batch(back), round).unwrap();
        std::thread::yield_now();
    });
}

/// Blocks move between the tiers in opposite order at both ends.
#[test]
fn tiers_are_of_one_moment() {
    let (index, mut writer) = one_stream(spec("a", 1000));
    let names: Vec<u64> = (1..=BLOCKS).collect();
    let all = stored(&names, None, &tokens(), Tier::Device);
    let copies = stored(&[1, BLOCKS], None, &[], Tier::Host);
    let device = |name: u64| stored(&[name], None, &[], Tier::Device);
    writer.apply(&batch(vec![all, copies, removed(&[BLOCKS], Tier::Device)]), 0).unwrap();
    // At every moment one end is in host memory only, or, between two events, neither.
    let allowed = BTreeSet::from([(0, 0), (BLOCKS * 4, 0), ((BLOCKS - 1) * 4, 4)]);
    beside(&index, &mut writer, &allowed, |writer, round| {
        writer.apply(&batch(vec![device(BLOCKS), removed(&[1], Tier::Device)]), round).unwrap();
        std::thread::yield_now();
        writer.apply(&batch(vec![device(1), removed(&[BLOCKS], Tier::Device)]), round).unwrap();
        std::thread::yield_now();
    });
}

/// A snapshot, a clearing with a new state, an invalidation: each is seen whole or not at all.
#[test]
fn a_state_is_replaced_at_once() {
    let (index, mut writer) = one_stream(spec("a", 1000));
    let prompt = tokens();
    let state = |blocks: u64| {
        let names: Vec<u64> = (1..=blocks).collect();
        stored(&names, None, &prompt[..blocks as usize * 4], Tier::Device)
    };
    show(&mut writer, vec![state(BLOCKS)], 0);
    let allowed = BTreeSet::from([(0, 0), (BLOCKS * 4, 0), (BLOCKS * 2, 0), (40, 0)]);
    beside(&index, &mut writer, &allowed, |writer, round| match round % 8 {
        0 => writer.invalidate("gap"),
        1 | 3 | 5 => show(writer, vec![state(BLOCKS / 2)], round),
        2 | 4 | 6 => {
            writer.apply(&batch(vec![KvEvent::Cleared, state(BLOCKS)]), round).unwrap();
        }
        _ => show(writer, vec![state(10)], round),
    });
    drop(writer);
    assert_eq!(index.blocks(), 0);
}

/// Other streams come and go in the same plane; the one that stands still answers the same all the time.
#[test]
fn a_stream_at_rest_is_not_disturbed_by_others() {
    let (index, mut writer) = one_stream(spec("a", 1000));
    let names: Vec<u64> = (1..=BLOCKS).collect();
    let all = || vec![stored(&names, None, &tokens(), Tier::Device)];
    show(&mut writer, all(), 0);
    let allowed = BTreeSet::from([(BLOCKS * 4, 0)]);
    let others = index.clone();
    beside(&index, &mut writer, &allowed, |_, round| {
        let mut other = others.add_stream(spec("b", 1000)).unwrap();
        show(&mut other, all(), round);
        other.apply(&batch(vec![removed(&names, Tier::Device)]), round + 1).unwrap();
    });
}
