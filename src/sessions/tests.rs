//! The table through a session's life, and under random changes.

use proptest::prelude::*;

use super::*;
use crate::base::{SessionIx, Time};
use crate::kv::{BlockPath, BlockTree};
use crate::trace::TurnTrace;

const S: SessionIx = SessionIx(0);

fn residence(worker: u16, tokens: u32, blocks: BlockPath, since: Time) -> Residence {
    Residence { worker, tokens, blocks, since }
}

fn turn(input_length: u32, prompt: BlockPath) -> TurnTrace {
    TurnTrace {
        session: S,
        turn_id: 1,
        line: 1,
        request_id: None,
        timestamp: crate::base::Dur::ZERO,
        input_length,
        output_length: 10,
        cached_tokens: 0,
        prompt,
        context: prompt,
        extends_previous: true,
        output_raised: false,
    }
}

#[test]
fn a_session_lives_cold_seeding_resident_evicted() {
    let mut table = SessionTable::new(1, 2);
    assert_eq!(table.state(S), SessionState::Cold);
    table.begin_turn(S, false);
    assert!(table.take_slot(S, 1, Time(10)));
    table.seed(S, 1, None);
    assert_eq!(table.state(S), SessionState::Seeding { worker: 1, after: None });
    table.opened(S, 1);
    table.hold(S, residence(1, 500, BlockPath::EMPTY, Time(20)));
    table.end_turn(S, Time(20));
    assert_eq!((table.resident_tokens(1), table.slots(1), table.open_on(S)), (500, 1, Some(1)));
    assert_eq!(table.idle_residents(1).collect::<Vec<_>>(), [(S, 500)]);
    assert_eq!(table.lose(S, Loss::Trimmed).map(|held| held.tokens), Some(500));
    assert_eq!((table.resident_tokens(1), table.slots(1)), (0, 1), "a trimmed session keeps its slot");
    assert!(!table.take_slot(S, 1, Time(25)), "and reseeds into it");
    assert!(table.take_slot(S, 0, Time(30)), "or takes one elsewhere, where its hold time goes on");
    table.release_slot(S, Time(100));
    assert_eq!(table.slot_hold(S, Time(500)).ns(), 90);
    assert_eq!((table.slots(0), table.slots(1)), (0, 0));
}

#[test]
fn a_slot_is_of_no_use_once_its_session_is_over() {
    let mut table = SessionTable::new(2, 1);
    table.take_slot(S, 0, Time(10));
    table.take_slot(SessionIx(1), 0, Time(10));
    table.end_session(S, Time(40));
    table.end_session(S, Time(50));
    assert_eq!(table.slots(0), 2, "it ends once, and keeps its slot");
    assert_eq!(table.slot_hold_after_end(S, Time(100)).ns(), 60);
    assert_eq!(table.slot_hold_after_end(SessionIx(1), Time(100)).ns(), 0);
    table.release_slot(S, Time(110));
    assert_eq!(table.slots(0), 1);
    assert_eq!((table.slot_hold(S, Time(500)).ns(), table.slot_hold_after_end(S, Time(500)).ns()), (100, 70));
    table.release_slot(SessionIx(1), Time(120));
    table.end_session(SessionIx(1), Time(130));
    assert_eq!(table.slot_hold_after_end(SessionIx(1), Time(500)).ns(), 0);
}

#[test]
fn a_slot_that_was_given_back_would_serve_one_session_until_its_end() {
    let [a, b, c, d] = [0, 1, 2, 3].map(SessionIx);
    let mut table = SessionTable::new(4, 2);
    table.take_slot(a, 0, Time(10));
    assert!(!table.is_refused_by_ended(b, 0, 1), "a has not ended");
    assert!(table.is_refused_by_ended(b, 1, 1), "nobody holds one there, whatever refused it");
    table.end_session(b, Time(15));
    table.end_session(a, Time(20));
    assert!(table.is_refused_by_ended(c, 0, 1), "the slot of a would be free");
    assert!(!table.is_refused_by_ended(d, 0, 1), "and taken by c");
    assert!(
        table.is_refused_by_ended(c, 0, 1) && table.is_refused_by_ended(c, 1, 1),
        "which would not ask again, anywhere"
    );
    assert!(table.is_refused_by_ended(d, 0, 2), "a higher cap has room for both");
    table.end_session(c, Time(30));
    assert!(!table.is_refused_by_ended(SessionIx(1), 0, 1), "d has it now");
    table.gone(0, Time(40));
    assert!(table.is_refused_by_ended(d, 0, 1), "an empty worker has room again");
    table.take_slot(d, 1, Time(50));
    table.release_slot(d, Time(60));
    assert!(!table.is_refused_by_ended(c, 0, 1), "what it would have had, it keeps");
    assert_eq!((table.slots(0), table.slots(1)), (0, 0), "none of it changes what is held");
}

