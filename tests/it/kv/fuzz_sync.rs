//! Random and damaged frames against the machine of a stream, in whatever state it is: no panic, no more memory than its
//! limits, and the index always says the same as the machine.
//!
//! Runs as long as `fuzz_wire` does.

use std::cell::RefCell;
use std::collections::BTreeSet;

use pdreplay::base::Dur;
use pdreplay::kv::sync::{SyncInput, SyncOptions, SyncReason, SyncState};
use pdreplay::kv::wire::{EncodeForm, Encoder, end_frames, live_frames, replay_frames};
use pdreplay::kv::{Dialect, EventBatch, KvEvent, Recovery, Tier};
use proptest::collection::vec;
use proptest::prelude::*;

use super::batches;
use super::driver::{Driver, batch, spec, stored};
use super::fuzz_wire::fuzz;

const MAX_BUFFERED: usize = 4096;
const MAX_BLOCKS: usize = 32;
/// Reasons that come up often, or the arrivals are of no use.
const COMMON: [SyncReason; 8] = [
    SyncReason::Snapshot,
    SyncReason::History,
    SyncReason::FullBatch,
    SyncReason::Gap,
    SyncReason::Restarted,
    SyncReason::UnknownParent,
    SyncReason::DecodeFailed,
    SyncReason::ReplayTimeout,
];

/// Something that arrives. Numbers are taken relative to where the stream is, so that much of it fits.
#[derive(Debug, Clone)]
enum Arrival {
    Connected,
    Disconnected,
    Closed,
    TooLarge(u64),
    Live(i8, Vec<u8>),
    LiveFrames(Vec<Vec<u8>>),
    Reply(i8, Vec<u8>),
    ReplyFrames(Vec<Vec<u8>>),
    End,
    ReplayFailed,
    Wait(u64),
}

fn payload() -> impl Strategy<Value = Vec<u8>> {
    let random = batches::form()
        .prop_flat_map(|form| batches::batch(form).prop_map(move |batch| Encoder::new(form).batch(&batch)));
    let fits = vec((0..6u64, 0..4u32), 0..4).prop_map(|blocks| {
        let events = blocks.into_iter().map(|(block, kind)| match kind {
            0 => KvEvent::Cleared,
            1 | 2 => stored(&[block], block.checked_sub(1), vec![kind; 4], Tier::Device),
            _ => stored(&[block], None, Vec::new(), Tier::Host),
        });
        let batch: EventBatch = batch(1.0, 0, events.collect());
        Encoder::new(EncodeForm::XLLM).batch(&batch)
    });
    let damaged = (random, vec(batches::damage(), 0..4)).prop_map(|(mut bytes, damages)| {
        damages.iter().for_each(|damage| damage.apply(&mut bytes));
        bytes
    });
    prop_oneof![6 => fits, 3 => damaged, 1 => vec(any::<u8>(), 0..40)]
}

fn frames() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let frame = prop_oneof![
        2 => Just(Vec::new()),
        2 => any::<u64>().prop_map(|sequence| sequence.to_be_bytes().to_vec()),
        1 => Just(vec![0xff; 8]),
        2 => payload(),
    ];
    vec(frame, 0..5)
}

fn arrival() -> impl Strategy<Value = Arrival> {
    prop_oneof![
        4 => Just(Arrival::Connected),
        1 => Just(Arrival::Disconnected),
        1 => Just(Arrival::Closed),
        1 => any::<u64>().prop_map(Arrival::TooLarge),
        12 => (prop_oneof![9 => Just(1i8), 1 => any::<i8>()], payload()).prop_map(|(by, bytes)| Arrival::Live(by, bytes)),
        2 => frames().prop_map(Arrival::LiveFrames),
        8 => (prop_oneof![4 => 0..3i8, 1 => any::<i8>()], payload()).prop_map(|(by, bytes)| Arrival::Reply(by, bytes)),
        2 => frames().prop_map(Arrival::ReplyFrames),
        6 => Just(Arrival::End),
        1 => Just(Arrival::ReplayFailed),
        3 => (0..5_000u64).prop_map(Arrival::Wait),
    ]
}

