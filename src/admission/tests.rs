//! The soft cap by its formula, and the router's verdicts over a small table.

use super::*;
use crate::base::{SessionIx, Time};
use crate::kv::BlockPath;
use crate::sessions::{Residence, SessionTable};

fn size(input_tokens: u32, cached_tokens: u32, output_tokens: u32) -> TurnSize {
    TurnSize { first: false, input_tokens, cached_tokens, output_tokens }
}

#[test]
fn the_cap_is_the_formula() {
    let mut config = AdmissionConfig { cap_max: 4, ..AdmissionConfig::default() };
    let turn = size(80_000, 78_000, 1000);
    for (usable, footprint, cap) in [
        (None, Footprint::Full, 4),
        (Some(500_000), Footprint::Full, 4),
        (Some(170_000), Footprint::Full, 2),
        (Some(74_700), Footprint::Full, 1),
        (Some(0), Footprint::Full, 1),
        (Some(74_700), Footprint::Incremental, 4),
        (Some(6_100), Footprint::Incremental, 2),
    ] {
        config.footprint = footprint;
        assert_eq!(soft_cap(&config, usable, turn), cap, "{usable:?} {footprint:?}");
    }
    config.cap_max = 16;
    assert_eq!(soft_cap(&config, None, turn), 16);
    let first = TurnSize { first: true, ..turn };
    assert_eq!(first.target_tokens(Footprint::Incremental), 81_000, "a first turn has nothing to build on");
    assert_eq!(size(10, 50, 0).target_tokens(Footprint::Incremental), 1);
}

/// Sessions 0, 1, … resident on worker 0 with a slot and so many tokens, used in this order, idle.
fn table(tokens: &[u32]) -> SessionTable {
    let mut table = SessionTable::new(10, 2);
    for (ix, tokens) in (0u32..).zip(tokens) {
        let session = SessionIx(ix);
        let at = Time(u64::from(ix) + 1);
        table.begin_turn(session, false);
        table.take_slot(session, 0, at);
        let blocks = BlockPath::EMPTY;
        table.hold(session, Residence { worker: 0, tokens: *tokens, blocks, since: at });
        table.end_turn(session, at);
    }
    table
}

fn ask(session: u32, worker: u16) -> SeedAsk {
    SeedAsk { session: SessionIx(session), worker, size: size(90, 0, 10) }
}

fn room(usable: u64, used: u64) -> Room {
    Room { usable_tokens: Some(usable), used_tokens: used }
}

#[test]
fn a_seed_needs_a_slot() {
    let unknown = Room { usable_tokens: None, used_tokens: 0 };
    let mut config = AdmissionConfig { cap_max: 2, ..AdmissionConfig::default() };
    let two = table(&[100, 100]);
    let admitted = SeedVerdict::Admitted { slot_from: None, drop: vec![] };
    let full = SeedVerdict::Rejected(SeedRejection::SessionCap);
    assert_eq!(admit_seed(&config, &two, ask(5, 0), unknown), full);
    assert_eq!(admit_seed(&config, &two, ask(1, 0), unknown), admitted, "its own slot");
    assert_eq!(admit_seed(&config, &two, ask(5, 1), unknown), admitted, "the other worker is free");
    config.slot_release = SlotRelease::IdleLru;
    let from_oldest = SeedVerdict::Admitted { slot_from: Some(SessionIx(0)), drop: vec![] };
    assert_eq!(admit_seed(&config, &two, ask(5, 0), unknown), from_oldest);
    let mut busy = table(&[100, 100]);
    busy.begin_turn(SessionIx(0), true);
    let from_next = SeedVerdict::Admitted { slot_from: Some(SessionIx(1)), drop: vec![] };
    assert_eq!(admit_seed(&config, &busy, ask(5, 0), unknown), from_next);
    busy.begin_turn(SessionIx(1), true);
    assert_eq!(admit_seed(&config, &busy, ask(5, 0), unknown), full);
    config.cap_max = 1;
    assert_eq!(admit_seed(&config, &two, ask(5, 0), unknown), full, "one slot given is not enough when two are over");
}

#[test]
fn a_seed_needs_room_and_may_drop_idle_sessions() {
    let config = AdmissionConfig { footprint: Footprint::Incremental, cap_max: 9, ..AdmissionConfig::default() };
    let three = table(&[100, 100, 100]);
    let verdict = |usable, used, session| admit_seed(&config, &three, ask(session, 0), room(usable, used));
    let drop = |sessions: &[u32]| SeedVerdict::Admitted {
        slot_from: None,
        drop: sessions.iter().copied().map(SessionIx).collect(),
    };
    assert_eq!(verdict(400, 300, 5), drop(&[]));
    assert_eq!(verdict(400, 301, 5), drop(&[0]));
    assert_eq!(verdict(400, 500, 5), drop(&[0, 1]));
    assert_eq!(verdict(400, 601, 5), SeedVerdict::Rejected(SeedRejection::NoCapacity));
    assert_eq!(verdict(400, 400, 0), drop(&[]), "what the session holds there itself is closed first");
}

#[test]
fn a_slot_given_up_counts_once_as_room() {
    let config = AdmissionConfig { slot_release: SlotRelease::IdleLru, cap_max: 2, ..AdmissionConfig::default() };
    let verdict = admit_seed(&config, &table(&[100, 100]), ask(5, 0), room(290, 300));
    let expected = SeedVerdict::Admitted { slot_from: Some(SessionIx(0)), drop: vec![SessionIx(1)] };
    assert_eq!(verdict, expected);
}

#[test]
fn an_append_spares_its_own_session() {
    let two = table(&[100, 100]);
    let verdict = |tokens| admit_append(&two, SessionIx(0), 0, tokens, room(250, 200));
    assert_eq!(verdict(50), AppendVerdict::Admitted { drop: vec![] });
    assert_eq!(verdict(51), AppendVerdict::Admitted { drop: vec![SessionIx(1)] });
    assert_eq!(verdict(151), AppendVerdict::NoCapacity);
    let unknown = Room { usable_tokens: None, used_tokens: 200 };
    assert_eq!(admit_append(&two, SessionIx(0), 0, 1 << 40, unknown), AppendVerdict::Admitted { drop: vec![] });
}