#[test]
fn a_placement_that_fails_leaves_what_was_before() {
    let mut table = SessionTable::new(1, 1);
    table.seed(S, 0, None);
    table.unseed(S);
    assert_eq!(table.state(S), SessionState::Cold);
    table.seed(S, 0, Some(Loss::Trimmed));
    table.unseed(S);
    assert_eq!(table.state(S), SessionState::Evicted(Loss::Trimmed));
}

#[test]
fn an_append_continues_what_is_held() {
    let mut tree = BlockTree::new(64);
    let held = tree.insert(&[1, 2, 3], BlockPath::EMPTY);
    let longer = tree.insert(&[1, 2, 3, 4], held);
    let other = tree.insert(&[1, 2, 9, 9], BlockPath::EMPTY);
    let mut table = SessionTable::new(1, 1);
    assert_eq!(table.append(&tree, &turn(300, longer)), Append::NothingHeld);
    table.hold(S, residence(0, 200, held, Time(0)));
    table.begin_turn(S, true);
    assert_eq!(table.append(&tree, &turn(300, longer)), Append::Tokens(100));
    assert_eq!(table.append(&tree, &turn(200, longer)), Append::Broken, "nothing to append");
    assert_eq!(table.append(&tree, &turn(150, longer)), Append::Broken);
    table.end_turn(S, Time(1));
    table.begin_turn(S, false);
    assert_eq!(table.append(&tree, &turn(300, other)), Append::Broken, "the context was compacted");
    assert_eq!(table.append(&tree, &turn(300, longer)), Append::Tokens(100), "back to the blocks held");
    table.hold(S, residence(0, 500, held, Time(0)));
    table.end_turn(S, Time(2));
    table.begin_turn(S, false);
    assert_eq!(table.append(&tree, &turn(600, longer)), Append::Broken, "the trace does not name all blocks held");
}

#[test]
fn a_restart_empties_the_worker_once() {
    let mut table = SessionTable::new(3, 2);
    for ix in 0..3 {
        let session = SessionIx(ix);
        table.take_slot(session, 0, Time(0));
        table.opened(session, 0);
        table.hold(session, residence(0, 100, BlockPath::EMPTY, Time(0)));
    }
    table.begin_turn(SessionIx(2), true);
    assert!(table.heard(0, 4, Time(5)).is_empty(), "the first word is no restart");
    assert_eq!(table.heard(0, 5, Time(5)), [SessionIx(0), SessionIx(1), SessionIx(2)]);
    assert_eq!((table.resident_tokens(0), table.slots(0)), (0, 0));
    assert_eq!(table.state(S), SessionState::Evicted(Loss::WorkerRestarted));
    assert_eq!(table.open_on(S), None);
    assert!(table.heard(0, 5, Time(6)).is_empty());
    assert!(table.heard(0, 4, Time(6)).is_empty(), "an older word changes nothing");
}

#[test]
fn down_then_up_as_another_process_is_a_restart() {
    let mut table = SessionTable::new(1, 1);
    table.heard(0, 1, Time(0));
    table.hold(S, residence(0, 100, BlockPath::EMPTY, Time(0)));
    assert_eq!(table.gone(0, Time(1)), [S]);
    assert_eq!(table.state(S), SessionState::Evicted(Loss::WorkerGone));
    assert_eq!(table.open_on(S), Some(0), "it may still be there");
    table.heard(0, 2, Time(2));
    assert_eq!(table.state(S), SessionState::Evicted(Loss::WorkerRestarted));
    assert_eq!(table.open_on(S), None);
}

proptest! {
    #[test]
    fn sets_and_sums_are_what_the_sessions_say(
        steps in prop::collection::vec((0u32..4, 0u16..3, 0u8..12), 0..80),
    ) {
        let mut table = SessionTable::new(4, 3);
        for (at, (session, worker, what)) in steps.into_iter().enumerate() {
            let (now, session) = (Time(at as u64), SessionIx(session));
            match what {
                0 => table.begin_turn(session, true),
                1 if table.busy(session) > 0 => table.end_turn(session, now),
                2 => drop(table.take_slot(session, worker, now)),
                3 => table.release_slot(session, now),
                4 => table.seed(session, worker, None),
                5 => table.hold(session, residence(worker, 10 + at as u32, BlockPath::EMPTY, now)),
                6 => drop(table.lose(session, Loss::Trimmed)),
                7 => drop(table.gone(worker, now)),
                8 => drop(table.heard(worker, at as u32, now)),
                9 => table.end_session(session, now),
                10 => drop(table.is_refused_by_ended(session, worker, 1)),
                _ => table.unseed(session),
            }
            prop_assert_eq!(table.check(), Ok(()));
            let (held, after) = (table.slot_hold(session, now), table.slot_hold_after_end(session, now));
            prop_assert!(after <= held, "{after:?} of {held:?}");
        }
    }
}
