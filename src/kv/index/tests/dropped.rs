//! What a batch that came to nothing leaves behind: nothing, for whoever has the stream's slot next.
//!
//! Each way in which a place leaves its mapping in the middle of a batch, with each end that the state of such a batch can
//! have. The marks of the place are still up then, and only the batch's own journal knows of it.

use super::{BLOCK_SIZE, batch, hits, one_stream, removed, show, spec, stored};
use crate::kv::index::{ApplyError, Mode, PrefixIndex, StreamWriter};
use crate::kv::{EngineHash, KvEvent, Tier};

/// Mappings that fit: those that [`before`] makes.
const LIMIT: usize = 3;

fn tokens(kind: u32) -> [u32; BLOCK_SIZE as usize] {
    [kind; BLOCK_SIZE as usize]
}

fn one(name: u64, kind: u32, tier: Tier) -> KvEvent {
    stored(&[name], None, &tokens(kind), tier)
}

fn both(name: u64) -> [KvEvent; 2] {
    Tier::ALL.map(|tier| removed(&[name], tier))
}

fn before() -> Vec<KvEvent> {
    vec![one(1, 1, Tier::Device), one(1, 1, Tier::Host), one(2, 2, Tier::Device), one(3, 3, Tier::Host)]
}

/// Events that take the places of blocks 1 and 2 from their names.
fn departures() -> [(&'static str, Vec<KvEvent>); 4] {
    let gone = || [both(1), both(2)].concat();
    [
        ("forgotten, its room used again", [gone(), vec![one(4, 4, Tier::Device), one(5, 5, Tier::Host)]].concat()),
        ("another content", [gone(), vec![one(1, 7, Tier::Device), one(2, 8, Tier::Host)]].concat()),
        ("a content that nobody knows", [gone(), vec![foreign(1), foreign(2)]].concat()),
        (
            "one after the other",
            [gone(), vec![one(1, 7, Tier::Device)], both(1).to_vec(), vec![foreign(1), one(2, 8, Tier::Device)]]
                .concat(),
        ),
    ]
}

fn foreign(name: u64) -> KvEvent {
    KvEvent::Foreign { hashes: vec![EngineHash(name)] }
}

/// Ends of the batch behind them, and whether they are errors.
fn ends() -> [(&'static str, Vec<KvEvent>, bool); 5] {
    let unknown = stored(&[99], Some(98), &tokens(9), Tier::Device);
    let full: Vec<KvEvent> = (20..24).map(|name| one(name, name as u32, Tier::Device)).collect();
    [
        ("an error", vec![unknown.clone()], true),
        ("cleared later", vec![KvEvent::Cleared], false),
        ("cleared later, and begun again", vec![KvEvent::Cleared, one(30, 30, Tier::Device)], false),
        ("cleared later, and an error", vec![KvEvent::Cleared, one(30, 30, Tier::Device), unknown], true),
        ("the limit", full, true),
    ]
}

/// No stream that begins now, whose slot is one that was used before, holds anything.
fn nobody_inherits(index: &PrefixIndex, what: &str) {
    let mut next: Vec<StreamWriter> =
        (0..3).map(|at| index.add_stream(spec(&format!("next{at}"), LIMIT)).unwrap()).collect();
    next.iter_mut().for_each(|writer| show(writer, Vec::new(), 0));
    for kind in 0..100 {
        for found in index.query(&tokens(kind)).iter().filter(|found| found.stream.spec.instance != "a") {
            assert_eq!(hits(found), (0, 0), "{what}: block {kind} is promised for {}", found.stream.spec);
        }
    }
}

#[test]
fn nothing_of_a_batch_that_came_to_nothing_is_left() {
    for ((departure, first), (end, last, is_error)) in
        departures().into_iter().flat_map(|first| ends().map(|last| (first.clone(), last)))
    {
        let what = format!("{departure}, then {end}");
        let events = batch([first, last].concat());
        // Of the state that is served.
        let (index, mut writer) = one_stream(spec("a", LIMIT));
        writer.apply(&batch(before()), 1).unwrap();
        assert_eq!(writer.apply(&events, 2).is_err(), is_error, "{what}");
        let left = index.statuses()[0].mappings;
        assert_eq!(index.blocks(), left, "{what}");
        assert!(left == 0 || !is_error, "{what}");
        nobody_inherits(&index, &what);
        writer.invalidate("told to");
        assert_eq!(index.blocks(), 0, "{what}");
        // Of one beside it, which is then no longer wanted.
        let mut shadow = writer.shadow();
        shadow.apply(&batch(before()), Mode::Delta).unwrap();
        assert_eq!(shadow.apply(&events, Mode::Delta).is_err(), is_error, "{what}");
        drop(shadow);
        assert_eq!(index.blocks(), 0, "{what}");
        nobody_inherits(&index, &what);
    }
}

#[test]
fn a_run_far_over_the_limit_takes_no_more_than_the_limit() {
    let (index, mut writer) = one_stream(spec("a", LIMIT));
    let names: Vec<u64> = (0..10_000).collect();
    let all: Vec<u32> = (0..10_000).flat_map(tokens).collect();
    let mut shadow = writer.shadow();
    let refused = shadow.apply(&batch(vec![stored(&names, None, &all, Tier::Device)]), Mode::Snapshot);
    assert_eq!(refused, Err(ApplyError::IndexLimit { event: 0, max_blocks: LIMIT }));
    // As long as the shadow is there, what it took shows: one group.
    assert!(index.blocks() <= 64, "{} blocks", index.blocks());
    drop(shadow);
    assert_eq!(index.blocks(), 0);
    // All the same name: a conflict at the second.
    let same = stored(&[7; 10_000], None, &all, Tier::Device);
    assert!(matches!(writer.apply(&batch(vec![same]), 1), Err(ApplyError::Conflict { .. })));
    assert_eq!(index.blocks(), 0);
}
