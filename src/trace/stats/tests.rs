//! Counted by hand.

use super::*;
use crate::trace::{ReadOptions, read_bytes};

fn trace(rows: &[(&str, u32, f64, u32, u32, &str)]) -> Trace {
    let mut text = String::from("{\"format\":\"pdreplay-trace\",\"version\":1,\"block_size\":10}\n");
    for (session, turn, time, input, output, ids) in rows {
        text += &format!(
            "{{\"session_id\":\"{session}\",\"turn_id\":{turn},\"timestamp\":{time},\"input_length\":{input},\"output_length\":{output},\"hash_ids\":[{ids}]}}\n"
        );
    }
    read_bytes("t", text.as_bytes(), &ReadOptions::default()).unwrap()
}

#[test]
fn hits_are_counted_in_time_order_and_by_session() {
    let trace = trace(&[
        ("a", 1, 0.0, 30, 5, "1,2,3"),
        ("b", 1, 1.0, 25, 5, "1,2"),
        ("a", 2, 2.0, 50, 5, "1,2,3,4,5"),
        ("a", 3, 3.0, 20, 5, "1,9"),
        ("b", 2, 4.0, 60, 5, "1,2,3,4,5,6"),
        ("a", 4, 5.0, 40, 5, "1,9,7,8"),
    ]);
    // b1 finds 2 blocks of a; a2 3 of its own; a3 1; b2 5, all brought by a; a4 2 of its own.
    let stats = TraceStats::of(&trace);
    let blocks = 2 + 3 + 1 + 5 + 2;
    assert_eq!(stats.infinite_cache_hit, f64::from(blocks * 10) / 225.0);
    assert_eq!(stats.cross_session_hit, f64::from((2 + 5) * 10) / 225.0);
    assert_eq!((stats.unique_blocks, stats.compactions), (9, 1));
    // Turn order of the table: a1 a2 a3 a4 b1 b2. a2 holds a1's prompt and answer, more than its full blocks.
    assert_eq!(ideal_hits(&trace), [0, 35, 10, 25, 20, 50]);
}

#[test]
fn live_sessions_and_contexts_peak_where_lives_overlap() {
    let trace = trace(&[
        ("a", 1, 0.0, 30, 5, "1,2,3"),
        ("b", 1, 1.0, 25, 5, "4,5"),
        ("a", 2, 2.0, 50, 5, "1,2,3,6,7"),
        ("c", 1, 2.0, 10, 1, "8"),
        ("b", 2, 9.0, 35, 5, "4,5,9"),
    ]);
    let stats = TraceStats::of(&trace);
    assert_eq!((stats.peak_live_sessions, stats.peak_live_context_tokens), (3, 55 + 30 + 11));
    let gap = stats.gap_s.unwrap();
    assert_eq!((gap.min, gap.max, gap.mean), (2.0, 8.0, 5.0));
    let append = stats.append_tokens.unwrap();
    assert_eq!((append.min, append.max), (5.0, 15.0));
    assert_eq!((stats.peak_input_sum_tokens, stats.span_s), (50 + 35 + 10, 9.0));
}

#[test]
fn percentiles_are_values_that_occur() {
    let spread = Spread::of((1..=10).map(f64::from)).unwrap();
    assert_eq!((spread.p10, spread.p50, spread.p90, spread.p99, spread.mean), (1.0, 5.0, 9.0, 10.0, 5.5));
    assert_eq!(Spread::of([]), None);
}

#[test]
fn a_single_turn_has_no_gap_and_says_so() {
    let stats = TraceStats::of(&trace(&[("a", 1, 0.0, 30, 5, "1,2,3")]));
    assert_eq!((stats.gap_s, stats.growth_tokens), (None, None));
    let rows = stats.rows();
    let gap = rows.iter().find(|row| row.label == "gap, start to start").unwrap();
    assert_eq!(gap.value, "none: every session has one turn");
}
