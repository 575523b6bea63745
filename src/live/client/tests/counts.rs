//! Counts of tokens that the text beside them contradicts.

use super::fake::{Fake, Script, generate_event};
use super::support::{Rig, block_on, generate_of, target, two_turns};
use crate::live::{Dialect, Target};
use crate::protocol::{Answer, Finish};
use crate::record::AnswerFacts;
use crate::scenario::OpenAiApi;

const TEXT: Dialect = Dialect::OpenAi(OpenAiApi::Completions);
const DONE: &str = "data: [DONE]\n\n";

/// A chunk with a text, its finish reason and its count as JSON.
fn chunk(text: &str, reason: &str, count: &str) -> String {
    format!(
        "data: {{\"choices\":[{{\"index\":0,\"text\":\"{text}\",\"finish_reason\":{reason}}}],\
         \"usage\":{{\"prompt_tokens\":100,\"completion_tokens\":{count}}}}}\n\n"
    )
}

/// The answer of these events, and what was noticed of its counts.
fn answer(dialect: Dialect, events: &[String]) -> (Answer, AnswerFacts) {
    block_on(async {
        let script = Script::stream().then(0, &events.concat()).then(0, DONE);
        let fake = Fake::start(move |_| script.clone()).await;
        let trace = two_turns();
        let mut rig = Rig::new(&trace, Target { dialect, ..target(&[&fake.url]) });
        let answer = rig.finish(generate_of(&trace, 0)).await;
        (answer, rig.client.seen().answers)
    })
}

/// Tokens of a whole answer of so many chunks with text, each with its count, and a last count behind them.
fn tokens(chunks: u32, count: impl Fn(u32) -> String, last: &str) -> (u32, Vec<u32>, AnswerFacts) {
    let mut events: Vec<String> = (0..chunks).map(|at| chunk("x", "null", &count(at))).collect();
    events.push(chunk("", "\"length\"", "null"));
    events.push(format!("data: {{\"choices\":[],\"usage\":{{\"completion_tokens\":{last}}}}}\n\n"));
    let (answer, facts) = answer(TEXT, &events);
    assert_eq!(answer.finish, Finish::Length, "{chunks} chunks, {last} at last: {answer:?}");
    assert_eq!(answer.last_token_at, answer.token_runs.last().map(|run| run.first));
    (answer.output_tokens, answer.token_runs.iter().map(|run| run.count).collect(), facts)
}

fn facts(uncounted: u64, chunks: u64, led: u64) -> AnswerFacts {
    AnswerFacts { told: 1, uncounted, chunks, led }
}

#[test]
fn a_count_of_0_or_of_far_fewer_tokens_than_chunks_with_text_is_no_count() {
    let none = |_| "null".to_owned();
    for last in ["0", "1", "20"] {
        assert_eq!(tokens(46, none, last), (46, vec![1; 46], facts(1, 46, 0)), "{last}");
    }
    // A server may cut the text of some tokens in two.
    assert_eq!(tokens(46, none, "40"), (40, vec![1; 40], facts(0, 0, 0)));
    // Each chunk told alone, and 0 after counts that went along.
    assert_eq!(tokens(46, |_| "1".into(), "1"), (46, vec![1; 46], facts(1, 46, 0)));
    assert_eq!(tokens(46, |at| (at + 1).to_string(), "0"), (46, vec![1; 46], facts(1, 46, 0)));
    let native = |last: u32| [generate_event(0, "null"), generate_event(last, r#"{"type":"length"}"#)];
    for (last, wanted) in [(0, (2, facts(1, 2, 0))), (3, (3, facts(0, 0, 0)))] {
        let (answer, facts) = answer(Dialect::Generate, &native(last));
        assert_eq!((&answer.finish, (answer.output_tokens, facts)), (&Finish::Length, wanted));
    }
}

#[test]
fn a_count_that_leads_the_text_or_falls_is_no_flood_and_leaves_each_chunk_its_token() {
    // Ten are asked for: with one a chunk on top of the count, they would be a flood.
    for count in [|_| "60".to_owned(), |at: u32| (60 - at).to_string()] {
        let (tokens, runs, facts_of) = tokens(60, count, "60");
        assert_eq!((tokens, runs.len(), facts_of), (60, 60, facts(0, 0, 1)));
        assert!(runs.iter().all(|run| *run == 1), "{runs:?}");
    }
    // The most that can be counted, and more text.
    let most = [chunk("x", "null", "4294967295"), chunk("x", "null", "null"), chunk("x", "\"length\"", "null")];
    assert_eq!(answer(TEXT, &most).0.output_tokens, u32::MAX);
    // One token ahead of its text, and several in a chunk, are counts as they should be.
    assert_eq!(tokens(3, |at| [2, 2, 3][at as usize].to_string(), "3"), (3, vec![1, 1, 1], facts(0, 0, 0)));
    assert_eq!(tokens(3, |at| [4, 8, 11][at as usize].to_string(), "11"), (11, vec![4, 4, 3], facts(0, 0, 0)));
}

#[test]
fn a_count_is_a_whole_number_with_or_without_a_point() {
    assert_eq!(tokens(3, |at| format!("{}.0", at + 1), "3.0"), (3, vec![1, 1, 1], facts(0, 0, 0)));
    for odd in ["2.5", "-3", "1e30", "4294967296", "\"3\""] {
        let (answer, _) = answer(TEXT, &[chunk("x", "\"length\"", odd)]);
        let Finish::Error { message, .. } = &answer.finish else { panic!("{odd}: {answer:?}") };
        assert!(message.contains("a whole number of tokens from 0 to 4294967295"), "{odd}: {message}");
        assert!(message.contains("completion_tokens"), "{odd}: {message}");
    }
}
