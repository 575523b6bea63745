//! Traces written, read back and sliced; values the trace tests share.

use proptest::prelude::*;

use super::*;
use crate::base::{Dur, SessionIx};

/// Provenance of a trace made by hand.
pub(crate) fn meta() -> TraceMeta {
    TraceMeta {
        name: "hand".into(),
        source: "hand".into(),
        sha256: String::new(),
        format: "native".into(),
        timestamp_unit: "s".into(),
        block_size: 0,
        block_size_source: "flag".into(),
        origin_ns: 0,
    }
}

const GOOD: &str = r#"{"session_id": "s1", "turn_id": 0, "timestamp": 0.0, "input_length": 300, "output_length": 20, "hash_ids": [1, 2, 3, 4, 5]}
{"session_id": "s2", "turn_id": 0, "timestamp": 0.4, "input_length": 200, "output_length": 10, "hash_ids": [1, 2, 9, 10]}
{"session_id": "s1", "turn_id": 1, "timestamp": 2.0, "input_length": 380, "output_length": 20, "hash_ids": [1, 2, 3, 4, 5, 6]}
"#;

fn read(text: impl AsRef<[u8]>) -> Trace {
    read_bytes("t.jsonl", text.as_ref(), &ReadOptions::default()).unwrap()
}

fn seconds(trace: &Trace) -> Vec<f64> {
    trace.turns.iter().map(|turn| turn.timestamp.as_secs_f64()).collect()
}

/// Everything but line numbers and provenance.
fn assert_same(a: &Trace, b: &Trace) {
    assert_eq!(a.sessions, b.sessions);
    assert_eq!(a.turns.len(), b.turns.len());
    for (x, y) in a.turns.iter().zip(&b.turns) {
        assert_eq!(a.tree.ids(x.prompt), b.tree.ids(y.prompt));
        assert_eq!(a.tree.ids(x.context), b.tree.ids(y.context));
        let TurnTrace { line, prompt, context, .. } = x.clone();
        assert_eq!(x, &TurnTrace { line, prompt, context, ..y.clone() });
    }
}

fn written(trace: &Trace) -> Vec<u8> {
    let mut text = Vec::new();
    write_native(trace, &mut text).unwrap();
    text
}

#[test]
fn what_is_written_reads_back_the_same() {
    let odd = r#"{"session_id":"b","turn_id":3,"timestamp":1785412800.123456789,"input_length":200,"output_length":0,"hash_ids":[5,6,7,18446744073709551615],"request_id":"r\n1"}
{"session_id":2,"turn_id":0,"timestamp":1785412800.5,"input_length":64,"output_length":3,"hash_ids":[5]}
{"session_id":2,"turn_id":1,"timestamp":1785412800.5,"input_length":130,"output_length":3,"hash_ids":[5,8,9]}
{"session_id":"b","turn_id":3,"timestamp":1785412800.2,"input_length":500,"output_length":9,"cached_tokens":7}"#;
    for text in [GOOD, odd] {
        let trace = read(text);
        let again = read(written(&trace));
        assert_eq!(again.meta.sha256, native_digest(&trace));
        assert_same(&trace, &again);
    }
}

