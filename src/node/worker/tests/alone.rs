//! One node: streaming, cache, refusals, abort, flush.

use super::bench::{FOREVER, Net, ask, colocated, disaggregated, tokens};
use crate::base::{Role, Time, WorkerId};
use crate::engine::EngineConfig;
use crate::node::{GenerateAsk, NodeInput, NodeOutput};
use crate::protocol::ErrorClass;

#[test]
fn tokens_leave_one_by_one_when_they_are_there() {
    let mut net = colocated();
    let one = net.send(0, ask(tokens(0, 1000), 50));
    net.run(FOREVER);
    let heard = net.heard(one);
    heard.length();
    assert_eq!((heard.ids.len(), heard.prompt_tokens, heard.cached_tokens), (50, 1000, 0));
    assert!(heard.tokens_at.windows(2).all(|pair| pair[0] < pair[1]), "an iteration a token");
    // 6 ms and 2 µs a token of intake, then p0 + p1·a + p2·a²/2.
    let first = 8.0 + 22.558 + 9.855 + 1.2787e-6 * 500_000.0;
    assert!((heard.tokens_at[0].as_secs_f64() * 1e3 - first).abs() < 0.01, "{:?}", heard.tokens_at[0]);
}

#[test]
fn a_late_wake_moves_nothing() {
    let ends = |late: bool| {
        let mut net = colocated();
        let one = net.send(0, ask(tokens(0, 500), 40));
        net.run(Time(100_000_000));
        if late {
            net.nodes[0].handle_timeout(Time(200_000_000));
            net.now = Time(200_000_000);
            net.put(0, NodeInput::Close("nobody".into()));
        }
        net.run(FOREVER);
        net.heard(one).ends[0].0
    };
    assert_eq!(ends(false), ends(true));
}

#[test]
fn the_answer_is_what_was_asked_for_and_then_made_up_from_the_prompt() {
    let mut net = colocated();
    let given = GenerateAsk { answer_ids: vec![7, 8, 9], ..ask(tokens(0, 100), 5) };
    let (a, b) = (net.send(0, given), net.send(0, ask(tokens(0, 100), 5)));
    let c = net.send(0, ask(tokens(1, 100), 5));
    net.run(FOREVER);
    let ids = |exchange| net.heard(exchange).ids.clone();
    assert_eq!(ids(a)[..3], [7, 8, 9]);
    assert_eq!(ids(a)[3..], ids(b)[3..], "the same prompt makes up the same");
    assert_ne!(ids(b), ids(c));
}

#[test]
fn a_prompt_that_repeats_prompt_and_answer_finds_both_in_the_cache() {
    let mut net = colocated();
    let first = net.send(0, ask(tokens(0, 1000), 200));
    net.run(FOREVER);
    let mut prompt = tokens(0, 1000);
    prompt.extend(&net.heard(first).ids);
    prompt.extend(tokens(9, 100));
    let second = net.send(0, ask(prompt, 3));
    net.run(FOREVER);
    assert_eq!(net.heard(second).cached_tokens, 1200 / 64 * 64);
    let mut other = tokens(0, 1000);
    other.extend(tokens(5, 300));
    let third = net.send(0, ask(other, 3));
    net.run(FOREVER);
    assert_eq!(net.heard(third).cached_tokens, 1000 / 64 * 64, "another answer shares the prompt only");
}

#[test]
fn what_cannot_be_served_is_refused_with_a_reason() {
    let mut net = colocated();
    let long = GenerateAsk { rid: Some("s/3".into()), ..ask(tokens(0, 83_000), 10) };
    let (empty, nothing, long) = (net.send(0, ask(vec![], 5)), net.send(0, ask(vec![1], 0)), net.send(0, long));
    net.run(FOREVER);
    assert_eq!(net.heard(empty).refusal(), (400, "input_ids cannot be empty."));
    assert_eq!(net.heard(nothing).refusal(), (400, "max_new_tokens must be at least 1, got 0."));
    let message = "Request s/3 exceeds the maximum number of tokens: 83010 > 82944";
    assert_eq!(net.heard(long).refusal(), (400, message));
    let mut net = disaggregated(1, &[]);
    let legs = [net.send(0, ask(vec![1], 5)), net.send(1, ask(vec![1], 5))];
    net.run(FOREVER);
    for leg in legs {
        let message = "Disaggregated request received without bootstrap room id.";
        assert_eq!(net.heard(leg).abort(), (ErrorClass::BadRequest, message));
    }
}

#[test]
fn an_abort_ends_what_its_prefix_names_wherever_it_is() {
    let config = EngineConfig { max_running: 2, ..EngineConfig::default() };
    let mut net = Net::new(&[WorkerId::new(Role::Colocated, 0)], &config, &[]);
    let rid = |rid: &str| GenerateAsk { rid: Some(rid.into()), ..ask(tokens(0, 100), 500) };
    let names = ["a/1", "a/2", "a/3", "b/1"];
    let sent = names.map(|name| net.send(0, rid(name)));
    net.run_for(0.5);
    let late = net.send(0, rid("a/4"));
    net.put(0, NodeInput::Abort(Some("a/".into())));
    assert_eq!(net.heard(sent[0]).abort().1, "Aborted");
    assert!(!net.heard(sent[0]).ids.is_empty());
    for waiting in [sent[2], late] {
        assert_eq!(net.heard(waiting).abort().1, "Abort in waiting queue");
    }
    assert_eq!(net.nodes[0].in_flight(), 1);
    net.run(FOREVER);
    net.heard(sent[3]).length();
    let rest = net.send(0, rid("c/1"));
    net.put(0, NodeInput::Abort(None));
    net.run(FOREVER);
    net.heard(rest).abort();
    assert_eq!((net.nodes[0].load().token_usage, net.nodes[0].counters().aborted), (0.0, 5));
}

#[test]
fn a_client_that_goes_away_leaves_nothing_behind() {
    let mut net = colocated();
    for wait in [0.0, 0.002, 0.02, 0.2] {
        let one = net.send(0, ask(tokens(0, 500), 400));
        net.run_for(wait);
        net.put(0, NodeInput::Gone(one));
        net.run(FOREVER);
        assert!(net.heard(one).ends.is_empty());
        assert_eq!((net.nodes[0].in_flight(), net.nodes[0].load().token_usage), (0, 0.0));
    }
}

#[test]
fn a_flush_waits_for_nobody() {
    let mut net = colocated();
    let flush = |net: &mut Net| {
        let exchange = net.exchange();
        net.put(0, NodeInput::Flush(exchange));
        net.last(|output| match output {
            NodeOutput::Flushed { done, .. } => Some(*done),
            _ => None,
        })
    };
    net.send(0, ask(tokens(0, 1000), 5));
    assert!(!flush(&mut net), "a request is on its way in");
    net.run(FOREVER);
    assert!(flush(&mut net));
    let again = net.send(0, ask(tokens(0, 1000), 5));
    net.run(FOREVER);
    assert_eq!((net.heard(again).cached_tokens, net.nodes[0].counters().evicted_tokens), (0, 0));
}

#[test]
fn the_record_is_that_of_the_engine() {
    let mut net = colocated();
    net.send(0, ask(tokens(0, 1000), 5));
    net.run_for(10.0);
    let record = net.nodes[0].record(net.now);
    assert_eq!((record.worker.as_str(), record.role.as_str()), ("W0", "colocated"));
    assert_eq!((record.requests, record.prefilled_tokens, record.output_tokens), (1, 1000, 5));
    assert!(record.busy_share > 0.0 && record.usage_peak > 0.0 && record.restarts == 0);
}
