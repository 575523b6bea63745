//! What holds turns through P up between P and D, told from records and the accounts of workers.

use pdreplay::results::{Cause, RunSummary};

use super::causes::{find, texts};
use super::story::{Story, story};

const LINK: &str = "KV transfer holds turns through P";
const ROOM: &str = "KV that waits for room on D holds turns through P";

/// The story, with these waits of turns through P in ms, and P0 computing, or standing still by link and by room, for these
/// shares of the run.
fn held([queue, transfer, room]: [f64; 3], [busy, by_link, by_room]: [f64; 3]) -> Story {
    let mut story = story();
    for record in story.records.iter_mut().filter(|record| record.prefill_worker.is_some()) {
        record.ttft_ms = Some(queue + transfer + room + 300.0);
        record.e2e_ms = Some(queue + transfer + room + 1300.0);
        (record.prefill_queue_ms, record.kv_transfer_ms) = (Some(queue), Some(transfer));
        (record.prefill_ms, record.decode_queue_ms) = (Some(300.0), Some(room));
    }
    let p0 = &mut story.facts.workers[0];
    p0.busy_share = busy;
    (p0.link_busy_share, p0.stalled_by_link_share, p0.stalled_by_room_share) =
        (Some(0.5), Some(by_link), Some(by_room));
    for (d, busy) in story.facts.workers[1..].iter_mut().zip([0.25, 0.5, 0.625]) {
        d.link_busy_share = Some(busy);
    }
    story
}

fn said(summary: &RunSummary, line: &str) -> bool {
    find(summary, line).is_some()
}

#[test]
fn the_wait_in_the_queue_of_p_is_split_by_what_p_stood_still_for() {
    let summary = held([4000.0, 1500.0, 200.0], [0.4, 0.3, 0.1]).summary();
    // 1.5 s of its own, and three eighths of 4 s.
    assert_eq!(
        find(&summary, LINK).unwrap_or_else(|| panic!("{:#?}", texts(&summary))),
        "KV transfer holds turns through P for 3.00 s of 6.00 s mean TTFT: 1.50 s on the link, 1.50 s in P's queue while KV \
         on its way filled its pool (30 % of the run, P idle); link of D2 busy 62 % (cluster.link.gbytes_per_s)"
    );
    assert!(!said(&summary, ROOM), "0.2 s and an eighth of 4 s are less than 1 s");
    let links = summary.causes.iter().filter_map(|line| match &line.cause {
        Cause::LinkBinds(held) => Some((held.turns, held.e2e_share, held.stalled_share)),
        _ => None,
    });
    let links: Vec<_> = links.collect();
    // 36 turns of 7 s, 24 of 0.495 s.
    assert!(matches!(links[..], [(36, share, Some(0.3))] if (share - 108.0 / 263.88).abs() < 1e-3), "{links:?}");

    let summary = held([4000.0, 200.0, 1500.0], [0.4, 0.1, 0.3]).summary();
    assert_eq!(
        find(&summary, ROOM).unwrap_or_else(|| panic!("{:#?}", texts(&summary))),
        "KV that waits for room on D holds turns through P for 3.00 s of 6.00 s mean TTFT: 1.50 s in D's queue, 1.50 s in P's \
         queue while such KV filled its pool (30 % of the run, P idle); 12 of 12 KV transfers on D0 \
         (engine.kv_pool_tokens, a policy that spreads over D)"
    );
    assert!(!said(&summary, LINK));
}

#[test]
fn a_hand_off_that_holds_nobody_for_long_is_not_named() {
    // P computes all the time: the queue is of its own making.
    let summary = held([9000.0, 900.0, 900.0], [0.99, 0.0, 0.0]).summary();
    assert!(!said(&summary, LINK) && !said(&summary, ROOM) && said(&summary, "turns through P wait"));
    // Long for the few turns that go through P, and little beside all others.
    let mut rare = held([0.0, 1500.0, 1500.0], [0.1, 0.0, 0.0]);
    for record in rare.records.iter_mut().filter(|record| record.prefill_worker.is_none()) {
        record.e2e_ms = Some(30_000.0);
    }
    let summary = rare.summary();
    assert!(!said(&summary, LINK) && !said(&summary, ROOM), "{:#?}", texts(&summary));
}

#[test]
fn without_accounts_the_time_on_the_link_alone_is_told() {
    let mut story = held([4000.0, 1500.0, 0.0], [0.4, 0.3, 0.1]);
    story.facts.workers.clear();
    let summary = story.summary();
    assert_eq!(
        find(&summary, LINK).unwrap(),
        "KV transfer holds turns through P for 1.50 s of 5.80 s mean TTFT: 1.50 s on the link (cluster.link.gbytes_per_s)"
    );
}

#[test]
fn what_holds_most_turns_comes_first() {
    let mut story = held([4000.0, 1500.0, 0.0], [0.4, 0.3, 0.1]);
    let place = |summary: &RunSummary| texts(summary).iter().position(|text| text.starts_with(LINK)).unwrap();
    let queue = |summary: &RunSummary| texts(summary).iter().position(|text| text.contains("in its queue")).unwrap();
    // 27 turns fell back for want of a slot, with the next binder; the queue takes 69 % of the TTFT of 36, and KV half of it.
    assert_eq!((queue(&story.summary()), place(&story.summary())), (2, 3));
    story.info.slots = None;
    assert_eq!((queue(&story.summary()), place(&story.summary())), (0, 1));
}
