//! A node that runs for days: what is over is forgotten.

use super::bench::{Net, ask, disaggregated, tokens};
use crate::base::{Role, Time, WorkerId};
use crate::engine::{EngineConfig, Timing};
use crate::kv::Dialect;
use crate::kv::index::{HashSpace, StreamSpec};
use crate::kv::publish::{Calendar, PublisherOptions};
use crate::kv::sync::{Subscriber, SyncInput, SyncOptions};
use crate::kv::wire::EncodeForm;
use crate::node::{Bootstrap, Exchange, GenerateAsk, NodeInput, NodeOutput, WorkerNode};
use crate::protocol::Finish;

/// A worker that costs nothing, so that many requests pass.
fn swift() -> EngineConfig {
    let timing = Timing { p0: 0.01, p1: 0.0, p2: 0.0, d0: 0.01, d1: 0.0, d2: 0.0, d3: 0.0, ..Timing::default() };
    EngineConfig {
        timing,
        ingest_base_ms: 0.0,
        ingest_per_token_us: 0.0,
        kv_pool_tokens: 6400,
        page_size: 4,
        ..EngineConfig::default()
    }
}

/// Sends `asks` at once and waits; prompt tokens of the last that were cached.
fn serve(node: &mut WorkerNode, exchange: &mut u64, asks: Vec<GenerateAsk>) -> u32 {
    let mut now = node.now;
    for ask in asks {
        *exchange += 1;
        node.handle_input(now, NodeInput::Generate { exchange: Exchange(*exchange), ask: Box::new(ask) });
    }
    let mut cached = None;
    loop {
        while let Some(output) = node.poll_output() {
            let NodeOutput::Finished { exchange: of, finish: Finish::Length, last, .. } = output else {
                panic!("not a whole answer: {output:?}");
            };
            cached = if of.0 == *exchange { Some(last.cached_tokens) } else { cached };
        }
        let Some(next) = node.poll_timeout() else { break };
        now = next;
        node.handle_timeout(now);
    }
    cached.expect("the last one was answered")
}

#[test]
fn two_hundred_thousand_prompts_leave_no_more_than_the_cache_holds() {
    let mut config = Net::new(&[WorkerId::new(Role::Colocated, 0)], &swift(), &[]).nodes[0].config.clone();
    config.block_size = 4;
    let (mut node, mut exchange, mut most) = (WorkerNode::new(config), 0, 0);
    for round in 0..20_000u32 {
        serve(&mut node, &mut exchange, (1..=10).map(|nth| ask(tokens(round * 10 + nth, 5), 1)).collect());
        if round % 10 == 0 {
            let kept = serve(&mut node, &mut exchange, vec![ask(tokens(0, 400), 1)]);
            assert!(kept == 396 || round == 0, "what is held is found, before and after a compaction: {kept}");
        }
        most = most.max(node.tree.block_count() as usize + node.tree.node_count());
    }
    assert!(most <= (1 << 15) + 30, "{most} blocks and nodes");
    assert!(node.counters().evicted_tokens > 0);
    assert_eq!((node.works.len(), node.generates.len(), node.agenda.iter().count(), node.names.len()), (0, 0, 0, 0));
}

#[test]
fn tokens_of_published_blocks_are_kept_as_long_as_the_blocks() {
    let mut config = Net::new(&[WorkerId::new(Role::Colocated, 0)], &swift(), &[]).nodes[0].config.clone();
    config.block_size = 4;
    let mut node = WorkerNode::new(config);
    let space = HashSpace { block_size: 4, hash_seed: 7 };
    let (instance, max_blocks) = ("W0".to_owned(), 1 << 20);
    let spec = StreamSpec { instance, dp_rank: 0, space, max_blocks, incarnation: None, register_ts_ms: None };
    let mut subscriber = Subscriber::new();
    let stream = subscriber.add(spec, SyncOptions::new(Dialect::Xllm), Time::ZERO).unwrap();
    subscriber.input(Time::ZERO, stream, SyncInput::Connected, |_, _| {});
    let form = EncodeForm::current(Dialect::Xllm);
    let options = PublisherOptions { form, block_size: 4, topic: String::new(), dp_rank: 0, buffer_steps: 10 };
    node.publish_events(&options, Calendar::VIRTUAL);
    let (mut exchange, mut most) = (0, 0);
    for round in 0..4_000u32 {
        for nth in 0..10 {
            exchange += 1;
            let ask = Box::new(ask(if nth == 0 { tokens(0, 400) } else { tokens(round * 10 + nth, 5) }, 1));
            node.handle_input(node.now, NodeInput::Generate { exchange: Exchange(exchange), ask });
        }
        while let Some(next) = node.poll_timeout() {
            node.handle_timeout(next);
        }
        while let Some(output) = node.poll_output() {
            if let NodeOutput::KvEvents(frames) = output {
                subscriber.input(node.now, stream, SyncInput::Live(&frames), |_, _| {});
            }
        }
        most = most.max(node.kept_tokens());
        let found = &subscriber.index().query(&tokens(0, 400))[0];
        assert_eq!((found.stream.synchronized, found.device_hit_tokens), (true, 400), "round {round}");
    }
    assert!(most <= 2 * (1 << 15), "{most} blocks");
    let replies = node.replay_events(node.now, 0);
    assert_eq!(replies.len(), 2, "a snapshot, made of tokens that were kept, and the end");
}

#[test]
fn requests_that_have_ended_are_not_waited_for() {
    let mut net = disaggregated(1, &[]);
    let waits = |net: &Net| net.nodes.iter().map(|node| node.patience.len()).collect::<Vec<_>>();
    for room in 0..200 {
        let (_, d) = net.send_both(0, 1, room, ask(tokens(room as u32, 100), 2));
        net.run_for(1.0);
        net.heard(d).length();
    }
    assert_eq!((waits(&net), net.nodes[1].agenda.iter().count()), (vec![0, 0], 0));
    // P hears no pull; D gets no KV; both wait.
    let meet = |port, room| Some(Bootstrap { host: "p".into(), port, room });
    let p = net.send(0, GenerateAsk { bootstrap: meet(0, 500), ..ask(tokens(1, 100), 2) });
    let d = net.send(1, GenerateAsk { bootstrap: meet(0, 501), ..ask(tokens(1, 100), 2) });
    net.run_for(1.0);
    assert_eq!(waits(&net), [1, 1]);
    // The lost leg's room waits for a late pull.
    [p, d].into_iter().enumerate().for_each(|(node, gone)| net.put(node, NodeInput::Gone(gone)));
    assert_eq!(waits(&net), [1, 0]);
    net.run_for(301.0);
    assert_eq!((waits(&net), net.nodes[0].rooms.len()), (vec![0, 0], 0));
}

#[test]
fn closed_sessions_are_forgotten_and_open_ones_are_not() {
    let mut net = disaggregated(1, &[]);
    net.open(1, "kept");
    for nth in 0..5000 {
        let name = format!("s{nth}");
        net.open(1, &name);
        net.put(1, NodeInput::Close(name.clone()));
        let lost = net.send(1, GenerateAsk { session: Some(format!("never{nth}")), ..ask(vec![1], 1) });
        net.put(1, NodeInput::Gone(lost));
    }
    net.run_for(1.0);
    assert!(net.nodes[1].names.len() < 5000, "{} names", net.nodes[1].names.len());
    let turn = net.send(1, GenerateAsk { session: Some("kept".into()), ..ask(tokens(0, 100), 3) });
    net.run_for(10.0);
    net.heard(turn).length();
}
