//! Rows in, trace out: order, derived fields, minted ids, notices.

use super::*;
use crate::trace::tests::meta;

fn row<'a>(session_id: &'a str, turn_id: u32, second: u64, lengths: (u32, u32), ids: Option<&'a [u64]>) -> Row<'a> {
    Row {
        session_id,
        turn_id,
        line: 0,
        timestamp_ns: second * 1_000_000_000,
        input_length: lengths.0,
        output_length: lengths.1,
        output_raised: false,
        cached_tokens: None,
        hash_ids: ids,
        request_id: None,
    }
}

fn assemble(rows: &[Row<'_>]) -> Trace {
    let mut assembler = Assembler::new(10);
    for (at, row) in rows.iter().enumerate() {
        assembler.push(Row { line: at as u32 + 1, ..row.clone() }).unwrap();
    }
    assembler.finish(meta()).unwrap()
}

fn codes(trace: &Trace) -> Vec<&'static str> {
    trace.notices.iter().map(|notice| notice.code).collect()
}

#[test]
fn sessions_come_by_first_timestamp_and_turns_by_number() {
    let trace = assemble(&[
        row("late", 0, 7, (10, 1), Some(&[1])),
        row("early", 1, 5, (20, 1), Some(&[2, 3])),
        row("early", 0, 5, (10, 1), Some(&[2])),
        row("tie", 0, 5, (10, 1), Some(&[4])),
    ]);
    let ids: Vec<&str> = trace.sessions.iter().map(|session| session.id.as_str()).collect();
    assert_eq!(ids, ["early", "tie", "late"]);
    assert_eq!(trace.turns.iter().map(|turn| turn.line).collect::<Vec<_>>(), [3, 2, 4, 1]);
    assert_eq!(trace.meta.origin_ns, 5_000_000_000);
    assert_eq!(trace.turns[3].timestamp, Dur(2_000_000_000));
    assert_eq!(codes(&trace), ["rows-sorted"]);
}

#[test]
fn a_turn_that_repeats_prompt_and_answer_extends_and_names_the_answer_blocks() {
    // 25 tokens and 10 of answer fill 3 blocks of 10; the next prompt names the third.
    let trace = assemble(&[
        row("s", 1, 0, (25, 10), Some(&[1, 2, 99])),
        row("s", 2, 1, (47, 5), Some(&[1, 2, 3, 4, 98])),
        row("s", 3, 2, (51, 5), Some(&[1, 2, 3, 4, 5])),
    ]);
    let [a, b, c] = &trace.turns[..] else { panic!("three turns") };
    assert_eq!((a.prompt.depth, a.context.depth, a.cached_tokens, a.extends_previous), (2, 3, 0, false));
    assert_eq!(trace.tree.ids(a.context), [1, 2, 3]);
    assert_eq!((b.prompt.depth, b.cached_tokens, b.extends_previous), (4, 35, true));
    // 51 is shorter than 47 + 5: blocks match, but the answer was not kept.
    assert_eq!((c.cached_tokens, c.extends_previous), (40, false));
    assert_eq!(b.context, b.prompt);
    assert_eq!(codes(&trace), ["context-compactions"]);
}

#[test]
fn a_compacted_turn_keeps_the_common_prefix_only() {
    let trace =
        assemble(&[row("s", 0, 0, (40, 5), Some(&[1, 2, 3, 4])), row("s", 1, 1, (60, 5), Some(&[1, 7, 8, 9, 10, 11]))]);
    assert_eq!((trace.turns[1].cached_tokens, trace.turns[1].extends_previous), (10, false));
    assert_eq!(trace.turns[0].context, trace.turns[0].prompt);
}

#[test]
fn cached_tokens_of_the_file_win() {
    let mut second = row("s", 1, 1, (60, 5), Some(&[1, 2, 3, 4, 5, 6]));
    second.cached_tokens = Some(40);
    let trace = assemble(&[row("s", 0, 0, (40, 5), Some(&[1, 2, 3, 4])), second]);
    assert_eq!((trace.turns[1].cached_tokens, trace.turns[1].extends_previous), (40, true));
}

#[test]
fn minted_sessions_share_nothing_and_extend_by_length() {
    let trace = assemble(&[
        row("a", 0, 0, (25, 10), None),
        row("a", 1, 1, (40, 4), None),
        row("b", 0, 2, (25, 10), None),
        row("a", 2, 3, (43, 4), None),
    ]);
    let [a0, a1, a2, b0] = &trace.turns[..] else { panic!("four turns") };
    assert_eq!((a1.cached_tokens, a1.extends_previous, a0.context.depth), (35, true, 3));
    assert_eq!(trace.tree.common_depth(a0.prompt, b0.prompt), 0);
    assert_eq!((trace.tree.common_depth(a1.prompt, a2.prompt), a2.extends_previous), (0, false));
    assert_eq!(codes(&trace), ["ids-minted", "context-compactions"]);
}

#[test]
fn minted_ids_avoid_the_ids_of_the_file() {
    let trace = assemble(&[
        row("a", 0, 0, (20, 1), Some(&[u64::MAX, 50])),
        row("a", 1, 1, (45, 1), None),
        row("b", 0, 2, (20, 1), None),
    ]);
    assert_eq!(trace.tree.ids(trace.turns[1].prompt), [u64::MAX, 50, 44, 45]);
    assert_eq!(codes(&trace), ["ids-minted"]);
    let mut full = Assembler::new(10);
    full.push(row("a", 0, 0, (20, 1), Some(&[u64::MAX, 0]))).unwrap();
    full.push(row("b", 0, 0, (20, 1), None)).unwrap();
    assert_eq!(full.finish(meta()).unwrap_err(), AssembleError::NoFreeIds);
}

#[test]
fn odd_rows_are_kept_and_named() {
    let trace = assemble(&[
        row("a", 3, 0, (10, 1), Some(&[1])),
        row("a", 3, 1, (20, 1), Some(&[1, 2])),
        row("b", 0, 1, (20, 1), Some(&[2, 1])),
        row("a", 4, 0, (30, 1), Some(&[1, 2, 3])),
    ]);
    assert_eq!(trace.turns.len(), 4);
    assert_eq!(
        codes(&trace),
        ["rows-sorted", "turns-repeated", "sessions-incomplete", "turns-before-predecessor", "ids-not-chained"]
    );
    assert!(trace.notices[1].text.contains("session a turn 3 in lines 1 and 2"), "{}", trace.notices[1].text);
    assert!(trace.sessions[0].incomplete && !trace.sessions[1].incomplete);
}

#[test]
fn id_counts_that_do_not_fit_are_refused_with_the_counts_that_would() {
    let error = Assembler::new(64).push(row("c", 0, 0, (130, 8), Some(&[6, 7, 8, 9, 10]))).unwrap_err();
    assert_eq!(error.to_string(), "line 0, `hash_ids`: 5 ids for 130 tokens in blocks of 64; 2 or 3 would fit");
    assert_eq!(Assembler::new(64).finish(meta()).unwrap_err(), AssembleError::Empty);
}
