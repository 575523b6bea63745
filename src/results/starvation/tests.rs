//! Fairness over made-up session tables: shapes of starvation that are known beforehand.

use super::*;
use crate::record::ModeReason;
use crate::results::SessionRow;
use crate::results::stats::{bimodality, gini, jain};

/// A session with `direct` of ten later turns direct.
fn row(rank: u32, direct: u64, peak: u32) -> SessionRow {
    SessionRow {
        session_id: format!("s{rank}"),
        arrival_rank: rank,
        turns: 11,
        sent: 11,
        ok: 11,
        incomplete: false,
        peak_input_tokens: peak,
        workers: vec!["D0".into()],
        pinned_worker: Some(if rank.is_multiple_of(2) { "D0" } else { "D1" }.into()),
        later_turns: 10,
        direct_turns: direct,
        direct_share: Some(direct as f64 / 10.0),
        fallback_share: Some(1.0 - direct as f64 / 10.0),
        seeds: 0,
        reseeds: 0,
        main_reason: (direct < 10).then_some(ModeReason::SessionCap),
        mean_e2e_ms: Some(if direct >= 5 { 500.0 } else { 5000.0 }),
        p50_e2e_ms: None,
        p99_e2e_ms: None,
        slot_hold_s: Some(if direct > 0 { 60.0 } else { 0.0 }),
        slot_after_end_s: None,
        seed_asks: None,
        seed_rejections: None,
        refused_by_ended: None,
        append_rejections: None,
        migrations: None,
        usage_when_asked: Some(if direct > 0 { 0.5 } else { 1.1 }),
        starved: false,
        pattern: String::new(),
    }
}

fn rows(of: &[(u64, u32)]) -> Vec<SessionRow> {
    of.iter().enumerate().map(|(ix, (direct, peak))| row(ix as u32 + 1, *direct, *peak)).collect()
}

#[test]
fn half_direct_and_half_never_is_two_peaked_and_the_late_and_large_ones_are_told() {
    let mut rows = rows(&[(10, 31), (10, 32), (10, 30), (10, 33), (0, 56), (0, 55), (0, 57), (0, 58)]);
    let fairness = assess(&mut rows);
    assert_eq!((fairness.direct_share, fairness.histogram), (Some(0.5), [4, 0, 0, 0, 4]));
    assert!(fairness.two_peaked && (fairness.bimodality.unwrap() - 1.0).abs() < 1e-9);
    let starved = fairness.starved.unwrap();
    assert_eq!((starved.count, starved.first_rank, starved.last_rank_of_others), (4, 5, Some(4)));
    assert_eq!(starved.sessions, ["s5", "s6", "s7", "s8"]);
    assert_eq!((starved.main_reason, starved.slot_never_held), (Some(ModeReason::SessionCap), Some(4)));
    assert_eq!((starved.peak_input_tokens.starved, starved.peak_input_tokens.others), (Some(56.5), Some(31.5)));
    let separations = [starved.peak_input_tokens, starved.arrival_rank, starved.usage_when_asked].map(|c| c.separation);
    assert_eq!(separations, [Some(1.0); 3]);
    assert!(tells_apart(1.0, 4, 4));
    let pinned: Vec<_> = starved.pinned.iter().map(|pin| (pin.worker.as_str(), pin.starved, pin.sessions)).collect();
    assert_eq!(pinned, [("D0", 2, 4), ("D1", 2, 4)]);
    assert!(rows[4..].iter().all(|row| row.starved) && rows[..4].iter().all(|row| !row.starved));
}

#[test]
fn a_covariate_that_does_not_order_the_sessions_does_not_tell_them_apart() {
    // The starved are neither larger nor later: ranks 1, 4, 5, 8 among 8, all of one size.
    let mut rows = rows(&[(0, 40), (10, 40), (10, 40), (0, 40), (0, 40), (10, 40), (10, 40), (0, 40)]);
    let starved = assess(&mut rows).starved.unwrap();
    assert_eq!(starved.peak_input_tokens.separation, Some(0.5));
    assert_eq!(starved.arrival_rank.separation, Some(0.5));
    assert!(!tells_apart(0.5, 4, 4));
}