#[test]
fn slices_keep_turn_numbers_and_start_at_zero() {
    let trace = read(GOOD);
    let late = slice(&trace, &SliceOptions { from: Some(Dur::from_millis(300)), ..SliceOptions::default() }).unwrap();
    assert_eq!(late.sessions.iter().map(|session| session.id.as_str()).collect::<Vec<_>>(), ["s2", "s1"]);
    assert_eq!(seconds(&late), [0.0, 1.6]);
    assert_eq!((late.turns[1].turn_id, late.turns[1].cached_tokens, late.turns[1].extends_previous), (1, 0, false));
    let one = slice(&trace, &SliceOptions { sessions: Some(vec!["s1".into()]), ..SliceOptions::default() }).unwrap();
    assert_eq!((one.turns_of(SessionIx(0)).len(), one.turns[1].cached_tokens), (2, 320));
    assert_eq!(one.tree.ids(one.turns[1].prompt), trace.tree.ids(trace.turns[1].prompt));
    let first = slice(&trace, &SliceOptions { first_sessions: Some(1), last_turn: Some(0), ..SliceOptions::default() });
    assert_eq!(first.unwrap().turns.len(), 1);
    let unknown = slice(&trace, &SliceOptions { sessions: Some(vec!["s9".into()]), ..SliceOptions::default() });
    assert_eq!(unknown.unwrap_err(), SliceError::UnknownSession("s9".into()));
    let none = slice(&trace, &SliceOptions { first_turn: Some(7), ..SliceOptions::default() });
    assert!(matches!(none, Err(SliceError::NothingLeft { turns: 3, sessions: 2, span_s: 2 })));
}

/// Session, turn, whole seconds, blocks kept of the session's last prompt, fresh blocks, tokens more, answer, with ids.
type Drawn = (u8, u8, u64, usize, usize, u32, u32, bool);

fn drawn() -> impl Strategy<Value = Vec<Drawn>> {
    let row = (0u8..4, 0u8..6, 0u64..9, 0usize..8, 0usize..5, 0u32..10, 1u32..40, prop::bool::weighted(0.9));
    prop::collection::vec(row, 1..25)
}

fn assembled(rows: &[Drawn]) -> Trace {
    let mut assembler = Assembler::new(10);
    let mut chains: Vec<Vec<u64>> = vec![Vec::new(); 4];
    let mut fresh = 0;
    for &(session, turn, second, keep, more, rest, output, with_ids) in rows {
        let chain = &mut chains[session as usize];
        chain.truncate(keep);
        chain.extend(fresh..fresh + more as u64);
        fresh += more as u64;
        let full = Row {
            session_id: &format!("s{session}"),
            turn_id: u32::from(turn),
            line: 0,
            timestamp_ns: second * 1_000_000_007,
            input_length: (chain.len() as u32 * 10 + rest).max(1),
            output_length: output,
            output_raised: false,
            cached_tokens: None,
            hash_ids: with_ids.then_some(chain),
            request_id: None,
        };
        assembler.push(full).unwrap();
    }
    assembler.finish(meta()).unwrap()
}

proptest! {
    #[test]
    fn any_trace_survives_writing_and_a_slice_of_everything(rows in drawn()) {
        let trace = assembled(&rows);
        assert_same(&trace, &read(written(&trace)));
        assert_same(&trace, &slice(&trace, &SliceOptions::default()).unwrap());
    }

    #[test]
    fn derived_fields_keep_their_bounds(rows in drawn()) {
        let trace = assembled(&rows);
        prop_assert_eq!(trace.turns.len(), rows.len());
        prop_assert_eq!(trace.turns.iter().map(|turn| turn.timestamp).min(), Some(Dur::ZERO));
        for ((turn, next), hit) in trace.turns.iter().zip(trace.turns.iter().skip(1).map(Some).chain([None])).zip(ideal_hits(&trace)) {
            prop_assert_eq!(turn.prompt.depth, turn.input_length / 10);
            prop_assert!(turn.prompt.depth <= turn.context.depth);
            prop_assert!(turn.context.depth <= (turn.input_length + turn.output_length) / 10);
            prop_assert_eq!(trace.tree.common_depth(turn.prompt, turn.context), turn.prompt.depth);
            prop_assert!(turn.cached_tokens <= hit && hit <= turn.input_length);
            if let Some(next) = next.filter(|next| next.session == turn.session && next.extends_previous) {
                prop_assert_eq!(next.cached_tokens, turn.input_length + turn.output_length);
                prop_assert_eq!(trace.tree.common_depth(next.prompt, turn.context), turn.context.depth);
            }
        }
    }
}