fn check(
    dialect: Dialect,
    recovery: Recovery,
    base: u64,
    arrivals: &[Arrival],
) -> Result<Vec<SyncReason>, TestCaseError> {
    let mut options = SyncOptions::new(dialect);
    (options.recovery, options.max_buffered_bytes) = (recovery, MAX_BUFFERED);
    let mut driver = Driver::default();
    driver.add(spec("w", 0, MAX_BLOCKS), options);
    driver.input(0, SyncInput::Connected);
    // What arrived last, live and as a reply.
    let (mut live, mut reply) = (base, base);
    let moved = |from: u64, by: i8| from.wrapping_add_signed(by.into());
    for arrival in arrivals {
        match arrival {
            Arrival::Connected => driver.input(0, SyncInput::Connected),
            Arrival::Disconnected => driver.input(0, SyncInput::Disconnected("gone")),
            Arrival::Closed => driver.input(0, SyncInput::Closed),
            Arrival::TooLarge(bytes) => driver.input(0, SyncInput::TooLarge { bytes: *bytes }),
            Arrival::Live(by, bytes) => {
                live = moved(live, *by);
                driver.input(0, SyncInput::Live(&live_frames("", live, bytes.clone())));
            }
            Arrival::LiveFrames(frames) => driver.input(0, SyncInput::Live(frames)),
            Arrival::Reply(by, bytes) => {
                reply = moved(reply, *by);
                driver.reply(0, &replay_frames(None, reply, bytes.clone()));
            }
            Arrival::ReplyFrames(frames) => driver.reply(0, frames),
            Arrival::End => {
                driver.reply(0, &end_frames(None));
                reply = live;
            }
            Arrival::ReplayFailed => {
                let attempt = driver.said(0).attempt;
                driver.input(0, SyncInput::ReplayFailed { attempt, why: "gone" });
            }
            Arrival::Wait(ms) => driver.wait(Dur::from_millis(*ms)),
        }
        sound(&mut driver)?;
    }
    Ok(driver.said(0).changes.iter().map(|change| change.reason).collect())
}

fn sound(driver: &mut Driver) -> Result<(), TestCaseError> {
    let report = driver.report(0);
    prop_assert_eq!(report.status.synchronized, report.state == SyncState::Synced);
    prop_assert_eq!(report.status.error.is_some(), report.state != SyncState::Synced);
    prop_assert!(report.stats.most_buffered_bytes <= MAX_BUFFERED, "{report:?}");
    prop_assert!(report.status.mappings <= MAX_BLOCKS as u64);
    // The view, a state from before, and one being built.
    prop_assert!(driver.subscriber.index().blocks() <= 3 * MAX_BLOCKS as u64);
    let said = driver.said(0);
    prop_assert_eq!(said.changes.last().map(|change| change.to).unwrap_or(SyncState::Disconnected), report.state);
    let words = said.changes.last().map(ToString::to_string).unwrap_or_default();
    prop_assert!(words.len() < 600 && !words.contains('\n'), "{words}");
    prop_assert!(said.asks.len() as u64 == report.stats.replays);
    Ok(())
}

#[test]
fn no_frames_hurt_the_machine_of_a_stream() {
    let dialects = prop::sample::select(vec![Dialect::Xllm, Dialect::Vllm, Dialect::Sglang]);
    let recoveries = prop::sample::select(vec![Recovery::Snapshot, Recovery::History, Recovery::None]);
    let base = prop_oneof![3 => Just(u64::MAX), 1 => Just(u64::MAX - 3), 1 => any::<u64>()];
    let strategy = (dialects, recoveries, base, vec(arrival(), 1..60));
    let reasons = RefCell::new(BTreeSet::new());
    fuzz(&strategy, |(dialect, recovery, base, arrivals)| {
        reasons.borrow_mut().extend(check(dialect, recovery, base, &arrivals)?);
        Ok(())
    });
    let missed: Vec<_> = COMMON.iter().filter(|reason| !reasons.borrow().contains(reason)).collect();
    assert!(missed.is_empty(), "{missed:?} never came up");
}