#[test]
fn few_sessions_are_not_told_apart_by_an_order_that_chance_makes() {
    // Of two against two, one order in six is complete.
    assert!(!tells_apart(1.0, 1, 1) && !tells_apart(1.0, 2, 1));
    assert!(tells_apart(1.0, 3, 3) && !tells_apart(0.8, 3, 3) && tells_apart(0.8, 20, 20));
    assert!(!tells_apart(0.74, 1000, 1000));
}

#[test]
fn sessions_that_all_starve_are_no_starvation_but_a_run_without_direct_turns() {
    let fairness = assess(&mut rows(&[(0, 1), (0, 2), (1, 3)]));
    assert_eq!((fairness.starved, fairness.two_peaked), (None, false));
    assert_eq!(fairness.histogram, [3, 0, 0, 0, 0]);
}

#[test]
fn equal_sessions_have_no_spread() {
    let fairness = assess(&mut rows(&[(7, 1); 5]));
    assert_eq!((fairness.bimodality, fairness.starved), (None, None));
    assert_eq!((fairness.gini_mean_e2e, fairness.jain_mean_e2e), (Some(0.0), Some(1.0)));
    assert_eq!(fairness.histogram, [0, 0, 0, 5, 0]);
}

#[test]
fn one_session_and_none_at_all() {
    let one = assess(&mut rows(&[(10, 1)]));
    assert_eq!((one.direct_share, one.bimodality, one.starved), (Some(1.0), None, None));
    let mut first_turn_only = rows(&[(10, 1)]);
    (first_turn_only[0].later_turns, first_turn_only[0].direct_turns) = (0, 0);
    first_turn_only[0].direct_share = None;
    let alone = assess(&mut first_turn_only);
    assert_eq!((alone.direct_share, alone.sessions_without_share), (None, 1));
    let none = assess(&mut []);
    assert_eq!((none.direct_share, none.gini_mean_e2e, none.jain_mean_e2e), (None, None, None));
}

#[test]
fn the_border_is_exclusive_on_both_sides() {
    // Two of ten is not below 20 %.
    assert_eq!(assess(&mut rows(&[(2, 1), (10, 1)])).starved, None);
    assert_eq!(assess(&mut rows(&[(1, 1), (10, 1)])).starved.unwrap().count, 1);
    // A run that is at 20 % itself starves nobody.
    assert_eq!(assess(&mut rows(&[(0, 1), (4, 1)])).starved, None);
}

#[test]
fn a_session_that_was_only_just_placed_is_not_starved() {
    // Turn 2 is the seed by construction: no direct turn, and nothing that stood against one.
    let short = |rank| SessionRow { later_turns: 1, main_reason: None, ..row(rank, 0, 1) };
    let idle = assess(&mut [short(1), short(2)]);
    assert_eq!((idle.starved_sessions, idle.histogram[0], idle.starved), (0, 2, None));
    let mut beside = [row(1, 10, 1), short(2), row(3, 0, 1)];
    let busy = assess(&mut beside);
    assert_eq!((busy.starved_sessions, busy.starved.unwrap().sessions), (1, vec!["s3".to_owned()]));
    assert!(!beside[1].starved && beside[2].starved);
    assert_eq!(assess(&mut rows(&[(0, 1), (0, 1)])).starved_sessions, 2, "all starve, and nobody beside the others");
}

#[test]
fn statistics_of_known_shapes() {
    let uniform: Vec<f64> = (0..=1000).map(|i| f64::from(i) / 1000.0).collect();
    assert!((bimodality(&uniform).unwrap() - 5.0 / 9.0).abs() < 1e-3);
    let two_points: Vec<f64> = (0..10).map(|i| f64::from(i % 2)).collect();
    assert!((bimodality(&two_points).unwrap() - 1.0).abs() < 1e-12);
    assert!((gini(&[1.0, 3.0]).unwrap() - 0.25).abs() < 1e-12);
    assert!((jain(&[1.0, 3.0]).unwrap() - 0.8).abs() < 1e-12);
}
